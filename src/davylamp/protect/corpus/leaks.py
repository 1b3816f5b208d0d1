"""Does what was planted survive in the protected text: exactly, and so nearly that a reader would know it again.

A needle survives *nearly* in a text where, letters and digits alone and in lower case, it stands in it with at most
:func:`allowed` edits (Levenshtein distance to the nearest substring; Sellers, "The theory and computation of
evolutionary distances", J. Algorithms 1, 1980). So a name that was split by a hyphen, a space or another case is found.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

from pydantic import BaseModel, ConfigDict, Field

from davylamp.canaries.manifest import Canary, Manifest
from davylamp.corpora.records import Record
from davylamp.protect.corpus.base import Span, texts

_LETTERS = re.compile(r"[\W_]+")
SHORT, LONG = 6, 10
"""Letters from which one edit is allowed, and from which two are."""
FALSE_LENGTH = 4
"""Letters below which a needle that is bare letters would be found anywhere: it is looked for exactly only."""


ABSENT = 100
"""Secrets at most that were planted nowhere and are looked for all the same."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Survival(_Strict):
    """How many protected copies hold a needle.

    Attributes:
        exact: copies that hold it letter by letter.
        near: copies that hold it exactly or nearly.
    """

    exact: int = Field(ge=0)
    near: int = Field(ge=0)


class CanarySurvival(_Strict):
    """What of one canary survives in its rows.

    Attributes:
        id: the canary.
        dose: its rows.
        secret: its secret.
        name: the name in its carrier; nothing where there is none.
        number: any rare number of its carrier; nothing where there is none. A number is a word of four or more letters
            and digits with a digit in it, dates among them; rare, where few records hold it in its place.
        kept: whether its rows were left as they were, as those of the positive control are.
    """

    id: str
    dose: int
    secret: Survival
    name: Survival | None = None
    number: Survival | None = None
    kept: bool = False


class DoseSurvival(_Strict):
    """The same for all canaries of a dose.

    Attributes:
        dose: rows of each.
        canaries: how many.
        copies: their rows together.
        secret: copies that hold their canary's secret.
        name: copies that hold its name, of ``named``.
        number: copies that hold a number, of ``numbered``.
        named: copies whose carrier has a name.
        numbered: copies whose carrier has a rare number.
        leaking: canaries of which at least one copy holds the secret, exactly or nearly.
    """

    dose: int
    canaries: int
    copies: int
    secret: Survival
    name: Survival
    number: Survival
    named: int
    numbered: int
    leaking: int


class Leaks(_Strict):
    """What survives in a protected file.

    Attributes:
        canaries: each planted canary.
        doses: the same by dose, the control left out.
        chance: how often a secret that was planted nowhere was found in the same rows: what near matching finds by
            accident.
        tried: how often one was looked for.
    """

    canaries: tuple[CanarySurvival, ...]
    doses: tuple[DoseSurvival, ...]
    chance: Survival
    tried: int


def bare(text: str) -> str:
    """Letters and digits alone, in lower case."""
    return _LETTERS.sub("", text).casefold()


def allowed(needle: str) -> int:
    """Edits within which a needle counts as found: none below 6 bare letters, one below 10, two from there.

    A number is found without its marks, and with no digit changed: another number is another person's.
    """
    letters = bare(needle)
    if len(letters) < SHORT or not any(letter.isalpha() for letter in letters):
        return 0
    return 1 if len(letters) < LONG else 2


def survives(needle: str, record: Record) -> tuple[bool, bool]:
    """Whether a record holds a needle exactly, and whether exactly or nearly."""
    exact = near = False
    for text in texts(record):
        exact = exact or needle in text
        near = near or exact or _near(needle, text)
    return exact, near


@lru_cache(maxsize=1 << 15)
def _near(needle: str, text: str) -> bool:
    letters = bare(needle)
    if len(letters) < FALSE_LENGTH:
        return False
    if not any(letter.isalpha() for letter in letters):
        return _number_in(needle, text)
    return within(letters, bare(text), allowed(needle))


def _number_in(needle: str, text: str) -> bool:
    """Whether a number's digits stand in a text with any marks between them, and no digit on either side."""
    pattern = r"[^0-9A-Za-z]{0,2}".join(re.escape(letter) for letter in bare(needle))
    return re.search(rf"(?<!\d){pattern}(?!\d)", text) is not None


