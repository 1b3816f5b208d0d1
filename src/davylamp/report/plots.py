"""Plots against dose: a value with its interval, and every canary's own value."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from davylamp.report import svg
from davylamp.report.marks import Dot, Point, Spec
from davylamp.report.text import shorten

LETTER, LINE = 7.4, 16.0
"""Pixels of a bold letter in the mean, and of a line of text."""


def against_dose(spec: Spec, points: Sequence[Point], kind: str, intervals: bool = True) -> Markup:
    """Values against dose; one line for each series.

    Args:
        spec: what is drawn.
        points: the values.
        kind: size of the drawing.
        intervals: draw each value's interval, the models of an arm side by side; without them they stand above one
            another, which takes less room.
    """
    frame = _frame(spec, kind)
    slots = _slots([_column(point, intervals) for point in points])
    least = 7 if intervals else 3
    needed = least * (max(slots.values()) + 1) + 10
    axis = svg.dose_axis([point.dose for point in points], frame.left, frame.right, needed)
    step = min(11.0, axis.room * 0.84 / (max(slots.values()) + 1))
    middle = max(slots.values()) / 2

    def x(point: Point) -> float:
        return axis.places[point.dose] + (slots[_column(point, intervals)] - middle) * step

    body = [*_axes(spec, frame, axis, kind)]
    for point in points:
        if point.floor is not None:
            body.append(svg.band(x(point) - step * 0.5, frame.y(point.floor), step, frame.y(-point.floor)))
    for series in sorted({point.series for point in points}):
        own = sorted((point for point in points if point.series == series), key=lambda point: point.dose)
        joined = [(x(point), frame.y(point.value)) for point in own if point.dose]
        if len(joined) > 1:
            body.append(svg.path(joined, f"join s{svg.hue(series[0])} dash{svg.dash(series[0])}"))
    for point in points:
        body += _mark(frame, point, x(point), min(4.5, max(2.4, step * 0.62)), intervals)
    body += _side(spec, frame, points, kind)
    return svg.drawing(f"{spec.key}-{kind}", spec.title, spec.finding, svg.SIZES[kind], body, kind)


def _column(point: Point, apart: bool) -> tuple[int, str]:
    return point.series if apart else (point.arm, "")


def strip(spec: Spec, dots: Sequence[Dot], kind: str) -> Markup:
    """Every canary's own value against dose, spread sideways so that as few as can be hide another."""
    frame = _frame(spec, kind)
    slots = _slots([dot.series for dot in dots])
    width = max(slots.values()) + 1
    axis = svg.dose_axis([dot.dose for dot in dots], frame.left, frame.right, 9 * width + 6)
    step = min(60.0, axis.room * 0.9 / width)
    middle = max(slots.values()) / 2
    body = [*_axes(spec, frame, axis, kind)]
    for (series, dose), own in _columns(dots).items():
        centre = axis.places[dose] + (slots[series] - middle) * step
        hue = f"s{svg.hue(series[0])}"
        radius = max(1.6, min(2.8, step / 7))
        for dot, shift in zip(own, _swarm([frame.y(dot.value) for dot in own], radius, step * 0.46), strict=True):
            look = f"mark {hue} {'filled' if dot.filled else 'hollow'}"
            body.append(svg.marker(svg.shape(dot.arm), centre + shift, frame.y(dot.value), radius, look, dot.label))
    body += _side(spec, frame, [], kind)
    return svg.drawing(f"{spec.key}-{kind}", spec.title, spec.finding, svg.SIZES[kind], body, kind)


def _frame(spec: Spec, kind: str) -> svg.Frame:
    width, height = svg.SIZES[kind]
    right = {svg.WIDE: 176.0, svg.NARROW: 62.0 if spec.levels else 12.0, svg.HALF: 62.0 if spec.levels else 14.0}[kind]
    if kind == svg.WIDE and not spec.levels and not spec.arms:
        right = 20.0
    top = 38.0 if _fits(spec, width - right) else 38.0 + LINE
    return svg.Frame(width, height, 46, width - right, top, height - 66, spec.most, spec.least)


def _fits(spec: Spec, right: float) -> bool:
    """Whether the warning has room beside what the axis measures."""
    return not spec.warning or 8 + LETTER * (len(spec.unit) + len(spec.warning) + 2) <= right


def _axes(spec: Spec, frame: svg.Frame, axis: svg.DoseAxis, kind: str) -> Iterator[Markup]:
    yield svg.text(8, 18, spec.unit, class_="axis")
    if spec.warning and _fits(spec, frame.right):
        yield svg.text(frame.right, 18, spec.warning, class_="warning end")
    elif spec.warning:
        yield svg.text(8, 18 + LINE, spec.warning, class_="warning")
    yield from svg.grid(frame, spec.marks, spec.mark)
    for level in spec.levels:
        yield svg.line(frame.left, frame.y(level.value), frame.right, frame.y(level.value), f"level {level.class_}")
    for dose, x in axis.places.items():
        yield svg.line(x, frame.bottom, x, frame.bottom + 5, "grid")
        yield svg.text(x, frame.bottom + 19, f"{dose:,}", class_="tick middle")
        if dose == 0:
            yield svg.text(x, frame.bottom + 33, "twins", class_="tick middle")
            later = [place for other, place in axis.places.items() if other]
            if later:
                # The axis is broken: no logarithm leads to dose 0.
                middle = (x + min(later)) / 2
                yield svg.line(middle, frame.top, middle, frame.bottom, "break")
    usual = "dose: occurrences of a canary in the planted file" if kind == svg.WIDE else "dose: occurrences in the file"
    words = spec.dose or usual
    scale = "" if len(axis.places) < 3 else (" (equal steps)" if axis.even else " (log scale)")
    yield svg.text((frame.left + frame.right) / 2, frame.bottom + 54, words + scale, class_="axis middle")


