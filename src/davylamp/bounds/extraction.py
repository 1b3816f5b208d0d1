"""What a claim says about guessing a secret: the bound, the safe baseline and the entropy that a secret needs.

Source: P1 (*Memorization Is Not Extraction*, arXiv 2608.27782), Thm 5.1, Rem 5.4, Rem C.4, Rem C.6.

Rounding: bounds on success are rounded up, safe baselines down and entropy thresholds up, by more than the error of
the formulas behind them (relative 1e-15 to 1e-13 for pure and approximate DP, growing with k eps, and 4e-13 for other
curves); a baseline is then checked by evaluating the power at it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from davylamp.bounds import checks
from davylamp.bounds.claims import ApproxDP, Claim, claim_faults
from davylamp.errors import Fault

Array = NDArray[np.float64]
ROUNDING = 4e-13  # relative error of the worst formula (a normal tail at 1e-300), rounded up


@dataclass(frozen=True, slots=True)
class Bracket:
    """Two numbers with the optimum between them.

    Attributes:
        low: what one known release attains (for bits: what is needed at least).
        high: what no release exceeds (for bits: what is certainly enough).
    """

    low: float
    high: float


def rounding_margin(claim: Claim) -> float:
    """Relative error allowed for in a claim's power and levels."""
    if isinstance(claim, ApproxDP):
        # A few roundings, and half an ulp of the exponent k eps, which exp turns into a relative error.
        return 2e-15 + 1.2e-16 * min(claim.copies * claim.epsilon, 750.0)
    return ROUNDING


@overload
def extraction_bound(claim: Claim, kappa: float, copies: int = 1) -> float: ...
@overload
def extraction_bound(claim: Claim, kappa: ArrayLike, copies: int = 1) -> float | Array: ...
def extraction_bound(claim: Claim, kappa: ArrayLike, copies: int = 1) -> float | Array:
    """Largest chance ``1 - f(kappa)`` that a list attack on the release contains the secret (P1, Thm 5.1(i)).

    Holds when neighbouring data sets differ by adding, removing or replacing the secret's record.

    Args:
        claim: the claim for one record.
        kappa: chance of the best list that is made without the release; a number or an array, in [0, 1].
        copies: how many records carry the secret.

    Returns:
        Success probability, rounded up; a float for a number, else an array of the same shape.

    Raises:
        InputError: ``kappa`` is NaN or outside [0, 1], or ``copies`` is not a whole number of at least 1.
    """
    values, faults = checks.unit_array("kappa", kappa)
    checks.raise_faults(claim_faults("claim", claim), faults, checks.whole("copies", copies))
    curve = claim.group(copies)
    bound = np.minimum(curve.power(values) * (1 + rounding_margin(curve)), 1.0)
    return float(bound) if bound.ndim == 0 else np.asarray(bound)


@overload
def safe_baseline(claim: Claim, risk: float, copies: int = 1) -> float | None: ...
@overload
def safe_baseline(
    claim: Claim, risk: ArrayLike, copies: int = 1
) -> float | np.ma.MaskedArray[tuple[int, ...], np.dtype[np.float64]] | None: ...
def safe_baseline(
    claim: Claim, risk: ArrayLike, copies: int = 1
) -> float | np.ma.MaskedArray[tuple[int, ...], np.dtype[np.float64]] | None:
    """Largest baseline ``alpha* = sup {a : 1 - f(a) <= risk}`` that keeps extraction at or below ``risk``.

    Source: P1, Thm 5.1(iii); for pure DP two regimes meet at risk ``e^eps/(e^eps + 1)``: below it
    ``risk e^-eps``, above it ``1 - e^eps (1 - risk)``.

    Args:
        claim: the claim for one record.
        risk: extraction probability that is tolerated; a number or an array, in (0, 1).
        copies: how many records carry the secret.

    Returns:
        The baseline, rounded down. None where ``risk < 1 - f(0)``: then no baseline is safe, however hard the secret
        is to guess. For an array, a masked array with those entries masked.

    Raises:
        InputError: ``risk`` is NaN, 0, 1 or outside, or ``copies`` is not a whole number of at least 1.
    """
    values, faults = checks.open_unit_array("risk", risk)
    checks.raise_faults(claim_faults("claim", claim), faults, checks.whole("copies", copies))
    curve = claim.group(copies)
    level = curve.level(values)
    unsafe = level < 0
    best = np.maximum(level, 0.0) * (1 - rounding_margin(curve))
    # Above the first regime alpha* is a difference of numbers near 1, with an absolute error of some 1e-16.
    for step in (4.5e-16, 4.5e-15, 4.5e-14):
        best = np.where(curve.power(best) <= values, best, np.maximum(best - step, 0.0))
    if best.ndim == 0:
        return None if unsafe else float(best)
    return np.ma.masked_array(best, mask=unsafe)


