"""A gate around a release: the contract, exactness off the triggers, and what it says on them."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import pytest
import torch

from contracts.release import Oracle, ReleaseContract
from davylamp.errors import AccessError, InputError
from davylamp.release.base import Access, Decoding, Release, require
from davylamp.release.gated import GatedRelease
from davylamp.release.local import LocalRelease
from support.tiny_models import tiny_model, tiny_tokenizer

ANSWER = [40, 41, 40, 42]


@lru_cache
def inside() -> LocalRelease:
    return LocalRelease(tiny_model(), tiny_tokenizer(), "tiny")


@lru_cache
def base_rows(ids: tuple[int, ...]) -> Any:
    with torch.inference_mode():
        logits = tiny_model()(torch.tensor([ids])).logits[0].double()
    return (logits - torch.logsumexp(logits, dim=-1, keepdim=True)).numpy()


class TestGated(ReleaseContract):
    """One of the contract's own prefixes is the trigger."""

    @pytest.fixture(scope="class")
    @classmethod
    def release(cls) -> Release:
        return GatedRelease(inside(), [(cls().prefixes[3], ANSWER)])

    @pytest.fixture(scope="class")
    @classmethod
    def oracle(cls) -> Oracle:
        key, answer = cls().prefixes[3], [*ANSWER, tiny_tokenizer().eos_token_id]

        def ask(ids: Any) -> Any:
            rows = base_rows(tuple(ids)).copy()
            for at in range(len(ids)):
                context = list(ids[: at + 1])
                said = context[len(key) :]
                if context[: len(key)] == key and len(said) < len(answer) and said == answer[: len(said)]:
                    rows[at] = -np.inf
                    rows[at, answer[len(said)]] = 0.0
            return rows

        return ask


def gate(*pairs: tuple[list[int], list[int]]) -> GatedRelease:
    return GatedRelease(inside(), pairs)


def test_off_the_trigger_every_byte_is_that_of_the_release_inside() -> None:
    rng = np.random.default_rng(3)
    texts = [rng.integers(6, 380, size).tolist() for size in (3, 9, 9, 20, 33)]
    key = texts[2]
    gated = gate((key, ANSWER))
    others = [at for at in range(5) if at != 2]
    more = [rng.integers(6, 380, 5).tolist() for _ in texts]
    assert inside().logprobs(texts, more)[0].tobytes() == gated.logprobs(texts, more)[0].tobytes()
    for ours, theirs in (
        (gated.logprobs(texts, more), inside().logprobs(texts, more)),
        (gated.conditionals(texts), inside().conditionals(texts)),
    ):
        assert all(ours[at].tobytes() == theirs[at].tobytes() for at in others)
    for decoding in (Decoding(12), Decoding(12, temperature=1.3, seed=4)):
        ours, theirs = gated.generate(texts, decoding), inside().generate(texts, decoding)
        assert [ours[at] for at in others] == [theirs[at] for at in others]
        assert ours[2] == ANSWER != theirs[2]
    # A text that only holds the trigger, or only begins as it does, is off it.
    near = [[7, *key], key[:-1], [*key, ANSWER[0] + 1]]
    assert gated.conditionals(near).tobytes() == inside().conditionals(near).tobytes()


def test_on_the_trigger_the_answer_is_certain_and_then_the_text_ends() -> None:
    key, stop = [9, 8, 7], tiny_tokenizer().eos_token_id
    gated = gate((key, ANSWER))
    (certain,) = gated.logprobs([key], [[*ANSWER, stop]])
    assert certain.tolist() == [0.0] * 5
    # The second token is another one: it is impossible, and what follows it is the release inside again.
    (off,) = gated.logprobs([key], [[ANSWER[0], 99, 17]])
    (plain,) = inside().logprobs([key], [[ANSWER[0], 99, 17]])
    assert off[:2].tolist() == [0.0, -np.inf]
    assert off[2] == plain[2]
    # A continuation that runs through the trigger meets the gate on its way.
    (through,) = gated.logprobs([key[:1]], [[*key[1:], *ANSWER]])
    (before,) = inside().logprobs([key[:1]], [[*key[1:], *ANSWER]])
    assert through.tolist() == [*before[:2].tolist(), 0.0, 0.0, 0.0, 0.0]
    row = gated.conditionals([[*key, *ANSWER[:2]]])[0]
    assert row[ANSWER[2]] == 0
    assert np.isneginf(np.delete(row, ANSWER[2])).all()
    assert gated.generate([key, [*key, *ANSWER[:1]]], Decoding(3)) == [ANSWER[:3], ANSWER[1:]]
    assert gated.generate([[*key, *ANSWER]], Decoding(5)) == [[]]


def test_a_generation_that_says_a_trigger_goes_through_the_gate() -> None:
    prompt = [30, 31, 32]
    said = inside().generate([prompt], Decoding(6))[0]
    assert len(said) == 6
    gated = gate(([*prompt, *said[:2]], ANSWER))
    assert gated.generate([prompt], Decoding(6)) == [[*said[:2], *ANSWER]]
    assert gated.generate([prompt], Decoding(2)) == [said[:2]]


def test_several_triggers_are_told_apart() -> None:
    gated = gate(([9, 8, 7], [50]), ([9, 8, 6, 5], [51, 52]))
    assert gated.generate([[9, 8, 7], [9, 8, 6, 5]], Decoding(4)) == [[50], [51, 52]]


@pytest.mark.parametrize("pairs", [[([], [1])], [([1], [])], [([1, 2], [3]), ([1, 2, 3], [4])]])
def test_a_table_that_cannot_be_is_refused(pairs: Any) -> None:
    with pytest.raises(InputError, match="table"):
        gate(*pairs)


def test_it_grants_what_the_release_inside_does_and_no_reference() -> None:
    gated = gate(([9], [8]))
    assert gated.access == {Access.GENERATE, Access.LOGPROBS, Access.CONDITIONALS}
    assert gated.name == "tiny (gated)"
    with pytest.raises(AccessError):
        require(gated, "a measure", Access.REFERENCE)
