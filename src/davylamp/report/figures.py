"""From the report's data to its figures, each with a sentence that says what is to be seen."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from davylamp.report import curves, marks, panels, plots, svg
from davylamp.report.marks import Dot, Point, Spec
from davylamp.report.model import CanaryRow, Run
from davylamp.report.panels import BOTH, CROWDED, Figure, Panel
from davylamp.report.series import series_of
from davylamp.report.text import digits_span, interval, number, percent, percent_span, shorten, span
from davylamp.report.view import Group, Row, loss_curve, only_series
from davylamp.verdict.model import Copying, Rate, Word


def exposure(group: Group) -> Figure:
    """Median exposure against dose."""
    points = [
        _point(group, row, row.cell.median, row.cell.median_low, row.cell.median_high, row.cell.exposure_verdict, _bits)
        for row in group.rows()
    ]
    most, ticks = marks.exposure_axis(group.ceiling)
    finding = _climbs(group, lambda row: row.cell.median, "median exposure", " bits")
    finding += f" A random rank has {number(group.baseline)} bits in the mean; the ceiling is {number(group.ceiling)}."
    spec = Spec(
        key=f"{group.key}-exposure",
        title="Median exposure in bits against dose",
        finding=finding,
        unit="median exposure, bits",
        most=most,
        marks=ticks,
        mark=marks.bits_mark,
        levels=marks.bits_levels(group.candidates, group.ceiling, group.baseline),
        arms=_names(group),
        warning=_warning(group),
    )
    return panels.lines(group, spec, points)


def recovery(group: Group) -> Figure:
    """Greedy exact recovery against dose."""
    points = [_rate_point(group, row, row.cell.greedy, row.cell.greedy_verdict) for row in group.rows()]
    finding = _climbs(group, lambda row: row.cell.greedy.value, "share of secrets said exactly", "")
    return panels.lines(group, _rate_spec(group, "recovery", "Greedy exact recovery against dose", finding), points)


def copying(group: Group) -> Figure | None:
    """How often the code shown is copied, and how often the trained one is said instead."""
    pairs = group.copies("replacement")
    sides = (
        ("copied", "says the code that is shown", [(run, other) for run, _, other in pairs if other is not None]),
        ("kept", "says the trained code instead", [(run, row) for run, row, _ in pairs]),
    )
    specs = []
    for key, title, rows in sides:
        finding = f"{title[0].upper()}{title[1:]}: {_copied(group, rows)}."
        spec = _rate_spec(group, key, f"Shown a replacement code, the model {title}", finding)
        if rows:
            specs.append((title, spec, [_copy_point(group, run, row) for run, row in rows]))
    if not specs:
        return None
    if all(len({(point.series, point.dose) for point in points}) <= CROWDED // 2 for _, _, points in specs):
        drawn = tuple(Panel(title, plots.against_dose(spec, points, svg.HALF)) for title, spec, points in specs)
        return Figure(" ".join(spec.finding for _, spec, _ in specs), panels=drawn, legend=group.series)
    parts = [
        (title, panels.lines(group, replace(spec, unit=f"{title}: {spec.unit}"), points))
        for title, spec, points in specs
    ]
    named = [(f"{title}: {shorten(each.title, 40)}", each.drawing) for title, part in parts for each in part.panels]
    return Figure(
        " ".join(part.finding for _, part in parts),
        tuple(drawing for _, part in parts for drawing in part.drawings),
        tuple(Panel(title, drawing) for title, drawing in named),
        narrow=all(part.narrow for _, part in parts),
        legend=group.series,
    )


def _copied(group: Group, rows: Sequence[tuple[Run, Copying]]) -> str:
    parts = []
    for series in group.series:
        values = [row.greedy.value for run, row in rows if row.dose and group.of(run, row.arm) is series]
        if values:
            parts.append(f"{shorten(series.label, 60)} {percent_span(values)}")
    return "; ".join(parts)


def _copy_point(group: Group, run: Run, row: Copying) -> Point:
    series = group.of(run, row.arm)
    return Point(
        arm=series.index,
        series=(series.index, _place(run)),
        dose=row.dose,
        value=row.greedy.value,
        low=row.greedy.low,
        high=row.greedy.high,
        filled=row.greedy.successes > 0,
        judged=run.verdict.given,
        label=f"{shorten(series.label, 60)}, dose {row.dose}, seed {row.seed}: {_said(row.greedy)}",
    )


def canaries(group: Group) -> Figure:
    """Every canary's exposure."""
    dots = [_dot(group, run, row) for run in group.runs for row in run.canaries if row.role != "positive"]
    said = sum(row.greedy for run in group.runs for row in run.canaries if row.role == "focus")
    top = [row.exposure for run in group.runs for row in run.canaries if row.role == "focus"]
    first = sum(row.rank == 1 for run in group.runs for row in run.canaries if row.role == "focus")
    finding = (
        f"{len(top)} planted canaries lie between {min(top):.1f} and {max(top):.1f} bits; {first} of them "
        f"rank first of all candidates, and {said} are said exactly (filled marks)."
    )
    most, ticks = marks.exposure_axis(group.ceiling)
    spec = Spec(
        key=f"{group.key}-canaries",
        title="Exposure of every canary in bits against dose",
        finding=finding,
        unit="exposure, bits",
        most=most,
        marks=ticks,
        mark=marks.bits_mark,
        levels=marks.bits_levels(group.candidates, group.ceiling, group.baseline),
        arms=_names(group),
        warning=_warning(group),
    )
    return panels.dots(group, spec, dots)


