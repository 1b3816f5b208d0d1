"""The surrogate rewriter: what few records hold is replaced by what many hold, without any language model.

A record is rare where its parts are: a part that fewer than ``common`` different records of the file hold in the same
place is replaced by one of the same kind that at least as many hold, drawn by how many hold it. Kinds are told by
position and shape (see :mod:`davylamp.protect.corpus.segments`). Numbers and names that are rare in every record are
drawn anew in their shape. Everything is drawn from a seed, so that the same file gives the same text.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from pydantic import Field

from davylamp.corpora.names import FIRST_NAMES, SURNAMES
from davylamp.errors import Fault, InputError
from davylamp.protect.corpus.base import InterventionSpec, Protected, Row, Setting, Span, apply_spans, texts
from davylamp.protect.corpus.registry import Kind
from davylamp.protect.corpus.segments import Piece, Token, pieces
from davylamp.runs.progress import Reporter
from davylamp.secrets.streams import stream

Place = tuple[str, int]
"""Where a piece stands: its label, and its number between commas."""

FURNITURE = 0.5
"""Share of records from which a word at its place is the form's and no one's own (``Patient``, ``DOB``)."""
FEW = 8
"""Common words of a kind below which rare names are taken from a list of invented ones."""
TRIES = 50
"""Draws of a number until one is new."""
NEUTRAL = "other"
"""What takes the place of a rare word where its kind has no common one."""


class SurrogateSpec(InterventionSpec):
    """Settings of the surrogate rewriter.

    Attributes:
        name: ``surrogate``.
        common: different records that must hold a part for it to be kept.
    """

    name: Literal["surrogate"] = "surrogate"
    common: int = Field(5, ge=2)


class Frequencies:
    """How many different records hold each piece and each word of a kind."""

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
        self.lists: set[str] = set()
        items: dict[tuple[str, str], set[int]] = defaultdict(set)
        whole: dict[tuple[Place, str], set[int]] = defaultdict(set)
        words: dict[tuple[Place, str], set[int]] = defaultdict(set)
        placed: dict[tuple[Place, str, int, str], set[int]] = defaultdict(set)
        seen: set[tuple[int, str]] = set()
        self.words: set[str] = set()
        for row in rows:
            for text in texts(row.record):
                if (row.origin, text) in seen:
                    continue
                seen.add((row.origin, text))
                for piece in pieces(text):
                    if piece.listed:
                        self.lists.add(piece.label)
                        # What stands alone after a label may be a word for an empty list.
                        items[piece.label, piece.text].add(row.origin)
                    where = field_of(piece)
                    whole[where, piece.text.casefold()].add(row.origin)
                    for token in piece.tokens:
                        self.words.add(token.text.casefold())
                        words[where, token.text.casefold()].add(row.origin)
                        placed[where, token.shape, token.place, token.text].add(row.origin)
        self._whole = {key: len(held) for key, held in whole.items()}
        self._words = {key: len(held) for key, held in words.items()}
        self._pools = _pools(placed, common)
        self._items = _pools(items, common)

    def piece(self, piece: Piece) -> int:
        """Records that hold a piece in its place."""
        return self._whole.get((field_of(piece), piece.text.casefold()), 0)

    def word(self, piece: Piece, token: Token) -> int:
        """Records that hold a word in a piece of this kind."""
        return self._words.get((field_of(piece), token.text.casefold()), 0)

    def is_furniture(self, piece: Piece, token: Token) -> bool:
        """Whether most records hold a word here, so that it belongs to the form."""
        return self.word(piece, token) >= FURNITURE * self.records

    def is_item(self, piece: Piece) -> bool:
        """Whether a piece is an item of a list; the only item of one is told by the other records."""
        return bool(piece.label) and piece.label in self.lists

    def pool(self, piece: Piece, token: Token) -> list[tuple[str, int]]:
        """Common words of a token's kind, and the records that hold each; numbers have the token's own pattern."""
        found = self._pools.get((field_of(piece), token.shape, token.place), [])
        if token.shape == "number":
            found = [each for each in found if pattern(each[0]) == pattern(token.text)]
        return [each for each in found if each[0].casefold() != token.text.casefold()]

    def items(self, label: str) -> list[tuple[str, int]]:
        """Common items of a list, and the records that hold each."""
        return self._items.get((label,), [])


def field_of(piece: Piece) -> Place:
    """Where a piece stands."""
    return piece.label, piece.ordinal


def pattern(number: str) -> str:
    """A number with a 0 for each digit: what its shape is."""
    return "".join("0" if letter.isdigit() else letter for letter in number)


def _pools(placed: Mapping[Any, set[int]], common: int) -> dict[tuple[Any, ...], list[tuple[str, int]]]:
    """For each kind its common texts in a fixed order; the text is the last part of a key."""
    result: dict[tuple[Any, ...], list[tuple[str, int]]] = defaultdict(list)
    for (*kind, text), held in sorted(placed.items(), key=lambda each: str(each[0])):
        if len(held) >= common:
            result[tuple(kind)].append((text, len(held)))
    return dict(result)


class Surrogate:
    """The surrogate rewriter over one file."""

    name = "surrogate"
    version = "3"

    def __init__(self, rows: Sequence[Row], common: int = 5, seed: int = 0) -> None:
        """Count how many records hold what.

        Raises:
            InputError: see :class:`Frequencies`.
        """
        self._counts = Frequencies(rows, common)
        self._seed = seed

    def apply(self, rows: Sequence[Row], reporter: Reporter) -> Iterator[Protected]:
        """Replace the rare spans of rows."""
        with reporter.task(self.name, len(rows)) as advance:
            for row in rows:
                yield self.one(row)
                advance(1)

    def one(self, row: Row) -> Protected:
        """Replace the rare spans of one row."""
        rng = stream(self._seed, self.name, row.record.line(), row.draw)
        told: dict[str, str] = {}
        spans: list[Span] = []
        for part, text in enumerate(texts(row.record)):
            spans += self._spans(part, text, rng, told)
        return Protected(row.position, apply_spans(row.record, spans), tuple(spans))

    def rare(self, text: str) -> list[Span]:
        """The rare spans of a text with their kinds, replaced by nothing."""
        rng = np.random.default_rng(0)
        return [Span(each.part, each.start, each.end, each.kind) for each in self._spans(0, text, rng, {})]

    def _spans(self, part: int, text: str, rng: np.random.Generator, told: dict[str, str]) -> list[Span]:
        counts = self._counts
        found: list[Span] = []
        parts = pieces(text)
        taken = {piece.text for piece in parts}
        for piece in parts:
            if counts.piece(piece) >= counts.common:
                continue
            pool = [each for each in counts.items(piece.label) if each[0] not in taken] if counts.is_item(piece) else []
            if pool:
                item = _drawn(pool, rng)
                taken.add(item)
                found.append(Span(part, piece.start, piece.end, piece.label, item))
                continue
            for kind, token in self._rare_tokens(piece):
                replacement = told.get(token.text.casefold())
                if replacement is None:
                    replacement = told[token.text.casefold()] = self._token(piece, token, kind, rng)
                found.append(Span(part, token.start, token.end, kind, replacement))
        return found

    def _rare_tokens(self, piece: Piece) -> Iterator[tuple[str, Token]]:
        """The tokens of a rare piece that are replaced, with their kinds.

        A run of capitalised words is one thing (a name, a street), and so is one of numbers (a code written in parts):
        all its words may be common, and the whole be nobody else's.
        """
        counts = self._counts
        for run in self._runs(piece):
            shape = run[0].shape
            if len(run) == 1 and counts.word(piece, run[0]) >= counts.common:
                continue
            words = piece.label or ("name" if len(run) > 1 else "word")
            kind = shape if shape in ("number", "date") else words
            yield from ((kind, token) for token in run)

    def _runs(self, piece: Piece) -> list[list[Token]]:
        """The tokens of a piece, neighbouring capitalised words and neighbouring numbers together."""
        runs: list[list[Token]] = []
        last: Token | None = None
        for token in piece.tokens:
            if token.shape == "capital" and self._counts.is_furniture(piece, token):
                last = None
                continue
            joined = last is not None and last.shape == token.shape and token.shape in ("capital", "number")
            if joined:
                runs[-1].append(token)
            else:
                runs.append([token])
            last = token
        return runs

    def _token(self, piece: Piece, token: Token, kind: str, rng: np.random.Generator) -> str:
        pool = self._counts.pool(piece, token)
        if token.shape == "date":
            return self._new(lambda: _date(token.text, rng))
        if token.shape == "number":
            return _drawn(pool, rng) if pool else self._new(lambda: _number(token.text, rng))
        if token.shape == "capital" and len(pool) < FEW:
            names: Sequence[str] = FIRST_NAMES if kind == "name" and self._is_first(piece, token) else SURNAMES
            return str(names[int(rng.integers(len(names)))])
        return _drawn(pool, rng) if pool else NEUTRAL

    def _is_first(self, piece: Piece, token: Token) -> bool:
        own = [each for each in piece.tokens if each.shape == "capital" and not self._counts.is_furniture(piece, each)]
        return bool(own) and own[0].start == token.start

    def _new(self, draw: Callable[[], str]) -> str:
        """A draw that no record of the file holds, so that nobody's number is given to another."""
        for _ in range(TRIES):
            made = draw()
            if made.casefold() not in self._counts.words:
                return made
        return made


