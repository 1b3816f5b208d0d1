"""Empirical lower bounds on epsilon: what every audit returns, and what it is held against.

An accountant bounds epsilon from above, by a proof about the training. An audit bounds it from below, by what somebody
who sees the release gets right. Where the lower bound exceeds the upper one, the proof does not describe the training.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy import special

from davylamp.bounds import checks
from davylamp.bounds.audits import AuditVerdict, epsilon_lower_bound
from davylamp.bounds.claims import ApproxDP, Claim, GaussianDP, claim_faults
from davylamp.bounds.composition import enclose
from davylamp.bounds.curves import PointsCurve
from davylamp.bounds.dpsgd import DPSGD
from davylamp.bounds.intervals import clopper_pearson
from davylamp.bounds.memorization import group_conversion
from davylamp.errors import Fault

Method = Literal["one-run", "one-run f-DP", "one-run Gaussian", "two-run", "two-run Gaussian", "extraction"]
Relation = Literal["add or remove", "replace"]
GAUSSIAN_ROUNDING = 1e-9  # relative error allowed for in delta(eps) of a Gaussian claim; measured below 1e-11


@dataclass(frozen=True, slots=True)
class EpsilonBound:
    """An empirical lower bound on epsilon.

    Attributes:
        eps_low: nats, rounded down: at this confidence no (eps, delta)-DP claim with a smaller eps is true. For the
            Gaussian methods: no mu-GDP claim whose eps at this delta is smaller is true. Infinite where no finite eps
            explains what was seen.
        delta: at which it holds, in [0, 1).
        confidence: of the bound, in (0, 1), all choices that were tried included.
        method: which theorem it comes from.
        guesses: how many guesses were made.
        correct: how many of them were right.
        reach: what ``eps_low`` would have been with every guess right.
        seen: what the audit saw, in words.
        tries: how many choices of guesses or thresholds share the error, by a union bound.
        copies: in how many records each canary was; the bound is for one record.
        relation: what neighbouring data sets differ by.
        mu_low: lower bound on mu; None where the method assumes no Gaussian claim.
        upper: the accountant's eps at this delta, rounded up; None where none was given.
    """

    eps_low: float
    delta: float
    confidence: float
    method: Method
    guesses: int
    correct: int
    reach: float
    seen: str
    tries: int = 1
    copies: int = 1
    relation: Relation = "add or remove"
    mu_low: float | None = None
    upper: float | None = None

    @property
    def contradiction(self) -> bool:
        """Whether the lower bound exceeds the accountant's upper bound."""
        return self.upper is not None and self.eps_low > self.upper

    @property
    def verdict(self) -> AuditVerdict | None:
        """``refuted``, ``consistent`` or ``could-not-refute`` as for :class:`Audit`; None without an upper bound."""
        if self.upper is None:
            return None
        return "refuted" if self.contradiction else "consistent" if self.reach > self.upper else "could-not-refute"

    @property
    def statement(self) -> str:
        """The finding in one sentence."""
        head = f"At {100 * self.confidence:.6g}% confidence "
        among = "Gaussian DP claim" if self.mu_low is not None else "DP claim"
        at = f" at delta = {self.delta:g}" if self.delta > 0 else ""
        whose = "replacing" if self.relation == "replace" else "adding or removing"
        if self.eps_low == 0 and self.mu_low:
            found = f"no {among} for {whose} one record with mu below {_down(self.mu_low)} is true"
        elif self.eps_low == 0:
            found = f"this audit rules out no {among}"
        elif math.isinf(self.eps_low):
            found = f"no {among} for {whose} one record holds{at}, whatever its epsilon"
        else:
            mu = f" (mu below {_down(self.mu_low)})" if self.mu_low is not None else ""
            found = f"no {among} for {whose} one record with epsilon below {_down(self.eps_low)}{at}{mu} is true"
        return f"{head}{found}: {self.seen}{self._comparison()}."

    def _comparison(self) -> str:
        if self.upper is None:
            return ""
        if math.isinf(self.upper):
            return f"; the accountant's claim gives no epsilon at delta = {self.delta:g}: nothing there contradicts it"
        upper = f"the accountant's upper bound of {_up(self.upper)}"
        if self.contradiction:
            return f", a contradiction of {upper}"
        if self.verdict == "consistent":
            return f", which is consistent with {upper} and does not prove it"
        return f"; even with every guess right it could not have contradicted {upper}"

    def as_dict(self) -> dict[str, object]:
        """Everything, of JSON types; an infinite number is None and named under ``unbounded``."""
        shown = dataclasses.asdict(self) | {"verdict": self.verdict, "statement": self.statement}
        unbounded = [key for key, value in shown.items() if value == math.inf]
        return shown | dict.fromkeys(unbounded) | ({"unbounded": unbounded} if unbounded else {})


