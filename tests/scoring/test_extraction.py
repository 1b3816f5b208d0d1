"""Extraction against exact rationals, Monte-Carlo and generate; lists against enumeration; verdicts against bounds."""

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.special import log_softmax

from davylamp.bounds import audit, clopper_pearson, pure_dp
from davylamp.errors import InputError, ScoringError
from davylamp.release.local import LocalRelease
from davylamp.scoring.extraction import at_least_once, list_extraction, samples_needed
from davylamp.scoring.extraction_verdict import judge_extraction
from davylamp.scoring.guessing_rows import open_rows
from davylamp.scoring.guessing_search import Effort
from davylamp.scoring.tokens import SecretTokens, TokenScorer
from davylamp.scoring.tokens_decoding import GREEDY, Scheme
from support.tiny_models import tiny_model, tiny_tokenizer

PREFIX = (1, 40, 77, 102)


@pytest.fixture(scope="module")
def release():
    # Wide weights make conditionals so sharp that a sequence of three tokens is hit often enough to be tested.
    return LocalRelease(tiny_model("llama", spread=0.6), tiny_tokenizer(), "tiny")


@pytest.mark.parametrize("p", [Fraction(1, 2), Fraction(1, 10), Fraction(1, 10**6), Fraction(1, 10**15)])
@pytest.mark.parametrize("n", [1, 2, 100, 10**6])
def test_the_chance_of_n_samples_is_exact(p, n):
    # The expansion's terms fall by n p; beyond 1 the power itself is exact enough in rationals.
    expected = 1 - (1 - p) ** n if n <= 100 else -math.expm1(n * math.log1p(-float(p)))
    assert at_least_once(math.log(p), n) == pytest.approx(float(expected), rel=1e-12)


def test_the_ends_of_the_chance():
    assert at_least_once(-math.inf, 10**9) == 0
    assert at_least_once(0.0, 1) == 1
    # e^-800 is below the smallest double, and so many samples beyond the largest.
    assert at_least_once(-800.0, 1) == 0
    assert samples_needed(-math.inf, 0.5) == math.inf
    assert samples_needed(0.0, 0.999) == 1
    assert samples_needed(-800.0, 0.5) == math.inf


def test_samples_needed_on_paper():
    # Half chance: one sample gives 0.5, two 0.75, three 0.875.
    assert [samples_needed(math.log(0.5), p) for p in (0.5, 0.6, 0.75, 0.8, 0.875)] == [1, 2, 2, 3, 3]
    # p = 0.1: ln 0.5 / ln 0.9 = 6.58.
    assert samples_needed(math.log(0.1), 0.5) == 7
    # A tiny p: ln 2 / p.
    assert samples_needed(math.log(1e-12), 0.5) == pytest.approx(math.log(2) * 1e12, rel=1e-9)


@settings(max_examples=200, deadline=None)
@given(log_p=st.floats(-30, -1e-6), probability=st.floats(1e-6, 1 - 1e-6))
def test_the_fewest_samples_are_those_of_exact_arithmetic(log_p, probability):
    with mpmath.workdps(50):
        exact = mpmath.log(1 - mpmath.mpf(probability)) / mpmath.log(1 - mpmath.exp(mpmath.mpf(log_p)))
        # Where the quotient is whole within a double's rounding, either side is right.
        allowed = {max(1, int(mpmath.ceil(exact * (1 + error)))) for error in (-4e-15, 0, 4e-15)}
    assert samples_needed(log_p, probability) in allowed


def test_bad_numbers_are_refused():
    for call in (
        lambda: at_least_once(0.1, 5),
        lambda: at_least_once(-1.0, 0),
        lambda: at_least_once(math.nan, 5),
        lambda: samples_needed(-1.0, 1.0),
        lambda: samples_needed(-1.0, 0.0),
    ):
        with pytest.raises(InputError):
            call()


@pytest.mark.parametrize("scheme", [Scheme(), Scheme(0.6), Scheme(1.0, 8), Scheme(1.2, 0, 0.7), Scheme(0.8, 20, 0.9)])
def test_the_analytic_probability_is_the_rate_of_generate(release, scheme):
    draws = 4000
    # What a first run says most often, so that the probability is large enough to be tested.
    said = [tuple(each) for each in release.generate([PREFIX] * 200, scheme.decoding(3, seed=1))]
    secret = max((each for each in said if len(each) == 3), key=said.count)
    record = SecretTokens("c", (*PREFIX, *secret), (4, 7))
    log_p = TokenScorer([scheme]).score(release, [record])[0].emission[scheme]
    hits = sum(tuple(each) == secret for each in release.generate([PREFIX] * draws, scheme.decoding(3, seed=2)))
    # An exact binomial test at level 1e-4 in each tail: over the five schemes a true figure fails once in a thousand.
    assert stats.binomtest(hits, draws, math.exp(log_p)).pvalue > 2e-4
    assert 20 < hits < draws


def test_greedy_is_the_special_case(release):
    said = release.generate([PREFIX], GREEDY.decoding(4))[0]
    for secret, expected in ((said, 0.0), ([*said[:3], said[3] ^ 1], -math.inf)):
        record = SecretTokens("c", (*PREFIX, *secret), (4, 4 + len(secret)))
        assert TokenScorer([GREEDY]).score(release, [record])[0].emission[GREEDY] == expected


