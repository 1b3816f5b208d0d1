"""What a membership score can tell: ROC, AUC, and the true-positive rate at a low false-positive rate.

Everywhere a higher score means more likely a member, and NaN is refused: a row that vanished would move every rate.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import optimize, special, stats

from davylamp.bounds.intervals import clopper_pearson
from davylamp.errors import Fault, InputError

Array = NDArray[np.float64]
DISCORDANT = 0.5
"""DeLong's interval is used where ``k = min(m, n)`` independent pairs would hold at least so many in the wrong order on
average (and in the right one): ``k min(auc, 1 - auc)``. Below, its variance rests on next to nothing. So chosen, 95%
intervals were measured to cover 94% to 99% for 8 to 96 members and 16 to 1,000 non-members, of normal scores of equal
and unequal spread and of members that leak in part; the plain Wald interval of an AUC of 0.98 covered 50% to 80%, and
Newcombe's (Statistics in Medicine 25, 2006) 80% where some members leak and others do not."""


@dataclass(frozen=True, slots=True)
class Auc:
    """Area under the ROC curve: the chance that a member scores above a non-member, ties counting half.

    Attributes:
        value: the Mann-Whitney estimate.
        low: lower end of the interval.
        high: upper end.
        confidence: of the interval.
        method: ``delong`` (logit scale, Welch's degrees of freedom), or ``hoeffding``, which holds for every
            distribution and number of scores, where DeLong's variance cannot be relied on.
    """

    value: float
    low: float
    high: float
    confidence: float
    method: Literal["delong", "hoeffding"]


@dataclass(frozen=True, slots=True)
class Share:
    """A rate with its Clopper-Pearson interval.

    Attributes:
        count: successes.
        of: trials.
        rate: ``count / of``.
        low: lower end.
        high: upper end.
    """

    count: int
    of: int
    rate: float
    low: float
    high: float

    @classmethod
    def counted(cls, hits: NDArray[np.bool_], confidence: float) -> Share | None:
        """The share of what is true; none of nothing."""
        if not hits.size:
            return None
        count = int(hits.sum())
        interval = clopper_pearson(count, hits.size, confidence)
        return cls(count, hits.size, count / hits.size, interval.low, interval.high)


@dataclass(frozen=True, slots=True)
class OperatingPoint:
    """How many members are found at a false-positive rate that was asked for.

    Attributes:
        fpr: the false-positive rate asked for.
        word: ``measured``, or ``underpowered`` where too few non-members stand by to choose a threshold.
        chosen_on: non-members that the threshold was chosen on.
        needed: how many of them resolve the rate.
        threshold: scores above it count as members; none if underpowered.
        true_positives: of the members; none if underpowered. Its interval is for this threshold.
        false_positives: of the non-members that the threshold was not chosen on: the rate that was really realised.
    """

    fpr: float
    word: Literal["measured", "underpowered"]
    chosen_on: int
    needed: int
    threshold: float | None = None
    true_positives: Share | None = None
    false_positives: Share | None = None


def placements(members: ArrayLike, nonmembers: ArrayLike) -> tuple[Array, Array]:
    """Where each score stands among those of the other kind; the mean of either is the AUC.

    DeLong et al., Biometrics 44, 1988, the structural components of eq. 3, ties counting half; by sorting, as in Sun
    and Xu, IEEE Signal Processing Letters 21, 2014.

    Args:
        members: scores, shape (m,), m at least 1; infinite ones are allowed.
        nonmembers: scores, shape (n,), n at least 1.

    Returns:
        For each member the share of non-members below it, shape (m,), and for each non-member the share of members
        above it, shape (n,).

    Raises:
        InputError: there is none of a kind, or a score is NaN.
    """
    inside, outside = checked(members=members, nonmembers=nonmembers)
    low, high = np.sort(outside), np.sort(inside)
    below = (np.searchsorted(low, inside, "left") + np.searchsorted(low, inside, "right")) / (2 * outside.size)
    above = (np.searchsorted(high, outside, "left") + np.searchsorted(high, outside, "right")) / (2 * inside.size)
    return below, 1 - above


