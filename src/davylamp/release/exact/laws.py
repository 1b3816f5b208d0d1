"""Laws of a secret: what an exact release says, symbol by symbol, where a record's secret stands."""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from fractions import Fraction
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from davylamp.bounds import checks
from davylamp.errors import Fault

Array = NDArray[np.float64]
Path = tuple[int, ...]
"""A secret, or its beginning, as places of its symbols in their alphabet."""


LARGEST_SPACE = 10**300
"""Secrets of a space whose masses are all doubles."""


class SecretLaw(Protocol):
    """A distribution over secrets of a fixed length, by its conditionals."""

    def row(self, path: Path) -> Array:
        """Probabilities of the next symbol after a path shorter than the secret, shape (v,)."""
        ...


class UniformLaw:
    """Every secret of the space is as likely: a release that knows nothing."""

    def __init__(self, v: int) -> None:
        """Take the number of symbols."""
        self._row = np.full(v, 1 / v)
        self._row.setflags(write=False)

    def row(self, path: Path) -> Array:  # noqa: ARG002
        """``1 / v`` each."""
        return self._row


class ListLaw:
    """Uniform over a list of secrets, mixed with weight ``gamma`` with the uniform law over the whole space.

    The two are mixed as laws of whole secrets, so that a secret on the list is always likelier than one off it. With
    one secret and ``gamma = 0`` it is said with certainty. After a path of probability 0 all symbols are as likely.
    """

    def __init__(self, v: int, secrets: Sequence[Path], gamma: float = 0.0) -> None:
        """List the secrets.

        Args:
            v: number of symbols.
            secrets: at least one, distinct, all of one length.
            gamma: weight of the uniform law, in [0, 1).

        Raises:
            InputError: an argument is outside its range.
        """
        faults = checks.whole("v", v, 2) + checks.below_one("gamma", gamma)
        if not secrets or len(set(secrets)) < len(secrets) or len({len(secret) for secret in secrets}) > 1:
            faults.append(Fault("secrets", f"{len(secrets)} secrets", "at least one, distinct, all of one length"))
        elif not faults and v ** len(secrets[0]) > LARGEST_SPACE:
            faults.append(Fault("v", v, f"at most 1e300 secrets, which {len(secrets[0])} symbols of so many exceed"))
        checks.raise_faults(faults)
        self._v, self._gamma, self._sorted = v, gamma, sorted(secrets)

    def row(self, path: Path) -> Array:
        """Conditional probabilities: what of the list and of the space begins with the path and each symbol."""
        counts = np.zeros(self._v)
        for secret in self._beginning(path):
            counts[secret[len(path)]] += 1
        # Both masses times v^(depth + 1), so that the uniform one is 1 and none underflows.
        listed = (1 - self._gamma) * counts / len(self._sorted) * float(self._v) ** (len(path) + 1)
        masses = listed + self._gamma
        total = masses.sum()
        return np.full(self._v, 1 / self._v) if total == 0 else masses / total

    def _beginning(self, path: Path) -> list[Path]:
        """The listed secrets that begin with a path."""
        if not path:
            return self._sorted
        after = (*path[:-1], path[-1] + 1)
        return self._sorted[bisect.bisect_left(self._sorted, path) : bisect.bisect_left(self._sorted, after)]


def share_of(guesses: int, among: int) -> float:
    """``min(1, m / n)``: success of m guesses at one of n equally likely secrets, n of any size.

    Raises:
        InputError: ``guesses`` is not a whole number of at least 1.
    """
    checks.raise_faults(checks.whole("guesses", guesses))
    # As a fraction, since n may be beyond the largest double.
    return float(min(Fraction(1), Fraction(guesses, among)))
