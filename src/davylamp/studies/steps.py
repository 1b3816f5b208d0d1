"""The steps of an audit: each reads files and writes files, and can be run alone, elsewhere, and again."""

from __future__ import annotations

import platform
import resource
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from davylamp.bounds.intervals import clopper_pearson
from davylamp.canaries import Manifest, Plan, Planted, plant
from davylamp.corpora.readers import read_corpus
from davylamp.corpora.records import Corpus, Record
from davylamp.errors import Fault, InputError, ManifestError, PlantingError, RunFolderError
from davylamp.measures import readings as tables
from davylamp.measures.probes import Probe
from davylamp.rendering.render import Renderer, Style
from davylamp.runs import files
from davylamp.runs.folder import RunFolder, replaced_folder
from davylamp.runs.progress import QUIET, Reporter
from davylamp.secrets import stream
from davylamp.studies.recipe import AuditSpec, UtilitySpec
from davylamp.training.spec import TrainingSpec
from davylamp.verdict import Verdict, judge
from davylamp.verdict.extraction import extraction_verdicts

if TYPE_CHECKING:
    from davylamp.release.local import LocalRelease


def plant_step(folder: RunFolder, corpus: Corpus, plan: Plan, *, replace: bool = False) -> Planted:
    """Plant into a corpus; writes ``planted.jsonl`` and ``manifest.json``.

    Args:
        folder: where to.
        corpus: the background.
        plan: what to plant.
        replace: also where the folder holds a model or an audit of other canaries.

    Raises:
        PlantingError: the canaries cannot be planted as asked.
        RunFolderError: a model or an audit there is of other canaries, whose secrets would be lost.
        StorageError: a file cannot be written.
    """
    planted = plant(corpus, plan)
    if not replace:
        _check_not_in_use(folder, planted.manifest)
    planted.save(folder.path)
    return planted


def _check_not_in_use(folder: RunFolder, manifest: Manifest) -> None:
    used = [path.name for path in (folder.model, folder.readings, folder.verdict) if path.exists()]
    if used and folder.manifest.is_file() and Manifest.load(folder.manifest) != manifest:
        raise RunFolderError(
            f"{folder.path} holds {', '.join(used)} of other canaries, whose secrets only its manifest knows: give "
            "another --out, or remove the folder"
        )


def check_unplanted(data: Path, corpus: Corpus) -> None:
    """Refuse a file that a manifest beside it describes: it holds canaries already.

    Raises:
        PlantingError: it does.
    """
    beside = data.parent / "manifest.json"
    if beside.is_file() and f'"{corpus.sha256}"' in beside.read_text(encoding="utf-8", errors="replace"):
        manifest = Manifest.load(beside)
        if manifest.planted_sha256 == corpus.sha256:
            raise PlantingError(f"{data} already holds canaries (see {beside}): plant into the original file")


def train_step(
    folder: RunFolder,
    model: str,
    spec: TrainingSpec,
    seed: int,
    chat_template: Path | None = None,
    threads: int | None = None,
    reporter: Reporter = QUIET,
) -> dict[str, Any]:
    """Fine-tune on ``planted.jsonl``; writes ``model/`` and ``training.json``.

    The manifest is read for the preflight only: the rows alone are trained on.

    Returns:
        What ``training.json`` holds.

    Raises:
        ManifestError: the planted file is not the one of the manifest.
        ModelError: the model cannot be used.
        PreflightError: a planted secret would receive no loss.
        TrainingError: the loss is not finite.
        StorageError: a file cannot be written.
    """
    manifest = Manifest.load(folder.manifest)
    manifest.check_planted(folder.planted)
    records = read_corpus(folder.planted).records
    return _train(folder, records, manifest, model, spec, seed, chat_template, threads, reporter)


def train_clean_step(
    folder: RunFolder,
    records: Sequence[Record],
    model: str,
    spec: TrainingSpec,
    seed: int,
    threads: int | None = None,
    reporter: Reporter = QUIET,
) -> None:
    """Fine-tune on rows without canaries, for comparison; writes ``model/`` and ``training.json``."""
    _train(folder, records, None, model, spec, seed, None, threads, reporter)


