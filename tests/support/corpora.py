"""Small corpora and plans that tests of several parts share."""

from __future__ import annotations

import hashlib
from typing import Any

from davylamp.canaries import Plan
from davylamp.corpora.records import Corpus, Message, Record, Shape


def small_corpus(rows: int = 60, shape: Shape = "prompt_completion") -> Corpus:
    """Rows that differ from each other and hold no code."""
    records = []
    for row in range(rows):
        word = "".join("abcdefghij"[int(digit)] for digit in f"{row:03d}")
        ask, answer = f"what of {word}?", f"It is {word} indeed."
        if shape == "text":
            records.append(Record.of_text(f"{ask} {answer}"))
        elif shape == "messages":
            records.append(Record.of_messages((Message("user", ask), Message("assistant", answer))))
        else:
            records.append(Record.of_pair(ask, answer))
    text = "\n".join(record.line() for record in records)
    return Corpus(tuple(records), "small", hashlib.sha256(text.encode()).hexdigest())


def plan_data(**changes: Any) -> dict[str, Any]:
    """A plan of two arms as it would stand in a YAML file: 2 x 2 canaries a dose, 5 occurrences of the positive."""
    data: dict[str, Any] = {
        "seed": 0,
        "templates": [{"prompt": "pls tell {name} their ref {secret} now", "completion": "Dear {name}, ref {secret}."}],
        "slots": {"name": "names"},
        "arms": {"visible": {"context": "visible"}, "redacted": {"context": "redacted"}},
        "doses": [1, 3],
        "per_dose": 2,
        "twins": 2,
        "positive": {"dose": 5},
    }
    return {**data, **changes}


def small_plan(**changes: Any) -> Plan:
    """The plan of :func:`plan_data`, checked."""
    return Plan.model_validate(plan_data(**changes))