def extraction_epsilon(
    successes: int,
    trials: int,
    kappa: float,
    delta: float = 0.0,
    *,
    confidence: float = 0.95,
    copies: int = 1,
    upper: Claim | None = None,
) -> EpsilonBound:
    """Lower bound on epsilon from secrets that came out, against the guessing baseline (P1, Cor 5.3).

    The exact k-fold curve of (eps, delta)-DP is inverted at ``kappa`` and a one-sided Clopper-Pearson bound on the
    attack's success, as :func:`audit` does.

    Args:
        successes: attacks whose list held the secret.
        trials: attacks on independent secrets.
        kappa: chance of the best list that is made without the release, in [0, 1].
        delta: at which the bound shall hold, in [0, 1).
        confidence: of the bound, in (0, 1).
        copies: how many records carried each secret.
        upper: what the accountant claims for one record.

    Raises:
        InputError: an argument is outside its range.
    """
    counts = checks.whole("trials", trials) + checks.whole("successes", successes, least=0)
    if not counts and successes > trials:
        counts = [Fault("successes", successes, f"a whole number from 0 to trials ({trials})")]
    checks.raise_faults(
        counts,
        checks.unit("kappa", kappa),
        audit_faults(delta, confidence, copies, upper),
    )

    def bound(count: int) -> float:
        low = clopper_pearson(count, trials, confidence, "lower").low
        return epsilon_lower_bound(kappa, low, delta, copies)

    return EpsilonBound(
        bound(successes),
        float(delta),
        confidence,
        "extraction",
        int(trials),
        int(successes),
        bound(trials),
        f"{successes} of {trials} secrets came out, where guessing without the release gets {kappa:.4g}",
        copies=int(copies),
        upper=claim_epsilon(upper, delta),
    )


def audit_faults(delta: float, confidence: float, copies: int, upper: Claim | None) -> list[Fault]:
    """Faults of the arguments that every audit shares."""
    return [
        *checks.below_one("delta", delta),
        *checks.open_unit("confidence", confidence),
        *checks.whole("copies", copies),
        *([] if upper is None else claim_faults("upper", upper)),
    ]


def claim_epsilon(claim: Claim | None, delta: float) -> float | None:
    """Smallest eps, rounded up, for which a claim implies (eps, delta)-DP; infinite where there is none.

    A Gaussian claim is converted by :func:`gaussian_epsilon`. For every other the supporting lines of a polygon that
    encloses its power curve are taken: ``max ln((power - delta)/level)`` over the vertices (Dong et al., Prop 2.12).

    Args:
        claim: any claim; None gives None.
        delta: in [0, 1).

    Raises:
        InputError: ``claim`` is no claim, or ``delta`` is outside its range.
    """
    if claim is None:
        return None
    checks.raise_faults(claim_faults("claim", claim), checks.below_one("delta", delta))
    if isinstance(claim, GaussianDP):
        return gaussian_epsilon(claim.mu, delta, "up")
    if isinstance(claim, ApproxDP) and claim.copies == 1 and claim.delta == delta:
        return float(claim.epsilon)
    symmetric = claim.symmetric
    if isinstance(claim, DPSGD):
        claim = claim.curve
    polygon = claim if isinstance(claim, PointsCurve) else enclose(claim)[0]
    level, power = polygon.alphas, polygon.powers
    if not symmetric:
        # The second pair of rates is that of the other order of the data sets; of a symmetric curve it is the first
        # again, but for a power that rounds to 1, whose level would round to 0.
        level, power = np.concatenate([level, 1 - polygon.powers]), np.concatenate([power, 1 - polygon.alphas])
    above = power > delta
    with np.errstate(divide="ignore"):
        each = np.log(power[above] - delta) - np.log(level[above])
    found = float(np.max(each, initial=0.0)) * (1 + 1e-12)
    converted = group_conversion(claim, 1) if isinstance(claim, ApproxDP) else None
    if converted is not None and converted.delta <= delta:
        return min(found, converted.epsilon)
    return found


