"""Mean ranks of interventions, and how far they hang on which canaries, records and seeds were drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from davylamp.measures.landscape.model import Landscape
from davylamp.verdict.frontier_estimates import Array
from davylamp.verdict.frontier_metrics import METRICS, RANKED, Settings, canary_nats, pooled, text_sums
from davylamp.verdict.frontier_model import CAPABILITY, PRIVACY, Estimate
from davylamp.verdict.pareto import pareto

SIDES = {metric.key: metric.side for metric in METRICS if metric.ranked}
SIGNS = {metric.key: 1.0 if metric.higher_is_better else -1.0 for metric in METRICS if metric.ranked}

SEED = 20260
"""Of every resampling: the same landscapes give the same intervals."""


@dataclass(frozen=True, slots=True)
class Ranks:
    """Ranks of some interventions.

    Attributes:
        of: for each intervention its ranks, by the key of a ranked metric and of each side.
        shares: for each intervention in what share of the resamples it was in the Pareto set of the mean ranks.
    """

    of: dict[str, dict[str, Estimate]]
    shares: dict[str, float]


def mean_ranks(runs: Mapping[str, Sequence[Landscape]], settings: Settings) -> Ranks:
    """Rank interventions by each ranked metric, and average the ranks of each side (P3, Fig. 1).

    Rank 1 is the worst and the number of interventions the best; what is equal to nine decimals of nats shares the
    middle of its ranks. Intervals are percentiles over resamples, the same for all interventions: seeds are drawn with
    replacement, within each the canaries of each dose, and once for all seeds the records. Ranks of interventions that
    are all but equal jump between resamples, so that their intervals are wide, and few seeds make every interval rough.

    Args:
        runs: for each intervention its landscapes, the same seeds in the same order in all.
        settings: how intervals are worked out.

    Returns:
        The ranks; none of fewer than two interventions, of which there is nothing to rank.
    """
    names = list(runs)
    if len(names) < 2:
        return Ranks({name: {} for name in names}, {})
    seeds = len(runs[names[0]])
    chosen = np.random.default_rng(SEED).integers(seeds, size=(settings.resamples, seeds))
    once = {key: _rank(np.asarray([_mean(runs[name], key, settings) for name in names]), key) for key in RANKED}
    drawn: dict[str, Array] = {}
    for key in RANKED:
        resampled = _leaks if SIDES[key] == PRIVACY else _texts
        drawn[key] = _rank(resampled([runs[name] for name in names], key, settings, chosen), key)
    for side in (PRIVACY, CAPABILITY):
        own = [key for key in RANKED if SIDES[key] == side]
        once[side] = np.mean([once[key] for key in own], axis=0)
        drawn[side] = np.mean([drawn[key] for key in own], axis=0)
    ends = {key: np.quantile(each, _tails(settings.confidence), axis=0) for key, each in drawn.items()}
    members = pareto(drawn[CAPABILITY], drawn[PRIVACY]).mean(axis=0)
    return Ranks(
        {
            name: {
                key: Estimate(
                    value=float(once[key][at]),
                    low=min(float(ends[key][0, at]), float(once[key][at])),
                    high=max(float(ends[key][1, at]), float(once[key][at])),
                    n=len(names),
                    seeds=seeds,
                )
                for key in once
            }
            for at, name in enumerate(names)
        },
        {name: float(members[at]) for at, name in enumerate(names)},
    )


def _tails(confidence: float) -> list[float]:
    return [(1 - confidence) / 2, (1 + confidence) / 2]


def _rank(nats: Array, key: str) -> Array:
    """Mid-ranks along the last axis, the best highest; nats that differ by rounding alone tie."""
    return np.asarray(stats.rankdata(SIGNS[key] * np.round(nats, 9), axis=-1), dtype=np.float64)


def _mean(seeds: Sequence[Landscape], key: str, settings: Settings) -> float:
    if SIDES[key] == PRIVACY:
        return float(np.mean([canary_nats(pooled(each, settings.doses), key).mean() for each in seeds]))
    return float(text_sums(seeds, key).means.mean())


def _leaks(runs: Sequence[Sequence[Landscape]], key: str, settings: Settings, chosen: NDArray[np.int64]) -> Array:
    """Mean nats a token of resampled canaries, shape (resamples, interventions)."""
    total = np.zeros((len(chosen), len(runs)))
    for place in range(chosen.shape[1]):
        for seed in range(chosen.shape[1]):
            at = np.flatnonzero(chosen[:, place] == seed)
            # Both privacy metrics are read off the same canaries.
            generator = np.random.default_rng([SEED, place, seed])
            leaks = [pooled(each[seed], settings.doses) for each in runs]
            order = sorted(range(len(leaks[0])), key=lambda index: leaks[0][index].id)
            counts = _drawn_by_dose([leaks[0][index].dose for index in order], at.size, generator)
            # The same canaries in the same order in all.
            values = np.stack([canary_nats(sorted(own, key=lambda leak: leak.id), key) for own in leaks])
            total[at] += counts @ values.T / values.shape[1]
    return np.asarray(total / chosen.shape[1])


def _drawn_by_dose(doses: Sequence[int], resamples: int, generator: np.random.Generator) -> Array:
    """How often each canary was drawn, shape (resamples, canaries): as many of each dose as there are."""
    held = np.asarray(doses)
    counts = np.zeros((resamples, held.size))
    for dose in np.unique(held):
        at = np.flatnonzero(held == dose)
        counts[:, at] = generator.multinomial(at.size, np.full(at.size, 1 / at.size), size=resamples)
    return counts


def _texts(runs: Sequence[Sequence[Landscape]], key: str, _: Settings, chosen: NDArray[np.int64]) -> Array:
    """Mean nats a token of resampled records, shape (resamples, interventions)."""
    sums = [text_sums(seeds, key) for seeds in runs]
    size = sums[0].weights.size
    generator = np.random.default_rng([SEED, RANKED.index(key)])
    counts = generator.multinomial(size, np.full(size, 1 / size), size=len(chosen))
    found = np.zeros((len(chosen), len(runs)))
    for at, each in enumerate(sums):
        means = counts @ each.nats.T / (counts @ each.weights)[:, None]
        found[:, at] = np.take_along_axis(means, chosen, axis=1).mean(axis=1)
    return found
