"""Is an answer a record: what a rewriter said is held against the form that the file's records share."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from davylamp.corpora.records import Record, Shape
from davylamp.protect.corpus.base import Answer, Note, Row, texts, with_texts
from davylamp.protect.corpus.segments import pieces

SHARED = 0.9
"""Share of the records that hold a label for it to belong to the form."""
_TURN = re.compile(r"^\[(system|user|assistant)\][ \t]*\n?", re.MULTILINE)
_FENCE = re.compile(r"\A```\w*\n(.*?)\n?```\Z", re.DOTALL)
_THOUGHT = re.compile(r"\A\s*<think>.*?</think>\s*", re.DOTALL)
_PREAMBLE = re.compile(
    r"\A(?:(?:sure|certainly|of course|here(?:'s| is| are))\b[^\n]{0,120}|"
    r"(?:(?:the|this|my|your|a|an|rewritten|example|new|complete) ){0,3}(?:record|summary)(?: is| reads)?):[ \t]*\n+",
    re.IGNORECASE,
)
_REFUSAL = re.compile(
    r"\A\W*(?:i['’]?m (?:very |really |truly )?sorry|(?:my )?apolog|sorry,|i (?:can(?:not|['’]t)|am (?:not able|"
    r"unable)|won['’]t|must decline)|i['’]m (?:not able|unable)|as an ai\b|unfortunately,? i )",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Form:
    """What the records of a file share.

    Attributes:
        labels: labels that nearly all records hold, in lower case.
        needed: share of them that an answer must hold.
        longest: characters of an answer at most, as a multiple of the record's.
    """

    labels: frozenset[str]
    needed: float
    longest: float


def form_of(rows: Sequence[Row], needed: float, longest: float) -> Form:
    """The form of a file's records; without labels only emptiness, length and turns are checked."""
    seen: Counter[str] = Counter()
    first = {row.origin: row.record for row in rows}
    for record in first.values():
        seen.update(labels_of(record))
    return Form(frozenset(label for label, held in seen.items() if held >= SHARED * len(first)), needed, longest)


def labels_of(record: Record) -> set[str]:
    """Labels of a record's texts, in lower case."""
    return {piece.label for text in texts(record) for piece in pieces(text) if piece.label}


def written(record: Record) -> str:
    """A record as it is shown to a model: a text as it is, a conversation with its roles before the turns."""
    if record.shape == "text":
        return record.reply
    roles = [*(turn.role for turn in record.prompt), "assistant"]
    return "\n".join(f"[{role}]\n{text}" for role, text in zip(roles, texts(record), strict=True))


def refusal(answer: Answer) -> tuple[Note, str]:
    """Whether an answer is one at all: ``ok``, or what is wrong with it."""
    if answer.finish == "error":
        return "failed", answer.reason
    if answer.finish == "refused" or _REFUSAL.match(cleaned(answer.text)):
        return "refused", "the model refused"
    if answer.finish == "length":
        return "truncated", "cut by max_tokens"
    if not cleaned(answer.text):
        return "failed", "an empty answer"
    return "ok", ""


def judged(answer: Answer, record: Record, form: Form) -> tuple[Note, str, Record]:
    """An answer as a record in the place of another.

    Returns:
        ``ok`` and the record, or what is wrong with it and the record as it was.
    """
    text = _first(cleaned(answer.text), record)
    if answer.finish == "length" and text != cleaned(answer.text):
        # What was cut is what came after the record.
        answer = replace(answer, finish="stop")
    note, reason = refusal(answer)
    if note != "ok":
        return note, reason, record
    if len(text) > form.longest * max(len(written(record)), 200):
        return "failed", "too long to be a record", record
    made = _read(text, record, record.shape)
    if made is None:
        return "failed", "not a record: its turns are missing", record
    held = len(form.labels & labels_of(made))
    if held < form.needed * len(form.labels):
        return "failed", "not a record: labels of the form are missing", record
    return "ok", "", made


def cleaned(text: str) -> str:
    """An answer without what models put around a record: thoughts, a fence, a line that announces it."""
    text = _THOUGHT.sub("", text).strip()
    text = _PREAMBLE.sub("", text).strip()
    fence = _FENCE.match(text)
    return fence[1].strip() if fence else text


def _first(text: str, record: Record) -> str:
    """An answer up to its first empty line, where the record has none: a model that goes on writes something else."""
    whole = record.shape != "text" or "\n\n" in record.reply
    return text if whole else text.split("\n\n", maxsplit=1)[0].strip()


def _read(text: str, record: Record, shape: Shape) -> Record | None:
    if shape == "text":
        return Record.of_text(text, record.image)
    parts = _TURN.split(text)
    roles = [*(turn.role for turn in record.prompt), "assistant"]
    if parts[0].strip() or parts[1::2] != roles:
        return None
    return with_texts(record, [part.strip() for part in parts[2::2]])
