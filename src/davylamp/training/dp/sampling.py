"""Which rows are in a batch: an independent coin for each, as accounted for, and tests that it was so."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats

UNLIKELY = 1e-6
"""Chance below which a count is taken for a fault; a sound run fails one of its tests in some 300,000."""


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that a private training showed of itself.

    Attributes:
        name: what.
        seen: what was seen.
        allowed: what would have passed.
        passed: whether it did.
    """

    name: str
    seen: str
    allowed: str
    passed: bool


class PoissonSampler:
    """Draws batches by independent coins, and counts what it drew."""

    def __init__(self, rows: int, rate: float, generator: torch.Generator) -> None:
        """Take the number of rows, the chance of each, and where randomness comes from (on the CPU)."""
        self._rate = rate
        self._generator = generator
        self._counts: NDArray[np.int64] = np.zeros(rows, dtype=np.int64)
        self._sizes: list[int] = []

    def draw(self) -> list[int]:
        """The rows of one batch, ascending; none at all with probability ``(1 - rate)^rows``."""
        # In float32 the chance would be a multiple of 2^-24.
        coins = torch.rand(len(self._counts), generator=self._generator, dtype=torch.float64)
        chosen = torch.nonzero(coins < self._rate).flatten().tolist()
        self._counts[chosen] += 1
        self._sizes.append(len(chosen))
        return [int(row) for row in chosen]

    @property
    def tally(self) -> Tally:
        """What was drawn so far."""
        return Tally(self._rate, tuple(self._sizes), tuple(self._counts.tolist()))


@dataclass(frozen=True, slots=True)
class Tally:
    """Sizes of batches, and how often each row was drawn.

    Attributes:
        rate: the chance that was accounted for.
        sizes: rows of each batch, shape (steps,).
        counts: batches that each row was in, shape (rows,).
    """

    rate: float
    sizes: tuple[int, ...] = field(repr=False)
    counts: tuple[int, ...] = field(repr=False)

    @property
    def empty(self) -> int:
        """Batches without a row."""
        return self.sizes.count(0)

    def checks(self) -> list[Check]:
        """Whether this is what independent coins give: how much in all, spread over steps, and over rows.

        Batches of a fixed size have no spread over steps; rows that are shuffled and taken in turn have none over
        rows; a file with repeated draws of some rows has too much.
        """
        steps, rows = len(self.sizes), len(self.counts)
        drawn = sum(self.sizes)
        chance = float(stats.binomtest(drawn, steps * rows, self.rate).pvalue) if self.rate < 1 else 1.0
        right = chance >= UNLIKELY if self.rate < 1 else drawn == steps * rows
        return [
            Check(
                "rows drawn are those of the sampling rate (binomial test)",
                f"{drawn} of {steps * rows}, expected {self.rate * steps * rows:.1f}; p = {chance:.3g}",
                f"p at least {UNLIKELY:g}",
                right,
            ),
            _spread("batch sizes vary as independent coins do", self.sizes, rows, self.rate),
            _spread("rows are drawn as often as independent coins do", self.counts, steps, self.rate),
        ]


def _spread(name: str, counts: tuple[int, ...], trials: int, rate: float) -> Check:
    """Dispersion test of binomial counts with a known rate: their squared deviations in sum."""
    if rate == 1:
        same = set(counts) == {trials}
        return Check(name, f"{len(set(counts))} distinct counts", f"{trials} each", same)
    variance = trials * rate * (1 - rate)
    ratio = float(np.mean((np.array(counts) - trials * rate) ** 2)) / variance
    # A scaled chi-square with the mean and the variance of the sum; the variance holds the binomial's own kurtosis.
    excess = (1 - 6 * rate * (1 - rate)) / variance
    freedom = 2 * len(counts) / (2 + excess)
    low, high = (float(stats.chi2.ppf(level, freedom)) / freedom for level in (UNLIKELY / 2, 1 - UNLIKELY / 2))
    return Check(name, f"{ratio:.4g} times the binomial variance", f"{low:.4g} to {high:.4g}", low <= ratio <= high)


def expected_empty(rate: float, rows: int, steps: int) -> float:
    """Batches without a row, in expectation."""
    return steps * math.exp(rows * math.log1p(-rate)) if rate < 1 else 0.0
