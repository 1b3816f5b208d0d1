from __future__ import annotations

import itertools
import math

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from davylamp.errors import InputError
from davylamp.measures.counterfactual import memorization, truncated_loss
from davylamp.measures.shadow_scores import (
    CEILING,
    FEW_SHADOWS,
    auc,
    leave_pairs_out,
    lira_offline,
    lira_online,
    rmia,
    scaled_confidence,
)


def paired_coins(rng, shadows, records):
    first = rng.random((shadows // 2, records)) < 0.5
    return np.stack([first, ~first], axis=1).reshape(shadows, records)


def gaussian_world(rng, shadows, records, gap, sigma=1.0):
    """Scaled confidences whose law is known: each record's own level, and ``gap`` more where it was trained on."""
    level = 4 * rng.standard_normal(records)
    inside = paired_coins(rng, shadows, records)
    return level + gap * inside + sigma * rng.standard_normal((shadows, records)), inside


# --- the scaled confidence


@pytest.mark.parametrize("p", [1e-300, 1e-9, 0.3, 0.5, 0.5000001, 0.9, 1 - 1e-6])
def test_the_scaled_confidence_is_the_logit(p):
    with mpmath.workdps(50):
        log_p = float(mpmath.log(p))
        exact = mpmath.mpf(log_p) - mpmath.log(-mpmath.expm1(log_p))
    assert scaled_confidence(np.array([log_p]))[0] == pytest.approx(float(exact), rel=1e-12, abs=1e-12)


def test_a_certain_record_has_a_finite_confidence_and_order_is_kept():
    values = scaled_confidence(np.array([0.0, -1e-9, -CEILING, -1e-3, -1.0, -800.0]))
    assert np.isfinite(values).all()
    assert values[0] == values[1] == values[2] == pytest.approx(24 * math.log(2), abs=1e-6)
    assert (np.diff(values[2:]) < 0).all()
    with pytest.raises(InputError, match="at most 0"):
        scaled_confidence(np.array([1e-9]))
    with pytest.raises(InputError, match="at most 0"):
        scaled_confidence(np.array([np.nan]))


# --- LiRA


def lira_by_hand(target, shadows, inside, groups, record_variance):
    """Algorithm 1 and its offline variant, one record at a time, by scipy's normal law."""
    online, offline = [], []
    for x in range(len(target)):
        laws = {}
        for world in (True, False):
            mean = shadows[inside[:, x] == world, x].mean()
            if record_variance:
                variance = shadows[inside[:, x] == world, x].var(ddof=1)
            else:
                mates = [y for y in range(len(target)) if groups[y] == groups[x]]
                parts = [shadows[inside[:, y] == world, y] for y in mates]
                variance = sum(((p - p.mean()) ** 2).sum() for p in parts) / sum(len(p) - 1 for p in parts)
            laws[world] = stats.norm(mean, math.sqrt(variance))
        online.append(math.log(laws[True].pdf(target[x]) / laws[False].pdf(target[x])))
        offline.append(1 - (1 - laws[False].cdf(target[x])))
    return np.array(online), np.array(offline)


@pytest.mark.parametrize("variance", ["record", "group"])
def test_lira_agrees_with_the_algorithm_carried_out_by_hand(variance):
    rng = np.random.default_rng(1)
    shadows, inside = gaussian_world(rng, 12, 9, 1.5)
    target, groups = shadows[0] + 0.3, np.array([0, 0, 0, 1, 1, 1, 1, 2, 2])
    online, offline = lira_by_hand(target, shadows, inside, groups, variance == "record")
    np.testing.assert_allclose(lira_online(target, shadows, inside, groups, variance), online, rtol=1e-9)
    found = lira_offline(target, shadows, inside, groups, variance)
    np.testing.assert_allclose(-np.expm1(-found), offline, rtol=1e-9)


def test_the_variance_is_shared_while_shadows_are_few():
    rng = np.random.default_rng(2)
    for count, variance in ((FEW_SHADOWS - 2, "group"), (FEW_SHADOWS, "record")):
        shadows, inside = gaussian_world(rng, count, 5, 1.0)
        for score in (lira_online, lira_offline):
            auto, same = (score(shadows[0], shadows, inside, variance=kind) for kind in ("auto", variance))
            np.testing.assert_array_equal(auto, same)


def test_where_the_law_is_known_lira_reaches_the_best_auc():
    # Gap d and deviation 1: the likelihood ratio is monotone in (confidence - level), whose AUC is Phi(d / sqrt 2).
    # 400 shadows make the estimated parameters near enough to the true ones: their error costs about 1/400 of d.
    rng = np.random.default_rng(3)
    gap, records = 1.0, 3000
    shadows, inside = gaussian_world(rng, 402, records, gap)
    online, offline = (score(shadows[0], shadows[2:], inside[2:]) for score in (lira_online, lira_offline))
    best = stats.norm.cdf(gap / math.sqrt(2))
    # Standard error of an AUC of 1,500 against 1,500: at most sqrt(0.25 / 1500) = 0.013 (Hanley and McNeil give 0.009).
    assert auc(online, inside[0]) == pytest.approx(best, abs=4 * 0.009)
    assert auc(offline, inside[0]) == pytest.approx(best, abs=4 * 0.009)
    # The confidence by itself is far from that, since records differ from each other: Phi(d / sqrt(2 (1 + 16))).
    alone = stats.norm.cdf(gap / math.sqrt(2 * 17))
    assert auc(shadows[0], inside[0]) == pytest.approx(alone, abs=4 * 0.0105)


@pytest.mark.parametrize("shadows", [6, 8, 16])
@pytest.mark.parametrize("score", [lira_online, lira_offline])
def test_signals_that_tell_nothing_give_an_auc_of_a_half(shadows, score):
    # Leave-pairs-out must not betray the coin by how many shadows are left in each world: with the partner left in,
    # the online AUC is 0.457 at 6 shadows and 0.478 at 8. Scores of one record share shadows, so that the error is
    # taken from the spread between parts of the records.
    rng = np.random.default_rng(4)
    values, inside = gaussian_world(rng, shadows, 4000, 0.0)
    scores = leave_pairs_out(lambda each, rest: score(values[each], values[rest], inside[rest]), shadows)
    found = [auc(scores[:, part], inside[:, part]) for part in np.array_split(np.arange(4000), 40)]
    error = np.std(found, ddof=1) / math.sqrt(40)
    assert np.mean(found) == pytest.approx(0.5, abs=4 * error)
    assert error < 0.006


def test_more_confidence_is_never_less_membership():
    rng = np.random.default_rng(5)
    shadows, inside = gaussian_world(rng, 20, 1, 2.0)
    grid = np.linspace(-8, 8, 50) + shadows.mean()
    assert (np.diff([lira_offline(np.array([x]), shadows, inside)[0] for x in grid]) > 0).all()
    assert lira_online(np.array([shadows[inside].mean()]), shadows, inside)[0] > 0
    assert lira_online(np.array([shadows[~inside].mean()]), shadows, inside)[0] < 0


def test_certain_records_give_finite_scores():
    certain = scaled_confidence(np.zeros((8, 3)))
    inside = paired_coins(np.random.default_rng(0), 8, 3)
    np.testing.assert_array_equal(lira_online(certain[0], certain, inside), 0.0)
    np.testing.assert_allclose(lira_offline(certain[0], certain, inside), math.log(2))
    certain[inside] -= 3
    assert np.isfinite(lira_online(certain[0], certain, inside)).all()


def test_offline_scores_need_no_shadow_with_the_record():
    rng = np.random.default_rng(16)
    shadows, inside = gaussian_world(rng, 8, 5, 1.0)
    changed = np.where(inside, 99.0, shadows)
    np.testing.assert_array_equal(lira_offline(shadows[0], shadows, inside), lira_offline(shadows[0], changed, inside))
    assert np.isfinite(lira_offline(shadows[0], shadows, np.zeros_like(inside))).all()


def test_what_lira_refuses():
    rng = np.random.default_rng(6)
    shadows, inside = gaussian_world(rng, 8, 3, 0.0)
    for score in (lira_online, lira_offline):
        with pytest.raises(InputError, match="that are out is 0; allowed: at least 2 for every record"):
            score(shadows[0], shadows, np.ones_like(inside))
        with pytest.raises(InputError, match="shapes"):
            score(shadows[0, :2], shadows, inside)
        with pytest.raises(InputError, match="finite"):
            score(np.full(3, np.inf), shadows, inside)
    with pytest.raises(InputError, match="that are in is 0"):
        lira_online(shadows[0], shadows, np.zeros_like(inside))


# --- RMIA


def rmia_by_hand(target, shadows, inside, population, groups, a, gamma):
    """The definition, one pair at a time, in plain probabilities."""
    p, q = np.exp(target), np.exp(shadows)
    ins = [q[inside[:, x], x].mean() for x in range(len(p))]
    outs = [q[~inside[:, x], x].mean() for x in range(len(p))]
    scores = {}
    for name, pr in (
        ("online", [(i + o) / 2 for i, o in zip(ins, outs, strict=True)]),
        ("offline", [((1 + a) * o + (1 - a)) / 2 for o in outs]),
    ):
        scores[name] = []
        for x in range(len(p)):
            others = [z for z in range(len(p)) if population[z] and z != x and groups[z] == groups[x]]
            beaten = [(p[x] / pr[x]) / (p[z] / pr[z]) >= gamma for z in others]
            scores[name].append(sum(beaten) / len(others))
    return scores


@pytest.mark.parametrize(("a", "gamma"), [(0.3, 1.0), (0.0, 1.1), (1.0, 2.0)])
def test_rmia_agrees_with_its_definition(a, gamma):
    rng = np.random.default_rng(7)
    records = 30
    inside = paired_coins(rng, 10, records)
    shadows = -np.exp(rng.standard_normal((10, records))) * np.where(inside, 0.5, 1.0)
    target, population = shadows[3] * 0.9, rng.random(records) < 0.6
    groups = np.arange(records) % 2
    found = rmia(target, shadows, inside, population, groups, a=a, gamma=gamma)
    by_hand = rmia_by_hand(target, shadows, inside, population, groups, a, gamma)
    np.testing.assert_allclose(found.online, by_hand["online"])
    np.testing.assert_allclose(found.offline, by_hand["offline"])
    order = np.argsort(found.ratio[groups == 0])
    # Itself is not among the population, so that the share may step by one of it either way.
    assert (np.diff(found.online[groups == 0][order]) >= -1 / (population & (groups == 0)).sum() - 1e-12).all()


def test_rmia_of_unlikely_records_does_not_underflow():
    rng = np.random.default_rng(8)
    inside = paired_coins(rng, 6, 8)
    shadows = -2000 - rng.random((6, 8))
    found = rmia(shadows[0], shadows, inside, np.ones(8, dtype=bool))
    assert np.isfinite(found.ratio).all()
    np.testing.assert_allclose(found.ratio, rmia(shadows[0] + 1990, shadows + 1990, inside, np.ones(8, bool)).ratio)


def test_a_population_that_no_shadow_holds_is_compared_by_its_mean_outside():
    rng = np.random.default_rng(17)
    inside = paired_coins(rng, 6, 8)
    inside[:, 4:] = False
    logs = -rng.random((6, 8))
    found = rmia(logs[0], logs, inside, np.arange(8) >= 4)
    np.testing.assert_allclose(found.ratio[4:], logs[0, 4:] - np.log(np.exp(logs[:, 4:]).mean(axis=0)))
    halves = [(np.exp(logs[inside[:, x], x]).mean() + np.exp(logs[~inside[:, x], x]).mean()) / 2 for x in range(4)]
    np.testing.assert_allclose(found.ratio[:4], logs[0, :4] - np.log(halves))


def test_rmia_tells_members_and_nothing_where_there_is_nothing():
    rng = np.random.default_rng(9)
    # Null: 400 against 400 has a standard error of sqrt(801 / (12 * 400 * 400)) = 0.0204; within two of them.
    # With a gap of 3 the confidence by itself has Phi(3 / sqrt(2 * 17)) = 0.70; the ratio must be well above.
    for gap, low, high in ((0.0, 0.46, 0.54), (3.0, 0.8, 1.0)):
        phi, inside = gaussian_world(rng, 18, 800, gap)
        logs = -np.log1p(np.exp(-phi))
        found = rmia(logs[0], logs[2:], inside[2:], ~inside[0])
        for scores in (found.online, found.ratio):
            assert low < auc(scores, inside[0]) < high


def test_what_rmia_refuses():
    rng = np.random.default_rng(10)
    inside = paired_coins(rng, 6, 4)
    logs = -rng.random((6, 4))
    population = np.array([True, True, False, False])
    with pytest.raises(InputError) as caught:
        rmia(logs[0], logs, inside, population, a=1.5, gamma=0)
    assert {fault.field for fault in caught.value.faults} == {"a", "gamma"}
    with pytest.raises(InputError, match="population"):
        rmia(logs[0], logs, inside, np.array([True, False, False, False]))
    with pytest.raises(InputError, match="at most 0"):
        rmia(-logs[0], logs, inside, population)
    with pytest.raises(InputError, match="shadows that are out"):
        rmia(logs[0], logs, np.ones_like(inside), population)


# --- AUC


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=2, max_size=30))
def test_the_auc_counts_pairs(rows):
    scores, members = np.array([float(s) for s, _ in rows]), np.array([m for _, m in rows])
    if members.all() or not members.any():
        with pytest.raises(InputError):
            auc(scores, members)
        return
    pairs = [(x, y) for (x, m), (y, n) in itertools.product(zip(scores, members, strict=True), repeat=2) if m and not n]
    assert auc(scores, members) == pytest.approx(np.mean([(x > y) + 0.5 * (x == y) for x, y in pairs]))


