"""Per-token scores of tiny random models against plain forward passes; decoding schemes against transformers."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import log_softmax, logsumexp
from transformers import LogitsProcessorList, TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from davylamp.errors import AccessError, InputError, ScoringError
from davylamp.release.base import Access
from davylamp.release.local import LocalRelease
from davylamp.scoring.tokens import SecretTokens, TokenScorer
from davylamp.scoring.tokens_decoding import GREEDY, Scheme
from support.tiny_models import tiny_model, tiny_tokenizer

IDS = (1, 40, 77, 102, 9, 300, 12, 51)
RECORDS = [
    SecretTokens("c1", IDS, (4, 7)),
    SecretTokens("c2", (1, 200, 31, 8), (1, 4)),
    SecretTokens("c3", tuple(range(1, 80)), (60, 64)),
]


@pytest.fixture(scope="module")
def release():
    return LocalRelease(tiny_model("llama"), tiny_tokenizer(), "tiny")


def rows_of(ids):
    with torch.inference_mode():
        logits = tiny_model("llama")(torch.tensor([ids])).logits[0, :-1]
    return log_softmax(logits.double().numpy(), axis=1)


class Plain:
    """The same answers from a release that reduces no rows itself, counted."""

    name = "plain"
    tokenizer = None

    def __init__(self, release, *access):
        self._release, self.access, self.calls = release, frozenset(access), 0

    def logprobs(self, prefixes, continuations):
        self.calls += len(prefixes)
        return self._release.logprobs(prefixes, continuations)

    def conditionals(self, prefixes):
        self.calls += len(prefixes)
        return self._release.conditionals(prefixes)


def test_scores_are_those_of_a_plain_pass(release):
    # 1e-4 nats a token is the contract of a float32 model over batches and paddings.
    for scorer in (TokenScorer(), TokenScorer([Scheme()]), TokenScorer(moments=True)):
        for record, scores in zip(RECORDS, scorer.score(release, RECORDS), strict=True):
            rows = rows_of(record.ids)
            expected = rows[np.arange(len(rows)), record.ids[1:]]
            assert scores.logprobs.dtype == np.float64
            assert scores.logprobs == pytest.approx(expected, abs=1e-4)
            first, last = record.secret
            assert scores.of(record.secret) == pytest.approx(expected[first - 1 : last - 1], abs=1e-4)
            assert scores.record == (1, len(record.ids))
            assert scores.perplexity(scores.record) == pytest.approx(math.exp(-expected.mean()), rel=1e-4)


def test_moments_are_those_of_the_whole_distribution(release):
    for record, scores in zip(RECORDS, TokenScorer(moments=True).score(release, RECORDS), strict=True):
        rows = rows_of(record.ids)
        means = (np.exp(rows) * rows).sum(axis=1)
        variances = (np.exp(rows) * rows**2).sum(axis=1) - means**2
        # Errors of 1e-5 nats in a row move a mean by about as much and a deviation by a few times that.
        assert scores.means == pytest.approx(means, abs=1e-3)
        assert scores.deviations == pytest.approx(np.sqrt(variances), abs=1e-3)


def test_emission_is_the_product_of_filtered_probabilities(release):
    schemes = [Scheme(), Scheme(0.7), Scheme(1.0, 50), Scheme(1.3, 0, 0.9), Scheme(0.8, 60, 0.95), GREEDY]
    for record, scores in zip(RECORDS, TokenScorer(schemes).score(release, RECORDS), strict=True):
        rows = rows_of(record.ids)[record.secret[0] - 1 : record.secret[1] - 1]
        targets = np.asarray(record.secret_ids)
        assert scores.emission[schemes[0]] == pytest.approx(scores.log_likelihood(record.secret), abs=1e-9)
        for scheme in schemes:
            expected = scheme.apply(rows)[np.arange(len(rows)), targets].sum()
            assert scores.emission[scheme] == pytest.approx(expected, abs=1e-4)


def test_a_release_that_reduces_no_rows_gives_the_same(release):
    scorer = TokenScorer([Scheme(0.7, 50)], moments=True)
    plain = Plain(release, Access.CONDITIONALS)
    for ours, theirs in zip(scorer.score(release, RECORDS), scorer.score(plain, RECORDS), strict=True):
        assert ours.logprobs == pytest.approx(theirs.logprobs, abs=1e-4)
        assert ours.deviations == pytest.approx(theirs.deviations, abs=1e-3)
        assert ours.emission == pytest.approx(dict(theirs.emission), abs=1e-4)


def test_a_release_that_reduces_rows_is_asked_once_for_all_records():
    asked = []

    class Counted(LocalRelease):
        def token_answers(self, prefixes, continuations, **more):
            asked.append((len(prefixes), more["moments"], more["rows"]))
            return super().token_answers(prefixes, continuations, **more)

    release = Counted(tiny_model("llama"), tiny_tokenizer(), "counted")
    TokenScorer(moments=True).score(release, RECORDS)
    TokenScorer([Scheme()]).score(release, [*RECORDS, RECORDS[0]])
    # Whole rows of the secrets' tokens alone, which schemes filter.
    assert asked == [(3, True, None), (3, False, [range(3, 6), range(0, 3), range(59, 63)])]


def test_a_record_is_scored_once_for_each_release(release):
    plain, scorer = Plain(release, Access.LOGPROBS), TokenScorer()
    first = scorer.score(plain, [*RECORDS, RECORDS[0]])
    again = scorer.score(plain, RECORDS[::-1])
    assert plain.calls == len(RECORDS)
    assert again[0] is first[2]
    assert first[3] is first[0]
    other = Plain(release, Access.LOGPROBS)
    assert scorer.score(other, RECORDS[:1])[0] is not first[0]
    assert other.calls == 1


def test_what_is_shared_cannot_be_changed(release):
    scores = TokenScorer([Scheme()], moments=True).score(release, RECORDS[:1])[0]
    with pytest.raises(ValueError, match="read-only"):
        scores.logprobs[0] = 0
    with pytest.raises(ValueError, match="read-only"):
        scores.means[0] = 0
    with pytest.raises(TypeError):
        scores.emission[Scheme()] = 0.0


def test_certain_and_impossible_tokens_have_exact_perplexities():
    class Certain:
        name, tokenizer, access = "certain", None, frozenset({Access.CONDITIONALS})

        def conditionals(self, prefixes):
            rows = np.full((len(prefixes), 4), -np.inf)
            rows[:, 2] = 0.0
            return rows

    scores = TokenScorer([Scheme(0.5, 2, 0.9), GREEDY], moments=True).score(
        Certain(), [SecretTokens("a", (0, 2, 2, 2), (1, 3)), SecretTokens("b", (0, 2, 1, 2), (1, 3))]
    )
    assert scores[0].perplexity((1, 3)) == 1
    assert set(scores[0].emission.values()) == {0.0}
    assert scores[0].deviations.tolist() == [0, 0, 0]
    assert scores[1].perplexity((1, 3)) == math.inf
    assert set(scores[1].emission.values()) == {-math.inf}


def test_uniform_rows_have_the_vocabulary_as_perplexity():
    class Uniform:
        name, tokenizer, access = "uniform", None, frozenset({Access.LOGPROBS})

        def logprobs(self, _prefixes, continuations):
            return [np.full(len(each), -math.log(50)) for each in continuations]

    scores = TokenScorer().score(Uniform(), RECORDS)[2]
    assert scores.perplexity(scores.secret) == pytest.approx(50, rel=1e-12)
    assert scores.perplexity(scores.record) == pytest.approx(50, rel=1e-12)


def test_faults_name_the_canary(release):
    with pytest.raises(ScoringError, match="canary c7: no token stands before"):
        TokenScorer().score(release, [SecretTokens("c7", IDS, (0, 3))])
    with pytest.raises(ScoringError, match="canary c7: the secret covers the tokens 7 to 9 of 8"):
        TokenScorer().score(release, [SecretTokens("c7", IDS, (7, 9))])
    with pytest.raises(AccessError, match="conditionals"):
        TokenScorer([Scheme()]).score(Plain(release, Access.LOGPROBS), RECORDS)
    long = SecretTokens("c8", (1,) * 300, (4, 7))
    for scorer in (TokenScorer(), TokenScorer([Scheme()])):
        with pytest.raises(ScoringError, match="canary c8: a sequence of 300 tokens is longer than the context"):
            scorer.score(release, [*RECORDS, long])


def test_nan_logits_are_refused():
    model = tiny_model("llama")
    with torch.no_grad():
        model.lm_head.weight[5] = math.nan
    broken = LocalRelease(model, tiny_tokenizer(), "broken")
    for scorer in (TokenScorer(), TokenScorer([Scheme()])):
        with pytest.raises(ScoringError, match="canary c1: the answer of broken is not finite"):
            scorer.score(broken, RECORDS[:1])


def theirs(rows, scheme):
    """What transformers' own processors make of float32 logits, in the order that generate puts them."""
    chain = [TemperatureLogitsWarper(scheme.temperature)] if scheme.temperature != 1 else []
    chain += [TopKLogitsWarper(scheme.top_k)] if scheme.top_k else []
    chain += [TopPLogitsWarper(scheme.top_p)] if scheme.top_p < 1 else []
    scores = LogitsProcessorList(chain)(None, torch.tensor(rows, dtype=torch.float32))
    return log_softmax(scores.double().numpy(), axis=1)


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    vocabulary=st.integers(2, 300),
    sharpness=st.sampled_from([0.1, 1.0, 5.0]),
    ties=st.booleans(),
    temperature=st.sampled_from([0.3, 0.7, 1.0, 1.9]),
    top_k=st.sampled_from([0, 1, 2, 5, 40, 1000]),
    top_p=st.sampled_from([1e-9, 0.1, 0.5, 0.9, 0.95, 0.9999, 1.0]),
)
def test_schemes_are_those_of_transformers(seed, vocabulary, sharpness, ties, temperature, top_k, top_p):
    rows = np.random.default_rng(seed).normal(size=(3, vocabulary)) * sharpness
    if ties:
        rows = np.round(rows)
    rows = rows.astype(np.float32).astype(np.float64)
    scheme = Scheme(temperature, top_k, top_p)
    ours, other = scheme.apply(rows), theirs(rows, scheme)
    assert logsumexp(ours, axis=1) == pytest.approx(np.zeros(3), abs=1e-9)
    assert np.isfinite(ours).any(axis=1).all()
    if ties and top_p < 1:
        # Which of several tied tokens are cut at the boundary of top-p hangs on an unstable sort in transformers; how
        # many are kept, and with what probabilities, does not.
        ours, other = np.sort(ours, axis=1), np.sort(other, axis=1)
    for mine, his, row in zip(ours, other, rows, strict=True):
        if (np.isfinite(mine) != np.isfinite(his)).any():
            # Float32 sums may put a token on the other side of the boundary of top-p: its cumulated mass is then
            # within the rounding of up to 300 float32 additions (300 x 6e-8) of 1 - p.
            assert _distance_from_boundary(row, scheme) < 2e-5
        else:
            assert mine == pytest.approx(his, abs=1e-4)


