"""What a plot against dose is made of: its marks, the lines to compare with, and its axes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from davylamp.report.text import number, ticks


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
        floor: size of what is noise, on either side of 0; a band behind the mark, if given.
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
    floor: float | None = None


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
        arms: names of the arms, by their index.
        warning: stands in the plot where it must not be missed, such as that there is no verdict.
        least: lower end of the y axis.
        dose: what a dose counts, where it is not occurrences in the planted file.
    """

    key: str
    title: str
    finding: str
    unit: str
    most: float
    marks: Sequence[float]
    mark: Callable[[float], str]
    levels: Sequence[Level]
    arms: Mapping[int, str]
    warning: str = ""
    least: float = 0.0
    dose: str = ""


def exposure_axis(ceiling: float) -> tuple[float, list[float]]:
    """Upper end and marks of an axis of exposure in bits."""
    return ceiling * 1.06, ticks(ceiling, 7)


def rate_axis() -> tuple[float, list[float]]:
    """Upper end and marks of an axis of rates."""
    return 1.04, [0, 0.25, 0.5, 0.75, 1]


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
