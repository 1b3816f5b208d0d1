"""ROC, AUC and operating points: against double loops, closed forms and null data."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from davylamp.bounds.intervals import clopper_pearson
from davylamp.errors import InputError
from davylamp.verdict.roc import auc, needed, operating_point, placements, roc, threshold, welch

NUMBERS = st.lists(st.integers(-3, 3), min_size=1, max_size=8)


def mann_whitney(members, nonmembers):
    """The share of pairs in the right order, counted one by one."""
    return np.mean([(x > y) + 0.5 * (x == y) for x in members for y in nonmembers])


def test_by_hand():
    # 3 beats all of 1, 2, 2; 2 beats 1 and ties twice: (3 + 1 + 2 * 0.5) of 6 pairs.
    assert auc([3, 2], [1, 2, 2]).value == pytest.approx(5 / 6, abs=1e-15)
    below, above = placements([3, 2], [1, 2, 2])
    assert below.tolist() == pytest.approx([1, 2 / 3])
    assert above.tolist() == pytest.approx([1, 0.75, 0.75])


@given(NUMBERS, NUMBERS)
def test_the_auc_is_the_mann_whitney_statistic_and_the_area_under_the_corners(members, nonmembers):
    value = mann_whitney(members, nonmembers)
    assert auc(members, nonmembers).value == pytest.approx(value, abs=1e-12)
    x, y = np.transpose(roc(members, nonmembers))
    assert np.trapezoid(y, x) == pytest.approx(value, abs=1e-12)
    assert (x[0], y[0], x[-1], y[-1]) == (0, 0, 1, 1)
    assert (np.diff(x) >= 0).all()
    assert (np.diff(y) >= 0).all()


@given(NUMBERS, NUMBERS)
def test_order_is_all_that_counts_and_turning_it_round_mirrors_everything(members, nonmembers):
    plain = auc(members, nonmembers)
    bent, turned = auc(np.exp(members), np.exp(nonmembers)), auc(np.negative(members), np.negative(nonmembers))
    assert bent == plain
    assert [turned.value, turned.low, turned.high] == pytest.approx(
        [1 - plain.value, 1 - plain.high, 1 - plain.low], abs=1e-9
    )
    assert 0 <= plain.low <= plain.value <= plain.high <= 1


def test_delong_s_variance_is_the_two_sample_jackknife():
    # Arvesen 1969: leaving out one score of one kind at a time, recounting all pairs each time.
    rng = np.random.default_rng(0)
    members, nonmembers = rng.integers(0, 9, 11) + 2.0, rng.integers(0, 9, 17) + 0.0
    variance = 0.0
    for own, other, first in ((members, nonmembers, True), (nonmembers, members, False)):
        left = [np.delete(own, at) for at in range(len(own))]
        areas = [mann_whitney(each, other) if first else mann_whitney(other, each) for each in left]
        variance += (len(own) - 1) ** 2 / len(own) * np.var(areas, ddof=1)
    error, freedom = welch(*placements(members, nonmembers))
    assert error**2 == pytest.approx(variance, rel=1e-12)
    found = auc(members, nonmembers, 0.9)
    assert found.method == "delong"
    reach = stats.t.ppf(0.95, freedom) * error / (found.value * (1 - found.value))
    ends = 1 / (1 + np.exp(-(math.log(found.value / (1 - found.value)) + np.array([-reach, reach]))))
    assert [found.low, found.high] == pytest.approx(ends, rel=1e-9)


def test_an_auc_of_one_leaves_the_room_that_so_few_pairs_leave():
    # DeLong's variance is 0 here; 16 of 16 independent pairs in order leave Clopper-Pearson's interval.
    found = auc(np.arange(100, 116), np.arange(50))
    assert (found.value, found.high, found.method) == (1.0, 1.0, "hoeffding")
    assert found.low == pytest.approx(0.025 ** (1 / 16), rel=1e-9)
    assert found.low == pytest.approx(clopper_pearson(16, 16).low, rel=1e-9)
    assert auc(np.arange(50), np.arange(100, 116)).high == pytest.approx(1 - found.low, rel=1e-9)


def test_scores_that_are_all_tied_tell_nothing():
    found = auc([1.0] * 20, [1.0] * 30)
    assert (found.value, found.method) == (0.5, "hoeffding")
    # Hoeffding's bound around 1/2: k KL(1/2, theta) = -k/2 log(4 theta (1 - theta)) = log(2 / 0.05).
    room = math.sqrt(1 - math.exp(-2 * math.log(40) / 20)) / 2
    assert [found.low, found.high] == pytest.approx([0.5 - room, 0.5 + room], rel=1e-9)


@pytest.mark.parametrize(("shift", "leaking"), [(1.0, 1.0), (2.0, 1.0), (9.0, 0.8), (0.0, 1.0)])
def test_the_interval_holds_the_closed_form(shift, leaking):
    # Binormal: the AUC is Phi(mu / sqrt 2); members that leak in part mix it with 1/2.
    truth = leaking * stats.norm.cdf(shift / math.sqrt(2)) + (1 - leaking) / 2
    rng = np.random.default_rng(1)
    found = []
    for _ in range(300):
        members = rng.normal(size=16) + shift * (rng.random(16) < leaking)
        found.append(auc(members, rng.normal(size=100)))
    values = np.array([each.value for each in found])
    # Five standard errors of the mean.
    assert values.mean() == pytest.approx(truth, abs=5 * values.std() / math.sqrt(300))
    held = sum(each.low <= truth <= each.high for each in found)
    # At least 94% was measured with 1,000 draws each; below 270 of 300 falls with a chance of 0.3% at 94%.
    assert held >= 270


def test_nothing_is_left_out_or_made_up():
    with pytest.raises(InputError, match=r"members\[1\] is nan.*no row is left out"):
        auc([1.0, math.nan], [0.0])
    with pytest.raises(InputError, match=r"(?s)members.*at least one score.*nonmembers"):
        auc([], [])
    with pytest.raises(InputError, match="confidence"):
        auc([1.0], [0.0], 1.0)
    assert auc([math.inf, 0.0], [-math.inf]).value == 1.0
    assert auc([math.inf], [math.inf]).value == 0.5


def test_corners_by_hand():
    # From the top: 3 (member), 2 (one of each), 1 (two non-members).
    assert roc([3, 2], [2, 1, 1]) == [(0, 0), (0, 0.5), (1 / 3, 1), (1, 1)]


def test_a_threshold_never_lets_more_through_than_was_asked_for():
    scores = np.arange(1000.0)
    # The 10th largest of 1,000: 9 lie above, and another score does with a chance of 10 in 1,001.
    assert threshold(scores, 0.01) == 990
    assert threshold(scores, 0.05) == 950
    # The largest of 1,000; its successor would let another through with a chance of 2 in 1,001, twice what was asked.
    assert threshold(scores, 0.001) == 999
    assert threshold(scores[1:], 0.001) is None
    assert (needed(0.001), needed(0.01), needed(0.05), needed(0.3)) == (1000, 100, 20, 4)


@given(st.lists(st.integers(0, 4), min_size=20, max_size=60), st.sampled_from([0.05, 0.1, 0.3]))
def test_ties_at_the_threshold_do_not_overshoot(scores, fpr):
    cut = threshold(scores, fpr)
    assert np.mean(np.array(scores) > cut) <= fpr
    # And of one score more that is drawn alike, whichever of them it is: what a threshold is for.
    every = np.array(scores)
    above = [every[at] > threshold(np.delete(every, at), fpr) for at in range(len(every)) if len(every) > 1 / fpr]
    assert np.mean(above or [0]) <= fpr


def test_the_realised_rate_of_null_data_is_the_rate_asked_for():
    rng = np.random.default_rng(2)
    true, false, of = 0, 0, 0
    for _ in range(400):
        point = operating_point(rng.normal(size=50), rng.normal(size=100), rng.normal(size=50), 0.05)
        true, false, of = true + point.true_positives.count, false + point.false_positives.count, of + 50
    # 5 of 101 above on average. The variance of a rate over thresholds, Beta(5, 96), and over 50 draws from it.
    p = 5 / 101
    spread = math.sqrt((p * (1 - p) / 102 + p * (1 - p) / 50) / 400)
    assert true / of == pytest.approx(p, abs=5 * spread)
    assert false / of == pytest.approx(p, abs=5 * spread)


def test_an_operating_point_by_hand():
    point = operating_point([200, 99, 98, 1], np.arange(100), [150, 99, 0, 0, 0], 0.02)
    # The second largest of 0 to 99 is the threshold; 99 and 200 lie above, and 98 itself does not.
    assert (point.word, point.threshold, point.chosen_on, point.needed) == ("measured", 98, 100, 50)
    assert (point.true_positives.count, point.true_positives.of, point.true_positives.rate) == (2, 4, 0.5)
    expected = clopper_pearson(2, 4)
    assert (point.true_positives.low, point.true_positives.high) == (expected.low, expected.high)
    assert (point.false_positives.count, point.false_positives.of) == (2, 5)


def test_too_few_non_members_give_no_rate():
    point = operating_point([5.0], np.arange(99), np.arange(99), 0.01)
    assert (point.word, point.needed, point.chosen_on) == ("underpowered", 100, 99)
    assert point.threshold is point.true_positives is point.false_positives is None
    assert operating_point([5.0], [], [], 0.01).word == "underpowered"
    # Enough to choose a threshold, none to see the rate it has.
    assert operating_point([500.0], np.arange(100), [], 0.01).false_positives is None
    for fpr in (0.0, 1.0, math.nan):
        with pytest.raises(InputError, match="fpr"):
            operating_point([5.0], [1.0], [1.0], fpr)
    with pytest.raises(InputError, match="members"):
        operating_point([], [1.0], [1.0], 0.5)
