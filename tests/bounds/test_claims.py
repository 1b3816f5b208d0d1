import json
import math
from pathlib import Path

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special

from davylamp.bounds import (
    ApproxDP,
    GaussianDP,
    extraction_bound,
    k_copies,
    min_entropy_threshold,
    pure_dp,
    safe_baseline,
)
from davylamp.errors import InputError

GOLDEN = Path(__file__).parents[2].parent / "shared" / "golden" / "bounds.json"


def golden_rows():
    return json.loads(GOLDEN.read_text())["rows"] if GOLDEN.exists() else []


def claim_of(row):
    given_claim = row["claim"]
    if given_claim["kind"] == "gdp":
        return GaussianDP(float(given_claim["mu"]))
    return ApproxDP(float(given_claim["epsilon"]), float(given_claim.get("delta", 0)))


def measured(row):
    match row["q"]:
        case "advantage":
            return claim_of(row).advantage().value
        case "k_copy_advantage":
            return k_copies(pure_dp(float(row["epsilon"])), row["copies"]).advantage
        case "group_advantage":
            return k_copies(pure_dp(float(row["epsilon"])), row["copies"]).group_advantage
        case "extraction_bound":
            return extraction_bound(claim_of(row), float(row["kappa"]))
        case "safe_baseline":
            return safe_baseline(claim_of(row), float(row["risk"]))
        case "min_entropy_threshold":
            return min_entropy_threshold(pure_dp(float(row["epsilon"])), float(row["risk"]), row["budget"])
    raise AssertionError(row["q"])


@pytest.mark.skipif(not GOLDEN.exists(), reason="the shared golden values are not beside this checkout")
def test_every_golden_row_to_1e_12():
    rows = golden_rows()
    assert len(rows) > 50
    for row in rows:
        if row["value"] is None:
            assert measured(row) is None, row
        else:
            assert measured(row) == pytest.approx(float(row["value"]), rel=1e-12, abs=0), row


# The oracle: the textbook formulas at 1600 bits, from the very doubles that the code is given, so that e^-700, k = 1e6
# and 1e-300 all keep hundreds of digits. The k-fold curve is iterated step by step, not by the code's closed form.
mp.mp.prec = 1600
EPSILONS = [0.0, 1e-8, 1e-3, 0.5, 1.0, 4.0, 40.0, 700.0]
DELTAS = [0.0, 1e-300, 1e-9, 1e-5, 0.1, 0.9]
LEVELS = [0.0, 1e-300, 1e-100, 1e-15, 1e-4, 0.1, 0.25, 0.5, 0.75, 0.9, 1 - 2**-40, 1.0]


def oracle_f(a, eps, delta):
    grow = mp.exp(eps)
    return max(mp.mpf(0), 1 - delta - grow * a, (1 - delta - a) / grow)


def oracle_level(r, eps, delta):
    """sup {a : 1 - f(a) <= r} by the two branches; None where no level is safe."""
    grow = mp.exp(eps)
    best = max((r - delta) / grow, 1 - delta - (1 - r) * grow)
    return best if best >= 0 else None


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_curve_and_power_against_the_oracle(epsilon):
    for delta in DELTAS:
        claim = ApproxDP(epsilon, delta)
        for a, power, miss in zip(LEVELS, claim.power(LEVELS), claim.tradeoff(LEVELS), strict=True):
            f = oracle_f(mp.mpf(a), mp.mpf(epsilon), mp.mpf(delta))
            # The power is exact in relative terms. f is too, but where it is a difference of numbers near 1.
            assert float(power) == pytest.approx(float(1 - f), rel=1e-12, abs=0), (epsilon, delta, a)
            assert float(miss) == pytest.approx(float(f), rel=1e-12, abs=3e-16), (epsilon, delta, a)
            assert 0 <= miss <= 1
            assert 0 <= power <= 1


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("copies", [2, 3, 8, 41])
def test_k_fold_curve_against_step_by_step_iteration(epsilon, copies):
    for delta in DELTAS:
        claim = ApproxDP(epsilon, delta).group(copies)
        for a, power in zip(LEVELS, claim.power(LEVELS), strict=True):
            reached = mp.mpf(a)
            for _ in range(copies):
                reached = 1 - oracle_f(reached, mp.mpf(epsilon), mp.mpf(delta))
            assert float(power) == pytest.approx(float(reached), rel=1e-12, abs=0), (epsilon, delta, a, copies)


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("copies", [1, 2, 7])
def test_safe_level_against_the_oracle_and_never_above_it(epsilon, copies):
    for delta in DELTAS:
        claim = ApproxDP(epsilon, delta)
        for risk in [1e-300, 1e-12, 0.01, 0.1, 0.5, 0.7, 0.99, 1 - 2**-40]:
            truth = mp.mpf(risk)
            for _ in range(copies):
                truth = None if truth is None else oracle_level(truth, mp.mpf(epsilon), mp.mpf(delta))
            ours = safe_baseline(claim, risk, copies)
            if truth is None:
                assert ours is None, (epsilon, delta, risk)
                continue
            assert ours is not None, (epsilon, delta, risk)
            assert 0 <= ours <= truth, (epsilon, delta, risk, ours)
            # Where alpha* is a difference of numbers near 1, 1 - risk and 1 - delta each carry half an ulp, and
            # every undone step multiplies that by e^eps.
            slack = 1e-15 * math.exp(min(epsilon * copies, 30)) if risk > 0.4 or delta > 0 else 0
            assert ours == pytest.approx(float(truth), rel=1e-12, abs=slack), (epsilon, delta, risk)


