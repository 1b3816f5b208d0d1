"""The frontier on a page: its plots, its tables, and what to read off them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from davylamp.report import frontier_words as words
from davylamp.report import plots, svg
from davylamp.report.frontier_looks import looks
from davylamp.report.frontier_numbers import probability_mark, written
from davylamp.report.frontier_plot import cut, scatter
from davylamp.report.marks import Level, Point, Spec, bits_levels, bits_mark, exposure_axis
from davylamp.report.panels import CROWDED, CROWDED_WIDE, Entry, Figure, Panel
from davylamp.report.text import number, percent, ticks
from davylamp.report.text import p_value as p_text
from davylamp.runs.wording import counted
from davylamp.scoring.ranks import random_rank_exposure
from davylamp.verdict.frontier_metrics import EXPOSURE, HELD_OUT, MEDICATION, SAID, SEMANTIC, VERBATIM
from davylamp.verdict.frontier_model import CAPABILITY, PRIVACY, AtDose, Correlation, Estimate, Frontier, Metric, Row

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
        look: index of its colour and mark.
        name: the intervention.
        seed: its seed; empty where it is all of them together.
        member: whether it is in the Pareto set of the mean ranks.
        certain: in what share of the resamples it was; empty where that is not known.
        ranks: mean ranks of privacy and capability.
        capability: a value for each metric of capability.
        privacy: a value for each metric of privacy.
    """

    number: int
    look: int
    name: str
    seed: str
    member: bool
    certain: str
    ranks: tuple[Cell, ...]
    capability: tuple[Cell, ...]
    privacy: tuple[Cell, ...]


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
        doses: the columns: each dose, and its canaries in words.
        lines: the interventions.
        note: why there are no intervals in some columns.
    """

    title: str
    doses: tuple[tuple[int, str], ...]
    lines: tuple[DoseLine, ...]
    note: str


@dataclass(frozen=True, slots=True)
class View:
    """Everything that the page shows of a frontier.

    Attributes:
        found: the frontier.
        finding: what to read off it first.
        more: what else, in sentences.
        main: the scatter plot on the axes that were asked for; nothing of a single intervention.
        disagree: where exposure and perplexities order interventions differently, in sentences.
        raw: scatter plots of raw metrics; nothing of a single intervention.
        doses: what leaks by dose, drawn.
        tables: the same as numbers.
        lines: a row for each intervention.
        by_seed: a row for each intervention and seed; empty where there is one seed.
        groups: the columns of both: metrics of capability, and of privacy.
        few: why medians of the rows have no interval; the same of those by seed.
        correlations: rows of the correlation table: a metric, and a cell for each metric before it.
        unknown: why correlations are missing, in sentences.
    """

    found: Frontier
    finding: str
    more: tuple[str, ...]
    main: Figure | None
    disagree: tuple[str, ...]
    raw: Figure | None
    doses: tuple[Figure, ...]
    tables: tuple[DoseTable, ...]
    lines: tuple[Line, ...]
    by_seed: tuple[Line, ...]
    groups: tuple[tuple[str, tuple[Metric, ...]], ...]
    few: tuple[str, str]
    correlations: tuple[tuple[str, tuple[Cell, ...]], ...]
    unknown: tuple[str, ...]


def view(found: Frontier) -> View:
    """Work out what the page shows."""
    finding = words.finding(found)
    several = len(found.rows) > 1
    return View(
        found=found,
        finding=finding,
        more=tuple(words.more(found)),
        main=_main(found, finding) if several else None,
        disagree=words.disagreement(found),
        raw=_raw(found) if several else None,
        doses=tuple(_against_dose(found, key) for key in DRAWN),
        tables=tuple(_dose_table(found, key) for key in (EXPOSURE, SAID, VERBATIM, SEMANTIC)),
        lines=tuple(_lines(found, found.rows)),
        by_seed=tuple(_lines(found, found.by_seed)) if len(found.by_seed) > len(found.rows) else (),
        groups=tuple((side, _of_side(found, side)) for side in (CAPABILITY, PRIVACY)),
        few=(words.without_interval(found, found.rows), words.without_interval(found, found.by_seed)),
        correlations=tuple(_correlations(found)),
        unknown=tuple(dict.fromkeys(each.reason for each in found.correlations if each.rho is None)),
    )


def legend(found: Frontier) -> tuple[Entry, ...]:
    """The interventions with the numbers that they have where there is no room for names."""
    own = looks([row.intervention for row in found.rows])
    return tuple(Entry(own[at], f"{at + 1}. {row.intervention}") for at, row in enumerate(found.rows))


def _main(found: Frontier, finding: str) -> Figure:
    caption = (
        "Up and to the right is better. Filled marks and strong names are the Pareto set, and the dotted line is its "
        f"border; thin lines are {percent(found.confidence)} intervals."
    )
    if found.arrows:
        caption += " Arrows lead from plain to privacy-aware rewriting."
    if cut(found, (found.x, found.y)):
        caption += " Lines that reach the border go on beyond it."
    caption += " Every mark stands at its value: of marks on one another those behind are larger."
    drawings = tuple(scatter(found, "frontier", found.x, found.y, kind, finding) for kind in (svg.WIDE, svg.NARROW))
    return Figure(caption, drawings, legend=legend(found))


def _raw(found: Frontier) -> Figure:
    axes = ((CAPABILITY, PRIVACY), *RAW)
    chosen = [pair for pair in axes if pair != (found.x, found.y)]
    panels = []
    for at, (x, y) in enumerate(chosen):
        names = [_title(found, key) for key in (y, x)]
        members = getattr(found.front(x, y), "members", ())
        finding = f"In the Pareto set: {words.few(members)}."
        panels.append(
            Panel(f"{names[0]} against {names[1]}", scatter(found, f"raw{at}", x, y, svg.HALF, finding), finding)
        )
    caption = "Axes on which less is better run the other way, so that up and to the right is better in all plots."
    if any(cut(found, pair) for pair in chosen):
        caption += " Lines that reach a border go on beyond it."
    caption += " Numbers are those of the legend; of marks on one another those behind are larger."
    return Figure(caption, panels=tuple(panels), legend=legend(found))


def _title(found: Frontier, key: str) -> str:
    metric = found.metric(key)
    return f"mean rank of {key}" if metric is None else metric.title


def _against_dose(found: Frontier, key: str) -> Figure:
    """One leak against dose; where intervals would be crowded the table alone has them."""
    title = _title(found, key)
    own = looks([row.intervention for row in found.rows])
    names = {look: row.intervention for look, row in zip(own, found.rows, strict=True)}
    points = [point for look, row in zip(own, found.rows, strict=True) for point in _points(found, key, look, row)]
    columns = len({(point.series, point.dose) for point in points})
    finding = f"{title[0].upper()}{title[1:]} of the canaries of each dose; twins were planted nowhere."
    if columns > CROWDED_WIDE:
        finding += " Drawn without intervals, which the table has."
    if key == EXPOSURE and (few := words.doses_without_interval(found)):
        finding += f" {few}"
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
        probability_mark,
        (),
        names,
    )


def _points(found: Frontier, key: str, look: int, row: Row) -> Iterator[Point]:
    for dose in row.doses:
        each = dose.values[key]
        low, high = (each.value if end is None else end for end in (each.low, each.high))
        said = " ".join(part for part in written(found.metric(key), each) if part)
        count = counted(dose.canaries, "canary", "canaries")
        label = f"{row.intervention}, dose {dose.dose:,}: {said} ({count})"
        yield Point(look, (look, ""), dose.dose, each.value, low, high, True, True, label)


def _dose_table(found: Frontier, key: str) -> DoseTable:
    doses = tuple(sorted({each.dose for row in found.rows for each in row.doses}))
    metric = found.metric(key)
    unit = "" if metric is None or metric.unit in metric.title else f", {metric.unit}"
    lines = []
    for row in found.rows:
        own = {each.dose: each for each in row.doses}
        lines.append(DoseLine(row.intervention, tuple(_at_dose(found, key, own.get(dose)) for dose in doses)))
    counts: dict[int, set[int]] = {}
    for each in (each for row in found.rows for each in row.doses):
        counts.setdefault(each.dose, set()).add(each.canaries)
    heads = tuple((dose, " or ".join(f"{count:,}" for count in sorted(counts[dose]))) for dose in doses)
    note = words.doses_without_interval(found) if key == EXPOSURE else ""
    return DoseTable(f"{_title(found, key)}{unit}", heads, tuple(lines), note)


def _at_dose(found: Frontier, key: str, own: AtDose | None) -> Cell:
    return Cell("–", "") if own is None else _cell(found, key, own.values[key])


def _cell(found: Frontier, key: str, each: Estimate) -> Cell:
    return Cell(*written(found.metric(key), each))


def _of_side(found: Frontier, side: str) -> tuple[Metric, ...]:
    return tuple(metric for metric in found.metrics if metric.side == side)


def _lines(found: Frontier, rows: Sequence[Row]) -> Iterator[Line]:
    front = found.front(CAPABILITY, PRIVACY)
    order = [each.intervention for each in found.rows]
    own = looks(order)
    for row in rows:
        place = order.index(row.intervention)
        share = None if front is None or row.seed is not None else front.shares.get(row.intervention)
        yield Line(
            number=place + 1,
            look=own[place],
            name=row.intervention,
            seed="" if row.seed is None else str(row.seed),
            member=row.seed is None and front is not None and row.intervention in front.members,
            certain="" if share is None else percent(share),
            ranks=tuple(_cell(found, key, row.ranks[key]) for key in (PRIVACY, CAPABILITY) if key in row.ranks),
            capability=tuple(_cell(found, each.key, row.values[each.key]) for each in _of_side(found, CAPABILITY)),
            privacy=tuple(_cell(found, each.key, row.values[each.key]) for each in _of_side(found, PRIVACY)),
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
