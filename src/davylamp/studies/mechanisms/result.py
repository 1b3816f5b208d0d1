"""What an experiment returns: rows that set the paper's value beside ours, and a chart."""

from __future__ import annotations

import math
from dataclasses import dataclass

from davylamp.bounds.figures import Chart


@dataclass(frozen=True, slots=True)
class Row:
    """One number.

    Attributes:
        quantity: what it is, with its unit.
        paper: the paper's value: printed there, or its formula evaluated.
        printed: whether the paper prints the number (else its formula was evaluated).
        ours: computed or measured here.
        error: four standard errors of ours; 0 where it is exact.
        tolerance: what else may lie between: half a unit of the last printed digit, or what "about" means.
        below: whether ours only has to stay at or below the paper's value.
    """

    quantity: str
    paper: float
    printed: bool
    ours: float
    error: float = 0.0
    tolerance: float = 0.0
    below: bool = False

    @property
    def agrees(self) -> bool:
        """Whether ours lies where it should."""
        slack = self.error + self.tolerance + 1e-12
        return self.ours <= self.paper + slack and (self.below or self.ours >= self.paper - slack)


@dataclass(frozen=True, slots=True)
class Experiment:
    """One experiment: a title, its rows, its chart."""

    key: str
    title: str
    rows: tuple[Row, ...]
    chart: Chart

    @property
    def agrees(self) -> bool:
        """Whether every row does."""
        return all(row.agrees for row in self.rows)


def four_errors(*rates_and_trials: tuple[float, int]) -> float:
    """Four standard errors of a sum or difference of independent binomial rates.

    A rate of 0 or 1 is taken as half a trial away from it, since its plug-in error would be 0.
    """
    total = 0.0
    for rate, trials in rates_and_trials:
        kept = min(max(rate, 0.5 / trials), 1 - 0.5 / trials)
        total += kept * (1 - kept) / trials
    return 4 * math.sqrt(total)
