"""Reading what a run folder holds of membership: the scores, what shadow models say, and bounds on epsilon."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from davylamp.canaries.manifest import Manifest
from davylamp.errors import RunFolderError
from davylamp.measures.shadow_results import ShadowScores
from davylamp.report.membership_model import Membership, Memorization, Nonmembers, ScoreNote, ShadowAuc, Shadows
from davylamp.runs import files
from davylamp.verdict.epsilon import EpsilonResult
from davylamp.verdict.membership_model import MembershipResult


class _Notes(BaseModel):
    """Notes of a membership audit; what a report does not show is passed over."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    scores: tuple[ScoreNote, ...] = ()
    reference: str | None = None
    reference_how: str | None = None
    reference_tokens: str | None = None
    shots: dict[str, tuple[str, ...]] = {}
    masked_lm: str | None = None
    shadows: int = 0
    left_out: tuple[str, ...] = ()


def membership_of(folder: Path, manifest: Manifest) -> Membership | None:
    """Membership of a run's model, where its audit measured it.

    Raises:
        RunFolderError: the file is damaged, or of other canaries.
    """
    path = folder / "membership.json"
    if not path.is_file():
        return None
    again = "run `davylamp audit` with membership again"
    try:
        data: dict[str, Any] = files.read_json(path)
        notes = _Notes.model_validate(data.pop("notes", None) or {})
        result = MembershipResult.model_validate(data)
    except (OSError, ValueError) as error:
        raise RunFolderError(f"{path} is damaged ({_fault(error)}): {again}") from error
    known = {canary.id for canary in manifest.canaries if canary.dose == 0}
    named = {one for each in result.nonmembers.values() for one in (*each.choosing, *each.realising)}
    arms = {cell.arm for cell in result.cells} | set(result.nonmembers)
    if result.seed != manifest.plan.seed or not named <= known or not arms <= _arms(manifest):
        raise RunFolderError(f"{path} is of canaries that were planted before: {again}")
    return Membership(
        confidence=result.confidence,
        fprs=result.fprs,
        nonmembers={
            arm: Nonmembers(choosing=len(each.choosing), realising=len(each.realising))
            for arm, each in result.nonmembers.items()
        },
        shots={arm: len(shots) for arm, shots in notes.shots.items()},
        cells=result.cells,
        comparisons=result.comparisons,
        underpowered=result.underpowered,
        **notes.model_dump(exclude={"shots"}),
    )


def shadows_of(folder: Path, manifest: Manifest, audited_sha256: object) -> Shadows | None:
    """What the shadows of a run say, where there are any.

    Args:
        folder: the run folder.
        manifest: what was planted.
        audited_sha256: hash of the weights that the verdict is on.

    Raises:
        RunFolderError: the file is damaged, or of other canaries.
    """
    path = folder / "shadow_scores.json"
    if not path.is_file():
        return None
    scores = ShadowScores.load(path)
    if scores.planted_sha256 != manifest.planted_sha256 or not {each.arm for each in scores.records} <= _arms(manifest):
        raise RunFolderError(
            f"{path} is of canaries that were planted before: run `davylamp shadows` again, or remove it"
        )
    return Shadows(
        count=len(scores.inside),
        audited=scores.audited,
        other_model=scores.audited_sha256 is not None and scores.audited_sha256 != audited_sha256,
        truncation=scores.truncation,
        background=scores.background,
        notes=scores.notes,
        trials=tuple(_trials(scores)),
        cells=tuple(Memorization(**cell.model_dump()) for cell in scores.cells),
    )


def epsilon_of(folder: Path, manifest: Manifest) -> EpsilonResult | None:
    """Lower bounds on epsilon, where the audit of a run worked them out.

    Raises:
        RunFolderError: the file is damaged, or of other canaries.
    """
    path = folder / "epsilon.json"
    if not path.is_file():
        return None
    found = EpsilonResult.load(path)
    if not {row.arm for row in found.rows} <= _arms(manifest):
        raise RunFolderError(f"{path} is of canaries that were planted before: run `davylamp audit` again")
    return found


def _trials(scores: ShadowScores) -> list[ShadowAuc]:
    found = []
    for trials in scores.trials:
        held = [scores.records[number] for number in trials.records]
        for arm, dose in dict.fromkeys((each.arm, each.shadow_dose) for each in held):
            auc = scores.trial_auc(trials, arm, dose)
            if auc is not None:
                found.append(
                    ShadowAuc(
                        arm=arm,
                        shadow_dose=dose,
                        probe=trials.probe,
                        span=trials.span,
                        measure=trials.measure,
                        records=sum((each.arm, each.shadow_dose) == (arm, dose) for each in held),
                        auc=auc,
                    )
                )
    return found


def _arms(manifest: Manifest) -> set[str]:
    return {canary.arm for canary in manifest.canaries if canary.role == "focus"}


def _fault(error: Exception) -> str:
    return f"{error.error_count()} faults" if isinstance(error, ValidationError) else str(error)
