"""The few pieces of SVG that the plots are drawn from; every text and attribute is escaped."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from markupsafe import Markup, escape

from davylamp.report.text import clean

WIDE, NARROW, HALF = "wide", "narrow", "half"
"""Drawings for a page's whole width, for a telephone's, and one that suits both."""
SIZES: Mapping[str, tuple[float, float]] = {WIDE: (880.0, 400.0), NARROW: (400.0, 380.0), HALF: (430.0, 340.0)}
COLOURS = 8
"""Colours of the style sheet for series, ``s0`` to ``s7``."""
SHAPES = ("circle", "square", "triangle", "diamond", "wedge", "hexagon", "plus", "hourglass")
_SPELLED = {"view_box": "viewBox"}
# The middle of the corners is 0 of each: there the value is.
_CORNERS: Mapping[str, Sequence[tuple[float, float]]] = {
    "square": ((-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)),
    "triangle": ((0, -1.3), (1.1, 0.65), (-1.1, 0.65)),
    "diamond": ((0, -1.3), (1.1, 0), (0, 1.3), (-1.1, 0)),
    "wedge": ((0, 1.3), (1.1, -0.65), (-1.1, -0.65)),
    "hexagon": ((1.1, 0), (0.55, 1), (-0.55, 1), (-1.1, 0), (-0.55, -1), (0.55, -1)),
    "plus": (
        *((-0.45, -1.3), (0.45, -1.3), (0.45, -0.45), (1.3, -0.45), (1.3, 0.45), (0.45, 0.45)),
        *((0.45, 1.3), (-0.45, 1.3), (-0.45, 0.45), (-1.3, 0.45), (-1.3, -0.45), (-0.45, -0.45)),
    ),
    "hourglass": ((-1.2, -1.2), (1.2, -1.2), (0.3, 0), (1.2, 1.2), (-1.2, 1.2), (-0.3, 0)),
}


def el(name: str, *children: str | Markup, **attributes: str | float | None) -> Markup:
    """An element. A trailing underscore of an attribute's name is dropped, others become hyphens."""
    parts = []
    for key, value in attributes.items():
        if value is None:
            continue
        text = clean(value) if isinstance(value, str) else f"{value + 0.0:.2f}".rstrip("0").rstrip(".")
        parts.append(Markup(' {}="{}"').format(_SPELLED.get(key, key.rstrip("_").replace("_", "-")), text))
    inside = Markup("").join(child if isinstance(child, Markup) else escape(clean(child)) for child in children)
    return Markup("<{0}{1}>{2}</{0}>").format(name, Markup("").join(parts), inside)


def drawing(key: str, title: str, finding: str, size: tuple[float, float], body: Iterable[Markup], kind: str) -> Markup:
    """A whole plot: an image with a name and, for those who cannot see it, what is to be seen."""
    inside = [el("title", title, id=f"{key}-t"), el("desc", finding, id=f"{key}-d"), *body]
    return el(
        "svg",
        *inside,
        role="img",
        class_=f"plot {kind}",
        aria_labelledby=f"{key}-t",
        aria_describedby=f"{key}-d",
        view_box=f"0 0 {size[0]:.0f} {size[1]:.0f}",
    )


def text(x: float, y: float, content: str, **attributes: str) -> Markup:
    """A text."""
    return el("text", content, x=x, y=y, **attributes)


