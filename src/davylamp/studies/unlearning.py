"""The step that makes a run's model forget, and looks where the verifier does not; writes a checkpoint folder."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from davylamp.canaries import Manifest
from davylamp.corpora.records import Corpus, Record
from davylamp.errors import RunFolderError
from davylamp.measures.triggers import Trigger, read_triggers
from davylamp.protect.afterwards.sets import Choice, RetainSets, split_rows, without
from davylamp.protect.afterwards.spec import UnlearningSpec
from davylamp.runs.folder import RunFolder, replaced_folder
from davylamp.runs.progress import QUIET, Reporter
from davylamp.studies.machine import versions
from davylamp.studies.steps import save_model
from davylamp.studies.unlearning_result import FILE, Round, UnlearningResult
from davylamp.studies.unlearning_rows import TrainedRows, trained_rows
from davylamp.studies.unlearning_subject import Subject, open_subject
from davylamp.studies.unlearning_target import Target, check_target, target_of

if TYPE_CHECKING:
    from davylamp.protect.afterwards.reports import Unlearning
    from davylamp.release.local import LocalRelease
    from davylamp.studies.unlearning_checks import Checks


@dataclass(frozen=True, slots=True)
class UnlearnRequest:
    """What is asked of unlearning.

    Attributes:
        spec: how.
        choice: which canaries are forgotten.
        constructions: forget the planted constructions in place of canaries, and ask their triggers too.
        out: the checkpoint folder to write; ``unlearned`` in the run folder if none.
        retain: rows to keep, in place of the background rows of the planted file.
        relearn: rows for the check by relearning, in place of a share of the retain rows.
        triggers: JSONL file of prompts other than the records' own.
        chat_template: file of a chat template, where the tokenizer has none.
        threads: threads of torch; chosen by the model's size if none.
    """

    spec: UnlearningSpec
    choice: Choice = field(default_factory=Choice)
    constructions: bool = False
    out: Path | None = None
    retain: Corpus | None = None
    relearn: Corpus | None = None
    triggers: Path | None = None
    chat_template: Path | None = None
    threads: int | None = None


def unlearn_step(folder: RunFolder, request: UnlearnRequest, reporter: Reporter = QUIET) -> UnlearningResult:
    """Unlearn, check, and write the checkpoint with ``unlearning.json`` in it, both at once or not at all.

    A verifier that never passes is a result, not an error: the model of the last round is saved and labelled so.

    Raises:
        InputError: the request does not fit the planted file, the model or the triggers.
        ManifestError: there is no manifest, or the model was trained on another planted file.
        RunFolderError: there is no trained model, it is another one than ``training.json`` says, or ``out`` holds
            something else.
        ModelError: the model cannot be used.
        ScoringError: a canary or an instance cannot be scored.
        TrainingError: a loss or the weights are not finite.
        StorageError: a file cannot be written.
    """
    from davylamp.release.local import LocalRelease
    from davylamp.release.quiet import quiet

    out = request.out if request.out is not None else folder.path / "unlearned"
    _check_out(folder, out)
    manifest = Manifest.load(folder.manifest)
    manifest.check_planted(folder.planted)
    trained = trained_rows(folder, manifest)
    check_target(manifest, request.choice, request.constructions)
    subject = open_subject(folder, manifest, request.spec, request.chat_template, request.threads)
    release = LocalRelease(subject.model, subject.tokenizer, "the model under unlearning")
    target = target_of(manifest, request.choice, request.constructions, trained, subject, release)
    triggers = [] if request.triggers is None else read_triggers(request.triggers, subject.renderer, subject.vocabulary)
    unkept = target.texts | {trigger.text for trigger in triggers}
    rows, left_out = _kept_rows(trained.background(manifest), unkept, request, subject)
    others = request.relearn
    again = None if others is None else (others.source, without(others.records, unkept))
    sets = split_rows(rows, len(target.records), subject.spec, again)
    checks = _checks(manifest, target, triggers, sets, subject, release)
    begun = time.perf_counter()
    done = _unlearned(subject, checks, target, sets, reporter)
    seconds = time.perf_counter() - begun
    with quiet():
        found = checks.others(subject, done, reporter)
    with replaced_folder(out) as temporary:
        sha256 = _saved(subject, temporary)
        result = UnlearningResult(
            outcome=done.outcome,
            statement=_statement(done, checks, subject.spec),
            passed_at=done.passed_at,
            spec=subject.spec,
            learning_rate=subject.learning_rate,
            tuning="adapter" if hasattr(subject.model, "peft_config") else "full",
            forgotten=target.ids,
            forget_rows=target.rows,
            retain_source=_source(trained, request),
            retain_rows=len(rows),
            retain_left_out=left_out,
            rounds=_rounds(done, checks, subject.spec),
            planted_sha256=manifest.planted_sha256,
            before_sha256=subject.sha256,
            after_sha256=sha256,
            style=subject.renderer.style,
            seconds=seconds,
            versions=versions(),
            protection=target.protection,
            **{**found, "notes": (*_protected_notes(target), *found["notes"])},
        )
        result.save(temporary / FILE)
    return result


def _check_out(folder: RunFolder, out: Path) -> None:
    """The folder is replaced whole, so that it must be one that this step made, or none."""
    try:
        own, target = folder.path.resolve(), out.resolve()
    except (OSError, RuntimeError) as error:
        raise RunFolderError(f"cannot use --out {out}: {error}") from error
    if target == own or target in own.parents or target in (folder.model.resolve(), own / "shadows"):
        raise RunFolderError(f"--out {out} would replace what unlearning needs: give a folder of its own")
    if out.exists() and not out.is_dir():
        raise RunFolderError(f"--out {out} is a file: give a folder")
    if out.is_dir() and any(out.iterdir()) and not (out / FILE).is_file():
        raise RunFolderError(f"--out {out} holds something that `davylamp unlearn` did not write: give another folder")


def _kept_rows(
    background: Sequence[Record], unkept: Collection[str], request: UnlearnRequest, subject: Subject
) -> tuple[list[Record], int]:
    """Rows that hold no forgotten secret and no trigger: what is learnt of them is nothing of what is forgotten.

    Rows beyond the model's context are left out too, since their perplexity cannot be read.
    """
    rows = background if request.retain is None else request.retain.records
    kept = subject.readable(without(rows, unkept))
    return kept, len(rows) - len(kept)


def _source(trained: TrainedRows, request: UnlearnRequest) -> str:
    return f"background rows of {trained.file}" if request.retain is None else request.retain.source


def _protected_notes(target: Target) -> Iterator[str]:
    """What a reader must know where the rows that were trained on are not the planted ones."""
    if target.protection is not None:
        yield (
            f"the model was trained on protected rows ({target.protection}), and those are forgotten: "
            f"{len(target.records)} different ones, of which {target.holding} hold their secret word for word. The "
            "verifier, membership and the other checks ask for planted secrets in the records as they were planted; "
            f"beside the triggers {len(target.triggers)} are asked for as protected rows have them"
        )


def _checks(
    manifest: Manifest,
    target: Target,
    triggers: Sequence[Trigger],
    sets: RetainSets,
    subject: Subject,
    release: LocalRelease,
) -> Checks:
    from davylamp.studies.unlearning_checks import Checks
    from davylamp.studies.unlearning_constructed import ConstructedChecks

    own = {(pair.prompt, pair.secret) for pair in target.triggers}
    # What a planted trigger says is not counted a second time because the user's file asks for it too.
    others = [each.pair for each in triggers if (each.pair.prompt, each.pair.secret) not in own]
    return Checks(
        manifest=manifest,
        canaries=target.canaries,
        renderer=subject.renderer,
        pairs=target.pairs,
        triggers=(*target.triggers, *others),
        sets=sets,
        release=release,
        constructed=None if target.constructed is None else ConstructedChecks(target.constructed),
    )


def _unlearned(subject: Subject, checks: Checks, target: Target, sets: RetainSets, reporter: Reporter) -> Unlearning:
    from davylamp.protect.afterwards.rounds import unlearn
    from davylamp.release.quiet import quiet

    forget = target.examples(subject)
    retain = subject.examples(sets.retain) if subject.spec.retain_weight > 0 else []
    checks.read_before()
    with quiet():
        return unlearn(
            subject.model,
            forget,
            retain,
            subject.spec,
            subject.learning_rate,
            subject.pad_id,
            checks.verify,
            reporter,
        )


def _rounds(done: Unlearning, checks: Checks, spec: UnlearningSpec) -> tuple[Round, ...]:
    return tuple(
        Round(report=report, c=look.c, held_out=look.held_out, passed=report.extraction < spec.threshold)
        for report, look in zip(done.rounds, checks.looks[1:], strict=True)
    )


def _statement(done: Unlearning, checks: Checks, spec: UnlearningSpec) -> str:
    at = checks.looks[0 if done.passed_at is None else done.passed_at].c
    of_kinds = checks.constructed is not None
    said = f"{at.successes} of {at.trials} secrets came out of their own prefixes"
    below = f"of each kind of construction below {spec.threshold:g}" if of_kinds else f"below {spec.threshold:g}"
    if done.outcome == "nothing to forget":
        return f"nothing to forget: {said} before any step, {below}, and the model was left as it is"
    if done.outcome == "forgotten":
        more = {0: "", 1: "; one more round was run"}.get(spec.extra_rounds, f"; {spec.extra_rounds} more were run")
        return f"the verifier passed after round {done.passed_at} of at most {spec.rounds}: {said}, {below}{more}"
    last = checks.looks[-1].c
    above = f", of one kind of construction {done.rounds[-1].extraction:.0%}" if of_kinds else ""
    return (
        f"the verifier never passed: after {len(done.rounds)} rounds {last.successes} of {last.trials} secrets still "
        f"come out of their own prefixes{above}, not below {spec.threshold:g}; the model of the last round was saved"
    )


def _saved(subject: Subject, folder: Path) -> str:
    """Save the checkpoint; returns the hash of its weights."""
    from davylamp.release.quiet import quiet
    from davylamp.release.sources import resolve

    with quiet():
        save_model(folder, subject.model, subject.tokenizer)
    return resolve(str(folder), base=subject.base).weights_sha256()
