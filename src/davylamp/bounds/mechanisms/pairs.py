"""What each exact mechanism offers, and the exact curve of a finite pair."""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from davylamp.bounds import checks
from davylamp.bounds.claims import Claim
from davylamp.bounds.curves import PointsCurve, concave_hull
from davylamp.errors import Fault

Array = NDArray[np.float64]


class Mechanism(Protocol):
    """What each exact mechanism offers beside its sampler."""

    @property
    def claim(self) -> Claim:
        """The claim that it satisfies for one record."""

    def neighbour_curves(self) -> tuple[PointsCurve, ...]:
        """Exact curves of neighbouring pairs, both orders: each lies on or above the claim's."""


def neyman_pearson_curve(absent: ArrayLike, present: ArrayLike, name: str = "finite pair") -> PointsCurve:
    """Exact trade-off curve of two finite distributions, by Neyman and Pearson.

    Args:
        absent: probabilities under the null (type-I errors are counted here), shape (n,), summing to 1.
        present: probabilities under the alternative, shape (n,), summing to 1.
        name: what the pair is.

    Raises:
        InputError: entries are outside [0, 1], the shapes differ, or a sum is not 1 within 1e-9.
    """
    q, faults = checks.unit_array("absent", absent)
    p, more = checks.unit_array("present", present)
    if not faults and not more:
        faults = _pair_faults(q, p)
    checks.raise_faults(faults, more)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(q > 0, p / q, np.where(p > 0, np.inf, 0.0))
    order = np.argsort(-ratio, kind="stable")
    alphas, powers = np.cumsum(q[order]), np.cumsum(p[order])
    x = np.minimum(np.concatenate([[0.0], alphas, [1.0]]), 1.0)
    y = np.minimum(np.concatenate([[0.0], powers, [1.0]]), 1.0)
    return PointsCurve(*concave_hull(x, y), name=name)


def _pair_faults(q: Array, p: Array) -> list[Fault]:
    if q.ndim != 1 or q.shape != p.shape or q.size == 0:
        return [Fault("present", f"shape {p.shape}", f"the shape of absent {q.shape}, one axis")]
    return [
        Fault(name, f"a list with sum {math.fsum(v):.12g}", "a list that sums to 1 within 1e-9")
        for name, v in (("absent", q), ("present", p))
        if abs(math.fsum(v) - 1) > 1e-9
    ]
