"""Words, numbers and dates that nobody in a file has, in the shape of what they stand for."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from davylamp.protect.corpus.frequencies import Frequencies
from davylamp.protect.corpus.segments import parts_of

TRIES = 50
"""Draws of a number or a word in its shape until one is free; after them it grows longer."""
LONGEST = 12
"""Letters of an invented word at most."""
_TELLING = 3
"""Letters or digits from which a rare part of what is replaced must not come back."""
_CONSONANTS, _VOWELS = "bdfgklmnprstv", "aeiou"


class Inventor:
    """Draws what no record of a file holds."""

    def __init__(self, counts: Frequencies) -> None:
        """Take what the file holds."""
        self._counts = counts

    def telling(self, words: Iterable[str]) -> frozenset[str]:
        """The rare ones among a record's words and their parts that nothing drawn for it may bring back."""
        long = {each.casefold() for each in words if len(each) >= _TELLING}
        return frozenset(each for each in long if self._counts.anywhere(each) < self._counts.common)

    def free(self, draw: Callable[[int], str], before: str, telling: frozenset[str]) -> str:
        """A draw that is new to the file, so that nobody's number or word is given to another.

        Args:
            draw: draws a text, longer by so many letters or digits than its shape.
            before: what it stands for, which it never holds.
            telling: parts that it must not hold; see :meth:`telling`.

        Returns:
            In the shape, something that no record holds, or where that was not found, that many hold; else longer.
        """
        longer = 0
        while True:
            held = ""
            for _ in range(TRIES):
                made = draw(longer)
                if before.casefold() in made.casefold() or any(each.casefold() in telling for each in parts_of(made)):
                    continue
                seen = self._counts.anywhere(made)
                if not seen:
                    return made
                if seen >= self._counts.common:
                    held = held or made
            if held:
                return held
            longer += 1


def number(text: str, keep: Callable[[str], bool], rng: np.random.Generator, longer: int = 0) -> str:
    """Other digits in the same places; one that did not begin with 0 still does not.

    Args:
        text: a token with digits.
        keep: which runs of letters in it stay (``yo``, ``MG``); others are drawn anew.
        rng: random numbers.
        longer: digits that are added.
    """
    made: list[str] = []
    for part in _split(text):
        if part[0].isdigit():
            # As before: a number that did not begin with 0 still does not.
            least = [1 if not made and not at and letter != "0" else 0 for at, letter in enumerate(part)]
            made.append("".join(str(int(rng.integers(low, 10))) for low in least))
        else:
            made.append(part if not parts_of(part) or keep(part) else word(part, rng))
    return "".join(made) + "".join(str(int(rng.integers(10))) for _ in range(longer))


def date(text: str, rng: np.random.Generator, longer: int = 0) -> str:
    """Another day of the same decade (any other, where ``longer`` is not 0), written the same way."""
    year, month, day = int(rng.integers(10)), int(rng.integers(1, 13)), int(rng.integers(1, 29))
    decade = f"{int(rng.integers(100, 1000))}" if longer else text[:3] if text[4:5] == "-" else text[-4:-1]
    if text[4:5] == "-":
        return f"{decade}{year}-{month:02d}-{day:02d}"
    mark = next(letter for letter in text if not letter.isdigit())
    return f"{month:02d}{mark}{month if mark == '.' else day:02d}{mark}{decade}{year}"


def words(text: str, keep: Callable[[str], bool], make: Callable[[str], str]) -> str:
    """A token with its runs of letters drawn anew, and the signs between them as they are.

    Args:
        text: a token without digits.
        keep: which runs stay (``com``); where all would, none does.
        make: draws one.
    """
    split = _split(text)
    letters = [part for part in split if parts_of(part)]
    all_stay = all(keep(part) for part in letters)
    return "".join(part if part not in letters or (keep(part) and not all_stay) else make(part) for part in split)


def word(text: str, rng: np.random.Generator, longer: int = 0) -> str:
    """A word that can be said and means nothing, in the same case and about as long; any letters for a code of two."""
    size = min(len(text), LONGEST) + longer
    upper = text.upper() == text != text.lower()
    if size <= 2 or upper:
        letters = [chr(ord("a") + int(rng.integers(26))) for _ in range(size)]
    else:
        first = int(rng.integers(2))
        sets = (_CONSONANTS, _VOWELS)
        letters = [sets[(first + at) % 2][int(rng.integers(len(sets[(first + at) % 2])))] for at in range(size)]
    made = "".join(letters)
    return made.upper() if upper else made.capitalize() if text[:1].isupper() else made


def _split(text: str) -> list[str]:
    """A token as runs of letters, runs of digits, and single signs."""
    found, at = [], 0
    for part in parts_of(text):
        begin = text.index(part, at)
        found += [*text[at:begin], part]
        at = begin + len(part)
    return [*found, *text[at:]]
