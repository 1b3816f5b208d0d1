"""Bounds from one run, against exact arithmetic, an independent solver, peers' numbers, exact mechanisms and nulls."""

import json
import math
from functools import cache
from pathlib import Path

import mpmath
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import optimize, special, stats

from davylamp.bounds import (
    ApproxDP,
    EpsilonBound,
    GaussianDP,
    Guesses,
    clopper_pearson,
    curve_by_points,
    default_calls,
    gaussian_epsilon,
    guess_members,
    guess_pairs,
    one_run_audit,
    one_run_epsilon,
    one_run_p_value,
    pure_dp,
    symmetrised,
)
from davylamp.errors import InputError

PEERS = json.loads((Path(__file__).parent / "golden" / "peers.json").read_text(encoding="utf-8"))
COUNTS = [(1000, 100, 90, 1e-5), (1000, 1000, 700, 4e-4), (200, 20, 19, 1e-5), (64, 64, 64, 1e-3), (8, 8, 8, 0.0)]


def fields(error):
    return [fault.field for fault in error.value.faults]


# --- Steinke et al., Theorem 3.1, in 60 digits ------------------------------------------------------------------


def exact_tail(epsilon, delta, m, r, v):
    """The theorem's expression over all i, every binomial term in 60 digits."""
    with mpmath.workdps(60):
        q = 1 / (1 + mpmath.exp(-mpmath.mpf(epsilon)))
        terms = [mpmath.binomial(r, j) * q**j * (1 - q) ** (r - j) for j in range(r + 1)]
        at_least = [mpmath.fsum(terms[max(j, 0) :]) for j in range(v + 1)]
        base = at_least[v]
        slope = max((at_least[v - i] - base) / i for i in range(1, v + 1))
        return min(mpmath.mpf(1), base + 2 * m * mpmath.mpf(delta) * slope)


@pytest.mark.parametrize(("m", "r", "v", "delta"), COUNTS)
@pytest.mark.parametrize("confidence", [0.95, 0.999])
def test_the_bound_lies_just_below_the_exact_root(m, r, v, delta, confidence):
    low = one_run_epsilon(Guesses(m, r, v), delta, confidence=confidence).eps_low
    error = 1 - mpmath.mpf(confidence)
    if low == 0:
        assert exact_tail(0.0, delta, m, r, v) > error * (1 - mpmath.mpf("1e-9"))
        return
    # Certified: at the value itself the claim is still refuted. Tight: a little above it no longer is.
    assert exact_tail(low, delta, m, r, v) <= error
    assert exact_tail(low * (1 + 1e-7), delta, m, r, v) > error


@given(st.integers(1, 60), st.data(), st.floats(0, 6), st.sampled_from([0.0, 1e-6, 1e-3, 0.01]))
@settings(max_examples=60, deadline=None)
def test_p_value_of_an_approximate_claim_is_never_above_the_theorem(m, data, epsilon, delta):
    r = data.draw(st.integers(1, m))
    v = data.draw(st.integers(1, r))
    ours = one_run_p_value(ApproxDP(epsilon, delta), Guesses(m, r, v))
    assert ours <= float(exact_tail(epsilon, delta, m, r, v)) * (1 + 2e-10)


def test_pure_bound_is_the_logit_of_clopper_pearson():
    for r, v, confidence in ((100, 90, 0.95), (2000, 1300, 0.9), (20, 20, 0.99), (100_000, 73_105, 0.95)):
        low = clopper_pearson(v, r, confidence, "lower").low
        assert one_run_epsilon(Guesses(r, r, v), confidence=confidence).eps_low == pytest.approx(
            special.logit(low), rel=1e-8
        )


def test_by_hand():
    # All of r right: q^r = 0.05.
    q = 0.05 ** (1 / 30)
    assert one_run_epsilon(Guesses(30, 30, 30)).eps_low == pytest.approx(math.log(q / (1 - q)), rel=1e-9)
    # Five right of five have a chance of 1/32 = 0.031 under a fair coin; four of four 1/16.
    assert one_run_epsilon(Guesses(5, 5, 5)).eps_low > 0
    assert one_run_epsilon(Guesses(4, 4, 4)).eps_low == 0
    # With 2 m delta = 1 the binomial theorem gives away a right guess; the curve knows that (0, 1/2)-DP allows 3/4.
    assert one_run_p_value(ApproxDP(0.0, 0.5), Guesses(1, 1, 1)) == pytest.approx(0.75)