# --- counterfactual memorization


def test_memorization_of_a_model_whose_means_are_known():
    # Each record's score is a coin of probability p_in where it is in and p_out where it is out: memorization is their
    # difference. 200 pairs: standard error sqrt((p_in q_in + p_out q_out) / 200), checked for 500 records at 4.5 sigma
    # (chance that one of them strays: 0.3%).
    rng = np.random.default_rng(11)
    records, pairs = 500, 200
    p_in, p_out = rng.uniform(0.3, 0.95, records), rng.uniform(0.05, 0.3, records)
    inside = paired_coins(rng, 2 * pairs, records)
    scores = (rng.random(inside.shape) < np.where(inside, p_in, p_out)).astype(float)
    found = memorization(scores, inside, rng)
    error = np.sqrt((p_in * (1 - p_in) + p_out * (1 - p_out)) / pairs)
    assert (np.abs(found.value - (p_in - p_out)) < 4.5 * error).all()
    # The estimated error agrees: its own relative error is about 1 / sqrt(2 * 199) = 0.05.
    np.testing.assert_allclose(found.error, error, rtol=0.3)
    assert np.mean(found.error / error) == pytest.approx(1, abs=0.02)
    # Half the pairs turned over: no trace of the means is left, and the spread is that of the estimate.
    assert np.mean(found.noise / error) == pytest.approx(0, abs=4 / math.sqrt(records))
    assert np.std(found.noise / error) == pytest.approx(1, abs=4 / math.sqrt(2 * records))


