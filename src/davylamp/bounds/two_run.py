"""Lower bounds on epsilon from independent trials with and without a record.

The classical audit: train many times with the canary and many times without, score it each time, and compare how often
the score exceeds a threshold. (eps, delta)-DP gives ``TPR <= e^eps FPR + delta`` and ``TNR <= e^eps FNR + delta``
(Kairouz, Oh and Viswanath 2015, Thm 2.1); Clopper-Pearson bounds on both rates, jointly at the confidence, make that a
lower bound on eps (Jagielski, Ullman and Oprea 2020, arXiv 2006.07709; Nasr et al. 2021, arXiv 2101.04535). The same
two bounds give one on mu (Nasr et al. 2023, arXiv 2302.07956).

Trials must be independent: runs of their own. Many canaries of one run are no independent trials; for those there is
:mod:`davylamp.bounds.one_run`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from davylamp.bounds import checks
from davylamp.bounds.audits import epsilon_lower_bound, mu_lower_bound
from davylamp.bounds.claims import Claim
from davylamp.bounds.epsilon import EpsilonBound, audit_faults, claim_epsilon, gaussian_epsilon
from davylamp.bounds.intervals import clopper_pearson
from davylamp.bounds.one_run import gaussian_faults
from davylamp.errors import Fault

Array = NDArray[np.float64]
ERROR_SHARES = (0.0, 0.02, 0.1, 0.3)
"""Shares of the trials on the wrong side of a threshold that :func:`two_run_audit` tries where none are given."""


@dataclass(frozen=True, slots=True)
class Counts:
    """What a fixed test said about trials with the record and trials without it.

    Attributes:
        true_positives: trials with the record that the test called so.
        positives: trials with the record.
        false_positives: trials without the record that the test called to be with it.
        negatives: trials without the record.

    Raises:
        InputError: a number is no whole number, or a part exceeds its whole.
    """

    true_positives: int
    positives: int
    false_positives: int
    negatives: int

    def __post_init__(self) -> None:
        faults = []
        for part, whole in (("true_positives", "positives"), ("false_positives", "negatives")):
            total, count = getattr(self, whole), getattr(self, part)
            bad = checks.whole(whole, total)
            worse = checks.whole(part, count, least=0)
            if not bad and not worse and count > total:
                worse = [Fault(part, count, f"a whole number from 0 to {whole} ({total})")]
            faults += bad + worse
        checks.raise_faults(faults)


def two_run_epsilon(
    seen: Counts | Sequence[Counts],
    delta: float = 0.0,
    *,
    confidence: float = 0.95,
    gaussian: bool = False,
    copies: int = 1,
    upper: Claim | None = None,
) -> EpsilonBound:
    """Lower bound on epsilon from counts of a fixed test.

    Half of the error goes to a Clopper-Pearson bound on the true-positive rate from below, half to one on the
    false-positive rate from above; with both, ``max(0, ln((TPR-delta)/FPR), ln((1-delta-FPR)/(1-TPR)))`` covers both
    orders of the data sets at no further charge. A test that is right less often than chance shows nothing: turn its
    score around before the audit, not after.

    Args:
        seen: the counts. Those of several tests may be given as a sequence: the best counts, and each gets an equal
            share of the error (union bound), so they must have been listed beforehand.
        delta: at which the bound shall hold, in [0, 1); above 0 for ``gaussian``.
        confidence: of the bound, in (0, 1).
        gaussian: refute Gaussian claims instead: ``mu >= Phi^-1(TPR) - Phi^-1(FPR)``, converted to eps at delta.
        copies: in how many records the canary was.
        upper: what the accountant claims for one record; with ``gaussian`` it must be a Gaussian claim.

    Raises:
        InputError: an argument is outside its range.
    """
    tried = [seen] if isinstance(seen, Counts) else list(seen)
    checks.raise_faults(
        [] if tried else [Fault("seen", [], "at least one test's counts")],
        audit_faults(delta, confidence, copies, upper),
        gaussian_faults(delta, upper) if gaussian else [],
    )
    # One bound from below and one from above for every test.
    each = 1 - (1 - confidence) / (2 * len(tried))

    def lowest(counts: Counts) -> float:
        high = clopper_pearson(counts.false_positives, counts.negatives, each, "upper").high
        low = clopper_pearson(counts.true_positives, counts.positives, each, "lower").low
        if gaussian:
            return mu_lower_bound(high, low, copies)
        return epsilon_lower_bound(high, low, delta, copies)

    lows = [lowest(counts) for counts in tried]
    best = max(range(len(tried)), key=lambda i: lows[i])
    reach = max(lowest(Counts(c.positives, c.positives, 0, c.negatives)) for c in tried)
    chosen, mu = tried[best], lows[best] if gaussian else None
    words = (
        f"{chosen.true_positives} of {chosen.positives} trials with the record and {chosen.false_positives} of "
        f"{chosen.negatives} without it were called members"
    )
    return EpsilonBound(
        lows[best] if mu is None else gaussian_epsilon(mu, delta),
        float(delta),
        confidence,
        "two-run Gaussian" if gaussian else "two-run",
        int(chosen.positives + chosen.negatives),
        int(chosen.true_positives + chosen.negatives - chosen.false_positives),
        gaussian_epsilon(reach, delta) if gaussian else reach,
        words if len(tried) == 1 else f"{words}, the best of {len(tried)} thresholds",
        tries=len(tried),
        copies=int(copies),
        mu_low=mu,
        upper=claim_epsilon(upper, delta),
    )


def two_run_audit(
    with_record: ArrayLike,
    without_record: ArrayLike,
    delta: float = 0.0,
    *,
    wrong: Sequence[float] = ERROR_SHARES,
    confidence: float = 0.95,
    gaussian: bool = False,
    copies: int = 1,
    upper: Claim | None = None,
) -> EpsilonBound:
    """Lower bound on epsilon from the scores of independent trials, with the choice of the threshold charged.

    Thresholds are order statistics of fixed rank. "Above the (j+1)-th highest score without the record" has a
    false-positive rate that is at most a Beta(j+1, n-j) variable, whose quantile is the Clopper-Pearson bound for j
    errors in n; and since those scores alone place the threshold, the count above it among the trials with the record
    is binomial. So a rank, unlike a value picked by looking, costs nothing; only their number is charged. The mirror
    image places it by the scores with the record, for the other order of the data sets.

    Args:
        with_record: scores of the trials with the record, higher = more likely with it, shape (n,).
        without_record: scores of the trials without it, shape (k,).
        delta: at which the bound shall hold, in [0, 1); above 0 for ``gaussian``.
        wrong: shares of the trials that may lie on the wrong side of a threshold, written down before the scores are
            looked at, each in [0, 1).
        confidence: of the bound, in (0, 1).
        gaussian: see :func:`two_run_epsilon`.
        copies: in how many records the canary was.
        upper: what the accountant claims for one record.

    Raises:
        InputError: a score is NaN, or an argument is outside its range.
    """
    inside, faults = _trials("with_record", with_record)
    outside, more = _trials("without_record", without_record)
    shares = [Fault("wrong", list(wrong), "at least one share")] if not list(wrong) else []
    for i, share in enumerate(wrong):
        shares += checks.below_one(f"wrong[{i}]", share)
    checks.raise_faults(faults, more, shares)
    tests = [
        *(_above(inside, outside, j) for j in _ranks(wrong, outside.size)),
        *(_mirrored(_above(-outside, -inside, j)) for j in _ranks(wrong, inside.size)),
    ]
    return two_run_epsilon(tests, delta, confidence=confidence, gaussian=gaussian, copies=copies, upper=upper)


def _ranks(shares: Sequence[float], trials: int) -> list[int]:
    return sorted({min(trials - 1, math.floor(share * trials)) for share in shares})


def _above(targets: Array, ruler: Array, errors: int) -> Counts:
    """The test that lets ``errors`` scores of the ruler pass; tied ones count as passed, which they may not have."""
    threshold = np.sort(ruler)[ruler.size - 1 - errors]
    return Counts(int((targets > threshold).sum()), targets.size, errors, ruler.size)


def _mirrored(counts: Counts) -> Counts:
    """The test whose positives are what the given test calls trials without the record."""
    return Counts(
        counts.negatives - counts.false_positives,
        counts.negatives,
        counts.positives - counts.true_positives,
        counts.positives,
    )


def _trials(field: str, values: ArrayLike) -> tuple[Array, list[Fault]]:
    array, faults = checks.checked_array(field, values, "a number, not NaN", lambda a: ~np.isnan(a))
    if not faults and (array.ndim != 1 or array.size == 0):
        faults.append(Fault(field, f"an array of shape {array.shape}", "a list of at least one number"))
    return array, faults