def _drawn(pool: Sequence[tuple[str, int]], rng: np.random.Generator) -> str:
    """A text of a pool, as likely as records hold it."""
    weights = np.asarray([held for _, held in pool], dtype=np.float64)
    return pool[int(rng.choice(len(pool), p=weights / weights.sum()))][0]


def _number(text: str, rng: np.random.Generator) -> str:
    """Other digits in the same places; one that did not begin with 0 still does not."""
    made = []
    for at, letter in enumerate(text):
        low = 1 if at == 0 and letter != "0" else 0
        made.append(str(int(rng.integers(low, 10))) if letter.isdigit() else letter)
    return "".join(made)


def _date(text: str, rng: np.random.Generator) -> str:
    """Another day of the same decade, written the same way."""
    year, month, day = int(rng.integers(10)), int(rng.integers(1, 13)), int(rng.integers(1, 29))
    if text[4:5] == "-":
        return f"{text[:3]}{year}-{month:02d}-{day:02d}"
    mark = next(letter for letter in text if not letter.isdigit())
    return f"{month:02d}{mark}{month if mark == '.' else day:02d}{mark}{text[-4:-1]}{year}"


def _build(spec: SurrogateSpec, setting: Setting) -> Surrogate:
    return Surrogate(setting.rows, spec.common, setting.seed if spec.seed is None else spec.seed)


KIND = Kind(SurrogateSpec, _build)
"""The intervention ``surrogate``."""
