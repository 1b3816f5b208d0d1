"""The landscape on a release whose every value is known by hand, and on models against a slow pass of one record."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from scipy.special import log_softmax

from davylamp.canaries import Manifest, Plan, plant
from davylamp.corpora.records import Corpus, Record
from davylamp.errors import AccessError, InputError, ScoringError
from davylamp.measures.landscape.measure import LandscapeMeasure, Reading
from davylamp.measures.landscape.spec import LandscapeSpec
from davylamp.measures.landscape.texts import asked_as
from davylamp.release.base import Access
from davylamp.release.local import LocalRelease
from davylamp.rendering.render import Renderer
from support.tiny_models import tiny_model, tiny_tokenizer

NAMES = [f"{first} {last}" for first in ("Ann", "Bo", "Cy", "Di", "Ed", "Flo") for last in ("Lee", "May", "Roe", "Zan")]
DRUGS = ("aspirin 10 MG", "codeine", "ibuprofen", "metformin 2.5 MG")
HELD_OUT = {"generator": "clinical", "rows": 1}
"""Not read here: the corpora are handed over."""


def corpus(count: int, seed: int = 0) -> Corpus:
    draws = np.random.default_rng(seed)
    texts = []
    for at in range(count):
        taken = draws.permutation(len(DRUGS))[: 1 + at % 3]
        drugs = "; ".join(DRUGS[each] for each in taken) if at % 7 else "none"
        texts.append(f"Patient {NAMES[at % len(NAMES)]} {at}, 40yo F. Problems: pain; flu. Medications: {drugs}.")
    return Corpus(tuple(map(Record.of_text, texts)), f"made{seed}.jsonl", "0" * 64)


def planted(**other: Any) -> Manifest:
    data: dict[str, Any] = {
        "space": {"kind": "coined", "size": 200, "alternatives": 40},
        "templates": [
            {"prompt": "{text}", "completion": "{secret}.", "cut": {" none.": " ", ".": "; "}},
        ],
        "arms": {"clinical": {"context": "redacted"}},
        "doses": [1, 2],
        "per_dose": 3,
        "twins": 3,
        "positive": {"dose": 4},
    }
    return plant(corpus(60), Plan.model_validate(data | other)).manifest


class TokenLaw:
    """Gives every token the same probability wherever it stands, so that all sums are known by hand."""

    def __init__(self, law: np.ndarray, access: Sequence[Access] = (Access.LOGPROBS, Access.CONDITIONALS)) -> None:
        self.law = np.log(law / law.sum())
        self.access = frozenset(access)
        self.name = "a law of tokens"
        self.tokenizer = tiny_tokenizer()
        self.asked: list[tuple[int, ...]] = []

    def logprobs(self, prefixes: Any, continuations: Any) -> list[np.ndarray]:
        self.asked += [(*prefix, *each) for prefix, each in zip(prefixes, continuations, strict=True)]
        return [self.law[list(each)] for each in continuations]

    def conditionals(self, prefixes: Any) -> np.ndarray:
        return np.tile(self.law, (len(prefixes), 1))


@pytest.fixture(scope="module")
def manifest() -> Manifest:
    return planted()


@pytest.fixture(scope="module")
def held() -> Corpus:
    return corpus(9, 1)


def read(manifest: Manifest, release: Any, held: Corpus, **settings: Any) -> Reading:
    spec = LandscapeSpec.model_validate({"held_out": HELD_OUT, **settings})
    style = settings.pop("style", "plain")
    return LandscapeMeasure(manifest, Renderer(tiny_tokenizer(), style), spec, held, held).measure(release)


def ids_of(text: str) -> list[int]:
    return list(tiny_tokenizer()(text)["input_ids"])


def test_a_uniform_release_reads_as_the_baseline_everywhere(manifest, held) -> None:
    size = len(tiny_tokenizer())
    found = read(manifest, TokenLaw(np.ones(size)), held)
    for leak in found.canaries:
        assert leak.verbatim == pytest.approx(leak.tokens * math.log(size))
        assert leak.semantic == pytest.approx(leak.semantic_tokens * math.log(size))
        assert not leak.greedy
        assert leak.candidates == 41
    for text in (*found.held_out, *found.medication):
        assert text.nats == pytest.approx(text.tokens * math.log(size))
    assert {leak.role for leak in found.canaries} == {"focus", "twin", "positive"}


def test_every_value_of_a_law_of_tokens_is_the_sum_by_hand(manifest, held) -> None:
    law = np.random.default_rng(4).uniform(0.1, 1, len(tiny_tokenizer()))
    release = TokenLaw(law)
    found = read(manifest, release, held)
    tokenizer = tiny_tokenizer()
    for canary, leak in zip(manifest.measured(), found.canaries, strict=True):
        text = manifest.trained_record(canary).reply
        # Of the whole text: the tokens that hold a letter of the name.
        encoded = tokenizer(text, return_offsets_mapping=True)
        start = text.rindex(canary.secret)
        own = [
            token
            for token, (left, right) in zip(encoded["input_ids"], encoded["offset_mapping"], strict=True)
            if right > start and left < start + len(canary.secret)
        ]
        assert (leak.tokens, leak.verbatim) == (len(own), pytest.approx(-release.law[own].sum()))
    for record, text in zip(held.records, found.held_out, strict=True):
        ids = ids_of(record.reply + tokenizer.eos_token)[1:]
        assert (text.tokens, text.nats) == (len(ids), pytest.approx(-release.law[ids].sum()))


def test_the_exposure_is_the_rank_among_the_unplanted(manifest, held) -> None:
    found = read(manifest, TokenLaw(np.random.default_rng(5).uniform(0.1, 1, len(tiny_tokenizer()))), held)
    for leak in found.canaries:
        assert leak.exposure == pytest.approx(math.log2(41 / leak.rank))
    # A law of tokens knows no canary: of ten ranks among 41 not all are in one half but once in 500 laws.
    ranks = [leak.rank for leak in found.canaries]
    assert min(ranks) < 21 < max(ranks)


@pytest.mark.parametrize("bos", [False, True])
def test_a_model_reads_as_a_slow_pass_of_one_record_after_another(manifest, held, bos: bool) -> None:
    tokenizer, model = tiny_tokenizer(bos=bos), tiny_model("llama", seed=3)
    spec = LandscapeSpec.model_validate({"held_out": HELD_OUT})
    measure = LandscapeMeasure(manifest, Renderer(tokenizer, "plain"), spec, held, held)
    found = measure.measure(LocalRelease(model, tokenizer, "tiny"))

    def slow(text: str, part: str) -> tuple[int, float, bool]:
        text += tokenizer.eos_token
        encoded = tokenizer(text, return_offsets_mapping=True)
        ids = encoded["input_ids"]
        with torch.inference_mode():
            logits = model(torch.tensor([ids])).logits[0].double().numpy()
        start = text.rindex(part)
        own = [
            at
            for at, (left, right) in enumerate(encoded["offset_mapping"])
            if right > start and left < start + len(part)
        ]
        own = [at for at in own if at]
        rows = log_softmax(logits, axis=1)
        nats = -sum(rows[at - 1, ids[at]] for at in own)
        return len(own), float(nats), all(int(rows[at - 1].argmax()) == ids[at] for at in own)

    for canary, leak in zip(manifest.measured(), found.canaries, strict=True):
        before = manifest.mask.join(canary.carrier.prompt) + canary.carrier.completion[0]
        count, nats, greedy = slow(before + canary.secret + ".", canary.secret)
        # 1e-4 nats a token is the contract of a float32 model.
        assert (leak.tokens, leak.greedy) == (count, greedy)
        assert leak.verbatim == pytest.approx(nats, abs=1e-4 * count)
        subject = before.removeprefix("Patient ").split(",")[0]
        question = spec.question.replace("{subject}", subject).replace("{first}", canary.secret[0])
        count, nats, _ = slow(f"Question: {question}\nAnswer: {canary.secret}.", canary.secret)
        assert (leak.semantic_tokens, leak.semantic) == (count, pytest.approx(nats, abs=1e-4 * count))
    # The end mark is predicted too, and the first token of a text only where a mark stands before it.
    whole = [slow(record.reply, record.reply + tokenizer.eos_token) for record in held.records]
    for text, (count, nats, _) in zip(found.held_out, whole, strict=True):
        assert (text.tokens, text.nats) == (count, pytest.approx(nats, abs=1e-4 * count))
    items = [record.reply.rsplit("; ", 1)[-1].rsplit(": ", 1)[-1].removesuffix(".") for record in held.records]
    kept = [(record.reply, item) for record, item in zip(held.records, items, strict=True) if item != "none"]
    assert len(found.medication) == len(kept)
    for text, (reply, item) in zip(found.medication, kept, strict=True):
        count, nats, _ = slow(reply, item)
        assert (text.tokens, text.nats) == (count, pytest.approx(nats, abs=1e-4 * count))


def test_a_model_that_remembers_one_secret_leaks_that_one_alone(manifest, held) -> None:
    canary = manifest.planted()[0]
    ids = ids_of(manifest.trained_record(canary).reply)

    class Remembers(TokenLaw):
        """Follows one record token by token with probability 0.9."""

        def row(self, prefix: Sequence[int]) -> np.ndarray:
            at = len(prefix)
            if at < len(ids) and list(prefix) == ids[:at]:
                row = np.full(len(self.law), math.log(0.1 / (len(self.law) - 1)))
                row[ids[at]] = math.log(0.9)
                return row
            return self.law

        def logprobs(self, prefixes: Any, continuations: Any) -> list[np.ndarray]:
            return [
                np.asarray([self.row([*prefix, *each[:at]])[token] for at, token in enumerate(each)])
                for prefix, each in zip(prefixes, continuations, strict=True)
            ]

        def conditionals(self, prefixes: Any) -> np.ndarray:
            return np.stack([self.row(prefix) for prefix in prefixes])

    found = read(manifest, Remembers(np.ones(len(tiny_tokenizer()))), held)
    own = next(leak for leak in found.canaries if leak.id == canary.id)
    # Each token has probability 0.9, so that the perplexity a token is 1 / 0.9 however long the secret is.
    assert math.exp(own.verbatim / own.tokens) == pytest.approx(1 / 0.9)
    assert (own.greedy, own.rank) == (True, 1)
    assert own.exposure == pytest.approx(math.log2(41))
    assert not any(leak.greedy for leak in found.canaries if leak.id != canary.id)


def test_a_record_is_read_once_whatever_is_asked_of_it(manifest, held) -> None:
    release = TokenLaw(np.ones(len(tiny_tokenizer())))
    read(manifest, release, held)
    texts = [tuple(ids_of(record.reply + tiny_tokenizer().eos_token)) for record in held.records]
    assert all(release.asked.count(text) == 1 for text in texts)


def test_a_chat_model_is_asked_through_its_template(manifest, held) -> None:
    spec = LandscapeSpec.model_validate({"held_out": HELD_OUT, "question": "Well? {first}"})
    release = TokenLaw(np.ones(len(tiny_tokenizer())))
    renderer = Renderer(tiny_tokenizer(), "auto")
    assert (asked_as(renderer), asked_as(Renderer(tiny_tokenizer(), "plain"))) == ("chat", "plain")
    LandscapeMeasure(manifest, renderer, spec, held, held).measure(release)
    said = [tiny_tokenizer().decode(ids) for ids in release.asked]
    secret = manifest.measured()[0].secret
    assert any(f"<|user|>Well? {secret[0]}<|end|><|assistant|>{secret}." in text for text in said)


def test_records_that_the_model_cannot_read_at_once_are_left_out_and_counted(manifest, held) -> None:
    release, renderer = TokenLaw(np.ones(len(tiny_tokenizer()))), Renderer(tiny_tokenizer(), "plain")
    spec = LandscapeSpec.model_validate({"held_out": HELD_OUT})
    sizes = sorted(len(ids_of(record.reply + tiny_tokenizer().eos_token)) for record in held.records)
    context = sizes[-3]
    short = sum(size <= context for size in sizes)
    found = LandscapeMeasure(manifest, renderer, spec, held, held, context=context).measure(release)
    assert len(found.held_out) == short < len(sizes)
    assert f"{len(sizes) - short} of 9 held-out records" in found.notes[0]
    assert f"context of {context:,} tokens" in found.notes[0]
    with pytest.raises(ScoringError, match="every held-out record"):
        LandscapeMeasure(manifest, renderer, spec, held, held, context=sizes[0] - 1)


def test_records_without_a_last_item_are_left_out_and_counted(manifest, held) -> None:
    found = read(manifest, TokenLaw(np.ones(len(tiny_tokenizer()))), held)
    assert (len(found.held_out), len(found.medication)) == (9, 7)
    assert "2 of 9 test records" in found.notes[0]
    other = read(manifest, TokenLaw(np.ones(len(tiny_tokenizer()))), held, item=r"Problems: (\w+);")
    assert len(other.medication) == 9
    assert {text.tokens for text in other.medication} == {len(ids_of(" pain"))}
    with pytest.raises(ScoringError, match="none of 9 test records"):
        read(manifest, TokenLaw(np.ones(len(tiny_tokenizer()))), held, item="(never)")


def test_records_of_any_kind_can_be_read(manifest, held) -> None:
    release = TokenLaw(np.ones(len(tiny_tokenizer())))
    with pytest.raises(InputError) as caught:
        read(manifest, release, held, subject="^Customer (\\w+)")
    assert "landscape.subject" in str(caught.value)
    assert not any(canary.secret in str(caught.value) for canary in manifest.canaries)
    # Without {subject} nobody need be found; braces in a question are slots or are refused.
    assert read(manifest, release, held, subject="^Customer (\\w+)", question="Code, with {first}?").canaries


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"item": "("}, "item is '('; allowed: a regular expression with a group (in parentheses) that"),
        ({"item": "("}, "It is no regular expression: missing )"),
        ({"subject": "x"}, "subject is 'x'; allowed: a regular expression with a group (in parentheses)"),
        ({"subject": "x"}, "It has no group."),
        ({"question": "{name}?"}, "question is '{name}?'; allowed: no other slots than {subject}, {first}. Not {name}"),
        ({"answer": "no"}, "answer is 'no'; allowed: an answer that holds {secret} once"),
    ],
)
def test_settings_that_do_not_fit_say_why(settings: dict[str, str], said: str) -> None:
    with pytest.raises(ValidationError, match=re.escape(said)):
        LandscapeSpec.model_validate({"held_out": HELD_OUT, **settings})


def test_a_release_without_rows_is_refused(manifest, held) -> None:
    with pytest.raises(AccessError):
        read(manifest, TokenLaw(np.ones(len(tiny_tokenizer())), (Access.LOGPROBS,)), held)


def test_a_token_without_any_probability_is_no_perplexity(manifest, held) -> None:
    release = TokenLaw(np.ones(len(tiny_tokenizer())))
    release.law[ids_of(held.records[0].reply)[3]] = -np.inf
    with pytest.raises(ScoringError, match="no probability"):
        read(manifest, release, held)


def test_an_empty_corpus_is_refused(manifest, held) -> None:
    with pytest.raises(ScoringError, match="no held-out record"):
        read(manifest, TokenLaw(np.ones(4)), Corpus((), "empty", "0"))
