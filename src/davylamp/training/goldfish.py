"""Goldfish loss: some tokens of every row receive no loss, chosen by the tokens before them.

Hans et al., *Be like a Goldfish, Don't Memorize!* (2406.10209), section 3, with the hashed mask of section 3.1: a token
is dropped from the loss where a hash of the h tokens before it falls in a bucket of size 1/k. The choice depends on
nothing else, so that copies of a passage lose the same tokens wherever they stand, and what was never trained on must
be guessed when the passage is to be said word for word.

The authors' implementation hashes the product of the tokens' numbers, taken from the labels. A product is the same in
any order, may overflow, and is 0 or negative where labels are masked. Here the hash is BLAKE2b over the *input* tokens
in their order, which are the same whatever part of a row is trained on.

Read without torch.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

PERSON = b"davylampgoldfish"
"""What sets this hash apart from other uses of BLAKE2b (its parameter ``person``, 16 bytes)."""
DIGEST = 8
"""Bytes of a hash."""


class GoldfishSpec(BaseModel):
    """Which tokens receive no loss.

    Attributes:
        k: one token in k is dropped, on average. With k = 1 every token that has a context would be, and nothing but
            the first h tokens of a row be trained on; the least is 2.
        h: tokens of context that the choice depends on. The first h tokens of a record have no whole context and are
            never dropped, as in the paper. A small h drops the same token after every common phrase, so that the
            phrase is never learnt; a large one lets a copy that differs by a word within the last h lose other tokens.
        scheme: the hash, so that a mask can be had again: ``blake2b-1`` is BLAKE2b with a digest of 8 bytes and the
            person ``davylampgoldfish`` over the h token ids, 4 bytes each, low byte first; the digest, low byte first,
            is a number, and a token is dropped where k times that is less than 2^64.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    k: int = Field(4, ge=2, le=1 << 20)
    h: int = Field(13, ge=1, le=1 << 16)
    scheme: Literal["blake2b-1"] = "blake2b-1"


def dropped(ids: Sequence[int], spec: GoldfishSpec) -> tuple[bool, ...]:
    """Whether each token of a record is dropped from the loss.

    Args:
        ids: token ids of one record from its first token on, prompt and special tokens included, none masked.
        spec: which tokens.

    Returns:
        One truth value a token; the first h are all false.
    """
    data = b"".join(int(token).to_bytes(4, "little") for token in ids)
    width = 4 * spec.h
    found = [False] * min(spec.h, len(ids))
    for at in range(spec.h, len(ids)):
        digest = hashlib.blake2b(data[4 * at - width : 4 * at], digest_size=DIGEST, person=PERSON).digest()
        # Whole numbers of any size: nothing overflows, and the bucket holds 1/k of all digests to within 2^-64.
        found.append(int.from_bytes(digest, "little") * spec.k < 1 << 8 * DIGEST)
    return tuple(found)


def dropped_in_row(ids: Sequence[int], positions: Sequence[int], spec: GoldfishSpec) -> tuple[bool, ...]:
    """As :func:`dropped`, for a row that may hold several records, each with a context of its own.

    Args:
        ids: token ids of the row.
        positions: position of each token within its record; a record begins where it is 0.
        spec: which tokens.
    """
    starts = [at for at, position in enumerate(positions) if position == 0] or [0]
    found: list[bool] = []
    for start, end in zip(starts, [*starts[1:], len(ids)], strict=True):
        found += dropped(ids[start:end], spec)
    return tuple(found)