def _train(
    folder: RunFolder,
    records: Sequence[Record],
    manifest: Manifest | None,
    model: str,
    spec: TrainingSpec,
    seed: int,
    chat_template: Path | None,
    threads: int | None,
    reporter: Reporter,
) -> dict[str, Any]:
    from davylamp.release.loader import load_model, load_tokenizer
    from davylamp.release.quiet import quiet
    from davylamp.release.sources import resolve
    from davylamp.training.examples import encode_records
    from davylamp.training.fit import fit
    from davylamp.training.preflight import preflight
    from davylamp.training.threads import use_threads

    source = resolve(model)
    if source.kind == "adapter":
        raise RunFolderError(f"{model} is an unmerged adapter: merge it into its base before fine-tuning it again")
    tokenizer = load_tokenizer(source, chat_template)
    renderer = Renderer(tokenizer, spec.style)
    loaded = load_model(source, "float32", tokenizer=tokenizer)
    use_threads(loaded, threads)
    context = getattr(loaded.config, "max_position_embeddings", None)
    examples = encode_records(records, renderer, spec, min(filter(None, (spec.max_length, context)), default=1 << 20))
    checked = (
        None if manifest is None else preflight(manifest, renderer, [(each.ids, each.labels) for each in examples])
    )
    pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id
    with quiet():
        trained, report = fit(loaded, examples, spec, int(pad or 0), seed, reporter)
    with replaced_folder(folder.model) as temporary, quiet():
        _save_model(temporary, trained, tokenizer)
        # Were it left until the new one is written, a process killed between the two would leave it beside this model.
        folder.training.unlink(missing_ok=True)
    made = {
        "model": {"name": source.name, "kind": source.kind, "sha256": source.weights_sha256()},
        "spec": spec.model_dump(mode="json"),
        "seed": seed,
        "rows": len(records),
        "planted_sha256": None if manifest is None else manifest.planted_sha256,
        "trained_sha256": resolve(str(folder.model), base=model if spec.method == "lora" else None).weights_sha256(),
        "preflight": None if checked is None else asdict(checked),
        **asdict(report),
        "peak_memory_bytes": peak_memory(),
        "versions": versions(),
    }
    files.write_json(folder.training, made)
    return made


def _save_model(folder: Path, model: Any, tokenizer: Any) -> None:
    """Save a model and its tokenizer; a full disk is an OSError, whichever library notices it."""
    from safetensors import SafetensorError

    try:
        model.save_pretrained(folder, safe_serialization=True)
        tokenizer.save_pretrained(folder)
    except SafetensorError as error:
        raise OSError(str(error)) from error
    except Exception as error:
        # The tokenizers library raises a bare Exception; another library's bug passes through.
        if type(error) is not Exception:
            raise
        raise OSError(str(error)) from error


@dataclass(frozen=True, slots=True)
class AuditRequest:
    """What an audit is asked to do.

    Attributes:
        model: the checkpoint; the folder's own ``model/`` if none.
        reference: a base model to compare with; ``adapter`` disables the checkpoint's own adapter.
        base: the model under an unmerged adapter; the one it was trained on if none.
        style: how records are rendered; what training used if none.
        chat_template: file of a chat template, where the tokenizer has none.
        spec: probes, precision and rules.
        utility: what the model shall still be good for.
        threads: threads of torch; chosen by the model's size if none.
    """

    model: str | None = None
    reference: str | None = None
    base: str | None = None
    style: Style | None = None
    chat_template: Path | None = None
    spec: AuditSpec = field(default_factory=AuditSpec)
    utility: UtilitySpec | None = None
    threads: int | None = None


