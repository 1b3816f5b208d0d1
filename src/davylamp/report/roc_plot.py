"""ROC curves on log axes, where the low false-positive rates are that matter."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from markupsafe import Markup

from davylamp.report import svg
from davylamp.report.text import small_percent

SIZE = (430.0, 420.0)
STEPS = 16
"""Points of a slanted stretch, which is bent on log axes."""
CROWDED = 9
"""Marks of an axis beyond which only powers of ten are marked."""


@dataclass(frozen=True, slots=True)
class Operating:
    """A threshold's place in the plot.

    Attributes:
        fpr: the false-positive rate that was really realised; nothing where none was counted.
        tpr: the true-positive rate.
        filled: whether the mark is filled.
        label: everything in words, for a tooltip.
    """

    fpr: float | None
    tpr: float
    filled: bool
    label: str


@dataclass(frozen=True, slots=True)
class Curve:
    """One score.

    Attributes:
        index: gives colour, dashes and shape.
        label: the score.
        corners: of the curve, (false-positive rate, true-positive rate) from (0, 0) to (1, 1).
        points: its thresholds.
    """

    index: int
    label: str
    corners: Sequence[tuple[float, float]]
    points: Sequence[Operating]


@dataclass(frozen=True, slots=True)
class _Axes:
    """Log axes; what lies below their least values is drawn at their ends."""

    left: float
    right: float
    top: float
    bottom: float
    least_x: float
    least_y: float

    def x(self, rate: float) -> float:
        share = math.log(max(rate, self.least_x) / self.least_x) / -math.log(self.least_x)
        return self.left + (self.right - self.left) * share

    def y(self, rate: float) -> float:
        share = math.log(max(rate, self.least_y) / self.least_y) / -math.log(self.least_y)
        return self.bottom - (self.bottom - self.top) * share


def roc_plot(
    key: str,
    title: str,
    finding: str,
    curves: Sequence[Curve],
    counts: tuple[int, int],
    guides: Sequence[float],
) -> Markup:
    """A panel of ROC curves, from ``1 / non-members`` and ``1 / members`` up to 1.

    Args:
        key: prefix of ids.
        title: the plot's name.
        finding: what is to be seen.
        curves: one for each score.
        counts: members and non-members.
        guides: false-positive rates that were asked for.
    """
    width, height = SIZE
    # Half a single member is the bottom, so that one member found is told from none.
    axes = _Axes(58, width - 24, 40, height - 66, 1 / max(2, counts[1]), 0.5 / max(1, counts[0]))
    body = [svg.text(8, 16, "true-positive rate: members found", class_="axis"), *_scales(axes, counts)]
    for rate in guides:
        body.append(svg.line(axes.x(rate), axes.top, axes.x(rate), axes.bottom, "asked"))
        body.append(svg.text(axes.x(rate), axes.top - 6, f"asked {small_percent(rate)}", class_="tick middle"))
    start = max(axes.least_x, axes.least_y)
    body.append(svg.line(axes.x(start), axes.y(start), axes.x(1), axes.y(1), "level baseline"))
    middle = math.sqrt(start)
    body.append(svg.text(axes.x(middle) + 8, axes.y(middle) + 16, "chance", class_="side halo"))
    for curve in curves:
        look = f"curve s{svg.hue(curve.index)} dash{svg.dash(curve.index)}"
        line = svg.path([(axes.x(x), axes.y(y)) for x, y in trace(curve.corners, axes.least_x)], look)
        body.append(svg.el("g", svg.el("title", curve.label), line))
    for curve in curves:
        body += _points(axes, curve)
    return svg.drawing(f"{key}-{svg.HALF}", title, finding, SIZE, body, svg.HALF)


def trace(corners: Sequence[tuple[float, float]], least: float) -> list[tuple[float, float]]:
    """A curve from a least false-positive rate on, slanted stretches with points between their ends.

    Args:
        corners: (false-positive rate, true-positive rate) from (0, 0) to (1, 1).
        least: where the axis begins, above 0.
    """
    found: list[tuple[float, float]] = []
    for (start, low), (end, top) in pairwise(corners):
        if end < least:
            continue
        x = max(start, least)
        y = low if end == start else low + (top - low) * (x - start) / (end - start)
        if not found:
            found.append((x, y))
        if end > x and top > y:
            for step in range(1, STEPS):
                at = x * (end / x) ** (step / STEPS)
                found.append((at, y + (top - y) * (at - x) / (end - x)))
        found.append((end, top))
    return found


def _scales(axes: _Axes, counts: tuple[int, int]) -> Iterator[Markup]:
    for rate in _marks(1 / max(1, counts[0])):
        y = axes.y(rate)
        yield svg.line(axes.left, y, axes.right, y, "grid")
        yield svg.text(axes.left - 8, y + 4, small_percent(rate), class_="tick end")
    yield svg.line(axes.left, axes.bottom, axes.right, axes.bottom, "base")
    yield svg.text(axes.left - 8, axes.bottom + 4, "none", class_="tick end")
    for rate in _marks(axes.least_x):
        x = axes.x(rate)
        yield svg.line(x, axes.bottom, x, axes.bottom + 5, "grid")
        yield svg.text(x, axes.bottom + 19, small_percent(rate), class_="tick middle")
    yield svg.line(axes.left, axes.bottom, axes.left, axes.bottom + 24, "grid")
    yield svg.text(axes.left + 4, axes.bottom + 35, f"1 of {counts[1]:,} non-members", class_="tick")
    words = "false-positive rate: non-members taken for members"
    yield svg.text((axes.left + axes.right) / 2, axes.bottom + 56, words, class_="axis middle")


def _marks(least: float) -> list[float]:
    """Round rates from a least one to 1, on log axes."""
    powers = range(math.floor(math.log10(least)), 1)
    for steps in ((1, 2, 5), (1,)):
        found = [step * 10.0**power for power in powers for step in steps]
        found = [rate for rate in found if least * (1 - 1e-9) <= rate <= 1]
        if len(found) <= CROWDED:
            break
    return found


def _points(axes: _Axes, curve: Curve) -> Iterable[Markup]:
    for point in curve.points:
        look = f"mark {'filled' if point.filled else 'hollow'} s{svg.hue(curve.index)}"
        x = axes.x(point.fpr or 0.0)
        yield svg.marker(svg.shape(curve.index), x, axes.y(point.tpr), 4, look, point.label)
