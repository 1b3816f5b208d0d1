"""Membership within an audit: the measure made ready, and its result left in the run folder."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from davylamp.canaries import Manifest
from davylamp.errors import Fault
from davylamp.measures.membership.gathering import Reference
from davylamp.measures.membership.measure import PREFIX, Membership
from davylamp.measures.membership.notes import SHADOW_NOTES, MembershipNotes
from davylamp.measures.probes import Probe
from davylamp.measures.readings import Reading
from davylamp.measures.shadow_results import ONLINE, ShadowScores
from davylamp.rendering.render import Renderer
from davylamp.runs.folder import RunFolder
from davylamp.scoring.tokens import TokenScorer
from davylamp.studies.audit_spec import AuditSpec
from davylamp.training.spec import TrainingSpec
from davylamp.verdict.epsilon import epsilon_result
from davylamp.verdict.membership import ENDING, membership_result
from davylamp.verdict.membership_model import MembershipResult

if TYPE_CHECKING:
    from davylamp.release.local import LocalRelease


def reference_faults(spec: AuditSpec, reference: str | None) -> list[Fault]:
    """What is missing where a score that was asked for by name needs a reference model and none is given."""
    settings = spec.membership
    if "membership" not in spec.measures or settings.reference or reference or not settings.wants_reference:
        return []
    return [Fault("--reference", None, "a base model, since a membership score calibrates by one")]


def takes_moments(spec: AuditSpec) -> bool:
    """Whether the shared scoring must keep the moments of each row."""
    return "membership" in spec.measures and "moments" in Membership.needs(spec.membership.chosen(True))


def membership_measure(
    manifest: Manifest,
    renderer: Renderer,
    spec: AuditSpec,
    scorer: TokenScorer,
    reference: LocalRelease | None,
    adapter: bool,
    chat_template: Path | None,
) -> Membership:
    """The measure, made before anything is read, so that settings that do not fit cost no reading.

    Args:
        manifest: what was planted.
        renderer: renders as training did.
        spec: how the release is asked.
        scorer: shared with other measures.
        reference: the audit's reference, if it has one.
        adapter: whether that is the audited checkpoint with its adapter disabled.
        chat_template: file of a chat template, where a tokenizer has none.

    Raises:
        InputError: the settings do not fit the manifest.
        ModelError: a model that the settings name cannot be loaded.
    """
    used = None if reference is None else Reference(reference, "adapter disabled" if adapter else "checkpoint")
    if spec.membership.reference is not None:
        used = Reference(_load(spec, spec.membership.reference, chat_template), "checkpoint")
    return Membership(manifest, renderer, spec.membership, scorer, used)


def _load(spec: AuditSpec, model: str, chat_template: Path | None) -> LocalRelease:
    from davylamp.release.loader import load_model, load_tokenizer
    from davylamp.release.local import LocalRelease
    from davylamp.release.sources import resolve

    source = resolve(model)
    tokenizer = load_tokenizer(source, chat_template)
    loaded = load_model(source, spec.dtype, tokenizer=tokenizer)
    return LocalRelease(loaded, tokenizer, source.name, memory=spec.memory_mb * 2**20)


def shadow_readings(scores: ShadowScores, asked: Collection[str] | None) -> tuple[list[Reading], tuple[str, ...]]:
    """Membership scores of the audited model from its shadows, each canary asked as it was trained on.

    Args:
        scores: what the shadows say.
        asked: canaries that other membership scores were taken of, or none where there are no others.

    Returns:
        The readings of every score that all of these canaries have, and a sentence for each score that is left out: a
        rate over some of them would be another rate, and non-members that stood in the shadows at other doses than the
        members would be other non-members.
    """
    readings = [
        each
        for each in scores.readings()
        if each.measure.startswith(PREFIX)
        and each.probe == Probe.AS_TRAINED.value
        and (asked is None or each.canary in asked)
    ]
    kept = {each.canary for each in readings}
    stood = {(each.arm, each.dose > 0): set[int]() for each in scores.records if each.canary in kept}
    for each in scores.records:
        if each.canary in kept:
            stood[each.arm, each.dose > 0].add(each.shadow_dose)
    apart = [arm for arm, planted in stood if planted and stood[arm, True] != stood.get((arm, False))]
    if not apart:
        return readings, ()
    doses = ", ".join(map(str, sorted(stood[apart[0], True])))
    others = ", ".join(map(str, sorted(stood.get((apart[0], False), ()))))
    told = (
        f"{', '.join(ONLINE)} are left out: members of arm {apart[0]!r} stood {doses} times in the shadows that hold "
        f"them and non-members {others} times, so that these scores would tell the doses apart (leave "
        "shadows.twin_dose out, and have rows enough)"
    )
    named = {f"{PREFIX}{score}{ending}" for score in ONLINE for ending in ("", ENDING)}
    return [each for each in readings if each.measure not in named], (told,)


def save_membership(
    folder: RunFolder,
    measure: Membership | None,
    readings: pl.DataFrame,
    spec: AuditSpec,
    scores: ShadowScores | None = None,
    left_out: tuple[str, ...] = (),
) -> MembershipResult:
    """Write ``membership.json``.

    Args:
        folder: the run.
        measure: has taken the readings; none where all scores are from shadows.
        readings: of the audited model.
        spec: how the release was asked.
        scores: what shadows say, if there are any.
        left_out: a sentence for each of their scores that is not among the readings.

    Raises:
        StorageError: it cannot be written.
    """
    doses = None if scores is None else {each.canary: each.shadow_dose for each in scores.records}
    result = membership_result(readings, spec.membership.fprs, spec.rules.confidence, doses)
    notes = MembershipNotes(scores=()) if measure is None else measure.notes
    if scores is not None:
        taken = {cell.score for cell in result.cells}
        own = tuple(note for note in SHADOW_NOTES if note.name in taken)
        more = {"scores": (*notes.scores, *own), "shadows": len(scores.inside), "left_out": left_out}
        notes = notes.model_copy(update=more)
    result.save(folder.membership, notes)
    return result


def save_epsilon(
    folder: RunFolder,
    manifest: Manifest,
    readings: pl.DataFrame,
    spec: AuditSpec,
    scores: ShadowScores | None,
    training: Mapping[str, Any],
) -> None:
    """Write ``epsilon.json``.

    Args:
        folder: the run.
        manifest: what was planted.
        readings: of the audited model.
        spec: how the release was asked.
        scores: what shadows say, if there are any.
        training: what ``training.json`` says of the run's own model, or nothing.

    Raises:
        StorageError: it cannot be written.
    """
    same = scores is not None and (
        scores.audited_sha256 is not None
        and scores.audited_sha256 == training.get("trained_sha256")
        # Read, since an earlier version wrote down fewer settings.
        and scores.training == TrainingSpec.model_validate(training["spec"])
    )
    confidence = spec.rules.confidence
    found = epsilon_result(readings, manifest.space.size, spec.epsilon, spec.claim, scores, confidence, same)
    found.save(folder.epsilon)
