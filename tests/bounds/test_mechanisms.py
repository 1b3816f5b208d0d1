"""Exact laws: every mechanism keeps its claim, its sampler follows its law, and it attains what it should."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from davylamp.bounds import ApproxDP, GaussianDP, extraction_bound, k_copies, pure_dp
from davylamp.bounds.mechanisms import (
    BernoulliStaircase,
    GeometricCount,
    LaplaceCount,
    RandomisedResponse,
    SubsetRelease,
    list_success,
    neyman_pearson_curve,
    top_list,
)
from davylamp.errors import InputError

GRID = np.concatenate([np.geomspace(1e-12, 1e-2, 60), np.linspace(0, 1, 501)])
EPSILONS = [0.05, 0.5, 1.0, 4.0]


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize(
    "make",
    [
        GeometricCount,
        LaplaceCount,
        RandomisedResponse,
        lambda e: RandomisedResponse(e, 0.15),
        lambda e: BernoulliStaircase(e, 1),
        lambda e: BernoulliStaircase(e, 5),
        lambda e: BernoulliStaircase(e, 8),
        lambda e: SubsetRelease(pure_dp(e), 100, 4),
        lambda e: SubsetRelease(ApproxDP(e, 1e-3), 100, 4),
        lambda e: SubsetRelease(GaussianDP(e), 100, 4),
    ],
)
def test_every_neighbouring_pair_keeps_the_claim_in_both_orders(make, epsilon):
    mechanism = make(epsilon)
    curves = mechanism.neighbour_curves()
    assert len(curves) >= 2
    for curve in curves:
        # Curves are sums of at most a few hundred masses: 1e-14 covers their rounding.
        assert (curve.tradeoff(GRID) >= mechanism.claim.tradeoff(GRID) - 1e-14).all()


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("copies", range(1, 9))
def test_geometric_counts_attain_the_k_copy_constant_for_every_k(epsilon, copies):
    constant = k_copies(pure_dp(epsilon), copies).advantage
    mechanism = GeometricCount(epsilon)
    assert mechanism.shift_distance(copies) == pytest.approx(constant, rel=1e-13)
    # By direct summation of the two laws.
    j = np.arange(-1000, 1001 + copies)
    direct = np.abs(mechanism.mass(j) - mechanism.mass(j, copies)).sum() / 2
    assert direct == pytest.approx(constant, rel=1e-9)
    # And the whole curve is the k-fold one.
    assert mechanism.curve(copies).power(GRID) == pytest.approx(pure_dp(epsilon).group(copies).power(GRID), abs=1e-13)


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_laplace_counts_attain_it_for_even_k_only(epsilon):
    for copies in range(1, 9):
        gap = k_copies(pure_dp(epsilon), copies).advantage - LaplaceCount(epsilon).shift_distance(copies)
        if copies % 2 == 0:
            assert gap == pytest.approx(0, abs=1e-13)
        else:
            assert gap > 1e-6 * math.exp(-copies * epsilon / 2)


def test_laplace_power_against_quadrature():
    mechanism = LaplaceCount(1.0)
    for threshold in (-3.0, -0.4, 0.0, 0.3, 0.9, 1.0, 2.5):
        level, power = stats.laplace.sf(threshold), stats.laplace.sf(threshold - 2)
        assert float(mechanism.power(level, copies=2)) == pytest.approx(power, rel=1e-12)


def test_geometric_tail_is_the_sum_of_its_masses():
    mechanism = GeometricCount(0.7)
    j = np.arange(-200, 200)
    for value in (-3, 0, 1, 4):
        assert mechanism.at_least(value, 1) == pytest.approx(mechanism.mass(j[j >= value], 1).sum(), rel=1e-12)


@pytest.mark.parametrize("copies", [1, 2, 5, 8])
def test_staircase_attains_the_constant_with_one_bit(copies):
    steps = BernoulliStaircase(1.0, copies).steps
    assert steps[-1] - steps[0] == pytest.approx(k_copies(pure_dp(1.0), copies).advantage)


def test_binary_symmetric_channel_scales_the_advantage():
    assert RandomisedResponse(2.0).advantage == pytest.approx(math.tanh(1.0))
    assert RandomisedResponse(2.0, 0.15).advantage == pytest.approx(0.7 * math.tanh(1.0))
    curve, _ = RandomisedResponse(2.0, 0.15).neighbour_curves()
    assert curve.advantage().value == pytest.approx(0.7 * math.tanh(1.0))


def test_gadget_attains_the_bound_and_its_force_is_the_lemmas():
    for claim in (pure_dp(1.0), ApproxDP(2.0, 1e-3), GaussianDP(1.0)):
        gadget = SubsetRelease(claim, 64, 4)
        share = 4 / 64
        assert gadget.force == pytest.approx((1 - float(claim.tradeoff(share)) - share) / (1 - share))
        assert gadget.success == pytest.approx(gadget.force + (1 - gadget.force) * share)
        assert gadget.success <= extraction_bound(claim, share)
        assert gadget.success == pytest.approx(extraction_bound(claim, share), rel=1e-12)


def test_gadget_success_from_its_whole_law():
    # All ten 2-lists of five values, by enumeration; the list adversary is the exact best one.
    from itertools import combinations

    gadget = SubsetRelease(pure_dp(1.0), 5, 2)
    lists = list(combinations(range(5), 2))
    s = gadget.success
    law = np.array([[s / 4 if z in pair else (1 - s) / 6 for pair in lists] for z in range(5)])
    assert list_success(np.full(5, 0.2), law, 2) == pytest.approx(s)


# Samplers: four standard errors of the estimated probability, so a right sampler fails about once in 16,000 checks.
def close(count, total, probability):
    return abs(count / total - probability) <= 4 * math.sqrt(probability * (1 - probability) / total)


def test_samplers_follow_their_laws():
    rng, n = np.random.default_rng(11), 200_000
    noisy = GeometricCount(1.0).sample(3, rng, n)
    for value in (1, 3, 4, 7):
        assert close((noisy == value).sum(), n, float(GeometricCount(1.0).mass(value, 3)))
    laplace = LaplaceCount(0.5).sample(2, rng, n)
    assert close((laplace > 4).sum(), n, math.exp(-1) / 2)
    bits = RandomisedResponse(1.0, 0.15).sample(np.ones(n, dtype=int), rng)
    assert close(bits.sum(), n, RandomisedResponse(1.0, 0.15).truth)
    staircase = BernoulliStaircase(1.0, 3)
    for count in (0, 2, 3, 9):
        drawn = staircase.sample(count, rng, n)
        assert close(drawn.sum(), n, staircase.steps[min(count, 3)])


def test_subset_sampler_is_uniform_without_and_forced_with_the_secret():
    rng, n = np.random.default_rng(12), 100_000
    gadget = SubsetRelease(pure_dp(1.0), 16, 4)
    blank = gadget.sample(None, rng, n)
    assert blank.shape == (n, 4)
    assert (np.diff(np.sort(blank, axis=1), axis=1) > 0).all()
    for value in (0, 7, 15):
        assert close((blank == value).any(axis=1).sum(), n, 4 / 16)
    forced = gadget.sample(7, rng, n)
    assert (np.diff(np.sort(forced, axis=1), axis=1) > 0).all()
    assert close((forced == 7).any(axis=1).sum(), n, gadget.success)
    # The others share what is left evenly.
    assert close((forced == 3).any(axis=1).sum(), n, (4 - gadget.success) / 15)


def test_top_list_and_its_ties():
    assert top_list([[0.1, 0.5, 0.5, 0.2]], 2).tolist() == [[1, 2]]
    assert top_list([-np.inf, 0.0, -1.0], 3).tolist() == [1, 2, 0]


@settings(max_examples=40, deadline=None)
@given(st.floats(0.05, 4), st.integers(2, 12), st.integers(1, 3), st.integers(0, 2**31))
def test_bound_is_at_least_every_mechanisms_exact_success(epsilon, size, budget, seed):
    # Secrets from a random prior, each planted once in a histogram whose counts get randomised-response-like bits:
    # a random law made eps-DP against the "absent" law by mixing.
    budget = min(budget, size - 1)
    rng = np.random.default_rng(seed)
    prior = rng.dirichlet(np.ones(size))
    absent = rng.dirichlet(np.ones(size + 3))
    tilt = np.exp(rng.uniform(-epsilon / 2, epsilon / 2, (size, size + 3)))
    law = absent * tilt
    law /= law.sum(axis=1, keepdims=True)  # every ratio to the absent law is within e^±eps
    kappa = np.sort(prior)[::-1][:budget].sum()
    assert list_success(prior, law, budget) <= extraction_bound(pure_dp(epsilon), min(float(kappa), 1.0)) + 1e-12
    for row in law:
        for curve in (neyman_pearson_curve(absent, row), neyman_pearson_curve(row, absent)):
            assert (curve.tradeoff(GRID) >= pure_dp(epsilon).tradeoff(GRID) - 1e-12).all()


@pytest.mark.parametrize(
    ("call", "field"),
    [
        (lambda: GeometricCount(0.0), "epsilon"),
        (lambda: GeometricCount(1.0).shift_distance(0), "copies"),
        (lambda: RandomisedResponse(1.0, 0.6), "flip"),
        (lambda: BernoulliStaircase(1.0, 0), "copies"),
        (lambda: SubsetRelease(pure_dp(1.0), 4, 4), "budget"),
        (lambda: SubsetRelease(2.0, 4, 1), "target"),
        (lambda: top_list([1.0, math.nan], 1), "weights[1]"),
        (lambda: top_list([1.0, 2.0], 3), "budget"),
        (lambda: list_success([0.5, 0.5], [[1.0, 0.0]], 1), "law"),
        (lambda: list_success([0.5, 0.4], [[1.0, 0.0], [0.0, 1.0]], 1), "prior"),
        (lambda: neyman_pearson_curve([0.5, 0.5], [1.0]), "present"),
        (lambda: neyman_pearson_curve([0.5, 0.4], [0.5, 0.5]), "absent"),
    ],
)
def test_bad_input_is_named(call, field):
    with pytest.raises(InputError) as error:
        call()
    assert [fault.field for fault in error.value.faults] == [field]
