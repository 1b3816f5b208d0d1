"""Membership in a report: each score's rows, in the order of what it finds, and which scores order alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from davylamp.measures.shadow_results import SCORES as FROM_SHADOWS
from davylamp.report.membership_model import Membership
from davylamp.report.model import Run
from davylamp.report.series import Series, series_of
from davylamp.report.text import shorten, small_percent
from davylamp.report.view import Group
from davylamp.verdict.membership_model import MembershipCell, MembershipComparison
from davylamp.verdict.roc import OperatingPoint
from davylamp.verdict.roc_paired import Decisions

BASELINE = "loss"
"""The score that others are compared with, and that stands for all where many models share a plot."""
USUAL = 0.01
"""The false-positive rate that scores are sorted at, where it can be resolved."""


@dataclass(frozen=True, slots=True)
class Line:
    """One score over one span, in one arm at one dose or at all.

    Attributes:
        cell: what it tells.
        span: what it read, in words.
        comparison: with the loss; nothing for the loss itself.
        decisions: the members that either finds, at the rate that is sorted by; nothing where there is none.
    """

    cell: MembershipCell
    span: str
    comparison: MembershipComparison | None = None
    decisions: Decisions | None = None

    @property
    def mark(self) -> str:
        """Mark of a footnote on why nothing stands beside the loss; empty where something does, or where it is it."""
        return "‡" if self.comparison is None and other_text(self.cell) else ""

    def at(self, fpr: float) -> OperatingPoint:
        """The threshold for a false-positive rate."""
        return self.cell.point(fpr)

    def finds(self, fpr: float) -> tuple[str, ...]:
        """Ids of the members above the threshold; none where the audit did not keep them."""
        places = [point.fpr for point in self.cell.points]
        return self.cell.found[places.index(fpr)] if self.cell.found else ()


@dataclass(frozen=True, slots=True)
class ArmPart:
    """Membership in one arm of one model.

    Attributes:
        key: prefix of ids.
        run: the model.
        membership: what its audit found.
        series: the arm.
        rate: the false-positive rate that scores are sorted at; nothing where all asked for are underpowered.
        rates: the rates that can be resolved over all doses.
        lines: all doses together, what finds most first.
        by_dose: the same at each dose, in the same order of scores.
    """

    key: str
    run: Run
    membership: Membership
    series: Series
    rate: float | None
    rates: tuple[float, ...]
    lines: tuple[Line, ...]
    by_dose: tuple[Line, ...]

    @property
    def order(self) -> str:
        """What the table is sorted by, and why, in a sentence."""
        if self.rate is None:
            return "Sorted by AUC: no false-positive rate that was asked for can be resolved with so few non-members."
        usual = usual_rate(self.membership.fprs)
        sorted_by = f"Sorted by the true-positive rate at {small_percent(self.rate)} false positives"
        return f"{sorted_by}{'' if self.rate == usual else f', since {small_percent(usual)} is underpowered'}."

    @property
    def counts(self) -> tuple[int, int]:
        """Members and non-members."""
        return self.lines[0].cell.members, self.lines[0].cell.nonmembers

    @property
    def heads(self) -> tuple[Line, ...]:
        """The loss over the secret (else over the record), and what finds most, where that is another."""
        first = self.baseline
        return (self.lines[0],) if first is None or first is self.lines[0] else (first, self.lines[0])

    @property
    def baseline(self) -> Line | None:
        """The loss over the secret's tokens, or over the record where those were not read."""
        found = {line.cell.span: line for line in self.lines if line.cell.score == BASELINE}
        return found.get("secret") or found.get("record")


def usual_rate(fprs: Sequence[float]) -> float:
    """The rate to sort at: 1%, or the lowest that was asked for."""
    return USUAL if USUAL in fprs else min(fprs)


def arm_parts(runs: Sequence[Run], run: Run) -> list[ArmPart]:
    """Membership of a model, an arm each; none where it was not measured.

    Args:
        runs: all of the report, whose arms give colours and names.
        run: the model.
    """
    if run.membership is None:
        return []
    place, series = [each.name for each in runs].index(run.name), series_of(runs)
    arms = dict.fromkeys(cell.arm for cell in run.membership.cells)
    made = [_part(f"m{place}", run, run.membership, series[run.variant, arm]) for arm in arms]
    return sorted(made, key=lambda part: part.series.index)


