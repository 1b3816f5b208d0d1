import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from davylamp.bounds import (
    ApproxDP,
    GaussianDP,
    GroupedCurve,
    compose,
    curve_by_points,
    pure_dp,
    symmetrised,
)
from davylamp.errors import InputError

GRID = np.linspace(0, 1, 2001)


def points_of(claim, levels=(0.0, 0.01, 0.05, 0.1, 0.2, 0.35, 0.6, 1.0)):
    return curve_by_points(levels, claim.tradeoff(levels))


def test_points_are_joined_and_their_hull_is_taken():
    # (0.5, 0.45) lies above the line from (0.2, 0.5) to (1, 0): it promises more than its neighbours allow.
    curve = curve_by_points([0.0, 0.2, 0.5], [0.9, 0.5, 0.45])
    assert curve.alphas.tolist() == [0.0, 0.2, 1.0]
    assert curve.tradeoff([0.0, 0.1, 0.2, 0.6, 1.0]) == pytest.approx([0.9, 0.7, 0.5, 0.25, 0.0])
    assert curve.inverse([0.95, 0.9, 0.7, 0.25, 0.0]) == pytest.approx([0.0, 0.0, 0.1, 0.6, 1.0])
    assert curve.advantage().value == pytest.approx(0.3)
    assert curve.advantage().at == pytest.approx(0.2)
    assert not curve.symmetric


def test_level_of_a_curve_with_a_jump_at_zero():
    curve = curve_by_points([0.0, 0.5], [0.9, 0.0])
    assert curve.level(0.05) < 0  # 1 - f(0) = 0.1 is already more
    assert curve.level([0.1, 0.55, 0.999]) == pytest.approx([0.0, 0.25, 0.49944444])
    assert curve.inverse(0.0) == pytest.approx(0.5)


def test_points_of_a_pure_claim_give_that_claim():
    kink = 1 / (math.e + 1)
    exact = curve_by_points([0.0, kink], pure_dp(1.0).tradeoff([0.0, kink]))
    assert exact.symmetric
    assert exact.power(GRID) == pytest.approx(pure_dp(1.0).power(GRID), abs=1e-15)


@pytest.mark.parametrize(
    ("alphas", "betas", "fields"),
    [
        ([], [], ["alphas"]),
        ([0.0, 0.1], [1.0], ["betas"]),
        ([0.1, 0.2], [0.5, 0.4], ["alphas"]),
        ([0.0, 0.5], [1.0, 0.6], ["betas[1]"]),
        ([0.0, math.nan], [1.0, 2.0], ["alphas[1]", "betas[1]"]),
    ],
)
def test_bad_points_are_named(alphas, betas, fields):
    with pytest.raises(InputError) as error:
        curve_by_points(alphas, betas)
    assert [fault.field for fault in error.value.faults] == fields


def test_symmetrised_takes_the_better_of_both_orders():
    one_sided = curve_by_points([0.0, 0.2], [0.9, 0.5])
    both = symmetrised(one_sided)
    expected = np.maximum(one_sided.tradeoff(GRID), one_sided.inverse(GRID))
    assert both.tradeoff(GRID) == pytest.approx(expected, abs=1e-12)
    assert both.symmetric


def test_symmetrised_from_one_order_is_the_hull_of_the_lesser():
    one_sided = curve_by_points([0.0, 0.2], [0.9, 0.5])
    both = symmetrised(one_sided, orders="one")
    lesser = np.minimum(one_sided.tradeoff(GRID), one_sided.inverse(GRID))
    assert (both.tradeoff(GRID) <= lesser + 1e-12).all()
    assert both.symmetric
    # A hull touches: its own vertices lie on the lesser curve.
    at = both.alphas[1:-1]
    assert both.tradeoff(at) == pytest.approx(np.minimum(one_sided.tradeoff(at), one_sided.inverse(at)), abs=1e-12)
    with pytest.raises(InputError, match="orders"):
        symmetrised(one_sided, orders="none")


def test_symmetrised_of_other_claims():
    claim = GaussianDP(1.0)
    assert symmetrised(claim) is claim
    grouped = curve_by_points([0.0, 0.2], [0.9, 0.5]).group(2)
    both = symmetrised(grouped)
    assert both.symmetric
    # Enclosed on the safe side: never above the better of the two orders, and close to it.
    better = np.maximum(grouped.tradeoff(GRID), grouped.inverse(GRID))
    assert (both.tradeoff(GRID) <= better + 1e-12).all()
    assert both.tradeoff(GRID) == pytest.approx(better, abs=0.01)


