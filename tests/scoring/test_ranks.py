"""Ranks count ties by mid-rank, and exposure is what its formula says."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from davylamp.errors import InputError, ScoringError
from davylamp.scoring.ranks import TIE_MARGIN, random_rank_exposure, rank_among


@pytest.mark.parametrize(
    ("values", "true", "rank", "tied"),
    [
        ([-1.0, -2.0, -3.0, -4.0], 0, 1.0, 0),
        ([-1.0, -2.0, -3.0, -4.0], 3, 4.0, 0),
        ([-1.0, -2.0, -2.0, -4.0], 1, 2.5, 1),
        ([-2.0, -2.0, -2.0, -1.0], 0, 3.0, 2),
        ([-7.0], 0, 1.0, 0),
    ],
)
def test_ranks_by_hand(values: list[float], true: int, rank: float, tied: int) -> None:
    found = rank_among(np.asarray(values), true, "c0001")
    assert (found.rank, found.tied, found.candidates) == (rank, tied, len(values))
    assert found.log_likelihood == values[true]
    assert found.exposure == pytest.approx(math.log2(len(values)) - math.log2(rank))


def test_candidates_within_the_margin_are_tied() -> None:
    values = np.asarray([-5.0, -5.0 + 0.9 * TIE_MARGIN, -5.0 - 0.9 * TIE_MARGIN, -5.0 + 1.1 * TIE_MARGIN, -5.1])
    found = rank_among(values, 0, "c0001")
    # One above, two tied, one below: 1 + 1 + 2 / 2.
    assert (found.rank, found.tied) == (3.0, 2)


def test_a_candidate_at_the_very_margin_is_in_one_group() -> None:
    rng = np.random.default_rng(0)
    for own in -rng.uniform(1, 60, 200):
        values = np.asarray([own, own + TIE_MARGIN, own - TIE_MARGIN])
        found = rank_among(values, 0, "c0001")
        assert found.rank - found.tied / 2 in (1.0, 2.0)
        assert found.tied <= 2 - (found.rank - found.tied / 2 == 2.0)


@given(st.lists(st.integers(-6, 0), min_size=1, max_size=40), st.data())
def test_rank_is_the_mean_place_over_all_orders_of_the_tied(values: list[int], data: st.DataObject) -> None:
    true = data.draw(st.integers(0, len(values) - 1))
    found = rank_among(np.asarray(values, dtype=np.float64), true, "c0001")
    places = [place for place, value in enumerate(sorted(values, reverse=True), start=1) if value == values[true]]
    assert found.rank == pytest.approx(sum(places) / len(places))
    assert found.tied == len(places) - 1
    assert found.exposure == pytest.approx(-math.log2(found.rank / len(values)))


def test_all_tied_is_the_middle_rank() -> None:
    found = rank_among(np.full(10_000, -16.1), 77, "c0001")
    assert found.exposure == pytest.approx(math.log2(10_000) - math.log2(10_001 / 2))
    assert found.tied == 9_999


def test_candidates_of_probability_zero_are_last_and_tied_with_each_other() -> None:
    values = np.asarray([-1.0, -np.inf, -3.0, -np.inf, -np.inf])
    assert rank_among(values, 2, "c0001").rank == 2
    found = rank_among(values, 1, "c0001")
    assert (found.rank, found.tied) == (4.0, 2)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_no_number_is_refused_and_the_canary_named(value: float) -> None:
    with pytest.raises(ScoringError, match=r"canary c0042: .* 1 of 3 candidates"):
        rank_among(np.asarray([-1.0, value, -2.0]), 0, "c0042")


@pytest.mark.parametrize("candidates", [1, 2, 3, 4, 10, 97, 1_000, 10_000, 100_000])
def test_mean_exposure_of_a_random_rank_is_its_sum(candidates: int) -> None:
    direct = np.mean(math.log2(candidates) - np.log2(np.arange(1, candidates + 1)))
    assert random_rank_exposure(candidates) == pytest.approx(direct, abs=1e-9)


@pytest.mark.parametrize("candidates", [10_000, 10**6, 10**12])
def test_mean_exposure_of_a_random_rank_to_thirty_digits(candidates: int) -> None:
    with mpmath.workdps(30):
        exact = mpmath.log(candidates, 2) - mpmath.loggamma(candidates + 1) / mpmath.log(2) / candidates
        assert random_rank_exposure(candidates) == pytest.approx(float(exact), abs=1e-9)


def test_mean_exposure_of_a_random_rank_tends_to_one_over_ln_2() -> None:
    assert random_rank_exposure(1) == 0
    values = [random_rank_exposure(10**power) for power in range(7)]
    assert values == sorted(values)
    # By Stirling's series the distance is log2(2 pi N) / 2N.
    assert 1 / math.log(2) - values[-1] == pytest.approx(math.log2(2 * math.pi * 1e6) / 2e6, rel=1e-3)


def test_no_candidate_is_refused() -> None:
    with pytest.raises(InputError, match="candidates"):
        random_rank_exposure(0)
