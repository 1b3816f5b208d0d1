"""Spearman's rank correlation of few things, with a p-value that holds for few things."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from itertools import permutations
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from davylamp.errors import Fault, InputError

LEAST = 4
"""Things below which no correlation is given: of three the least p-value that there can be is 1/3."""
EXACT = 8
"""Things up to which all permutations are counted."""
LARGE = 10
"""Pairs from which an interval is given."""


@dataclass(frozen=True, slots=True)
class Spearman:
    """A rank correlation.

    Attributes:
        n: pairs.
        rho: from -1 to 1; nothing where there is none.
        p: two-sided; nothing where there is none.
        method: how ``p`` was found; nothing where there is none.
        reason: why there is none.
    """

    n: int
    rho: float | None = None
    p: float | None = None
    method: Literal["exact", "t"] | None = None
    reason: str = ""


def spearman(x: ArrayLike, y: ArrayLike) -> Spearman:
    """Pearson's correlation of mid-ranks (Spearman, American Journal of Psychology 15, 1904).

    Up to :data:`EXACT` pairs ``p`` is the share of all permutations whose correlation is at least as far from 0, ties
    as they are. Beyond, ``rho sqrt((n - 2) / (1 - rho^2))`` is held against Student's t with n - 2 degrees of freedom.

    Args:
        x: shape (n,), finite.
        y: shape (n,), finite.

    Raises:
        InputError: the shapes differ, or a number is not finite.
    """
    first, second = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    if first.ndim != 1 or first.shape != second.shape or not np.isfinite([first, second]).all():
        raise InputError(Fault("x, y", (first.shape, second.shape), "two lists of finite numbers, equally long"))
    n = first.size
    if n < LEAST:
        return Spearman(n, reason=f"a rank correlation takes at least {LEAST}, not {n}")
    ranks = [_centred(each) for each in (first, second)]
    sizes = [float(np.sqrt((each**2).sum())) for each in ranks]
    if not all(sizes):
        return Spearman(n, reason="one of the two is the same for all")
    scale = math.prod(sizes)
    rho = min(1.0, max(-1.0, float(ranks[0] @ ranks[1]) / scale))
    if n <= EXACT:
        every = ranks[1][_orders(n)] @ ranks[0] / scale
        return Spearman(n, rho, float((np.abs(every) >= abs(rho) - 1e-9).mean()), "exact")
    if abs(rho) > 1 - 1e-12:
        # As many orders give it as there are ways to swap what is tied, and at most as many its opposite.
        same = math.prod(math.factorial(int(count)) for count in np.unique(first, return_counts=True)[1])
        return Spearman(n, rho, 2 * same / math.factorial(n), "exact")
    t = abs(rho) * math.sqrt((n - 2) / (1 - rho**2))
    return Spearman(n, rho, float(2 * stats.t.sf(t, n - 2)), "t")


def spearman_interval(found: Spearman, confidence: float = 0.95) -> tuple[float, float] | None:
    """A confidence interval for a rank correlation, approximate.

    Fisher's transformation with the variance ``(1 + rho^2 / 2) / (n - 3)`` (Bonett and Wright, Psychometrika 65, 2000).

    Args:
        found: the correlation.
        confidence: in (0, 1).

    Returns:
        Its ends; nothing below :data:`LARGE` pairs, for which it does not hold, nor where the correlation is 1 or -1.
    """
    if found.rho is None or found.n < LARGE or abs(found.rho) > 1 - 1e-12:
        return None
    half = float(stats.norm.isf((1 - confidence) / 2)) * math.sqrt((1 + found.rho**2 / 2) / (found.n - 3))
    at = math.atanh(found.rho)
    return math.tanh(at - half), math.tanh(at + half)


def _centred(values: NDArray[np.float64]) -> NDArray[np.float64]:
    ranks = np.asarray(stats.rankdata(values), dtype=np.float64)
    return np.asarray(ranks - ranks.mean())


@cache
def _orders(n: int) -> NDArray[np.int64]:
    return np.asarray(list(permutations(range(n))), dtype=np.int64)
