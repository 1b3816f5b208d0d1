"""What a finder of personal data finds, and how overlapping finds are made disjoint."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Protocol

LABELS = {
    "PER": "PERSON", "PERSON": "PERSON", "PATIENT": "PERSON", "STAFF": "PERSON", "HCW": "PERSON", "NAME": "PERSON",
    "LOC": "LOCATION", "GPE": "LOCATION", "FAC": "LOCATION", "LOCATION": "LOCATION",
    "ORG": "ORGANIZATION", "HOSP": "ORGANIZATION", "HOSPITAL": "ORGANIZATION", "PATORG": "ORGANIZATION",
    "DATE": "DATE_TIME", "TIME": "DATE_TIME", "DATE_TIME": "DATE_TIME", "NORP": "NRP", "AGE": "AGE", "ID": "ID",
    "PHONE": "PHONE_NUMBER", "EMAIL": "EMAIL_ADDRESS",
}  # fmt: skip
"""Labels of common models, as presidio names what they stand for; any other label stands for itself."""


@dataclass(frozen=True, slots=True)
class Found:
    """Personal data in a text.

    Attributes:
        start: first character.
        end: one past the last.
        kind: what it is, as presidio names it, such as ``PERSON``.
        score: how sure that is, 0 to 1.
    """

    start: int
    end: int
    kind: str
    score: float


class Finder(Protocol):
    """Something that finds personal data.

    Attributes:
        version: of the programs and models, so that rows are scrubbed again where one changes.
    """

    version: str

    def find(self, documents: Sequence[str]) -> list[list[Found]]:
        """What each document holds; it may overlap."""
        ...


def disjoint(found: Iterable[Found]) -> list[Found]:
    """Overlapping finds made disjoint, in their order; what any of them covers stays covered.

    The surer takes the characters, of two equally sure ones the longer, then the earlier; of the other is left what it
    covers alone.
    """
    kept: list[Found] = []
    for each in sorted(found, key=lambda one: (-one.score, one.start - one.end, one.start, one.kind)):
        free = [(each.start, each.end)]
        for other in kept:
            free = list(chain.from_iterable(_without(start, end, other) for start, end in free))
        kept += [Found(start, end, each.kind, each.score) for start, end in free if start < end]
    return sorted(kept, key=lambda one: one.start)


def _without(start: int, end: int, other: Found) -> list[tuple[int, int]]:
    if other.end <= start or end <= other.start:
        return [(start, end)]
    return [(start, min(end, other.start)), (max(start, other.end), end)]


def kind_of_label(label: str, labels: Mapping[str, str]) -> str:
    """What a label stands for, without its mark of place (``B-``, ``I-``); ``labels`` go before the usual ones."""
    plain = re.sub(r"^[BIUELS]-", "", label)
    return labels.get(plain) or labels.get(label) or LABELS.get(plain, plain)
