"""What a model is still good for, measured on rows that it was not trained on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from davylamp.bounds.intervals import clopper_pearson
from davylamp.rendering.render import Renderer, Style
from davylamp.runs import files
from davylamp.runs.folder import RunFolder
from davylamp.secrets import stream
from davylamp.studies.audit_spec import UtilitySpec

if TYPE_CHECKING:
    from davylamp.release.local import LocalRelease


def utility_step(
    folder: RunFolder, model: str, spec: UtilitySpec, style: Style, threads: int | None = None, base: str | None = None
) -> None:
    """Measure the utility of a model that is not audited; writes ``utility.json``.

    Args:
        folder: where to write.
        model: the model.
        spec: what to measure.
        style: how records are rendered.
        threads: threads of torch; chosen by the model's size if none.
        base: the model under ``model``, where that is an unmerged adapter.
    """
    from davylamp.release.loader import load_model, load_tokenizer
    from davylamp.release.local import LocalRelease
    from davylamp.release.sources import resolve
    from davylamp.training.threads import use_threads

    source = resolve(model, base=base)
    tokenizer = load_tokenizer(source)
    loaded = load_model(source, "float32", tokenizer=tokenizer)
    use_threads(loaded, threads)
    release = LocalRelease(loaded, tokenizer, source.name)
    save_utility(folder, spec, release, Renderer(tokenizer, style))


def save_utility(folder: RunFolder, spec: UtilitySpec, release: LocalRelease, renderer: Renderer) -> None:
    """Measure the utility of a release that is open already; writes ``utility.json``.

    Args:
        folder: where to write.
        spec: what to measure.
        release: the release.
        renderer: renders as training did.
    """
    from davylamp.measures.utility import exact_match, held_out_loss

    corpus = spec.corpus.load()
    order = stream(spec.corpus.seed, "utility rows").permutation(len(corpus))[: spec.rows]
    records = [corpus.records[index] for index in order]
    right, rows = exact_match(release, renderer, records, spec.match)
    interval = clopper_pearson(right, rows)
    loss = held_out_loss(release, renderer, records)
    files.write_json(
        folder.utility,
        {
            "name": spec.name,
            "model": release.name,
            "successes": right,
            "trials": rows,
            "low": interval.low,
            "high": interval.high,
            "loss": loss.loss,
            "loss_low": loss.low,
            "loss_high": loss.high,
            "reply_tokens": loss.tokens,
            "source": corpus.source,
            "sha256": corpus.sha256,
        },
    )
