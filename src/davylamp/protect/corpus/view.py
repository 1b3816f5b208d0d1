"""A record before and after, word by word, with what was kept and what was replaced marked."""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Literal

_WORDS = re.compile(r"[^\W_•]+(?:(?:[-./:'’@]|(?<=\d),(?=\d))[^\W_]+)*|•(?:\W?•)*|\s+|[^\s]")
_MARKS = {"-": ("[-", "-]"), "+": ("{+", "+}"), "=": ("", "")}

Mark = Literal["=", "-", "+"]
"""Kept, taken out, put in."""


@dataclass(frozen=True, slots=True)
class Change:
    """A stretch of a text.

    Attributes:
        mark: whether it was kept, taken out or put in.
        text: what it reads.
    """

    mark: Mark
    text: str


def changes(before: str, after: str) -> list[Change]:
    """The stretches of two texts in their order: those kept, taken out and put in; all words, nothing twice."""
    old, new = _WORDS.findall(before), _WORDS.findall(after)
    found: list[Change] = []
    for kind, first, last, begin, end in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if kind == "equal":
            found.append(Change("=", "".join(old[first:last])))
            continue
        if last > first:
            found.append(Change("-", "".join(old[first:last])))
        if end > begin:
            found.append(Change("+", "".join(new[begin:end])))
    return _joined(found)


def _joined(found: list[Change]) -> list[Change]:
    """Neighbouring replacements with only white space between them as one, so that a name is one change."""
    result: list[Change] = []
    at = 0
    while at < len(found):
        taken, put = "", ""
        while at < len(found) and (
            found[at].mark != "=" or (found[at].text.isspace() and (taken or put) and at + 1 < len(found))
        ):
            each = found[at]
            taken += each.text if each.mark != "+" else ""
            put += each.text if each.mark != "-" else ""
            at += 1
        result += [Change("-", taken)] if taken else []
        result += [Change("+", put)] if put else []
        if at < len(found):
            result.append(found[at])
            at += 1
    return result


def marked(before: str, after: str) -> str:
    """One line of text: ``[-taken out-]`` and ``{+put in+}``, the rest kept."""
    return "".join(each.text.join(_MARKS[each.mark]) for each in changes(before, after))


def masked(text: str, secret: str, mask: str) -> str:
    """The text with a secret masked, also where its letters are parted by a mark or a space, or in another case."""
    letters = [re.escape(letter) for letter in re.sub(r"[\W_]+", "", secret)]
    if not letters:
        return text.replace(secret, mask)
    return re.sub(r"[\W_]{0,2}".join(letters), lambda _: mask, text.replace(secret, mask), flags=re.IGNORECASE)
