"""What a corpus intervention is: rows in, the same number of rows out, each with what was replaced in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol, runtime_checkable

from pydantic import BaseModel, ConfigDict, Field

from davylamp.corpora.records import Message, Record
from davylamp.runs.progress import Reporter

Note = Literal["ok", "refused", "truncated", "failed"]
"""What became of a row: ``refused`` by the rewriter, ``truncated`` by its limit of tokens, or ``failed`` in another way
(empty, too long, not a record). A row that is not ``ok`` holds no text that may be trained on."""
OnFailure = Literal["stop", "surrogate", "drop"]
"""What is done with rows that are not ``ok``; never are they passed through as they were."""


@dataclass(frozen=True, slots=True)
class Row:
    """One occurrence of a record in the file that is protected.

    Attributes:
        position: its row in the file, from 0.
        record: the record, as the intervention before this one left it.
        draw: its number among the occurrences of the same planted record, from 0; always 0 where each record is
            transformed once and its copies are to be equal.
        origin: number of that record among the different ones of the file. Copies share it, so that a frequency of
            documents counts them as one. Nothing says which rows hold canaries.
    """

    position: int
    record: Record
    draw: int = 0
    origin: int = 0


PROSE = "word"
"""Kind of a word of running text that was replaced by itself: neither in a labelled field nor a name or a number."""


@dataclass(frozen=True, slots=True)
class Span:
    """A place that was looked at.

    Attributes:
        part: which text of the record, as :func:`texts` numbers them.
        start: its first character in the text before.
        end: one past its last character.
        kind: what it was taken for, such as ``PERSON`` or ``medications``.
        replacement: what stands there now; nothing where it was looked at and kept.
    """

    part: int
    start: int
    end: int
    kind: str
    replacement: str | None = None


@dataclass(frozen=True, slots=True)
class Protected:
    """What an intervention made of a row.

    Attributes:
        position: the row's.
        record: what is trained on in its place; where ``note`` is not ``ok`` it is the row as it came, for messages
            only, and is never written.
        spans: what was replaced and what was looked at and kept, where the intervention works by spans.
        note: whether it worked.
        reason: why not, without any text of the record.
        cause: the error behind it, if there was one. Its words may hold text of the record: they are for messages, and
            are written nowhere.
    """

    position: int
    record: Record
    spans: tuple[Span, ...] = ()
    note: Note = "ok"
    reason: str = ""
    cause: BaseException | None = field(default=None, compare=False)


@runtime_checkable
class Intervention(Protocol):
    """A way to protect rows.

    What it makes of a row depends on the row's record, draw and origin, on the whole file, and on its settings, and on
    nothing else: rows may be asked for in any order and again, as after a kill.

    Attributes:
        name: what a recipe calls it.
        version: of its rules, prompts or models; rows are transformed again where it changes.
    """

    name: str
    version: str

    def apply(self, rows: Sequence[Row], reporter: Reporter) -> Iterator[Protected]:
        """Transform rows, each of them once, in any order; what is yielded is kept even if a later row fails.

        Args:
            rows: those that are still to do, which may be a part of the file.
            reporter: shows progress.
        """
        ...


class InterventionSpec(BaseModel):
    """What every intervention's settings hold; each kind adds its own and narrows ``name``.

    Attributes:
        name: which intervention.
        seed: of all draws; that of the plan if none.
        once: transform each record once and give all its copies the same text; by default each copy is transformed by
            itself.
        on_failure: what is done with rows that fail: ``stop`` writes nothing and says how many there are, ``surrogate``
            takes the surrogate rewriter for them, ``drop`` takes another row's text (one that holds no canary).
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    seed: int | None = Field(None, ge=0)
    once: bool = False
    on_failure: OnFailure = "stop"


class Writer(Protocol):
    """A language model on this machine that answers chats; made by what may load models."""

    name: str
    sha256: str

    def write(self, chats: Sequence[Chat], seeds: Sequence[int], decoding: Writing) -> Iterator[tuple[int, Answer]]:
        """Answer chats, each from its own seed; yields the index of a chat and its answer, in any order."""
        ...


Chat = tuple[tuple[str, str], ...]
"""Turns of a conversation: role and text."""


@dataclass(frozen=True, slots=True)
class Writing:
    """How a language model writes.

    Attributes:
        max_tokens: tokens of an answer at most.
        temperature: of sampling; 0 takes the likeliest token.
        top_p: share of the mass that is sampled from.
        stop: texts before which an answer ends, once it has said more than an announcement.
        batch_size: chats that are answered at a time.
    """

    max_tokens: int
    temperature: float
    top_p: float
    stop: tuple[str, ...] = ()
    batch_size: int = 16


@dataclass(frozen=True, slots=True)
class Answer:
    """What a language model answered.

    Attributes:
        text: its text.
        finish: ``stop``, ``length`` (cut by the limit of tokens), ``refused``, or ``error``.
        prompt_tokens: tokens of the request, as it counts them.
        completion_tokens: tokens of the answer.
        reason: what went wrong, where it is an error.
    """

    text: str
    finish: Literal["stop", "length", "refused", "error"]
    prompt_tokens: int = 0
    completion_tokens: int = 0
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Setting:
    """What an intervention is built with, besides its own settings.

    Attributes:
        rows: the whole file, as this intervention finds it: frequencies are counted over it.
        seed: of all draws.
        cache: folder of answers that were paid for.
        local: loads a language model of this machine by name, or nothing where none can be loaded.
        agreed: told how many rows are about to be sent where, before any is; false, or nothing, sends none.
    """

    rows: Sequence[Row]
    seed: int = 0
    cache: Path | None = None
    local: Callable[[str], Writer] | None = None
    agreed: Callable[[str], bool] | None = None


def texts(record: Record) -> list[str]:
    """The texts of a record: the turns of its prompt, then its reply."""
    return [*(turn.content for turn in record.prompt), record.reply]


def with_texts(record: Record, replaced: Sequence[str]) -> Record:
    """The record with other texts in the places of :func:`texts`; the image's name stays.

    Raises:
        ValueError: another number of texts.
    """
    *turns, reply = replaced
    prompt = tuple(Message(turn.role, text) for turn, text in zip(record.prompt, turns, strict=True))
    return Record(record.shape, prompt, reply, record.image)


def apply_spans(record: Record, spans: Sequence[Span]) -> Record:
    """The record with its replaced spans replaced.

    Raises:
        ValueError: two replaced spans overlap, or one lies outside its text.
    """
    parts = texts(record)
    for part, text in enumerate(parts):
        pieces, at = [], 0
        own = [span for span in spans if span.part == part and span.replacement is not None]
        for span in sorted(own, key=lambda each: (each.start, each.end)):
            if not at <= span.start <= span.end <= len(text):
                raise ValueError(f"the span [{span.start}, {span.end}) overlaps another or lies outside its text")
            pieces += [text[at : span.start], span.replacement or ""]
            at = span.end
        parts[part] = "".join([*pieces, text[at:]])
    return with_texts(record, parts)
