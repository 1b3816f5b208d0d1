"""Bounds from independent trials and from extractions, and the arithmetic that all epsilon bounds share."""

import json
import math
from pathlib import Path

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special, stats

from davylamp.bounds import (
    ApproxDP,
    Counts,
    GaussianDP,
    audit,
    claim_epsilon,
    clopper_pearson,
    curve_by_points,
    dp_sgd,
    extraction_epsilon,
    gaussian_epsilon,
    pure_dp,
    two_run_audit,
    two_run_epsilon,
)
from davylamp.errors import InputError

PEERS = json.loads((Path(__file__).parent / "golden" / "peers.json").read_text(encoding="utf-8"))


def fields(error):
    return [fault.field for fault in error.value.faults]


def gaussian_delta(epsilon, mu):
    """The privacy profile of mu-GDP in 60 digits."""
    with mpmath.workdps(60):
        e, m = mpmath.mpf(epsilon), mpmath.mpf(mu)
        return mpmath.ncdf(m / 2 - e / m) - mpmath.exp(e) * mpmath.ncdf(-m / 2 - e / m)


@pytest.mark.parametrize("mu", [1e-3, 0.05, 0.5, 1.0, 4.0, 30.0])
@pytest.mark.parametrize("delta", [1e-12, 1e-5, 0.01, 0.3])
def test_gaussian_epsilon_encloses_the_exact_root(mu, delta):
    low, high = (gaussian_epsilon(mu, delta, side) for side in ("down", "up"))
    if gaussian_delta(0, mu) <= delta:
        assert low == 0
        assert high < 1e-9
        return
    assert gaussian_delta(low, mu) >= delta >= gaussian_delta(high, mu)
    assert high - low < 1e-8 * max(1.0, high)


def test_gaussian_epsilon_at_the_ends():
    assert gaussian_epsilon(0.0, 0.0) == 0
    assert gaussian_epsilon(1.0, 0.0) == math.inf
    # mu^2/2 + mu Phi^-1(1-delta) to first order.
    assert gaussian_epsilon(1e4, 1e-5) == pytest.approx(5e7 + 1e4 * special.ndtri(1 - 1e-5), rel=1e-6)
    with pytest.raises(InputError) as error:
        gaussian_epsilon(-1.0, 1.0)
    assert fields(error) == ["mu", "delta"]


def test_claim_epsilon():
    assert claim_epsilon(None, 0.1) is None
    assert claim_epsilon(pure_dp(2.0), 0.0) == 2
    assert claim_epsilon(ApproxDP(2.0, 1e-5), 1e-5) == 2
    assert claim_epsilon(ApproxDP(2.0, 1e-5), 1e-6) == math.inf
    # Of the eps-DP curve, delta(eps') = (e^eps - e^eps')/(1 + e^eps).
    smaller = claim_epsilon(pure_dp(2.0), 0.1)
    assert (math.exp(2) - math.exp(smaller)) / (1 + math.exp(2)) == pytest.approx(0.1)
    assert claim_epsilon(GaussianDP(1.0), 1e-5) == pytest.approx(4.37718, abs=1e-4)
    # A lopsided curve has an epsilon for either order; the larger one counts. Vertices (0, .1), (.1, .8), (1, 1).
    lopsided = curve_by_points([0.0, 0.1, 1.0], [0.9, 0.2, 0.0])
    assert claim_epsilon(lopsided, 0.1) == pytest.approx(max(math.log(0.7 / 0.1), math.log((0.9 - 0.1) / 0.2)))
    with pytest.raises(InputError) as error:
        claim_epsilon(3.0, 1.0)
    assert fields(error) == ["claim", "delta"]


