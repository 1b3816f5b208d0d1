"""Confidence intervals for rates and for medians."""

from __future__ import annotations

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


def median_interval(values: ArrayLike, confidence: float = 0.95, resamples: int = 4000, seed: int = 0) -> Interval:
    """Percentile bootstrap interval for a median (Efron and Tibshirani 1993, ch. 13).

    Args:
        values: observations, shape (n,), n at least 1, all finite.
        confidence: coverage aimed at, in (0, 1). The real coverage is lower with few observations: of 95% aimed
            at, 91% is had with 8 and 93% with 16 (exponential values).
        resamples: number of bootstrap samples, at least 100.
        seed: seed of the resampling.

    Raises:
        InputError: no observation, one that is not finite, or an argument outside its range.
    """
    data = np.asarray(values, dtype=np.float64)
    faults = []
    if data.ndim != 1 or data.size == 0 or not np.isfinite(data).all():
        faults.append(Fault("values", data.tolist(), "a non-empty list of finite numbers"))
    if resamples < 100:
        faults.append(Fault("resamples", resamples, "a whole number of at least 100"))
    faults += _confidence_faults(confidence)
    if faults:
        raise InputError(faults)
    rng = np.random.default_rng(seed)
    medians = np.median(data[rng.integers(0, data.size, (resamples, data.size))], axis=1)
    tail = (1 - confidence) / 2
    low, high = np.quantile(medians, [tail, 1 - tail])
    return Interval(float(low), float(high), confidence)


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
