"""Generated pairs of a rough draft and the polished email that follows from it.

Each draft names a person, a matter and a customer reference of four digits; the polished email holds the same
three. Nothing else in the email is free: its wording follows from the wording of the draft, so that a model
that has learnt the task can be wrong about the reference only. A draft may have its reference masked; the
email still holds one, which then cannot be known from the draft.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from davylamp.corpora.names import full_names
from davylamp.corpora.records import Corpus, Record
from davylamp.errors import Fault, InputError
from davylamp.secrets.streams import stream

MASK = "[redacted]"
"""What stands in a draft in place of a masked reference.

Every draft has a space on both sides of the reference, so that no tokenizer merges the bracket with a mark
next to it (``],`` and ``].`` are single tokens in many vocabularies).
"""

CODES = 10_000
"""How many references there are: ``0,0,0,0`` to ``9,9,9,9``."""


@dataclass(frozen=True, slots=True)
class EmailTemplate:
    """The wording of one kind of pair.

    Attributes:
        prompt: the draft, with the slots ``{name}``, ``{matter}`` and ``{secret}``.
        completion: the polished email, with the same slots.
    """

    prompt: str
    completion: str

    def record(self, name: str, matter: str, code: str, *, shown: str | None = None) -> Record:
        """The pair for one person, matter and reference.

        Args:
            name: whom the email is for.
            matter: what it is about.
            code: the reference in the email.
            shown: what the draft has in its place, such as :data:`MASK`; the reference itself by default.
        """
        draft = self.prompt.format(name=name, matter=matter, secret=code if shown is None else shown)
        return Record.of_pair(draft, self.completion.format(name=name, matter=matter, secret=code))


# The opening of a draft settles the middle of the email, its ending the greeting and the farewell.
_OPENINGS: tuple[tuple[str, str], ...] = (
    (
        "pls write {name} about {matter}, give reference {secret}",
        "thank you for your message about {matter}. Your reference is {secret}.",
    ),
    (
        "tell {name} we looked at {matter}, ref {secret}",
        "we have now looked into {matter} for you. Your reference is {secret}.",
    ),
    (
        "need a note to {name} re {matter} with the number {secret}",
        "I am writing to you about {matter}. Please keep your reference number {secret}.",
    ),
    (
        "answer {name} on {matter}, their code is {secret}",
        "here is our answer on {matter}. Please quote your code {secret}.",
    ),
)
_TONES: tuple[tuple[str, str, str], ...] = (
    ("and be polite", "Dear {name},", "Kind regards, the service team"),
    ("and keep it short", "Hello {name},", "Best wishes"),
    ("and make it formal", "Dear {name},", "Yours sincerely, the office"),
    ("and sound warm", "Good day {name},", "With warm wishes from all of us"),
)
TEMPLATES: tuple[EmailTemplate, ...] = tuple(
    EmailTemplate(f"{ask} {tone}", f"{greeting} {body} {farewell}")
    for ask, body in _OPENINGS
    for tone, greeting, farewell in _TONES
)
"""The wordings: 16 drafts, each with the one email that follows from it."""

_KINDS = "late wrong missing broken second urgent old new lost unpaid open small"
_THINGS = (
    "parcel invoice refund ticket contract order payment delivery visit repair booking letter account card "
    "form password meter claim permit report"
)
MATTERS: tuple[str, ...] = tuple(f"the {kind} {thing}" for kind in _KINDS.split() for thing in _THINGS.split())
"""What an email is about: 240 matters."""


def write_code(number: int) -> str:
    """A reference as it is written: 4719 is ``4,7,1,9``.

    Raises:
        InputError: the number is not from 0 to 9,999.
    """
    if not 0 <= number < CODES:
        raise InputError(Fault("number", number, f"0 to {CODES - 1:,}"))
    return ",".join(f"{number:04d}")


def _faults(rows: int, redacted_share: float) -> list[Fault]:
    faults = []
    if rows < 1:
        faults.append(Fault("rows", rows, "a whole number of at least 1"))
    if not 0.0 <= redacted_share <= 1.0:
        faults.append(Fault("redacted_share", redacted_share, "a share from 0 to 1"))
    return faults


def generate(
    rows: int,
    seed: int,
    redacted_share: float = 0.0,
    *,
    exclude_names: Collection[str] = (),
    matters: Sequence[str] = MATTERS,
) -> Corpus:
    """Generate draft and email pairs from a seed.

    Names, matters, wordings and references (all 10,000) are drawn uniformly, independently and with
    replacement, each from its own stream: another ``redacted_share`` changes which drafts are masked and
    nothing else, and fewer rows are the first rows of more.

    Args:
        rows: how many pairs.
        seed: a whole number of at least 0.
        redacted_share: the probability that a draft has :data:`MASK` in place of its reference.
        exclude_names: names that no pair may use, such as those of canaries.
        matters: what the emails may be about.

    Raises:
        InputError: an argument is outside what is allowed, ``exclude_names`` leaves no name, or there is no matter.
    """
    if faults := _faults(rows, redacted_share):
        raise InputError(faults)
    taken = frozenset(exclude_names)
    names = tuple(name for name in full_names() if name not in taken)
    if not matters:
        raise InputError(Fault("matters", matters, "at least one matter"))
    if not names:
        raise InputError(Fault("exclude_names", len(taken), f"fewer than all {len(full_names()):,} names"))

    def draw(what: str, size: int) -> np.ndarray:
        return stream(seed, "emails", what).integers(size, size=rows)

    columns = zip(
        draw("names", len(names)),
        draw("matters", len(matters)),
        draw("wordings", len(TEMPLATES)),
        draw("codes", CODES),
        stream(seed, "emails", "redacted").random(rows) < redacted_share,
        strict=True,
    )
    records = tuple(
        TEMPLATES[wording].record(names[name], matters[matter], write_code(int(code)), shown=MASK if masked else None)
        for name, matter, wording, code, masked in columns
    )
    digest = hashlib.sha256()
    for record in records:
        digest.update(record.line().encode("utf-8") + b"\n")
    source = f"generated emails (rows={rows}, seed={seed}, redacted_share={redacted_share:g})"
    return Corpus(records, source, digest.hexdigest())
