"""What an encoding is, and what all of them need: the symbols of a secret, and ways to refuse."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, runtime_checkable

from davylamp.errors import Fault, InputError
from davylamp.secrets.spaces import AlphabetSpace, SecretSpace


@runtime_checkable
class Encoding(Protocol):
    """A reversible way to write the secrets of a space.

    An encoding whose every result is itself a secret of the space says so with one attribute more,
    ``in_space = True``; only such an encoding can be followed by another.
    """

    @property
    def name(self) -> str:
        """The canonical name, as a plan says it: ``cyclic_shift(1)``."""

    def faults(self, space: AlphabetSpace) -> list[str]:
        """Why this encoding cannot be used on the space, a sentence each; empty if it can."""

    def encode(self, secret: str, space: AlphabetSpace) -> str:
        """The secret as it is shown.

        Raises:
            InputError: the encoding cannot be used on the space, or the secret is not in it.
        """

    def decode(self, text: str, space: AlphabetSpace) -> str:
        """The secret that :meth:`encode` turns into this text; its exact inverse.

        Raises:
            InputError: the encoding cannot be used on the space, or no secret encodes to the text, which the
                message does not repeat.
        """


def stays_in_space(encoding: Encoding) -> bool:
    """Whether every result of the encoding is itself a secret of the space."""
    return getattr(encoding, "in_space", False) is True


def require(encoding: Encoding, space: AlphabetSpace) -> None:
    """Refuse a space that the encoding cannot be used on.

    Raises:
        InputError: with every reason.
    """
    faults = encoding.faults(space)
    if faults:
        raise InputError(Fault("encoding", encoding.name, "one that fits the space", why) for why in faults)


def misfits(encoding: Encoding, space: SecretSpace) -> list[str]:
    """Why an encoding cannot be used on a space of any kind, a sentence each; empty if it can."""
    if not isinstance(space, AlphabetSpace):
        return [f"{encoding.name} writes symbols of an alphabet, and the names of this space have none"]
    return encoding.faults(space)


def symbols_of(space: SecretSpace, field: str) -> AlphabetSpace:
    """The space, where its secrets are symbols of an alphabet.

    Args:
        space: any space.
        field: what needs symbols, for the message.

    Raises:
        InputError: they are not.
    """
    if isinstance(space, AlphabetSpace):
        return space
    fix = "Contexts visible and redacted need no alphabet."
    raise InputError(Fault(field, type(space).__name__, "a space of symbols of an alphabet", fix))


def places(secret: str, space: AlphabetSpace) -> list[int]:
    """The place in the alphabet of each symbol of a secret, from 0, in the order of the secret.

    Raises:
        InputError: the secret is not in the space.
    """
    index = space.index(secret)
    found = []
    for _ in range(space.length):
        index, place = divmod(index, len(space.alphabet))
        found.append(place)
    return found[::-1]


def spelled(symbols: Iterable[str], space: AlphabetSpace) -> str:
    """The secret with these symbols: the prefix, then the symbols with separators between them."""
    return space.prefix + space.separator.join(symbols)


def undecodable(name: str, form: str) -> InputError:
    """The refusal of a text that no secret encodes to; the text itself may hold a secret and is not shown."""
    return InputError(Fault("text", "(not shown)", form, f"No secret of the space is written so by {name}."))
