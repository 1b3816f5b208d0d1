"""Perplexities on releases whose truth is known, and on a model against its own plain pass."""

import math

import numpy as np
import polars as pl
import pytest
import torch
from scipy.special import log_softmax

from davylamp.canaries import plant
from davylamp.errors import AccessError, ScoringError
from davylamp.measures.extraction import Extraction, ExtractionSettings
from davylamp.measures.perplexity import Perplexity
from davylamp.measures.probes import Probe, probed, secret_tokens
from davylamp.measures.readings import table
from davylamp.release.base import Access
from davylamp.release.local import LocalRelease
from davylamp.rendering.render import Renderer
from davylamp.scoring.tokens import TokenScorer
from davylamp.secrets import AlphabetSpace
from support.corpora import small_corpus, small_plan
from support.scripted import ScriptedRelease, asked
from support.tiny_models import tiny_model, tiny_tokenizer


@pytest.fixture(scope="module")
def manifest():
    return plant(small_corpus(), small_plan(space=AlphabetSpace(length=2))).manifest


def values(frame, measure, probe="hidden"):
    rows = frame.filter((pl.col("measure") == measure) & (pl.col("probe") == probe))
    return dict(zip(rows["canary"], rows["value"], strict=True))


def test_a_release_that_remembers_is_surprised_by_its_confidence(manifest):
    def script(prompt):
        canary, _ = asked(manifest, prompt)
        return canary.secret.join(canary.carrier.completion)

    release = ScriptedRelease(tiny_tokenizer(), script, confidence=0.8)
    frame = table(Perplexity(manifest, Renderer(tiny_tokenizer())).measure(release, tuple(Probe)))
    # Each token of the secret has probability 0.8, so that its perplexity is 1 / 0.8 whatever its length.
    assert set(frame["canary"]) == {canary.id for canary in manifest.canaries}
    for probe in ("hidden", "replacement"):
        assert list(values(frame, "secret_perplexity", probe).values()) == pytest.approx(
            [1.25] * len(manifest.canaries), rel=1e-12
        )
    likelihoods = values(frame, "secret_log_likelihood")
    # Two digits with a comma between them: three tokens.
    assert list(likelihoods.values()) == pytest.approx([3 * math.log(0.8)] * len(likelihoods), rel=1e-12)
    assert set(frame.filter(pl.col("measure") == "secret_perplexity")["unit"]) == {"perplexity"}
    assert set(frame.filter(pl.col("measure") == "record_log_likelihood")["unit"]) == {"nats"}


def test_a_model_s_perplexities_are_those_of_a_plain_pass(manifest):
    model, tokenizer = tiny_model("llama"), tiny_tokenizer()
    renderer = Renderer(tokenizer)
    frame = table(Perplexity(manifest, renderer).measure(LocalRelease(model, tokenizer, "tiny"), (Probe.HIDDEN,)))
    pairs = probed(manifest, (Probe.HIDDEN,))
    for (canary, _), record in zip(pairs, secret_tokens(manifest, renderer, pairs), strict=True):
        assert tokenizer.decode(record.secret_ids) == canary.secret
        with torch.inference_mode():
            logits = model(torch.tensor([record.ids])).logits[0, :-1].double().numpy()
        each = log_softmax(logits, axis=1)[np.arange(len(logits)), record.ids[1:]]
        secret = each[record.secret[0] - 1 : record.secret[1] - 1]
        # 1e-4 nats a token is the contract of a float32 model.
        assert values(frame, "secret_perplexity")[canary.id] == pytest.approx(math.exp(-secret.mean()), rel=1e-4)
        assert values(frame, "record_perplexity")[canary.id] == pytest.approx(math.exp(-each.mean()), rel=1e-4)
        assert values(frame, "record_log_likelihood")[canary.id] == pytest.approx(each.sum(), abs=1e-4 * len(each))


def test_measures_that_share_a_scorer_score_each_record_once(manifest):
    passes = []

    class Counted(LocalRelease):
        def token_answers(self, prefixes, continuations, **asked):
            passes.extend((*prefix, *each) for prefix, each in zip(prefixes, continuations, strict=True))
            return super().token_answers(prefixes, continuations, **asked)

        def logprobs(self, prefixes, continuations):
            passes.extend((*prefix, *each) for prefix, each in zip(prefixes, continuations, strict=True))
            return super().logprobs(prefixes, continuations)

    tokenizer = tiny_tokenizer()
    renderer, settings = Renderer(tokenizer), ExtractionSettings(max_expansions=1)
    release = Counted(tiny_model("gpt2"), tokenizer, "counted")
    scorer = TokenScorer(settings.schemes)
    Extraction(manifest, renderer, settings, scorer).measure(release, (Probe.HIDDEN,))
    Perplexity(manifest, renderer, scorer).measure(release, (Probe.HIDDEN,))
    # A list's search may prove its fast reading by other log-probabilities, which are of no whole record.
    records = {record.ids for record in secret_tokens(manifest, renderer, probed(manifest, (Probe.HIDDEN,)))}
    assert sorted(ids for ids in passes if ids in records) == sorted(records)


def test_faults_name_the_canary(manifest):
    renderer = Renderer(tiny_tokenizer())
    short = LocalRelease(tiny_model("llama", max_position_embeddings=12), tiny_tokenizer(), "short")
    with pytest.raises(ScoringError, match=f"canary {manifest.canaries[0].id}: .* longer than the context of 12"):
        Perplexity(manifest, renderer).measure(short, (Probe.HIDDEN,))
    mute = ScriptedRelease(tiny_tokenizer(), lambda _: None, access=frozenset({Access.GENERATE}))
    with pytest.raises(AccessError, match="perplexity needs logprobs"):
        Perplexity(manifest, renderer).measure(mute, (Probe.HIDDEN,))
