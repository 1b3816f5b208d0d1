"""What an audit says of membership, for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from davylamp.cli.output import emit, emit_table, plain

if TYPE_CHECKING:
    from davylamp.runs.folder import RunFolder
    from davylamp.verdict.epsilon import EpsilonRow
    from davylamp.verdict.membership_model import MembershipCell
    from davylamp.verdict.roc import OperatingPoint

RANKED_AT = 0.01
"""False-positive rate that scores are sorted by, where it is among those that were asked for."""
SHOWN = 3
"""Scores that are shown, beside the loss; all stand in the report."""
NAMED = 20
"""Canaries that are named."""


def emit_membership(folder: RunFolder) -> None:
    """The scores of a run, the one that finds most members first, and the bounds on epsilon that rest on them."""
    from rich.table import Table

    from davylamp.verdict.epsilon import EpsilonResult
    from davylamp.verdict.membership import BASELINE
    from davylamp.verdict.membership_model import MembershipResult

    result = MembershipResult.load(folder.membership)
    for arm in result.nonmembers:
        points = next(cell for cell in result.cells if cell.arm == arm and cell.dose is None).points
        resolved = [point.fpr for point in points if point.true_positives is not None]
        by = RANKED_AT if RANKED_AT in resolved else min(resolved, default=min(result.fprs))
        ranked = [*result.ranked(by, arm, "secret"), *result.ranked(by, arm, "record")]
        ranked.sort(key=lambda cell: (-_rate(cell, by), -cell.auc.value))
        cells = [cell for at, cell in enumerate(ranked) if at < SHOWN or cell.score == BASELINE]
        title = f"membership, arm {plain(arm)}, all doses together: {_counts(cells[0])}"
        table = Table(title=title, title_justify="left")
        for heading in ("score", "over", "AUC", *(f"found at {100 * fpr:g}% (realised)" for fpr in resolved)):
            table.add_column(heading, justify="left" if heading in ("score", "over") else "right")
        for cell in cells:
            shown = [_found(cell.point(fpr)) for fpr in resolved]
            table.add_row(plain(cell.score), _over(cell), _auc(cell), *shown)
        emit_table(table, [title, *(_line(cell) for cell in cells)])
        more = f"; {len(ranked) - len(cells)} more scores stand in the report" if len(ranked) > len(cells) else ""
        emit(
            [*_names(cells[0], resolved), f"sorted by {f'what is found at {100 * by:g}%' if resolved else 'AUC'}{more}"]
        )
    emit(result.underpowered)
    epsilon = EpsilonResult.load(folder.epsilon)
    emit([*_bounds(epsilon.rows), *(f"note: {note}" for note in epsilon.notes)])


def _rate(cell: MembershipCell, fpr: float) -> float:
    found = cell.point(fpr).true_positives
    return -1.0 if found is None else found.rate


def _counts(cell: MembershipCell) -> str:
    return f"{cell.members:,} members, {cell.nonmembers:,} non-members"


def _auc(cell: MembershipCell) -> str:
    return f"{cell.auc.value:.2f} [{cell.auc.low:.2f}, {cell.auc.high:.2f}]"


def _over(cell: MembershipCell) -> str:
    """What a score reads; those from shadows read the reply of a record."""
    from davylamp.measures.shadow_results import SCORES

    return "reply" if cell.score in SCORES and cell.span == "record" else cell.span


def _found(point: OperatingPoint) -> str:
    found, realised = point.true_positives, point.false_positives
    if found is None:
        return point.word
    at = "" if realised is None else f" ({100 * realised.rate:.2g}%)"
    return f"{found.count} of {found.of} [{found.low:.0%}, {found.high:.0%}]{at}"


def _line(cell: MembershipCell) -> str:
    measured = [point for point in cell.points if point.true_positives is not None]
    points = [f"found at {100 * point.fpr:g}% false positives (realised) {_found(point)}" for point in measured]
    return ", ".join([f"  {cell.score} over the {_over(cell)}: AUC {_auc(cell)}", *points])


def _names(cell: MembershipCell, resolved: Sequence[float]) -> list[str]:
    """Which members the first score finds at the lowest rate that is resolved."""
    if not resolved or not cell.found:
        return []
    found = cell.found[[point.fpr for point in cell.points].index(resolved[0])]
    named = ", ".join(found[:NAMED]) + (f" and {len(found) - NAMED} more" if len(found) > NAMED else "")
    return [f"found by {cell.score} over the {_over(cell)} at {100 * resolved[0]:g}%: {named or 'none'}"]


def _bounds(rows: tuple[EpsilonRow, ...]) -> list[str]:
    """The largest bound of each kind of audit; each row stands in the file."""
    lines = []
    for audit in dict.fromkeys(row.audit for row in rows):
        own = [row for row in rows if row.audit == audit]
        best = max(own, key=_telling)
        # The largest of several bounds is not valid at their confidence: so it is told how many there are.
        lines.append(f"epsilon from {audit}, {best.arm}, dose {best.dose} (one of {len(own)} rows): {best.statement}")
    return lines


def _telling(row: EpsilonRow) -> tuple[int, float]:
    """The row that says most: of a claim where there is one, else of epsilon."""
    words = {"refuted": 2, "consistent": 1, "could-not-refute": 0, None: 0}
    return words[row.verdict], float("inf") if row.eps_low is None else row.eps_low
