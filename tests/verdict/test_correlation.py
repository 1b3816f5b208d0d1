"""Spearman's correlation: hand-counted p-values, ties, and what too few things cannot say."""

from __future__ import annotations

import math
from itertools import permutations

import numpy as np
import pytest
from scipy import stats

from davylamp.errors import InputError
from davylamp.verdict.correlation import Spearman, spearman, spearman_interval


def test_four_in_order_have_the_two_extreme_orders_of_24() -> None:
    found = spearman([1, 2, 3, 4], [10, 20, 30, 40])
    assert (found.rho, found.method) == (pytest.approx(1), "exact")
    assert found.p == pytest.approx(2 / 24)


def test_p_is_the_share_of_all_orders_with_ties_as_they_are() -> None:
    x, y = [1, 1, 2, 3, 5, 4], [2, 3, 3, 1, 4, 4]
    found = spearman(x, y)
    assert found.rho == pytest.approx(stats.spearmanr(x, y).statistic)
    every = [stats.spearmanr(x, order).statistic for order in permutations(y)]
    assert found.p == pytest.approx(np.mean(np.abs(every) >= abs(found.rho or 0) - 1e-9))


def test_beyond_eight_it_is_students_approximation() -> None:
    x, y = np.random.default_rng(1).normal(size=(2, 15))
    found, held = spearman(x, y), stats.spearmanr(x, y)
    assert (found.rho, found.p) == (pytest.approx(held.statistic), pytest.approx(held.pvalue))
    assert found.method == "t"


def test_a_perfect_order_of_many_has_no_p_of_zero() -> None:
    assert spearman(range(10), range(10)).p == pytest.approx(2 / math.factorial(10))
    tied = [0, 0, 0, *range(1, 8)]
    assert spearman(tied, tied).p == pytest.approx(2 * 6 / math.factorial(10))


@pytest.mark.parametrize(("x", "y", "said"), [([1, 2, 3], [1, 2, 3], "at least 4, not 3"), ([1] * 5, range(5), "same")])
def test_too_few_or_constant_is_empty_and_says_why(x: list[int], y: list[int], said: str) -> None:
    found = spearman(x, list(y))
    assert (found.rho, found.p, found.method) == (None, None, None)
    assert said in found.reason


def test_null_p_values_are_no_smaller_than_they_should_be() -> None:
    draws = np.random.default_rng(5).normal(size=(400, 2, 6))
    small = sum((spearman(*each).p or 1) <= 0.1 for each in draws)
    # Exact and discrete: at most 10% in the mean; 400 draws stray by 3 sigma of 1.5%.
    assert small / 400 <= 0.1 + 3 * math.sqrt(0.09 / 400)


def test_unequal_lists_are_refused() -> None:
    with pytest.raises(InputError, match="equally long"):
        spearman([1, 2], [1])


def test_an_interval_is_the_one_of_bonett_and_wright() -> None:
    # By hand: z = atanh(0.5) = 0.54931, half = 1.95996 sqrt(1.125 / 25) = 0.41577.
    low, high = spearman_interval(Spearman(28, 0.5, 0.01, "t")) or (0, 0)
    assert (low, high) == (pytest.approx(0.13275, abs=1e-4), pytest.approx(0.74653, abs=1e-4))
    assert spearman_interval(Spearman(9, 0.5, 0.2, "t")) is None
    assert spearman_interval(Spearman(20, 1.0, 0.0, "exact")) is None
    assert spearman_interval(Spearman(20, reason="none")) is None