def _mark(frame: svg.Frame, point: Point, x: float, radius: float, interval: bool) -> Iterator[Markup]:
    hue = f"s{svg.hue(point.arm)}"
    if interval and point.low < point.high:
        low, high = frame.y(point.low), frame.y(point.high)
        look = f"whisker {hue}" if point.judged else f"whisker unsure {hue}"
        yield svg.line(x, low, x, high, look)
        for end in (low, high):
            yield svg.line(x - radius * 0.6, end, x + radius * 0.6, end, f"whisker {hue}")
    fill = "filled" if point.filled else "hollow"
    yield svg.marker(svg.shape(point.arm), x, frame.y(point.value), radius, f"mark {fill} {hue}", point.label)
    if not point.judged:
        y, reach = frame.y(point.value), radius * 1.5
        yield svg.line(x - reach, y + reach, x + reach, y - reach, f"whisker {hue}")


@dataclass(frozen=True, slots=True)
class _Label:
    """A label in the right margin: where what it names ends, its lines, its look, and the colour of its leader."""

    place: float
    lines: Sequence[str]
    look: str
    hue: str | None

    @property
    def height(self) -> float:
        return 15.0 * len(self.lines)


GAP = 9
"""Pixels between labels, so that an arm's name is not read as the end of a line's."""


def _side(spec: Spec, frame: svg.Frame, points: Sequence[Point], kind: str) -> Iterator[Markup]:
    """Labels in the right margin, each as near as can be to the line that it names, and led to it where it is not."""
    wide = kind == svg.WIDE
    labels = [
        _Label(frame.y(level.value), level.label if wide else level.short, f"side {level.class_}", None)
        for level in spec.levels
    ]
    if wide:
        named = []
        for arm in sorted({point.arm for point in points}):
            own = [point for point in points if point.arm == arm]
            last = [point.value for point in own if point.dose == max(point.dose for point in own)]
            hue = svg.hue(arm)
            place = frame.y(sum(last) / len(last))
            named.append(_Label(place, [shorten(spec.arms[arm], 19)], f"side strong t{hue}", f"leader s{hue}"))
        # Where there is no room for all of them, the legend names them.
        if sum(label.height + GAP for label in (*labels, *named)) <= frame.height - 38:
            labels += named
    centres = svg.spread(
        [label.place for label in labels], [label.height + GAP for label in labels], 8, frame.height - 30
    )
    for label, centre in zip(labels, centres, strict=True):
        if label.hue and abs(centre - label.place) > 6:
            yield svg.path([(frame.right + 1, label.place), (frame.right + 11, centre)], label.hue)
        for index, words in enumerate(label.lines):
            y = centre - label.height / 2 + 11.5 + 15 * index
            yield svg.text(frame.right + (13 if wide else 8), y, words, class_=label.look)


def _slots(series: Sequence[tuple[int, str]]) -> dict[tuple[int, str], float]:
    """Places side by side, with a wider gap between two arms."""
    places: dict[tuple[int, str], float] = {}
    at, before = 0.0, None
    for key in sorted(set(series)):
        if before is not None:
            at += 1.0 if before == key[0] else 1.6
        places[key], before = at, key[0]
    return places


def _columns(dots: Sequence[Dot]) -> dict[tuple[tuple[int, str], int], list[Dot]]:
    columns: dict[tuple[tuple[int, str], int], list[Dot]] = {}
    for dot in sorted(dots, key=lambda dot: (dot.series, dot.dose, dot.value)):
        columns.setdefault((dot.series, dot.dose), []).append(dot)
    return columns


def _swarm(heights: Sequence[float], radius: float, most: float) -> list[float]:
    """Shifts sideways, so that marks of like height stand side by side; where there is no room, they overlap evenly.

    Args:
        heights: of the marks, in order.
        radius: of a mark.
        most: largest shift to either side.
    """
    shifts: list[float] = []
    size = 2.1 * radius
    steps = [0.0, *(side * index * size for index in range(1, int(most / size) + 1) for side in (1, -1))]
    crowd = Counter(heights)
    at: Counter[float] = Counter()
    for y in heights:
        near = list(zip(shifts, heights, strict=False))
        free = [x for x in steps if all((x - other) ** 2 + (y - height) ** 2 >= size**2 for other, height in near)]
        if crowd[y] > len(steps):
            shifts.append(most * (2 * at[y] / (crowd[y] - 1) - 1))
        else:
            shifts.append(free[0] if free else steps[len(shifts) % len(steps)])
        at[y] += 1
    return shifts
