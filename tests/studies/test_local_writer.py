"""A checkpoint as a writer: where answers end, and that they do not hang on what is asked beside them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pytest

from davylamp.errors import InputError
from davylamp.protect.corpus.base import Writing
from davylamp.release.base import Decoding
from davylamp.release.local import LocalRelease
from davylamp.studies.local_writer import LocalWriter
from support.tiny_models import CONTEXT, tiny_model, tiny_tokenizer

CHATS = tuple((("user", text),) for text in ("Dear Ms Whitfield", "reference 4,7,1,9 please", "x"))


def writer() -> LocalWriter:
    return LocalWriter(LocalRelease(tiny_model("llama"), tiny_tokenizer(), "tiny"), "tiny", "0" * 64)


class Saying:
    """A release that says given texts token by token, as a model would."""

    def __init__(self, *texts: str) -> None:
        self.tokenizer = tiny_tokenizer()
        self._said = [self.tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts]

    def answer_each(
        self,
        prompts: Sequence[Sequence[int]],
        decoding: Decoding,
        seeds: Sequence[int],
        batch_size: int,
        ended: Callable[[Sequence[int]], bool] | None,
    ) -> Iterator[tuple[int, list[int]]]:
        assert len(prompts) == len(seeds) == len(self._said)
        assert batch_size == 16
        for at, tokens in enumerate(self._said):
            said = tokens[: decoding.max_new_tokens]
            ends = [n for n in range(1, len(said) + 1) if ended is not None and ended(said[:n])]
            yield at, said[: ends[0]] if ends else said


def test_answers_alone_and_together_are_the_same() -> None:
    asked = writer()
    how = Writing(24, 0.8, 0.95)
    together = dict(asked.write(CHATS, [5, 6, 7], how))
    for at, (chat, seed) in enumerate(zip(CHATS, [5, 6, 7], strict=True)):
        assert dict(asked.write([chat], [seed], how)) == {0: together[at]}
    assert {answer.finish for answer in together.values()} == {"length"}
    assert together[1].prompt_tokens > together[2].prompt_tokens


def test_an_answer_ends_before_a_stop_but_not_where_it_begins() -> None:
    said = Saying("\n\nHere it is:\n\n\nAda is well.\n\nUpdate: no.", "Ada is well. And then", "Ada\n\n")
    asked = LocalWriter(said, "saying", "0" * 64)
    answers = dict(asked.write(CHATS, [0, 0, 0], Writing(200, 0.8, 0.95, ("\n\n",))))
    assert [answers[at].text for at in range(3)] == [
        "\n\nHere it is:\n\n\nAda is well.",
        "Ada is well. And then",
        "Ada",
    ]
    assert {answer.finish for answer in answers.values()} == {"stop"}
    free = dict(asked.write(CHATS, [0, 0, 0], Writing(200, 0.8, 0.95)))
    assert free[0].text.endswith("Update: no.")
    assert free[0].completion_tokens > answers[0].completion_tokens


def test_an_answer_that_the_limit_cuts_says_so() -> None:
    asked = LocalWriter(Saying(*["one two three four five six seven eight nine ten " * 3] * 3), "saying", "0" * 64)
    answers = dict(asked.write(CHATS, [0, 0, 0], Writing(16, 0.8, 0.95, ("\n\n",))))
    assert {(answer.finish, answer.completion_tokens) for answer in answers.values()} == {("length", 16)}


def test_a_chat_without_room_for_an_answer_is_refused_before_any_is_written() -> None:
    with pytest.raises(InputError, match="max_tokens"):
        next(writer().write(CHATS, [1, 2, 3], Writing(CONTEXT, 0.0, 1.0)))