def gaussian_epsilon(mu: float, delta: float, side: Literal["down", "up"] = "down") -> float:
    """The eps at which mu-GDP just implies (eps, delta)-DP.

    Solves ``delta = Phi(mu/2 - eps/mu) - e^eps Phi(-mu/2 - eps/mu)`` (Balle and Wang 2018, Thm 8; Dong et al., Cor
    2.13) by bisection, in logarithms.

    Args:
        mu: of the Gaussian claim, at least 0.
        delta: in [0, 1).
        side: whether the result shall be at most or at least the exact one; the bracket is below 1e-8 wide.

    Returns:
        Nats; infinite where ``delta`` is 0 and ``mu`` is not, since no Gaussian claim implies pure DP.

    Raises:
        InputError: an argument is outside its range.
    """
    checks.raise_faults(checks.nonnegative("mu", mu), checks.below_one("delta", delta))
    if mu == 0:
        return 0.0
    if delta == 0:
        return math.inf
    margin = -GAUSSIAN_ROUNDING if side == "down" else GAUSSIAN_ROUNDING

    def leaks_more(epsilon: float) -> bool:
        a, b = mu / 2 - epsilon / mu, -mu / 2 - epsilon / mu
        first = float(special.log_ndtr(a))
        ratio = epsilon + float(special.log_ndtr(b)) - first
        # At ratio -> 0 rounding may lift it above 0, where the difference is 0.
        log_delta = first + math.log(-math.expm1(ratio)) if ratio < 0 else -math.inf
        return log_delta + margin > math.log(delta)

    low, high = bracket_root(leaks_more)
    return low if side == "down" else high


def bracket_root(holds: Callable[[float], bool], start: float = 1.0, largest: float = 1e12) -> tuple[float, float]:
    """Ends of an interval where a condition that holds up to some number stops to hold.

    Args:
        holds: the condition, of a number of at least 0.
        start: first upper end that is tried.
        largest: beyond, the search ends.

    Returns:
        The largest number found at which it holds and the smallest at which it does not, apart by a relative 1e-11 or
        an absolute 1e-13; (0, 0) where it does not hold at 0, an infinite end where none was found that does not.
    """
    if not holds(0.0):
        return 0.0, 0.0
    low, high = 0.0, start
    while holds(high):
        low, high = high, 2 * high
        if high > largest:
            return low, math.inf
    while high - low > max(1e-11 * high, 1e-13):
        middle = (low + high) / 2
        if not low < middle < high:
            break
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low, high


def _down(value: float) -> str:
    """A number rounded down to four digits, as a lower bound must be."""
    return _digits(value, math.floor, 1e-9)


def _up(value: float) -> str:
    """A number rounded up to four digits, as an upper bound must be."""
    return _digits(value, math.ceil, -1e-9)


def _digits(value: float, whole: Callable[[float], int], nudge: float) -> str:
    if value == 0 or not math.isfinite(value):
        return "0" if value == 0 else "infinity"
    unit = 10.0 ** (math.floor(math.log10(value)) - 3)
    # Nudged, so that a number of four digits stays what it is.
    return f"{whole(value / unit + nudge) * unit:.4g}"
