"""From a target to the noise, and from the noise to the claim: every number that is promised, before training."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from scipy import optimize

from davylamp.bounds import DPSGD, claim_epsilon, dp_sgd
from davylamp.errors import Fault, InputError, PrivacyError
from davylamp.training.dp.spec import Accountant, DPSpec

MOST_NOISE = 1e4
"""Largest noise multiplier that is looked for."""
LEAST_NOISE = 0.2
"""About the smallest one that is looked for; a target that even less noise would meet gets this much."""
PRV_ERROR = 0.01
"""Error in epsilon that opacus's PRV accountant is asked for; it adds it, so as to report a bound."""
AGREEMENT = 0.012
"""Nats, plus five parts in a thousand of epsilon, by which two accountants may differ before one is called wrong."""
COARSE = 2e-3
"""Largest grid step of the privacy loss, nats, while noise is searched for; the claim is worked out on a finer one."""


@dataclass(frozen=True, slots=True)
class PrivatePlan:
    """What a private training will do, and what that amounts to.

    Attributes:
        rows: rows of the training file; taken for public.
        expected_batch: rows of a batch in expectation.
        sampling_rate: q, the chance of each row to be in a batch.
        steps: T.
        noise_multiplier: sigma, standard deviation of the noise over the clipping norm.
        max_grad_norm: C.
        delta: of the claim.
        epsilon: nats, for adding or removing one row; None without noise.
        accountant: what epsilon was worked out by.
        cross_check: epsilon by opacus's PRV accountant, without the error that it adds; None where it gives none.
    """

    rows: int
    expected_batch: float
    sampling_rate: float
    steps: int
    noise_multiplier: float
    max_grad_norm: float
    delta: float
    epsilon: float | None
    accountant: Accountant
    cross_check: float | None

    @property
    def curve(self) -> DPSGD | None:
        """The trade-off curve of the training; None without noise."""
        if self.noise_multiplier == 0:
            return None
        return dp_sgd(self.noise_multiplier, self.sampling_rate, self.steps)

    @property
    def approximate_mu(self) -> float | None:
        """``q sqrt(T (e^(1/sigma^2) - 1))``: mu in the limit of many steps (Bu et al. 2020, Cor. 4); no bound."""
        if self.noise_multiplier == 0:
            return None
        return _approximate_mu(self.noise_multiplier, self.sampling_rate, self.steps)

    def claim(self) -> dict[str, Any] | None:
        """The claim as plain data, for ``training.json``; None without noise."""
        if self.noise_multiplier == 0:
            return None
        return {
            "kind": "dpsgd",
            "relation": "add or remove one row",
            "epsilon": self.epsilon,
            "delta": self.delta,
            "noise_multiplier": self.noise_multiplier,
            "sampling_rate": self.sampling_rate,
            "steps": self.steps,
            "accountant": self.accountant,
            "approximate_mu": self.approximate_mu,
            "cross_check": {"accountant": "opacus PRV", "epsilon": self.cross_check},
        }


def plan_private(dp: DPSpec, rows: int, expected_batch: int, epochs: int) -> PrivatePlan:
    """Work out rate, steps, noise and claim of a private training.

    Args:
        dp: what is asked for.
        rows: rows of the training file.
        expected_batch: rows of a batch in expectation.
        epochs: passes over the file, in expectation.

    Raises:
        InputError: the batch is larger than the file, or no noise that is looked for meets the target.
        PrivacyError: two accountants disagree.
    """
    if expected_batch > rows:
        fix = "The expected batch is batch_size x gradient_accumulation."
        raise InputError(Fault("the expected batch", expected_batch, f"at most the {rows} rows of the file", fix))
    rate, steps = expected_batch / rows, math.ceil(epochs * rows / expected_batch)
    return account(dp, rows, rate, steps)


@lru_cache(maxsize=64)
def account(dp: DPSpec, rows: int, sampling_rate: float, steps: int) -> PrivatePlan:
    """Work out the noise and the claim for a given rate and number of steps; see :func:`plan_private`."""
    delta = dp.delta if dp.delta is not None else 1 / (10 * rows)
    noise = dp.noise_multiplier
    if noise is None:
        noise = find_noise(dp, sampling_rate, steps, delta)
    epsilon = other = None
    if noise > 0:
        epsilon = epsilon_of(noise, sampling_rate, steps, delta, dp.accountant)
        tight = epsilon if dp.accountant == "pld" else epsilon_of(noise, sampling_rate, steps, delta)
        other = _by_opacus(noise, sampling_rate, steps, delta)
        _check_agreement(tight, other)
    return PrivatePlan(
        rows=rows,
        expected_batch=sampling_rate * rows,
        sampling_rate=sampling_rate,
        steps=steps,
        noise_multiplier=noise,
        max_grad_norm=dp.max_grad_norm,
        delta=delta,
        epsilon=epsilon,
        accountant=dp.accountant,
        cross_check=other,
    )


