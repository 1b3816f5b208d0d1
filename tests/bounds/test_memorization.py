import math

import pytest

from davylamp.bounds import (
    ApproxDP,
    GaussianDP,
    conditional_gap,
    damping,
    dp_sgd,
    functional_table,
    group_conversion,
    k_copies,
    memorization_cap,
    per_instance_caps,
    pure_dp,
)
from davylamp.errors import InputError


def test_cap_scales_with_the_truncation_and_is_refused_without():
    assert memorization_cap(pure_dp(1.0)) == pytest.approx(math.tanh(0.5))
    assert memorization_cap(pure_dp(1.0), upper=3.0) == pytest.approx(3 * math.tanh(0.5))
    for unbounded in (None, math.inf):
        with pytest.raises(InputError, match="without truncation has no bound"):
            memorization_cap(pure_dp(1.0), upper=unbounded)
    with pytest.raises(InputError, match="upper"):
        memorization_cap(pure_dp(1.0), upper=0.0)


def test_each_record_has_its_own_cap():
    caps = per_instance_caps([pure_dp(0.1), pure_dp(2.0), GaussianDP(1.0)])
    assert caps == pytest.approx([math.tanh(0.05), math.tanh(1.0), 0.3829249225])


def test_two_copies_at_eps_1_are_below_the_group_bound():
    answer = k_copies(pure_dp(1.0), 2)
    assert answer.advantage == pytest.approx(1 - math.exp(-1))  # the paper's 0.632
    assert answer.group_advantage == pytest.approx(math.tanh(1))  # the paper's 0.762
    assert answer.exact
    # The orbit passes 1/2 in the middle and climbs by f.
    assert answer.orbit == pytest.approx([0.5 / math.e, 0.5, 1 - 0.5 / math.e])
    for low, high in zip(answer.orbit[:-1], answer.orbit[1:], strict=True):
        assert float(pure_dp(1.0).power(low)) == pytest.approx(high)


def test_conversion_of_approximate_dp_by_hand_and_its_limits():
    converted = group_conversion(ApproxDP(0.5, 1e-5), 3)
    assert converted.epsilon == 1.5
    assert converted.delta == pytest.approx(1e-5 * (math.exp(1.5) - 1) / (math.exp(0.5) - 1))
    assert group_conversion(ApproxDP(0.0, 1e-5), 3).delta == pytest.approx(3e-5)
    assert group_conversion(ApproxDP(10.0, 0.1), 3) is None
    assert group_conversion(ApproxDP(700.0, 1e-300), 2) is None
    assert group_conversion(pure_dp(700.0), 3) == pure_dp(2100.0)
    # Conservative: never below the exact curve's.
    for copies in (1, 2, 3, 6):
        answer = k_copies(ApproxDP(0.5, 1e-3), copies)
        assert answer.advantage <= answer.group_advantage * (1 + 1e-12)
        assert not answer.exact
    assert k_copies(ApproxDP(10.0, 0.1), 3).group_advantage == 1.0


def test_copies_of_other_curves():
    assert k_copies(GaussianDP(0.5), 4).advantage == pytest.approx(GaussianDP(2.0).advantage().value)
    assert k_copies(GaussianDP(0.5), 4).group_advantage is None
    run = dp_sgd(1.1, 0.01, 100, interval=1e-3)
    assert run.advantage().value < k_copies(run, 4).advantage < 4 * run.advantage().value + 1e-9
    long = k_copies(pure_dp(1e-3), 5000)
    assert len(long.orbit) == 1000
    assert long.orbit[-1] - long.orbit[0] == pytest.approx(long.advantage)


def test_functionals():
    assert conditional_gap(1000, 1e-4) == pytest.approx(0.4)
    with pytest.raises(InputError, match=r"1/\(2n\)"):
        conditional_gap(1000, 1e-3)
    assert damping(0.001, 1000) == pytest.approx(0.999**1000)
    assert damping(1.0, 0) == 1.0
    assert damping(1.0, 3) == 0.0
    assert damping(1e-300, 10**6) == 1.0
    with pytest.raises(InputError) as error:
        damping(-0.1, -1)
    assert [fault.field for fault in error.value.faults] == ["mass", "records"]


def test_damping_is_what_the_copy_release_shows():
    # Exact enumeration: a release that says whether the target occurs, three other records, mass 0.2.
    omega, n = 0.2, 3
    with_it, without = 1.0, 1 - (1 - omega) ** n
    assert with_it - without == pytest.approx(damping(omega, n))


def test_functional_table_has_a_cap_each():
    rows = functional_table(pure_dp(1.0), records=100, mass=1e-4)
    assert [row["functional"].split(" ")[0] for row in rows] == [
        "replace-one",
        "leave-one-out",
        "population-conditional",
    ]
    assert rows[0]["cap"] == pytest.approx(1 - math.exp(-1))
    assert rows[1]["cap"] == pytest.approx(math.tanh(0.5))
    assert rows[2]["cap"] == pytest.approx(1 - math.exp(-1) + 0.04)
    assert functional_table(pure_dp(1.0))[2]["cap"] is None