def within(needle: str, text: str, edits: int) -> bool:
    """Whether some substring of a text is at most so many insertions, deletions and changes away from a needle."""
    if edits == 0:
        return needle in text
    # A match with k edits holds one of k + 1 parts of the needle unchanged, which a search finds much faster.
    size = len(needle) // (edits + 1)
    parts = [needle[at * size : (at + 1) * size if at < edits else None] for at in range(edits + 1)]
    if not any(part in text for part in parts):
        return False
    column = list(range(len(needle) + 1))
    for letter in text:
        diagonal, column[0] = column[0], 0
        for at, wanted in enumerate(needle, start=1):
            changed = diagonal + (wanted != letter)
            diagonal = column[at]
            column[at] = min(changed, diagonal + 1, column[at - 1] + 1)
        if column[-1] <= edits:
            return True
    return False


def look_for(
    manifest: Manifest,
    records: Sequence[Record],
    rare: Callable[[str], Sequence[Span]] | None,
    kept: frozenset[int] = frozenset(),
) -> Leaks:
    """Look for every canary's secret, and its carrier's name and numbers, in the protected rows that stand for it.

    Args:
        manifest: what was planted where.
        records: the protected rows, in the order of the planted ones.
        rare: tells the rare names and numbers of a text, as spans of the kinds ``name`` and ``number``; without it only
            secrets are sought.
        kept: positions that were left as they were.
    """
    planted = manifest.planted()
    found = [_canary(manifest, canary, records, rare, kept) for canary in planted]
    exact = near = tried = 0
    absent = [canary.secret for canary in manifest.canaries if canary.dose == 0][:ABSENT]
    rows = {records[position] for canary in planted for position in canary.positions if position not in kept}
    for secret in absent:
        for record in rows:
            one, other = survives(secret, record)
            exact, near, tried = exact + one, near + other, tried + 1
    return Leaks(
        canaries=tuple(found),
        doses=tuple(_by_dose([each for each in found if not each.kept])),
        chance=Survival(exact=exact, near=near),
        tried=tried,
    )


def _canary(
    manifest: Manifest,
    canary: Canary,
    records: Sequence[Record],
    rare: Callable[[str], Sequence[Span]] | None,
    kept: frozenset[int],
) -> CanarySurvival:
    rows = [records[position] for position in canary.positions]
    needles = _needles(manifest, canary, rare)
    return CanarySurvival(
        id=canary.id,
        dose=canary.dose,
        secret=_survival([canary.secret], rows),
        name=_survival(needles["name"], rows) if needles["name"] else None,
        number=_survival(needles["number"], rows) if needles["number"] else None,
        kept=bool(canary.positions) and canary.positions[0] in kept,
    )


def _needles(
    manifest: Manifest, canary: Canary, rare: Callable[[str], Sequence[Span]] | None
) -> Mapping[str, list[str]]:
    """Rare names and numbers of a carrier, its secret left out."""
    found: dict[str, set[str]] = {"name": set(), "number": set()}
    if rare is None:
        return {key: [] for key in found}
    for text in texts(manifest.trained_record(canary)):
        for span in rare(text):
            said = text[span.start : span.end]
            if said in canary.secret or canary.secret in said:
                continue
            if span.kind == "name" or len(bare(said)) >= FALSE_LENGTH:
                found[span.kind].add(said)
    return {key: sorted(values) for key, values in found.items()}


def _survival(needles: Sequence[str], rows: Sequence[Record]) -> Survival:
    """Rows that hold at least one of the needles."""
    seen = [[survives(needle, row) for needle in needles] for row in rows]
    return Survival(
        exact=sum(any(exact for exact, _ in each) for each in seen),
        near=sum(any(near for _, near in each) for each in seen),
    )


def _by_dose(found: Sequence[CanarySurvival]) -> list[DoseSurvival]:
    result = []
    for dose in sorted({each.dose for each in found}):
        own = [each for each in found if each.dose == dose]

        def summed(values: Sequence[Survival | None]) -> Survival:
            there = [value for value in values if value is not None]
            return Survival(exact=sum(each.exact for each in there), near=sum(each.near for each in there))

        result.append(
            DoseSurvival(
                dose=dose,
                canaries=len(own),
                copies=dose * len(own),
                secret=summed([each.secret for each in own]),
                name=summed([each.name for each in own]),
                number=summed([each.number for each in own]),
                named=dose * sum(each.name is not None for each in own),
                numbered=dose * sum(each.number is not None for each in own),
                leaking=sum(each.secret.near > 0 for each in own),
            )
        )
    return result
