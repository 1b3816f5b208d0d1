"""Values of one intervention with their intervals, over canaries or records and over seeds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from davylamp.bounds.intervals import clopper_pearson, least_for_median, median_interval
from davylamp.verdict.frontier_model import Estimate

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Sums:
    """What a mean over tokens is worked out of, a seed a row.

    Attributes:
        nats: shape (seeds, units).
        weights: what each unit counts, shape (units,): 1 for a mean over units, its tokens for a mean over tokens.
    """

    nats: Array
    weights: Array

    @property
    def means(self) -> Array:
        """Mean of each seed, shape (seeds,)."""
        return np.asarray(self.nats.sum(axis=1) / self.weights.sum())


def nested_mean(seeds: Sequence[Array], confidence: float) -> tuple[float, float | None, float | None]:
    """Mean where each seed has units of its own, as canaries that are drawn with the seed.

    Of one seed the interval is Student's over its units. Of several the seeds are what was drawn: the mean of their
    means, +- Student's quantile with S - 1 degrees of freedom times their standard error. It holds the spread of
    canaries too, since each seed's mean errs by it.

    Args:
        seeds: values of each seed, shape (units,) each, none empty.
        confidence: in (0, 1).

    Returns:
        The mean and both ends; no ends where there is one value only.
    """
    drawn = np.asarray(seeds[0]) if len(seeds) == 1 else np.asarray([each.mean() for each in seeds])
    mean = float(drawn.mean())
    if drawn.size == 1:
        return mean, None, None
    reach = _quantile(confidence, drawn.size - 1) * float(drawn.std(ddof=1)) / math.sqrt(drawn.size)
    return mean, mean - reach, mean + reach


def crossed_mean(sums: Sums, confidence: float) -> tuple[float, float | None, float | None]:
    """Mean where all seeds read the same units, as held-out records.

    Both records and seeds were drawn: the squared standard error is the sum of that of records (the ratio estimator
    of Cochran, Sampling Techniques, 3rd ed. 1977, section 2.11, of each record's mean over seeds) and that of the
    seeds' means, with Welch and Satterthwaite's degrees of freedom. What a record does in one seed alone is counted in
    both, so that the interval errs to the wide side.

    Args:
        sums: what was read.
        confidence: in (0, 1).

    Returns:
        The mean and both ends; no ends where one record was read in one seed.
    """
    nats, weights = sums.nats.mean(axis=0), sums.weights
    mean = float(nats.sum() / weights.sum())
    parts = []
    if weights.size > 1:
        errors = nats - mean * weights
        parts.append((float(errors.var(ddof=1)) / (weights.size * float(weights.mean()) ** 2), weights.size - 1))
    if len(sums.means) > 1:
        parts.append((float(sums.means.var(ddof=1)) / len(sums.means), len(sums.means) - 1))
    if not parts:
        return mean, None, None
    total = math.fsum(part for part, _ in parts)
    if not total:
        return mean, mean, mean
    freedom = total**2 / math.fsum(part**2 / free for part, free in parts)
    reach = _quantile(confidence, freedom) * math.sqrt(total)
    return mean, mean - reach, mean + reach


def _quantile(confidence: float, freedom: float) -> float:
    return float(stats.t.isf((1 - confidence) / 2, freedom))


def perplexity_of(found: tuple[float, float | None, float | None], n: int, seeds: int) -> Estimate:
    """A perplexity from a mean in nats a token and its ends; none is below 1."""
    value, low, high = found
    return Estimate(
        value=_exp(value),
        low=None if low is None else _exp(low),
        high=None if high is None else _exp(high),
        n=n,
        seeds=seeds,
    )


def _exp(nats: float) -> float:
    # The end of an interval over two seeds may be more than a float holds.
    return math.exp(min(max(nats, 0.0), 700.0))


def median_of(values: Array, ceiling: float, seeds: int, confidence: float) -> Estimate:
    """A median over canaries of all seeds, with its interval from order statistics.

    So few canaries that the interval would be the whole scale have none.
    """
    # An exposure may pass its ceiling by the last digit.
    kept = np.clip(values, 0.0, ceiling)
    if kept.size < least_for_median(confidence):
        return Estimate(value=float(np.median(kept)), low=None, high=None, n=kept.size, seeds=seeds)
    between = median_interval(kept, confidence, (0.0, ceiling))
    return Estimate(value=float(np.median(kept)), low=between.low, high=between.high, n=values.size, seeds=seeds)


def share_of(hits: NDArray[np.bool_], seeds: int, confidence: float) -> Estimate:
    """A share of canaries of all seeds, with Clopper and Pearson's interval."""
    between = clopper_pearson(int(hits.sum()), hits.size, confidence)
    return Estimate(value=float(hits.mean()), low=between.low, high=between.high, n=hits.size, seeds=seeds)


def bootstrapped_mean(seeds: Sequence[Array], confidence: float, resamples: int) -> Estimate:
    """A mean over canaries, with the percentile interval of resampled seeds and of canaries within them.

    The draws depend on the numbers of seeds and canaries alone, so that interventions are resampled alike.

    Args:
        seeds: values of each seed, shape (units,) each, none empty.
        confidence: in (0, 1).
        resamples: how many.
    """
    n = sum(each.size for each in seeds)
    value = float(np.mean([each.mean() for each in seeds]))
    if n == 1:
        return Estimate(value=value, low=None, high=None, n=1, seeds=1)
    drawn = np.zeros(resamples)
    for place in range(len(seeds)):
        chosen = np.random.default_rng([place, len(seeds)]).integers(len(seeds), size=resamples)
        means = [_counts(each.size, resamples, place, seed) @ each / each.size for seed, each in enumerate(seeds)]
        drawn += np.stack(means)[chosen, np.arange(resamples)] / len(seeds)
    low, high = np.quantile(drawn, [(1 - confidence) / 2, (1 + confidence) / 2])
    return Estimate(value=value, low=min(float(low), value), high=max(float(high), value), n=n, seeds=len(seeds))


@lru_cache(maxsize=64)
def _counts(units: int, resamples: int, place: int, seed: int) -> Array:
    """How often each of some units was drawn with replacement, shape (resamples, units)."""
    generator = np.random.default_rng([units, place, seed])
    return generator.multinomial(units, np.full(units, 1 / units), size=resamples).astype(np.float64)
