import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from davylamp.bounds import (
    ApproxDP,
    GaussianDP,
    audit,
    clopper_pearson,
    epsilon_lower_bound,
    extraction_bound,
    mu_lower_bound,
    plan_audit,
    pure_dp,
)
from davylamp.bounds.mechanisms import SubsetRelease
from davylamp.errors import InputError


def test_three_verdicts():
    claim = pure_dp(1.0)
    refuted = audit(claim, 0.01, 20, 100)
    assert refuted.verdict == "refuted"
    assert refuted.extraction_bound == pytest.approx(0.0271828, abs=1e-6)
    assert refuted.success_lower_bound == pytest.approx(clopper_pearson(20, 100, 0.95, "lower").low)
    assert audit(claim, 0.01, 3, 100).verdict == "consistent"
    # With a baseline of 0.95 the claim allows 0.982; ten successes in ten only show 0.741.
    never = audit(claim, 0.95, 10, 10)
    assert never.verdict == "could-not-refute"
    assert never.reachable_lower_bound == pytest.approx(0.05**0.1)


def test_empirical_epsilon_by_hand():
    # p = 0.2, kappa = 0.01: ln 20 in the low branch, ln(0.99/0.8) in the high one.
    assert epsilon_lower_bound(0.01, 0.2) == pytest.approx(math.log(20))
    assert epsilon_lower_bound(0.5, 0.9) == pytest.approx(math.log(5))  # high branch: 0.5/0.1
    assert epsilon_lower_bound(0.01, 0.2, delta=0.1) == pytest.approx(math.log(10))
    assert epsilon_lower_bound(0.2, 0.1) == 0.0
    assert epsilon_lower_bound(0.0, 0.1) == math.inf
    assert epsilon_lower_bound(0.0, 0.1, delta=0.2) == 0.0
    assert mu_lower_bound(0.5, 0.841344746068543) == pytest.approx(1.0)
    assert mu_lower_bound(0.5, 0.841344746068543, copies=2) == pytest.approx(0.5)
    assert mu_lower_bound(0.5, 0.4) == 0.0


@given(st.floats(1e-6, 0.99), st.floats(1e-6, 1 - 1e-6), st.sampled_from([0.0, 1e-5, 0.05]), st.integers(1, 5))
def test_empirical_bounds_sit_on_the_curve(kappa, success, delta, copies):
    eps = epsilon_lower_bound(kappa, success, delta, copies)
    mu = mu_lower_bound(kappa, success, copies)
    if eps > 0:
        # Every smaller level is refuted, and the level itself just explains the success.
        assert extraction_bound(ApproxDP(eps * (1 - 1e-9), delta), kappa, copies) <= success
        assert extraction_bound(ApproxDP(eps * (1 + 1e-6) + 1e-9, delta), kappa, copies) >= success * (1 - 1e-9)
    if mu > 0:
        assert extraction_bound(GaussianDP(mu * (1 - 1e-9)), kappa, copies) <= success * (1 + 1e-9)
    assert eps >= 0
    assert mu >= 0


def test_a_true_claim_is_refuted_no_more_often_than_the_confidence_says():
    # The gadget attains the bound exactly: the worst case for a false alarm. 2000 audits of 200 canaries, exact
    # binomial: the rate of refutation must stay below 5% (Clopper-Pearson is conservative), so the count below
    # 2000 * 0.05 plus four standard deviations (sqrt(2000 * .05 * .95) = 9.7).
    gadget = SubsetRelease(pure_dp(1.0), 64, 4)
    hits = np.random.default_rng(5).binomial(200, gadget.success, 2000)
    refuted = sum(audit(pure_dp(1.0), 4 / 64, int(k), 200, budget=4).verdict == "refuted" for k in hits)
    assert refuted <= 139


def test_plan_is_the_smallest_number_with_the_power():
    claim = pure_dp(1.0)
    (plan,) = plan_audit(claim, 0.5, [10])
    kappa, bound = 2**-10, extraction_bound(claim, 2**-10)
    assert (plan.kappa, plan.extraction_bound) == (kappa, bound)

    def power(n):
        counts = np.arange(n + 1)
        refutes = np.array([clopper_pearson(int(k), n, 0.95, "lower").low > bound for k in counts])
        return float(stats.binom.pmf(counts, n, 0.5)[refutes].sum())

    assert power(plan.canaries) == pytest.approx(plan.power)
    assert plan.power >= 0.8
    assert all(power(n) < 0.8 for n in range(1, plan.canaries))
    assert audit(claim, kappa, plan.successes_needed, plan.canaries).verdict == "refuted"
    assert audit(claim, kappa, plan.successes_needed - 1, plan.canaries).verdict != "refuted"


def test_plan_against_a_weaker_claim_and_where_it_is_hopeless():
    plans = plan_audit(pure_dp(1.0), pure_dp(3.0), [2, 6, 10, 16], budget=2)
    assert [p.bits for p in plans] == [2, 6, 10, 16]
    # A 16-bit secret is hardly ever extracted even at eps = 3, so more canaries are needed than at 6 bits.
    assert plans[1].canaries < plans[2].canaries < plans[3].canaries
    (hopeless,) = plan_audit(pure_dp(3.0), pure_dp(1.0), [8])
    assert hopeless.canaries is None
    assert hopeless.power is None


def test_copies_tell_more_cautiously():
    one, four = audit(pure_dp(1.0), 0.01, 20, 100), audit(pure_dp(1.0), 0.01, 20, 100, copies=4)
    assert four.verdict == "consistent"
    assert four.epsilon_lower_bound < one.epsilon_lower_bound


def test_bad_audits_name_every_fault():
    with pytest.raises(InputError) as error:
        audit(pure_dp(1.0), 1.5, 11, 10, confidence=1.0, budget=0, copies=0, delta=1.0)
    assert [f.field for f in error.value.faults] == [
        "kappa",
        "successes",
        "confidence",
        "budget",
        "copies",
        "delta",
    ]
    with pytest.raises(InputError, match="trials"):
        audit(pure_dp(1.0), 0.1, 0, 0)
    with pytest.raises(InputError) as error:
        plan_audit(pure_dp(1.0), 1.5, [1], power=0.0, budget=4)
    assert [f.field for f in error.value.faults] == ["actual", "bits[0]", "power"]
