from __future__ import annotations

import math

import pytest

from davylamp.bounds.intervals import clopper_pearson
from davylamp.canaries import plant
from davylamp.errors import AccessError, InputError
from davylamp.measures.forgetting import SecretPair, canary_pairs, greedy_extraction, log_likelihoods
from davylamp.release.base import Access
from davylamp.rendering.render import Renderer
from support.corpora import small_corpus, small_plan
from support.scripted import ScriptedRelease, asked
from support.tiny_models import tiny_tokenizer


@pytest.fixture(scope="module")
def manifest():
    return plant(small_corpus(60), small_plan(arms={"redacted": {"context": "redacted"}}, per_dose=4)).manifest


def release_of(manifest, known, **changes):
    """Says the reply of the canaries that it knows, and nothing of the others."""

    def script(prompt):
        canary, _ = asked(manifest, prompt)
        return canary.carrier.record(manifest.shape, "", canary.secret).reply if canary.id in known else None

    return ScriptedRelease(tiny_tokenizer(), script, **changes)


def test_what_is_known_comes_out_and_the_rest_does_not(manifest):
    focus = [canary for canary in manifest.canaries if canary.role == "focus"]
    release = release_of(manifest, {canary.id for canary in focus[:3]})
    pairs = canary_pairs(manifest, Renderer(tiny_tokenizer()), focus)
    found = greedy_extraction(release, pairs)
    assert (found.successes, found.trials, found.rate) == (3, 8, 3 / 8)
    interval = clopper_pearson(3, 8)
    assert (found.low, found.high) == (interval.low, interval.high)
    # Along a known reply each token has probability 0.9, elsewhere 1 in the vocabulary.
    per_secret = [
        len(pair.secret) * (math.log(0.9) if at < 3 else -math.log(release.vocabulary)) for at, pair in enumerate(pairs)
    ]
    assert log_likelihoods(release, pairs).tolist() == pytest.approx(per_secret)
    assert found.log_likelihood == pytest.approx(sum(per_secret) / 8)


def test_twins_that_were_never_planted_do_not_come_out(manifest):
    twins = [canary for canary in manifest.canaries if canary.role == "twin"]
    pairs = canary_pairs(manifest, Renderer(tiny_tokenizer()), twins)
    assert greedy_extraction(release_of(manifest, set()), pairs).successes == 0


def test_secrets_of_several_lengths_are_asked_for_together(manifest):
    release = release_of(manifest, set())
    # Where no reply is meant every token is as likely, and the first of them, 0, is said.
    pairs = [SecretPair("one", (7,), (0,)), SecretPair("two", (7, 8), (0, 0)), SecretPair("three", (9,), (0, 1, 0))]
    found = greedy_extraction(release, pairs)
    assert (found.successes, found.trials) == (2, 3)


def test_the_access_that_is_needed_is_said(manifest):
    pair = [SecretPair("one", (7,), (0,))]
    silent = release_of(manifest, set(), access=frozenset({Access.LOGPROBS}))
    with pytest.raises(AccessError, match="greedy extraction needs generate"):
        greedy_extraction(silent, pair)
    spoken = release_of(manifest, set(), access=frozenset({Access.GENERATE}))
    assert greedy_extraction(spoken, pair).log_likelihood is None
    with pytest.raises(AccessError, match="logprobs"):
        log_likelihoods(spoken, pair)


def test_empty_pairs_are_named(manifest):
    release = release_of(manifest, set())
    with pytest.raises(InputError, match="pairs is 0"):
        greedy_extraction(release, [])
    with pytest.raises(InputError, match=r"(?s)of a is.*of b is"):
        greedy_extraction(release, [SecretPair("a", (), (1,)), SecretPair("b", (1,), ())])
