"""Training, held-out and test rows, split by whom they are about, so that nobody stands on two sides."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final, Literal, TypeVar, get_args

from davylamp.corpora.records import Corpus
from davylamp.errors import CorpusError, Fault, InputError

Part = Literal["train", "held_out", "test"]
PARTS: Final[tuple[Part, ...]] = get_args(Part)
"""The parts of a split, in the order of their shares."""
SHARES: Final = (0.8, 0.1, 0.1)
"""Shares of patients that are expected in each part, where nothing else is asked for."""

T = TypeVar("T")


def part_of(patient: str, seed: int, shares: Sequence[float] = SHARES) -> Part:
    """The part that a patient falls into: a function of the name and the seed, whatever the other patients are.

    So rows that are added, left out or put in another order move no patient from one part to another. Sizes are
    binomial: of n patients ``n * share`` are expected in a part, give or take ``sqrt(n * share * (1 - share))``.

    Args:
        patient: any name of theirs that is the same in each of their rows.
        seed: another seed gives another split.
        shares: expected shares of train, held_out and test.

    Raises:
        InputError: the shares are no three numbers of at least 0 that sum to 1.
    """
    check_shares(shares)
    digest = hashlib.sha256(f"split|{seed}|{patient}".encode("utf-8", "surrogatepass")).digest()
    at = int.from_bytes(digest[:8], "big") / 2**64
    for part, end in zip(PARTS, (shares[0], shares[0] + shares[1]), strict=False):
        if at < end:
            return part
    # What rounding leaves above the last end falls to the last part that may hold anybody.
    return next(part for part, share in zip(reversed(PARTS), reversed(shares), strict=True) if share > 0)


def split_by_patient(
    rows: Sequence[T], patient: Callable[[T], str], seed: int, shares: Sequence[float] = SHARES
) -> Mapping[Part, list[T]]:
    """Split rows so that all rows of a patient are in one part; each part keeps the order of the rows.

    Args:
        rows: anything.
        patient: whom a row is about.
        seed: of the split.
        shares: expected shares of patients in train, held_out and test.

    Raises:
        InputError: the shares are no three numbers of at least 0 that sum to 1.
    """
    check_shares(shares)
    found: dict[Part, list[T]] = {part: [] for part in PARTS}
    for row in rows:
        found[part_of(patient(row), seed, shares)].append(row)
    return found


def taken(corpus: Corpus, part: Part, seed: int, shares: Sequence[float] = SHARES) -> Corpus:
    """One part of a corpus; where it does not say whom a row is about, every text is about somebody else.

    Raises:
        CorpusError: nobody falls into the part.
        InputError: the shares are no three numbers of at least 0 that sum to 1.
    """
    groups = corpus.groups or tuple(record.line() for record in corpus)
    kept = split_by_patient(range(len(corpus)), groups.__getitem__, seed, shares)[part]
    if not kept:
        raise CorpusError(
            f"none of the {len(corpus):,} rows of {corpus.source} falls into the part {part!r} at seed {seed}: take a "
            "larger corpus, another seed or a larger share"
        )
    source = f"{corpus.source} ({part}: {len(kept):,} of {len(corpus):,} rows, split by patient, seed {seed})"
    records = tuple(corpus.records[at] for at in kept)
    return replace(
        corpus, records=records, source=source, groups=tuple(corpus.groups[at] for at in kept) if corpus.groups else ()
    )


def check_shares(shares: Sequence[float]) -> None:
    """Check the shares of a split.

    Raises:
        InputError: they are no three numbers of at least 0 that sum to 1.
    """
    if len(shares) != len(PARTS) or any(not 0 <= share <= 1 for share in shares) or not math.isclose(sum(shares), 1):
        raise InputError(
            Fault("shares", list(shares), f"{len(PARTS)} shares of at least 0, of {', '.join(PARTS)}, that sum to 1")
        )
