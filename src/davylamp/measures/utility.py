"""Utility: does the model still do the task that it was fine-tuned for?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from davylamp.corpora.records import Record
from davylamp.errors import ScoringError
from davylamp.release.base import Access, Decoding, Release, require
from davylamp.rendering.render import Renderer

MARGIN = 8
"""Tokens that a reply may be longer than the longest reference."""


def exact_match(
    release: Release, renderer: Renderer, records: Sequence[Record], match: Literal["whole", "first_line"]
) -> tuple[int, int]:
    """How many greedy replies are right, and of how many.

    Args:
        release: the model.
        renderer: renders as training did.
        records: held-out rows with their right replies.
        match: compare the whole reply or its first line; white space at both ends is not compared.

    Raises:
        AccessError: the release does not generate.
        ScoringError: there is no row, or the rows have no prompt to ask with.
    """
    require(release, "utility", Access.GENERATE)
    if not records:
        raise ScoringError("there is no held-out row to measure utility on")
    prompts = renderer.prompt_ids(records)
    if any(not prompt for prompt in prompts):
        raise ScoringError("utility needs rows with a prompt; these are plain texts")
    rendered = renderer.render(records)
    longest = max(len(whole.ids) - len(prompt) for whole, prompt in zip(rendered, prompts, strict=True))
    said = release.generate(prompts, Decoding(max_new_tokens=max(1, longest) + MARGIN))
    texts = [str(release.tokenizer.decode(answer, skip_special_tokens=True)) for answer in said]
    right = sum(_part(text, match) == _part(record.reply, match) for text, record in zip(texts, records, strict=True))
    return right, len(records)


def _part(text: str, match: Literal["whole", "first_line"]) -> str:
    stripped = text.strip()
    return stripped if match == "whole" else stripped.split("\n", 1)[0].strip()