def epsilon_of(
    noise_multiplier: float, sampling_rate: float, steps: int, delta: float, accountant: Accountant = "pld"
) -> float:
    """Epsilon in nats at delta, rounded up, for adding or removing one row.

    Raises:
        InputError: the noise is too small, or the rate too low, to be accounted for in double precision.
    """
    if accountant == "rdp":
        return _by_rdp(noise_multiplier, sampling_rate, steps, delta)
    found = claim_epsilon(dp_sgd(noise_multiplier, sampling_rate, steps), delta)
    if found is not None and math.isfinite(found):
        return found
    # Levels below 1e-16, which an epsilon of about 28 needs, have no mirror image in double precision.
    return _by_coarse_pld(noise_multiplier, sampling_rate, steps, delta, COARSE / 20)


def find_noise(dp: DPSpec, sampling_rate: float, steps: int, delta: float) -> float:
    """The least noise multiplier, to four digits, that meets ``dp.epsilon``.

    Raises:
        InputError: none up to :data:`MOST_NOISE` does; the arithmetic is shown.
    """
    target = dp.epsilon
    assert target is not None  # noqa: S101 - the spec has one of the two

    def quick(noise: float) -> float:
        if dp.accountant == "rdp":
            return _by_rdp(noise, sampling_rate, steps, delta)
        # Far from the target, where the loss spreads widely, a fine grid would cost much and tell nothing.
        spread = _approximate_mu(noise, sampling_rate, steps)
        return _by_coarse_pld(noise, sampling_rate, steps, delta, max(min(COARSE, target / 500), spread / 1000))

    def excess(noise: float) -> float:
        return quick(noise) - target

    low = high = 1.0
    while low > LEAST_NOISE and excess(low) <= 0:
        low, high = low / 2, low
    while excess(high) > 0:
        low, high = high, high * 2
        if high > MOST_NOISE:
            raise _unmet(dp, sampling_rate, steps, delta, target + excess(low), low)
    if low < high and excess(low) > 0:
        high = float(optimize.brentq(excess, low, high, rtol=1e-4))
    # The claim is worked out on a finer grid, from which rounding up to four digits most often protects already.
    for _ in range(10):
        high = _up(high)
        found = epsilon_of(high, sampling_rate, steps, delta, dp.accountant)
        if found <= target:
            return high
        high *= 1 + max(1e-3, (found / target - 1) / 2)
    raise _unmet(dp, sampling_rate, steps, delta, found, high)


def _approximate_mu(noise: float, rate: float, steps: int) -> float:
    return rate * math.sqrt(steps * math.expm1(min(noise**-2, 100.0)))


def _up(value: float) -> float:
    scale: float = 10.0 ** (3 - math.floor(math.log10(value)))
    return math.ceil(value * scale) / scale


def _unmet(dp: DPSpec, sampling_rate: float, steps: int, delta: float, found: float, noise: float) -> InputError:
    allowed = (
        f"what noise can meet: at sampling rate {sampling_rate:.4g} ({steps} steps) and delta {delta:.3g}, a noise "
        f"multiplier of {noise:.4g} still gives {found:.4g}"
    )
    return InputError(
        Fault("training.dp.epsilon", dp.epsilon, allowed, "Take fewer epochs, a larger epsilon, or a larger delta.")
    )


def _by_coarse_pld(noise: float, rate: float, steps: int, delta: float, grid: float) -> float:
    from dp_accounting.pld import privacy_loss_distribution as pld

    # Grid points are needed above the least loss of a step, ln(1 - q).
    grid = min(grid, 0.05, 0.4 * -math.log1p(-rate)) if rate < 1 else min(grid, 0.05)
    one = pld.from_gaussian_mechanism(noise, sampling_prob=rate, value_discretization_interval=grid)
    return float(one.self_compose(steps).get_epsilon_for_delta(delta))


def _by_rdp(noise: float, rate: float, steps: int, delta: float) -> float:
    import dp_accounting
    from dp_accounting import rdp

    accountant = rdp.RdpAccountant()
    event = dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(noise))
    return float(accountant.compose(dp_accounting.SelfComposedDpEvent(event, steps)).get_epsilon(delta))


def _by_opacus(noise: float, rate: float, steps: int, delta: float) -> float | None:
    """Epsilon by opacus's PRV accountant (Gopi et al., 2106.02848), which shares no code with the claim's."""
    from opacus.accountants import PRVAccountant

    accountant = PRVAccountant()
    accountant.history = [(noise, rate, steps)]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = float(accountant.get_epsilon(delta, eps_error=PRV_ERROR)) - PRV_ERROR
    except (ValueError, RuntimeError, ArithmeticError, MemoryError):
        # It gives up where its grid would be too large; the claim does not rest on it.
        return None
    return max(found, 0.0) if math.isfinite(found) else None


def _check_agreement(one: float | None, other: float | None) -> None:
    if one is None or other is None or abs(one - other) <= AGREEMENT + 0.005 * one:
        return
    raise PrivacyError(
        f"the accountants disagree: epsilon {one:.4g} by privacy loss distributions, {other:.4g} by opacus's PRV; "
        "nothing was trained"
    )
