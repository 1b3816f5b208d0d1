"""Confidence intervals for rates and for medians."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from davylamp.errors import Fault, InputError


@dataclass(frozen=True, slots=True)
class Interval:
    """A closed interval with the confidence that it was made for.

    Attributes:
        low: lower end.
        high: upper end.
        confidence: coverage that the procedure guarantees (or aims at), in (0, 1).
    """

    low: float
    high: float
    confidence: float


def clopper_pearson(
    successes: int, trials: int, confidence: float = 0.95, side: Literal["two", "lower", "upper"] = "two"
) -> Interval:
    """Exact interval for a binomial rate.

    Inverts the binomial test through the beta quantile (Clopper and Pearson, Biometrika 26, 1934), so its
    coverage is never below ``confidence``.

    Args:
        successes: number of successes, a whole number from 0 to ``trials``.
        trials: number of trials, at least 1.
        confidence: coverage, in (0, 1).
        side: ``two`` splits the error between both ends; ``lower`` or ``upper`` spends all of it on one end
            and leaves the other at 1 or 0.

    Raises:
        InputError: an argument is outside its range.
    """
    _check_rate(successes, trials, confidence)
    tail = (1 - confidence) / (2 if side == "two" else 1)
    low, high = 0.0, 1.0
    if side != "upper" and successes > 0:
        low = float(stats.beta.ppf(tail, successes, trials - successes + 1))
    if side != "lower" and successes < trials:
        high = float(stats.beta.isf(tail, successes + 1, trials - successes))
    return Interval(low, high, confidence)


def median_interval(
    values: ArrayLike, confidence: float = 0.95, support: tuple[float, float] = (-math.inf, math.inf)
) -> Interval:
    """Exact interval for a median from order statistics, whatever the distribution.

    The number of observations below the median is binomial(n, 1/2), so that the r-th smallest and the r-th largest
    hold the median between them with a chance of at least ``1 - 2 P(B < r)``: r is the largest that keeps it at
    ``confidence`` (David and Nagaraja 2003, section 7.1). With so few observations that even the smallest and the
    largest do not, the ends of the support take their place.

    Args:
        values: observations, shape (n,), n at least 1, all finite.
        confidence: coverage, in (0, 1).
        support: what the values could have been at all, such as 0 to log2 N for an exposure in bits.

    Raises:
        InputError: no observation, one that is not finite or outside the support, or an argument outside its range.
    """
    data = np.sort(np.asarray(values, dtype=np.float64), axis=None)
    faults = []
    if np.ndim(values) != 1 or data.size == 0 or not np.isfinite(data).all():
        faults.append(Fault("values", data.tolist(), "a non-empty list of finite numbers"))
    elif data[0] < support[0] or data[-1] > support[1]:
        faults.append(Fault("values", data.tolist(), f"numbers from {support[0]} to {support[1]}, the support"))
    faults += _confidence_faults(confidence)
    if faults:
        raise InputError(faults)
    # The largest r with P(B <= r - 1) at most half of the error that is allowed.
    tails = stats.binom.cdf(np.arange(data.size), data.size, 0.5)
    rank = int((tails <= (1 - confidence) / 2).sum())
    if rank == 0:
        return Interval(support[0], support[1], confidence)
    return Interval(float(data[rank - 1]), float(data[data.size - rank]), confidence)


def _confidence_faults(confidence: float) -> list[Fault]:
    return [] if 0 < confidence < 1 else [Fault("confidence", confidence, "a number above 0 and below 1")]


def _check_rate(successes: int, trials: int, confidence: float) -> None:
    faults = _confidence_faults(confidence)
    if not isinstance(trials, int | np.integer) or trials < 1:
        faults.append(Fault("trials", trials, "a whole number of at least 1"))
    elif not isinstance(successes, int | np.integer) or not 0 <= successes <= trials:
        faults.append(Fault("successes", successes, f"a whole number from 0 to trials ({trials})"))
    if faults:
        raise InputError(faults)
