"""The tests behind a verdict hold their level exactly, and say what they should on cases done by hand."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from davylamp.bounds.intervals import clopper_pearson
from davylamp.errors import InputError
from davylamp.verdict.statistics import guesser_p, holm, rate, trials_to_rule_out, uniform_ranks_p


def test_one_rank_is_its_share_of_the_space() -> None:
    for rank in (1, 2, 37, 100):
        assert uniform_ranks_p([rank], 100) == pytest.approx(rank / 100)


def test_two_ranks_of_four_by_hand() -> None:
    # sf of Gamma(2) at x is exp(-x) (1 + x); with x = -ln(r1 r2 / 16) that is q (1 - ln q), q = r1 r2 / 16.
    products = {1: 1, 2: 2, 3: 2, 4: 3, 6: 2, 8: 2, 9: 1, 12: 2, 16: 1}
    assert sum(products.values()) == 16
    exact = 0.0
    for product, count in products.items():
        exact += count / 16
        pair = next(p for p in itertools.product(range(1, 5), repeat=2) if math.prod(p) == product)
        found = uniform_ranks_p(pair, 4)
        assert found == pytest.approx(product / 16 * (1 - math.log(product / 16)))
        assert found >= exact - 1e-12


@pytest.mark.parametrize(
    "worst",
    [
        [1, 2, 3, 4],
        [1, 2, 3, 4, 5, 6, 7],
        # Ties are counted against the secret: two tied at the top rank 2 both, and so on.
        [2, 2, 5, 5, 5, 6],
        [5, 5, 5, 5, 5],
        [1, 6, 6, 6, 6, 6],
    ],
)
@pytest.mark.parametrize("secrets", [1, 2, 4])
def test_the_chance_of_a_small_p_is_at_most_p(worst: list[int], secrets: int) -> None:
    # Every secret is uniform over the space: all cases, each as likely.
    found = sorted(uniform_ranks_p(ranks, len(worst)) for ranks in itertools.product(worst, repeat=secrets))
    for place, p_value in enumerate(found, start=1):
        # The largest place of equal values is the chance of one as small.
        assert place / len(found) <= p_value + 1e-12


def test_p_is_the_share_of_random_ranks_that_are_as_good() -> None:
    # With a million candidates ranks are nearly continuous and the test nearly exact. 40,000 draws put a standard
    # error of at most 0.0025 on a share; four are allowed.
    rng, candidates = np.random.default_rng(0), 10**6
    sums = -np.log(rng.integers(1, candidates + 1, (40_000, 16)) / candidates).sum(axis=1)
    for ranks in rng.integers(1, candidates + 1, (8, 16)) * 0.8 + 1:
        share = (sums >= -np.log(ranks / candidates).sum()).mean()
        assert uniform_ranks_p(ranks.tolist(), candidates) == pytest.approx(share, abs=0.01)


def test_what_cannot_be_told_apart_is_no_evidence() -> None:
    assert uniform_ranks_p([10_000] * 16, 10_000) == 1.0


@pytest.mark.parametrize("ranks", [[], [0.5, 3], [11], [float("nan")]])
def test_what_is_no_rank_is_refused(ranks: list[float]) -> None:
    with pytest.raises(InputError, match="worst_ranks"):
        uniform_ranks_p(ranks, 10)


def test_a_guesser_by_hand() -> None:
    assert guesser_p(0, 16, 1e-4) == 1.0
    assert guesser_p(1, 16, 1e-4) == pytest.approx(1 - (1 - 1e-4) ** 16)
    assert guesser_p(2, 2, 0.25) == pytest.approx(0.0625)
    assert guesser_p(1, 2, 0.25) == pytest.approx(1 - 0.75**2)


def test_holm_by_hand() -> None:
    # 4 x 0.005 = 0.02, 3 x 0.01 = 0.03, 2 x 0.03 = 0.06, 1 x 0.04 raised to the one before.
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.4, 0.6]) == pytest.approx([0.8, 0.8])
    assert holm([0.2]) == [0.2]
    assert holm([]) == []


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12), st.floats(0.001, 0.5))
def test_holm_rejects_step_by_step(p_values: list[float], alpha: float) -> None:
    adjusted = holm(p_values)
    rejected = set[int]()
    for place, index in enumerate(sorted(range(len(p_values)), key=lambda at: p_values[at])):
        if p_values[index] * (len(p_values) - place) >= alpha:
            break
        rejected.add(index)
    assert {index for index, value in enumerate(adjusted) if value < alpha} == rejected
    assert all(raw <= value <= 1 for raw, value in zip(p_values, adjusted, strict=True))


def test_any_error_among_true_nulls_is_as_rare_as_alpha() -> None:
    # 2,000 audits of eight cells of 16 uniform ranks: the share with any adjusted p below 0.2 is at most 0.2, plus
    # three standard errors of 0.009.
    rng, candidates = np.random.default_rng(3), 10_000
    wrong = 0
    for ranks in rng.integers(1, candidates + 1, (2_000, 8, 16)):
        wrong += min(holm([uniform_ranks_p(cell, candidates) for cell in ranks])) < 0.2
    assert 0.1 < wrong / 2_000 < 0.2 + 0.027


@pytest.mark.parametrize("confidence", [0.8, 0.9375, 0.95, 0.99])
@pytest.mark.parametrize("share", [0.01, 0.05, 0.25, 0.5, 0.9, 0.999])
def test_trials_to_rule_out_is_the_first_number_that_does(share: float, confidence: float) -> None:
    trials = trials_to_rule_out(share, confidence)
    assert clopper_pearson(0, trials, confidence).high <= share
    assert trials == 1 or clopper_pearson(0, trials - 1, confidence).high > share


def test_trials_to_rule_out_by_hand() -> None:
    # 0.75^13 = 0.0238 < 0.025 < 0.0317 = 0.75^12
    assert trials_to_rule_out(0.25, 0.95) == 13
    # 0.5^5 is the tail itself.
    assert trials_to_rule_out(0.5, 1 - 2 * 0.5**5) == 5


@pytest.mark.parametrize(("share", "confidence"), [(0.0, 0.95), (1.0, 0.95), (0.5, 1.0)])
def test_a_rate_that_cannot_be_ruled_out_is_refused(share: float, confidence: float) -> None:
    with pytest.raises(InputError):
        trials_to_rule_out(share, confidence)


def test_a_rate_carries_its_interval() -> None:
    found = rate(3, 12, 0.9)
    expected = clopper_pearson(3, 12, 0.9)
    assert (found.successes, found.trials, found.low, found.high) == (3, 12, expected.low, expected.high)
    assert found.value == 0.25