def test_claim_epsilon_of_dp_sgd_is_above_the_accountants():
    from dp_accounting import dp_event
    from dp_accounting.pld import PLDAccountant

    accountant = PLDAccountant()
    accountant.compose(dp_event.PoissonSampledDpEvent(0.01, dp_event.GaussianDpEvent(1.0)), 100)
    exact = accountant.get_epsilon(1e-5)
    ours = claim_epsilon(dp_sgd(1.0, 0.01, 100), 1e-5)
    assert exact * (1 - 1e-3) <= ours <= exact * 1.05


# --- Two runs ---------------------------------------------------------------------------------------------------


def test_by_hand():
    # 95 of 100 against 3 of 100, 2.5% on either side.
    low, high = clopper_pearson(95, 100, 0.975, "lower").low, clopper_pearson(3, 100, 0.975, "upper").high
    bound = two_run_epsilon(Counts(95, 100, 3, 100))
    assert bound.eps_low == pytest.approx(max(math.log(low / high), math.log((1 - high) / (1 - low))), rel=1e-9)
    assert (bound.guesses, bound.correct, bound.method) == (200, 192, "two-run")
    with_delta = two_run_epsilon(Counts(95, 100, 3, 100), 0.01).eps_low
    assert with_delta == pytest.approx(
        max(math.log((low - 0.01) / high), math.log((1 - 0.01 - high) / (1 - low))), rel=1e-9
    )
    mu = two_run_epsilon(Counts(95, 100, 3, 100), 1e-5, gaussian=True)
    assert mu.mu_low == pytest.approx(special.ndtri(low) - special.ndtri(high), rel=1e-9)
    assert mu.eps_low == gaussian_epsilon(mu.mu_low, 1e-5)


def test_both_orders_count():
    # Few misses show a large TNR/FNR where the true positives show little, and the other way round.
    few_misses = two_run_epsilon(Counts(1000, 1000, 300, 1000)).eps_low
    few_alarms = two_run_epsilon(Counts(700, 1000, 0, 1000)).eps_low
    assert few_misses == pytest.approx(few_alarms, rel=1e-9)
    assert few_misses > math.log(1000 / 300)


@pytest.mark.parametrize("row", PEERS["scores"]["clopper_pearson"])
def test_agrees_with_jax_privacy(row):
    inside, outside = np.array(PEERS["scores"]["inside"]), np.array(PEERS["scores"]["outside"])
    cut = PEERS["scores"]["threshold"]
    seen = Counts(int((inside >= cut).sum()), inside.size, int((outside >= cut).sum()), outside.size)
    assert two_run_epsilon(seen, row["delta"]).eps_low == pytest.approx(row["epsilon"], rel=1e-9)


@pytest.mark.parametrize(("n", "k"), [(10, 10), (40, 25)])
@pytest.mark.parametrize("gaussian", [False, True])
@pytest.mark.parametrize(("truth", "fpr"), [(0.0, 0.3), (1.0, 0.1), (1.0, 0.4), (2.5, 0.02)])
def test_a_fixed_test_exceeds_the_truth_no_more_often_than_the_confidence_says(n, k, gaussian, truth, fpr):
    # The most powerful test of the claim at this false-positive rate; both counts are binomial, so the chance is a sum.
    claim = GaussianDP(truth) if gaussian else pure_dp(truth)
    tpr = float(claim.power(fpr))
    delta = 1e-5 if gaussian else 0.0
    beyond = 0.0
    for tp in range(n + 1):
        for fp in range(k + 1):
            chance = stats.binom.pmf(tp, n, tpr) * stats.binom.pmf(fp, k, fpr)
            if chance > 1e-9:
                bound = two_run_epsilon(Counts(tp, n, fp, k), delta, gaussian=gaussian)
                beyond += chance * ((bound.mu_low if gaussian else bound.eps_low) > truth)
    assert beyond <= 0.05


