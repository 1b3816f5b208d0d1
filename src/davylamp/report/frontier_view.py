"""The frontier on a page: its plots, its tables, and what to read off them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from davylamp.report import plots, svg
from davylamp.report.frontier_plot import form_of, scatter
from davylamp.report.marks import Level, Point, Spec, bits_levels, bits_mark, exposure_axis
from davylamp.report.panels import CROWDED, CROWDED_WIDE, Entry, Figure, Panel
from davylamp.report.text import number, percent, shorten, ticks
from davylamp.report.text import p_value as p_text
from davylamp.scoring.ranks import random_rank_exposure
from davylamp.verdict.frontier_metrics import EXPOSURE, HELD_OUT, MEDICATION, SAID, SEMANTIC, VERBATIM
from davylamp.verdict.frontier_model import CAPABILITY, PRIVACY, Arrow, AtDose, Correlation, Estimate, Frontier, Row

RAW = ((HELD_OUT, VERBATIM), (MEDICATION, SEMANTIC), (HELD_OUT, EXPOSURE))
"""Pairs of raw metrics that are drawn beside the mean ranks."""
DRAWN = (EXPOSURE, SAID)
"""Leaks that are drawn against dose."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A value on the page.

    Attributes:
        value: it.
        between: its interval; empty where there is none.
    """

    value: str
    between: str


@dataclass(frozen=True, slots=True)
class Line:
    """A row of the table.

    Attributes:
        number: of the intervention, as in the plots and their legend; from 1.
        name: the intervention.
        seed: its seed; empty where it is all of them together.
        member: whether it is in the Pareto set of the mean ranks.
        certain: in what share of the resamples it was; empty where that is not known.
        ranks: mean ranks of privacy and capability.
        cells: a value for each metric.
    """

    number: int
    name: str
    seed: str
    member: bool
    certain: str
    ranks: tuple[Cell, ...]
    cells: tuple[Cell, ...]


@dataclass(frozen=True, slots=True)
class DoseLine:
    """What one intervention leaks of one metric by dose."""

    name: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True, slots=True)
class DoseTable:
    """One leak by dose.

    Attributes:
        title: what leaks, and its unit.
        doses: the columns.
        lines: the interventions.
    """

    title: str
    doses: tuple[int, ...]
    lines: tuple[DoseLine, ...]


@dataclass(frozen=True, slots=True)
class View:
    """Everything that the page shows of a frontier.

    Attributes:
        found: the frontier.
        finding: what to read off it first.
        more: what else, in sentences.
        main: the scatter plot on the axes that were asked for; nothing of a single intervention.
        raw: scatter plots of raw metrics; nothing of a single intervention.
        doses: what leaks by dose, drawn.
        tables: the same as numbers.
        lines: a row for each intervention.
        by_seed: a row for each intervention and seed; empty where there is one seed.
        correlations: rows of the correlation table: a metric, and a cell for each metric before it.
        unknown: why correlations are missing, in sentences.
    """

    found: Frontier
    finding: str
    more: tuple[str, ...]
    main: Figure | None
    raw: Figure | None
    doses: tuple[Figure, ...]
    tables: tuple[DoseTable, ...]
    lines: tuple[Line, ...]
    by_seed: tuple[Line, ...]
    correlations: tuple[tuple[str, tuple[Cell, ...]], ...]
    unknown: tuple[str, ...]


def view(found: Frontier) -> View:
    """Work out what the page shows."""
    finding = _finding(found)
    several = len(found.rows) > 1
    return View(
        found=found,
        finding=finding,
        more=tuple(_more(found)),
        main=_main(found, finding) if several else None,
        raw=_raw(found) if several else None,
        doses=tuple(_against_dose(found, key) for key in DRAWN),
        tables=tuple(_dose_table(found, key) for key in (EXPOSURE, SAID, VERBATIM, SEMANTIC)),
        lines=tuple(_line(found, row) for row in found.rows),
        by_seed=tuple(_line(found, row) for row in found.by_seed) if len(found.by_seed) > len(found.rows) else (),
        correlations=tuple(_correlations(found)),
        unknown=tuple(dict.fromkeys(each.reason for each in found.correlations if each.rho is None)),
    )


def legend(found: Frontier) -> tuple[Entry, ...]:
    """The interventions with the numbers that they have where there is no room for names."""
    return tuple(Entry(at, f"{at + 1}. {row.intervention}") for at, row in enumerate(found.rows))


def _finding(found: Frontier) -> str:
    front = found.front(CAPABILITY, PRIVACY)
    if front is None:
        return ""
    return f"In the Pareto set of the mean ranks: {', '.join(shorten(name, 60) for name in front.members)}."


def _more(found: Frontier) -> Iterator[str]:
    front = found.front(CAPABILITY, PRIVACY)
    members = () if front is None else front.members
    beaten = [row.intervention for row in found.rows if row.intervention not in members]
    if beaten and members:
        yield f"Another is at least as good on both sides, and better on one, as each of: {_few(beaten)}."
    for arrow in found.arrows:
        yield _arrow_words(found, arrow)


def _few(names: Sequence[str]) -> str:
    shown = ", ".join(shorten(name, 40) for name in names[:12])
    return shown if len(names) <= 12 else f"{shown} and {len(names) - 12} more"


def _arrow_words(found: Frontier, arrow: Arrow) -> str:
    words: dict[str, list[str]] = {}
    for change in arrow.changes:
        metric = found.metric(change.metric)
        words.setdefault(change.word, []).append(change.metric if metric is None else metric.title)
    said = "; ".join(f"{word} in {' and '.join(titles)}" for word, titles in words.items())
    return f"From {shorten(arrow.before, 40)} to {shorten(arrow.after, 40)}: {said}."


def _main(found: Frontier, finding: str) -> Figure:
    caption = (
        "Up and to the right is better. Filled marks and strong names are the Pareto set, and the dotted line is its "
        f"border; thin lines are {percent(found.confidence)} intervals."
    )
    if found.arrows:
        caption += " Arrows lead from plain to privacy-aware rewriting."
    caption += " Marks that would lie on one another stand side by side; numbers are those of the legend."
    drawings = tuple(scatter(found, "frontier", found.x, found.y, kind, finding) for kind in (svg.WIDE, svg.NARROW))
    return Figure(caption, drawings, legend=legend(found))


def _raw(found: Frontier) -> Figure:
    axes = ((CAPABILITY, PRIVACY), *RAW)
    chosen = [pair for pair in axes if pair != (found.x, found.y)]
    panels = []
    for at, (x, y) in enumerate(chosen):
        names = [_title(found, key) for key in (y, x)]
        members = getattr(found.front(x, y), "members", ())
        finding = f"In the Pareto set: {_few(members)}."
        panels.append(
            Panel(f"{names[0]} against {names[1]}", scatter(found, f"raw{at}", x, y, svg.HALF, finding), finding)
        )
    caption = "Axes on which less is better run the other way, so that up and to the right is better in all plots."
    return Figure(caption, panels=tuple(panels), legend=legend(found))


def _title(found: Frontier, key: str) -> str:
    metric = found.metric(key)
    return f"mean rank of {key}" if metric is None else metric.title


def _against_dose(found: Frontier, key: str) -> Figure:
    """One leak against dose; where intervals would be crowded the table alone has them."""
    title = _title(found, key)
    names = {at: row.intervention for at, row in enumerate(found.rows)}
    points = [point for at, row in enumerate(found.rows) for point in _points(found, key, at, row)]
    columns = len({(point.series, point.dose) for point in points})
    finding = f"{title[0].upper()}{title[1:]} of the canaries of each dose; twins were planted nowhere."
    if columns > CROWDED_WIDE:
        finding += " Drawn without intervals, which the table has."
    spec = _spec(found, key, title, names, finding, points)
    drawings = tuple(
        plots.against_dose(spec, points, kind, intervals=columns <= most)
        for kind, most in ((svg.WIDE, CROWDED_WIDE), (svg.NARROW, CROWDED))
    )
    return Figure(finding, drawings, legend=tuple(Entry(at, name) for at, name in names.items()))


def _spec(found: Frontier, key: str, title: str, names: dict[int, str], finding: str, points: Sequence[Point]) -> Spec:
    levels: tuple[Level, ...] = ()
    if key == EXPOSURE:
        ceiling = math.log2(found.candidates)
        most, marks = exposure_axis(ceiling)
        levels = bits_levels(found.candidates, ceiling, random_rank_exposure(found.candidates))
        return Spec(f"dose-{key}", title, finding, "median exposure, bits", most, marks, bits_mark, levels, names)
    most = max([point.high for point in points]) * 1.06 or 1.0
    return Spec(
        f"dose-{key}",
        title,
        finding,
        "probability of generating the secret",
        most,
        ticks(most, 5),
        bits_mark,
        (),
        names,
    )


def _points(found: Frontier, key: str, at: int, row: Row) -> Iterator[Point]:
    form = form_of(found.metric(key))
    for dose in row.doses:
        each = dose.values[key]
        low, high = (each.value if end is None else end for end in (each.low, each.high))
        words = f"{row.intervention}, dose {dose.dose:,}: {form(each.value)} [{form(low)}, {form(high)}]"
        yield Point(at, (at, ""), dose.dose, each.value, low, high, True, True, words)


def _dose_table(found: Frontier, key: str) -> DoseTable:
    doses = tuple(sorted({each.dose for row in found.rows for each in row.doses}))
    metric = found.metric(key)
    unit = "" if metric is None or metric.unit in metric.title else f", {metric.unit}"
    lines = []
    for row in found.rows:
        own = {each.dose: each for each in row.doses}
        lines.append(DoseLine(row.intervention, tuple(_at_dose(found, key, own.get(dose)) for dose in doses)))
    return DoseTable(f"{_title(found, key)}{unit}", doses, tuple(lines))


def _at_dose(found: Frontier, key: str, own: AtDose | None) -> Cell:
    return Cell("–", "") if own is None else _cell(found, key, own.values[key])


def _cell(found: Frontier, key: str, each: Estimate) -> Cell:
    form = form_of(found.metric(key))
    between = "" if each.low is None or each.high is None else f"[{form(each.low)}, {form(each.high)}]"
    return Cell(form(each.value), between)


def _line(found: Frontier, row: Row) -> Line:
    front = found.front(CAPABILITY, PRIVACY)
    order = [each.intervention for each in found.rows]
    share = None if front is None or row.seed is not None else front.shares.get(row.intervention)
    return Line(
        number=order.index(row.intervention) + 1,
        name=row.intervention,
        seed="" if row.seed is None else str(row.seed),
        member=row.seed is None and front is not None and row.intervention in front.members,
        certain="" if share is None else percent(share),
        ranks=tuple(_cell(found, key, row.ranks[key]) for key in (PRIVACY, CAPABILITY) if key in row.ranks),
        cells=tuple(_cell(found, metric.key, row.values[metric.key]) for metric in found.metrics),
    )


def _correlations(found: Frontier) -> Iterator[tuple[str, tuple[Cell, ...]]]:
    """The lower triangle: every metric with those before it."""
    held = {(each.first, each.second): each for each in found.correlations}
    for at, metric in enumerate(found.metrics):
        yield metric.title, tuple(_correlated(held[other.key, metric.key]) for other in found.metrics[:at])


def _correlated(each: Correlation) -> Cell:
    if each.rho is None or each.p is None:
        return Cell("–", "")
    return Cell(number(each.rho), f"p {p_text(each.p)}")
