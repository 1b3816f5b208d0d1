"""Figures of one or more drawings, and how plots that would be crowded are told apart."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from markupsafe import Markup

from davylamp.report import plots, svg
from davylamp.report.marks import Dot, Point, Spec
from davylamp.report.series import Series
from davylamp.report.text import shorten
from davylamp.report.view import Group

Mark = TypeVar("Mark", Point, Dot)
CROWDED = 48
"""Marks side by side beyond which each arm gets a plot of its own; lines on a wide page take less room than dots."""
CROWDED_WIDE = 84
BOTH = (svg.WIDE, svg.NARROW)


@dataclass(frozen=True, slots=True)
class Panel:
    """One of several drawings in a grid.

    Attributes:
        title: its name.
        drawing: the plot.
        note: a sentence below it.
    """

    title: str
    drawing: Markup
    note: str = ""


@dataclass(frozen=True, slots=True)
class Entry:
    """A line of a legend: the index gives colour and shape; see :class:`~davylamp.report.series.Series`."""

    index: int
    label: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Figure:
    """Drawings with a caption.

    Attributes:
        finding: what is to be seen.
        drawings: plots below one another; of a wide and a narrow one the page shows the one that fits.
        panels: plots in a grid below them.
        narrow: show the panels on narrow pages only.
        legend: the series, or what else has a colour.
    """

    finding: str
    drawings: tuple[Markup, ...] = ()
    panels: tuple[Panel, ...] = ()
    narrow: bool = False
    legend: tuple[Series | Entry, ...] = ()


def lines(group: Group, spec: Spec, points: Sequence[Point]) -> Figure:
    """Values with intervals against dose: one plot, and a plot for each arm where that one is crowded.

    Where even a wide plot has no room for all intervals, it is drawn without them, and the plots of each arm have them.
    """
    columns = len({(point.series, point.dose) for point in points})
    if columns <= CROWDED or len(group.series) == 1:
        both = tuple(plots.against_dose(spec, points, kind) for kind in BOTH)
        return Figure(spec.finding, both, legend=group.series)
    panels = tuple(by_series(group, spec, points, plots.against_dose))
    if columns <= CROWDED_WIDE:
        wide = (plots.against_dose(spec, points, svg.WIDE),)
        return Figure(spec.finding, wide, panels, narrow=True, legend=group.series)
    bare = tuple(plots.against_dose(spec, points, kind, intervals=False) for kind in BOTH)
    return Figure(f"{spec.finding} {WITHOUT}", bare, panels, legend=group.series)


WITHOUT = "The plot of all is drawn without intervals, which those of each have."


def dots(group: Group, spec: Spec, marks: Sequence[Dot]) -> Figure:
    """Every single value: one plot, or a plot for each arm where that would be crowded."""
    if len({(mark.series, mark.dose) for mark in marks}) <= CROWDED or len(group.series) == 1:
        return Figure(spec.finding, tuple(plots.strip(spec, marks, kind) for kind in BOTH), legend=group.series)
    return Figure(spec.finding, (), tuple(by_series(group, spec, marks, plots.strip)), legend=group.series)


def by_series(
    group: Group, spec: Spec, marks: Sequence[Mark], draw: Callable[[Spec, Sequence[Mark], str], Markup]
) -> list[Panel]:
    """A plot for each series."""
    made = []
    for place, series in enumerate(group.series):
        name = shorten(series.label, 60)
        part = replace(spec, key=f"{spec.key}-{place}", title=f"{spec.title}: {name}")
        own = [mark for mark in marks if mark.arm == series.index]
        made.append(Panel(series.label, draw(part, own, svg.HALF)))
    return made
