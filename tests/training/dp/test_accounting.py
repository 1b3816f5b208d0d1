"""Noise and claims against accountants that share no code with davylamp's, and against a closed form."""

from __future__ import annotations

import math

import pytest
from scipy import optimize, special

from davylamp.errors import InputError, RecipeError
from davylamp.runs.config import validate
from davylamp.training.dp.accounting import account, epsilon_of, plan_private
from davylamp.training.dp.spec import DPSpec

pytest.importorskip("opacus", reason="the extra 'dp' is not installed")


def gaussian_epsilon(mu, delta):
    """Balle and Wang 2018, Thm 8, by bisection: what T full-batch steps of noise sigma give, mu = sqrt(T)/sigma."""
    return optimize.brentq(
        lambda e: special.ndtr(mu / 2 - e / mu) - math.exp(e) * special.ndtr(-mu / 2 - e / mu) - delta, 0, 100
    )


def test_full_batches_have_a_closed_form():
    assert epsilon_of(8.0, 1.0, 4, 1e-3) == pytest.approx(gaussian_epsilon(math.sqrt(4) / 8, 1e-3), rel=2e-3)


def test_a_target_is_met_and_hardly_more():
    plan = plan_private(DPSpec(epsilon=0.25), rows=300, expected_batch=16, epochs=1)
    assert (plan.steps, plan.sampling_rate, plan.delta) == (19, 16 / 300, 1 / 3000)
    assert 0.2475 <= plan.epsilon <= 0.25
    # A thousandth less noise would not have met it.
    assert epsilon_of(plan.noise_multiplier * 0.999, plan.sampling_rate, plan.steps, plan.delta) > 0.25
    # opacus's PRV accountant is right to 0.01 nats by its own proof.
    assert plan.cross_check == pytest.approx(plan.epsilon, abs=0.012)
    claim = plan.claim()
    assert claim["epsilon"] == plan.epsilon
    assert claim["relation"] == "add or remove one row"
    # Rényi accounting is looser, so that it asks for more noise.
    loose = plan_private(DPSpec(epsilon=0.25, accountant="rdp"), 300, 16, 1)
    assert loose.epsilon <= 0.25
    assert loose.noise_multiplier > plan.noise_multiplier


def test_given_noise_is_taken_and_its_epsilon_worked_out():
    from opacus.accountants import RDPAccountant

    plan = account(DPSpec(noise_multiplier=2.2, delta=1e-4), 1000, 0.05, 100)
    assert plan.noise_multiplier == 2.2
    rdp = RDPAccountant()
    rdp.history = [(2.2, 0.05, 100)]
    # Rényi accounting is an upper bound that is some tenths too high.
    assert 0.5 * rdp.get_epsilon(1e-4) < plan.epsilon < rdp.get_epsilon(1e-4)


def test_without_noise_nothing_is_claimed():
    plan = account(DPSpec(noise_multiplier=0), 100, 0.1, 10)
    assert plan.epsilon is None
    assert plan.claim() is None
    assert plan.curve is None


def test_a_batch_larger_than_the_file_is_refused():
    with pytest.raises(InputError, match="at most the 8 rows"):
        plan_private(DPSpec(noise_multiplier=1), rows=8, expected_batch=16, epochs=1)


def test_a_target_that_no_noise_meets_is_refused_with_the_arithmetic():
    # A full-batch step of noise 10,000 has mu = 1e-4; at delta 1e-9 that is an epsilon of some 5e-4.
    with pytest.raises(InputError, match=r"sampling rate 1 .*noise multiplier of .* still gives"):
        plan_private(DPSpec(epsilon=1e-5, delta=1e-9), rows=8, expected_batch=8, epochs=1)


@pytest.mark.parametrize(
    "fields",
    [{}, {"epsilon": 1, "noise_multiplier": 1}, {"epsilon": 0}, {"epsilon": float("inf")}, {"noise_multiplier": -1},
     {"epsilon": 1, "delta": 1}, {"epsilon": 1, "max_grad_norm": 0}, {"epsilon": 1, "accountant": "gdp"}],
)  # fmt: skip
def test_what_makes_no_claim_is_refused(fields):
    with pytest.raises(RecipeError):
        validate(DPSpec, fields, "training.dp")