def test_a_colder_scheme_tends_to_greedy(release):
    said = release.generate([PREFIX], GREEDY.decoding(3))[0]
    record = SecretTokens("c", (*PREFIX, *said), (4, 7))
    cold = Scheme(1e-5)
    assert TokenScorer([cold]).score(release, [record])[0].emission[cold] == pytest.approx(0, abs=1e-6)


class Tables:
    """First-order chains over a small vocabulary."""

    def __init__(self, seed, vocabulary=9, length=3, sharpness=1.0):
        rng = np.random.default_rng(seed)
        self._rows = log_softmax(rng.normal(size=(length, vocabulary + 1, vocabulary)) * sharpness, axis=2)
        self.shape = (vocabulary,) * length

    def rows(self, paths):
        return np.stack([self._rows[len(path), path[-1] if path else -1] for path in paths])

    def totals(self):
        first, *rest = self._rows
        totals = first[-1]
        for rows in rest:
            totals = totals[..., None] + rows[:-1].reshape((1,) * (totals.ndim - 1) + rows[:-1].shape)
        return totals


@pytest.mark.parametrize("guesses", [1, 4, 16])
def test_a_secret_is_listed_exactly_if_it_is_among_the_likeliest(guesses):
    for seed in range(3):
        tables = Tables(seed)
        totals = tables.totals()
        order = np.argsort(-totals.ravel())
        for place in [*range(20), 100, 728]:
            secret = tuple(int(i) for i in np.unravel_index(order[place], tables.shape))
            listing = list_extraction(tables, secret, float(totals[secret]), guesses, margin=0, batch=4)
            assert (listing.low, listing.high) == (place < guesses, place < guesses)


def test_a_memorised_secret_costs_one_path():
    class Known:
        def rows(self, paths):
            rows = np.full((len(paths), 1000), math.log(0.01 / 999))
            rows[:, 7] = math.log(0.99)
            return rows

    listing = list_extraction(Known(), (7,) * 6, 6 * math.log(0.99), 10)
    assert listing.low
    # The true path has six inner prefixes; with ten guesses some neighbours are as good as read, none is likelier.
    assert listing.expansions <= 6


def test_a_search_that_was_cut_off_says_so():
    tables = Tables(1, sharpness=0.1)
    totals = tables.totals()
    secret = tuple(int(i) for i in np.unravel_index(np.argsort(-totals.ravel())[3], tables.shape))
    listing = list_extraction(tables, secret, float(totals[secret]), 16, effort=Effort(expansions=2), margin=0)
    assert (listing.low, listing.high) == (False, True)
    assert listing.expansions == 2


def test_a_secret_that_ties_with_the_last_place_is_not_called_unlisted():
    class Uniform:
        def rows(self, paths):
            return np.full((len(paths), 5), -math.log(5))

    listings = [list_extraction(Uniform(), (a, b), -2 * math.log(5), 4) for a in range(5) for b in range(5)]
    assert sum(listing.low for listing in listings) <= 4
    assert all(listing.high for listing in listings)


def test_a_list_over_a_model_holds_what_greedy_says(release):
    said = release.generate([PREFIX], GREEDY.decoding(2))[0]
    record = SecretTokens("c", (*PREFIX, *said), (4, 6))
    log_p = TokenScorer().score(release, [record])[0].log_likelihood(record.secret)
    assert list_extraction(open_rows(release, PREFIX), said, log_p, 10).low
    with pytest.raises(ScoringError, match="longer than the context"):
        list_extraction(open_rows(release, PREFIX * 64), said, log_p, 10)


def test_the_verdict_is_that_of_the_lower_bound():
    # 10 of 10: the lower bound is 0.05^(1/10) = 0.741.
    assert clopper_pearson(10, 10, 0.95, "lower").low == pytest.approx(0.05**0.1)
    assert judge_extraction(10, 10, 0.74).word == "leak"
    assert judge_extraction(10, 10, 0.75).word == "underpowered"
    assert judge_extraction(3, 10, 0.2).word == "guessable"
    assert judge_extraction(0, 10, 0.2).word == "not seen"
    found = judge_extraction(0, 10, 1e-4)
    assert (found.word, found.success_low) == ("not seen", 0.0)
    assert found.success_high == pytest.approx(1 - 0.05**0.1)
    assert found.claim is None


def test_a_claim_is_held_against_the_same_counts():
    found = judge_extraction(40, 64, 1e-3, claim=pure_dp(1.0), guesses=10, copies=2, confidence=0.99)
    assert found.word == "leak"
    assert found.claim == audit(pure_dp(1.0), 1e-3, 40, 64, confidence=0.99, budget=10, copies=2)
    assert found.claim.verdict == "refuted"
    assert judge_extraction(40, 64, 1e-3, claim=pure_dp(12.0)).claim.verdict != "refuted"


def test_null_data_are_rarely_called_a_leak():
    # 400 audits of 64 secrets that a guesser with kappa 0.1 extracts by chance: at confidence 0.95 at most 5% are
    # called a leak; 400 x 0.05 = 20, and 35 is its 99.9% quantile.
    rng = np.random.default_rng(0)
    words = [judge_extraction(int(hits), 64, 0.1).word for hits in rng.binomial(64, 0.1, 400)]
    assert words.count("leak") <= 35
    assert set(words) <= {"leak", "guessable", "not seen"}


def test_a_verdict_needs_a_probability_and_counts():
    with pytest.raises(InputError, match="kappa"):
        judge_extraction(1, 2, 1.5)
    with pytest.raises(InputError, match="successes"):
        judge_extraction(3, 2, 0.5)
