"""The frontier as a scatter plot: up and to the right is better, whatever the axes are."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from davylamp.report import labels, svg
from davylamp.report.frontier_looks import looks
from davylamp.report.frontier_numbers import estimate, perplexity_marks, probability_mark, spoken
from davylamp.report.labels import Box, Label
from davylamp.report.plots import LETTER
from davylamp.report.text import percent, shorten, ticks
from davylamp.verdict.frontier_metrics import FIRST, GREEDY, SAID
from davylamp.verdict.frontier_model import CAPABILITY, PRIVACY, Estimate, Frontier, Metric, Row

SIZES: Mapping[str, tuple[float, float]] = {
    svg.WIDE: (880.0, 560.0),
    svg.NARROW: (400.0, 420.0),
    svg.HALF: (430.0, 360.0),
}
LONGEST = 26
"""Characters of a label."""
RADIUS = 5.0
"""Pixels of a mark."""
ARROW = 9.0
"""Pixels that an arrow keeps off the marks, and the length of its head."""


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis.

    Attributes:
        key: of the metric, or ``privacy`` or ``capability``.
        title: what it measures, and its unit.
        better: whether more is better; otherwise the axis runs the other way.
        log: whether it is logarithmic.
        least: value at the worse end, or at the better one where less is better.
        most: value at the other.
        marks: where it is marked.
    """

    key: str
    title: str
    better: bool
    log: bool
    least: float
    most: float
    marks: tuple[float, ...]

    def share(self, value: float) -> float:
        """Where a value lies from the worse end (0) to the better one (1); what lies beyond is cut."""
        low, high, at = (math.log(each) if self.log else each for each in (self.least, self.most, self._cut(value)))
        share = (at - low) / (high - low)
        return share if self.better else 1 - share

    def _cut(self, value: float) -> float:
        return min(max(value, self.least), self.most)


def axis_of(found: Frontier, key: str) -> Axis:
    """The axis of a metric, or of a mean rank."""
    metric = found.metric(key)
    if metric is None:
        count = len(found.rows)
        step = max(1, round(count / 10))
        title = f"{key}: mean rank of {' and '.join(_titles(found, key))}"
        marks = tuple(float(each) for each in range(1, count + 1, step))
        return Axis(key, title, True, False, 0.5, count + 0.5, marks)
    estimates = [row.values[key] for row in found.rows]
    unit = "" if metric.unit.startswith(metric.title.split()[-1]) else f", {metric.unit}"
    if metric.unit.startswith("perplexity"):
        return _logarithmic(metric, [each.value for each in estimates], estimates)
    if metric.unit == "bits":
        top = math.log2(found.candidates)
        return Axis(
            key, f"{metric.title}{unit}", metric.higher_is_better, False, -0.02 * top, top * 1.02, tuple(ticks(top, 6))
        )
    top = min(1.0, max([each.high if each.high is not None else each.value for each in estimates])) or 1.0
    return Axis(key, f"{metric.title}", metric.higher_is_better, False, -0.02 * top, top * 1.04, tuple(ticks(top, 5)))


def _titles(found: Frontier, side: str) -> list[str]:
    return [
        metric.title.removesuffix(" perplexity") for metric in found.metrics if metric.ranked and metric.side == side
    ]


def _logarithmic(metric: Metric, values: Sequence[float], estimates: Sequence[Estimate]) -> Axis:
    """An axis that holds all values, and their intervals as far as twice that."""
    low, high = math.log(min(values)), math.log(max(values))
    reach = max(high - low, 0.02)
    ends = [end for each in estimates for end in (each.low, each.high) if end is not None]
    least = max(low - reach, min([low, *(math.log(max(end, 1.0)) for end in ends)])) - 0.06 * reach
    most = min(high + reach, max([high, *(math.log(max(end, 1.0)) for end in ends)])) + 0.06 * reach
    bottom, top = math.exp(max(least, -0.06 * reach)), math.exp(most)
    return Axis(
        metric.key,
        f"{metric.title} (log scale)",
        metric.higher_is_better,
        True,
        bottom,
        top,
        tuple(_marks(bottom, top)),
    )


