"""Confidence intervals for rates and for medians, and the sign test."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
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


def least_for_median(confidence: float = 0.95) -> int:
    """Observations that an interval for a median takes: of fewer not even the smallest and the largest keep it.

    All n values lie on one side of the median with a chance of ``2^(1-n)``; see :func:`median_interval`.

    Args:
        confidence: coverage, in (0, 1).

    Raises:
        InputError: the confidence is outside its range.
    """
    if faults := _confidence_faults(confidence):
        raise InputError(faults)
    return math.ceil(1 - math.log2(1 - confidence))


def bootstrap_median_interval(
    values: ArrayLike, generator: np.random.Generator, confidence: float = 0.95, resamples: int = 10_000
) -> Interval:
    """Percentile bootstrap interval for a median: simple, finite, and below its confidence for few values.

    The interval holds the medians of samples drawn from the values with replacement, less a share of
    ``(1 - confidence) / 2`` at either end (Efron, Annals of Statistics 7, 1979, section 3). What a 95% interval was
    measured to cover: 88% at n = 7, 93% at n = 8, 94% at n = 16 and 32, 95% at n = 96; at n = 1 it is a single point.
    :func:`median_interval` keeps its confidence at every n. The bias-corrected form (BCa) is not on offer: where the
    middle values are tied, leaving one value out does not move the median, and its correction is 0/0.

    The middle of a sample drawn with replacement from n sorted values is ``values[floor(n * U)]``, U being the middle
    of n uniform numbers, which is beta distributed: so U is drawn, not the sample. Every draw is also used mirrored
    (U and 1 - U are alike). Hence the interval depends on the values and not on their order, and negating the values
    negates it, both to the last bit.

    Args:
        values: observations, shape (n,), n at least 1, all finite.
        generator: source of the draws.
        confidence: coverage aimed at, in (0, 1).
        resamples: how many, rounded up to an even number; enough for one beyond either end.

    Raises:
        InputError: no observation, one that is not finite, or an argument outside its range.
    """
    data = np.sort(np.asarray(values, dtype=np.float64), axis=None)
    faults = resampling_faults(confidence, resamples)
    if np.ndim(values) != 1 or data.size == 0 or not np.isfinite(data).all():
        faults.insert(0, Fault("values", data.tolist(), "a non-empty list of finite numbers"))
    if faults:
        raise InputError(faults)
    left, right = _middle_places(data.size, (resamples + 1) // 2, generator)
    drawn = (data[left] + data[right]) / 2
    mirrored = (data[data.size - 1 - left] + data[data.size - 1 - right]) / 2
    medians = np.sort(np.concatenate([drawn, mirrored]))
    # Rounded down, towards the wider interval.
    cut = max(1, int(medians.size * (1 - confidence) / 2))
    return Interval(float(medians[cut - 1]), float(medians[-cut]), confidence)


def _middle_places(
    size: int, draws: int, generator: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Where the two middle values of a resample stand among the sorted values; the same place twice if size is odd."""
    half = size // 2
    if size % 2:
        left = right = generator.beta(half + 1, half + 1, draws)
    else:
        # The next above the n/2-th smallest of n uniform numbers is the smallest of the n/2 that are left above it.
        left = generator.beta(half, half + 1, draws)
        right = left + (1 - left) * generator.beta(1, half, draws)
    # A beta number may round to 1.
    places = [np.minimum((size * each).astype(np.int64), size - 1) for each in (left, right)]
    return places[0], places[1]


def resampling_faults(confidence: float, resamples: int) -> list[Fault]:
    """What is wrong with the settings of a bootstrap interval; empty if nothing is."""
    faults = _confidence_faults(confidence)
    # Less a little, since 1 - 0.95 is above 0.05 by a rounding.
    least = 2 if faults else math.ceil(2 / (1 - confidence) - 1e-6)
    if not isinstance(resamples, int | np.integer) or isinstance(resamples, bool) or resamples < least:
        faults.append(Fault("resamples", resamples, f"a whole number of at least {least}"))
    return faults


def sign_test(rises: int, falls: int) -> float:
    """p-value of the two-sided exact sign test; 1 where nothing rises or falls.

    Without ties, :func:`median_interval` inverts it: 0 lies outside of the interval just if p is at most
    ``1 - confidence``.

    ``2 P(B <= min(rises, falls))``, at most 1, with B binomial(rises + falls, 1/2). Ties are dropped beforehand: the
    law of B given their number is what the test needs (Conover 1999, section 3.4), and so it holds its level with them.

    Raises:
        InputError: a count is not a whole number of at least 0.
    """
    counts = {"rises": rises, "falls": falls}
    faults = [
        Fault(name, count, "a whole number of at least 0")
        for name, count in counts.items()
        if not isinstance(count, int | np.integer) or count < 0
    ]
    if faults:
        raise InputError(faults)
    return min(1.0, 2 * float(stats.binom.cdf(min(rises, falls), rises + falls, 0.5)))


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
