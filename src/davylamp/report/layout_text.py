"""A layout for a terminal: a bar over training for each canary, with a mark where its occurrences fall."""

from __future__ import annotations

import math
import textwrap
from collections import Counter
from collections.abc import Iterator

from davylamp.report.layout import Group, Layout, Strip, budget, heading, said

WIDEST, NARROWEST = 100, 10
"""Columns of a bar at most and at least."""
ROOMY = 78
"""Columns of a terminal from which a canary's figures stand beside its bar; in a narrower one they stand below it."""
PLACES, GAPS = "first-last", "gaps: least / median / most"
"""Titles of a canary's figures."""

LEGEND = "A dot is the window; | is one occurrence, 2 to 9 are so many in one column, + is more."


def lines(layout: Layout, width: int, most: int | None) -> Iterator[str]:
    """A layout as lines of ASCII.

    Args:
        layout: what is drawn.
        width: columns of the terminal.
        most: canaries of a group that are drawn; all if none.
    """
    width = max(width, NARROWEST)
    for words in (heading(layout), *budget(layout)):
        yield from textwrap.wrap(words, width, subsequent_indent="  ")
    figures = {strip: _figures(layout, strip) for group in layout.groups for strip in group.strips}
    indent = max(len(strip.id) for strip in figures) + 3
    first = max(len(PLACES), *(len(places) for places, _ in figures.values()))
    second = max(len(GAPS), *(len(gaps) for _, gaps in figures.values()))
    roomy = width >= ROOMY
    columns = max(NARROWEST, min(WIDEST, width - indent - (first + second + 4 if roomy else 0)))
    yield ""
    yield " " * indent + _percents(columns)
    yield f"{'':{indent}}{_ends(layout, columns)}" + (f"  {PLACES:>{first}}  {GAPS}" if roomy else "")
    for group in layout.groups:
        shown = group.strips if most is None else group.strips[:most]
        yield ""
        yield from textwrap.wrap(f"{group.label}: {group.count}, {group.schedule}", width, subsequent_indent="  ")
        for strip in shown:
            places, gaps = figures[strip]
            bar = f"  {strip.id} {_bar(layout, group, strip, columns)}"
            if roomy:
                yield f"{bar}  {places:>{first}}  {gaps}".rstrip()
            else:
                yield bar.rstrip()
                for words in textwrap.wrap(f"{places}{f', gaps {gaps}' if gaps else ''}", max(1, width - indent)):
                    yield " " * indent + words
        if len(shown) < len(group.strips):
            yield f"  {len(group.strips) - len(shown)} more (--all draws them)"


def _percents(columns: int) -> str:
    ruler = [" "] * columns
    for mark in (0, 25, 50, 75, 100) if columns >= 30 else (0, 100):
        said = f"{mark}%"
        start = round(mark / 100 * (columns - len(said)))
        ruler[start : start + len(said)] = said
    return "".join(ruler)


def _ends(layout: Layout, columns: int) -> str:
    """First and last place of training with the unit between them, where there is room for it."""
    last = f"{layout.updates or layout.rows:,}"
    room = columns - 1 - len(last)
    return f"1{layout.unit if len(layout.unit) + 2 <= room else '':^{room}}{last}"


def _bar(layout: Layout, group: Group, strip: Strip, columns: int) -> str:
    scale = columns / layout.rows
    window = range(math.floor(group.window[0] * scale), math.ceil(group.window[1] * scale))
    held = Counter(int((row + 0.5) * scale) for row in strip.rows)
    return "".join(_sign(held[column], column in window) for column in range(columns))


def _sign(count: int, inside: bool) -> str:
    if not count:
        return "." if inside else " "
    return "|" if count == 1 else str(count) if count < 10 else "+"


def _figures(layout: Layout, strip: Strip) -> tuple[str, str]:
    first, last = layout.place(strip.rows[0]), layout.place(strip.rows[-1])
    return f"{first:,}" if first == last else f"{first:,}-{last:,}", said(layout.gaps(strip))
