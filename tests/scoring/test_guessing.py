"""The search against exhaustive enumeration of small distributions whose every step depends on the whole path."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import log_softmax

from davylamp.errors import InputError, ScoringError
from davylamp.release.local import LocalRelease
from davylamp.release.plain import PlainPrefix
from davylamp.scoring.guessing import guessing_baseline
from davylamp.scoring.guessing_rows import FLOAT32_MARGIN, open_rows
from davylamp.scoring.guessing_search import Effort
from support.tiny_models import ARCHITECTURES, tiny_model, tiny_tokenizer


def widest(length, temperature, kappa):
    """How wide a closed interval on exact rows may be: twice the slack of 1e-12 a token, and ends that round near 1."""
    return 2 * length * 1e-12 * max(1, 1 / temperature) * kappa + 4e-16


class Table:
    """Logits that add a term for each token of the path, by its place and by the distance to the next."""

    def __init__(self, vocabulary, length, seed, sharpness=1.0, zeros=0.0):
        rng = np.random.default_rng(seed)
        self.vocabulary, self.length = vocabulary, length
        self._base = rng.normal(size=(length, vocabulary)) * sharpness
        self._terms = rng.normal(size=(length, vocabulary, vocabulary)) * sharpness
        self._base[rng.random(self._base.shape) < zeros] = -np.inf
        self._base[:, 0] = 0.0
        self.calls = []

    def _logits(self, paths):
        rows = np.empty((len(paths), self.vocabulary))
        for index, path in enumerate(paths):
            rows[index] = self._base[len(path)]
            for place, token in enumerate(path):
                rows[index] += self._terms[place, (token + len(path)) % self.vocabulary] * (1 + 0.3 * place)
        return rows

    def rows(self, paths):
        self.calls.append(list(paths))
        return log_softmax(self._logits(paths), axis=1)

    def enumerate(self, temperature=1.0):
        """Every sequence with its log-probability, shape (vocabulary,) * length."""
        totals = np.zeros(())
        for depth in range(self.length):
            paths = list(itertools.product(range(self.vocabulary), repeat=depth))
            rows = log_softmax(self._logits(paths) / temperature, axis=1)
            totals = totals[..., None] + rows.reshape(*totals.shape, self.vocabulary)
        return totals

    def kappa(self, budget, temperature=1.0):
        # Where the list is all there is, the rounded masses may sum to a rounding above 1.
        return min(1.0, math.fsum(np.sort(np.exp(self.enumerate(temperature)).ravel())[::-1][:budget]))


CASES = [(7, 4), (12, 4), (40, 3), (120, 2), (30, 2), (9, 1)]


@pytest.mark.parametrize(("vocabulary", "length"), CASES)
@pytest.mark.parametrize("sharpness", [0.3, 2.0])
def test_a_closed_search_is_the_enumeration(vocabulary, length, sharpness):
    table = Table(vocabulary, length, seed=vocabulary * length, sharpness=sharpness)
    for budget, temperature in itertools.product((1, 4, 16), (0.5, 1.0, 1.7)):
        # Fewer values than guesses: the whole space is listed, and kappa is 1.
        exact = table.kappa(budget, temperature)
        for batch in (1, 32):
            found = guessing_baseline(table, length, budget, temperature=temperature, margin=0, batch=batch)
            assert found.closed
            assert found.kappa_low <= exact <= found.kappa_high
            assert found.kappa_high - found.kappa_low <= widest(length, temperature, exact)
            assert sum(guess.probability for guess in found.best) == pytest.approx(exact, rel=1e-12)


def test_the_list_is_the_list():
    table = Table(12, 3, seed=5)
    totals = table.enumerate()
    best = guessing_baseline(table, 3, 16, margin=0).best
    order = np.argsort(-totals.ravel(), kind="stable")[:16]
    assert [guess.tokens for guess in best] == [tuple(map(int, np.unravel_index(i, totals.shape))) for i in order]
    assert [guess.log_probability for guess in best] == pytest.approx(totals.ravel()[order], abs=1e-12)


@settings(max_examples=120, deadline=None)
@given(
    case=st.sampled_from([(7, 4), (7, 3), (13, 3), (24, 2), (60, 2)]),
    seed=st.integers(0, 10_000),
    budget=st.sampled_from([1, 4, 16]),
    temperature=st.sampled_from([0.3, 1.0, 2.5]),
    sharpness=st.sampled_from([0.1, 1.0, 4.0]),
    zeros=st.sampled_from([0.0, 0.6]),
    batch=st.sampled_from([1, 3, 16, 64]),
    expansions=st.integers(1, 60),
    memory=st.sampled_from([12, 500, 2**28]),
)
def test_a_search_that_was_cut_off_brackets_the_enumeration(
    case, seed, budget, temperature, sharpness, zeros, batch, expansions, memory
):
    vocabulary, length = case
    table = Table(vocabulary, length, seed, sharpness, zeros)
    exact = table.kappa(budget, temperature)
    found = guessing_baseline(
        table,
        length,
        budget,
        temperature=temperature,
        margin=0,
        batch=batch,
        effort=Effort(expansions=expansions),
        memory=memory,
    )
    assert found.expansions <= expansions
    assert found.expansions == sum(map(len, table.calls))
    assert found.kappa_low <= exact <= found.kappa_high <= 1
    assert found.min_entropy_low_bits <= found.min_entropy_high_bits
    if found.closed:
        assert found.kappa_high - found.kappa_low <= widest(length, temperature, exact)
    assert all(len(guess.tokens) == length for guess in found.best)
    assert len({guess.tokens for guess in found.best}) == len(found.best) <= budget


def test_the_ends_only_close_in_as_the_search_goes_on():
    table = Table(24, 3, seed=1, sharpness=0.6)
    before = None
    for expansions in range(1, 200, 9):
        now = guessing_baseline(table, 3, 4, margin=0, batch=4, effort=Effort(expansions=expansions))
        # The same batches up to the last, which may be smaller: the order of work is the same, so ends are nested
        # wherever the smaller search stopped at a whole batch.
        if expansions % 4 == 1:
            if before is not None:
                assert before.kappa_low <= now.kappa_low
                assert now.kappa_high <= before.kappa_high
            before = now


def test_an_unlikely_first_token_may_lead_to_the_likeliest_sequence():
    # 200 tokens: the last of them has a first step of 0.002 and certain steps after it; all others spread evenly, so
    # that each of their sequences has some 0.005**3. A slice of the likeliest first tokens would miss the answer.
    vocabulary = 200

    class GardenPath:
        def rows(self, paths):
            rows = np.full((len(paths), vocabulary), -math.log(vocabulary))
            for row, path in zip(rows, paths, strict=True):
                if not path:
                    row[:] = math.log((1 - 0.002) / (vocabulary - 1))
                    row[-1] = math.log(0.002)
                elif path[0] == vocabulary - 1:
                    row[:] = -np.inf
                    row[7] = 0.0
            return rows

    found = guessing_baseline(GardenPath(), 3, 1, margin=0)
    assert found.closed
    assert found.best[0].tokens == (vocabulary - 1, 7, 7)
    assert found.kappa_low == pytest.approx(0.002, rel=1e-9)


def test_a_uniform_secret_has_the_baseline_of_counting():
    class Uniform:
        def rows(self, paths):
            return np.full((len(paths), 10), -math.log(10))

    found = guessing_baseline(Uniform(), 4, 16, margin=0)
    # Every prefix of three digits has 0.001 and every sequence 0.0001: all inner prefixes must be read.
    assert found.closed
    assert found.expansions <= 1 + 10 + 100 + 1000
    assert found.kappa_low <= 16e-4 <= found.kappa_high
    assert found.min_entropy_low_bits == pytest.approx(-math.log2(16e-4), rel=1e-9)


def test_the_margin_moves_both_ends_outwards():
    table = Table(12, 3, seed=2)
    exact = table.kappa(4)
    found = guessing_baseline(table, 3, 4)
    assert found.kappa_low == pytest.approx(exact * math.exp(-3 * FLOAT32_MARGIN), rel=1e-9)
    assert found.kappa_high == pytest.approx(exact * math.exp(3 * FLOAT32_MARGIN), rel=1e-9)

    class Noisy:
        """The same rows in float32, each entry off by up to the margin."""

        def rows(self, paths):
            rows = table.rows(paths)
            noise = np.random.default_rng(len(paths)).uniform(-1, 1, rows.shape) * FLOAT32_MARGIN * 0.9
            return (rows + noise).astype(np.float32)

    for temperature in (1.0, 0.5, 2.0):
        found = guessing_baseline(Noisy(), 3, 4, temperature=temperature)
        assert found.kappa_low <= table.kappa(4, temperature) <= found.kappa_high


def test_a_path_is_asked_for_once_and_after_its_parent():
    table = Table(24, 3, seed=3, sharpness=0.5)
    found = guessing_baseline(table, 3, 4, batch=16, margin=0)
    assert found.closed
    seen = set()
    for call in table.calls:
        assert len(call) <= 16
        assert all(not path or path[:-1] in seen for path in call)
        assert not seen & set(call)
        seen |= set(call)


def test_a_deadline_ends_a_search(monkeypatch):
    clock = itertools.count()
    monkeypatch.setattr("davylamp.scoring.guessing_search.time.monotonic", lambda: float(next(clock)))
    table = Table(60, 3, seed=4, sharpness=0.2)
    found = guessing_baseline(table, 3, 4, batch=4, margin=0, effort=Effort(seconds=3))
    assert len(table.calls) == 2
    assert not found.closed
    assert found.kappa_low <= table.kappa(4) <= found.kappa_high


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (np.full((1, 4), np.nan), "NaN"),
        (np.log(np.full((1, 4), 0.2)), "sum to 0.8, not to 1"),
        (np.full((1, 4), -np.inf), "sum to 0, not to 1"),
        (np.full((2, 4), math.log(0.25)), "shape"),
    ],
)
def test_rows_that_bound_nothing_are_refused(rows, words):
    class Bad:
        def rows(self, _paths):
            return rows

    with pytest.raises(ScoringError, match=words):
        guessing_baseline(Bad(), 2, 1)


def test_all_faults_are_named_at_once():
    with pytest.raises(InputError) as error:
        guessing_baseline(Table(7, 2, 0), 0, 0, temperature=0.0, batch=0, margin=math.nan)
    assert [fault.field for fault in error.value.faults] == ["length", "budget", "batch", "temperature", "margin"]
    with pytest.raises(InputError) as error:
        guessing_baseline(Table(7, 2, 0), 2, 1, effort=Effort(expansions=0, seconds=0.0))
    assert [fault.field for fault in error.value.faults] == ["max_expansions", "seconds"]


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_model_s_baseline_is_that_of_plain_passes(architecture):
    release = LocalRelease(tiny_model(architecture), tiny_tokenizer(), architecture)
    prefix = [1, *range(40, 60)]
    fast = guessing_baseline(open_rows(release, prefix), 3, 4, batch=16, effort=Effort(400))
    plain = guessing_baseline(PlainPrefix(release, prefix), 3, 4, batch=16, effort=Effort(400))
    # Both are off by at most the margin of three tokens, and their ends allow for it: intervals of the same number
    # overlap, and what was found is the same list.
    assert max(fast.kappa_low, plain.kappa_low) <= min(fast.kappa_high, plain.kappa_high)
    assert [guess.tokens for guess in fast.best] == [guess.tokens for guess in plain.best]
    for ours, theirs in zip(fast.best, plain.best, strict=True):
        assert abs(ours.log_probability - theirs.log_probability) <= 3 * FLOAT32_MARGIN


def test_a_model_s_baseline_is_its_enumeration():
    release = LocalRelease(tiny_model("llama", spread=0.2), tiny_tokenizer(), "tiny")
    prefix = [1, 40, 77, 102, 9]
    first = release.conditionals([prefix])[0]
    rows = release.conditionals([[*prefix, token] for token in range(len(first))])
    exact = np.sort(np.exp(first[:, None] + rows).ravel())[::-1]
    for budget in (1, 4, 16):
        found = guessing_baseline(open_rows(release, prefix), 2, budget)
        assert found.closed
        assert found.kappa_low <= math.fsum(exact[:budget]) <= found.kappa_high


def test_a_secret_beyond_the_context_is_refused():
    release = LocalRelease(tiny_model("llama"), tiny_tokenizer(), "tiny")
    with pytest.raises(ScoringError, match="longer than the context of 256"):
        guessing_baseline(open_rows(release, [1] * 250), 8, 1)
    # The last token is guessed and never read.
    assert guessing_baseline(open_rows(release, [1] * 250), 7, 1, effort=Effort(100)).best
