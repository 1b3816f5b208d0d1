"""Where in training the occurrences of a canary fall: a window, and how they are spread inside it."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

BEFORE, AFTER = "before focus", "after focus"
"""Windows of auxiliary canaries: what lies before, or after, the window of the focus canaries."""
NAMED: dict[str, tuple[float, float]] = {"whole": (0.0, 1.0), "early": (0.0, 0.2), "late": (0.8, 1.0)}
"""Windows by name, as fractions of training; ``k/n`` is the k-th of n equal parts."""

_PART = re.compile(r"(\d{1,3})/(\d{1,3})")


def window_of(value: object) -> object:
    """A window's two ends from its name; what is no name is left to the schema.

    Raises:
        ValueError: the name is unknown.
    """
    if not isinstance(value, str) or value in (BEFORE, AFTER):
        return value
    if value in NAMED:
        return NAMED[value]
    match = _PART.fullmatch(value)
    if match and 1 <= int(match[1]) <= int(match[2]):
        part, parts = int(match[1]), int(match[2])
        return ((part - 1) / parts, part / parts)
    raise ValueError(
        f"{value!r} is no window: give two fractions of training such as [0.8, 1], a part such as 5/5 or 2/3, or one "
        f"of {', '.join([*NAMED, BEFORE, AFTER])}"
    )


Fraction = Annotated[float, Field(ge=0, le=1)]


class Schedule(BaseModel):
    """Where in training the occurrences of each canary fall.

    Attributes:
        window: the part of training, as two fractions; or ``whole``, ``early`` (the first fifth), ``late`` (the
            last), ``2/5`` (the second fifth), ``3/3`` (the last third). Auxiliary canaries also take ``before
            focus`` and ``after focus``.
        spread: ``uniform`` draws rows at random; ``concentrated`` puts a canary's occurrences in consecutive rows.
        spacing: optimiser updates from one occurrence to the next, exactly.
        last: the fraction of training at which the last occurrence falls; the canaries' last occurrences take the
            rows just before it.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    window: Annotated[
        tuple[Fraction, Fraction] | Literal["before focus", "after focus"], BeforeValidator(window_of)
    ] = (0.0, 1.0)
    spread: Literal["uniform", "concentrated"] = "uniform"
    spacing: int | None = Field(None, ge=1)
    last: float | None = Field(None, gt=0, le=1)

    @model_validator(mode="after")
    def _consistent(self) -> Schedule:
        faults = []
        if isinstance(self.window, tuple):
            start, end = self.window
            if start >= end:
                faults.append(f"window [{start:g}, {end:g}] is empty: its start must lie before its end")
            elif self.last is not None and not start < self.last <= end:
                faults.append(f"last {self.last:g} lies outside the window [{start:g}, {end:g}]")
        elif self.last is not None:
            faults.append(f"last needs a window of two fractions, not {self.window!r}")
        if self.spread == "concentrated" and self.spacing is not None:
            faults.append("spread concentrated and spacing exclude one another: give one of them")
        if faults:
            raise ValueError("; ".join(faults))
        return self

    @property
    def anywhere(self) -> bool:
        """Whether every row of the file will do."""
        return self == Schedule()

    def fractions(self, focus: tuple[float, float] = (0.0, 1.0)) -> tuple[float, float]:
        """The window's ends as fractions of training.

        Args:
            focus: the window of the focus canaries, which ``before focus`` and ``after focus`` refer to.
        """
        if isinstance(self.window, tuple):
            return self.window
        return (0.0, focus[0]) if self.window == BEFORE else (focus[1], 1.0)


def window_rows(fractions: tuple[float, float], rows: int) -> tuple[int, int]:
    """The rows [first, end) of a window; windows that meet share no row and leave none out."""
    return round(fractions[0] * rows), round(fractions[1] * rows)