def min_entropy_threshold(claim: Claim, risk: float, budget: int = 1, copies: int = 1) -> float | None:
    """Min-entropy ``log2(m / alpha*)`` that keeps every secret's extraction at or below ``risk``.

    For pure DP in the first regime (risk at most ``e^eps/(e^eps+1)``) this is ``k eps log2 e + log2(m / risk)``. Above
    it that formula is wrong (P1, Rem C.4) and ``alpha*`` decides.

    Args:
        claim: the claim for one record.
        risk: extraction probability that is tolerated, in (0, 1).
        budget: m, how many guesses count as one attack, at least 1.
        copies: how many records carry the secret.

    Returns:
        Bits, rounded up; None where no baseline is safe, infinite where only a baseline of 0 is.

    Raises:
        InputError: an argument is outside its range.
    """
    checks.raise_faults(
        claim_faults("claim", claim),
        checks.open_unit("risk", risk),
        checks.whole("budget", budget),
        checks.whole("copies", copies),
    )
    baseline = safe_baseline(claim, risk, copies)
    if baseline is None:
        return None
    if baseline == 0:
        return math.inf
    return math.nextafter(math.log2(budget) - math.log2(baseline), math.inf)


def risk_regime(epsilon: float, risk: float) -> int:
    """Which regime of pure eps-DP a risk falls in: 1 up to ``e^eps/(e^eps+1)``, 2 above it.

    Raises:
        InputError: ``epsilon`` is negative or not finite, or ``risk`` is outside (0, 1).
    """
    checks.raise_faults(checks.nonnegative("epsilon", epsilon), checks.open_unit("risk", risk))
    return 1 if 1 - risk >= 1 / (1 + math.exp(min(epsilon, 700.0))) else 2


def replace_bracket(claim: Claim, kappa: float, budget: int = 1) -> Bracket:
    """Optimal extraction when neighbours replace the secret's record (P1, Rem 5.4), as a bracket.

    No release without the secret exists under this relation, so the gadget that attains ``1 - f(kappa)`` for
    add/remove is not available. The high end still holds. The low end is attained: a uniform secret among
    ``N = ceil(m / kappa)`` values, released by subset selection (m-ary lists that hold the secret with probability
    s), where s is the largest for which any two secrets stay within ``f``. For pure DP
    ``s = e^eps m / (e^eps m + N - m)``, and this is then the optimum for that secret.

    Args:
        claim: the claim for replacing one record; its curve must be symmetric.
        kappa: chance of the best list that is made without the release, in [0, 1].
        budget: m, the length of that list.

    Raises:
        InputError: an argument is outside its range, or the curve is not symmetric.
    """
    checks.raise_faults(
        claim_faults("claim", claim), checks.unit("kappa", kappa), checks.whole("budget", budget), _symmetric(claim)
    )
    high = extraction_bound(claim, kappa)
    attained = _subset_selection(claim, kappa, budget) if kappa < 1 else 1.0
    return Bracket(min(max(attained, kappa), high), high)


def replace_threshold_bracket(claim: Claim, risk: float, budget: int = 1) -> Bracket | None:
    """Bits that a secret needs when neighbours replace its record (P1, Rem 5.4), as a bracket.

    ``high`` bits are enough for every secret; a uniform secret with fewer than ``low`` bits can be extracted with a
    probability above ``risk`` from some release that satisfies the claim.

    Args:
        claim: the claim for replacing one record; its curve must be symmetric.
        risk: extraction probability that is tolerated, in (0, 1).
        budget: m, how many guesses count as one attack.

    Returns:
        The bracket in bits, or None where no baseline is safe.

    Raises:
        InputError: an argument is outside its range, or the curve is not symmetric.
    """
    checks.raise_faults(_symmetric(claim))
    high = min_entropy_threshold(claim, risk, budget)
    if high is None:
        return None
    low, up = 0.0, 1100.0  # bits of kappa: from a certain guess to below the smallest double
    for _ in range(80):
        middle = (low + up) / 2
        if _subset_selection(claim, 2.0**-middle, budget, whole=False) > risk:
            low = middle
        else:
            up = middle
    return Bracket(min(math.log2(budget) + low, high), high)


def _symmetric(claim: Claim) -> list[Fault]:
    if claim_faults("claim", claim) or claim.symmetric:
        return []
    return [Fault("claim", claim.describe(), "a symmetric curve", "Take symmetrised(curve) first.")]


def _subset_selection(claim: Claim, kappa: float, budget: int, whole: bool = True) -> float:
    """Success of the best subset-selection release whose pairs of secrets stay within the curve."""
    if kappa <= 0:
        return float(claim.power(0.0))
    size = math.ceil(budget / kappa - 1e-9) if whole else budget / kappa
    share = budget / size
    if size <= budget or size < 2:
        return kappa
    if isinstance(claim, ApproxDP) and claim.delta == 0 and claim.copies == 1:
        odds = share * math.exp(min(claim.epsilon, 700.0))
        return odds / (1 - share + odds)
    spread = size / (size - 1)
    low, high = share, 1.0
    for _ in range(200):
        s = (low + high) / 2
        level, power = min(share * (1 - s) * spread, 1.0), s * (1 - share) * spread
        if power <= 1 and float(claim.power(level)) >= power:
            low = s
        else:
            high = s
    return low
