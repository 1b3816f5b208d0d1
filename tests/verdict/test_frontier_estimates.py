"""Means over canaries, records and seeds: by hand, and how often their intervals hold the truth."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from davylamp.measures.utility import token_mean
from davylamp.verdict.frontier_estimates import (
    Sums,
    bootstrapped_mean,
    crossed_mean,
    median_of,
    nested_mean,
    perplexity_of,
    share_of,
)


def test_one_seed_has_students_interval_over_its_units() -> None:
    values = np.asarray([1.0, 2.0, 4.0])
    held = stats.t.interval(0.95, 2, loc=values.mean(), scale=stats.sem(values))
    assert nested_mean([values], 0.95) == pytest.approx((values.mean(), *held))


def test_several_seeds_are_what_was_drawn() -> None:
    seeds = [np.asarray([1.0, 3.0]), np.asarray([5.0]), np.asarray([3.0, 3.0, 3.0])]
    held = stats.t.interval(0.95, 2, loc=10 / 3, scale=stats.sem([2, 5, 3]))
    assert nested_mean(seeds, 0.95) == pytest.approx((10 / 3, *held))


def test_one_value_has_no_interval() -> None:
    assert nested_mean([np.asarray([2.0])], 0.95) == (2.0, None, None)
    assert crossed_mean(Sums(np.asarray([[6.0]]), np.asarray([3.0])), 0.95) == (2.0, None, None)


def test_records_of_one_seed_have_the_interval_of_a_held_out_loss() -> None:
    nats, tokens = [10.0, 30.0, 12.0, 55.0], [5, 14, 6, 20]
    found = crossed_mean(Sums(np.asarray([nats]), np.asarray(tokens, dtype=float)), 0.95)
    assert found == pytest.approx(token_mean(nats, tokens))


def test_equal_values_have_an_interval_without_width() -> None:
    assert crossed_mean(Sums(np.full((3, 4), 2.0), np.ones(4)), 0.95) == (2.0, 2.0, 2.0)


def test_intervals_over_records_and_seeds_hold_the_truth_as_often_as_they_say() -> None:
    draws = np.random.default_rng(3)
    held = {"nested": 0, "crossed": 0}
    for _ in range(600):
        seeds = draws.normal(0, 0.5, size=(3, 1))
        low, high = nested_mean([*(seeds + draws.normal(0, 1, size=(3, 20)))], 0.95)[1:]
        held["nested"] += low <= 0 <= high  # type: ignore[operator]
        records = draws.normal(0, 1, size=20)
        low, high = crossed_mean(Sums(seeds + records + draws.normal(0, 0.3, size=(3, 20)), np.ones(20)), 0.95)[1:]
        held["crossed"] += low <= 0 <= high  # type: ignore[operator]
    # 600 draws stray by 3 sigma of 0.9%. Crossed errs to the wide side.
    assert abs(held["nested"] / 600 - 0.95) < 3 * math.sqrt(0.95 * 0.05 / 600)
    assert 0.95 - 3 * math.sqrt(0.95 * 0.05 / 600) < held["crossed"] / 600


def test_a_perplexity_is_never_below_one_and_never_infinite() -> None:
    found = perplexity_of((0.1, -0.3, 9000.0), 5, 2)
    assert (found.value, found.low) == (pytest.approx(math.exp(0.1)), 1.0)
    assert found.high is not None
    assert math.isfinite(found.high)


def test_medians_and_shares_are_over_all_canaries() -> None:
    found = median_of(np.asarray([0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 12.6201]), 12.62, 2, 0.95)
    assert (found.value, found.n, found.seeds, found.low) == (3.5, 8, 2, 0.0)
    few = [median_of(np.arange(count, dtype=float), 12.62, 1, 0.95) for count in (5, 6)]
    # All of five values lie on one side of the median with a chance of 2 / 32, more than 5%.
    assert [(each.low, each.high) for each in few] == [(None, None), (0.0, 5.0)]
    assert median_of(np.arange(5.0), 12.62, 1, 0.9).low == 0.0
    share = share_of(np.asarray([True] * 3 + [False] * 7), 1, 0.95)
    assert (share.value, share.low, share.high) == pytest.approx((0.3, 0.0667, 0.6525), abs=1e-4)


def test_the_bootstrap_spreads_as_the_mean_does() -> None:
    values = np.random.default_rng(0).uniform(size=400)
    found = bootstrapped_mean([values], 0.95, 4000)
    error = values.std() / 20
    # The ends of 4,000 resamples stray by some 3% of the error.
    assert (found.low, found.high) == pytest.approx(
        (values.mean() - 1.96 * error, values.mean() + 1.96 * error), abs=0.15 * error
    )
    assert bootstrapped_mean([values], 0.95, 4000) == found
    assert bootstrapped_mean([np.asarray([0.5])], 0.95, 100).low is None


def test_the_bootstrap_draws_seeds_too() -> None:
    wide = bootstrapped_mean([np.zeros(50), np.ones(50)], 0.95, 1000)
    assert (wide.value, wide.low, wide.high) == (0.5, 0.0, 1.0)
