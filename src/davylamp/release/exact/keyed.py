"""Pseudorandom nodes: supports drawn by a keyed hash of their path, so that a tree of any size stores nothing.

Source: P1 (*Memorization Is Not Extraction*, arXiv 2608.27782), Rem D.5; BLAKE2 with a key: RFC 7693.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator

from davylamp.release.exact.laws import Path

Support = tuple[int, ...]
"""Symbols that a node can say, ascending."""


def keyed_support(key: bytes, path: Path, v: int, k: int, child: int | None) -> Support:
    """The support of one node, drawn by a keyed hash of its path (P1, Rem D.5).

    The bytes are those of BLAKE2b with the key over a counter of 8 bytes, from 0, and the path in 4 bytes a symbol,
    all big-endian; each 8 of them are one number, numbers are made uniform below n by rejection, and a partial
    Fisher-Yates shuffle takes the symbols.

    Args:
        key: of the hash.
        path: of the node.
        v: symbols of the alphabet.
        k: symbols of a support.
        child: the true symbol, which is in the support with k - 1 uniform others; k uniform ones if none.

    Returns:
        k symbols, ascending.
    """
    numbers = _numbers(key, b"".join(symbol.to_bytes(4, "big") for symbol in path))
    count, size = (k, v) if child is None else (k - 1, v - 1)
    moved: dict[int, int] = {}
    chosen = []
    for at in range(count):
        pick = at + _below(numbers, size - at)
        chosen.append(moved.get(pick, pick))
        moved[pick] = moved.get(at, at)
    if child is not None:
        chosen = [*(symbol + (symbol >= child) for symbol in chosen), child]
    return tuple(sorted(chosen))


def _numbers(key: bytes, node: bytes) -> Iterator[int]:
    for counter in itertools.count():
        digest = hashlib.blake2b(counter.to_bytes(8, "big") + node, key=key).digest()
        for at in range(0, len(digest), 8):
            yield int.from_bytes(digest[at : at + 8], "big")


def _below(numbers: Iterator[int], n: int) -> int:
    limit = 2**64 // n * n
    return next(number for number in numbers if number < limit) % n
