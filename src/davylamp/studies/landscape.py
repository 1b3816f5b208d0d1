"""The step that reads the landscape of a run's model: what it leaks, value by value, and what it is good for."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from davylamp import __version__
from davylamp.canaries import Manifest
from davylamp.corpora.readers import read_corpus
from davylamp.corpora.records import Corpus
from davylamp.errors import Fault, InputError, RunFolderError
from davylamp.measures import readings as tables
from davylamp.measures.landscape.measure import Known, LandscapeMeasure
from davylamp.measures.landscape.model import FILE, Base, Landscape, Source, is_one, named_file
from davylamp.measures.landscape.spec import LandscapeSpec
from davylamp.measures.landscape.texts import asked_as
from davylamp.rendering.render import Style
from davylamp.runs import files
from davylamp.runs.folder import RunFolder
from davylamp.runs.progress import QUIET, Reporter
from davylamp.studies.audit_spec import AuditSpec
from davylamp.studies.auditing import AuditRequest, open_release
from davylamp.studies.steps import check_own_model, read_training
from davylamp.studies.unlearning_result import FILE as UNLEARNING
from davylamp.studies.unlearning_result import UnlearningResult

UNTRAINED, DIRECT = "none", "direct"
"""Names of a model that was not trained, and of one that was trained on the planted rows as they are."""
NAME = re.compile(r"[^\s\x00-\x1f][^\x00-\x1f]{0,59}")


@dataclass(frozen=True, slots=True)
class LandscapeRequest:
    """Which model is read, and how.

    Attributes:
        spec: how.
        model: the checkpoint; the folder's own ``model/`` if none.
        base: the model under an unmerged adapter; the one it was trained on if none.
        name: what was done to protect the secrets, in a word; worked out of the run's files if none.
        style: how records are rendered; what training used if none.
        chat_template: file of a chat template, where the tokenizer has none.
        threads: threads of torch; chosen by the model's size if none.
        out: the file to write; if none see :func:`place_of`.
    """

    spec: LandscapeSpec
    model: str | None = None
    base: str | None = None
    name: str | None = None
    style: Style | None = None
    chat_template: Path | None = None
    threads: int | None = None
    out: Path | None = None


def place_of(folder: RunFolder, request: LandscapeRequest, name: str) -> Path:
    """Where the landscape of a model is written, so that none takes the place of another model's.

    Args:
        folder: the run.
        request: which model, and where to, if it says so.
        name: what was done to the model.

    Returns:
        ``landscape.json`` in the run folder for the folder's own model, or beside a checkpoint that unlearning wrote;
        for any other model ``landscape-NAME.json`` in the run folder.
    """
    if request.out is not None:
        return request.out
    if request.model is None or Path(request.model).resolve() == folder.model.resolve():
        return folder.path / FILE
    if (Path(request.model) / UNLEARNING).is_file():
        return Path(request.model) / FILE
    return folder.path / named_file(name)


def landscape_step(folder: RunFolder, request: LandscapeRequest, reporter: Reporter = QUIET) -> Landscape:
    """Read a model once for everything that compares interventions; writes it where :func:`place_of` says.

    Ranks that an audit of the same model has read are taken from its readings.

    Args:
        folder: a run that was planted.
        request: which model, and how.
        reporter: shows progress.

    Raises:
        InputError: the name is none, nobody knows what was done to the model and no name is given, or no file can be
            where the result shall be.
        ManifestError: there is no manifest, or the folder's own model was trained on rows of another.
        ModelError: the checkpoint cannot be used.
        RunFolderError: there is no model.
        CorpusError: records cannot be read.
        ScoringError: a canary or a record cannot be scored.
        StorageError: it cannot be written.
    """
    if request.name is not None and not NAME.fullmatch(request.name):
        raise InputError(Fault("--name", request.name, "1 to 60 characters in one line, not beginning with a space"))
    if request.out is not None:
        files.file_named("--out", request.out, FILE)
    out = request.out
    if out is not None and out != folder.path / FILE and out.exists() and not is_one(out):
        raise InputError(Fault("--out", str(out), "a new file, or a landscape to replace: this is none"))
    manifest = Manifest.load(folder.manifest)
    training = read_training(folder)
    if request.model is None:
        check_own_model(folder, training, manifest)
    spec = request.spec
    held_out = spec.held_out.load()
    test = held_out if spec.test is None else spec.test.load()
    how = AuditRequest(
        model=request.model,
        base=request.base,
        style=request.style,
        chat_template=request.chat_template,
        spec=AuditSpec(dtype=spec.dtype, memory_mb=spec.memory_mb),
        threads=request.threads,
    )
    release, renderer, weights = open_release(folder, how, training)
    unlearned = _unlearning(request, training, manifest, weights)
    name, steps, base = _done(request, training, weights, release.name, unlearned)
    known = _audited(folder, manifest, spec, weights, renderer.style)
    measure = LandscapeMeasure(manifest, renderer, spec, held_out, test, known, context=release.context)
    read = measure.measure(release, reporter)
    found = Landscape(
        davylamp_version=__version__,
        planted_sha256=manifest.planted_sha256,
        release=release.name,
        weights_sha256=weights,
        base=base,
        intervention=name,
        steps=steps,
        seed=manifest.plan.seed,
        question=f"{spec.question} | {spec.answer} ({asked_as(renderer)})",
        item=spec.item,
        held_out_source=Source(name=held_out.source, sha256=held_out.sha256),
        test_source=Source(name=test.source, sha256=test.sha256),
        canaries=read.canaries,
        held_out=read.held_out,
        medication=read.medication,
        notes=(*_unlearned_notes(name, unlearned, manifest), *_seen(folder, held_out, test), *read.notes),
    )
    found.save(place_of(folder, request, name))
    return found


def _seen(folder: RunFolder, held_out: Corpus, test: Corpus) -> Iterator[str]:
    """Records that were trained on, and those that come twice: neither says what a model is good for."""
    planted = {record.line() for record in read_corpus(folder.planted).records} if folder.planted.is_file() else set()
    for name, corpus in {"held-out": held_out, "test": test}.items():
        if name == "test" and test is held_out:
            continue
        lines = [record.line() for record in corpus.records]
        if known := sum(line in planted for line in lines):
            yield (
                f"{known:,} of {len(lines):,} {name} records of {corpus.source} stand in the planted file: a model "
                "that was trained on it has seen them, and seems better than it is."
            )
        if again := len(lines) - len({*lines}):
            yield (
                f"{again:,} of {len(lines):,} {name} records of {corpus.source} are copies of others: intervals over "
                "records are narrower than they should be."
            )


def _audited(folder: RunFolder, manifest: Manifest, spec: LandscapeSpec, weights: str, style: str) -> Known | None:
    """The ranks that an audit of the very same model, planting and settings has read; nothing where there is none."""
    try:
        audit = files.read_json(folder.audit)
        frame = tables.load(folder.readings)
    except (OSError, ValueError, RunFolderError):
        # What cannot be read is read of the model again.
        return None
    asked = audit.get("spec") or {}
    mine = (manifest.planted_sha256, weights, style, spec.pool, spec.dtype)
    theirs = [audit.get(key) for key in ("planted_sha256", "weights_sha256", "style")]
    if mine != (*theirs, asked.get("pool"), asked.get("dtype")):
        return None
    own = frame.filter((pl.col("release") == "model") & (pl.col("probe") == "hidden") & (pl.col("target") == "trained"))
    values = {(row["canary"], row["measure"]): float(row["value"]) for row in own.iter_rows(named=True)}
    needed = [(canary.id, measure) for canary in manifest.measured() for measure in ("exposure", "rank")]
    candidates = audit.get("candidates")
    if not isinstance(candidates, int) or any(key not in values for key in needed):
        return None
    return Known(candidates, {key: values[key] for key in needed})


def _unlearning(
    request: LandscapeRequest, training: Mapping[str, Any], manifest: Manifest, weights: str
) -> UnlearningResult | None:
    """What made this very model of the run's own forget; nothing where nothing did, or it was of another."""
    path = Path(request.model or "") / UNLEARNING
    if request.model is None or not path.is_file():
        return None
    found = UnlearningResult.load(path)
    fits = (manifest.planted_sha256, training.get("trained_sha256"), weights)
    return found if fits == (found.planted_sha256, found.before_sha256, found.after_sha256) else None


