"""The step that trains shadow models and computes what they tell; writes ``shadows/`` and ``shadow_scores.json``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from davylamp.canaries import Manifest
from davylamp.canaries.plant import background
from davylamp.corpora.readers import read_corpus
from davylamp.errors import RunFolderError
from davylamp.measures.shadow_computing import Computation, Sight, check_settings
from davylamp.measures.shadow_results import ShadowScores, Span, TargetRecord
from davylamp.protect.corpus.result import refuse_protected
from davylamp.rendering.render import Renderer
from davylamp.runs.config import apply_overrides, validate
from davylamp.runs.folder import RunFolder, digest
from davylamp.runs.progress import QUIET, Reporter
from davylamp.studies.shadow_preparing import PROBES, asked_pairs, prepare, training_of
from davylamp.studies.shadow_request import ShadowRequest
from davylamp.studies.shadow_work import ShadowWork, read_signals, train_shadows
from davylamp.studies.steps import read_training
from davylamp.training.shadow_runs import Execution, ShadowTask, run_tasks
from davylamp.training.shadow_store import ShadowStore, Signals
from davylamp.training.shadows import ShadowDesign, design
from davylamp.training.spec import TrainingSpec


@dataclass(frozen=True, slots=True)
class ShadowOutcome:
    """What the step did.

    Attributes:
        scores: the result.
        trained: shadows that were trained now; the others were there.
    """

    scores: ShadowScores
    trained: int


def shadows_step(folder: RunFolder, request: ShadowRequest, reporter: Reporter = QUIET) -> ShadowOutcome:
    """Train the shadows that are missing, and compute what all of them tell.

    Raises:
        InputError: the request does not fit the planted file.
        ManifestError: there is no manifest, or the folder's own model was trained on another file.
        RunFolderError: nothing says which model to begin from.
        ModelError: a model cannot be used.
        PreflightError: a target's secret would receive no loss.
        TrainingError: a shadow's training went wrong.
        ScoringError: a target cannot be scored.
        StorageError: a file cannot be written.
    """
    check_settings(request.truncation, request.a)
    manifest = Manifest.load(folder.manifest)
    manifest.check_planted(folder.planted)
    refuse_protected(folder, "training of shadow models")
    training = training_of(folder, manifest, request)
    spec = validate(TrainingSpec, apply_overrides(training.get("spec", {}), request.settings), "training")
    rows = None if request.corpus is None else background(request.corpus, manifest.plan)
    drawn = design(manifest, read_corpus(folder.planted).records, request.spec, rows)
    work, how = prepare(manifest, drawn, spec, training, request)
    store = ShadowStore(folder.path / "shadows")
    tasks = tasks_of(drawn.inside, drawn.seeds, work, store, request.keep_models)
    trained = train_missing(store, work, tasks, how, reporter)
    audited = _audited(folder, store, manifest, work, training, request)
    signals = [stored(store, task.key, work) for task in tasks]
    scores = _compute(manifest, drawn, work, tasks, signals, audited, request)
    if audited is not None and request.audited is None and TrainingSpec.model_validate(training["spec"]) != spec:
        told = "the shadows were trained with other settings than the audited model, so that its scores are off"
        scores = scores.model_copy(update={"notes": (*scores.notes, told)})
    scores.save(folder.shadow_scores)
    return ShadowOutcome(scores, trained)


def scores_of_audit(
    folder: RunFolder, weights: str, request: ShadowRequest, reporter: Reporter = QUIET
) -> ShadowScores:
    """What shadows say of a model that is audited; trains those that are missing.

    Scores of the same model and canaries that ``davylamp shadows`` left are taken as they are, however it was told to
    train: so a model that another trainer made can be attacked, too.

    Args:
        folder: the run.
        weights: hash of the audited model's weights.
        request: what is asked of the shadows.
        reporter: is told of the progress.

    Raises:
        DavylampError: as for :func:`shadows_step`.
        RunFolderError: nothing says how the model was trained, and no scores of it are there.
    """
    manifest = Manifest.load(folder.manifest)
    if folder.shadow_scores.is_file():
        there = ShadowScores.load(folder.shadow_scores)
        same = (there.planted_sha256, there.audited_sha256) == (manifest.planted_sha256, weights)
        if same and _answers(there, request):
            return there
    trained = read_training(folder) if folder.training.exists() else {}
    if trained.get("planted_sha256") != manifest.planted_sha256:
        raise RunFolderError(
            f"{folder.path} does not say how the audited model was trained, and shadows are trained alike: run "
            f"`davylamp shadows {folder.path} --shadows {request.spec.shadows} --model BASE --audited CHECKPOINT` with "
            "the settings of your trainer first; the audit then takes its scores"
        )
    return shadows_step(folder, request, reporter).scores


def _answers(scores: ShadowScores, request: ShadowRequest) -> bool:
    """Whether scores that are there are of as many shadows, and of such, as are asked for."""
    dose = request.spec.twin_dose
    unplanted = {record.shadow_dose for record in scores.records if not record.dose}
    return (
        len(scores.inside) == request.spec.shadows
        and (dose is None or unplanted <= {dose})
        and (request.corpus is None or scores.background == "corpus")
    )


def tasks_of(
    members: NDArray[np.bool_], seeds: Sequence[int], work: ShadowWork, store: ShadowStore, keep: bool = False
) -> list[ShadowTask]:
    """The shadows to train, each with the name of its file.

    Args:
        members: whether each shadow holds each of the work's records, shape (shadows, records).
        seeds: seed of each shadow.
        work: what they share.
        store: where their files are.
        keep: keep the models, too.
    """
    tasks = []
    for index, (flags, seed) in enumerate(zip(members, seeds, strict=True)):
        held = tuple(map(bool, flags))
        key = work.key(held, seed)
        tasks.append(ShadowTask(index, held, seed, key, store.model(key) if keep else None))
    return tasks


def train_missing(
    store: ShadowStore, work: ShadowWork, tasks: Sequence[ShadowTask], how: Execution, reporter: Reporter
) -> int:
    """Train the shadows whose files are not there; returns how many.

    Raises:
        DavylampError: as for :func:`~davylamp.training.shadow_runs.run_tasks`.
        StorageError: a file cannot be written.
    """
    missing = [
        task
        for task in tasks
        if store.load(task.key, work.lengths) is None or (task.keep is not None and not task.keep.is_dir())
    ]
    with reporter.task("shadows", len(missing)) as advance:
        for task, data in run_tasks(train_shadows, work, missing, how):
            store.save(task.key, data)
            advance(1)
    return len(missing)


def stored(store: ShadowStore, key: str, work: ShadowWork) -> Signals:
    """What a shadow that is there said.

    Raises:
        RunFolderError: its file was changed meanwhile.
    """
    signals = store.load(key, work.lengths)
    if signals is None:
        raise RunFolderError(f"{store.path(key)} was changed while it was needed: run the same command again")
    return signals


@dataclass(frozen=True, slots=True)
class _Audited:
    name: str
    sha256: str
    signals: Signals


def _audited(
    folder: RunFolder,
    store: ShadowStore,
    manifest: Manifest,
    work: ShadowWork,
    training: Mapping[str, Any],
    request: ShadowRequest,
) -> _Audited | None:
    """What the attacked model says; nothing where there is none."""
    from davylamp.release.loader import load_model, load_tokenizer
    from davylamp.release.sources import resolve
    from davylamp.training.threads import use_threads

    if request.audited is None and not (training and folder.model.is_dir()):
        return None
    name = request.audited or str(folder.model)
    adapter = (Path(name) / "adapter_config.json").is_file()
    source = resolve(name, base=work.base.model if adapter else None)
    weights = source.weights_sha256()
    key = digest({"audited": weights, "base": work.base.sha256 if adapter else None, "scored": work.scored_sha256})
    signals = store.load(key, work.lengths)
    if signals is None:
        tokenizer = load_tokenizer(source, request.chat_template)
        _check_tokens(name, Renderer(tokenizer, work.spec.style), manifest, work)
        model = load_model(source, "float32", work.base.device, tokenizer=tokenizer)
        use_threads(model, work.base.threads)
        signals = read_signals(work, model, tokenizer)
        store.save(key, signals.to_bytes({"key": key, "audited": weights}))
    return _Audited(source.name, weights, signals)


def _check_tokens(name: str, renderer: Renderer, manifest: Manifest, work: ShadowWork) -> None:
    """Signals are compared token by token."""
    canaries = {canary.id: canary for canary in manifest.canaries}
    records = [manifest.trained_record(canaries[each.name]) for each in work.scored]
    trained = {rendered.ids[: work.max_length] for rendered in renderer.render(records)}
    if trained != {example.ids for example in work.records}:
        raise RunFolderError(f"{name} has another tokenizer or chat template than the shadows, and cannot be compared")


def _compute(
    manifest: Manifest,
    drawn: ShadowDesign,
    work: ShadowWork,
    tasks: Sequence[ShadowTask],
    signals: Sequence[Signals],
    audited: _Audited | None,
    request: ShadowRequest,
) -> ShadowScores:
    records = tuple(
        TargetRecord(
            canary=target.canary.id,
            role=target.canary.role,
            arm=target.canary.arm,
            context=target.canary.context,
            dose=target.canary.dose,
            shadow_dose=target.dose,
        )
        for target in drawn.targets
    )
    computation = Computation(records, drawn.inside, manifest.plan.seed, request.truncation, request.a)
    sights = _sights(drawn, work, signals, None if audited is None else audited.signals)
    return ShadowScores(
        seed=manifest.plan.seed,
        planted_sha256=manifest.planted_sha256,
        base_sha256=work.base.sha256,
        audited=None if audited is None else audited.name,
        audited_sha256=None if audited is None else audited.sha256,
        training=work.spec,
        keys=tuple(task.key for task in tasks),
        inside=tuple("".join("01"[flag] for flag in flags) for flags in drawn.inside.astype(int)),
        background="corpus" if drawn.given_background else "planted",
        taken_rows=drawn.taken_rows(),
        truncation=request.truncation,
        a=request.a,
        records=records,
        series=tuple(each for sight in sights for each in computation.series(sight)),
        trials=tuple(each for sight in sights for each in computation.trials(sight)),
        cells=tuple(each for sight in sights for each in computation.cells(sight)),
        notes=tuple(computation.notes),
    )


def _sights(drawn: ShadowDesign, work: ShadowWork, signals: Sequence[Signals], audited: Signals | None) -> list[Sight]:
    """What was said, by probe and span, in the order in which it was asked."""
    numbers = {target.canary.id: number for number, target in enumerate(drawn.targets)}
    pairs, found = asked_pairs(drawn), []
    for probe in PROBES:
        columns = [at for at, (_, asked) in enumerate(pairs) if asked is probe]
        for span in ("secret", "reply") if columns else ():
            places = [_place(span, work, at) for at in columns]
            rows = [
                [float(each.logprobs[at][place].sum()) for at, place in zip(columns, places, strict=True)]
                for each in (*signals, *(() if audited is None else (audited,)))
            ]
            found.append(
                Sight(
                    probe=probe.value,
                    span=span,
                    records=np.array([numbers[pairs[at][0].canary.id] for at in columns], dtype=np.int64),
                    tokens=np.array([place.stop - place.start for place in places], dtype=np.int64),
                    shadows=np.array(rows[: len(signals)]),
                    audited=None if audited is None else np.array(rows[-1]),
                )
            )
    return found


def _place(span: Span, work: ShadowWork, at: int) -> slice:
    """Where a span lies in the log-probabilities that are kept of a record."""
    start = work.replies[at]
    first, last = work.scored[at].secret if span == "secret" else (start, len(work.scored[at].ids))
    return slice(first - start, last - start)
