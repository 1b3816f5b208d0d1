"""How many different records of a file hold each piece, each word and each label, in which place."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from davylamp.errors import Fault, InputError
from davylamp.protect.corpus.base import Row, texts
from davylamp.protect.corpus.finding import LABELS
from davylamp.protect.corpus.scrub import ENTITIES
from davylamp.protect.corpus.segments import Piece, Structure, Token, parts_of, pieces, structure_in

Place = tuple[str, int]
"""Where a piece stands: its label, and its number between commas."""

FURNITURE = 0.5
"""Share of records from which a word at its place is the form's and no one's own (``Patient``, ``DOB``)."""
PLACEHOLDERS = frozenset({*ENTITIES, *LABELS.values()})
"""Kinds that scrubbing writes in pointed brackets, whatever a file holds."""

_Pools = dict[tuple[Any, ...], list[tuple[str, int]]]


class Frequencies:
    """How many different records hold each piece and each word of a kind.

    Attributes:
        common: records that must hold a part for it to be common.
        records: different records.
        structure: labels that at least ``common`` records hold as such, and placeholders of scrubbing or of as many.
    """

    def __init__(self, rows: Sequence[Row], common: int) -> None:
        """Count.

        Args:
            rows: the whole file; rows of one origin count as one record.
            common: records that must hold a part for it to be common.

        Raises:
            InputError: there are so few different records that nothing could be told to be common.
        """
        self.common = common
        self.records = len({row.origin for row in rows})
        if self.records < 2 * common:
            raise InputError(
                Fault(
                    "surrogate.common",
                    common,
                    f"at most half of {self.records}, the number of different records in the file",
                    "What is rare is told by how many records hold it, which takes records.",
                )
            )
        different = sorted({(row.origin, text) for row in rows for text in texts(row.record)})
        self.structure = _structure(different, common)
        self._lists: set[str] = set()
        items: dict[tuple[str, str], set[int]] = defaultdict(set)
        whole: dict[tuple[Place, str], set[int]] = defaultdict(set)
        words: dict[tuple[Place, str], set[int]] = defaultdict(set)
        placed: dict[tuple[Place, str, int, str], set[int]] = defaultdict(set)
        wide: dict[tuple[str, str, str], set[int]] = defaultdict(set)
        anywhere: dict[str, set[int]] = defaultdict(set)
        for origin, text in different:
            for piece in pieces(text, self.structure):
                if piece.listed:
                    self._lists.add(piece.label)
                # What stands alone after a label may be a word for an empty list, which is in no list's pool.
                if piece.listed:
                    items[piece.label, piece.text].add(origin)
                where = field_of(piece)
                whole[where, piece.text.casefold()].add(origin)
                for token in piece.tokens:
                    folded, kind = token.text.casefold(), class_of(token.text)
                    for part in {folded, *parts_of(folded)}:
                        words[where, part].add(origin)
                        anywhere[part].add(origin)
                    placed[where, kind, token.place, token.text].add(origin)
                    wide[piece.label, kind, token.text].add(origin)
        self._whole = {key: len(held) for key, held in whole.items()}
        self._words = {key: len(held) for key, held in words.items()}
        self._anywhere = {key: len(held) for key, held in anywhere.items()}
        self._pools = _pools(placed, common)
        self._wide = _pools(wide, common)
        self._items = _pools(items, common)

    def pieces(self, text: str) -> list[Piece]:
        """The pieces of a text, by the labels of this file."""
        return pieces(text, self.structure)

    def piece(self, piece: Piece) -> int:
        """Records that hold a piece in its place."""
        return self._whole.get((field_of(piece), piece.text.casefold()), 0)

    def word(self, piece: Piece, text: str) -> int:
        """Records that hold a word, or a part of one, in a piece of this kind."""
        return self._words.get((field_of(piece), text.casefold()), 0)

    def anywhere(self, text: str) -> int:
        """Records that hold a word, or a part of one, in any place."""
        return self._anywhere.get(text.casefold(), 0)

    def is_furniture(self, piece: Piece, token: Token) -> bool:
        """Whether most records hold a word here, so that it belongs to the form."""
        return self.word(piece, token.text) >= FURNITURE * self.records

    def is_item(self, piece: Piece) -> bool:
        """Whether a piece is an item of a list; the only item of one is told by the other records."""
        return bool(piece.label) and piece.label in self._lists

    def pool(self, piece: Piece, token: Token, *, wide: bool = False) -> list[tuple[str, int]]:
        """Common words that look alike and stand at a token's place, and the records that hold each.

        Args:
            piece: where the token stands.
            token: a token; neither it nor itself in another case is in its pool.
            wide: words from anywhere behind the same label, in place of those at the same place.
        """
        kind = class_of(token.text)
        found = (
            self._wide.get((piece.label, kind), [])
            if wide
            else self._pools.get((field_of(piece), kind, token.place), [])
        )
        return [each for each in found if each[0].casefold() != token.text.casefold()]

    def items(self, label: str) -> list[tuple[str, int]]:
        """Common items of a list, and the records that hold each."""
        return self._items.get((label,), [])


def field_of(piece: Piece) -> Place:
    """Where a piece stands."""
    return piece.label, piece.ordinal


@lru_cache(maxsize=1 << 16)
def class_of(token: str) -> str:
    """What a token looks like, so that only its like takes its place.

    A number: 0 for each digit, all else as it is. A word: for each run of letters whether it is capitalised (``Aa``),
    in capitals (``AA``) or in small letters (``aa``), of one, two, or more letters; the signs between stay.
    """
    if any(letter.isdigit() for letter in token):
        return "".join("0" if letter.isdigit() else letter for letter in token)
    kinds, at = [], 0
    for part in parts_of(token):
        begin = token.index(part, at)
        kinds += [token[at:begin], _class(part)]
        at = begin + len(part)
    return "".join([*kinds, token[at:]])


def _class(word: str) -> str:
    long = min(len(word), 3)
    if not word[:1].isupper():
        return "a" * long
    return "A" * long if word[1:].upper() == word[1:] else "A" + "a" * (long - 1)


def _structure(different: Sequence[tuple[int, str]], common: int) -> Structure:
    """What at least ``common`` records hold as structure; every other text is words like any other."""
    labels: dict[str, set[int]] = defaultdict(set)
    kinds: dict[str, set[int]] = defaultdict(set)
    for origin, text in different:
        own = structure_in(text)
        for seen, found in zip((labels, kinds), own, strict=True):
            for each in found:
                seen[each].add(origin)
    return Structure(frozenset(_common(labels, common)), PLACEHOLDERS | frozenset(_common(kinds, common)))


def _common(held: Mapping[str, set[int]], common: int) -> Iterator[str]:
    return (each for each, origins in held.items() if len(origins) >= common)


def _pools(placed: Mapping[Any, set[int]], common: int) -> _Pools:
    """For each kind its common texts in a fixed order; the text is the last part of a key."""
    result: _Pools = defaultdict(list)
    for (*kind, text), held in sorted(placed.items(), key=lambda each: str(each[0])):
        if len(held) >= common:
            result[tuple(kind)].append((text, len(held)))
    return dict(result)
