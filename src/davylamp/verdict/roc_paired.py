"""Two membership scores, or two releases, compared on the same canaries."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from davylamp.bounds.intervals import sign_test
from davylamp.errors import Fault, InputError
from davylamp.verdict.roc import check_confidence, checked, placements, welch

Array = NDArray[np.float64]
DIFFERING = 5
"""Members, and non-members, that must change their place between two scores for DeLong's variance to be used."""


@dataclass(frozen=True, slots=True)
class AucDifference:
    """How much larger the second AUC is than the first, on the same canaries.

    Attributes:
        value: second less first.
        low: lower end of the interval.
        high: upper end.
        p: of the two-sided test of no difference.
        confidence: of the interval.
        method: ``delong`` for correlated AUCs; ``hoeffding``, which holds for every distribution, where too few
            canaries tell the two apart; ``same order`` where both order every member and non-member alike, so that no
            such canary could tell them apart.
    """

    value: float
    low: float
    high: float
    p: float
    confidence: float
    method: Literal["delong", "hoeffding", "same order"]


@dataclass(frozen=True, slots=True)
class Decisions:
    """Members that one of two scores finds and the other does not, at the same false-positive rate.

    Attributes:
        first_only: found by the first alone.
        second_only: found by the second alone.
        both: found by both.
        neither: found by neither.
        p: of McNemar's exact test (Psychometrika 12, 1947): the sign test on the members that differ.
    """

    first_only: int
    second_only: int
    both: int
    neither: int
    p: float


def auc_difference(
    first: tuple[ArrayLike, ArrayLike], second: tuple[ArrayLike, ArrayLike], confidence: float = 0.95
) -> AucDifference:
    """Compare two AUCs of the same members and non-members.

    DeLong et al., Biometrics 44, 1988, eq. 5 to 8: the variance of the difference is that of the differences of the
    placements, so that what both scores share drops out; Student's t at Welch's degrees of freedom. Where fewer than
    :data:`DIFFERING` members or non-members change their place, Hoeffding's bound for a kernel in [-1, 1] stands in.

    Args:
        first: scores of the members, shape (m,), and of the non-members, shape (n,).
        second: other scores of the same canaries in the same order.
        confidence: of the interval, in (0, 1).

    Raises:
        InputError: the shapes differ, a score is NaN, there is none of a kind, or the confidence is outside its range.
    """
    check_confidence(confidence)
    (below, above), (other_below, other_above) = placements(*first), placements(*second)
    if (below.size, above.size) != (other_below.size, other_above.size):
        shapes = f"{other_below.size} members and {other_above.size} non-members"
        raise InputError(Fault("second", shapes, f"the canaries of the first: {below.size} and {above.size}"))
    if _same_order(first, second):
        return AucDifference(0.0, 0.0, 0.0, 1.0, confidence, "same order")
    members, nonmembers = other_below - below, other_above - above
    value = float(members.mean())
    error, freedom = welch(members, nonmembers)
    if error > 0 and min(np.count_nonzero(members), np.count_nonzero(nonmembers)) >= DIFFERING:
        reach = float(stats.t.ppf((1 + confidence) / 2, freedom)) * error
        p = 2 * float(stats.t.sf(abs(value) / error, freedom))
        low, high = max(-1.0, value - reach), min(1.0, value + reach)
        return AucDifference(value, low, high, p, confidence, "delong")
    pairs = min(members.size, nonmembers.size)
    reach = math.sqrt(2 * math.log(2 / (1 - confidence)) / pairs)
    p = min(1.0, 2 * math.exp(-pairs * value**2 / 2))
    return AucDifference(value, max(-1.0, value - reach), min(1.0, value + reach), p, confidence, "hoeffding")


def _same_order(first: tuple[ArrayLike, ArrayLike], second: tuple[ArrayLike, ArrayLike]) -> bool:
    """Whether one score is a rising function of the other on these canaries, ties included."""
    one, other = (np.concatenate([np.asarray(part, dtype=np.float64) for part in pair]) for pair in (first, second))
    return bool(np.array_equal(stats.rankdata(one), stats.rankdata(other)))


def decisions(first: ArrayLike, first_threshold: float, second: ArrayLike, second_threshold: float) -> Decisions:
    """Compare what two scores find among the same members, each above its own threshold.

    Args:
        first: scores of the members, shape (m,).
        first_threshold: above it something counts as a member.
        second: other scores of the same members in the same order.
        second_threshold: the other score's threshold, for the same false-positive rate.

    Raises:
        InputError: the shapes differ, there is no member, or a score is NaN.
    """
    one, other = checked(first=first, second=second)
    if one.shape != other.shape:
        raise InputError(Fault("second", f"{other.size} scores", f"one for each of the first ({one.size})"))
    found, also = one > first_threshold, other > second_threshold
    lost, won = int((found & ~also).sum()), int((~found & also).sum())
    return Decisions(lost, won, int((found & also).sum()), int((~found & ~also).sum()), sign_test(lost, won))
