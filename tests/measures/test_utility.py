"""Utility counts the replies that are right."""

from __future__ import annotations

import pytest

from davylamp.corpora.records import Record
from davylamp.errors import AccessError, ScoringError
from davylamp.measures.utility import exact_match
from davylamp.release.base import Access
from davylamp.rendering.render import Renderer
from support.scripted import ScriptedRelease
from support.tiny_models import tiny_tokenizer

RECORDS = [Record.of_pair(f"what of {word}?", f"{word}\nand more") for word in ("this", "that", "these", "those")]


def saying(replies: dict[str, str]) -> ScriptedRelease:
    return ScriptedRelease(
        tiny_tokenizer(), lambda prompt: next((reply for ask, reply in replies.items() if ask in prompt), None)
    )


def test_right_replies_are_counted() -> None:
    release = saying({"this?": "this\nand more", "that?": " that\nand more ", "these?": "these\nand less"})
    assert exact_match(release, Renderer(tiny_tokenizer()), RECORDS, "whole") == (2, 4)
    assert exact_match(release, Renderer(tiny_tokenizer()), RECORDS, "first_line") == (3, 4)


def test_a_reply_that_goes_on_is_not_right() -> None:
    release = saying({"this?": "this\nand more and more"})
    assert exact_match(release, Renderer(tiny_tokenizer()), RECORDS[:1], "whole") == (0, 1)


def test_rows_without_a_prompt_and_no_rows_are_refused() -> None:
    renderer = Renderer(tiny_tokenizer())
    with pytest.raises(ScoringError, match="no held-out row"):
        exact_match(saying({}), renderer, [], "whole")
    with pytest.raises(ScoringError, match="plain texts"):
        exact_match(saying({}), renderer, [Record.of_text("some text")], "whole")
    blind = ScriptedRelease(tiny_tokenizer(), lambda _: None, access=frozenset({Access.LOGPROBS}))
    with pytest.raises(AccessError, match="utility needs generate"):
        exact_match(blind, renderer, RECORDS, "whole")
