"""What an audit says of membership, for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from davylamp.cli.output import emit, emit_table, plain

if TYPE_CHECKING:
    from davylamp.runs.folder import RunFolder
    from davylamp.verdict.epsilon import EpsilonRow
    from davylamp.verdict.membership_model import MembershipCell
    from davylamp.verdict.roc import OperatingPoint

RANKED_AT = 0.01
"""False-positive rate that scores are sorted by, where it is among those that were asked for."""


def emit_membership(folder: RunFolder) -> None:
    """The scores of a run, the one that finds most members first, and the bounds on epsilon that rest on them."""
    from rich.table import Table

    from davylamp.verdict.epsilon import EpsilonResult
    from davylamp.verdict.membership_model import MembershipResult

    result = MembershipResult.load(folder.membership)
    by = RANKED_AT if RANKED_AT in result.fprs else min(result.fprs)
    for arm in result.nonmembers:
        cells = [*result.ranked(by, arm, "secret"), *result.ranked(by, arm, "record")]
        title = f"membership, arm {plain(arm)}, all doses together: {_counts(cells[0])}"
        table = Table(title=title, title_justify="left")
        for heading in ("score", "over", "AUC", *(f"members found at {100 * fpr:g}%" for fpr in result.fprs)):
            table.add_column(heading, justify="left" if heading in ("score", "over") else "right")
        for cell in cells:
            table.add_row(plain(cell.score), cell.span, _auc(cell), *map(_found, cell.points))
        emit_table(table, [title, *(_line(cell) for cell in cells)])
    emit(result.underpowered)
    epsilon = EpsilonResult.load(folder.epsilon)
    emit([*_bounds(epsilon.rows), *(f"note: {note}" for note in epsilon.notes)])


def _counts(cell: MembershipCell) -> str:
    return f"{cell.members:,} members, {cell.nonmembers:,} non-members"


def _auc(cell: MembershipCell) -> str:
    return f"{cell.auc.value:.2f} [{cell.auc.low:.2f}, {cell.auc.high:.2f}]"


def _found(point: OperatingPoint) -> str:
    found = point.true_positives
    return point.word if found is None else f"{found.rate:.2f} [{found.low:.2f}, {found.high:.2f}]"


def _line(cell: MembershipCell) -> str:
    measured = [point for point in cell.points if point.true_positives is not None]
    points = [f"{_found(point)} found at {100 * point.fpr:g}% false positives" for point in measured]
    return ", ".join([f"  {cell.score} over the {cell.span}: AUC {_auc(cell)}", *points])


def _bounds(rows: tuple[EpsilonRow, ...]) -> list[str]:
    """The largest bound of each kind of audit; each row stands in the file."""
    lines = []
    for audit in dict.fromkeys(row.audit for row in rows):
        own = [row for row in rows if row.audit == audit]
        best = max(own, key=lambda row: float("inf") if row.eps_low is None else row.eps_low)
        # The largest of several bounds is not valid at their confidence: so it is told how many there are.
        lines.append(f"epsilon from {audit}, {best.arm}, dose {best.dose} (largest of {len(own)}): {best.statement}")
    return lines
