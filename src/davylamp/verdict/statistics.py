"""The tests behind a verdict, each with an exact null."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy import stats

from davylamp.bounds.intervals import clopper_pearson
from davylamp.errors import Fault, InputError
from davylamp.verdict.model import Rate


def uniform_ranks_p(worst_ranks: Sequence[float], candidates: int) -> float:
    """Chance of ranks as good, were every rank uniform: Fisher's combination of ``rank / candidates``.

    If a secret has no influence on the release, its rank among N candidates is uniform, so that
    ``U = rank / N`` is at least as large as a uniform variable and ``-sum(ln U)`` is at most as large as a
    Gamma(n) variable (Fisher 1925, section 21.1). The sum is the sum of the exposures in nats. Ties are
    counted against the secret, which keeps the test valid.

    Args:
        worst_ranks: rank of each secret with all tied candidates above it, from 1.
        candidates: N.

    Raises:
        InputError: there is no rank, or one lies outside 1 to N.
    """
    ranks = np.asarray(worst_ranks, dtype=np.float64)
    # Written so that NaN, which compares false with everything, is refused too.
    if ranks.size == 0 or not ((ranks >= 1) & (ranks <= candidates)).all():
        raise InputError(Fault("worst_ranks", ranks.tolist(), f"a non-empty list of ranks from 1 to {candidates}"))
    return float(stats.gamma.sf(-np.log(ranks / candidates).sum(), ranks.size))


def guesser_p(successes: int, trials: int, kappa: float) -> float:
    """Chance that a guesser who hits with chance ``kappa`` has at least so many successes."""
    return float(stats.binom.sf(successes - 1, trials, kappa))


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down adjustment (Scandinavian Journal of Statistics 6, 1979): bounds the chance of any error."""
    order = sorted(range(len(p_values)), key=lambda index: p_values[index])
    adjusted = [1.0] * len(p_values)
    running = 0.0
    for place, index in enumerate(order):
        running = max(running, min(1.0, p_values[index] * (len(p_values) - place)))
        adjusted[index] = running
    return adjusted


def rate(successes: int, trials: int, confidence: float) -> Rate:
    """Successes out of trials with its Clopper-Pearson interval."""
    interval = clopper_pearson(successes, trials, confidence)
    return Rate(successes=successes, trials=trials, low=interval.low, high=interval.high)


def trials_to_rule_out(share: float, confidence: float) -> int:
    """Trials without a success that a two-sided Clopper-Pearson interval needs to exclude a rate.

    With no success the upper end is ``1 - (tail)^(1/n)`` with ``tail = (1 - confidence) / 2``.

    Args:
        share: the rate, in (0, 1).
        confidence: coverage of the interval, in (0, 1).

    Raises:
        InputError: an argument is outside its range.
    """
    faults = [
        Fault(name, value, "a number above 0 and below 1")
        for name, value in (("share", share), ("confidence", confidence))
        if not 0 < value < 1
    ]
    if faults:
        raise InputError(faults)
    trials = max(1, math.ceil(math.log((1 - confidence) / 2) / math.log1p(-share)))
    # A quotient that is a whole number may come out on either side of it.
    if trials > 1 and clopper_pearson(0, trials - 1, confidence).high <= share:
        trials -= 1
    return trials if clopper_pearson(0, trials, confidence).high <= share else trials + 1