def auc(members: ArrayLike, nonmembers: ArrayLike, confidence: float = 0.95) -> Auc:
    """AUC with an interval.

    DeLong's variance on the logit scale, with Student's t at Welch's degrees of freedom since either variance is
    itself estimated. It is zero, or rests on hardly any score, where the two kinds are (nearly) apart; there the
    interval is Hoeffding's: a two-sample U-statistic with a kernel in [0, 1] deviates no more than the mean of
    ``k = min(m, n)`` independent pairs would (JASA 58, 1963, section 5a), so that all theta with
    ``k KL(auc, theta) <= log(2 / (1 - confidence))`` stay in. At an AUC of 1 that is ``((1 - confidence) / 2)^(1/k)``
    to 1, which is Clopper-Pearson's for k successes in k trials.

    Args:
        members: scores, shape (m,), m at least 1.
        nonmembers: scores, shape (n,), n at least 1.
        confidence: of the interval, in (0, 1).

    Raises:
        InputError: there is none of a kind, a score is NaN, or the confidence is outside its range.
    """
    below, above = placements(members, nonmembers)
    check_confidence(confidence)
    value, pairs = float(below.mean()), min(below.size, above.size)
    # Less a little, so that a score turned round stands on the same side.
    if pairs * min(value, 1 - value) >= DISCORDANT - 1e-9:
        error, freedom = welch(below, above)
        if error > 0:
            reach = float(stats.t.ppf((1 + confidence) / 2, freedom)) * error / (value * (1 - value))
            low, high = special.expit(special.logit(value) + np.array([-reach, reach]))
            return Auc(value, float(low), float(high), confidence, "delong")
    low, high = _hoeffding(value, pairs, confidence)
    return Auc(value, low, high, confidence, "hoeffding")


def welch(first: Array, second: Array) -> tuple[float, float]:
    """Standard error of the sum of two means, and Welch's degrees of freedom; (0, 1) for fewer than two of a kind."""
    if min(first.size, second.size) < 2:
        return 0.0, 1.0
    parts = [float(each.var(ddof=1)) / each.size for each in (first, second)]
    if not sum(parts):
        return 0.0, 1.0
    spread = sum(part**2 / (each.size - 1) for part, each in zip(parts, (first, second), strict=True))
    return math.sqrt(sum(parts)), sum(parts) ** 2 / spread


def _hoeffding(value: float, pairs: int, confidence: float) -> tuple[float, float]:
    allowed = math.log(2 / (1 - confidence)) / pairs
    return _lowest(value, allowed), 1 - _lowest(1 - value, allowed)


def _lowest(value: float, allowed: float) -> float:
    """The lowest theta whose Kullback-Leibler divergence from a value, in nats, is allowed."""

    def excess(theta: float) -> float:
        return float(special.kl_div(value, theta) + special.kl_div(1 - value, 1 - theta)) - allowed

    least = math.ulp(0.0)
    return 0.0 if value == 0 or excess(least) <= 0 else float(optimize.brentq(excess, least, value))


def roc(members: ArrayLike, nonmembers: ArrayLike) -> list[tuple[float, float]]:
    """Corners of the ROC curve as (false-positive rate, true-positive rate), from (0, 0) to (1, 1).

    Points between two corners of a straight stretch are left out. A tie between a member and a non-member gives a
    slanted stretch. On log axes the curve begins at a false-positive rate of ``1 / n``: below, n non-members tell
    nothing.

    Raises:
        InputError: there is none of a kind, or a score is NaN.
    """
    inside, outside = checked(members=members, nonmembers=nonmembers)
    cuts = np.unique(np.concatenate([inside, outside]))[::-1]
    rates = []
    for scores in (outside, inside):
        counts = scores.size - np.searchsorted(np.sort(scores), cuts, "left")
        rates.append(np.concatenate([[0], counts]))
    turns = (np.diff(rates[0], 2) != 0) | (np.diff(rates[1], 2) != 0)
    kept = np.concatenate([[True], turns, [True]])
    false, true = (each[kept] / size for each, size in zip(rates, (outside.size, inside.size), strict=True))
    return [(float(x), float(y)) for x, y in zip(false, true, strict=True)]