@pytest.fixture
def fewer_digits():
    with mp.workprec(400):
        yield


@pytest.mark.usefixtures("fewer_digits")
@pytest.mark.parametrize("mu", [0.0, 1e-8, 0.5, 1.0, 6.0, 40.0])
def test_gaussian_curve_against_the_oracle(mu):
    def quantile(a):
        return mp.findroot(lambda x: mp.log(mp.ncdf(x)) - mp.log(mp.mpf(a)), mp.mpf(special.ndtri(a)))

    claim = GaussianDP(mu)
    for a in [1e-300, 1e-100, 1e-15, 1e-4, 0.1, 0.5, 0.9]:
        power = mp.ncdf(quantile(a) + mp.mpf(mu))
        assert float(claim.power(a)) == pytest.approx(float(power), rel=1e-12, abs=0), (mu, a)
        miss = float(mp.ncdf(-quantile(a) - mp.mpf(mu)))
        if miss > 1e-300:  # below, the double's own exponent ends
            assert float(claim.tradeoff(a)) == pytest.approx(miss, rel=1e-12, abs=0), (mu, a)
        assert extraction_bound(claim, a) >= float(power)
    assert claim.power(0.0) == 0
    assert claim.power(1.0) == 1


@pytest.mark.parametrize("copies", [1, 2, 3, 1000, 999_999, 10**6])
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_k_copy_constant_at_extremes(epsilon, copies):
    e = mp.mpf(epsilon)
    odd = 1 - 2 * mp.exp(-(copies - 1) * e / 2) / (mp.exp(e) + 1)
    truth = odd if copies % 2 else 1 - mp.exp(-copies * e / 2)
    answer = k_copies(pure_dp(epsilon), copies)
    assert answer.advantage == pytest.approx(float(truth), rel=1e-12, abs=0)
    assert answer.group_advantage == pytest.approx(float(mp.tanh(copies * e / 2)), rel=1e-12, abs=0)
    # The group bound is only equal for one copy (or where both have rounded to the same double).
    assert answer.advantage <= answer.group_advantage * (1 + 1e-12)
    # The printed level attains the constant on the k-fold curve.
    at = answer.orbit[0]
    assert answer.orbit[-1] - at == pytest.approx(float(truth), rel=1e-9, abs=1e-15)
    if epsilon and at < 1e-290:
        return  # the starting level is below the smallest double
    assert float(answer.curve.power(at)) - at == pytest.approx(float(truth), rel=1e-9, abs=1e-15)


def test_known_values_by_hand():
    assert pure_dp(1.0).advantage().value == pytest.approx(0.46211715726)  # tanh(1/2)
    assert pure_dp(1.0).advantage().at == pytest.approx(1 / (math.e + 1))
    approx = ApproxDP(1.0, 0.1).advantage()
    assert approx.value == pytest.approx(0.1 + 0.9 * math.tanh(0.5))
    assert approx.at == pytest.approx(0.9 / (math.e + 1))
    assert GaussianDP(2.0).advantage().value == pytest.approx(0.682689492137)  # one sigma either side
    assert GaussianDP(2.0).advantage().at == pytest.approx(0.158655253931)


claims = st.one_of(
    st.builds(ApproxDP, st.floats(0, 12), st.sampled_from([0.0, 1e-9, 0.01, 0.3]), st.integers(1, 9)),
    st.builds(GaussianDP, st.floats(0, 8)),
)
levels = st.lists(st.floats(0, 1), min_size=3, max_size=3).map(sorted)


@given(claims, levels)
def test_curve_is_convex_falling_and_below_the_diagonal(claim, three):
    low, middle, high = three
    f = claim.tradeoff([low, middle, high])
    assert (f <= 1 - np.array(three) + 1e-15).all()
    assert f[0] >= f[1] - 1e-15
    assert f[1] >= f[2] - 1e-15
    if high - low > 1e-6:
        share = (middle - low) / (high - low)
        assert f[1] <= (1 - share) * f[0] + share * f[2] + 1e-12