@given(st.integers(5, 300), st.data(), st.sampled_from([0.0, 1e-5, 1e-3]), st.sampled_from(["binomial", "f-dp"]))
@settings(max_examples=40, deadline=None)
def test_bounds_move_the_right_way(m, data, delta, method):
    r = data.draw(st.integers(5, m))
    v = data.draw(st.integers(1, r))

    def low(correct, **changes):
        given = {"delta": delta, "confidence": 0.95, "canaries": m} | changes
        seen = Guesses(given.pop("canaries"), r, correct)
        return one_run_epsilon(seen, method=method, **given).eps_low

    here = low(v)
    assert here <= low(min(v + 1, r)) + 1e-12
    assert low(v, confidence=0.99) <= here + 1e-12
    assert low(v, delta=delta + 1e-4) <= here + 1e-12
    assert low(v, canaries=2 * m) <= here + 1e-12


# --- Mahloujifar et al.: the recursion against a linear program and against exact mechanisms --------------------


def least_mass(epsilon, delta, m, r, v, tail):
    """Least total of p_0..p_r with tail mass fixed, under every suffix constraint of (eps, delta)-DP, by a solver."""
    grow, rows, limits = math.exp(epsilon), [], []
    index = np.arange(r + 1)
    for t in range(1, v + 1):
        right = np.where(index >= t, index / m, 0.0)
        wrong = np.where(index >= t - 1, (r - index) / m, 0.0)
        rows += [right - grow * wrong, right - wrong / grow]
        limits += [delta, 1 - (1 - delta) / grow]
    fixed = (index >= v).astype(float)[None, :]
    done = optimize.linprog(np.ones(r + 1), rows, limits, fixed, [tail], method="highs")
    assert done.status == 0
    return done.fun


@pytest.mark.parametrize(("epsilon", "delta"), [(0.0, 0.0), (0.7, 0.0), (1.5, 1e-3), (3.0, 0.0), (0.3, 0.02)])
@pytest.mark.parametrize(("m", "r", "v"), [(12, 12, 9), (40, 20, 15), (12, 12, 12), (25, 8, 8)])
def test_the_recursion_is_the_optimum_of_the_linear_program(epsilon, delta, m, r, v):
    # The p-value is the tail at which the least total mass is 1; the program, whose mass rises with the tail, has its
    # own. Only the f-DP route is wanted here, so the curve is given by its points, which the binomial does not know.
    claim = ApproxDP(epsilon, delta)
    kink = (1 - delta) * special.expit(-epsilon)
    levels = np.array([0.0, kink, 1 - delta, 1.0])
    curve = curve_by_points(levels, claim.tradeoff(levels))
    ours = one_run_p_value(curve, Guesses(m, r, v))
    if ours < 1:
        assert least_mass(epsilon, delta, m, r, v, ours) == pytest.approx(1.0, rel=1e-6)
    else:
        assert least_mass(epsilon, delta, m, r, v, 1.0) <= 1 + 1e-7


