"""Lower bounds on epsilon from one training run: membership guesses about many canaries of the same release.

Each of m canaries is put into the training data or left out by a fair coin of its own. Somebody who sees the release,
and not the coins, guesses some of the coins and abstains from the rest. Differential privacy bounds how many of r
guesses may be right:

- (eps, delta)-DP: Steinke, Nasr and Jagielski, *Privacy Auditing with One (1) Training Run* (NeurIPS 2023, arXiv
  2305.08846), Thm 5.2 with its consequence Thm 3.1.
- any trade-off curve f: Mahloujifar, Melis and Chaudhuri, *Auditing f-Differential Privacy in One Run* (ICML 2025,
  arXiv 2410.22235); the argument is repeated in docs/epsilon.md.

Both bound the same number, the chance of v right guesses or more, so the smaller of the two may be used.

The number of guesses r must be fixed before the release is seen: a rule that stops guessing when it is unsure enough
makes r depend on the release, and then only the first theorem holds, and only at delta = 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy import special

from davylamp.bounds import checks
from davylamp.bounds.claims import ApproxDP, Claim, GaussianDP, claim_faults
from davylamp.bounds.curves import concave_hull
from davylamp.bounds.epsilon import (
    EpsilonBound,
    Relation,
    audit_faults,
    bracket_root,
    claim_epsilon,
    gaussian_epsilon,
)
from davylamp.bounds.extraction import ROUNDING, rounding_margin
from davylamp.bounds.memorization import group_conversion
from davylamp.errors import Fault

MOST_CANARIES = 10_000_000
"""Canaries up to which a run is bounded."""
MOST_BINOMIAL = 100_000
"""Guesses up to which the binomial theorem is summed where delta is above 0."""
OneRunMethod = Literal["binomial", "f-dp", "gaussian"]
TAIL_ROUNDING = 1e-10  # relative error allowed for in a tail; measured below 1e-12 against 60 digits
MASS_ROUNDING = 1e-9  # the same for the total mass of the f-DP recursion


@dataclass(frozen=True, slots=True)
class Guesses:
    """Membership guesses about the canaries of one release, counted.

    Attributes:
        canaries: m, canaries whose membership was decided by a fair coin each, guessed about or not.
        guesses: r, how many were guessed about; fixed before the release was seen.
        correct: v, how many guesses were right.
        relation: what a coin decides: whether a record is there (``add or remove``) or which of two is (``replace``).

    Raises:
        InputError: the counts are no whole numbers with ``correct <= guesses <= canaries``.
    """

    canaries: int
    guesses: int
    correct: int
    relation: Relation = "add or remove"

    def __post_init__(self) -> None:
        checks.raise_faults(guess_faults(self.canaries, self.guesses, self.correct))


def guess_faults(canaries: int, guesses: int, correct: int) -> list[Fault]:
    """Faults of counts of guesses."""
    faults = checks.whole("canaries", canaries)
    if not faults and canaries > MOST_CANARIES:
        faults = [Fault("canaries", canaries, f"a whole number from 1 to {MOST_CANARIES:,}")]
    bad = checks.whole("guesses", guesses)
    if not bad and not faults and guesses > canaries:
        bad = [Fault("guesses", guesses, f"a whole number from 1 to canaries ({canaries})")]
    worse = checks.whole("correct", correct, least=0)
    if not worse and not bad and correct > guesses:
        worse = [Fault("correct", correct, f"a whole number from 0 to guesses ({guesses})")]
    return faults + bad + worse


def one_run_p_value(claim: Claim, seen: Guesses, copies: int = 1) -> float:
    """Upper bound on the chance of so many right guesses, or more, under a claim.

    The claim is refuted at confidence c where this is at most ``1 - c``. For (eps, delta)-DP the smaller of both
    theorems is taken, for every other curve that of Mahloujifar et al.

    Args:
        claim: for one record; must be symmetric, since a coin may add or remove.
        seen: the guesses.
        copies: in how many records each canary was.

    Raises:
        InputError: an argument is outside its range, or the curve is not symmetric.
    """
    checks.raise_faults(claim_faults("claim", claim), checks.whole("copies", copies))
    if not claim.symmetric:
        checks.raise_faults([Fault("claim", claim.describe(), "a symmetric curve", "Take symmetrised(curve) first.")])
    tails = [_curve_tail(claim.group(copies), seen)]
    converted = group_conversion(claim, copies) if isinstance(claim, ApproxDP) else None
    if converted is not None:
        tails.append(binomial_tail(converted.epsilon, converted.delta, seen))
    return min(1.0, *tails)


def one_run_epsilon(
    seen: Guesses | Sequence[Guesses],
    delta: float = 0.0,
    *,
    confidence: float = 0.95,
    method: OneRunMethod = "binomial",
    copies: int = 1,
    upper: Claim | None = None,
) -> EpsilonBound:
    """Lower bound on epsilon from one run.

    There are three methods:

    - ``binomial``: Steinke et al., Thm 3.1: ``P[V >= v] <= b + 2 m delta max_i (P[W >= v-i] - b)/i`` with
      ``W ~ Binomial(r, e^eps/(1+e^eps))`` and ``b = P[W >= v]``. Assumes nothing about the training.
    - ``f-dp``: the recursion of Mahloujifar et al. on the curve of (eps, delta)-DP. Assumes nothing about the training
      either; above the first where m delta is large, and able to use the exact curve of several copies.
    - ``gaussian``: the same recursion on the curves of Gaussian claims. What it refutes are Gaussian claims, and only
      those; a training that is not Gaussian DP at any mu is not described by them.

    Args:
        seen: the guesses. Several ways to guess about the same canaries may be given as a sequence: the best counts,
            and each gets an equal share of the error (union bound), so they must have been listed beforehand.
        delta: at which the bound shall hold, in [0, 1); above 0 for ``gaussian``.
        confidence: of the bound, in (0, 1).
        method: see above; chosen before the coins are looked at.
        copies: in how many records each canary was.
        upper: what the accountant claims for one record; with ``gaussian`` it must be a Gaussian claim.

    Raises:
        InputError: an argument is outside its range.
    """
    tried = [seen] if isinstance(seen, Guesses) else list(seen)
    checks.raise_faults(
        [] if tried else [Fault("seen", [], "at least one way to guess")],
        audit_faults(delta, confidence, copies, upper),
        _method_faults(method, delta, upper),
        _size_faults(tried, method, delta),
    )
    error = (1 - confidence) / len(tried)
    lows = [_lowest(each, delta, error, method, copies) for each in tried]
    best = max(range(len(tried)), key=lambda i: lows[i])
    chosen = tried[best]
    reach = max(_lowest(Guesses(t.canaries, t.guesses, t.guesses), delta, error, method, copies) for t in tried)
    mu = lows[best] if method == "gaussian" else None
    words = f"{chosen.correct} of {chosen.guesses} guesses about {chosen.canaries} canaries were right"
    return EpsilonBound(
        gaussian_epsilon(mu, delta) if mu is not None else lows[best],
        float(delta),
        confidence,
        {"binomial": "one-run", "f-dp": "one-run f-DP", "gaussian": "one-run Gaussian"}[method],  # type: ignore[arg-type]
        int(chosen.guesses),
        int(chosen.correct),
        gaussian_epsilon(reach, delta) if method == "gaussian" else reach,
        words if len(tried) == 1 else f"{words}, the best of {len(tried)} ways to guess",
        tries=len(tried),
        copies=int(copies),
        relation=chosen.relation,
        mu_low=mu,
        upper=claim_epsilon(upper, delta),
    )


def _size_faults(tried: Sequence[Guesses], method: str, delta: float) -> list[Fault]:
    most = max((each.guesses for each in tried), default=0)
    if method != "binomial" or delta == 0 or most <= MOST_BINOMIAL:
        return []
    why = "The theorem sums a tail for each; take the method f-dp, which bounds the same claims and is fast."
    return [Fault("guesses", most, f"at most {MOST_BINOMIAL:,} with the method binomial and a delta above 0", why)]


def _method_faults(method: str, delta: float, upper: Claim | None) -> list[Fault]:
    if method not in ("binomial", "f-dp", "gaussian"):
        return [Fault("method", method, "binomial, f-dp or gaussian")]
    return gaussian_faults(delta, upper) if method == "gaussian" else []


def gaussian_faults(delta: float, upper: Claim | None) -> list[Fault]:
    """Faults of the arguments of a bound that is about Gaussian claims."""
    faults = []
    if delta == 0:
        faults.append(Fault("delta", delta, "above 0", "No Gaussian claim implies pure DP."))
    if upper is not None and not claim_faults("upper", upper) and not isinstance(upper, GaussianDP):
        why = "This bound speaks of Gaussian claims only; hold another curve against the counts themselves."
        faults.append(Fault("upper", upper.describe(), "a Gaussian claim", why))
    return faults


@lru_cache(maxsize=4096)  # the same counts come back in every study, and with every guess right in every audit
def _lowest(seen: Guesses, delta: float, error: float, method: str, copies: int) -> float:
    """Largest parameter found (eps, or mu) that is certainly refuted; 0 where none is."""
    if method == "gaussian":
        low, _ = bracket_root(lambda mu: curve_refuted(GaussianDP(mu), seen, error))
        return low / copies
    if method == "f-dp":
        return bracket_root(lambda eps: curve_refuted(ApproxDP(eps, delta, copies), seen, error))[0]

    def refuted(epsilon: float) -> bool:
        claim = group_conversion(ApproxDP(epsilon, delta), copies)
        return claim is not None and binomial_tail(claim.epsilon, claim.delta, seen) <= error

    return bracket_root(refuted)[0]


def binomial_tail(epsilon: float, delta: float, seen: Guesses) -> float:
    """Upper bound on the chance of ``seen.correct`` right guesses or more under (eps, delta)-DP, rounded up.

    Steinke et al., Thm 5.2: the number of right guesses is stochastically below ``W + F`` with ``W ~ Binomial(r,
    e^eps/(1+e^eps))`` and some F in {0, ..., m} of mean at most ``2 m delta``. The worst F puts its mean on the
    steepest chord of ``i -> P[W >= v-i]``, which is their Thm 3.1; where ``2 m delta`` exceeds the chord's length it
    is the concave hull at ``2 m delta``, which is also what makes the bound rise with eps.

    Args:
        epsilon: nats, at least 0.
        delta: in [0, 1).
        seen: the guesses; their number must not depend on the release unless ``delta`` is 0.
    """
    wanted, mean = seen.correct, 2 * seen.canaries * delta
    if wanted == 0 or mean >= wanted:
        return 1.0
    wrong = float(special.expit(-epsilon))
    base = float(_tails(np.array([wanted]), seen.guesses, wrong)[0])
    if mean == 0:
        return min(1.0, base * (1 + TAIL_ROUNDING))
    if mean <= 1:
        extra = np.arange(1, _longest_chord(base, wanted, seen.guesses, wrong) + 1)
        tails = _tails(wanted - extra, seen.guesses, wrong)
        worst = base + mean * max(0.0, float(np.max((tails - base) / extra)))
    else:
        extra = np.arange(wanted + 1)
        rising = _tails(wanted - extra, seen.guesses, wrong)
        worst = float(np.interp(mean, *concave_hull(extra.astype(np.float64), rising)))
    return min(1.0, worst * (1 + TAIL_ROUNDING))


def _tails(least: NDArray[np.int64], trials: int, wrong: float) -> NDArray[np.float64]:
    """``P[W >= least]`` of W ~ Binomial(trials, 1 - wrong), from the small side: exact where ``wrong`` is tiny."""
    inside = np.clip(least, 1, trials)
    tail = special.betaincc(trials - inside + 1, inside, wrong)
    return np.where(least <= 0, 1.0, np.where(least > trials, 0.0, tail))


def _longest_chord(base: float, wanted: int, trials: int, wrong: float) -> int:
    """How far the steepest chord may reach: a chord of length i rises by less than 1, so long ones are flat."""
    some = min(wanted, max(1, wanted - math.floor(trials * (1 - wrong))))
    slope = (float(_tails(np.array([wanted - some]), trials, wrong)[0]) - base) / some
    return wanted if slope <= 0 else min(wanted, max(some, math.ceil((1 - base) / slope)))


def curve_refuted(claim: Claim, seen: Guesses, error: float) -> bool:
    """Whether a claim bounds the chance of so many right guesses below ``error`` (Mahloujifar et al. 2025).

    Let p_i be the chance of exactly i right guesses, and let R_t and H_t sum ``i p_i / m`` and ``(r-i) p_i / m`` over
    ``i >= t``. Turning one coin over turns one right guess into a wrong one, so that f-DP gives
    ``R_t <= 1 - f(H_{t-1})`` for every t (concavity averages over the canaries). With ``P[V >= v] = error`` the least
    total mass that obeys this puts all of it on v and then as little as each constraint demands; where even that
    exceeds 1, the chance is below ``error``.

    Args:
        claim: symmetric curve for one coin.
        seen: the guesses.
        error: in (0, 1).
    """
    level = _level_of(claim)
    r, m = seen.guesses, seen.canaries
    right, wrong = error * seen.correct / m, error * (r - seen.correct) / m
    allowed = r / m * (1 + MASS_ROUNDING)
    for t in range(seen.correct, 0, -1):
        if right + wrong > allowed or right >= 1:
            break
        needed = level(right)
        if needed <= wrong:
            # No more mass is needed here, and so nowhere below.
            break
        right += (t - 1) / (r - t + 1) * (needed - wrong)
        wrong = needed
    return right + wrong > allowed


def _level_of(claim: Claim) -> Callable[[float], float]:
    """Least level at which the claim allows a power, rounded down; 0 where it allows it at every level."""
    if isinstance(claim, GaussianDP):
        mu, shrink = claim.mu, 1 - ROUNDING
        return lambda power: float(special.ndtr(special.ndtri(power) - mu)) * shrink if power > 0 else 0.0
    shrink = 1 - rounding_margin(claim)
    if isinstance(claim, ApproxDP) and claim.copies == 1 and claim.epsilon < 700:
        # The two sides of the curve without the cost of arrays.
        up, delta = math.exp(claim.epsilon), claim.delta
        return lambda power: max(0.0, (power - delta) / up, 1 - delta - (1 - power) * up - 2e-16 * up) * shrink
    # A level near 1 is a difference of numbers near 1, with an absolute error of some 1e-16.
    return lambda power: max(0.0, float(claim.level(power)) * shrink - 1e-16 * power) if power > 0 else 0.0


def _curve_tail(claim: Claim, seen: Guesses) -> float:
    """Least error at which the curve is refuted, rounded up."""
    if seen.correct == 0 or not curve_refuted(claim, seen, 1 - 1e-12):
        return 1.0
    low, high = -700.0, 0.0  # natural logarithm of the error
    while high - low > 1e-10:
        middle = (low + high) / 2
        low, high = (low, middle) if curve_refuted(claim, seen, math.exp(middle)) else (middle, high)
    return math.exp(high)
