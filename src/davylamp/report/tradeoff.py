"""Utility beside leakage: what each model is still good for, against what it gives away."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from davylamp.report import svg
from davylamp.report.model import Run, Utility
from davylamp.report.panels import Figure, Panel
from davylamp.report.series import Series
from davylamp.report.text import digits, interval, number, percent, percent_span, shorten, span, ticks
from davylamp.report.view import Group
from davylamp.verdict.model import Cell

SIZE = (430.0, 360.0)
BAND = 84.0
"""Pixels left of the axis of leakage, for models without canaries."""


@dataclass(frozen=True, slots=True)
class Leakage:
    """What one arm of a model gives away at its largest dose, the secret hidden in the prompt.

    Attributes:
        run: the model.
        series: the arm.
        cell: what was read.
    """

    run: Run
    series: Series
    cell: Cell


@dataclass(frozen=True, slots=True)
class _Estimate:
    """A utility with its interval, and in words."""

    value: float
    low: float
    high: float
    words: str


@dataclass(frozen=True, slots=True)
class _Axis:
    """The axis of utility: what it measures, its upper end, its marks, and how a mark is written."""

    unit: str
    most: float
    marks: Sequence[float]
    mark: Callable[[float], str]


def leakages(run: Run, group: Group) -> list[Leakage]:
    """Each arm of a model at its largest dose."""
    found = []
    for arm in dict.fromkeys(cell.arm for cell in run.verdict.cells):
        planted = [cell for cell in run.verdict.cells if cell.arm == arm and cell.dose]
        if planted:
            found.append(Leakage(run, group.of(run, arm), max(planted, key=lambda cell: cell.dose)))
    return found


def tradeoff(key: str, rows: Sequence[Utility], groups: Sequence[Group]) -> Figure | None:
    """Utility against leakage: a panel for the share of right answers, and one for the held-out loss.

    Args:
        key: prefix of ids.
        rows: what was measured in the same way.
        groups: the audited models; nothing is drawn where exposures of several ceilings would share an axis.
    """
    if len(groups) != 1 or not any(row.who == run.name for row in rows for run in groups[0].runs):
        return None
    group = groups[0]
    shares = [(row, _share(row)) for row in rows]
    axis = _Axis("rows answered right", 1.04, (0, 0.25, 0.5, 0.75, 1), percent)
    drawn = [_scatter(f"{key}-right", "Rows answered right against leakage", shares, group, axis)]
    losses = [(row, _loss(row, row.loss)) for row in rows if row.loss is not None]
    if losses:
        most = max(each.high for _, each in losses) * 1.06 or 1.0
        axis = _Axis("held-out loss, nats a token", most, ticks(most), lambda value: f"{value:g}")
        drawn.append(_scatter(f"{key}-loss", "Held-out loss against leakage", losses, group, axis))
    titles = ("rows answered right: higher is better", "held-out loss: lower is better")
    panels = tuple(Panel(title, drawing) for title, drawing in zip(titles, drawn, strict=False))
    return Figure(_finding(shares, group), panels=panels, legend=group.series)


def _share(row: Utility) -> _Estimate:
    words = f"{row.successes} of {row.trials} right [{percent(row.low)}, {percent(row.high)}]"
    return _Estimate(row.successes / row.trials, row.low, row.high, words)


def _loss(row: Utility, loss: float) -> _Estimate:
    if row.loss_low is None or row.loss_high is None:
        return _Estimate(loss, loss, loss, f"loss {digits(loss)} nats a token")
    words = f"loss {digits(loss)} nats a token [{digits(row.loss_low)}, {digits(row.loss_high)}]"
    return _Estimate(loss, row.loss_low, row.loss_high, words)


def _finding(shares: Sequence[tuple[Utility, _Estimate]], group: Group) -> str:
    parts = []
    for series in group.series:
        own = [
            (leak.cell, share.value)
            for row, share in shares
            for run in group.runs
            if run.name == row.who
            for leak in leakages(run, group)
            if leak.series is series
        ]
        if own:
            bits, right = [cell.median for cell, _ in own], [value for _, value in own]
            dose = max(cell.dose for cell, _ in own)
            parts.append(
                f"{shorten(series.label, 60)} {span(bits, ' bits')} at dose {dose:,} and {percent_span(right)} right"
            )
    audited = {run.name for run in group.runs}
    for name, words in (("base", "the base model"), ("clean", "without canaries")):
        right = [share.value for row, share in shares if row.who not in audited and _kind(row) == name]
        if right:
            parts.append(f"{words} {percent_span(right)} right")
    return f"Leakage and utility: {'; '.join(parts)}."


def _kind(row: Utility) -> str:
    return "base" if row.who == "base" else "clean"


def _scatter(key: str, title: str, rows: Sequence[tuple[Utility, _Estimate]], group: Group, axis: _Axis) -> Markup:
    width, height = SIZE
    frame = svg.Frame(width, height, 46, width - 16, 44, height - 66, axis.most)
    start = frame.left + BAND
    scale = (frame.right - start - 8) / group.ceiling

    def x(bits: float) -> float:
        return start + 8 + bits * scale

    body: list[Markup] = [svg.text(8, 18, axis.unit, class_="axis"), *svg.grid(frame, axis.marks, axis.mark)]
    body += _bits_axis(frame, start, group, x)
    runs = {run.name: run for run in group.runs}
    without = [(row, each) for row, each in rows if row.who not in runs]
    body += _without(frame, without)
    for row, each in rows:
        for leak in leakages(runs[row.who], group) if row.who in runs else ():
            body += _audited(frame, row, each, leak, x)
    finding = _finding(rows, group) if axis.mark is percent else f"{title}; the table below has every number."
    return svg.drawing(f"{key}-{svg.HALF}", title, finding, SIZE, body, svg.HALF)


def _bits_axis(frame: svg.Frame, start: float, group: Group, x: Callable[[float], float]) -> Iterator[Markup]:
    yield svg.line(start, frame.top, start, frame.bottom, "break")
    for mark in ticks(group.ceiling, 7):
        yield svg.line(x(mark), frame.bottom, x(mark), frame.bottom + 5, "grid")
        yield svg.text(x(mark), frame.bottom + 19, f"{mark:g}", class_="tick middle")
    for value, words, look, side in (
        (group.baseline, f"random {number(group.baseline)}", "baseline", "middle"),
        (group.ceiling, f"ceiling {number(group.ceiling)}", "ceiling", "end"),
    ):
        yield svg.line(x(value), frame.top, x(value), frame.bottom, f"level {look}")
        yield svg.text(x(value) + (6 if side == "end" else 0), frame.top - 6, words, class_=f"side {look} {side}")
    yield svg.text((start + frame.right) / 2, frame.bottom + 54, "median exposure, bits", class_="axis middle")


def _without(frame: svg.Frame, rows: Sequence[tuple[Utility, _Estimate]]) -> Iterator[Markup]:
    """Models without canaries, which have a utility and no leakage to measure."""
    for place, kind in ((0.27, "base"), (0.73, "clean")):
        own = [(row, each) for row, each in rows if _kind(row) == kind]
        middle = frame.left + BAND * place
        if own:
            yield svg.text(middle, frame.bottom + 19, kind, class_="tick middle")
        for index, (row, each) in enumerate(own):
            at = middle + (index - (len(own) - 1) / 2) * min(9.0, 34 / len(own))
            yield svg.line(at, frame.y(each.low), at, frame.y(each.high), "whisker faint plain")
            label = f"{shorten(row.who, 60)}: {each.words}; no canaries"
            yield svg.marker("circle", at, frame.y(each.value), 4, "mark hollow plain", label)
    if rows:
        yield svg.text(frame.left + BAND / 2, frame.bottom + 35, "no canaries", class_="tick middle")


def _audited(
    frame: svg.Frame, row: Utility, each: _Estimate, leak: Leakage, x: Callable[[float], float]
) -> Iterator[Markup]:
    cell, hue = leak.cell, f"s{svg.hue(leak.series.index)}"
    at, y = x(cell.median), frame.y(each.value)
    look = f"whisker faint {hue}" if leak.run.verdict.given else f"whisker faint unsure {hue}"
    yield svg.line(x(cell.median_low), y, x(cell.median_high), y, look)
    yield svg.line(at, frame.y(each.low), at, frame.y(each.high), look)
    bits = f"{number(cell.median)} bits {interval(cell.median_low, cell.median_high)} at dose {cell.dose:,}"
    fill = "filled" if cell.exposure_verdict == "leak" else "hollow"
    label = f"{shorten(row.who, 60)}, {shorten(leak.series.label, 60)}: {bits}, {each.words}"
    yield svg.marker(svg.shape(leak.series.index), at, y, 4.5, f"mark {fill} {hue}", label)
    if not leak.run.verdict.given:
        yield svg.line(at - 6, y + 6, at + 6, y - 6, f"whisker {hue}")
