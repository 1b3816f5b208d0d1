import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from davylamp.bounds import (
    ApproxDP,
    GaussianDP,
    curve_by_points,
    extraction_bound,
    min_entropy_threshold,
    pure_dp,
    replace_bracket,
    replace_threshold_bracket,
    risk_regime,
    safe_baseline,
)
from davylamp.bounds.mechanisms import list_success
from davylamp.errors import InputError


def test_bound_by_hand():
    # Low regime: e * 0.01. High regime: 1 - 0.645/e, the paper's "0.76" for kappa 0.355 at eps = 1.
    assert extraction_bound(pure_dp(1.0), 0.01) == pytest.approx(0.0271828182846)
    assert extraction_bound(pure_dp(1.0), 0.355) == pytest.approx(0.76271776, abs=1e-8)
    assert extraction_bound(ApproxDP(1.0, 1e-5), 0.01) == pytest.approx(0.0271928182846)
    assert extraction_bound(pure_dp(1.0), 1.0) == 1.0
    assert extraction_bound(pure_dp(1.0), 0.0) == 0.0


def test_million_kappas_at_once_keep_their_shape():
    kappas = np.linspace(0, 1, 1_000_000).reshape(1000, 1000)
    bounds = extraction_bound(pure_dp(1.0), kappas)
    assert bounds.shape == kappas.shape
    assert bounds[0, 0] == 0
    assert (np.diff(bounds.ravel()) >= 0).all()


def test_threshold_in_both_regimes():
    # First regime: eps log2 e + log2(m/risk); the example prints 9.09 bits.
    assert min_entropy_threshold(pure_dp(4.0), 0.1) == pytest.approx(4 / math.log(2) + math.log2(10), rel=1e-13)
    assert round(min_entropy_threshold(pure_dp(4.0), 0.1), 2) == 9.09
    # The paper's sweep: budget 4, risk 0.1, eps = 1 (it prints 6.77, rounded up from 6.7646).
    assert round(min_entropy_threshold(pure_dp(1.0), 0.1, budget=4), 4) == 6.7646
    # Second regime: the naive formula gives 1.59 bits, the right one -log2(1 - e * 0.1).
    assert risk_regime(1.0, 0.9) == 2
    assert min_entropy_threshold(pure_dp(1.0), 0.9) == pytest.approx(-math.log2(1 - math.e * 0.1), rel=1e-12)
    assert risk_regime(1.0, 0.5) == 1
    assert risk_regime(1.0, math.e / (math.e + 1)) == 1
    # k copies in the first regime.
    assert min_entropy_threshold(pure_dp(1.0), 0.1, 4, copies=3) == pytest.approx(
        3 / math.log(2) + math.log2(40), rel=1e-12
    )


def test_no_baseline_is_safe_below_the_jump():
    assert safe_baseline(ApproxDP(1.0, 0.01), 0.005) is None
    assert min_entropy_threshold(ApproxDP(1.0, 0.01), 0.005) is None
    assert safe_baseline(ApproxDP(1.0, 0.01), 0.01) == 0.0
    assert min_entropy_threshold(ApproxDP(1.0, 0.01), 0.01) == math.inf
    masked = safe_baseline(ApproxDP(1.0, 0.01), [0.005, 0.1])
    assert masked.mask.tolist() == [True, False]


@given(
    st.one_of(
        st.builds(ApproxDP, st.floats(0, 10), st.sampled_from([0.0, 1e-6, 0.01])),
        st.builds(GaussianDP, st.floats(0, 6)),
    ),
    st.floats(1e-6, 1 - 1e-6),
    st.integers(1, 5),
)
def test_safe_baselines_are_safe_and_no_larger_one_is(claim, risk, copies):
    baseline = safe_baseline(claim, risk, copies)
    if baseline is None:
        assert extraction_bound(claim, 0.0, copies) > risk
        return
    assert extraction_bound(claim, baseline, copies) <= risk * (1 + 1e-12)
    # A relative 1e-3 more (and an absolute 1e-9 for the second regime, a difference of numbers near 1) is not safe.
    larger = baseline * (1 + 1e-3) + 1e-9
    if larger < 1 and claim.advantage().value > 1e-3:
        assert extraction_bound(claim, larger, copies) > risk


def test_replace_bracket_is_what_k_ary_response_attains():
    # Independent route: the law of k-ary randomised response on 10 values and the best list of 1.
    n, eps = 10, 1.5
    law = np.full((n, n), 1 / (math.exp(eps) + n - 1))
    np.fill_diagonal(law, math.exp(eps) / (math.exp(eps) + n - 1))
    attained = list_success(np.full(n, 1 / n), law, 1)
    bracket = replace_bracket(pure_dp(eps), 1 / n)
    assert bracket.low == pytest.approx(attained, rel=1e-12)
    assert bracket.high == extraction_bound(pure_dp(eps), 0.1)
    assert bracket.low < bracket.high


@pytest.mark.parametrize("claim", [ApproxDP(1.0, 1e-3), GaussianDP(1.0), ApproxDP(0.5, 0.0, 3)])
@pytest.mark.parametrize("budget", [1, 4])
def test_replace_bracket_for_other_curves_satisfies_the_claim(claim, budget):
    n = 64
    bracket = replace_bracket(claim, budget / n, budget)
    assert budget / n <= bracket.low <= bracket.high
    # Two secrets' subset-selection laws differ on lists that hold exactly one of them.
    s = bracket.low
    level = (1 - s) * budget / (n - 1)
    assert float(claim.power(level)) >= s * (n - budget) / (n - 1) - 1e-9


def test_replace_threshold_bracket():
    bracket = replace_threshold_bracket(pure_dp(1.0), 0.1, budget=4)
    # Odds of risk are e^eps times the odds of kappa in the attained end.
    odds = 0.1 / 0.9 / math.e
    assert bracket.low == pytest.approx(2 - math.log2(odds / (1 + odds)), rel=1e-9)
    assert bracket.high == min_entropy_threshold(pure_dp(1.0), 0.1, 4)
    assert bracket.low < bracket.high
    assert replace_threshold_bracket(ApproxDP(1.0, 0.2), 0.1) is None
    with pytest.raises(InputError, match="symmetric"):
        replace_bracket(curve_by_points([0.0, 0.2], [0.9, 0.5]), 0.1)


@pytest.mark.parametrize(
    ("call", "fields"),
    [
        (lambda: extraction_bound(pure_dp(1.0), 1.1), ["kappa"]),
        (lambda: extraction_bound(pure_dp(1.0), math.nan), ["kappa"]),
        (lambda: extraction_bound(3.0, -1.0, 0), ["claim", "kappa", "copies"]),
        (lambda: safe_baseline(pure_dp(1.0), 0.0), ["risk"]),
        (lambda: safe_baseline(pure_dp(1.0), 1.0), ["risk"]),
        (lambda: min_entropy_threshold(pure_dp(1.0), 2.0, 0, 0), ["risk", "budget", "copies"]),
        (lambda: min_entropy_threshold(pure_dp(1.0), 0.5, 1.5), ["budget"]),
        (lambda: replace_bracket(pure_dp(1.0), -0.1, 0), ["kappa", "budget"]),
        (lambda: risk_regime(-1.0, 0.0), ["epsilon", "risk"]),
    ],
)
def test_bad_input_names_every_fault(call, fields):
    with pytest.raises(InputError) as error:
        call()
    assert [fault.field for fault in error.value.faults] == fields
