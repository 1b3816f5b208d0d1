"""Encodings that write a secret in other signs: bits, fruits, character codes. Nothing can follow them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import ClassVar

from davylamp.secrets.encodings.base import places, require, spelled, undecodable
from davylamp.secrets.spaces import AlphabetSpace

FRUITS = ("apple", "banana", "cherry", "date", "elderberry", "fig", "grape", "honeydew", "kiwi", "lemon")
"""The words for 0 to 9 of ``chained_fruit``; never to be changed, since manifests name the encoding only."""


@dataclass(frozen=True)
class Binary:
    """The number of the secret in its space, as bits.

    ``4,7,1,9`` is the secret of index 4719 among 10,000, and ``01001001101111`` is 4719 in ceil(log2 10,000) = 14
    bits, the highest first. The secret is written as one number and not symbol by symbol, so that the prefix is
    left out.
    """

    name: ClassVar[str] = "binary"

    def faults(self, space: AlphabetSpace) -> list[str]:
        """Refuses the alphabet ``01``, whose secrets are their own bits."""
        if space.alphabet == "01":
            return ["binary writes symbols of the alphabet '01' as they are, so that it would show the secret"]
        return []

    def encode(self, secret: str, space: AlphabetSpace) -> str:
        """The index of the secret in bits; see :class:`Encoding`."""
        require(self, space)
        return format(space.index(secret), f"0{self._width(space)}b")

    def decode(self, text: str, space: AlphabetSpace) -> str:
        """The secret with this index; see :class:`Encoding`."""
        require(self, space)
        width = self._width(space)
        # int() alone would also take signs, spaces, underscores and the digits of other scripts.
        index = int(text, 2) if len(text) == width and set(text) <= {"0", "1"} else space.size
        if index >= space.size:
            raise undecodable(self.name, f"{width} bits of a number below {space.size}")
        return space.secret(index)

    @staticmethod
    def _width(space: AlphabetSpace) -> int:
        return (space.size - 1).bit_length()  # ceil(log2(size)), without the rounding of a float


@dataclass(frozen=True)
class ChainedFruit:
    """The running sums of the symbols, each as a fruit.

    A symbol counts as its place in the alphabet, from 0; sums are taken modulo the size of the alphabet. The sums
    of ``4,7,1,9`` are 4, 1, 2, 1, which is ``elderberry banana cherry banana``. A prefix stays in front.
    """

    name: ClassVar[str] = "chained_fruit"

    def faults(self, space: AlphabetSpace) -> list[str]:
        """Refuses alphabets with more symbols than there are words."""
        if len(space.alphabet) > len(FRUITS):
            return [f"chained_fruit has {len(FRUITS)} words, and the alphabet has {len(space.alphabet)} symbols"]
        return []

    def encode(self, secret: str, space: AlphabetSpace) -> str:
        """A word for each symbol, joined by a space; see :class:`Encoding`."""
        require(self, space)
        sums = accumulate(places(secret, space))
        return space.prefix + " ".join(FRUITS[total % len(space.alphabet)] for total in sums)

    def decode(self, text: str, space: AlphabetSpace) -> str:
        """The symbols as differences of the sums; see :class:`Encoding`."""
        require(self, space)
        words = FRUITS[: len(space.alphabet)]
        said = text[len(space.prefix) :].split(" ")
        if not text.startswith(space.prefix) or len(said) != space.length or not set(said) <= set(words):
            raise undecodable(self.name, f"{space.prefix!r} and {space.length} of the words {', '.join(words)}")
        sums = [0, *(words.index(word) for word in said)]
        return spelled((space.alphabet[(after - before) % len(words)] for before, after in pairwise(sums)), space)


@dataclass(frozen=True)
class Ascii:
    """The code point of each symbol in 8 bits, groups joined by a space: ``4`` is ``00110100``.

    Separators are not written. A prefix stays in front, in clear.
    """

    name: ClassVar[str] = "ascii"

    def faults(self, space: AlphabetSpace) -> list[str]:
        """Refuses alphabets with symbols that do not fit 8 bits."""
        wide = [symbol for symbol in space.alphabet if ord(symbol) > 255]
        if wide:
            return [f"ascii writes 8 bits a symbol, too few for {', '.join(map(repr, wide))} of the alphabet"]
        return []

    def encode(self, secret: str, space: AlphabetSpace) -> str:
        """Eight bits for each symbol; see :class:`Encoding`."""
        require(self, space)
        return space.prefix + " ".join(format(ord(space.alphabet[place]), "08b") for place in places(secret, space))

    def decode(self, text: str, space: AlphabetSpace) -> str:
        """The symbols with these code points; see :class:`Encoding`."""
        require(self, space)
        symbols = {format(ord(symbol), "08b"): symbol for symbol in space.alphabet}
        groups = text[len(space.prefix) :].split(" ")
        if not text.startswith(space.prefix) or len(groups) != space.length or not set(groups) <= set(symbols):
            form = f"{space.prefix!r} and {space.length} groups of 8 bits, each the code of one of {space.alphabet!r}"
            raise undecodable(self.name, form)
        return spelled((symbols[group] for group in groups), space)