def test_scores_that_depend_on_membership_alone_have_no_noise():
    inside = paired_coins(np.random.default_rng(12), 8, 5)
    found = memorization(np.where(inside, 0.75, 0.25), inside, np.random.default_rng(0))
    np.testing.assert_allclose(found.value, 0.5)
    np.testing.assert_allclose(found.error, 0, atol=1e-15)
    np.testing.assert_allclose(found.splits, 0, atol=1e-15)
    assert found.floor(np.arange(5)).q95 == pytest.approx(0, abs=1e-15)


@pytest.mark.parametrize("pairs", [2, 4, 5, 7])
def test_the_noise_floor_is_the_standard_error_in_the_mean_square(pairs):
    # An identity over all splits, so that with many of them only their sampling is left: the mean of 40,000 squares
    # of a draw whose square varies by at most about its double errs by 2 / sqrt(40,000) = 1%; four of them.
    rng = np.random.default_rng(13)
    values, inside = gaussian_world(rng, 2 * pairs, 3, 0.7)
    found = memorization(values, inside, rng, splits=40_000)
    np.testing.assert_allclose((found.splits**2).mean(axis=0), found.error**2, rtol=0.04)


def test_the_noise_keeps_what_records_share():
    # A shift of whole models moves all records together: the mean of a group is then as noisy as one record.
    rng = np.random.default_rng(14)
    inside = np.repeat(paired_coins(rng, 16, 1), 50, axis=1)
    values = np.repeat(rng.standard_normal((16, 1)), 50, axis=1)
    floor = memorization(values, inside, rng).floor(np.arange(50))
    assert floor.mean_q95 == pytest.approx(floor.q95)
    lone = memorization(rng.standard_normal((16, 50)), inside, rng).floor(np.arange(50))
    assert lone.mean_q95 < lone.q95 / 3


def test_a_truncated_loss_is_a_share_of_its_level():
    np.testing.assert_allclose(truncated_loss(np.array([0.0, -5.0, -20.0, -700.0]), 20.0), [0, 0.25, 1, 1])
    for level in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(InputError, match="truncation"):
            truncated_loss(np.zeros(1), level)


def test_what_memorization_refuses():
    rng = np.random.default_rng(15)
    values, inside = gaussian_world(rng, 8, 3, 0.0)
    for wrong in (inside[:3], inside[:2]):
        with pytest.raises(InputError, match="an even number of at least 4"):
            memorization(values[: len(wrong)], wrong, rng)
    with pytest.raises(InputError, match="one of each pair"):
        memorization(values, np.ones_like(inside), rng)
    with pytest.raises(InputError, match="shapes"):
        memorization(values[0], inside, rng)
    with pytest.raises(InputError, match="finite"):
        memorization(np.full_like(values, np.nan), inside, rng)