def parts_of(runs: Sequence[Run], group: Group, series: Series) -> list[ArmPart]:
    """Membership of one arm in all models of a group, by seed."""
    parts = [part for run in group.runs for part in arm_parts(runs, run) if part.series == series]
    return sorted(parts, key=lambda part: (part.run.verdict.seed, part.run.name))


def _part(key: str, run: Run, membership: Membership, series: Series) -> ArmPart:
    own = [cell for cell in membership.cells if cell.arm == series.arm]
    # Of all doses: where a score is held against the non-members of a dose, they may be too few for what all resolve.
    whole = [cell for cell in own if cell.dose is None]
    rates = tuple(fpr for fpr in sorted(membership.fprs) if all(cell.point(fpr).word == "measured" for cell in whole))
    usual = usual_rate(membership.fprs)
    rate = next((fpr for fpr in rates if fpr >= usual), None)
    lines = [_line(membership, cell, rate) for cell in whole]
    lines.sort(key=lambda line: found(line.cell, rate), reverse=True)
    order = {(line.cell.score, line.cell.span): at for at, line in enumerate(lines)}
    by_dose = [Line(cell, span_words(cell)) for cell in own if cell.dose is not None]
    by_dose.sort(key=lambda line: (line.cell.dose or 0, order[line.cell.score, line.cell.span]))
    return ArmPart(f"{key}-{series.index}", run, membership, series, rate, rates, tuple(lines), tuple(by_dose))


def _line(membership: Membership, cell: MembershipCell, rate: float | None) -> Line:
    compared = [
        each
        for each in membership.comparisons
        if not other_text(cell)
        and (each.arm, each.span, each.first, each.second) == (cell.arm, cell.span, BASELINE, cell.score)
    ]
    if not compared:
        return Line(cell, span_words(cell))
    return Line(cell, span_words(cell), compared[0], None if rate is None else compared[0].decisions.get(rate))


def found(cell: MembershipCell, rate: float | None) -> tuple[float, float]:
    """What cells are sorted by: the share of members found at a rate, then the AUC."""
    point = None if rate is None else cell.point(rate)
    share = None if point is None else point.true_positives
    return (-1.0 if share is None else share.rate, cell.auc.value)


def other_text(cell: MembershipCell) -> bool:
    """Whether a score reads the reply where the loss reads the record, so that they are no comparison."""
    return cell.span == "record" and cell.score in FROM_SHADOWS


def span_words(cell: MembershipCell) -> str:
    """What a score reads; scores from shadows read the reply where others read the record."""
    return "reply" if other_text(cell) else cell.span


@dataclass(frozen=True, slots=True)
class Drawn:
    """A score that has a line in the plots.

    Attributes:
        index: gives colour, dashes and shape.
        score: its name.
        others: scores that order all canaries just as it does, and share its line.
    """

    index: int
    score: str
    others: tuple[str, ...]

    @property
    def label(self) -> str:
        """Its name, and the names of the others."""
        return ", ".join(shorten(name, 40) for name in (self.score, *self.others))


def drawn(runs: Sequence[Run]) -> list[Drawn]:
    """Scores in the order in which they were taken, the loss first; those that tell just the same share one line."""
    told: dict[str, list[object]] = {}
    for place, run in enumerate(runs):
        for cell in run.membership.cells if run.membership is not None else ():
            shares = tuple((point.true_positives, point.false_positives) for point in cell.points)
            told.setdefault(cell.score, []).append((place, cell.arm, cell.dose, cell.span, cell.roc, shares))
    groups: list[list[str]] = []
    for score in sorted(told, key=lambda name: (name != BASELINE, name in FROM_SHADOWS)):
        alike = next((group for group in groups if told[group[0]] == told[score]), None)
        if alike is None:
            groups.append([score])
        else:
            alike.append(score)
    return [Drawn(index, group[0], tuple(group[1:])) for index, group in enumerate(groups)]
