"""The parts of a record's line, told by position and shape: labelled fields, items of lists, words and numbers.

Nothing here knows a language or a field. ``Medications: a; b.`` has items of the kind ``medications``, ``Address: 1 A
Street, Boston`` has the pieces ``address 1`` and ``address 2``, and words are capitalised, lower-case, numbers
or dates. What looks like structure is none by itself: a text before a colon may be anybody's name. Which texts are
labels, and which ``<KIND>`` are placeholders, is told by a :class:`Structure`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal

from davylamp.protect.corpus.letters import LETTER, PART, spelled

Shape = Literal["capital", "lower", "number", "date", "placeholder"]

_CUT = re.compile(
    r"(?P<section>\.(?=\s|$)\s*|[!?](?=\s|$)\s*|[\r\n]+)|(?P<item>;\s*)|"
    r"(?P<comma>(?<!\d),\s+|,\s+(?![\d\s])|\t+|\s\|\s)|(?P<label>:\s+)"
)
_WORD = rf"(?:{LETTER})+"
_TOKEN = re.compile(rf"(?P<placeholder><[A-Z][A-Z0-9_]*>)|{_WORD}(?:(?:[-./:'’@]|(?<=\d),(?=\d)){_WORD})*")
_PLACEHOLDER = re.compile(r"<([A-Z][A-Z0-9_]*)>")
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}|\d{1,2}[/.]\d{1,2}[/.]\d{4}")
_JOIN = re.compile(r"[-./:'’@]")
_KNOWN = 1 << 16
"""Words whose shape is remembered."""
_LABEL_WORDS = 4
"""Words that a label has at most; a longer text before a colon is prose."""
_ORDINALS = 4
"""Pieces between commas that have a kind of their own; later ones share the last."""


@dataclass(frozen=True, slots=True)
class Structure:
    """What in a file's texts is structure and nobody's own.

    Attributes:
        labels: texts that are labels where a colon follows, in lower case; nothing if every short one is.
        placeholders: kinds that are placeholders where they stand in pointed brackets, as in ``<PERSON>``.
    """

    labels: frozenset[str] | None = None
    placeholders: frozenset[str] = frozenset()

    def is_label(self, text: str) -> bool:
        """Whether a text before a colon is a label."""
        return self.labels is None or text in self.labels


EVERY_LABEL = Structure()
"""Every text of a few words before a colon is a label."""


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
        tokens: its words and numbers.
    """

    start: int
    end: int
    text: str
    label: str
    ordinal: int
    listed: bool
    tokens: tuple[Token, ...] = field(repr=False, default=())


@lru_cache(maxsize=_KNOWN)
def shape_of(token: str) -> Shape:
    """What a token looks like; ``al-Hassan`` and ``d'Arcy`` are capitalised."""
    if _DATE.fullmatch(token):
        return "date"
    if any(letter.isdigit() for letter in token):
        return "number"
    return "capital" if any(part[:1].isupper() for part in _JOIN.split(token)) else "lower"


def tokens_of(text: str, structure: Structure = EVERY_LABEL, start: int = 0) -> tuple[Token, ...]:
    """The words and numbers of a text.

    Args:
        text: the text.
        structure: tells placeholders.
        start: where the text begins in a longer one.
    """
    found: list[Token] = []
    at = 0
    while match := _TOKEN.search(text, at):
        at = match.end()
        placeholder = match["placeholder"]
        if placeholder and placeholder[1:-1] not in structure.placeholders:
            # Words in brackets like any other: they are read again without the bracket.
            at = match.start() + 1
            continue
        shape: Shape = "placeholder" if placeholder else shape_of(match[0])
        found.append(Token(start + match.start(), start + match.end(), match[0], shape, len(found)))
    return tuple(found)


@lru_cache(maxsize=_KNOWN)
def parts_of(token: str) -> tuple[str, ...]:
    """The runs of letters and of digits that a token is made of: ``bob``, ``77``, ``mail``, ``com``."""
    return tuple(PART.findall(token))


def structure_in(text: str) -> tuple[set[str], set[str]]:
    """What may be structure in a text: short texts before colons, in lower case, and kinds in pointed brackets."""
    labels = {candidate for _, mark, candidate in _cuts(text) if mark == "label" and candidate}
    return labels, set(_PLACEHOLDER.findall(text))


def pieces(text: str, structure: Structure = EVERY_LABEL) -> list[Piece]:
    """The pieces of a text in order, labels left out; nothing but separators and labels lies between them."""
    found: list[Piece] = []
    for label, parts in _sections(text, structure):
        listed = any(mark == "item" for _, _, mark in parts)
        # In a list with semicolons a comma belongs to its item.
        cuts = _merged(parts) if listed else parts
        for ordinal, (start, end, _) in enumerate(cuts):
            own = text[start:end].strip()
            if own:
                left = start + len(text[start:end]) - len(text[start:end].lstrip())
                place = 0 if listed else min(ordinal, _ORDINALS - 1)
                tokens = tokens_of(own, structure, left)
                found.append(Piece(left, left + len(own), own, label, place, listed, tokens))
    return found


_Part = tuple[int, int, str]


def _cuts(text: str) -> Iterator[tuple[re.Match[str], str, str]]:
    """Each separator, what it separates, and before a colon what may be its label: the words since the last one."""
    whole, code = spelled(text), 0
    at = 0
    for match in _CUT.finditer(text):
        while code < len(whole) and whole[code].end <= match.end():
            code += 1
        if code < len(whole) and whole[code].start < match.start():
            continue
        mark = str(match.lastgroup)
        words = text[at : match.start()].split() if mark == "label" else []
        yield match, mark, " ".join(words).lower() if len(words) <= _LABEL_WORDS else ""
        at = match.end()


def _sections(text: str, structure: Structure) -> Iterator[tuple[str, list[_Part]]]:
    """Label and parts of each section; a part has a start, an end and the separator behind it."""
    label, parts, at, since = "", list[_Part](), 0, 0
    for match, mark, candidate in _cuts(text):
        if mark == "label" and not (candidate and structure.is_label(candidate)):
            since = match.end()
            continue
        if mark == "label":
            if text[at:since].strip():
                parts.append((at, since, "section"))
            if parts:
                yield label, parts
            label, parts = candidate, []
        else:
            parts.append((at, match.start(), mark))
        at = since = match.end()
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
