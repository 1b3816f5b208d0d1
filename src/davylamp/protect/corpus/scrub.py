"""Scrubbing: personal data is found, and placeholders or made-up stand-ins are put in its place.

What is found is what a recogniser knows as personal: names, places, dates, numbers. A medication, a diagnosis or any
other rare fact is not, and stays.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationInfo, model_validator

from davylamp.corpora.records import Record
from davylamp.errors import Fault, InputError
from davylamp.protect.corpus.base import InterventionSpec, Protected, Row, Setting, Span, apply_spans, texts
from davylamp.protect.corpus.finding import Finder, Found, disjoint
from davylamp.protect.corpus.presidio import SPACY_MODEL, PresidioFinder, entity_faults, model_faults
from davylamp.protect.corpus.registry import Kind
from davylamp.protect.corpus.stand_ins import LOCALE, StandIns, locale_faults
from davylamp.protect.corpus.token_classifier import HubFinder
from davylamp.runs.progress import Reporter

RULES = "scrub 1"
"""Version of what is done with what is found."""
ENTITIES = (
    "PERSON", "LOCATION", "DATE_TIME", "PHONE_NUMBER", "EMAIL_ADDRESS", "URL", "IP_ADDRESS", "MAC_ADDRESS", "UUID",
    "CREDIT_CARD", "CRYPTO", "IBAN_CODE", "US_SSN", "US_ITIN", "US_BANK_NUMBER", "US_DRIVER_LICENSE", "US_PASSPORT",
    "MEDICAL_LICENSE",
)  # fmt: skip
"""Kinds that are looked for by default. ORGANIZATION is not among them: presidio leaves it out by default as well, and
the small English model takes dosage forms (MG Oral Tablet) for one. Nor is NRP, which names groups of people."""
CHUNK = 256
"""Documents that are handed to the finder at once."""


def _regex(pattern: str, info: ValidationInfo) -> str:
    try:
        re.compile(pattern)
    except re.error as error:
        raise InputError(
            Fault(str(info.field_name), pattern, "a regular expression", f"It is none: {error}.")
        ) from error
    if re.compile(pattern).match(""):
        raise InputError(
            Fault(str(info.field_name), pattern, "a regular expression that does not match the empty text")
        )
    return pattern


class PatternSpec(BaseModel):
    """A kind of one's own, told by its shape.

    Attributes:
        name: what it is called, in capitals, as in ``<MRN>``.
        regex: regular expression; letters count as they are written.
        score: how sure a match is.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(pattern=r"^[A-Z][A-Z0-9_]*$")
    regex: Annotated[str, AfterValidator(_regex)]
    score: float = Field(0.85, gt=0, le=1)


class ScrubSpec(InterventionSpec):
    """Settings of scrubbing.

    Attributes:
        name: ``scrub``.
        engine: ``presidio``, or ``hub``: a token-classification model of transformers.
        models: for presidio, the spaCy model of each language; each text is read in all of them.
        model: for ``hub``, a folder or the id of a model in the cache.
        labels: for ``hub``, what the model's labels stand for, where they are not the usual ones.
        entities: kinds to replace; others are left.
        threshold: score from which a find counts. Presidio scores a number that only might be one, and has no word
            beside it that says so, at 0.01 to 0.1, a telephone number at 0.4, and what a spaCy model finds at 0.85.
        patterns: kinds of one's own; presidio only.
        any_ssn: take whatever is written ``ddd-dd-dddd`` for a social security number; see
            :class:`davylamp.protect.corpus.presidio.PresidioFinder`.
        replace: ``placeholder`` writes ``<PERSON>``; ``surrogate`` writes a made-up stand-in of the same kind.
        consistent: ``corpus``: equal texts of a kind have one stand-in in the whole file and all copies.
            ``record``: in one copy of one record; another copy has others.
        locale: of the stand-ins.
        batch_size: texts that a model reads at a time.
    """

    name: Literal["scrub"] = "scrub"
    engine: Literal["presidio", "hub"] = "presidio"
    models: Mapping[str, str] = Field({"en": SPACY_MODEL}, min_length=1)
    model: str | None = None
    labels: Mapping[str, str] = Field(default_factory=dict)
    entities: tuple[str, ...] = Field(ENTITIES, min_length=1)
    threshold: float = Field(0.35, ge=0, le=1)
    patterns: tuple[PatternSpec, ...] = ()
    any_ssn: bool = True
    replace: Literal["placeholder", "surrogate"] = "placeholder"
    consistent: Literal["corpus", "record"] = "corpus"
    locale: str = LOCALE
    batch_size: int = Field(64, ge=1)

    @model_validator(mode="after")
    def _fits_engine(self) -> ScrubSpec:
        if (self.engine == "hub") != (self.model is not None):
            raise ValueError("model names the model of engine hub, and is needed there only")
        if self.engine == "hub" and self.patterns:
            raise ValueError("patterns are presidio's: leave them out with engine hub, or scrub a second time")
        return self