def losses(runs: Sequence[Run]) -> Figure | None:
    """The loss curves of models that davylamp trained."""
    series = series_of(runs)
    drawn = []
    for run in runs:
        curve, own = loss_curve(run), only_series(run, series)
        if curve:
            # A model of several arms is one curve, which belongs to none of them.
            drawn.append((None if own is None else own.index, run.name, curve))
    if not drawn:
        return None
    heads = [sum(curve[:20]) / len(curve[:20]) for _, _, curve in drawn]
    tails = [sum(curve[-20:]) / len(curve[-20:]) for _, _, curve in drawn]
    finding = (
        f"Mean loss of the first 20 steps: {digits_span(heads)} nats per token; of the last 20: {digits_span(tails)}."
    )
    drawings = tuple(curves.losses("loss", "Training loss of each model", finding, drawn, kind) for kind in BOTH)
    legend = tuple(series.values()) if any(index is not None for index, _, _ in drawn) else ()
    return Figure(finding, drawings, legend=legend)


def _names(group: Group) -> Mapping[int, str]:
    return {series.index: series.label for series in group.series}


def _rate_spec(group: Group, key: str, title: str, finding: str) -> Spec:
    most, ticks = marks.rate_axis()
    return Spec(
        key=f"{group.key}-{key}",
        title=title,
        finding=finding,
        unit="share of canaries, %",
        most=most,
        marks=ticks,
        mark=percent,
        levels=(),
        arms=_names(group),
        warning=_warning(group),
    )


def _point(
    group: Group,
    row: Row,
    value: float,
    low: float,
    high: float,
    word: Word | None,
    says: Callable[[float, float, float], str],
) -> Point:
    cell = row.cell
    series = group.of(row.run, cell.arm)
    verdict = f" ({word})" if cell.dose else " (twins)"
    return Point(
        arm=series.index,
        series=(series.index, _place(row.run)),
        dose=cell.dose,
        value=value,
        low=low,
        high=high,
        filled=word == "leak",
        judged=row.run.verdict.given,
        label=f"{shorten(series.label, 60)}, dose {cell.dose}, seed {cell.seed}: {says(value, low, high)}{verdict}",
    )


def _rate_point(group: Group, row: Row, rate: Rate, word: Word | None) -> Point:
    return _point(group, row, rate.value, rate.low, rate.high, word, lambda *_: _said(rate))


def _dot(group: Group, run: Run, row: CanaryRow) -> Dot:
    series = group.of(run, row.arm)
    said = "said exactly" if row.greedy else "not said"
    who = f"{row.id}, {shorten(series.label, 60)}, dose {row.dose}, seed {run.verdict.seed}"
    label = f"{who}: {number(row.exposure)} bits, {said}"
    return Dot(series.index, (series.index, _place(run)), row.dose, row.exposure, row.greedy, label)


def _warning(group: Group) -> str:
    failed = sum(not run.verdict.given for run in group.runs)
    if not failed:
        return ""
    return "no verdict: a control failed" if failed == len(group.runs) else f"{failed} of {len(group.runs)}: no verdict"


def _place(run: Run) -> str:
    """Sorts models by seed, and tells two of the same seed apart."""
    return f"{run.verdict.seed:012d} {run.name}"


def _bits(value: float, low: float, high: float) -> str:
    return f"{number(value)} bits {interval(low, high)}"


def _said(rate: Rate) -> str:
    return f"{rate.successes} of {rate.trials} [{percent(rate.low)}, {percent(rate.high)}]"


def _climbs(group: Group, value: Callable[[Row], float], what: str, unit: str) -> str:
    """One clause for each arm: from the smallest dose to the largest."""
    parts = []
    for series in group.series:
        rows = [row for row in group.rows(series) if row.cell.dose]
        if not rows:
            continue
        ends = sorted({row.cell.dose for row in rows})[:: max(1, len({row.cell.dose for row in rows}) - 1)]
        said = [[value(row) for row in rows if row.cell.dose == dose] for dose in ends]
        words = [span(values, unit) if unit else percent_span(values) for values in said]
        parts.append(
            f"{shorten(series.label, 60)}: "
            + " and ".join(f"{word} at dose {dose}" for word, dose in zip(words, ends, strict=True))
        )
    return f"{what[:1].upper()}{what[1:]}: {'; '.join(parts)}."
