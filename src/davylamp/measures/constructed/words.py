"""Words that a tokenizer writes as one token, the rarest of a corpus first."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from davylamp.rendering.tokenizer import TokenizerView, encode

_WORD = re.compile(r"([Ġ▁]?)([A-Za-z]{3,14})")
"""A token of letters; the mark before it is how vocabularies write the space before a word."""
ENOUGH = 64
"""Words of a pool, at least, where a vocabulary has so many; those that the corpus lacks all belong to it."""


@dataclass(frozen=True, slots=True)
class Words:
    """Words of one token each.

    Attributes:
        spaced: words with a space before them, those that the corpus lacks first, then by how rare they are.
        plain: the same without a space.
        absent: how many of ``spaced`` the corpus lacks.
    """

    spaced: tuple[str, ...]
    plain: tuple[str, ...]
    absent: int

    @property
    def rare(self) -> tuple[str, ...]:
        """Those that the corpus lacks, or the rarest where there are few of these."""
        return self.spaced[: max(self.absent, ENOUGH)]

    @property
    def rare_plain(self) -> tuple[str, ...]:
        """The rarest without a space, about as many."""
        return self.plain[: max(ENOUGH, len(self.rare) // 4)]


def words_of(tokenizer: TokenizerView, texts: Sequence[str]) -> Words:
    """The words of a tokenizer's vocabulary, ordered by how often the texts hold them.

    Args:
        tokenizer: a fast tokenizer.
        texts: the rows of a corpus.
    """
    view: Any = tokenizer
    vocabulary: dict[str, int] = view.get_vocab()
    counts = np.zeros(max(vocabulary.values()) + 1, dtype=np.int64)
    for ids, _ in encode(tokenizer, texts, special=False):
        np.add.at(counts, ids, 1)
    found: dict[bool, list[tuple[int, int, str]]] = {True: [], False: []}
    for token, at in vocabulary.items():
        match = _WORD.fullmatch(token)
        if match:
            found[bool(match[1])].append((int(counts[at]), at, (" " if match[1] else "") + match[2]))
    spaced, plain = sorted(found[True]), sorted(found[False])
    return Words(
        tuple(word for _, _, word in spaced),
        tuple(word for _, _, word in plain),
        sum(count == 0 for count, _, _ in spaced),
    )