def audit_step(folder: RunFolder, request: AuditRequest, reporter: Reporter = QUIET) -> Verdict:
    """Read the release and judge it; writes ``readings.parquet``, ``audit.json`` and ``verdict.json``.

    Raises:
        InputError: kappa is wanted, and there is no reference.
        ManifestError: there is no manifest, or the folder's own model was trained on rows of another.
        ModelError: the checkpoint cannot be used.
        ScoringError: a canary cannot be scored.
    """
    if "kappa" in request.spec.measures and request.reference is None:
        raise InputError(
            Fault("--reference", None, "a base model, since kappa is read from the model before it saw any secret")
        )
    manifest = Manifest.load(folder.manifest)
    training = _training(folder)
    if request.model is None:
        _check_own_model(folder, training, manifest)
    release, renderer, weights = _release(folder, request, training)
    # Before anything is read, so that a reference that does not fit costs no reading.
    reference = _reference(request, release)
    begun = time.perf_counter()
    frame, notes = _readings(release, renderer, manifest, request.spec, reporter)
    seconds = {"model": time.perf_counter() - begun}
    if reference is not None:
        begun = time.perf_counter()
        hidden = request.spec.model_copy(update={"probes": (Probe.HIDDEN,)})
        other, _ = _readings(reference, renderer, manifest, hidden, reporter, base=True)
        frame = frame.vstack(other.with_columns(release=tables.REFERENCE))
        seconds["reference"] = time.perf_counter() - begun
    if "extraction" in request.spec.measures:
        spec, of_model = request.spec, frame.filter(frame["release"] == "model")
        notes["extraction"] = extraction_verdicts(
            of_model, manifest.space.size, spec.extraction.guesses, spec.rules.confidence, spec.claim
        )
    if request.utility is not None:
        _utility(folder, request.utility, release, renderer)
    # Judged before anything is written: readings that no verdict can be given on must not stand beside an older one.
    verdict = judge(frame.filter(frame["release"] == "model"), manifest.space, request.spec.rules, notes["candidates"])
    # The verdict is written last and taken away first, so that one that is there is one on the files beside it.
    folder.verdict.unlink(missing_ok=True)
    # The verdict is written last and taken away first, so that one that is there is one on the files beside it.
    folder.verdict.unlink(missing_ok=True)
    tables.save(frame, folder.readings)
    files.write_json(
        folder.audit,
        {
            "release": release.name,
            "own_model": request.model is None,
            "weights_sha256": weights,
            "planted_sha256": manifest.planted_sha256,
            "reference": None if reference is None else reference.name,
            "style": renderer.style,
            "spec": request.spec.model_dump(mode="json"),
            **notes,
            "seconds": seconds,
            "peak_memory_bytes": peak_memory(),
            "versions": versions(),
        },
    )
    verdict.save(folder.verdict)
    return verdict


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
    _utility(folder, spec, release, Renderer(tokenizer, style))


def _training(folder: RunFolder) -> Mapping[str, Any]:
    """What ``training.json`` holds, or nothing where another trainer did the training."""
    if not folder.training.exists():
        return {}
    try:
        data = files.read_json(folder.training)
        if not isinstance(data.get("model"), dict):
            raise ValueError("'model' holds no object")
        # What was audited in another style than it was trained in would seem to have learnt nothing.
        TrainingSpec.model_validate(data.get("spec"))
    except (OSError, ValueError) as error:
        said = "'spec' is damaged" if isinstance(error, ValidationError) else error
        raise RunFolderError(f"cannot read {folder.training}: {said}; train again or remove it") from error
    return data


def _check_own_model(folder: RunFolder, training: Mapping[str, Any], manifest: Manifest) -> None:
    """A model that never saw these canaries would be declared clean."""
    if not folder.model.is_dir():
        raise RunFolderError(f"{folder.path} holds no trained model: run `davylamp train`, or give --model CHECKPOINT")
    if not training:
        raise RunFolderError(
            f"nothing says how {folder.model} was trained ({folder.training} is missing): run `davylamp train` again, "
            f"or give --model {folder.model} if another trainer made it"
        )
    if training.get("planted_sha256") != manifest.planted_sha256:
        raise ManifestError(
            f"{folder.model} was trained before {folder.planted} was planted anew: run `davylamp train` again, or give "
            "--model CHECKPOINT"
        )


def _release(
    folder: RunFolder, request: AuditRequest, training: Mapping[str, Any]
) -> tuple[LocalRelease, Renderer, str]:
    from davylamp.release.loader import load_model, load_tokenizer
    from davylamp.release.local import LocalRelease
    from davylamp.release.sources import resolve
    from davylamp.training.threads import use_threads

    base = request.base
    if base is None and request.model is None and (folder.model / "adapter_config.json").is_file():
        base = _trained_on(training)
    source = resolve(request.model or str(folder.model), base=base)
    tokenizer = load_tokenizer(source, request.chat_template)
    model = load_model(source, request.spec.dtype, tokenizer=tokenizer)
    use_threads(model, request.threads)
    release = LocalRelease(model, tokenizer, source.name, memory=request.spec.memory_mb * 2**20)
    weights = source.weights_sha256()
    # What training.json says of style holds for the model that it describes, and for no other.
    trained_here = training.get("trained_sha256") == weights
    style: Style = request.style or (training.get("spec", {}).get("style", "auto") if trained_here else "auto")
    return release, Renderer(tokenizer, style), weights


def _trained_on(training: Mapping[str, Any]) -> str | None:
    """The base of the folder's own adapter by a word that means the same on every machine, if it had one.

    A path is left to the adapter, which holds it whole: what the user wrote may be relative to another folder.
    """
    from davylamp.release.sources import SMOLLM2

    model = training.get("model", {})
    name = model.get("name")
    return name if model.get("kind") in ("embedded", "hub") or name == SMOLLM2 else None