@pytest.mark.parametrize("law", ["normal", "tied", "three values", "cauchy"])
@pytest.mark.parametrize("gaussian", [False, True])
def test_null_trials_give_zero(law, gaussian):
    # 200 audits; at most 5% above 0: 10, plus four standard deviations of 3.1.
    rng = np.random.default_rng(4)
    draw = {
        "normal": lambda n: rng.normal(size=n),
        "tied": np.zeros,
        "three values": lambda n: rng.integers(0, 3, n),
        "cauchy": lambda n: rng.standard_cauchy(n) ** 3,
    }[law]
    above = sum(two_run_audit(draw(40), draw(60), 1e-5, gaussian=gaussian).eps_low > 0 for _ in range(200))
    assert above <= 10 + 4 * 3.1


def test_thresholds_of_fixed_rank_keep_the_false_positive_rate():
    # The chance that the true rate above the (j+1)-th highest of n scores exceeds the Clopper-Pearson bound for j
    # errors is exactly the error for a continuous law: 4000 draws, four standard deviations of sqrt(.05 * .95/4000).
    rng = np.random.default_rng(2)
    for j, n in ((0, 20), (5, 50)):
        bound = clopper_pearson(j, n, 0.95, "upper").high
        above = 1 - np.sort(rng.random((4000, n)), axis=1)[:, n - 1 - j]
        assert (above > bound).mean() == pytest.approx(0.05, abs=4 * 0.00345)


def test_scores_by_hand():
    inside, outside = [5.0, 6.0, 7.0, 8.0], [1.0, 2.0, 3.0, 7.5]
    # Above the highest without: 1 of 4, no alarm. Below the lowest with: 3 of 4, no miss. Two tests share the error.
    bound = two_run_audit(inside, outside, wrong=[0.0])
    each = 1 - 0.05 / 4
    high, low = clopper_pearson(0, 4, each, "upper").high, clopper_pearson(1, 4, each, "lower").low
    mirror_low, mirror_high = clopper_pearson(4, 4, each, "lower").low, clopper_pearson(1, 4, each, "upper").high
    candidates = [low / high, (1 - high) / (1 - low), mirror_low / mirror_high, (1 - mirror_high) / (1 - mirror_low)]
    assert bound.eps_low == pytest.approx(max(0.0, *(math.log(c) for c in candidates)), abs=1e-9)
    assert bound.tries == 2


def test_ties_at_the_threshold_do_not_pass():
    # Every score is 1: nothing lies above the threshold, and it counts as if the allowed errors had.
    assert two_run_audit(np.ones(50), np.ones(50)).eps_low == 0
    # Half of the trials with the record share the highest score of those without: the threshold cannot split them.
    assert two_run_audit(np.arange(500) % 2, np.ones(500)).eps_low == 0


def test_separated_scores_are_found_and_turned_ones_are_not():
    rng = np.random.default_rng(0)
    far, near = rng.normal(4.0, 1.0, 300), rng.normal(size=300)
    bound = two_run_audit(far, near, 1e-5, gaussian=True)
    assert 3 < bound.mu_low < 4
    assert two_run_audit(near, far, 1e-5).eps_low == 0
    assert two_run_audit(near, far, 1e-5, gaussian=True).eps_low == 0


@given(st.integers(1, 200), st.integers(1, 200), st.data())
@settings(max_examples=60, deadline=None)
def test_bounds_move_the_right_way(n, k, data):
    tp, fp = data.draw(st.integers(0, n)), data.draw(st.integers(0, k))

    def low(tp, fp, **how):
        return two_run_epsilon(Counts(tp, n, fp, k), 1e-4, **how).eps_low

    for gaussian in (False, True):
        here = low(tp, fp, gaussian=gaussian)
        assert low(min(tp + 1, n), fp, gaussian=gaussian) >= here
        assert low(tp, min(fp + 1, k), gaussian=gaussian) <= here
        assert low(tp, fp, gaussian=gaussian, confidence=0.99) <= here
    seen = Counts(tp, n, fp, k)
    assert two_run_epsilon([seen, seen], 1e-4).eps_low <= low(tp, fp)