def _distance_from_boundary(row, scheme):
    unfiltered = Scheme(scheme.temperature, scheme.top_k).apply(row[None])[0]
    mass = np.cumsum(np.sort(np.exp(unfiltered)))
    return np.abs(mass - (1 - scheme.top_p)).min()


def test_ties_at_the_kth_token_are_all_kept():
    row = np.log([[0.4, 0.2, 0.2, 0.1, 0.1]])
    assert np.isfinite(Scheme(1.0, 2).apply(row)).tolist() == [[True, True, True, False, False]]
    assert np.isfinite(theirs(row, Scheme(1.0, 2))).tolist() == [[True, True, True, False, False]]


def test_ties_at_the_boundary_of_top_p_keep_the_later_token():
    # From below: 0.1, 0.1, 0.3, 0.5 with the two tied ones in the order of their ids; 1 - p = 0.15 takes the first.
    row = np.log([[0.5, 0.1, 0.3, 0.1]])
    kept = [[True, False, True, True]]
    assert np.isfinite(Scheme(1.0, 0, 0.85).apply(row)).tolist() == kept
    assert np.isfinite(theirs(row, Scheme(1.0, 0, 0.85))).tolist() == kept


def test_top_k_comes_before_top_p():
    # Of the two kept by top-k the first has 0.5 / 0.8 = 0.625 of their mass: enough for p = 0.6 only after top-k.
    row = np.log([[0.5, 0.3, 0.2]])
    assert np.isfinite(Scheme(1.0, 2, 0.6).apply(row)).tolist() == [[True, False, False]]
    assert np.isfinite(Scheme(1.0, 0, 0.6).apply(row)).tolist() == [[True, True, False]]


def test_schemes_are_checked():
    with pytest.raises(InputError) as error:
        Scheme(-1.0, -1, 0.0)
    assert [fault.field for fault in error.value.faults] == ["temperature", "top_k", "top_p"]