def line(x1: float, y1: float, x2: float, y2: float, class_: str) -> Markup:
    """A line."""
    return el("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=class_)


def band(x: float, top: float, width: float, bottom: float) -> Markup:
    """A shaded band."""
    return el("rect", x=x, y=top, width=width, height=bottom - top, class_="band")


def path(points: Sequence[tuple[float, float]], class_: str) -> Markup:
    """A line through points."""
    return el("path", d="M" + "L".join(f"{x:.2f} {y:.2f}" for x, y in points), class_=class_)


def marker(form: str, x: float, y: float, radius: float, class_: str, label: str | None = None) -> Markup:
    """A mark of the shape of a series, with a tooltip."""
    inside = [el("title", label)] if label is not None else []
    if form not in _CORNERS:
        return el("circle", *inside, cx=x, cy=y, r=radius, class_=class_)
    corners = " ".join(f"{x + dx * radius:.2f},{y + dy * radius:.2f}" for dx, dy in _CORNERS[form])
    return el("polygon", *inside, points=corners, class_=class_)


def hue(arm: int) -> int:
    """Number of an arm's colour in the style sheet."""
    return arm % COLOURS


def shape(arm: int) -> str:
    """Shape of an arm's marks. Where colours begin anew shapes are shifted, so that 64 arms differ in one or other."""
    return SHAPES[dash(arm)]


def dash(arm: int) -> int:
    """Number of the dashes of an arm's lines in the style sheet."""
    return (arm + arm // COLOURS) % len(SHAPES)


def swatch(index: int, label: str) -> Markup:
    """The mark of a series, for a legend."""
    body = [
        line(1, 8, 25, 8, f"join dash{dash(index)}"),
        marker(shape(index), 13, 8, 4.5, "mark filled"),
    ]
    return el(
        "svg",
        el("title", label),
        *body,
        role="img",
        aria_label=label,
        class_=f"swatch s{hue(index)}",
        view_box="0 0 26 16",
        width=26,
        height=16,
    )


@dataclass(frozen=True, slots=True)
class Frame:
    """Where the axes of a plot lie, in its own pixels.

    Attributes:
        width: width of the drawing.
        height: height of the drawing.
        left: left end of the x axis.
        right: right end of it.
        top: upper end of the y axis.
        bottom: lower end of it.
        most: value at the upper end.
        least: value at the lower end.
    """

    width: float
    height: float
    left: float
    right: float
    top: float
    bottom: float
    most: float
    least: float = 0.0

    def y(self, value: float) -> float:
        """Height of a value."""
        return self.bottom - (self.bottom - self.top) * (value - self.least) / (self.most - self.least)


def grid(frame: Frame, marks: Sequence[float], mark: Callable[[float], str]) -> Iterator[Markup]:
    """Marks of the y axis with a line at each."""
    for value in marks:
        y = frame.y(value)
        yield line(frame.left, y, frame.right, y, "base" if value == 0 else "grid")
        yield text(frame.left - 8, y + 4, mark(value), class_="tick end")


@dataclass(frozen=True, slots=True)
class DoseAxis:
    """Where each dose stands.

    Attributes:
        places: x of each dose.
        room: pixels that the narrowest dose has for its marks.
        even: whether doses stand in equal steps because a logarithmic axis would crowd them.
    """

    places: Mapping[int, float]
    room: float
    even: bool


def dose_axis(doses: Iterable[int], left: float, right: float, needed: float) -> DoseAxis:
    """Doses on a logarithmic axis with twins (dose 0) one step before the first, or in equal steps where crowded."""
    positive = sorted({dose for dose in doses if dose > 0})
    with_twins = any(dose == 0 for dose in doses)
    for even in (False, True):
        steps = [float(index) if even else math.log2(dose) for index, dose in enumerate(positive)]
        gaps = sorted(after - before for before, after in pairwise(steps)) or [1.0]
        usual = gaps[len(gaps) // 2]
        if with_twins:
            steps.insert(0, steps[0] - usual if steps else 0.0)
        scale = (right - left) / (steps[-1] - steps[0] + usual) if steps else 1.0
        room = min(gaps[0], usual) * scale
        if room >= needed or even:
            break
    logs = [math.log2(dose) for dose in positive]
    if all(math.isclose(after - before, logs[1] - logs[0]) for before, after in pairwise(logs)):
        # Doses that double from one to the next stand in the same places either way.
        even = False
    order = [0, *positive] if with_twins else positive
    places = {dose: left + (step - steps[0] + usual / 2) * scale for dose, step in zip(order, steps, strict=True)}
    return DoseAxis(places, room, even)


def spread(wanted: Sequence[float], heights: Sequence[float], top: float, bottom: float) -> list[float]:
    """Centres of labels as near as can be to where they are wanted, none over another.

    Args:
        wanted: where each centre should be.
        heights: room that each label takes.
        top: no label begins above.
        bottom: no label ends below, if there is room.
    """
    order = sorted(range(len(wanted)), key=lambda index: wanted[index])
    centres = list(wanted)
    edge = top
    for index in order:
        centres[index] = max(centres[index], edge + heights[index] / 2)
        edge = centres[index] + heights[index] / 2
    edge = bottom
    for index in reversed(order):
        centres[index] = min(centres[index], edge - heights[index] / 2)
        edge = centres[index] - heights[index] / 2
    return centres