class Scrub:
    """Replaces personal data in rows."""

    name = "scrub"

    def __init__(self, spec: ScrubSpec, seed: int = 0, finder: Finder | None = None) -> None:
        """Load what finds and what stands in.

        Args:
            spec: the settings.
            seed: of the stand-ins, where ``spec.seed`` is none.
            finder: what finds, in place of what the settings say.

        Raises:
            MissingExtraError: the extra ``scrub`` is not installed.
            InputError: a model is not on this machine, or an entity is unknown.
        """
        self._spec = spec
        self._finder = finder or _finder(spec)
        self._stand_ins = None
        versions = [RULES, self._finder.version]
        if spec.replace == "surrogate":
            self._stand_ins = StandIns(seed if spec.seed is None else spec.seed, spec.locale)
            versions.append(self._stand_ins.version)
        self.version = ", ".join(versions)

    def apply(self, rows: Sequence[Row], reporter: Reporter) -> Iterator[Protected]:
        """Scrub rows; equal texts are read once."""
        known: dict[str, list[Found]] = {}
        with reporter.task(self.name, len(rows)) as advance:
            for at in range(0, len(rows), CHUNK):
                chunk = rows[at : at + CHUNK]
                new = dict.fromkeys(text for row in chunk for text, _ in documents(row.record) if text not in known)
                for text, found in zip(new, self._finder.find(list(new)), strict=True):
                    known[text] = disjoint(each for each in found if each.score >= self._spec.threshold)
                for row in chunk:
                    spans = tuple(self._spans(row, known))
                    yield Protected(row.position, apply_spans(row.record, spans), spans)
                    advance(1)

    def _spans(self, row: Row, known: Mapping[str, list[Found]]) -> Iterator[Span]:
        scope = f"{row.draw} {row.record.line()}" if self._spec.consistent == "record" else ""
        for text, places in documents(row.record):
            for found in known[text]:
                for part, begin, end in places:
                    start, stop = max(found.start, begin), min(found.end, end)
                    own = text[start:stop]
                    # White space and signs by themselves say nothing of anyone.
                    if start < stop and any(letter.isalnum() for letter in own):
                        yield Span(part, start - begin, stop - begin, found.kind, self._instead(found.kind, own, scope))

    def _instead(self, kind: str, text: str, scope: str) -> str:
        return f"<{kind}>" if self._stand_ins is None else self._stand_ins.of(kind, text, scope)


def documents(record: Record) -> list[tuple[str, tuple[tuple[int, int, int], ...]]]:
    """The texts of a record that are read at once, and what part of each is where: number of the text, start, end.

    Turns of a chat are read one by one. A prompt and its completion are read as one text, since the second may go on
    in the middle of the first's sentence; where no white space parts them, a line end is put between.
    """
    parts = texts(record)
    if record.shape != "prompt_completion" or len(parts) != 2:
        return [(text, ((part, 0, len(text)),)) for part, text in enumerate(parts)]
    prompt, reply = parts
    between = "" if not prompt or not reply or prompt[-1].isspace() or reply[0].isspace() else "\n"
    start = len(prompt) + len(between)
    return [(prompt + between + reply, ((0, 0, len(prompt)), (1, start, start + len(reply))))]


def _finder(spec: ScrubSpec) -> Finder:
    if spec.model is not None:
        return HubFinder(spec.model, entities=spec.entities, labels=spec.labels, batch_size=spec.batch_size)
    return PresidioFinder(
        spec.models,
        entities=spec.entities,
        patterns=[(each.name, each.regex, each.score) for each in spec.patterns],
        any_ssn=spec.any_ssn,
        batch_size=spec.batch_size,
    )


def _build(spec: ScrubSpec, setting: Setting) -> Scrub:
    return Scrub(spec, setting.seed)


def _look(spec: ScrubSpec) -> Iterator[Fault]:
    """What is wrong with models, kinds and the locale, before a model is loaded."""
    if spec.engine == "presidio":
        yield from model_faults(spec.models)
        if set(spec.entities) - set(ENTITIES):
            yield from entity_faults(spec.models, spec.entities, [each.name for each in spec.patterns])
    yield from locale_faults(spec.locale)


KIND = Kind(ScrubSpec, _build, _look)
"""Scrubbing, as the registry finds it."""
