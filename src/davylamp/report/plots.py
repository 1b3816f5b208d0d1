"""Plots against dose: a value with its interval, and every canary's own value."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from davylamp.report import svg
from davylamp.report.text import number, shorten, ticks


@dataclass(frozen=True, slots=True)
class Point:
    """One value of one arm, dose and model.

    Attributes:
        arm: index of the arm, which gives colour and shape.
        series: what is joined by a line, and stands in one place beside the others: an arm of a model.
        dose: occurrences in the planted file.
        value: the value.
        low: lower end of its interval.
        high: upper end of it.
        filled: whether the mark is filled.
        judged: whether the model has a verdict; marks without one are struck through, their intervals dashed.
        label: everything in words, for a tooltip.
    """

    arm: int
    series: tuple[int, str]
    dose: int
    value: float
    low: float
    high: float
    filled: bool
    judged: bool
    label: str


@dataclass(frozen=True, slots=True)
class Dot:
    """One canary's value; see :class:`Point`."""

    arm: int
    series: tuple[int, str]
    dose: int
    value: float
    filled: bool
    label: str


@dataclass(frozen=True, slots=True)
class Level:
    """A horizontal line with its label of two lines beside it, in full and short for a narrow plot."""

    value: float
    label: tuple[str, str]
    short: tuple[str, str]
    class_: str


@dataclass(frozen=True, slots=True)
class Spec:
    """What a plot against dose says on its axes.

    Attributes:
        key: prefix of its ids.
        title: its name.
        finding: what is to be seen, in words.
        unit: what the y axis measures, with its unit.
        most: upper end of the y axis.
        marks: where the y axis is marked.
        mark: how a mark is written.
        levels: lines to compare with.
        arms: names of the arms.
        warning: stands in the plot where it must not be missed, such as that there is no verdict.
    """

    key: str
    title: str
    finding: str
    unit: str
    most: float
    marks: Sequence[float]
    mark: Callable[[float], str]
    levels: Sequence[Level]
    arms: Sequence[str]
    warning: str = ""


def exposure_axis(ceiling: float) -> tuple[float, list[float]]:
    """Upper end and marks of an axis of exposure in bits."""
    return ceiling * 1.06, ticks(ceiling, 7)


def rate_axis() -> tuple[float, list[float]]:
    """Upper end and marks of an axis of rates."""
    return 1.04, [0, 0.25, 0.5, 0.75, 1]


def against_dose(spec: Spec, points: Sequence[Point], kind: str) -> Markup:
    """Values with their intervals against dose; one line for each series."""
    frame = _frame(spec, kind)
    slots = _slots([point.series for point in points])
    axis = svg.dose_axis([point.dose for point in points], frame.left, frame.right, 7 * (max(slots.values()) + 1) + 10)
    step = min(11.0, axis.room * 0.84 / (max(slots.values()) + 1))
    middle = max(slots.values()) / 2

    def x(point: Point) -> float:
        return axis.places[point.dose] + (slots[point.series] - middle) * step

    body = [*_axes(spec, frame, axis, kind)]
    for series in slots:
        own = sorted((point for point in points if point.series == series), key=lambda point: point.dose)
        joined = [(x(point), frame.y(point.value)) for point in own if point.dose]
        if len(joined) > 1:
            body.append(svg.path(joined, f"join s{svg.hue(series[0])} dash{svg.hue(series[0])}"))
    for point in points:
        body += _mark(frame, point, x(point), min(4.5, step * 0.62))
    body += _side(spec, frame, points, kind)
    return svg.drawing(f"{spec.key}-{kind}", spec.title, spec.finding, svg.SIZES[kind], body, kind)


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
    return svg.Frame(width, height, 46, width - right, 38, height - 66, spec.most)


def _axes(spec: Spec, frame: svg.Frame, axis: svg.DoseAxis, kind: str) -> Iterator[Markup]:
    yield svg.text(8, 18, spec.unit, class_="axis")
    if spec.warning:
        yield svg.text(frame.right, 18, spec.warning, class_="warning end")
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
    words = "dose: occurrences of a canary in the planted file" if kind == svg.WIDE else "dose: occurrences in the file"
    scale = "" if len(axis.places) < 3 else (" (equal steps)" if axis.even else " (log scale)")
    yield svg.text((frame.left + frame.right) / 2, frame.bottom + 54, words + scale, class_="axis middle")


def _mark(frame: svg.Frame, point: Point, x: float, radius: float) -> Iterator[Markup]:
    hue = f"s{svg.hue(point.arm)}"
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


def _side(spec: Spec, frame: svg.Frame, points: Sequence[Point], kind: str) -> Iterator[Markup]:
    """Labels in the right margin, each as near as can be to the line that it names."""
    labels: list[tuple[float, Sequence[str], str]] = [
        (frame.y(level.value), level.label if kind == svg.WIDE else level.short, f"side {level.class_}")
        for level in spec.levels
    ]
    if kind == svg.WIDE:
        for arm in sorted({point.arm for point in points}):
            own = [point for point in points if point.arm == arm]
            last = [point.value for point in own if point.dose == max(point.dose for point in own)]
            name = shorten(spec.arms[arm], 19)
            labels.append((frame.y(sum(last) / len(last)), [name], f"side strong t{svg.hue(arm)}"))
    heights = [15.0 * len(lines) for _, lines, _ in labels]
    # A gap between labels, so that an arm's name is not read as the end of a line's.
    centres = svg.spread([place for place, _, _ in labels], [each + 9 for each in heights], 8, frame.height - 30)
    for (_, lines, look), centre, height in zip(labels, centres, heights, strict=True):
        for index, words in enumerate(lines):
            yield svg.text(frame.right + 8, centre - height / 2 + 11.5 + 15 * index, words, class_=look)


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


def bits_mark(value: float) -> str:
    """A mark on an axis of bits."""
    return f"{value:g}"


def bits_levels(candidates: int, ceiling: float, baseline: float) -> tuple[Level, Level]:
    """The ceiling and the baseline of exposure."""
    return (
        Level(
            ceiling,
            (f"ceiling: log2({candidates:,})", f"= {number(ceiling)} bits"),
            ("ceiling", number(ceiling)),
            "ceiling",
        ),
        Level(
            baseline,
            ("baseline, random rank:", f"{number(baseline)} bits in the mean"),
            ("random", number(baseline)),
            "baseline",
        ),
    )