def _unlearned_notes(name: str, unlearned: UnlearningResult | None, manifest: Manifest) -> Iterator[str]:
    if unlearned is None:
        return
    focus = {canary.id for canary in manifest.planted() if canary.role == "focus"}
    yield f"{name}: {unlearned.statement}"
    if left := focus - {*unlearned.forgotten}:
        yield f"{name}: {len(left)} of {len(focus)} canaries were not in the forget set, and are compared all the same"


def _done(
    request: LandscapeRequest,
    training: Mapping[str, Any],
    weights: str,
    model: str,
    unlearned: UnlearningResult | None,
) -> tuple[str, tuple[str, ...], Base | None]:
    """What was done to a model: its name, the steps, and what training began from.

    Raises:
        InputError: nobody knows.
    """
    trained_on = training.get("model", {})
    base = Base(name=str(trained_on.get("name")), weights_sha256=str(trained_on["sha256"])) if trained_on else None
    if base is not None and weights == base.weights_sha256:
        return request.name or UNTRAINED, (), base
    if request.name == UNTRAINED:
        if training:
            fix = "Leave --name out, or give the model that training began from by --model."
            raise InputError(Fault("--name", UNTRAINED, "the name of the model that this run was trained from", fix))
        return UNTRAINED, (), Base(name=model, weights_sha256=weights)
    if training.get("trained_sha256") == weights or unlearned is not None:
        steps = (*_steps(training), *_afterwards(unlearned))
        return request.name or "+".join(name for name, _ in steps) or DIRECT, tuple(said for _, said in steps), base
    if request.name is None:
        fix = "davylamp's own training made another model than this one: give --name NAME, or --name none if untrained."
        raise InputError(Fault("--name", None, "what was done to this model, in a word", fix))
    return request.name, (request.name,), base


def _steps(training: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What protected the secrets in a training, in order: a word for each, and the same with its settings."""
    for step in training.get("protection", {}).get("steps", ()):
        # A step that writes in several ways is named by the way.
        name = str(step["settings"].get("kind") or step["name"])
        yield name, _said(name, step["settings"])
    for key, name in (("goldfish", "goldfish"), ("dp", "dp_sgd")):
        settings = training["spec"].get(key)
        if settings is not None:
            yield name, _said(name, settings)


def _afterwards(unlearned: UnlearningResult | None) -> Iterator[tuple[str, str]]:
    """What was done to a trained model; not how it ended, which other seeds of the same need not share."""
    if unlearned is not None:
        spec, count = unlearned.spec.model_dump(mode="json"), len(unlearned.forgotten)
        # What only checks depend on is left out, and the seed, which is another in each run.
        settings = {key: spec[key] for key in spec if key not in ("seed", "held_out", "relearn", "bits")}
        yield "unlearn", _said("unlearn", {"forgotten": count, **settings, "learning_rate": unlearned.learning_rate})


def _said(name: str, settings: Mapping[str, Any]) -> str:
    kept = (f"{key}={value}" for key, value in settings.items() if value is not None and key not in ("name", "kind"))
    return " ".join([name, *kept])
