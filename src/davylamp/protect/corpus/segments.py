"""The parts of a record's line, told by position and shape: labelled fields, items of lists, words and numbers.

Nothing here knows a language or a field. ``Medications: a; b.`` has items of the kind ``medications``, ``Address: 1 A
Street, Boston`` has the pieces ``address 1`` and ``address 2``, and words are capitalised, lower-case, numbers
or dates.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

Shape = Literal["capital", "lower", "number", "date"]

_CUT = re.compile(
    r"(?P<section>\.(?=\s|$)\s*|[!?](?=\s|$)\s*|\n+)|(?P<item>;\s*)|(?P<comma>(?<!\d),\s+|,\s+(?![\d\s]))|(?P<label>:\s+)"
)
_TOKEN = re.compile(r"[^\W_]+(?:(?:[-./:'’@]|(?<=\d),(?=\d))[^\W_]+)*")
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}|\d{1,2}[/.]\d{1,2}[/.]\d{4}")
_LABEL_WORDS = 4
"""Words that a label has at most; a longer text before a colon is prose."""
_ORDINALS = 4
"""Pieces between commas that have a kind of their own; later ones share the last."""


@dataclass(frozen=True, slots=True)
class Token:
    """A word or a number.

    Attributes:
        start: its first character in the text.
        end: one past its last.
        text: what it reads.
        shape: what it looks like.
        place: its number within its piece, from 0.
    """

    start: int
    end: int
    text: str
    shape: Shape
    place: int


@dataclass(frozen=True, slots=True)
class Piece:
    """What stands between two separators.

    Attributes:
        start: its first character in the text.
        end: one past its last.
        text: what it reads.
        label: the label of its section in lower case, or nothing.
        ordinal: its number between commas in its section, from 0.
        listed: whether its section is a list with semicolons.
    """

    start: int
    end: int
    text: str
    label: str
    ordinal: int
    listed: bool

    @property
    def tokens(self) -> list[Token]:
        """Its words and numbers."""
        found = enumerate(_TOKEN.finditer(self.text))
        return [
            Token(self.start + match.start(), self.start + match.end(), match[0], shape_of(match[0]), place)
            for place, match in found
        ]


def shape_of(token: str) -> Shape:
    """What a token looks like."""
    if _DATE.fullmatch(token):
        return "date"
    if any(letter.isdigit() for letter in token):
        return "number"
    return "capital" if token[:1].isupper() else "lower"


def pieces(text: str) -> list[Piece]:
    """The pieces of a text in order, labels left out; nothing but separators and labels lies between them."""
    found: list[Piece] = []
    for label, parts in _sections(text):
        listed = any(mark == "item" for _, _, mark in parts)
        # In a list with semicolons a comma belongs to its item.
        cuts = _merged(parts) if listed else parts
        for ordinal, (start, end, _) in enumerate(cuts):
            if text[start:end].strip():
                left = start + len(text[start:end]) - len(text[start:end].lstrip())
                right = left + len(text[start:end].strip())
                place = 0 if listed else min(ordinal, _ORDINALS - 1)
                found.append(Piece(left, right, text[left:right], label, place, listed))
    return found


_Part = tuple[int, int, str]


def _sections(text: str) -> Iterator[tuple[str, list[_Part]]]:
    """Label and parts of each section; a part has a start, an end and the separator behind it."""
    label, parts, at = "", list[_Part](), 0
    for match in _CUT.finditer(text):
        mark = str(match.lastgroup)
        words = text[at : match.start()].split()
        if mark == "label" and not 0 < len(words) <= _LABEL_WORDS:
            continue
        if mark == "label":
            if parts:
                yield label, parts
            label, parts = " ".join(words).lower(), []
        else:
            parts.append((at, match.start(), mark))
        at = match.end()
        if mark == "section":
            yield label, parts
            label, parts = "", []
    if at < len(text):
        parts.append((at, len(text), "section"))
    if parts:
        yield label, parts


def _merged(parts: list[_Part]) -> list[_Part]:
    merged: list[_Part] = []
    for start, end, mark in parts:
        if merged and merged[-1][2] == "comma":
            start = merged.pop()[0]  # noqa: PLW2901 - the item began before the comma
        merged.append((start, end, mark))
    return merged