def _reference(request: AuditRequest, release: LocalRelease) -> LocalRelease | None:
    if request.reference is None:
        return None
    if request.reference == "adapter":
        return release.reference()
    from davylamp.release.loader import load_model, load_tokenizer
    from davylamp.release.local import LocalRelease
    from davylamp.release.sources import resolve

    source = resolve(request.reference)
    tokenizer = load_tokenizer(source, request.chat_template)
    if not _same_tokens(tokenizer, release.tokenizer):
        raise RunFolderError(f"the reference {source.name} has another tokenizer than {release.name}")
    model = load_model(source, request.spec.dtype, tokenizer=tokenizer)
    return LocalRelease(model, tokenizer, source.name, memory=request.spec.memory_mb * 2**20)


def _same_tokens(one: Any, other: Any) -> bool:
    """Whether both give a text the same ids; a token that only one has, as one added in fine-tuning, does no harm."""
    ids = other.get_vocab()
    same = all(ids.get(token, at) == at for token, at in one.get_vocab().items())
    return same and one("0 aA.")["input_ids"] == other("0 aA.")["input_ids"]


def _readings(
    release: LocalRelease,
    renderer: Renderer,
    manifest: Manifest,
    spec: AuditSpec,
    reporter: Reporter,
    base: bool = False,
) -> tuple[Any, dict[str, Any]]:
    from davylamp.measures.exposure import Exposure
    from davylamp.measures.recovery import Recovery

    exposure = Exposure(manifest, renderer, spec.pool)
    found = exposure.measure(release, spec.exposure_probes, reporter)
    found += Recovery(manifest, renderer).measure(release, spec.probes, reporter)
    found += _token_readings(release, renderer, manifest, spec, reporter, base)
    notes = {
        "candidates": exposure.candidates,
        "merged": exposure.merged(),
        "candidate_tokens": {"read": exposure.read, "in_all": exposure.internal},
    }
    return tables.table(found), notes


def _token_readings(
    release: LocalRelease, renderer: Renderer, manifest: Manifest, spec: AuditSpec, reporter: Reporter, base: bool
) -> list[tables.Reading]:
    """Readings of the measures that share one scoring of each record; kappa is read from a base model only."""
    from davylamp.measures.extraction import Extraction
    from davylamp.measures.kappa import Kappa
    from davylamp.measures.perplexity import Perplexity
    from davylamp.scoring.tokens import TokenScorer

    wanted = [name for name in spec.measures if name != "kappa" or base]
    schemes = {"extraction": spec.extraction.schemes, "kappa": spec.kappa.schemes}
    scorer = TokenScorer([scheme for name in wanted for scheme in schemes.get(name, ())])
    found: list[tables.Reading] = []
    if "extraction" in wanted:
        found += Extraction(manifest, renderer, spec.extraction, scorer).measure(
            release, spec.exposure_probes, reporter
        )
    if "perplexity" in wanted:
        found += Perplexity(manifest, renderer, scorer).measure(release, spec.exposure_probes, reporter)
    if "kappa" in wanted:
        found += Kappa(manifest, renderer, spec.kappa, scorer).measure(release, (Probe.HIDDEN,), reporter)
    return found


def _utility(folder: RunFolder, spec: UtilitySpec, release: LocalRelease, renderer: Renderer) -> None:
    from davylamp.measures.utility import exact_match

    corpus = spec.corpus.load()
    order = stream(spec.corpus.seed, "utility rows").permutation(len(corpus))[: spec.rows]
    right, rows = exact_match(release, renderer, [corpus.records[index] for index in order], spec.match)
    interval = clopper_pearson(right, rows)
    files.write_json(
        folder.utility,
        {
            "name": spec.name,
            "model": release.name,
            "successes": right,
            "trials": rows,
            "low": interval.low,
            "high": interval.high,
            "source": corpus.source,
            "sha256": corpus.sha256,
        },
    )


def peak_memory() -> int:
    """Largest resident memory of this process so far, in bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(peak if sys.platform == "darwin" else peak * 1024)


def versions() -> dict[str, str]:
    """Versions of what the numbers depend on."""
    names = ("davylamp", "torch", "transformers", "tokenizers", "peft", "numpy", "scipy", "polars")
    return {"python": platform.python_version(), **{name: version(name) for name in names}}
