"""Secret spaces that can be listed: what all of them share, and every string of a fixed length over an alphabet."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from typing import Protocol, runtime_checkable

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator

from davylamp.errors import Fault, InputError


@runtime_checkable
class SecretSpace(Protocol):
    """What secrets are drawn from: a list of distinct strings, each with its index."""

    @property
    def size(self) -> int:
        """Number of secrets in the space."""

    @property
    def bits(self) -> float:
        """Entropy of a uniform secret, in bits."""

    @property
    def alternatives(self) -> int | None:
        """How many secrets that no canary holds each one is ranked among, beside itself; none: among all of them."""

    def secret(self, index: int) -> str:
        """The secret at an index from 0 to ``size - 1``.

        Raises:
            InputError: the index is outside the space.
        """

    def index(self, secret: str) -> int:
        """The index of a secret; the inverse of :meth:`secret`.

        Raises:
            InputError: the string is not in the space (its value is not repeated in the message).
        """

    def __contains__(self, secret: object) -> bool: ...

    def masked(self, secret: str) -> str:
        """A secret as it may be shown.

        Raises:
            InputError: the string is not in the space.
        """

    def candidates(self) -> Iterator[str]:
        """Every secret of the space, in the order of :meth:`secret`."""

    def draw(self, rng: np.random.Generator, count: int, exclude: Collection[str] = ()) -> list[str]:
        """Distinct secrets, uniform over the space without those excluded.

        Raises:
            InputError: fewer than ``count`` secrets are left.
        """


class AlphabetSpace(BaseModel):
    """All strings ``prefix + s1 + separator + s2 + ... + sn`` with each ``si`` from an alphabet.

    The default is the four-digit customer reference ``4,7,1,9``: 10,000 secrets.

    Attributes:
        alphabet: the symbols, each one character, none twice.
        length: how many symbols a secret has.
        separator: what stands between two symbols; may be empty.
        prefix: what every secret begins with; may be empty.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    alphabet: str = Field("0123456789", min_length=2)
    length: int = Field(4, ge=1, le=64)
    separator: str = ","
    prefix: str = ""

    @model_validator(mode="after")
    def _symbols_are_distinct(self) -> AlphabetSpace:
        if len(set(self.alphabet)) != len(self.alphabet):
            twice = sorted({symbol for symbol in self.alphabet if self.alphabet.count(symbol) > 1})
            raise ValueError(f"alphabet holds {', '.join(map(repr, twice))} more than once")
        if set(self.separator) & set(self.alphabet):
            raise ValueError("separator shares a symbol with the alphabet, so that secrets could not be told apart")
        return self

    @property
    def size(self) -> int:
        """Number of secrets in the space."""
        return int(len(self.alphabet) ** self.length)

    @property
    def bits(self) -> float:
        """Entropy of a uniform secret in bits; also the largest exposure that can be read."""
        return self.length * math.log2(len(self.alphabet))

    @property
    def alternatives(self) -> None:
        """None: a secret is ranked among the whole space, or among a pool where an audit asks for one."""
        return None

    def secret(self, index: int) -> str:
        """The secret at an index from 0 to ``size - 1``, in lexical order of the alphabet.

        Raises:
            InputError: the index is outside the space.
        """
        if not 0 <= index < self.size:
            raise InputError(Fault("index", index, f"a whole number from 0 to {self.size - 1}"))
        symbols = []
        for _ in range(self.length):
            index, digit = divmod(index, len(self.alphabet))
            symbols.append(self.alphabet[digit])
        return self.prefix + self.separator.join(reversed(symbols))

    def index(self, secret: str) -> int:
        """The index of a secret; the inverse of :meth:`secret`.

        Raises:
            InputError: the string is not in the space (its value is not repeated in the message).
        """
        body = secret[len(self.prefix) :]
        symbols = body.split(self.separator) if self.separator else list(body)
        fits = secret.startswith(self.prefix) and len(symbols) == self.length
        if not fits or any(len(symbol) != 1 or symbol not in self.alphabet for symbol in symbols):
            raise InputError(
                Fault(
                    "secret",
                    "(not shown)",
                    f"{self.length} of the symbols {self.alphabet!r}",
                    "It is not in its space.",
                )
            )
        index = 0
        for symbol in symbols:
            index = index * len(self.alphabet) + self.alphabet.index(symbol)
        return index

    def __contains__(self, secret: object) -> bool:
        if not isinstance(secret, str):
            return False
        try:
            self.index(secret)
        except InputError:
            return False
        return True

    def masked(self, secret: str) -> str:
        """A secret as it may be shown: a dot for each symbol; prefix and separators are public.

        Raises:
            InputError: the string is not in the space.
        """
        self.index(secret)
        return self.prefix + self.separator.join("•" * self.length)

    def candidates(self) -> Iterator[str]:
        """Every secret of the space, in the order of :meth:`secret`."""
        return (self.secret(index) for index in range(self.size))

    def draw(self, rng: np.random.Generator, count: int, exclude: Collection[str] = ()) -> list[str]:
        """Distinct secrets, uniform over the space without those excluded.

        Args:
            rng: the stream to draw from.
            count: how many.
            exclude: secrets that must not be drawn.

        Raises:
            InputError: fewer than ``count`` secrets are left.
        """
        taken = {secret for secret in exclude if secret in self}
        if count > self.size - len(taken):
            raise InputError(
                Fault(
                    "count",
                    count,
                    f"at most {self.size - len(taken)} (the space holds {self.size}, {len(taken)} are taken)",
                    "Take a longer secret or fewer canaries.",
                )
            )
        drawn: list[str] = []
        while len(drawn) < count:
            secret = self._draw_one(rng)
            if secret not in taken:
                taken.add(secret)
                drawn.append(secret)
        return drawn

    def _draw_one(self, rng: np.random.Generator) -> str:
        # Symbol by symbol, since the size of a long space does not fit the generator's integers.
        symbols = rng.integers(0, len(self.alphabet), self.length)
        return self.prefix + self.separator.join(self.alphabet[symbol] for symbol in symbols)
