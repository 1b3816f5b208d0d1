"""Encodings whose results are secrets of the same space: substitutions and reorderings. Others can follow them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

from davylamp.errors import Fault, InputError
from davylamp.secrets.encodings.base import places, require, spelled
from davylamp.secrets.spaces import AlphabetSpace
from davylamp.secrets.streams import stream


@dataclass(frozen=True)
class Substitution:
    """One fixed dictionary of substitutes over the alphabet, in which no symbol stands for itself.

    The dictionary depends on which symbols the alphabet has and on nothing else: not on the order in which they
    are written, the plan's seed, the process or the version.
    """

    name: ClassVar[str] = "substitution"
    in_space: ClassVar[bool] = True

    def faults(self, space: AlphabetSpace) -> list[str]:  # noqa: ARG002
        """None: every alphabet of two symbols or more has such a dictionary."""
        return []

    def encode(self, secret: str, space: AlphabetSpace) -> str:
        """The substitutes in the symbols' places; see :class:`Encoding`."""
        substitutes = _dictionary("".join(sorted(space.alphabet)))
        return spelled((substitutes[symbol] for symbol in _symbols(secret, space)), space)

    def decode(self, text: str, space: AlphabetSpace) -> str:
        """The symbols in their substitutes' places; see :class:`Encoding`."""
        plain = {substitute: symbol for symbol, substitute in _dictionary("".join(sorted(space.alphabet))).items()}
        return spelled((plain[symbol] for symbol in _symbols(text, space)), space)


@dataclass(frozen=True)
class ChainedSubstitution:
    """Substitutes that depend on the symbol before, in which no symbol stands for itself.

    The symbols stand on a circle, in a fixed random order that depends on which they are and on nothing else. A
    symbol is replaced by the one that is some steps further: one step for the first symbol of a secret, and
    ``1 + p mod (n - 1)`` steps after the plain symbol at position ``p`` of the circle, where ``n`` is their number.
    """

    name: ClassVar[str] = "chained_substitution"
    in_space: ClassVar[bool] = True

    def faults(self, space: AlphabetSpace) -> list[str]:
        """Refuses two symbols: the only substitute for one is the other, whatever stands before it."""
        if len(space.alphabet) < 3:
            return ["chained_substitution needs three symbols or more to choose a substitute by the symbol before"]
        return []

    def encode(self, secret: str, space: AlphabetSpace) -> str:
        """Each symbol moved along the circle; see :class:`Encoding`."""
        return self._moved(secret, space, forward=True)

    def decode(self, text: str, space: AlphabetSpace) -> str:
        """Each symbol moved back; see :class:`Encoding`."""
        return self._moved(text, space, forward=False)

    def _moved(self, text: str, space: AlphabetSpace, *, forward: bool) -> str:
        require(self, space)
        circle = _shuffled("".join(sorted(space.alphabet)), self.name, 0)
        steps, moved = 1, []
        for symbol in _symbols(text, space):
            position = circle.index(symbol)
            reached = (position + (steps if forward else -steps)) % len(circle)
            moved.append(circle[reached])
            plain = position if forward else reached
            steps = 1 + plain % (len(circle) - 1)
        return spelled(moved, space)


@dataclass(frozen=True)
class BlockReversal:
    """The symbols inside consecutive blocks of ``width``, reversed; the last block may be shorter.

    ``block_reversal(2)`` of ``ABCDE`` is ``BADCE``; width 1 changes nothing.
    """

    width: int
    in_space: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _at_least(1, self.width, "block_reversal(width)")

    @property
    def name(self) -> str:
        """The canonical name."""
        return f"block_reversal({self.width})"

    def faults(self, space: AlphabetSpace) -> list[str]:  # noqa: ARG002
        """None: every space can be reordered."""
        return []

    def encode(self, secret: str, space: AlphabetSpace) -> str:
        """The secret with its blocks reversed; see :class:`Encoding`."""
        symbols = _symbols(secret, space)
        starts = range(0, len(symbols), self.width)
        return spelled((symbol for at in starts for symbol in reversed(symbols[at : at + self.width])), space)

    def decode(self, text: str, space: AlphabetSpace) -> str:
        """The blocks reversed once more; see :class:`Encoding`."""
        return self.encode(text, space)


@dataclass(frozen=True)
class CyclicShift:
    """The symbols rotated to the left by ``by`` places.

    ``cyclic_shift(1)`` of ``ABCD`` is ``BCDA``; 0 and the multiples of the secret's length change nothing.
    """

    by: int
    in_space: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _at_least(0, self.by, "cyclic_shift(by)")

    @property
    def name(self) -> str:
        """The canonical name."""
        return f"cyclic_shift({self.by})"

    def faults(self, space: AlphabetSpace) -> list[str]:  # noqa: ARG002
        """None: every space can be reordered."""
        return []

    def encode(self, secret: str, space: AlphabetSpace) -> str:
        """The secret rotated to the left; see :class:`Encoding`."""
        return self._rotated(secret, space, self.by)

    def decode(self, text: str, space: AlphabetSpace) -> str:
        """The text rotated to the right; see :class:`Encoding`."""
        return self._rotated(text, space, -self.by)

    @staticmethod
    def _rotated(text: str, space: AlphabetSpace, by: int) -> str:
        symbols = _symbols(text, space)
        by %= len(symbols)
        return spelled(symbols[by:] + symbols[:by], space)


def _at_least(least: int, value: int, field: str) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise InputError(Fault(field, value, f"a whole number of at least {least}"))


def _symbols(secret: str, space: AlphabetSpace) -> list[str]:
    return [space.alphabet[place] for place in places(secret, space)]


@lru_cache(maxsize=64)
def _dictionary(symbols: str) -> dict[str, str]:
    """The substitute of each symbol: the first draw without a fixed point."""
    draw = 0
    while True:
        # About one permutation in e has no fixed point, so that this ends after a few draws.
        substitutes = _shuffled(symbols, Substitution.name, draw)
        if all(symbol != substitute for symbol, substitute in zip(symbols, substitutes, strict=True)):
            return dict(zip(symbols, substitutes, strict=True))
        draw += 1


@lru_cache(maxsize=64)
def _shuffled(symbols: str, name: str, draw: int) -> str:
    """The symbols in a random order of a named stream.

    numpy promises that a generator's raw bits stay the same in later versions, and does not promise it for
    ``permutation``; hence an order by raw 64-bit numbers.
    """
    raw = stream(0, "encodings", name, symbols, draw).bit_generator.random_raw(len(symbols)).tolist()
    return "".join(symbol for _, symbol in sorted(zip(raw, symbols, strict=True)))