def test_verdicts():
    refuted = two_run_epsilon(Counts(95, 100, 3, 100), 1e-5, upper=ApproxDP(1.0, 1e-5))
    assert refuted.verdict == "refuted"
    assert "95 of 100 trials with the record and 3 of 100 without it were called members" in refuted.statement
    assert two_run_epsilon(Counts(5, 9, 3, 9), upper=pure_dp(4.0)).verdict == "could-not-refute"
    assert two_run_epsilon(Counts(50, 100, 50, 100), upper=pure_dp(1.0)).verdict == "consistent"
    gaussian = two_run_epsilon(Counts(95, 100, 3, 100), 1e-5, gaussian=True, upper=GaussianDP(1.0))
    assert gaussian.contradiction
    small = two_run_epsilon(Counts(5100, 10_000, 4500, 10_000), 0.1, gaussian=True)
    assert small.eps_low == 0 < small.mu_low
    assert "with mu below 0.1" in small.statement


def test_what_is_refused():
    with pytest.raises(InputError) as error:
        Counts(3, 2, -1, 0)
    assert fields(error) == ["true_positives", "negatives", "false_positives"]
    with pytest.raises(InputError) as error:
        two_run_epsilon([], 0.0, gaussian=True, upper=pure_dp(1.0), confidence=0.0)
    assert fields(error) == ["seen", "confidence", "delta", "upper"]
    with pytest.raises(InputError) as error:
        two_run_audit([math.nan], [], wrong=[1.0])
    assert fields(error) == ["with_record[0]", "without_record", "wrong[0]"]
    with pytest.raises(InputError) as error:
        two_run_audit([1.0], [0.0], wrong=[])
    assert fields(error) == ["wrong"]


# --- Extraction -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("delta", "copies"), [(0.0, 1), (1e-5, 1), (0.0, 3), (1e-3, 2)])
def test_extraction_is_what_the_audit_of_a_claim_says(delta, copies):
    old = audit(pure_dp(1.0), 1e-3, 12, 100, delta=delta, copies=copies)
    new = extraction_epsilon(12, 100, 1e-3, delta, copies=copies, upper=ApproxDP(1.0, delta))
    assert new.eps_low == old.epsilon_lower_bound_at_delta
    assert (new.guesses, new.correct, new.method) == (100, 12, "extraction")
    assert "12 of 100 secrets came out, where guessing without the release gets 0.001" in new.statement


def test_extraction_verdicts():
    assert extraction_epsilon(12, 100, 1e-3, upper=pure_dp(1.0)).verdict == "refuted"
    assert extraction_epsilon(0, 100, 1e-3, upper=pure_dp(1.0)).verdict == "consistent"
    assert extraction_epsilon(3, 3, 0.5, upper=pure_dp(4.0)).verdict == "could-not-refute"
    endless = extraction_epsilon(1, 3, 0.0)
    assert endless.eps_low == math.inf
    assert "whatever its epsilon" in endless.statement
    assert endless.as_dict()["unbounded"] == ["eps_low", "reach"]


@pytest.mark.parametrize(("kappa", "n"), [(0.5, 20), (0.01, 300), (1e-4, 5000)])
@pytest.mark.parametrize("epsilon", [0.0, 1.0])
def test_extraction_exceeds_the_truth_no_more_often_than_the_confidence_says(kappa, n, epsilon):
    # The best attack succeeds with 1 - f(kappa); the number of successes is binomial.
    success = float(pure_dp(epsilon).power(kappa))
    least = next(s for s in range(n + 1) if extraction_epsilon(s, n, kappa).eps_low > epsilon)
    assert stats.binom.sf(least - 1, n, success) <= 0.05


def test_extraction_refuses():
    with pytest.raises(InputError) as error:
        extraction_epsilon(5, 3, 2.0, -0.1, confidence=1.0)
    assert fields(error) == ["successes", "kappa", "delta", "confidence"]
