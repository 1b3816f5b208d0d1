"""What all shadows of a run share: the base, the settings, the tokenised rows; settled once, before training."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from davylamp.canaries import Manifest
from davylamp.corpora.records import Record
from davylamp.errors import ManifestError, PreflightError, RunFolderError
from davylamp.measures.probes import Probe, first_span, probe_record
from davylamp.rendering.render import Renderer
from davylamp.runs.folder import RunFolder
from davylamp.scoring.tokens import SecretTokens
from davylamp.studies.shadow_request import ShadowRequest
from davylamp.studies.shadow_work import Base, ShadowWork, pad_token
from davylamp.studies.steps import read_training
from davylamp.training.goldfish import dropped
from davylamp.training.shadow_runs import Execution
from davylamp.training.shadows import ShadowDesign, Target
from davylamp.training.spec import TrainingSpec

SMALL_BYTES = 20_000_000
"""Weights below which shadows share this machine, a process a core."""
PROBES = (Probe.HIDDEN, Probe.AS_TRAINED)
LIBRARIES = ("torch", "transformers", "accelerate")


def training_of(folder: RunFolder, manifest: Manifest, request: ShadowRequest) -> Mapping[str, Any]:
    """What ``training.json`` says, or nothing where the request says all that is needed.

    Raises:
        RunFolderError: it is missing or damaged, and the request names no model.
        ManifestError: it is of another planted file, and the request names no model.
    """
    how = "give --model BASE (and settings such as learning_rate=1e-4) to say how shadows are trained"
    if not folder.training.exists():
        if request.model is None:
            raise RunFolderError(
                f"{folder.path} does not say how its model was trained: run `davylamp train`, or {how}"
            )
        return {}
    data = read_training(folder)
    if data.get("planted_sha256") == manifest.planted_sha256:
        return data
    if request.model is None:
        raise ManifestError(
            f"{folder.model} was trained before {folder.planted} was planted anew: run `davylamp train` again, or {how}"
        )
    return {}


@dataclass(frozen=True, slots=True)
class Plain:
    """Rows of shadows before they are tokens, and what the trained models are asked.

    Attributes:
        rows: the rows of a shadow that nothing is in.
        records: what a shadow may hold.
        positions: the rows that each of them takes.
        asked: from the tokenizer's renderer to what is scored, and where the reply of each begins.
    """

    rows: Sequence[Record]
    records: Sequence[Record]
    positions: Sequence[tuple[int, ...]]
    asked: Callable[[Renderer], tuple[list[SecretTokens], list[int]]]


def prepare(
    manifest: Manifest, drawn: ShadowDesign, spec: TrainingSpec, training: Mapping[str, Any], request: ShadowRequest
) -> tuple[ShadowWork, Execution]:
    """Open the base once, for what every worker must agree on, and tokenise all rows once.

    Raises:
        RunFolderError: the base is an adapter, or has other weights than training began from.
        ModelError: the base cannot be used.
        PreflightError: a target's secret would receive no loss.
    """
    plain = Plain(
        drawn.rows,
        drawn.records,
        tuple(target.positions for target in drawn.targets),
        lambda renderer: _asked(manifest, drawn, renderer),
    )
    work, how, renderer = prepare_rows(plain, spec, training, request)
    _preflight(manifest, drawn, renderer, work)
    return work, how


def prepare_rows(
    plain: Plain, spec: TrainingSpec, training: Mapping[str, Any], request: ShadowRequest
) -> tuple[ShadowWork, Execution, Renderer]:
    """What all shadows share, whatever they hold, and the renderer that wrote it.

    Raises:
        RunFolderError: the base is an adapter, or has other weights than training began from.
        ModelError: the base cannot be used.
    """
    from davylamp.release.loader import load_model, load_tokenizer
    from davylamp.release.sources import resolve
    from davylamp.training.examples import encode_records
    from davylamp.training.fit import resolve_precision
    from davylamp.training.stacked_fit import stackable
    from davylamp.training.threads import use_threads

    name = request.model or training["model"]["name"]
    if Path(name).expanduser().exists():
        # A worker may be run from another folder.
        name = str(Path(name).expanduser().resolve())
    source = resolve(name)
    if source.kind == "adapter":
        raise RunFolderError(f"{name} is an unmerged adapter: merge it into its base before fine-tuning it again")
    weights = source.weights_sha256()
    if request.model is None and weights != training["model"].get("sha256"):
        raise RunFolderError(f"{name} holds other weights than those that training began from: name them with --model")
    tokenizer = load_tokenizer(source, request.chat_template)
    model = load_model(source, "float32", tokenizer=tokenizer)
    small = sum(path.stat().st_size for path in source.weight_files) < SMALL_BYTES
    jobs = request.jobs if request.jobs is not None else (os.cpu_count() or 1) if small else 1
    at_once = min(jobs, request.spec.shadows) if request.executor == "local" else 1
    threads = use_threads(model, request.threads)
    if request.threads is None and at_once > 1:
        threads = max(1, min(threads, (os.cpu_count() or 1) // at_once))
    context = getattr(model.config, "max_position_embeddings", None)
    longest = min(filter(None, (spec.max_length, context)), default=1 << 20)
    renderer, loose = Renderer(tokenizer, spec.style), spec.model_copy(update={"packing": False})
    scored, replies = plain.asked(renderer)
    precision = resolve_precision(spec)
    rows = tuple(encode_records(plain.rows, renderer, loose, longest))
    own = tuple(encode_records(plain.records, renderer, loose, longest))
    most = max(len(row.ids) for row in (*rows, *own))
    stacked = request.together > 0 and small and stackable(model, rows, most, spec, precision, pad_token(tokenizer))
    work = ShadowWork(
        base=Base(name, weights, request.chat_template, str(model.device), threads),
        spec=spec,
        max_length=longest,
        rows=rows,
        records=own,
        positions=tuple(plain.positions),
        scored=tuple(scored),
        replies=tuple(replies),
        versions={library: version(library) for library in (*LIBRARIES, *(["peft"] if spec.method == "lora" else []))},
        precision=precision,
        stacked=stacked,
    )
    together = request.together if stacked else 1
    how = Execution(request.executor, jobs, request.address, threads, model.device.type == "cuda", together)
    return work, how, renderer


def _asked(manifest: Manifest, drawn: ShadowDesign, renderer: Renderer) -> tuple[list[SecretTokens], list[int]]:
    """Every target under every probe that applies to it, and where its reply begins."""
    pairs = asked_pairs(drawn)
    shown = [probe.shown(manifest, target.canary) for target, probe in pairs]
    records = [
        probe_record(manifest, target.canary, text, target.canary.secret)
        for (target, _), text in zip(pairs, shown, strict=True)
    ]
    scored, replies = [], []
    for (target, _), text, rendered in zip(pairs, shown, renderer.render(records), strict=True):
        span = rendered.span(*first_span(manifest, target.canary, text, target.canary.secret))
        scored.append(SecretTokens(target.canary.id, rendered.ids, span))
        replies.append(max(1, rendered.loss_start))
    return scored, replies


def asked_pairs(drawn: ShadowDesign) -> list[tuple[Target, Probe]]:
    """Every target under every probe that applies to it, in the order in which all are asked."""
    return [(target, probe) for probe in PROBES for target in drawn.targets if probe.applies(target.canary)]


def _preflight(manifest: Manifest, drawn: ShadowDesign, renderer: Renderer, work: ShadowWork) -> None:
    """A record whose secret is cut off or masked would be as unknown to the shadows that hold it as to the others."""
    from davylamp.training.examples import NO_LOSS

    silent = []
    for target, example, rendered in zip(drawn.targets, work.records, renderer.render(drawn.records), strict=True):
        shown = manifest.shown_in_training(target.canary)
        first, last = rendered.span(*first_span(manifest, target.canary, shown, target.canary.secret))
        # What a Goldfish loss drops is left out on purpose, in shadows as in the model.
        lost = (False,) * last if work.spec.goldfish is None else dropped(example.ids, work.spec.goldfish)[:last]
        wanted = [NO_LOSS if lost[at] else rendered.ids[at] for at in range(first, last)]
        if last > len(example.ids) or list(example.labels[first:last]) != wanted or first == 0:
            silent.append(target.canary.id)
    refuse_silent(silent)


def refuse_silent(names: Sequence[str]) -> None:
    """Refuse to train where secrets would receive no loss.

    Raises:
        PreflightError: there are such secrets.
    """
    if names:
        more = f" and {len(names) - 5} more" if len(names) > 5 else ""
        raise PreflightError(
            f"no shadow was trained, since the secret of {', '.join(names[:5])}{more} would receive no loss (cut by "
            "max_length, or masked)"
        )
