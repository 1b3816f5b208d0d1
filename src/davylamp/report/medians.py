"""Why the median of few canaries has the whole scale as its interval."""

from __future__ import annotations

import math

from davylamp.report.text import percent
from davylamp.report.view import Group


def canaries_of_interval(confidence: float) -> int:
    """Canaries that the interval of a median takes: n values hold it between them with a chance of 1 - 2^(1-n)."""
    return math.ceil(1 - math.log2(1 - confidence))


def without_interval(group: Group) -> str:
    """What is to be said of medians that have no interval; nothing where all have one."""
    confidence = group.runs[0].verdict.rules.confidence
    least = canaries_of_interval(confidence)
    few = sorted({cell.canaries for run in group.runs for cell in run.verdict.cells if cell.canaries < least})
    if not few:
        return ""
    return (
        f"Fewer than {least} canaries give no {percent(confidence)} interval of their median: where there are "
        f"{' or '.join(map(str, few))}, it is the whole scale."
    )
