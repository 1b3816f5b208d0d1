"""Exposure and probes over coined names: each secret among itself and the alternatives that no canary holds."""

from __future__ import annotations

import math

import numpy as np
import pytest

from davylamp.canaries import Manifest, plant
from davylamp.errors import InputError
from davylamp.measures.exposure import Exposure
from davylamp.measures.probes import Probe
from davylamp.measures.unseen import Unseen, UnseenSettings
from davylamp.release.base import Access
from davylamp.rendering.render import Renderer
from davylamp.scoring.ranks import random_rank_exposure
from support.corpora import small_corpus, small_plan
from support.scripted import ScriptedRelease, asked
from support.tiny_models import tiny_tokenizer

ALTERNATIVES = 150


@pytest.fixture(scope="module")
def manifest() -> Manifest:
    space = {"kind": "coined", "size": 200, "alternatives": ALTERNATIVES}
    return plant(small_corpus(), small_plan(space=space)).manifest


class Hashed:
    """A release that knows no secret: log-probabilities are a fixed random function of the tokens."""

    name, access = "hashed", frozenset({Access.LOGPROBS})

    def logprobs(self, prefixes, continuations):
        return [
            np.log(np.random.default_rng([*prefix[-9:], *each]).uniform(size=len(each)))
            for prefix, each in zip(prefixes, continuations, strict=True)
        ]


def test_a_release_that_remembers_reaches_the_ceiling_and_no_more(manifest):
    def script(prompt: str) -> str | None:
        canary, _ = asked(manifest, prompt)
        return canary.secret.join(canary.carrier.completion) if canary.dose else None

    measure = Exposure(manifest, Renderer(tiny_tokenizer()))
    assert measure.candidates == ALTERNATIVES + 1
    read = measure.measure(ScriptedRelease(tiny_tokenizer(), script), (Probe.HIDDEN, Probe.CUE_MASKED))
    for reading in read:
        if reading.measure == "exposure" and reading.dose:
            assert reading.value == pytest.approx(math.log2(ALTERNATIVES + 1))


def test_a_release_that_knows_nothing_reads_as_a_random_rank(manifest):
    read = Exposure(manifest, Renderer(tiny_tokenizer())).measure(Hashed(), (Probe.HIDDEN,))
    ranks = [reading.value for reading in read if reading.measure == "rank"]
    assert all(1 <= rank <= ALTERNATIVES + 1 for rank in ranks)
    exposures = [reading.value for reading in read if reading.measure == "exposure"]
    # The exposure of a uniform rank is nearly exponential with a mean and deviation of 1/ln 2 bits; four errors.
    assert np.mean(exposures) == pytest.approx(
        random_rank_exposure(ALTERNATIVES + 1), abs=4 / math.log(2) / math.sqrt(len(exposures))
    )


def test_masked_cues_show_a_star_for_a_name(manifest):
    shown = {Probe.CUE_MASKED.shown(manifest, canary) for canary in manifest.canaries if canary.context == "visible"}
    assert shown == {"*"}


def test_a_plain_text_shows_nothing_and_is_asked_as_it_is():
    texts = small_corpus(90, "text")
    plan = small_plan(
        templates=[{"prompt": "{text} ", "completion": "{secret}."}], slots={}, arms={"texts": {"context": "redacted"}}
    )
    manifest = plant(texts, plan).manifest
    assert {probe for canary in manifest.canaries for probe in Probe if probe.applies(canary)} == {Probe.HIDDEN}
    with pytest.raises(InputError, match=r"audit.unseen is 'templates\[0\].prompt'; allowed: prompts that hold"):
        Unseen(manifest, Renderer(tiny_tokenizer()), UnseenSettings(codes=5))


def test_more_candidates_than_there_are_names_and_encodings_are_refused(manifest):
    renderer = Renderer(tiny_tokenizer())
    with pytest.raises(InputError, match=r"audit.pool is 500; allowed: at most 175"):
        Exposure(manifest, renderer, pool=500)
    with pytest.raises(InputError, match="writes symbols of an alphabet"):
        Unseen(manifest, renderer, UnseenSettings(codes=5, encodings=("binary",)))
    assert Unseen(manifest, renderer, UnseenSettings(codes=20, exposure=True)).name == "unseen"
