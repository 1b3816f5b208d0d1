"""Figures of membership: ROC curves of each score, what it finds by dose, and the loss of many models in one plot."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from davylamp.measures.shadow_results import SCORES as FROM_SHADOWS
from davylamp.report import marks, panels, plots, svg
from davylamp.report.marks import Level, Point, Spec
from davylamp.report.membership import BASELINE, ArmPart, Drawn, Line, arm_parts, drawn, found, span_words
from davylamp.report.model import Run
from davylamp.report.panels import Entry, Figure, Panel
from davylamp.report.roc_plot import Curve, Operating, roc_plot
from davylamp.report.text import interval, number, percent, shorten, small_percent
from davylamp.report.view import Group
from davylamp.verdict.membership_model import MembershipCell
from davylamp.verdict.roc import OperatingPoint, Share

SPANS = ("secret", "record")
SPAN_TITLES = {"secret": "the secret's tokens", "record": "the whole record"}
SHADOW_TITLES = {"secret": "the secret, with shadows", "record": "reply (loss: record), with shadows"}
"""What scores read, by span, in titles of panels: short, so that none is cut."""
Read = Callable[[MembershipCell], tuple[float, float, float] | None]
"""A value of a cell with its interval."""


@dataclass(frozen=True, slots=True)
class _Family:
    """Scores that share panels: those of the model alone, or those from shadows with the loss beside them."""

    key: str
    drawn: tuple[Drawn, ...]
    titles: Mapping[str, str]


def rocs(runs: Sequence[Run], part: ArmPart) -> list[Figure]:
    """ROC curves of an arm, all doses together: a figure of the scores of the model alone, and one from shadows."""
    return [_roc(part, family) for family in _families(runs, part)]


def doses(runs: Sequence[Run], part: ArmPart) -> list[Figure]:
    """AUC and true-positive rates of an arm by dose."""
    return [_doses(part, family) for family in _families(runs, part)]


def overview(runs: Sequence[Run], group: Group) -> list[Figure]:
    """AUC and true-positive rate of the loss in all models, by dose, as other sections draw them."""
    parts = [part for run in group.runs for part in arm_parts(runs, run)]
    if not parts:
        return []
    span = "secret" if all(_cell(part, BASELINE, "secret") for part in parts) else "record"
    if not all(_cell(part, BASELINE, span) for part in parts):
        return []
    rate = parts[0].rate if len({part.rate for part in parts}) == 1 else None
    whose = "the tokens of the secret" if span == "secret" else "the whole record"
    made = []
    for key, unit, read, level in _measures([] if rate is None else [rate]):
        title = f"{unit} of the loss over {whose}, against dose"
        spec = _spec(f"{group.key}-member-{key}", title, unit, level)
        spec = replace(spec, arms={each.index: each.label for each in group.series})
        points = [point for part in parts for point in _overview_points(part, span, unit, read, level.value)]
        finding = f"{title[:1].upper()}{title[1:]}: {_ends(parts, span, unit, read)}."
        made.append(panels.lines(group, replace(spec, finding=finding), points))
    return made


def _families(runs: Sequence[Run], part: ArmPart) -> list[_Family]:
    there = {line.cell.score for line in part.lines}
    own = [each for each in drawn(runs) if each.score in there]
    alone = tuple(each for each in own if each.score not in FROM_SHADOWS)
    more = tuple(each for each in own if each.score in FROM_SHADOWS)
    beside = tuple(each for each in alone if each.score == BASELINE)
    # Counted anew, so that each family has the first colours, which are told apart best.
    shadowed = tuple(replace(each, index=at) for at, each in enumerate((*beside, *more)))
    families = (
        _Family("alone", alone, SPAN_TITLES),
        _Family("shadows", shadowed if more else (), SHADOW_TITLES),
    )
    return [family for family in families if family.drawn]


def _legend(family: _Family) -> tuple[Entry, ...]:
    return tuple(Entry(each.index, each.label, "the same order" if each.others else "") for each in family.drawn)


def _cell(part: ArmPart, score: str, span: str, dose: int | None = None) -> MembershipCell | None:
    lines = part.lines if dose is None else part.by_dose
    cells = (line.cell for line in lines if (line.cell.score, line.cell.span) == (score, span))
    return next((cell for cell in cells if cell.dose == dose), None)


def _roc(part: ArmPart, family: _Family) -> Figure:
    made = []
    for span in SPANS:
        cells = [(each, cell) for each in family.drawn if (cell := _cell(part, each.score, span)) is not None]
        if cells:
            title = family.titles[span]
            curves = [_curve(part, each, cell) for each, cell in cells]
            finding = _roc_finding(part, [cell for _, cell in cells])
            name = f"ROC curves, {shorten(part.series.label, 60)}, {title}"
            plot = roc_plot(f"{part.key}-roc-{family.key}-{span}", name, finding, curves, part.counts, part.rates)
            made.append((Panel(title, plot), finding))
    finding = " ".join(f"{panel.title[:1].upper()}{panel.title[1:]}: {words}" for panel, words in made)
    return Figure(finding, panels=tuple(panel for panel, _ in made), legend=_legend(family))


def _curve(part: ArmPart, each: Drawn, cell: MembershipCell) -> Curve:
    points = []
    for rate in part.rates:
        point = cell.point(rate)
        if point.true_positives is not None:
            wrong = point.false_positives
            label = f"{each.label}, {span_words(cell)}, {point_words(point)}"
            fpr = None if wrong is None else wrong.rate
            points.append(Operating(fpr, point.true_positives.rate, rate == part.rate, label))
    label = f"{each.label}, {span_words(cell)}: AUC {number(cell.auc.value)} {interval(cell.auc.low, cell.auc.high)}"
    return Curve(each.index, label, cell.roc, points)


def point_words(point: OperatingPoint) -> str:
    """An operating point in words."""
    right, wrong = point.true_positives, point.false_positives
    if right is None:
        return f"{small_percent(point.fpr)} asked: underpowered"
    realised = "no other non-member to count" if wrong is None else f"{share(wrong)} realised"
    return f"{small_percent(point.fpr)} asked: {realised}; members found {share(right)}"


def share(value: Share) -> str:
    """A rate with its count and interval."""
    ends = f"[{small_percent(value.low)}, {small_percent(value.high)}]"
    return f"{small_percent(value.rate)} ({value.count} of {value.of}) {ends}"


def _roc_finding(part: ArmPart, cells: Sequence[MembershipCell]) -> str:
    best = max(cells, key=lambda cell: found(cell, part.rate))
    said = f"AUCs lie between {number(min(c.auc.value for c in cells))} and {number(max(c.auc.value for c in cells))}"
    if part.rate is None:
        return f"{said}, the largest of {shorten(best.score, 40)}; every false-positive rate asked for is underpowered."
    right = best.point(part.rate).true_positives
    if right is None or not right.count:
        return f"{said}; none is found by any score at {small_percent(part.rate)}."
    count = f"{right.count} of {right.of} members"
    return f"{said}; most are found at {small_percent(part.rate)} by {shorten(best.score, 40)}: {count}."


def _measures(rates: Sequence[float]) -> list[tuple[str, str, Read, Level]]:
    """Key, unit, value and chance level of what is drawn by dose."""
    made: list[tuple[str, str, Read, Level]] = [
        ("auc", "AUC", _auc, Level(0.5, ("chance: 0.50", ""), ("chance", "0.50"), "baseline"))
    ]
    for index, rate in enumerate(rates):
        words = small_percent(rate)
        level = Level(rate, (f"chance: {words}", ""), ("chance", words), "baseline")
        made.append((f"tpr{index}", f"members found at {words} false positives", _tpr(rate), level))
    return made


def _auc(cell: MembershipCell) -> tuple[float, float, float]:
    return cell.auc.value, cell.auc.low, cell.auc.high


def _tpr(rate: float) -> Read:
    def read(cell: MembershipCell) -> tuple[float, float, float] | None:
        right = cell.point(rate).true_positives
        return None if right is None else (right.rate, right.low, right.high)

    return read


def _spec(key: str, title: str, unit: str, level: Level) -> Spec:
    most, ticks = marks.rate_axis()
    mark = (lambda value: f"{value:g}") if unit == "AUC" else percent
    return Spec(key, title, title, unit, most, ticks, mark, (level,), {})


def _doses(part: ArmPart, family: _Family) -> Figure:
    made = []
    # The rate that is sorted by, and the next: more would be the same picture once again.
    rates = [rate for rate in part.rates if part.rate is not None and rate >= part.rate][:2]
    for key, unit, read, level in _measures(rates):
        for span in SPANS:
            points = [
                _point(each, line, value, level.value, unit)
                for each in family.drawn
                for line in part.by_dose
                if (line.cell.score, line.cell.span) == (each.score, span) and (value := read(line.cell)) is not None
            ]
            if points:
                title = f"{unit}, {family.titles[span]}"
                spec = _spec(f"{part.key}-dose-{family.key}-{key}-{span}", f"{title}, against dose", unit, level)
                made.append(Panel(title, plots.against_dose(spec, points, svg.HALF)))
    finding = f"Each mark is one score at one dose, over {_members(part)} members, with its interval."
    return Figure(finding, panels=tuple(made), legend=_legend(family))


def _members(part: ArmPart) -> str:
    counts = sorted({line.cell.members for line in part.by_dose})
    return " or ".join(map(str, counts))


def _point(each: Drawn, line: Line, value: tuple[float, float, float], chance: float, unit: str) -> Point:
    middle, low, high = value
    dose = line.cell.dose or 0
    words, said = _value(unit, middle), f"[{_value(unit, low)}, {_value(unit, high)}]"
    return Point(
        arm=each.index,
        series=(each.index, ""),
        dose=dose,
        value=middle,
        low=low,
        high=high,
        filled=low > chance,
        judged=True,
        label=f"{each.label}, {line.span}, dose {dose}: {unit} {words} {said}",
    )


def _value(unit: str, value: float) -> str:
    return number(value) if unit == "AUC" else small_percent(value)


def _overview_points(part: ArmPart, span: str, unit: str, read: Read, chance: float) -> list[Point]:
    made = []
    for line in part.by_dose:
        value = read(line.cell) if (line.cell.score, line.cell.span) == (BASELINE, span) else None
        if value is not None:
            seed, name = part.run.verdict.seed, shorten(part.series.label, 60)
            dose = line.cell.dose or 0
            middle, low, high = (_value(unit, each) for each in value)
            made.append(
                Point(
                    arm=part.series.index,
                    series=(part.series.index, f"{seed:012d} {part.run.name}"),
                    dose=dose,
                    value=value[0],
                    low=value[1],
                    high=value[2],
                    filled=value[1] > chance,
                    judged=part.run.verdict.given,
                    label=f"{name}, dose {dose}, seed {seed}: {middle} [{low}, {high}]",
                )
            )
    return made


def _ends(parts: Sequence[ArmPart], span: str, unit: str, read: Read) -> str:
    """One clause for each arm: the values at its largest dose."""
    said = []
    for index in sorted({part.series.index for part in parts}):
        own = [part for part in parts if part.series.index == index]
        most = max(line.cell.dose or 0 for part in own for line in part.by_dose)
        cells = [cell for part in own if (cell := _cell(part, BASELINE, span, most)) is not None]
        values = [value[0] for cell in cells if (value := read(cell)) is not None]
        if values:
            low, high = _value(unit, min(values)), _value(unit, max(values))
            span_said = low if low == high else f"{low} to {high}"
            said.append(f"{shorten(own[0].series.label, 60)} {span_said} at dose {most:,}")
    return "; ".join(said)
