"""The surrogate rewriter: what few records hold is replaced by what many hold, without any language model.

A record is rare where its parts are: a part that fewer than ``common`` different records of the file hold in the same
place is replaced by one of the same kind that at least as many hold, drawn by how many hold it. Kinds are told by
position and shape (see :mod:`davylamp.protect.corpus.segments`); what is structure, such as a label, is told by how
many records hold it as well. Where a kind has nothing common, names, numbers and words are made up in their shape.
Everything is drawn from a seed, so that the same file gives the same text.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from pydantic import Field

from davylamp.corpora.names import FIRST_NAMES, SURNAMES
from davylamp.protect.corpus import inventing
from davylamp.protect.corpus.base import PROSE, InterventionSpec, Protected, Row, Setting, Span, apply_spans, texts
from davylamp.protect.corpus.frequencies import Frequencies, class_of
from davylamp.protect.corpus.inventing import Inventor
from davylamp.protect.corpus.letters import TAG, is_single, spelled
from davylamp.protect.corpus.particles import PARTICLES, is_particle
from davylamp.protect.corpus.registry import Kind
from davylamp.protect.corpus.segments import Piece, Token, parts_of, tokens_of
from davylamp.runs.progress import Reporter
from davylamp.secrets.streams import stream

FEW = 8
"""Common words of a kind below which rare names are taken from a list of invented ones."""
_NAME_CLASS = "Aaa"
FIRST = "first name"
"""Kind of the first word of a name, for which a first name is drawn."""


class SurrogateSpec(InterventionSpec):
    """Settings of the surrogate rewriter.

    Attributes:
        name: ``surrogate``.
        common: different records that must hold a part for it to be kept.
    """

    name: Literal["surrogate"] = "surrogate"
    common: int = Field(5, ge=2)


@dataclass(slots=True)
class _Draws:
    """What is remembered while one record is rewritten.

    Attributes:
        rng: its random numbers.
        own: its words and their parts, in lower case, none of which a list of names may give back.
        telling: the rare ones among them.
        told: what stands for a word, so that the same word gets the same stand-in.
    """

    rng: np.random.Generator
    own: frozenset[str]
    telling: frozenset[str]
    told: dict[tuple[str, str], str] = field(default_factory=dict)


class Surrogate:
    """The surrogate rewriter over one file."""

    name = "surrogate"
    version = "5"

    def __init__(self, rows: Sequence[Row], common: int = 5, seed: int = 0) -> None:
        """Count how many records hold what.

        Raises:
            InputError: see :class:`~davylamp.protect.corpus.frequencies.Frequencies`.
        """
        self._counts = Frequencies(rows, common)
        self._inventor = Inventor(self._counts)
        self._seed = seed

    def apply(self, rows: Sequence[Row], reporter: Reporter) -> Iterator[Protected]:
        """Replace the rare spans of rows."""
        with reporter.task(self.name, len(rows)) as advance:
            for row in rows:
                yield self.one(row)
                advance(1)

    def one(self, row: Row) -> Protected:
        """Replace the rare spans of one row."""
        parts = texts(row.record)
        own = {word for text in parts for token in tokens_of(text) for word in (token.text, *parts_of(token.text))}
        rng = stream(self._seed, self.name, row.record.line(), row.draw)
        draws = _Draws(rng, frozenset(word.casefold() for word in own), self._inventor.telling(own))
        spans = [span for part, text in enumerate(parts) for span in self._spans(part, text, draws)]
        return Protected(row.position, apply_spans(row.record, spans), tuple(spans))

    def rare(self, text: str) -> list[Span]:
        """The rare names and numbers of a text, replaced by nothing: what of a canary's carrier is looked for.

        A name is a run of at least two capitalised words, with the particles inside it, that fewer than ``common``
        records hold in their place: in prose, or alone behind a label. A number is any word with a digit in it, dates
        among them, that as few hold.
        """
        found: list[Span] = []
        for piece in self._counts.pieces(text):
            if self._counts.piece(piece) >= self._counts.common:
                continue
            for run in self._rare_runs(piece):
                if run[0].shape in ("number", "date"):
                    found += [Span(0, token.start, token.end, "number") for token in run]
                elif self._is_name(piece, run):
                    found.append(Span(0, run[0].start, run[-1].end, "name"))
        return found

    def _is_name(self, piece: Piece, run: Sequence[Token]) -> bool:
        if len([token for token in run if token.shape == "capital"]) < 2 or piece.listed:
            return False
        return not piece.label or len(run) == len(piece.tokens)

    def _spans(self, part: int, text: str, draws: _Draws) -> Iterator[Span]:
        counts = self._counts
        parts = counts.pieces(text)
        taken = {piece.text for piece in parts}
        for piece in parts:
            if counts.piece(piece) >= counts.common:
                continue
            pool = [each for each in counts.items(piece.label) if each[0] not in taken] if counts.is_item(piece) else []
            if pool:
                item = _drawn(pool, draws.rng)
                taken.add(item)
                yield Span(part, piece.start, piece.end, piece.label, item)
                continue
            for kind, token in self._rare_tokens(piece):
                key = (token.text.casefold(), class_of(token.text))
                if key not in draws.told:
                    draws.told[key] = self._token(piece, token, kind, draws)
                yield Span(part, token.start, token.end, "name" if kind == FIRST else kind, draws.told[key])

    def _rare_tokens(self, piece: Piece) -> Iterator[tuple[str, Token]]:
        """The tokens of a rare piece that are replaced, with their kinds."""
        counts = self._counts
        for run in self._rare_runs(piece):
            shape = run[0].shape
            kind = "name" if self._is_name(piece, run) else piece.label or PROSE
            for token in run:
                particle = shape == "capital" and token.shape == "lower"
                if not particle or counts.word(piece, token.text) < counts.common:
                    first = kind == "name" and token is run[0]
                    yield FIRST if first else shape if shape in ("number", "date") else kind, token

    def _rare_runs(self, piece: Piece) -> Iterator[list[Token]]:
        """The runs of a rare piece that are replaced.

        A run of capitalised words is one thing (a name, a street), and so is one of numbers or single letters (a code
        written in parts): all its words may be common, and the whole be nobody else's.
        """
        counts = self._counts
        for found in self._runs(piece):
            run = found
            single = len(run) > 2 and all(is_single(token.text) for token in run)
            opens = not single and not piece.label and run[0].place == 0 and run[0].shape == "capital" and len(run) > 2
            if opens and counts.word(piece, run[0].text) >= counts.common:
                # What many begin with (Dear, Hello) is no part of the name behind it, which has two words left.
                run = run[1:]
            alike = all(token.shape == run[0].shape or token.text in PARTICLES for token in run)
            if len(run) > 1 and (single or (alike and run[0].shape in ("capital", "number"))):
                yield run
            else:
                yield from ([token] for token in run if counts.word(piece, token.text) < counts.common)

    def _runs(self, piece: Piece) -> list[list[Token]]:
        """The tokens of a piece: neighbouring capitalised words, numbers or single letters together."""
        runs: list[list[Token]] = []
        last: Token | None = None
        tokens = piece.tokens
        tags = _within(piece, [each.span() for each in TAG.finditer(piece.text)] if "<" in piece.text else [])
        codes = _within(piece, [(each.start, each.end) for each in spelled(piece.text)])
        run: list[Token] = []
        for at, token in enumerate(tokens):
            if token in tags and (is_single(token.text) or (last is not None and is_single(last.text))):
                # A tag between two letters of a code leaves the code open, and is no letter of it.
                runs.append([token])
                continue
            # In a code of few letters each may stand in most records.
            furniture = token.shape == "capital" and token not in codes and self._counts.is_furniture(piece, token)
            if furniture or token.shape == "placeholder":
                last = None
                continue
            joined = last is not None and (
                (last.shape == token.shape and token.shape in ("capital", "number"))
                or (is_single(last.text) and is_single(token.text))
            )
            inside = last is not None and last.shape == "capital" and is_particle(tokens, at)
            if joined or inside:
                run.append(token)
            else:
                run = [token]
                runs.append(run)
            # A particle inside a name leaves it open for its next capitalised word.
            last = last if inside else token
        return runs

    def _token(self, piece: Piece, token: Token, kind: str, draws: _Draws) -> str:
        counts, rng, text = self._counts, draws.rng, token.text
        pool = counts.pool(piece, token)
        if token.shape == "date":
            return self._inventor.free(lambda longer: inventing.date(text, rng, longer), text, draws.telling)
        if token.shape == "capital" and class_of(text) == _NAME_CLASS and len(pool) < FEW:
            return self._name(kind == FIRST, draws, text)
        if not pool and token.shape != "number":
            pool = [each for each in counts.pool(piece, token, wide=True) if each[0].casefold() not in draws.own]
        if pool:
            return _drawn(pool, rng)

        def keep(part: str) -> bool:
            return counts.word(piece, part) >= counts.common

        def make(part: str) -> str:
            if token.shape == "capital" and class_of(part) == _NAME_CLASS:
                return self._name(False, draws, part)
            return self._inventor.free(lambda longer: inventing.word(part, rng, longer), part, draws.telling)

        if token.shape == "number":
            return self._inventor.free(lambda longer: inventing.number(text, keep, rng, longer), text, draws.telling)
        return inventing.words(text, keep, make)

    def _name(self, first: bool, draws: _Draws, before: str) -> str:
        """A name of the list that is no word of this record, or a made-up word where the record holds them all."""
        names: Sequence[str] = FIRST_NAMES if first else SURNAMES
        for _ in range(inventing.TRIES):
            made = str(names[int(draws.rng.integers(len(names)))])
            if made.casefold() not in draws.own:
                return made
        return self._inventor.free(lambda longer: inventing.word(before, draws.rng, longer), before, draws.telling)


def _within(piece: Piece, spans: Sequence[tuple[int, int]]) -> frozenset[Token]:
    """The tokens of a piece that lie in one of some spans of its text."""
    found, at = set[Token](), 0
    for token in piece.tokens if spans else ():
        while at < len(spans) and piece.start + spans[at][1] <= token.start:
            at += 1
        if at < len(spans) and piece.start + spans[at][0] <= token.start:
            found.add(token)
    return frozenset(found)


def _drawn(pool: Sequence[tuple[str, int]], rng: np.random.Generator) -> str:
    """A text of a pool, as likely as records hold it."""
    weights = np.asarray([held for _, held in pool], dtype=np.float64)
    return pool[int(rng.choice(len(pool), p=weights / weights.sum()))][0]


def _build(spec: SurrogateSpec, setting: Setting) -> Surrogate:
    return Surrogate(setting.rows, spec.common, setting.seed if spec.seed is None else spec.seed)


KIND = Kind(SurrogateSpec, _build)
"""The intervention ``surrogate``."""
