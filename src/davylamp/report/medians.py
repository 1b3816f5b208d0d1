"""Why the median of few canaries has the whole scale as its interval."""

from __future__ import annotations

from davylamp.bounds.intervals import least_for_median
from davylamp.report.text import percent
from davylamp.report.view import Group


def without_interval(group: Group) -> str:
    """What is to be said of medians that have no interval; nothing where all have one."""
    confidence = group.runs[0].verdict.rules.confidence
    least = least_for_median(confidence)
    few = sorted({cell.canaries for run in group.runs for cell in run.verdict.cells if cell.canaries < least})
    if not few:
        return ""
    return (
        f"Fewer than {least} canaries give no {percent(confidence)} interval of their median: where there are "
        f"{' or '.join(map(str, few))}, it is the whole scale."
    )