@given(claims, st.floats(0, 1))
def test_symmetric_curves_undo_themselves(claim, a):
    assert claim.symmetric
    # f(f(a)) <= a; rounding f(a) by 1 ulp moves f(f(a)) by at most the slope there, which falling f allows upwards
    # only through the argument: step it down by a few ulps' worth first.
    assert claim.tradeoff(np.minimum(claim.tradeoff(a) + 1e-15, 1.0)) <= a + 1e-12
    assert np.array_equal(claim.inverse(a), claim.tradeoff(a))


@given(claims, st.floats(1e-6, 1 - 1e-6))
def test_level_and_power_are_inverse(claim, risk):
    level = float(claim.level(risk))
    if level < 0:
        assert float(claim.power(0.0)) > risk
    elif level > 0:
        # Relative: a level near 1 loses digits of its complement, which the slope (at most e^(k eps)) magnifies.
        back = float(claim.power(level))
        assert back <= risk + 1e-9
        if level < 0.9:
            assert back == pytest.approx(risk, rel=1e-6)


@given(st.floats(0, 8), st.floats(0, 8), st.floats(0, 0.9), st.floats(0, 0.9), st.integers(1, 6), st.floats(0, 1))
def test_monotone_in_every_parameter(e1, e2, d1, d2, k, a):
    e1, e2, d1, d2 = min(e1, e2), max(e1, e2), min(d1, d2), max(d1, d2)
    base = float(ApproxDP(e1, d1, k).power(a)) - 1e-14
    assert float(ApproxDP(e2, d1, k).power(a)) >= base
    assert float(ApproxDP(e1, d2, k).power(a)) >= base
    assert float(ApproxDP(e1, d1, k + 1).power(a)) >= base
    assert float(GaussianDP(e2).power(a)) >= float(GaussianDP(e1).power(a)) - 1e-14


@settings(max_examples=50)
@given(st.floats(0, 6), st.floats(0, 0.5), st.integers(2, 6))
def test_advantage_is_the_largest_gap(epsilon, delta, copies):
    claim = ApproxDP(epsilon, delta, copies)
    best = claim.advantage()
    grid = np.linspace(0, 1, 4001)
    gaps = claim.power(grid) - grid
    assert best.value >= gaps.max() - 1e-14
    # The power's slope is at most e^(k eps) only below the maximiser; the grid step of 1/4000 bounds the miss there.
    assert float(claim.power(best.at)) - best.at == pytest.approx(best.value, abs=1e-9)


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: ApproxDP(-1.0), "epsilon"),
        (lambda: ApproxDP(math.nan), "epsilon"),
        (lambda: ApproxDP(math.inf), "epsilon"),
        (lambda: ApproxDP(1.0, 1.0), "delta"),
        (lambda: ApproxDP(1.0, -1e-9), "delta"),
        (lambda: ApproxDP(1.0, 0.0, 0), "copies"),
        (lambda: GaussianDP(-0.1), "mu"),
        (lambda: pure_dp(1.0).power(1.5), "alpha"),
        (lambda: pure_dp(1.0).power([0.1, math.nan]), "alpha[1]"),
        (lambda: pure_dp(1.0).tradeoff(-0.1), "alpha"),
        (lambda: pure_dp(1.0).level(0.0), "risk"),
        (lambda: pure_dp(1.0).level(1.0), "risk"),
        (lambda: pure_dp(1.0).group(0), "copies"),
        (lambda: GaussianDP(1.0).group(1.5), "copies"),
    ],
)
def test_bad_input_is_refused_by_name(make, field):
    with pytest.raises(InputError) as error:
        make()
    assert [fault.field for fault in error.value.faults] == [field]
    assert error.value.faults[0].allowed


def test_all_faults_at_once():
    with pytest.raises(InputError) as error:
        ApproxDP(-1.0, 2.0, 0)
    assert [fault.field for fault in error.value.faults] == ["epsilon", "delta", "copies"]


@pytest.mark.filterwarnings("error")
def test_no_overflow_no_nan_no_negative_probability_at_any_extreme():
    risks = np.array([1e-300, 1e-12, 0.1, 0.5, 0.999, 1 - 2**-53])
    made = [ApproxDP(e, d, k) for e in [*EPSILONS, 1e-320, 1e300] for d in DELTAS for k in (1, 2, 1000, 10**6)]
    made += [GaussianDP(mu).group(k) for mu in (0.0, 1e-300, 1.0, 40.0) for k in (1, 10**6)]
    for claim in made:
        for values in (claim.power(LEVELS), claim.tradeoff(LEVELS), extraction_bound(claim, LEVELS)):
            assert ((values >= 0) & (values <= 1)).all(), claim
            assert (np.diff(values) >= -1e-15).all() or (np.diff(values) <= 1e-15).all(), claim
        levels_of = claim.level(risks)
        assert (np.isfinite(levels_of) & (levels_of <= 1)).all(), claim
        best = claim.advantage()
        assert 0 <= best.value <= 1, claim
        assert 0 <= best.at <= 1, claim
