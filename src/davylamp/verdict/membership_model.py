"""The result of a membership audit: what each score tells of members and non-members."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from davylamp.errors import Fault, InputError, RunFolderError
from davylamp.runs import files
from davylamp.verdict.roc import Auc, OperatingPoint
from davylamp.verdict.roc_paired import AucDifference, Decisions


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Halves(_Strict):
    """The non-members of an arm.

    Attributes:
        choosing: those that thresholds are chosen on.
        realising: the others, on which realised false-positive rates are counted.
    """

    choosing: tuple[str, ...]
    realising: tuple[str, ...]


class MembershipCell(_Strict):
    """What a score tells of the members of one arm and dose.

    Attributes:
        arm: the arm.
        dose: occurrences of each member; none for all doses together.
        score: name of the score.
        span: ``record`` or ``secret``.
        members: how many.
        nonmembers: how many, both halves together.
        auc: on all of them.
        points: true-positive rates at the false-positive rates asked for.
        found: ids of the members above the threshold of each of ``points``; none where it is underpowered.
        roc: corners of the ROC curve, (false-positive rate, true-positive rate) from (0, 0) to (1, 1), on all of them.
            On log axes it begins at ``1 / nonmembers``.
    """

    arm: str
    dose: int | None
    score: str
    span: Literal["record", "secret"]
    members: int
    nonmembers: int
    auc: Auc
    points: tuple[OperatingPoint, ...]
    roc: tuple[tuple[float, float], ...]
    found: tuple[tuple[str, ...], ...] = ()

    def point(self, fpr: float) -> OperatingPoint:
        """The operating point at a false-positive rate.

        Raises:
            InputError: it was not asked for.
        """
        found = [point for point in self.points if point.fpr == fpr]
        if not found:
            raise InputError(Fault("fpr", fpr, f"one of {', '.join(str(point.fpr) for point in self.points)}"))
        return found[0]


class MembershipComparison(_Strict):
    """Two scores, or one score of two releases, on the same canaries of all doses.

    Attributes:
        arm: the arm.
        span: ``record`` or ``secret``.
        first: what is compared with.
        second: what is compared.
        difference: of the AUCs, second less first.
        decisions: by false-positive rate, which members either finds; none where a rate is underpowered.
    """

    arm: str
    span: Literal["record", "secret"]
    first: str
    second: str
    difference: AucDifference
    decisions: dict[float, Decisions]


class MembershipResult(_Strict):
    """Membership of one model.

    Attributes:
        schema_version: version of this schema.
        seed: seed of the plan.
        confidence: of every interval.
        fprs: the false-positive rates asked for.
        nonmembers: the two halves of each arm's.
        cells: for each arm, span, score and dose, and all doses together.
        comparisons: each score with the loss.
        underpowered: a sentence for each rate that too few non-members stand by to resolve.
    """

    schema_version: Literal[1] = 1
    seed: int
    confidence: float
    fprs: tuple[float, ...]
    nonmembers: dict[str, Halves]
    cells: tuple[MembershipCell, ...]
    comparisons: tuple[MembershipComparison, ...]
    underpowered: tuple[str, ...]

    def ranked(self, fpr: float = 0.01, arm: str | None = None, span: str = "record") -> list[MembershipCell]:
        """Cells of all doses together, the score that finds most members at a false-positive rate first.

        Scores that find equally many are ordered by AUC, and so are all where the rate is underpowered.

        Args:
            fpr: one of :attr:`fprs`.
            arm: of this arm only.
            span: of this span only.

        Raises:
            InputError: the rate was not asked for.
        """
        kept = [c for c in self.cells if c.dose is None and c.span == span and arm in (None, c.arm)]
        found = [(cell.point(fpr).true_positives, cell) for cell in kept]
        return [
            cell
            for share, cell in sorted(
                found, key=lambda pair: (pair[0].rate if pair[0] else -1.0, pair[1].auc.value), reverse=True
            )
        ]

    def save(self, path: Path, notes: BaseModel | None = None) -> None:
        """Write the result as JSON, with what is known of the scores under ``notes``.

        Raises:
            StorageError: it cannot be written.
        """
        data = self.model_dump(mode="json")
        files.write_json(path, data if notes is None else {**data, "notes": notes.model_dump(mode="json")})

    @classmethod
    def load(cls, path: Path) -> MembershipResult:
        """Read it, without the notes.

        Raises:
            RunFolderError: it is missing, damaged, or of another schema.
        """
        try:
            data = files.read_json(path)
            data.pop("notes", None)
            return cls.model_validate(data)
        except FileNotFoundError as error:
            raise RunFolderError(f"no membership at {path}: run `davylamp audit --measures membership`") from error
        except (OSError, ValueError) as error:
            said = f"{error.error_count()} faults" if isinstance(error, ValidationError) else error
            raise RunFolderError(f"cannot read {path}: {said}; run `davylamp audit` again") from error