def test_group_of_points_matches_the_closed_form():
    kink = 1 / (math.e + 1)
    exact = curve_by_points([0.0, kink], pure_dp(1.0).tradeoff([0.0, kink]))
    for copies in (2, 3, 8):
        ours, closed = exact.group(copies), pure_dp(1.0).group(copies)
        assert ours.power(GRID) == pytest.approx(closed.power(GRID), abs=1e-12)
        assert ours.level([0.01, 0.5, 0.9]) == pytest.approx(closed.level([0.01, 0.5, 0.9]), rel=1e-9)
        assert ours.inverse(GRID) == pytest.approx(closed.inverse(GRID), abs=1e-12)
        # Rounded to the safe side.
        assert closed.advantage().value - 1e-15 <= ours.advantage().value <= closed.advantage().value + 1e-12


def test_group_level_below_the_jump_is_unsafe():
    curve = curve_by_points([0.0, 0.5], [0.99, 0.0]).group(3)
    at_zero = float(curve.power(0.0))
    assert at_zero > 0.01
    assert float(curve.level(at_zero * 0.99)) < 0
    assert float(curve.level(at_zero * 1.01)) >= 0


def test_a_million_copies_of_a_curve_saturate():
    curve = points_of(pure_dp(0.5)).group(10**6)
    assert isinstance(curve, GroupedCurve)
    assert float(curve.power(0.01)) == pytest.approx(1.0)


def test_gaussian_composition_is_exact():
    assert compose(GaussianDP(3.0), GaussianDP(4.0)) == GaussianDP(5.0)


@pytest.mark.parametrize("count", [2, 3, 7])
def test_pure_composition_against_the_binomial(count):
    # The product of k randomised responses is told apart by the number of truths, which is binomial.
    p = math.e / (1 + math.e)
    ours = compose(*[pure_dp(1.0)] * count)
    truth = sum(
        math.comb(count, j) * max(p**j * (1 - p) ** (count - j) - (1 - p) ** j * p ** (count - j), 0)
        for j in range(count + 1)
    )
    assert ours.advantage().value == pytest.approx(truth, abs=1e-14)
    assert ours.slack == 0


def test_mixed_composition_brackets_and_states_its_slack():
    # A pure claim of eps = 0 adds nothing, so the Gaussian curve is the truth.
    ours, truth = compose(GaussianDP(1.0), pure_dp(0.0)), GaussianDP(1.0)
    excess = ours.power(GRID) - truth.power(GRID)
    assert excess.min() >= -1e-12
    assert excess.max() <= ours.slack
    assert ours.slack < 1e-3


@pytest.mark.parametrize("mu", [0.01, 0.3, 1.0, 3.0, 6.0])
def test_mixed_composition_never_undercuts_the_truth_anywhere(mu):
    # Near-equal levels once gave slopes of pure rounding, and with them a curve 2e-5 below the truth.
    ours, truth = compose(GaussianDP(mu), pure_dp(0.0), pure_dp(0.0)), GaussianDP(mu)
    levels = np.unique(np.concatenate([np.geomspace(1e-12, 0.5, 20001), 1 - np.geomspace(1e-12, 0.5, 20001)]))
    excess = ours.power(levels) - truth.power(levels)
    assert excess.min() >= 0
    assert excess.max() <= ours.slack


@settings(max_examples=25, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.builds(ApproxDP, st.floats(0, 4), st.sampled_from([0.0, 1e-5, 0.1])),
            st.builds(GaussianDP, st.floats(0, 3)),
        ),
        min_size=2,
        max_size=3,
    ),
    st.integers(2, 4),
)
def test_composition_and_group_leak_at_least_as_much(claims, copies):
    whole = compose(*claims)
    for claim in claims:
        assert (whole.power(GRID) >= claim.power(GRID) - 1e-12).all()
    claim = points_of(claims[0])
    assert (claim.group(copies).power(GRID) >= claim.power(GRID) - 1e-12).all()


@settings(max_examples=50)
@given(st.floats(0, 4), st.sampled_from([0.0, 1e-3, 0.2]), st.floats(0, 1))
def test_points_laws(epsilon, delta, a):
    curve = points_of(ApproxDP(epsilon, delta))
    assert curve.tradeoff(a) <= 1 - a + 1e-12
    # Chords of a convex curve lie on or above it.
    assert curve.tradeoff(a) >= ApproxDP(epsilon, delta).tradeoff(a) - 1e-12
    beta = float(curve.tradeoff(a))
    if 1e-9 < beta < 1 - 1e-9:
        assert curve.tradeoff(curve.inverse(beta)) == pytest.approx(beta, abs=1e-9)


def test_compose_refuses_what_is_no_claim():
    with pytest.raises(InputError) as error:
        compose(pure_dp(1.0), 3, "x")
    assert [fault.field for fault in error.value.faults] == ["claims[1]", "claims[2]"]
    with pytest.raises(InputError, match="at least one claim"):
        compose()
