"""An encoding of somebody else's, held to its word: nothing it raises may show a secret, and it must be reversible."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from davylamp.errors import Fault, InputError
from davylamp.secrets.encodings.base import Encoding, stays_in_space
from davylamp.secrets.spaces import AlphabetSpace

T = TypeVar("T")


@dataclass(frozen=True)
class Guarded:
    """An encoding that was registered or installed, and not built in.

    Attributes:
        inner: the encoding.
    """

    inner: Encoding

    @property
    def name(self) -> str:
        """The canonical name."""
        return self.inner.name

    @property
    def in_space(self) -> bool:
        """Whether every result is a secret of the space, as the encoding says."""
        return stays_in_space(self.inner)

    def faults(self, space: AlphabetSpace) -> list[str]:
        """Why the encoding cannot be used on the space.

        Raises:
            InputError: it cannot say.
        """
        found = called(f"{self.name}: faults", lambda: self.inner.faults(space))
        if not isinstance(found, list) or not all(isinstance(fault, str) for fault in found):
            raise InputError(Fault(f"{self.name}: faults", type(found).__name__, "a list of sentences"))
        return found

    def encode(self, secret: str, space: AlphabetSpace) -> str:
        """The secret as it is shown; see :class:`Encoding`.

        Raises:
            InputError: as for any encoding, or this one fails, gives no text, or cannot be decoded.
        """
        text = called(f"{self.name}: encode", lambda: self.inner.encode(secret, space))
        self._check_text("encode", text)
        if self.decode(text, space) != secret:
            allowed = "a text from which decode gives the secret back"
            raise InputError(Fault(f"{self.name}: encode", "(not shown)", allowed, "The encoding is not reversible."))
        if self.in_space and text not in space:
            allowed = "a secret of the space, since it says in_space"
            raise InputError(Fault(f"{self.name}: encode", "(not shown)", allowed))
        return text

    def decode(self, text: str, space: AlphabetSpace) -> str:
        """The secret of a text; see :class:`Encoding`.

        Raises:
            InputError: as for any encoding, or this one fails or gives no text.
        """
        secret = called(f"{self.name}: decode", lambda: self.inner.decode(text, space))
        self._check_text("decode", secret)
        return secret

    def _check_text(self, what: str, text: object) -> None:
        if not isinstance(text, str) or not text:
            raise InputError(Fault(f"{self.name}: {what}", type(text).__name__, "a text that is not empty"))


def called(what: str, call: Callable[[], T]) -> T:
    """What somebody else's code returns.

    Raises:
        InputError: it raised; its own message is left out, since it may hold a secret.
    """
    try:
        return call()
    except InputError:
        raise
    except Exception as error:  # noqa: BLE001 - another's code can raise anything, with the secret in its message
        raise InputError(Fault(what, type(error).__name__, "what returns", "Repair the encoding.")) from None