def needed(fpr: float) -> int:
    """Non-members that a threshold must be chosen on for a false-positive rate to be resolved: ``1 / fpr``.

    Raises:
        InputError: the rate is not above 0 and below 1.
    """
    if not 0 < fpr < 1:
        raise InputError(Fault("fpr", fpr, "a number above 0 and below 1"))
    return math.ceil(1 / fpr - 1e-9)


def threshold(nonmembers: ArrayLike, fpr: float) -> float | None:
    """The score above which something counts as a member at a false-positive rate of at most ``fpr``.

    It is the j-th largest of the n scores, ``j = floor(fpr (n + 1))``: another non-member lies strictly above with a
    chance of at most ``j / (n + 1)``, whatever the distribution (the rank of one of n + 1 exchangeable scores). The
    quantile that lets ``fpr n`` of the n through would let ``(fpr n + 1) / (n + 1)`` of others through, twice the rate
    asked for where n is ``1 / fpr``. Scores equal to the threshold do not count, so that no tie lifts the rate.

    Returns:
        The threshold; none where n is below :func:`needed`.

    Raises:
        InputError: there is no score, one is NaN, or the rate is outside its range.
    """
    least = needed(fpr)
    (scores,) = checked(nonmembers=nonmembers)
    if scores.size < least:
        return None
    rank = math.floor(fpr * (scores.size + 1) + 1e-9)
    return float(np.sort(scores)[-rank])


def operating_point(
    members: ArrayLike, choosing: ArrayLike, realising: ArrayLike, fpr: float, confidence: float = 0.95
) -> OperatingPoint:
    """True-positive rate at a false-positive rate, and the latter as it was really realised.

    Args:
        members: scores, shape (m,), m at least 1.
        choosing: scores of the non-members that the threshold is chosen on, shape (n,).
        realising: scores of other non-members, on which the realised rate is counted; may be empty.
        fpr: the false-positive rate, above 0 and below 1.
        confidence: of the Clopper-Pearson intervals, in (0, 1).

    Raises:
        InputError: there is no member, a score is NaN, or a number is outside its range.
    """
    least = needed(fpr)
    check_confidence(confidence)
    inside, outside, others = checked(False, members=members, choosing=choosing, realising=realising)
    if not inside.size:
        raise InputError(Fault("members", [], "at least one score"))
    cut = threshold(outside, fpr) if outside.size else None
    if cut is None:
        return OperatingPoint(fpr, "underpowered", outside.size, least)
    found, wrong = Share.counted(inside > cut, confidence), Share.counted(others > cut, confidence)
    return OperatingPoint(fpr, "measured", outside.size, least, cut, found, wrong)


def checked(some: bool = True, /, **scores: ArrayLike) -> list[Array]:
    """Scores as arrays.

    Args:
        some: refuse an empty list too.
        scores: lists of scores by name.

    Raises:
        InputError: one is no list of numbers, empty, or holds NaN; all are named.
    """
    arrays = {name: np.asarray(values, dtype=np.float64) for name, values in scores.items()}
    faults = []
    for name, array in arrays.items():
        if array.ndim != 1 or (some and not array.size):
            faults.append(Fault(name, f"an array of shape {array.shape}", "a list of at least one score"))
        elif np.isnan(array).any():
            faults.append(Fault(f"{name}[{int(np.isnan(array).argmax())}]", math.nan, "a number: no row is left out"))
    if faults:
        raise InputError(faults)
    return list(arrays.values())


def check_confidence(confidence: float) -> None:
    """Check a confidence.

    Raises:
        InputError: it is not above 0 and below 1.
    """
    if not 0 < confidence < 1:
        raise InputError(Fault("confidence", confidence, "a number above 0 and below 1"))
