"""Where a guessing search reads its conditionals: whole next-token rows after continuations of one fixed prefix."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from davylamp.errors import Fault, InputError, ScoringError
from davylamp.release.base import Access, Release, require
from davylamp.release.plain import PlainPrefix

FLOAT32_MARGIN = 1e-4
"""Nats by which a log-probability from float32 logits, reduced in float64, may differ from that of another order of
the sums (another batch, a cache): 7e-6 was measured on tiny models and 6e-5 on one of 135M parameters, over whole
vocabularies of 49,152; rounded up."""
FLOAT64_MARGIN = 1e-12
"""Nats a token that the search's own sums in float64 may err by."""
SUM_TOLERANCE = 1e-4
"""Nats by which the probabilities of a row may fail to sum to 1 before the row is refused."""


class PrefixRows(Protocol):
    """Next-token rows after continuations of one fixed prefix.

    Paths of one call have any lengths; the empty path asks for the row right after the prefix. A search asks for
    a path only after it asked for the path without its last token, so that an implementation may keep the keys
    and values of what it has read.
    """

    def rows(self, paths: Sequence[Sequence[int]]) -> NDArray[np.float64]:
        """Log-probabilities in nats of every next token after prefix and path, shape (paths, vocabulary)."""
        ...


@runtime_checkable
class OpensPrefixes(Protocol):
    """A release with a faster way to answer for many continuations of one prefix."""

    def open(self, prefix: Sequence[int]) -> PrefixRows:
        """Read the prefix once, for any number of rows after it."""
        ...


def open_rows(release: Release, prefix: Sequence[int]) -> PrefixRows:
    """The rows after a prefix, by the fastest way that the release offers.

    Raises:
        AccessError: the release gives no conditionals.
    """
    require(release, "a guessing search", Access.CONDITIONALS)
    return release.open(prefix) if isinstance(release, OpensPrefixes) else PlainPrefix(release, prefix)


def checked_rows(rows: NDArray[np.float64], count: int, temperature: float) -> NDArray[np.float64]:
    """Rows in float64 at a temperature, none above 0.

    Log-probabilities that never exceed 0 are what makes a prefix's probability a bound on its completions'.

    Args:
        rows: log-probabilities in nats, shape (count, vocabulary); minus infinity is a token of probability 0.
        count: how many rows were asked for.
        temperature: divides the logits; above 0.

    Raises:
        ScoringError: the shape is another one, an entry is NaN, or a row does not sum to 1 (a truncated row, such as
            a server's most likely tokens, bounds nothing).
    """
    values = np.asarray(rows, dtype=np.float64)
    if values.ndim != 2 or len(values) != count:
        raise ScoringError(f"asked for {count} rows of conditionals, and got the shape {values.shape}")
    with np.errstate(invalid="ignore"):
        totals = log_totals(values)
    if np.isnan(totals).any() or np.isposinf(totals).any():
        # A sum is a number only if all that it adds up are.
        raise ScoringError("a row of conditionals holds NaN or infinity; score in float32, or check the checkpoint")
    worst = int(np.argmax(np.abs(totals)))
    if abs(float(totals[worst])) > SUM_TOLERANCE:
        raise ScoringError(
            f"the probabilities of a row of conditionals sum to {np.exp(totals[worst]):.6g}, not to 1: the search "
            "needs whole rows of normalised log-probabilities"
        )
    if temperature != 1:
        values = values / temperature
        values -= log_totals(values)[:, None]
    return np.minimum(values, 0.0) if values.max() > 0 else values


def log_totals(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Log of the sum of exponentials of each row, shape (rows,); minus infinity where all entries are."""
    # scipy's takes several times as long over whole vocabularies.
    top = values.max(axis=1, keepdims=True)
    top[np.isneginf(top)] = 0.0
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(np.exp(values - top).sum(axis=1)) + top[:, 0])


def slack(length: int, temperature: float, margin: float) -> float:
    """Nats that a sequence's log-probability may be off by, rounded up.

    A row that is off by ``margin`` is off by at most twice ``margin / temperature`` after it was sharpened and
    normalised again.

    Args:
        length: tokens of the sequence.
        temperature: divides the logits.
        margin: nats that one entry of a row may be off by.
    """
    per_token = margin if temperature == 1 else 2 * margin / temperature
    return length * (per_token + FLOAT64_MARGIN * max(1.0, 1 / temperature))


def search_faults(length: int, budget: int, temperature: float, batch: int, margin: float) -> None:
    """Check the arguments that all searches share.

    Raises:
        InputError: one is outside its range; all are named.
    """
    whole = "a whole number of at least 1"
    checks = [
        ("length", length, length >= 1, whole),
        ("budget", budget, budget >= 1, whole),
        ("batch", batch, batch >= 1, whole),
        ("temperature", temperature, 0 < temperature < float("inf"), "a number above 0 (1 is the model's own)"),
        ("margin", margin, 0 <= margin < float("inf"), "a number of nats of at least 0"),
    ]
    if faults := [Fault(name, value, allowed) for name, value, fits, allowed in checks if not fits]:
        raise InputError(faults)
