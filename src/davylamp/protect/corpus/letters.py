"""Letters as patterns: what counts as one, what belongs to one, and codes of which every letter stands by itself.

A circled, parenthesised or squared letter, a regional indicator and a tag character read as letters to a person and to
a model, so they are letters here, though Unicode calls them symbols.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

_NAMED = re.compile(
    r"(?:(?:NEGATIVE |CROSSED NEGATIVE )(?:CIRCLED|SQUARED) LATIN CAPITAL LETTER|"
    r"(?:RAISED|TORTOISE SHELL BRACKETED|REGIONAL INDICATOR SYMBOL|TAG LATIN (?:SMALL|CAPITAL)).*LETTER) [A-Z]|"
    r"TAG DIGIT [A-Z]+"
)
"""Names of letters in disguise of which Unicode gives no plain form."""
_PLAIN = re.compile(r"\(?[^\W_]\)?")


def _class(codes: Iterable[int]) -> str:
    """Characters as the inside of a class of a regular expression."""
    ranges: list[list[int]] = []
    for code in sorted(codes):
        if ranges and code == ranges[-1][1] + 1:
            ranges[-1][1] = code
        else:
            ranges.append([code, code])
    return "".join(f"\\U{first:08x}-\\U{last:08x}" for first, last in ranges)


def _marks() -> Iterator[int]:
    """What may stand inside a word and is no letter: combining marks, soft hyphens, joiners.

    Without them a word of many scripts would fall into single letters, each of them in many records.
    """
    blocks = (range(0x300, 0x20000), range(0xE0100, 0xE01F0))
    yield from (code for block in blocks for code in block if unicodedata.category(chr(code))[0] == "M")
    yield from (0xAD, *range(0x200B, 0x200E), 0x2060, 0xFEFF)


def _disguised() -> Iterator[int]:
    """Symbols that stand for one letter or digit."""
    for code in (*range(0x2000, 0x3400), *range(0x1F100, 0x1F200), *range(0xE0000, 0xE0080)):
        sign = chr(code)
        if sign.isalnum() or unicodedata.category(sign) not in ("So", "Cf"):
            continue
        if _PLAIN.fullmatch(unicodedata.normalize("NFKC", sign)) or _NAMED.fullmatch(unicodedata.name(sign, "")):
            yield code


_MARKS = _class(_marks())
_WORDLIKE = rf"[\w{_class(_disguised())}]"
_ANY = rf"(?!_){_WORDLIKE}"
"""A letter or a digit."""
LETTER = rf"{_ANY}[{_MARKS}]*"
"""A letter or a digit with what belongs to it."""
PART = re.compile(rf"\d+|(?:(?!\d){LETTER})+")
"""A run of letters, or one of digits."""

_TAG = (
    r"(?:</?(?:[a-z][a-z0-9]{1,9}|TD|TH|TR|LI|BR)(?:\s[\w:-]{1,20}=[^<>]{0,60}|\s)?/?>|"
    r"<[abipqsuABIPQSU]>(?=[^<>]{1,20}</)|</[abipqsuABIPQSU]>)"
)
TAG = re.compile(_TAG)
"""A tag of HTML or the like.

Of those in capitals only the usual, for ``<PERSON>`` is a placeholder, and of those of one letter only where it closes,
for ``<b><o><b>`` is a word.
"""
_ALONE = re.compile(rf"{_TAG}|(?P<letter>(?:(?<!{_WORDLIKE})|(?<=_)){LETTER}(?![{_MARKS}]|{_ANY}))")
_SINGLE = re.compile(LETTER)
_HELD = re.compile(_ANY)
_SPACE = re.compile(r"\s+")
GAP = 16
"""Signs between two letters of one code at most; a tag is none, and a run of white space is one."""
_SHORTEST = 3
"""Letters from which single ones are a code."""


def is_single(text: str) -> bool:
    """Whether a token is one letter or digit, with its marks."""
    return len(text) == 1 or bool(_SINGLE.fullmatch(text))


@dataclass(frozen=True, slots=True)
class Code:
    """A word or a code of which every letter stands by itself.

    Attributes:
        start: its first character in the text.
        end: one past its last.
        letters: its letters and digits, without what stands between them.
    """

    start: int
    end: int
    letters: tuple[str, ...]


def spelled(text: str) -> list[Code]:
    """The words and codes of a text of which every letter stands by itself: ``4; 7; 1; 9``, ``["b", "o", "b"]``.

    Takes time in proportion to the text: each gap is read once.
    """
    runs: list[list[re.Match[str]]] = []
    at, gap = 0, ""
    for match in _ALONE.finditer(text):
        gap += text[at : match.start()]
        at = match.end()
        if not match["letter"]:
            continue
        if runs and _joins(gap):
            runs[-1].append(match)
        else:
            runs.append([match])
        gap = ""
    return [
        Code(run[0].start(), run[-1].end(), tuple(match["letter"] for match in run))
        for run in runs
        if len(run) >= _SHORTEST
    ]


def _joins(gap: str) -> bool:
    """Whether what stands between two single letters, tags left out, keeps them one code."""
    return not _HELD.search(gap) and len(_SPACE.sub(" ", gap)) <= GAP
