"""Do rare names and numbers of the rows that hold no canary still stand in their protected rows.

What is planted tells how an intervention treats canaries; this tells how it treats the people of the file. A word is
rare where fewer than ``common`` different records hold it anywhere. The check is of words and exact: what was written
in other words, or is rare only in its place or as a combination, is not found, but for codes written letter by letter
(``4; 7; 1; 9``), which are looked for whole.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict, Field

from davylamp.corpora.records import Record
from davylamp.protect.corpus.base import texts
from davylamp.protect.corpus.letters import spelled
from davylamp.protect.corpus.particles import is_particle
from davylamp.protect.corpus.segments import Token, parts_of, tokens_of

COMMON = 5
"""Different records from which a word is common, where no intervention says another number."""
LONG = 4
"""Digits from which a rare part of a number tells whose it is."""
LETTERS = 3
"""Letters from which a rare part of a name does."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Standing(_Strict):
    """How many rare names or numbers still stand.

    Attributes:
        rare: how many there were, each counted once a row.
        left: those that still stand in the protected row, whole or by a rare part.
    """

    rare: int = Field(ge=0)
    left: int = Field(ge=0)


class Background(_Strict):
    """What survives of the background rows.

    Attributes:
        common: different records from which a word is common.
        rows: rows that hold no canary and in whose place no other row stands.
        rows_left: those in which at least one rare name or number still stands.
        names: runs of capitalised words (with particles between them) that fewer than ``common`` records hold.
        numbers: words with a digit, dates among them, and codes written letter by letter that as few hold.
    """

    common: int
    rows: int = Field(ge=0)
    rows_left: int = Field(ge=0)
    names: Standing
    numbers: Standing


@dataclass(frozen=True, slots=True)
class _Needle:
    """A name or a number: its words in lower case, and their parts that could tell by themselves."""

    words: tuple[str, ...]
    parts: tuple[str, ...]
    number: bool


def look_in_background(
    planted: Sequence[Record], protected: Sequence[Record], positions: Collection[int], common: int = COMMON
) -> Background:
    """Look for the rare names and numbers of each row in the protected row in its place.

    Args:
        planted: the rows before, all of them: what is rare is counted over the whole file.
        protected: the rows after, in the same order.
        positions: the rows that are looked at, from 0.
        common: different records from which a word is common.
    """
    needles = {record: list(_needles(record)) for record in set(planted)}
    held: Counter[tuple[str, ...]] = Counter()
    for record, own in needles.items():
        single = {word for text in texts(record) for token in tokens_of(text) for word in _words(token)}
        # A run of one word is that word, which may stand in other runs too.
        held.update({each.words for each in own if len(each.words) > 1} | {(word,) for word in single})
    rare: Counter[bool] = Counter()
    left: Counter[bool] = Counter()
    rows = 0
    for position in sorted(positions):
        own = [each for each in needles[planted[position]] if held[each.words] < common]
        sought = {(each.words, each.number): each for each in own}.values()
        runs, words = _after(protected[position])
        standing = [
            each
            for each in sought
            if f" {' '.join(each.words)} " in runs or any(part in words and held[part,] < common for part in each.parts)
        ]
        rare.update(each.number for each in sought)
        left.update(each.number for each in standing)
        rows += bool(standing)
    return Background(
        common=common,
        rows=len(positions),
        rows_left=rows,
        names=Standing(rare=rare[False], left=left[False]),
        numbers=Standing(rare=rare[True], left=left[True]),
    )


def _needles(record: Record) -> Iterator[_Needle]:
    for text in texts(record):
        run: list[Token] = []
        tokens = tokens_of(text)
        yield from (_Needle(code, ("".join(code),) if len(code) >= LONG else (), True) for code in _codes(text, tokens))
        for at, token in enumerate(tokens):
            if token.shape in ("number", "date"):
                digits = [part for part in parts_of(token.text) if part[0].isdigit() and len(part) >= LONG]
                yield _Needle((token.text.casefold(),), tuple(digits), True)
            follows = bool(run) and text[run[-1].end : token.start] in (" ", "\N{NO-BREAK SPACE}")
            if follows and (token.shape == "capital" or is_particle(tokens, at)):
                run.append(token)
                continue
            if run:
                yield _name(run)
            run = [token] if token.shape == "capital" else []
        if run:
            yield _name(run)


def _name(run: Sequence[Token]) -> _Needle:
    words = tuple(token.text.casefold() for token in run)
    parts = {part for word in words for part in (word, *parts_of(word)) if len(part) >= LETTERS}
    return _Needle(words, tuple(sorted(parts)), False)


def _words(token: Token) -> tuple[str, ...]:
    folded = token.text.casefold()
    return folded, *parts_of(folded)


def _codes(text: str, tokens: Sequence[Token]) -> Iterator[tuple[str, ...]]:
    """The letters of each code of a text that is written letter by letter, in more than one word, without tags."""
    at = 0
    for code in spelled(text):
        while tokens[at].end <= code.start:
            at += 1
        if tokens[at].end < code.end:
            yield tuple(letter.casefold() for letter in code.letters)


def _after(record: Record) -> tuple[str, frozenset[str]]:
    """The words of a record and its codes letter by letter, with a space between each two, and all words and parts."""
    parts = texts(record)
    tokens = [tokens_of(text) for text in parts]
    runs = " | ".join(
        [
            *(" ".join(token.text.casefold() for token in own) for own in tokens),
            *(" ".join(code) for text, own in zip(parts, tokens, strict=True) for code in _codes(text, own)),
        ]
    )
    return f" {runs} ", frozenset(word for own in tokens for token in own for word in _words(token))
