"""Named random streams: every draw comes from one seed, and no draw disturbs another."""

from __future__ import annotations

import hashlib

import numpy as np

from davylamp.errors import Fault, InputError


def stream(seed: int, *names: str | int) -> np.random.Generator:
    """A generator that depends on the seed and the names, and on nothing else.

    The seed and the names are hashed (SHA-256) into a PCG64 state, so that adding a draw in one place
    changes nothing elsewhere, and the same names give the same draws on every machine.

    Args:
        seed: a whole number of at least 0.
        names: what the stream is for, such as ``("secrets", "redacted")``.

    Raises:
        InputError: the seed is not a whole number of at least 0.
    """
    if not isinstance(seed, int) or isinstance(seed, bool) or seed < 0:
        raise InputError(Fault("seed", seed, "a whole number of at least 0"))
    # The length prefix keeps ("ab", "c") apart from ("a", "bc").
    key = "|".join(f"{len(str(part))}:{part}" for part in (seed, *names))
    digest = hashlib.sha256(key.encode("utf-8")).digest()
    return np.random.Generator(np.random.PCG64(int.from_bytes(digest, "big")))
