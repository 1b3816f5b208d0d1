"""Labels beside the points of a plot, none over another label or over a point."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from davylamp.report.plots import LETTER

HEIGHT = 16.0
"""Pixels that a label's line takes."""
REACHES = (8.0, 12.0, 18.0, 26.0, 36.0, 48.0, 62.0, 80.0, 100.0, 125.0, 155.0, 190.0)
"""Distances from the point that are tried, in pixels; beyond the first a leader is drawn."""
ANGLES = tuple(math.radians(22.5 * step) for step in (0, 8, 15, 1, 9, 7, 14, 2, 10, 6, 13, 3, 11, 5, 12, 4))
CLOSE = 26.0
"""Pixels between two points below which a label beside one could be read as the other's."""
CLEAR = 7.0
"""Pixels around a point that stay free of labels."""


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle in pixels."""

    left: float
    top: float
    right: float
    bottom: float

    def meets(self, other: Box) -> bool:
        """Whether two share an area."""
        apart = (
            self.right <= other.left or other.right <= self.left or self.bottom <= other.top or other.bottom <= self.top
        )
        return not apart

    def within(self, other: Box) -> bool:
        """Whether it lies wholly inside another."""
        return (
            self.left >= other.left
            and self.right <= other.right
            and self.top >= other.top
            and self.bottom <= other.bottom
        )

    def holds(self, x: float, y: float) -> bool:
        """Whether a point lies inside."""
        return self.left <= x <= self.right and self.top <= y <= self.bottom


@dataclass(frozen=True, slots=True)
class Label:
    """Where a label stands.

    Attributes:
        box: what it takes.
        leader: whether it is so far away that a line must lead to it.
    """

    box: Box
    leader: bool

    @property
    def x(self) -> float:
        """Left end of the text."""
        return self.box.left

    @property
    def y(self) -> float:
        """Base line of the text."""
        return self.box.bottom - 4

    def end(self, x: float, y: float) -> tuple[float, float]:
        """Where a leader from a point ends: the nearest place of the box."""
        return min(max(x, self.box.left), self.box.right), min(max(y, self.box.top), self.box.bottom)


def placed(
    points: Sequence[tuple[float, float]],
    texts: Sequence[str],
    area: Box,
    lines: Sequence[tuple[float, float, float, float]] = (),
    clear: Sequence[float] = (),
) -> list[Label] | None:
    """Place a label beside each point.

    Of points that are close together a label stands, if it can, on the side that looks away from the others: between
    two marks one reads the names in the order of the marks.

    Args:
        points: the points.
        texts: the label of each.
        area: no label leaves it.
        lines: lines (x1, y1, x2, y2) that labels keep off where they can.
        clear: pixels around each point that stay free of labels; :data:`CLEAR` if none.

    Returns:
        The labels, in the order of the points; nothing where there is no room for all of them.
    """
    widths = [LETTER * len(text) + 4 for text in texts]
    around = clear or [CLEAR] * len(points)
    marks = [Box(x - free, y - free, x + free, y + free) for (x, y), free in zip(points, around, strict=True)]
    dots = [dot for line in lines for dot in _along(line)]
    # Where it is crowded there is least choice.
    order = sorted(range(len(points)), key=lambda at: (-_neighbours(points, at), points[at], at))
    found: dict[int, Label] = {}
    for again in range(3):
        for at in order:
            others = [label.box for other, label in found.items() if other != at]
            close = [other for other in points if 0.5 < math.dist(points[at], other) < CLOSE]
            best = _best(points[at], widths[at], area, [*others, *marks], dots, close)
            if best is not None:
                found[at] = best
            elif not again:
                return None
    return [found[at] for at in range(len(points))]


def _best(
    point: tuple[float, float],
    width: float,
    area: Box,
    taken: Sequence[Box],
    dots: Sequence[tuple[float, float]],
    close: Sequence[tuple[float, float]],
) -> Label | None:
    best: tuple[float, Label] | None = None
    for reach_at, reach in enumerate(REACHES):
        # No place farther away can cost less.
        if best is not None and reach >= best[0]:
            break
        for turn, angle in enumerate(ANGLES):
            box = _box(point, width, reach, angle)
            cost = reach + 0.2 * turn
            if (best is not None and cost >= best[0]) or not box.within(area):
                continue
            if any(box.meets(other) for other in taken):
                continue
            label = Label(box, reach_at > 0)
            cost += 6 * min(sum(box.holds(*dot) for dot in dots), 6)
            cost += 30 * any(_towards(point, angle, other) for other in close)
            if label.leader:
                way = _along((*point, *label.end(*point)))[2:]
                cost += 12 * min(sum(other.holds(*dot) for dot in way for other in taken), 8)
            if best is None or cost < best[0]:
                best = cost, label
    return None if best is None else best[1]


def _box(point: tuple[float, float], width: float, reach: float, angle: float) -> Box:
    """A box whose side that looks to the point is so far away from it."""
    across, down = math.cos(angle), math.sin(angle)
    x, y = point[0] + reach * across + width / 2 * _sign(across), point[1] + reach * down + HEIGHT / 2 * _sign(down)
    return Box(x - width / 2, y - HEIGHT / 2, x + width / 2, y + HEIGHT / 2)


def _towards(point: tuple[float, float], angle: float, other: tuple[float, float]) -> bool:
    """Whether a direction from a point leads to another point's side."""
    return math.cos(angle) * (other[0] - point[0]) + math.sin(angle) * (other[1] - point[1]) > 1e-6


def _sign(value: float) -> float:
    """-1 to 1; less than a third of the way to a side counts in part, so that boxes turn smoothly."""
    return max(-1.0, min(1.0, 3 * value))


def _along(line: tuple[float, float, float, float]) -> list[tuple[float, float]]:
    x1, y1, x2, y2 = line
    steps = max(2, int(math.hypot(x2 - x1, y2 - y1) / 6))
    return [(x1 + (x2 - x1) * at / steps, y1 + (y2 - y1) * at / steps) for at in range(steps + 1)]


def _neighbours(points: Sequence[tuple[float, float]], at: int) -> int:
    x, y = points[at]
    return sum(abs(x - other) < 90 and abs(y - height) < 40 for other, height in points)


def sizes(points: Sequence[tuple[float, float]], radius: float) -> list[float]:
    """Radii of marks, drawn in their order: one that others would hide is so much larger that it shows around them.

    Args:
        points: in pixels.
        radius: of a mark that nothing hides.
    """
    return [
        radius * (1 + 0.5 * min(sum(math.dist(point, other) < 0.6 * radius for other in points[at + 1 :]), 4))
        for at, point in enumerate(points)
    ]


def leaders(
    points: Sequence[tuple[float, float]], labels: Sequence[Label]
) -> Iterator[tuple[int, tuple[float, float], tuple[float, float]]]:
    """The lines that lead from points to labels that are far away, by the index of the point."""
    for at, (point, label) in enumerate(zip(points, labels, strict=True)):
        if label.leader:
            yield at, point, label.end(*point)
