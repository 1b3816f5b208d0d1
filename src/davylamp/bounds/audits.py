"""What an audit's successes say about a claim, and how large an audit must be to say anything.

Source: P1 (*Memorization Is Not Extraction*, arXiv 2608.27782), Cor 5.3.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy import special, stats

from davylamp.bounds import checks
from davylamp.bounds.claims import ApproxDP, Claim, claim_faults
from davylamp.bounds.extraction import ROUNDING, extraction_bound
from davylamp.bounds.intervals import clopper_pearson
from davylamp.errors import Fault

AuditVerdict = Literal["refuted", "consistent", "could-not-refute"]
LARGEST_AUDIT = 10_000_000  # canaries; a plan that needs more says so


@dataclass(frozen=True, slots=True)
class Audit:
    """What an audit says about a claim.

    Attributes:
        verdict: ``refuted`` where the lower confidence bound on success exceeds ``1 - f(kappa)``; ``consistent``
            where it does not; ``could-not-refute`` where it would not have even with every trial a success, because
            kappa is above ``alpha*`` of the largest lower bound that so many trials can give.
        extraction_bound: ``1 - f(kappa)``.
        success_lower_bound: one-sided Clopper-Pearson bound on the attack's success.
        reachable_lower_bound: the same with every trial a success.
        confidence: of the bounds, in (0, 1).
        kappa: the guessing baseline.
        budget: guesses that count as one attack.
        delta: the delta at which ``epsilon_lower_bound_at_delta`` holds.
        epsilon_lower_bound: pure eps that this audit refutes everything below; infinite where kappa is 0.
        epsilon_lower_bound_at_delta: the same for (eps, delta)-DP.
        mu_lower_bound: the same for Gaussian DP.
    """

    verdict: AuditVerdict
    extraction_bound: float
    success_lower_bound: float
    reachable_lower_bound: float
    confidence: float
    kappa: float
    budget: int
    delta: float
    epsilon_lower_bound: float
    epsilon_lower_bound_at_delta: float
    mu_lower_bound: float


def audit(
    claim: Claim,
    kappa: float,
    successes: int,
    trials: int,
    *,
    confidence: float = 0.95,
    budget: int = 1,
    copies: int = 1,
    delta: float | None = None,
) -> Audit:
    """Holds an audit's successes against a claim (Cor 5.3).

    Args:
        claim: the claim for one record.
        kappa: chance of the best list that is made without the release, in [0, 1].
        successes: attacks whose list held the secret.
        trials: attacks on independent secrets.
        confidence: of the one-sided lower bound on success, in (0, 1).
        budget: m, the length of the lists; kappa must be that of the same length.
        copies: how many records carried each secret.
        delta: the delta of the empirical (eps, delta) bound; the claim's own where it has one, else 0.

    Raises:
        InputError: an argument is outside its range.
    """
    if delta is None:
        delta = claim.delta if isinstance(claim, ApproxDP) else 0.0
    checks.raise_faults(
        claim_faults("claim", claim),
        checks.unit("kappa", kappa),
        _count_faults(successes, trials),
        checks.open_unit("confidence", confidence),
        checks.whole("budget", budget),
        checks.whole("copies", copies),
        checks.below_one("delta", delta),
    )
    bound = extraction_bound(claim, kappa, copies)
    low = clopper_pearson(successes, trials, confidence, "lower").low
    reach = clopper_pearson(trials, trials, confidence, "lower").low
    verdict: AuditVerdict = "refuted" if low > bound else "consistent" if reach > bound else "could-not-refute"
    return Audit(
        verdict,
        bound,
        low,
        reach,
        confidence,
        float(kappa),
        budget,
        delta,
        epsilon_lower_bound(kappa, low, 0.0, copies),
        epsilon_lower_bound(kappa, low, delta, copies),
        mu_lower_bound(kappa, low, copies),
    )


def epsilon_lower_bound(kappa: float, success: float, delta: float = 0.0, copies: int = 1) -> float:
    """Largest eps such that every (eps', delta)-DP claim with eps' < eps is refuted by a success rate.

    For one copy ``max(0, ln((p - delta)/kappa), ln((1 - delta - kappa)/(1 - p)))``.

    Args:
        kappa: guessing baseline, in [0, 1].
        success: success probability (or a lower confidence bound on it), in [0, 1].
        delta: in [0, 1).
        copies: how many records carried the secret.

    Returns:
        Nats, rounded down; infinite where no finite eps explains the success (kappa 0, or success 1).

    Raises:
        InputError: an argument is outside its range.
    """
    checks.raise_faults(
        checks.unit("kappa", kappa),
        checks.unit("success", success),
        checks.below_one("delta", delta),
        checks.whole("copies", copies),
    )
    if success <= float(ApproxDP(0.0, delta, copies).power(kappa)):
        return 0.0
    if kappa == 0 and (delta == 0 or copies == 1):
        return math.inf
    if copies == 1:
        first = math.log((success - delta) / kappa) if success > delta else 0.0
        second = math.log((1 - delta - kappa) / (1 - success)) if success < 1 else math.inf
        return max(0.0, max(first, second) * (1 - ROUNDING) - 1e-15)
    low, high = 0.0, 1.0
    while float(ApproxDP(high, delta, copies).power(kappa)) < success:
        low, high = high, 2 * high
        if high > 1e6:
            return math.inf
    for _ in range(100):
        middle = (low + high) / 2
        if float(ApproxDP(middle, delta, copies).power(kappa)) * (1 + ROUNDING) < success:
            low = middle
        else:
            high = middle
    return low


def mu_lower_bound(kappa: float, success: float, copies: int = 1) -> float:
    """Largest mu such that every smaller Gaussian claim is refuted: ``(Phi^-1(p) - Phi^-1(kappa))/k``, or 0.

    Args:
        kappa: guessing baseline, in [0, 1].
        success: success probability (or a lower confidence bound on it), in [0, 1].
        copies: how many records carried the secret.

    Raises:
        InputError: an argument is outside its range.
    """
    checks.raise_faults(checks.unit("kappa", kappa), checks.unit("success", success), checks.whole("copies", copies))
    if success <= kappa:
        return 0.0
    gap = (float(special.ndtri(success)) - float(special.ndtri(kappa))) / copies
    return max(0.0, gap * (1 - ROUNDING) - 1e-15)


@dataclass(frozen=True, slots=True)
class AuditPlan:
    """How many canaries an audit needs.

    Attributes:
        bits: entropy of each canary's uniform secret.
        kappa: ``m 2^-bits``.
        extraction_bound: ``1 - f(kappa)``, what must be exceeded.
        success_rate: success that the attack is expected to have.
        canaries: fewest canaries that refute the claim with the power asked for; None where the expected success
            does not exceed the bound, or more than 10 million were needed.
        successes_needed: successes among them that refute the claim.
        power: chance to refute that so many canaries really give.
    """

    bits: float
    kappa: float
    extraction_bound: float
    success_rate: float
    canaries: int | None
    successes_needed: int | None
    power: float | None


def plan_audit(
    claim: Claim,
    actual: Claim | float,
    bits: Iterable[float] = (4, 6, 8, 10, 12, 14, 16, 20, 24, 32),
    *,
    power: float = 0.8,
    confidence: float = 0.95,
    budget: int = 1,
    copies: int = 1,
) -> list[AuditPlan]:
    """How many canaries of how many bits refute a claim with a given power.

    The canaries' secrets are uniform and independent, and so are the attacks on them. The smallest number is given;
    since counts are whole, the power of a few larger numbers may be just below the target.

    Args:
        claim: the claim to refute, for one record.
        actual: what is believed to hold instead: a weaker claim whose best attack is used (its success is
            ``1 - f(kappa)``), or the attack's success rate in (0, 1).
        bits: entropies to try, each at least ``log2(budget)``.
        power: chance to refute, in (0, 1).
        confidence: of the test, in (0, 1).
        budget: m, the length of the attack's lists.
        copies: how many records carry each secret.

    Returns:
        One plan per entropy, in the order given.

    Raises:
        InputError: an argument is outside its range.
    """
    entropies = list(bits)
    faults = [] if entropies else [Fault("bits", [], "at least one number of bits")]
    for i, b in enumerate(entropies):
        bad = checks.nonnegative(f"bits[{i}]", b)
        if not bad and not checks.whole("budget", budget) and b < math.log2(budget):
            bad = [Fault(f"bits[{i}]", b, f"at least log2 of the budget ({math.log2(budget):g})")]
        faults += bad
    checks.raise_faults(
        claim_faults("claim", claim),
        claim_faults("actual", actual) if isinstance(actual, Claim) else checks.open_unit("actual", actual),
        faults,
        checks.open_unit("power", power),
        checks.open_unit("confidence", confidence),
        checks.whole("budget", budget),
        checks.whole("copies", copies),
    )
    plans = []
    for b in entropies:
        kappa = min(1.0, budget * 2.0**-b)
        bound = extraction_bound(claim, kappa, copies)
        rate = float(actual.group(copies).power(kappa)) if isinstance(actual, Claim) else float(actual)
        canaries, needed, reached = _fewest(bound, rate, power, confidence)
        plans.append(AuditPlan(float(b), kappa, bound, rate, canaries, needed, reached))
    return plans


def _fewest(
    bound: float, rate: float, power: float, confidence: float
) -> tuple[int, int, float] | tuple[None, None, None]:
    """Smallest n for which the exact binomial test of ``rate <= bound`` has the power at ``rate``."""
    if rate <= bound:
        return None, None, None
    # The normal approximation says where to look; below a thousand every n is tried.
    z_size, z_power = float(special.ndtri(confidence)), float(special.ndtri(power))
    spread = z_size * math.sqrt(bound * (1 - bound)) + max(z_power, 0.0) * math.sqrt(rate * (1 - rate))
    guess = (spread / (rate - bound)) ** 2
    start, stop = (1, 1024) if guess < 2000 else (int(guess * 0.8), int(guess * 0.8) + 4096)
    while start <= LARGEST_AUDIT:
        n = np.arange(start, stop + 1)
        needed = np.asarray(stats.binom.isf(1 - confidence, n, bound)) + 1
        reached = np.where(needed <= n, np.asarray(stats.binom.sf(needed - 1, n, rate)), 0.0)
        enough = np.flatnonzero(reached >= power)
        for i in enough[:50].tolist():
            # The count must also pass the audit's own test, which uses the beta quantile.
            if clopper_pearson(int(needed[i]), int(n[i]), confidence, "lower").low > bound:
                return int(n[i]), int(needed[i]), float(reached[i])
        start, stop = stop + 1, stop + max(4096, stop // 8)
    return None, None, None


def _count_faults(successes: int, trials: int) -> list[Fault]:
    faults = checks.whole("trials", trials)
    bad = checks.whole("successes", successes, least=0)
    if not bad and not faults and successes > trials:
        bad = [Fault("successes", successes, f"a whole number from 0 to trials ({trials})")]
    return faults + bad
