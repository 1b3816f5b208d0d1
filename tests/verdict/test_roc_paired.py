"""Two scores on the same canaries: against a jackknife, by hand, and on scores that know equally little."""

import math

import numpy as np
import pytest
from scipy import stats

from davylamp.errors import InputError
from davylamp.verdict.roc import auc
from davylamp.verdict.roc_paired import auc_difference, decisions


def correlated(rng, members, nonmembers, shifts=(0.0, 0.0)):
    """Two scores that share half of what they see."""
    pairs = []
    for count, by in ((members, shifts), (nonmembers, (0.0, 0.0))):
        shared = rng.normal(size=count)
        pairs.append([shared + rng.normal(size=count) + shift for shift in by])
    return tuple((pairs[0][at], pairs[1][at]) for at in (0, 1))


def area(members, nonmembers):
    return np.mean([(x > y) + 0.5 * (x == y) for x in members for y in nonmembers])


def test_the_variance_of_the_difference_is_that_of_a_jackknife():
    first, second = correlated(np.random.default_rng(0), 12, 20, (1.0, 2.0))
    variances, sizes = [], (12, 20)
    for kind, size in enumerate(sizes):
        differences = []
        for at in range(size):
            left = [
                [np.delete(each[side], at) if side == kind else each[side] for side in (0, 1)]
                for each in (first, second)
            ]
            differences.append(area(*left[1]) - area(*left[0]))
        variances.append((size - 1) ** 2 / size * np.var(differences, ddof=1))
    found = auc_difference(first, second, 0.9)
    freedom = sum(variances) ** 2 / sum(v**2 / (n - 1) for v, n in zip(variances, sizes, strict=True))
    assert found.method == "delong"
    assert found.value == pytest.approx(area(*second) - area(*first), abs=1e-12)
    reach = stats.t.ppf(0.95, freedom) * math.sqrt(sum(variances))
    assert [found.low, found.high] == pytest.approx([found.value - reach, found.value + reach], rel=1e-9)
    assert found.p == pytest.approx(2 * stats.t.sf(abs(found.value) / math.sqrt(sum(variances)), freedom), rel=1e-9)
    turned = auc_difference(second, first, 0.9)
    assert [turned.value, turned.low, turned.high, turned.p] == pytest.approx(
        [-found.value, -found.high, -found.low, found.p], rel=1e-12
    )


def test_scores_that_know_equally_much_rarely_seem_to_differ():
    rng = np.random.default_rng(1)
    found = [auc_difference(*correlated(rng, 16, 60, (1.0, 1.0))) for _ in range(400)]
    wrong = sum(each.p <= 0.05 for each in found)
    assert all((each.p <= 0.05) == (not each.low <= 0 <= each.high) for each in found if abs(each.p - 0.05) > 1e-9)
    # 5% of 400, and four standard errors.
    assert wrong <= 20 + 4 * math.sqrt(400 * 0.05 * 0.95)


def test_what_both_share_drops_out():
    rng = np.random.default_rng(2)
    first, second = correlated(rng, 60, 200, (0.5, 1.5))
    found = auc_difference(first, second)
    assert found.low > 0
    assert found.p < 1e-3
    # The intervals of the two alone are wider together than that of the difference.
    alone = [auc(*each) for each in (first, second)]
    assert found.high - found.low < sum(each.high - each.low for each in alone)


def test_a_score_and_a_function_of_it_are_the_same():
    members, nonmembers = np.arange(5.0, 21), np.arange(30.0)
    found = auc_difference((members, nonmembers), (np.exp(members), np.exp(nonmembers)))
    assert (found.value, found.low, found.high, found.p, found.method) == (0.0, 0.0, 0.0, 1.0, "same order")


def test_two_that_change_places_are_no_function():
    members, nonmembers = np.arange(5.0, 21), np.arange(30.0)
    other = nonmembers.copy()
    other[[0, 1]] = other[[1, 0]]
    found = auc_difference((members, nonmembers), (members, other))
    assert (found.value, found.method) == (0.0, "hoeffding")
    # Hoeffding's bound with 16 pairs: sqrt(2 log(40) / 16).
    assert found.high == pytest.approx(math.sqrt(2 * math.log(40) / 16)) == pytest.approx(-found.low)


def test_few_that_differ_are_no_ground_for_a_small_error():
    members, nonmembers = np.arange(100.0, 116), np.arange(50.0)
    other = members.copy()
    other[:2] = -1.0
    found = auc_difference((members, nonmembers), (other, nonmembers))
    assert (found.value, found.method) == (-2 / 16, "hoeffding")
    assert found.low < found.value < 0 < found.high


def test_decisions_by_hand():
    found = decisions([1, 1, 1, 1, 0, 0, 0], 0.5, [9, 2, 2, 2, 9, 9, 2], 5)
    assert (found.first_only, found.second_only, found.both, found.neither) == (3, 2, 1, 1)
    # Two or fewer of five fair coins, twice: 2 * (1 + 5 + 10) / 32.
    assert found.p == pytest.approx(1.0)
    assert decisions([1.0] * 6, 0.5, [1.0] * 6, 1.0).p == pytest.approx(2 / 2**6)


def test_other_canaries_are_refused():
    with pytest.raises(InputError, match="2 members and 2 non-members"):
        auc_difference(([1.0], [0.0, 2.0]), ([1.0, 2.0], [0.0, 2.0]))
    with pytest.raises(InputError, match="second is '2 scores'"):
        decisions([1.0], 0.0, [1.0, 2.0], 0.0)
    with pytest.raises(InputError, match="confidence"):
        auc_difference(([1.0], [0.0]), ([1.0], [0.0]), 0)