def _marks(low: float, high: float) -> list[float]:
    """Round numbers on a logarithmic axis, five or so."""
    for factors in ((1,), (1, 3), (1, 2, 5), (1, 1.5, 2, 3, 5, 7), tuple(1 + at / 10 for at in range(90))):
        powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        found = [factor * 10.0**power for power in powers for factor in factors if low <= factor * 10.0**power <= high]
        if len(found) >= 3:
            return found[:: max(1, len(found) // 6)]
    step = (high - low) / 4
    return [float(f"{low + step * at:.3g}") for at in range(1, 4)]


def scatter(found: Frontier, key: str, x: str, y: str, kind: str, finding: str) -> Markup:
    """Interventions on two axes, with intervals, arrows, and the Pareto set.

    Every mark stands at its value. Of marks that lie on one another those behind are larger.

    Args:
        found: what was compared.
        key: prefix of ids.
        x: key of the horizontal axis.
        y: key of the vertical one.
        kind: size of the drawing.
        finding: what is to be seen, for those who cannot see it.
    """
    axes = axis_of(found, x), axis_of(found, y)
    width, height = SIZES[kind]
    frame = Box(58, 34, width - 14, height - 56)
    points = [_place(frame, axes, estimate(row, x).value, estimate(row, y).value) for row in found.rows]
    own = looks([row.intervention for row in found.rows])
    sizes = labels.sizes(points, RADIUS)
    front = found.front(x, y)
    members = () if front is None else front.members
    lines = [_arrow_line(points, found, arrow.before, arrow.after) for arrow in found.arrows]
    body = [*_axes(frame, axes)]
    body += _stairs(
        frame, [point for row, point in zip(found.rows, points, strict=True) if row.intervention in members]
    )
    for row, look in zip(found.rows, own, strict=True):
        body += _whiskers(frame, axes, estimate(row, x), estimate(row, y), look)
    for line in lines:
        body += _arrow(line)
    texts, stand = _labels(found, kind, points, sizes, frame, [line for line in lines if line is not None])
    body += _led(points, stand, own)
    for row, look, point, size in zip(found.rows, own, points, sizes, strict=True):
        class_ = f"mark {'filled' if row.intervention in members else 'hollow'} s{svg.hue(look)}"
        words = _words(found, row, axes, row.intervention in members)
        body.append(svg.marker(svg.shape(look), *point, size, class_, words))
    body += _texts(found, points, texts, stand, members, own)
    title = f"{axes[1].title} against {axes[0].title}"
    return svg.drawing(f"{key}-{kind}", title, finding, SIZES[kind], body, kind)


def _place(frame: Box, axes: tuple[Axis, Axis], x: float, y: float) -> tuple[float, float]:
    return (
        frame.left + (frame.right - frame.left) * axes[0].share(x),
        frame.bottom - (frame.bottom - frame.top) * axes[1].share(y),
    )


def _mark_texts(axis: Axis) -> list[str]:
    """The marks of an axis as they are written."""
    if axis.log:
        return perplexity_marks(axis.marks)
    if axis.key == SAID:
        return [probability_mark(value) for value in axis.marks]
    return [percent(value) if axis.key in (FIRST, GREEDY) else f"{value:g}" for value in axis.marks]


def _axes(frame: Box, axes: tuple[Axis, Axis]) -> Iterator[Markup]:
    for value, words in zip(axes[1].marks, _mark_texts(axes[1]), strict=True):
        y = _place(frame, axes, axes[0].least, value)[1]
        yield svg.line(frame.left, y, frame.right, y, "grid")
        yield svg.text(frame.left - 8, y + 4, words, class_="tick end")
    for value, words in zip(axes[0].marks, _mark_texts(axes[0]), strict=True):
        x = _place(frame, axes, value, axes[1].least)[0]
        yield svg.line(x, frame.top, x, frame.bottom, "grid")
        yield svg.text(x, frame.bottom + 18, words, class_="tick middle")
    yield svg.line(frame.left, frame.bottom, frame.right, frame.bottom, "base")
    yield svg.line(frame.left, frame.top, frame.left, frame.bottom, "base")
    yield svg.text(8, 16, f"{_title(frame, axes[1])} ↑ better", class_="axis")
    yield svg.text(frame.right, frame.bottom + 42, f"{_title(frame, axes[0])} → better", class_="axis end")


def _title(frame: Box, axis: Axis) -> str:
    """What an axis measures, as long as there is room for it."""
    room = int((frame.right - frame.left) / LETTER) - 9
    if len(axis.title) > room and axis.key in (PRIVACY, CAPABILITY):
        return f"{axis.key} (mean rank)"
    return shorten(axis.title, room)


def _stairs(frame: Box, members: Sequence[tuple[float, float]]) -> Iterator[Markup]:
    """The border of what the Pareto set is at least as good as."""
    if not members:
        return
    corners: list[tuple[float, float]] = []
    for x, y in sorted(set(members), key=lambda point: (point[0], -point[1])):
        corners.append((frame.left if not corners else corners[-1][0], y))
        corners.append((x, y))
    yield svg.path([*corners, (corners[-1][0], frame.bottom)], "front")


def _whiskers(frame: Box, axes: tuple[Axis, Axis], x: Estimate, y: Estimate, look: int) -> Iterator[Markup]:
    class_ = f"whisker faint s{svg.hue(look)}"
    if x.low is not None and x.high is not None:
        yield svg.line(*_place(frame, axes, x.low, y.value), *_place(frame, axes, x.high, y.value), class_)
    if y.low is not None and y.high is not None:
        yield svg.line(*_place(frame, axes, x.value, y.low), *_place(frame, axes, x.value, y.high), class_)


def cut(found: Frontier, keys: Sequence[str]) -> bool:
    """Whether an interval goes on beyond the border of a plot with such axes."""
    for key in keys:
        axis = axis_of(found, key)
        for row in found.rows:
            each = estimate(row, key)
            if any(end is not None and not axis.least <= end <= axis.most for end in (each.low, each.high)):
                return True
    return False


Line = tuple[float, float, float, float]


def _arrow_line(points: Sequence[tuple[float, float]], found: Frontier, before: str, after: str) -> Line | None:
    at = {row.intervention: point for row, point in zip(found.rows, points, strict=True)}
    (x1, y1), (x2, y2) = at[before], at[after]
    length = math.dist((x1, y1), (x2, y2))
    if length < 3 * ARROW:
        return None
    dx, dy = (x2 - x1) / length * ARROW, (y2 - y1) / length * ARROW
    return x1 + dx, y1 + dy, x2 - dx, y2 - dy


def _arrow(line: Line | None) -> Iterator[Markup]:
    if line is None:
        return
    x1, y1, x2, y2 = line
    length = math.dist((x1, y1), (x2, y2)) or 1.0
    dx, dy = (x2 - x1) / length, (y2 - y1) / length
    back = x2 - ARROW * dx, y2 - ARROW * dy
    yield svg.line(x1, y1, *back, "arrow")
    corners = [(x2, y2), *((back[0] + side * 4 * dy, back[1] - side * 4 * dx) for side in (1, -1))]
    yield svg.el("polygon", points=" ".join(f"{x:.2f},{y:.2f}" for x, y in corners), class_="arrowhead")


def _labels(
    found: Frontier,
    kind: str,
    points: Sequence[tuple[float, float]],
    sizes: Sequence[float],
    frame: Box,
    lines: Sequence[Line],
) -> tuple[list[str], list[Label]]:
    """Names where there is room for all, else the numbers that the legend has."""
    area = Box(frame.left + 2, frame.top, frame.right, frame.bottom - 2)
    names = [shorten(row.intervention, LONGEST) for row in found.rows]
    numbers = [str(at + 1) for at in range(len(names))]
    clear = [size + labels.CLEAR - RADIUS for size in sizes]
    if kind == svg.WIDE or len(names) <= 5:
        stand = labels.placed(points, names, area, lines, clear)
        if stand is not None:
            return names, stand
    stand = labels.placed(points, numbers, Box(0, 0, frame.right + 12, frame.bottom + 12), lines, clear)
    return numbers, stand or []


def _led(points: Sequence[tuple[float, float]], stand: Sequence[Label], own: Sequence[int]) -> Iterator[Markup]:
    if stand:
        for at, begin, end in labels.leaders(points, stand):
            yield svg.path([begin, end], f"leader s{svg.hue(own[at])}")


def _texts(
    found: Frontier,
    points: Sequence[tuple[float, float]],
    texts: Sequence[str],
    stand: Sequence[Label],
    members: Sequence[str],
    own: Sequence[int],
) -> Iterator[Markup]:
    for at, label in enumerate(stand):
        strong = "strong " if found.rows[at].intervention in members else ""
        # Letters may be wider than they were taken to be: a name on the left grows away from its mark.
        left = label.box.right <= points[at][0]
        x, end = (label.box.right - 2, "end ") if left else (label.x + 2, "")
        yield svg.text(x, label.y, texts[at], class_=f"side {strong}{end}halo t{svg.hue(own[at])}")


def _words(found: Frontier, row: Row, axes: tuple[Axis, Axis], member: bool) -> str:
    said = [f"{axis.title.split(':')[0]} {spoken(found, row, axis.key)}" for axis in axes]
    return f"{row.intervention}: {'; '.join(said)}{'; in the Pareto set' if member else ''}"