@pytest.mark.parametrize("mu", [0.3, 1.0, 2.5])
@pytest.mark.parametrize("m", [10, 100])
def test_p_value_covers_canaries_with_a_normal_of_their_own(mu, m):
    # Each coin shifts its own normal by mu: mu-GDP for one coin; the best guesses are right with chance Phi(mu/2).
    chance = stats.norm.cdf(mu / 2)
    for v in range(1, m + 1, max(1, m // 20)):
        assert one_run_p_value(GaussianDP(mu), Guesses(m, m, v)) >= stats.binom.sf(v - 1, m, chance) * (1 - 1e-9)


@pytest.mark.parametrize("mu", [0.3, 1.0])
def test_p_value_covers_canaries_that_share_one_normal(mu):
    # The sum of all coins is published with noise 1/mu: mu-GDP for each coin, and all guesses rise and fall together.
    # Whoever sees the noisy count b guesses everybody in or everybody out, by its sign.
    m = 20
    ones = np.arange(m + 1)
    up = stats.norm.sf((m / 2 - ones) * mu)  # chance that the noisy count exceeds the middle
    for v in range(m // 2, m + 1):
        right_up, right_down = ones >= v, m - ones >= v
        exact = (stats.binom.pmf(ones, m, 0.5) * (up * right_up + (1 - up) * right_down)).sum()
        assert one_run_p_value(GaussianDP(mu), Guesses(m, m, v)) >= exact


@pytest.mark.parametrize("tail", [1e-3, 0.04])
def test_p_value_covers_a_release_that_seldom_tells_everything(tail):
    # With chance `tail` all coins are published, else nothing: (0, tail)-DP, and everything is right that often.
    chance = tail + (1 - tail) * 2.0**-30
    assert one_run_p_value(ApproxDP(0.0, tail), Guesses(30, 30, 30)) >= chance
    assert one_run_epsilon(Guesses(30, 30, 30), tail, confidence=1 - tail).eps_low == 0


def test_p_value_with_abstention_covers_the_best_few():
    # Of 1000 independent normals the 20 most extreme are guessed about: right far more often than Phi(mu/2).
    mu, m, r = 1.0, 1000, 20
    rng = np.random.default_rng(3)
    right = []
    for _ in range(400):
        coins = rng.random(m) < 0.5
        right.append(guess_members(rng.normal(mu * coins), coins, r // 2, r // 2).correct)
    # The empirical tail has a standard error of at most sqrt(p/400): four of them are allowed.
    for v in (15, 17, 19, 20):
        tail = np.mean(np.array(right) >= v)
        assert one_run_p_value(GaussianDP(mu), Guesses(m, r, v)) >= tail - 4 * math.sqrt(max(tail, 1 / 400) / 400)


def test_a_gaussian_bound_is_no_bound_for_other_trainings():
    # Randomised response of eps 1 is mu-GDP only for mu with 2 Phi(mu/2) - 1 >= tanh(1/2): its Gaussian eps at a small
    # delta is far above 1, so the Gaussian bound may be, too. The statement says whom it speaks of.
    seen = Guesses(100_000, 100_000, round(100_000 * special.expit(1.0)))
    bound = one_run_epsilon(seen, 1e-6, method="gaussian")
    assert bound.eps_low > 1.5
    assert bound.mu_low <= 2 * special.ndtri((1 + math.tanh(0.5)) / 2)
    assert "no Gaussian DP claim" in bound.statement
    for method in ("binomial", "f-dp"):
        assert 0.98 < one_run_epsilon(seen, 1e-9, method=method).eps_low < 1


# --- Peers ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("row", PEERS["counts"], ids=lambda row: f"{row['correct']}of{row['guesses']}")
def test_agrees_with_jax_privacy(row):
    # jax-privacy finds its roots to 1e-6 in epsilon (its brentq's xtol), on either side.
    seen, delta, confidence = (
        Guesses(row["canaries"], row["guesses"], row["correct"]),
        row["delta"],
        1 - row["significance"],
    )

    def low(delta, method):
        return one_run_epsilon(seen, delta, confidence=confidence, method=method).eps_low

    assert low(0.0, "binomial") == pytest.approx(row["one_run_pure"], abs=2e-6)
    assert low(delta, "binomial") == pytest.approx(row["one_run"], abs=2e-6)
    assert low(delta, "gaussian") == pytest.approx(row["one_run_fdp"], abs=2e-6)


@pytest.mark.parametrize("row", PEERS["opake"])
def test_agrees_with_opake_for_pure_claims(row):
    seen = Guesses(row["guesses"], row["guesses"], row["guesses"] - row["wrong"])
    # Ours may be smaller, since both theorems are used; for pure claims the binomial is exact, so it is not.
    assert one_run_p_value(pure_dp(row["epsilon"]), seen) == pytest.approx(row["p_value"], rel=1e-8)


def test_agrees_with_jax_privacy_on_scores():
    scores = PEERS["scores"]
    inside, outside = np.array(scores["inside"]), np.array(scores["outside"])
    called = int((inside >= scores["threshold"]).sum() + (outside >= scores["threshold"]).sum())
    values = np.concatenate([inside, outside])
    labels = np.arange(values.size) < inside.size
    bound = one_run_epsilon(guess_members(values, labels, called), 1e-5)
    assert bound.eps_low == pytest.approx(scores["one_run"], abs=2e-6)


# --- Exact mechanisms: the law of the number of right guesses is known ------------------------------------------


@cache
def first_above(m, r, delta, truth, method):
    """Fewest right guesses whose bound exceeds the truth."""
    lows = range(r + 2)
    # The bound rises with the count: bisection.
    low, high = 0, r + 1
    while high - low > 1:
        middle = (low + high) // 2
        bound = one_run_epsilon(Guesses(m, r, middle), delta, method=method)
        value = bound.mu_low if method == "gaussian" else bound.eps_low
        low, high = (low, middle) if value > truth else (middle, high)
    assert high in lows
    return high


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 4.0])
@pytest.mark.parametrize("m", [20, 200, 2000])
@pytest.mark.parametrize("method", ["binomial", "f-dp"])
def test_randomised_response_is_exceeded_no_more_often_than_the_confidence_says(epsilon, m, method):
    # V ~ Binomial(m, e^eps/(1+e^eps)) exactly, so the chance of exceeding is a sum, with no sampling error.
    chance = stats.binom.sf(first_above(m, m, 0.0, epsilon, method) - 1, m, special.expit(epsilon))
    assert chance <= 0.05 * (1 + 1e-9)
    if method == "binomial":
        # The exact test wastes less than the chance of one more right guess.
        assert chance + stats.binom.pmf(first_above(m, m, 0.0, epsilon, method) - 1, m, special.expit(epsilon)) > 0.05


def test_randomised_response_is_found_closely_with_many_canaries():
    # At the expected count the bound is logit(q - 1.645 sqrt(q(1-q)/m)) = eps - 1.645/sqrt(m q (1-q)) to first order.
    for epsilon in (0.5, 1.0, 2.0):
        m, q = 100_000, special.expit(epsilon)
        low = one_run_epsilon(Guesses(m, m, round(m * q))).eps_low
        assert low == pytest.approx(epsilon - 1.645 / math.sqrt(m * q * (1 - q)), abs=2e-4)


@pytest.mark.parametrize("mu", [0.5, 2.0])
@pytest.mark.parametrize("m", [20, 200])
def test_normal_canaries_are_exceeded_no_more_often_than_the_confidence_says(mu, m):
    chance = stats.binom.sf(first_above(m, m, 1e-5, mu, "gaussian") - 1, m, stats.norm.cdf(mu / 2))
    assert chance <= 0.05


@pytest.mark.parametrize("method", ["binomial", "f-dp", "gaussian"])
@pytest.mark.parametrize(("m", "r"), [(6, 6), (100, 7), (1000, 50), (1000, 1000)])
def test_null_guesses_give_zero_as_often_as_the_confidence_says(method, m, r):
    # Guesses that know nothing are right with chance 1/2 each: the chance of a bound above 0 is exact.
    assert stats.binom.sf(first_above(m, r, 1e-5, 0.0, method) - 1, r, 0.5) <= 0.05 * (1 + 1e-9)


# --- Scores -----------------------------------------------------------------------------------------------------


def test_guesses_by_hand():
    scores = [0.1, 0.9, 0.5, -2.0, 0.8, 0.3]
    included = [False, True, True, False, False, True]
    # In: 0.9 (right), 0.8 (wrong). Out: -2 (right), 0.1 (right), 0.3 (wrong).
    assert guess_members(scores, included, 2, 3) == Guesses(6, 5, 3)
    assert guess_members(scores, included, 1) == Guesses(6, 1, 1)
    assert guess_members(scores, included, 0, 1) == Guesses(6, 1, 1)
    assert guess_pairs([3.0, 1.0, 0.2], [1.0, 1.5, 0.0], 2) == Guesses(3, 2, 1, "replace")


def test_infinite_scores_are_scores():
    assert guess_members([math.inf, 0.0, -math.inf], [True, True, False], 1, 1).correct == 2
    assert guess_pairs([math.inf, math.inf], [math.inf, 0.0], 1).correct == 1


@pytest.mark.parametrize("order", ["members first", "members last"])
def test_ties_tell_nothing(order):
    # All scores equal, the members listed first: a stable sort would be right every time. Ours is right half of the
    # time: 2000 guesses, standard deviation 22, four of them.
    labels = np.arange(4000) < 2000
    labels = labels if order == "members first" else ~labels
    right = guess_members(np.zeros(4000), labels, 1000, 1000).correct
    assert abs(right - 1000) < 4 * 22.4
    assert abs(guess_pairs(np.zeros(2000), np.zeros(2000), 2000).correct - 1000) < 4 * 22.4
    assert guess_members(np.zeros(4000), labels, 1000, 1000, seed=1).correct != right


def test_null_audits_return_zero():
    # 400 audits each with six ways to guess; a valid bound is above 0 in at most 5%: 20, plus four standard deviations
    # of sqrt(400 * .05 * .95) = 4.4. The unlisted best of all k is not: the same scores show it.
    rng = np.random.default_rng(8)
    ours, picked = 0, 0
    for _ in range(400):
        labels = rng.random(200) < 0.5
        scores = rng.normal(size=200)
        ours += one_run_audit(scores, labels, 1e-5).eps_low > 0
        right = np.cumsum(labels[np.argsort(-scores)])
        called = np.arange(1, 201)
        picked += bool((stats.binom.sf(right - 1, called, 0.5) <= 0.05).any())
    assert ours <= 20 + 4 * 4.4
    assert picked > 3 * 20


def test_the_choice_of_calls_is_charged():
    rng = np.random.default_rng(1)
    labels = rng.random(500) < 0.5
    scores = rng.normal(2.0 * labels)
    calls = [(25, 25), (100, 100), (250, 250)]
    together = one_run_audit(scores, labels, 1e-5, calls=calls)
    alone = [one_run_audit(scores, labels, 1e-5, calls=[call], confidence=1 - 0.05 / 3).eps_low for call in calls]
    assert together.eps_low == max(alone)
    assert (together.tries, together.confidence) == (3, 0.95)
    assert "the best of 3 ways to guess" in together.statement


def test_default_calls_can_all_show_something():
    for m in (1, 2, 5, 6, 20, 100, 1000):
        calls = default_calls(m)
        assert all(1 <= top + bottom <= m for top, bottom in calls)
        assert m < 5 or all(2.0 ** -(top + bottom) <= 0.05 / len(calls) for top, bottom in calls)
    assert len(default_calls(1000)) == 6


# --- Copies, claims, verdicts -----------------------------------------------------------------------------------


def test_copies():
    # Pure DP: four records make at most 4 eps. The exact curve of four records is stronger than that of 4 eps.
    seen = Guesses(200, 200, 170)
    one, four = (one_run_epsilon(seen, copies=k).eps_low for k in (1, 4))
    assert four == pytest.approx(one / 4, rel=1e-9)
    one, four = (one_run_epsilon(seen, method="f-dp", copies=k).eps_low for k in (1, 4))
    assert four > 1.01 * one / 4
    seen = Guesses(1000, 200, 190)
    mu = [one_run_epsilon(seen, 1e-5, method="gaussian", copies=k).mu_low for k in (1, 4)]
    assert mu[1] == pytest.approx(mu[0] / 4)
    # With delta the four-record claim is (4 eps, delta (e^4eps - 1)/(e^eps - 1)).
    low = one_run_epsilon(seen, 1e-5, copies=4).eps_low
    grown = 1e-5 * math.expm1(4 * low) / math.expm1(low)
    assert float(exact_tail(4 * low, grown, 1000, 200, 190)) == pytest.approx(0.05, rel=1e-6)


def test_verdicts_and_sentences():
    seen = Guesses(1000, 100, 90)
    refuted = one_run_epsilon(seen, 1e-5, upper=ApproxDP(1.0, 1e-5))
    assert (refuted.verdict, refuted.contradiction, refuted.upper) == ("refuted", True, 1.0)
    assert refuted.statement == (
        "At 95% confidence no DP claim for adding or removing one record with epsilon below 1.626 at delta = 1e-05 is "
        "true: 90 of 100 guesses about 1000 canaries were right, a contradiction of the accountant's upper bound of 1."
    )
    consistent = one_run_epsilon(seen, 1e-5, upper=ApproxDP(2.0, 1e-5))
    assert (consistent.verdict, consistent.contradiction) == ("consistent", False)
    blunt = one_run_epsilon(seen, 1e-5, upper=ApproxDP(8.0, 1e-5))
    assert blunt.verdict == "could-not-refute"
    assert "even with every guess right it could not have contradicted" in blunt.statement
    nothing = one_run_epsilon(Guesses(100, 10, 5), upper=pure_dp(0.1))
    assert (nothing.eps_low, nothing.verdict) == (0.0, "consistent")
    assert "rules out no DP claim" in nothing.statement
    assert one_run_epsilon(seen).verdict is None
    assert one_run_epsilon(guess_pairs([1.0] * 40, [0.0] * 40, 40)).statement.startswith(
        "At 95% confidence no DP claim for replacing one record with epsilon below 2.55"
    )


def test_p_value_refutes_just_where_the_bound_does():
    seen = Guesses(500, 60, 55)
    mu = one_run_epsilon(seen, 1e-5, method="gaussian").mu_low
    assert one_run_p_value(GaussianDP(mu * (1 - 1e-6)), seen) <= 0.05
    assert one_run_p_value(GaussianDP(mu * (1 + 1e-6)), seen) > 0.05
    low = max(one_run_epsilon(seen, 1e-3, method=method).eps_low for method in ("binomial", "f-dp"))
    assert one_run_p_value(ApproxDP(low * (1 - 1e-6), 1e-3), seen) <= 0.05
    assert one_run_p_value(ApproxDP(low * (1 + 1e-6), 1e-3), seen) > 0.05


def test_a_bound_as_data():
    shown = one_run_epsilon(Guesses(1000, 100, 90), 1e-5, method="gaussian", upper=GaussianDP(3.0)).as_dict()
    assert json.loads(json.dumps(shown)) == shown
    assert shown["method"] == "one-run Gaussian"
    assert shown["verdict"] == "could-not-refute"
    assert shown["upper"] == pytest.approx(gaussian_epsilon(3.0, 1e-5), rel=1e-8)
    assert isinstance(one_run_epsilon(Guesses(9, 9, 9)), EpsilonBound)


# --- What is refused --------------------------------------------------------------------------------------------


def test_every_fault_at_once():
    with pytest.raises(InputError) as error:
        Guesses(0, 0, -1)
    assert fields(error) == ["canaries", "guesses", "correct"]
    with pytest.raises(InputError) as error:
        Guesses(10, 11, 3)
    assert fields(error) == ["guesses"]
    with pytest.raises(InputError) as error:
        Guesses(10, 5, 6)
    assert fields(error) == ["correct"]
    with pytest.raises(InputError) as error:
        one_run_epsilon(Guesses(9, 9, 9), 1.0, confidence=1.0, copies=0, upper=3.0)
    assert fields(error) == ["delta", "confidence", "copies", "upper"]
    with pytest.raises(InputError) as error:
        one_run_epsilon([], method="best")
    assert fields(error) == ["seen", "method"]


def test_what_a_gaussian_bound_cannot_say_is_refused():
    with pytest.raises(InputError) as error:
        one_run_epsilon(Guesses(9, 9, 9), 0.0, method="gaussian", upper=pure_dp(1.0))
    assert fields(error) == ["delta", "upper"]


def test_one_sided_curves_are_refused():
    lopsided = curve_by_points([0.0, 0.1, 1.0], [0.9, 0.2, 0.0])
    assert not lopsided.symmetric
    with pytest.raises(InputError, match="symmetric"):
        one_run_p_value(lopsided, Guesses(9, 9, 9))
    assert 0 < one_run_p_value(symmetrised(lopsided), Guesses(9, 9, 9)) <= 1


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        (([1.0, math.nan], [True, False], 1), "scores[1]"),
        (([1.0, 2.0], [True], 1), "included"),
        (([1.0, 2.0], [True, 0.5], 1), "included[1]"),
        (([1.0, 2.0], [True, False], 2, 1), "called_in + called_out"),
        (([1.0, 2.0], [True, False], 0, 0), "called_in + called_out"),
        (([], [], 1), "scores"),
        ((np.zeros(100), np.ones(100), 50), "included"),
        ((np.zeros(1000), np.arange(1000) < 100, 50), "included"),
    ],
)
def test_scores_that_are_refused(arguments, field):
    with pytest.raises(InputError) as error:
        guess_members(*arguments)
    assert field in fields(error)


def test_pairs_that_are_refused():
    with pytest.raises(InputError) as error:
        guess_pairs([1.0, math.nan], [0.0], 3)
    assert fields(error) == ["planted[1]"]
    with pytest.raises(InputError) as error:
        guess_pairs([1.0, 2.0], [0.0], 1)
    assert fields(error) == ["twins"]
    with pytest.raises(InputError) as error:
        guess_pairs([1.0], [0.0], 2)
    assert fields(error) == ["called"]


@given(st.lists(st.floats(allow_nan=False), min_size=8, max_size=20), st.integers(0, 2**20), st.integers(0, 1000))
@settings(max_examples=50, deadline=None)
def test_guesses_do_not_depend_on_monotone_changes_of_the_scores(scores, bits, seed):
    labels = [bool(bits >> i & 1) for i in range(len(scores))]
    ranks = stats.rankdata(scores, method="dense")
    assume(0 < sum(labels) < len(labels))
    called = len(scores) // 3
    assert guess_members(scores, labels, called, 2, seed=seed) == guess_members(ranks, labels, called, 2, seed=seed)


def test_counts_that_would_not_end_are_refused_with_the_method_that_does():
    with pytest.raises(InputError, match="f-dp"):
        one_run_epsilon(Guesses(200_000, 200_000, 150_000), 1e-5)
    assert one_run_epsilon(Guesses(200_000, 200_000, 150_000), 1e-5, method="f-dp").eps_low > 1
    with pytest.raises(InputError, match="10,000,000"):
        Guesses(2**53, 10, 5)
