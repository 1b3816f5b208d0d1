"""The epsilon that a claim implies at a delta."""

from __future__ import annotations

import math

import pytest

from davylamp.bounds import ApproxDP, dp_sgd, extraction_epsilon, pure_dp
from davylamp.bounds.epsilon import claim_epsilon, gaussian_epsilon


def test_the_epsilon_of_a_claim_for_several_records():
    # k records of pure DP are k eps, exactly; with a delta of its own the converted one needs a larger delta.
    assert claim_epsilon(pure_dp(1.5).group(2), 0.0) == pytest.approx(3.0, rel=1e-9)
    grown = 1e-5 * (1 + math.exp(1.5))
    assert claim_epsilon(ApproxDP(1.5, 1e-5).group(2), grown * (1 + 1e-9)) <= 3.0 * (1 + 1e-9)


def test_a_claim_of_a_large_epsilon_has_a_finite_one():
    # Steps without subsampling, all of them: a Gaussian of mu = 8, whose epsilon is known in closed form.
    steps = 16
    claim = dp_sgd(steps**0.5 / 8, 1.0, steps)
    assert claim_epsilon(claim, 1e-6) == pytest.approx(gaussian_epsilon(8.0, 1e-6), rel=0.01)


def test_a_claim_without_an_epsilon_at_that_delta_is_not_called_an_upper_bound():
    # At a delta below the claim's own nothing is claimed.
    held = extraction_epsilon(0, 6, 1e-4, 1e-5, upper=ApproxDP(8.0, 2.5e-4))
    assert held.upper == math.inf
    assert "the accountant's claim gives no epsilon at delta = 1e-05" in held.statement
    assert "infinity" not in held.statement
    there = extraction_epsilon(0, 6, 1e-4, 2.5e-4, upper=ApproxDP(8.0, 2.5e-4))
    assert "the accountant's upper bound of 8" in there.statement
