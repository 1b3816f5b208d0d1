"""Releases of lists, and the list adversary."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from davylamp.bounds import checks
from davylamp.bounds.claims import Claim, claim_faults
from davylamp.bounds.curves import PointsCurve
from davylamp.bounds.mechanisms.pairs import neyman_pearson_curve
from davylamp.errors import Fault

Array = NDArray[np.float64]
Whole = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class SubsetRelease:
    """The gadget that attains the extraction bound (P1, Lemma 5.2), for adding or removing the secret's record.

    The release is a list of m of the N values. Without the secret it is uniform; with it, it is made to hold the
    secret with probability ``a = (1 - f(m/N) - m/N)/(1 - m/N)`` and is uniform otherwise. A list adversary that
    repeats it succeeds with probability exactly ``1 - f(m/N)``.

    Attributes:
        target: the claim that it is built for; its curve must be symmetric.
        size: N, number of values.
        budget: m, below N.
    """

    target: Claim
    size: int
    budget: int = 1

    def __post_init__(self) -> None:
        faults = checks.whole("size", self.size, least=2) + checks.whole("budget", self.budget)
        if not faults and self.budget >= self.size:
            faults = [Fault("budget", self.budget, f"a whole number from 1 to size - 1 ({self.size - 1})")]
        checks.raise_faults(claim_faults("target", self.target), faults)

    @property
    def claim(self) -> Claim:
        """The claim that it is built for."""
        return self.target

    @property
    def success(self) -> float:
        """``1 - f(m/N)``: exact success of the adversary that repeats the list."""
        return float(self.target.power(self.budget / self.size))

    @property
    def force(self) -> float:
        """``a``: probability that the secret is put on the list on purpose."""
        share = self.budget / self.size
        return max(0.0, (self.success - share) / (1 - share))

    def sample(self, secret: ArrayLike | None, rng: np.random.Generator, trials: int) -> Whole:
        """Released lists of distinct values, shape (trials, m).

        Args:
            secret: the secret of each trial (a number or shape (trials,)), or None for a release without it.
            rng: source of randomness.
            trials: number of releases.
        """
        lists = _distinct(self.size, self.budget, trials, rng)
        if secret is None:
            return lists
        secrets = np.broadcast_to(np.asarray(secret, dtype=np.int64), (trials,))
        missing = (rng.random(trials) < self.force) & ~(lists == secrets[:, None]).any(axis=1)
        # Replacing a uniform entry of a uniform list by the secret leaves a uniform list that holds it.
        lists[missing, rng.integers(0, self.budget, trials)[missing]] = secrets[missing]
        return lists

    def neighbour_curves(self) -> tuple[PointsCurve, ...]:
        """Without the secret against with it, and back: two likelihood ratios, so three vertices each."""
        share, success = self.budget / self.size, self.success
        without, with_it = [share, 1 - share], [success, 1 - success]
        return neyman_pearson_curve(without, with_it), neyman_pearson_curve(with_it, without)


def _distinct(size: int, budget: int, trials: int, rng: np.random.Generator) -> Whole:
    """Uniform ordered lists of distinct values (Floyd's algorithm, one column a step, then shuffled)."""
    out = np.empty((trials, budget), dtype=np.int64)
    for j in range(budget):
        top = size - budget + j
        pick = rng.integers(0, top + 1, trials)
        taken = (out[:, :j] == pick[:, None]).any(axis=1)
        out[:, j] = np.where(taken, top, pick)
    return rng.permuted(out, axis=1)


def top_list(weights: ArrayLike, budget: int) -> Whole:
    """The list adversary: indices of the ``budget`` largest posterior weights in each row, likeliest first.

    Ties go to the lower index. Weights need not be normalised.

    Args:
        weights: shape (..., n), finite or minus infinity.
        budget: m, from 1 to n.

    Raises:
        InputError: a weight is NaN or plus infinity, or the budget does not fit.
    """
    array, faults = checks.checked_array(
        "weights", weights, "a number that is not NaN or infinite", lambda w: w < np.inf
    )
    if not faults and array.ndim == 0:
        faults = [Fault("weights", float(array), "a list of numbers")]
    more = checks.whole("budget", budget)
    if not faults and not more and budget > array.shape[-1]:
        more = [Fault("budget", budget, f"a whole number from 1 to {array.shape[-1]}")]
    checks.raise_faults(faults, more)
    return np.asarray(np.argsort(-array, axis=-1, kind="stable")[..., :budget], dtype=np.int64)


def list_success(prior: ArrayLike, law: ArrayLike, budget: int) -> float:
    """Exact success of the best list adversary on a finite release.

    Args:
        prior: probability of each secret, shape (n,).
        law: probability of each output given each secret, shape (n, outputs), rows summing to 1.
        budget: m.

    Returns:
        ``sum over outputs of the m largest prior * law``.

    Raises:
        InputError: entries are outside [0, 1], shapes differ, or sums are not 1 within 1e-9.
    """
    p, faults = checks.unit_array("prior", prior)
    k, more = checks.unit_array("law", law)
    if not faults and not more and (p.ndim != 1 or k.ndim != 2 or k.shape[0] != p.size):
        faults = [Fault("law", f"shape {k.shape}", f"one row a secret ({p.size})")]
    if not faults and not more:
        if abs(math.fsum(p) - 1) > 1e-9:
            faults.append(Fault("prior", f"a list with sum {math.fsum(p):.12g}", "a list that sums to 1 within 1e-9"))
        if np.abs(k.sum(axis=1) - 1).max() > 1e-9:
            faults.append(Fault("law", "rows that do not sum to 1", "rows that sum to 1 within 1e-9"))
    checks.raise_faults(faults, more, checks.whole("budget", budget))
    joint = np.sort(p[:, None] * k, axis=0)[::-1]
    return min(1.0, float(joint[:budget].sum()))
