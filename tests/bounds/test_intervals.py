"""Intervals cover what they say they cover."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from davylamp.bounds.intervals import Interval, clopper_pearson, least_for_median, median_interval
from davylamp.errors import InputError


@pytest.mark.parametrize(
    ("successes", "trials", "confidence", "low", "high"),
    [
        # With no success, or no failure, the open end is a power of the tail.
        (0, 16, 0.95, 0.0, 1 - 0.025 ** (1 / 16)),
        (16, 16, 0.95, 0.025 ** (1 / 16), 1.0),
        (0, 3, 0.9, 0.0, 1 - 0.05 ** (1 / 3)),
        (1, 10, 0.95, 1 - 0.975 ** (1 / 10), 0.44502),
        # As tables print them.
        (5, 20, 0.95, 0.08657, 0.49105),
    ],
)
def test_clopper_pearson_against_closed_forms_and_tables(
    successes: int, trials: int, confidence: float, low: float, high: float
) -> None:
    found = clopper_pearson(successes, trials, confidence)
    assert (found.low, found.high) == pytest.approx((low, high), abs=6e-6)


@given(st.integers(1, 60), st.data(), st.sampled_from([0.8, 0.95, 0.999]))
def test_clopper_pearson_ends_solve_the_binomial_tails(trials: int, data: st.DataObject, confidence: float) -> None:
    successes = data.draw(st.integers(0, trials))
    found, tail = clopper_pearson(successes, trials, confidence), (1 - confidence) / 2
    if successes == 0:
        assert found.low == 0
    else:
        assert tail_sum(trials, found.low, range(successes, trials + 1)) == pytest.approx(tail, rel=1e-8)
    if successes == trials:
        assert found.high == 1
    else:
        assert tail_sum(trials, found.high, range(successes + 1)) == pytest.approx(tail, rel=1e-8)


def tail_sum(trials: int, rate: float, successes: range) -> float:
    """A sum of binomial probabilities, in 30 digits and without a special function."""
    with mpmath.workdps(30):
        rate = mpmath.mpf(rate)
        return float(sum(mpmath.binomial(trials, k) * rate**k * (1 - rate) ** (trials - k) for k in successes))


@pytest.mark.parametrize("side", ["two", "lower", "upper"])
@pytest.mark.parametrize(("trials", "confidence"), [(1, 0.95), (7, 0.9), (16, 0.95), (40, 0.99)])
def test_clopper_pearson_covers_every_rate(side: str, trials: int, confidence: float) -> None:
    intervals = [clopper_pearson(k, trials, confidence, side) for k in range(trials + 1)]  # type: ignore[arg-type]
    # Coverage jumps at the ends of intervals, so that both sides of each are looked at.
    ends = np.asarray([end for each in intervals for end in (each.low, each.high)])
    rates = np.unique(np.clip(np.concatenate([np.linspace(0, 1, 201), ends - 1e-9, ends + 1e-9]), 0, 1))
    for rate in rates:
        inside = [each.low <= rate <= each.high for each in intervals]
        assert stats.binom.pmf(np.arange(trials + 1), trials, rate)[inside].sum() >= confidence - 1e-7


def test_one_sided_ends_are_tighter_and_leave_the_other_open() -> None:
    both = clopper_pearson(5, 20)
    lower, upper = clopper_pearson(5, 20, side="lower"), clopper_pearson(5, 20, side="upper")
    assert both.low < lower.low < 0.25 < upper.high < both.high
    assert (lower.high, upper.low) == (1.0, 0.0)
    assert clopper_pearson(5, 20, 0.9) == clopper_pearson(5, 20, 0.9, "two")
    assert lower.low == pytest.approx(clopper_pearson(5, 20, 0.9).low)


@pytest.mark.parametrize(
    ("successes", "trials", "confidence", "names"),
    [
        (-1, 4, 0.95, ["successes"]),
        (5, 4, 0.95, ["successes"]),
        (0, 0, 0.95, ["trials"]),
        (1.5, 4, 0.95, ["successes"]),
        (1, 2, 1.0, ["confidence"]),
        (9, 4, 0.0, ["confidence", "successes"]),
    ],
)
def test_arguments_outside_their_range_are_all_named(
    successes: int, trials: int, confidence: float, names: list[str]
) -> None:
    with pytest.raises(InputError) as caught:
        clopper_pearson(successes, trials, confidence)
    assert [fault.field for fault in caught.value.faults] == names


@pytest.mark.parametrize("size", [6, 8, 16, 31])
@pytest.mark.parametrize("confidence", [0.9, 0.95])
def test_median_interval_covers_the_median_as_often_as_it_says(size: int, confidence: float) -> None:
    # By its own law: the r-th smallest and the r-th largest miss the median if fewer than r values lie on one side.
    values = np.arange(1.0, size + 1)
    found = median_interval(values, confidence)
    r = int(found.low)
    assert (found.low, found.high) == (r, size + 1 - r)
    miss = [2 * sum(math.comb(size, k) for k in range(cut)) / 2**size for cut in (r, r + 1)]
    assert miss[0] <= 1 - confidence < miss[1]


def test_median_interval_covers_random_exposures() -> None:
    # Exposures of random ranks: exponential in nats, median ln 2. Of 16 values the 4th and the 13th cover it with
    # chance 1 - 2 * (1 + 16 + 120 + 560) / 65536 = 0.9787; of 4,000 samples the share errs by 0.0023 (one sigma).
    rng = np.random.default_rng(16)
    found = [median_interval(rng.exponential(size=16)) for _ in range(4000)]
    covered = sum(interval.low <= np.log(2) <= interval.high for interval in found)
    assert covered / 4000 == pytest.approx(0.9787, abs=3 * 0.0023)


def test_too_few_values_leave_the_whole_support() -> None:
    # Of five values the extremes miss the median with chance 2 / 32, more than 0.05.
    assert median_interval([1.0, 2.0, 3.0, 4.0, 5.0], support=(0.0, 13.0)) == Interval(0.0, 13.0, 0.95)
    assert median_interval([1.0, 2.0, 3.0, 4.0, 5.0], 0.9).low == 1.0
    with pytest.raises(InputError, match="support"):
        median_interval([-1.0, 2.0], support=(0.0, 13.0))


@given(st.lists(st.floats(-50, 50), min_size=6, max_size=30))
def test_median_interval_lies_within_the_values_and_holds_their_median(values: list[float]) -> None:
    found = median_interval(values)
    assert min(values) <= found.low <= np.median(values) <= found.high <= max(values)


def test_median_interval_moves_and_grows_with_the_values() -> None:
    values = np.random.default_rng(2).normal(size=16)
    found, moved = median_interval(values), median_interval(3 * values + 5)
    assert (moved.low, moved.high) == pytest.approx((3 * found.low + 5, 3 * found.high + 5))


@pytest.mark.parametrize("values", [[], [1.0, float("nan")], [float("inf")], [[1.0], [2.0]]])
def test_median_of_no_numbers_is_refused(values: list[float]) -> None:
    with pytest.raises(InputError, match="values"):
        median_interval(values)


def test_median_interval_names_all_faults() -> None:
    with pytest.raises(InputError) as caught:
        median_interval([], 2.0)
    assert [fault.field for fault in caught.value.faults] == ["values", "confidence"]


@pytest.mark.parametrize("confidence", [0.5, 0.9, 0.95, 0.99, 0.999])
def test_the_least_count_for_a_median_is_where_the_interval_stops_being_the_support(confidence: float) -> None:
    least = least_for_median(confidence)
    support = (-1.0, 1e6)
    values = np.arange(float(least))
    assert median_interval(values, confidence, support) == Interval(0.0, least - 1.0, confidence)
    if least > 1:
        assert median_interval(values[:-1], confidence, support) == Interval(*support, confidence)


def test_the_least_count_for_a_median_takes_a_confidence() -> None:
    assert least_for_median() == 6
    with pytest.raises(InputError, match="confidence"):
        least_for_median(1.0)
