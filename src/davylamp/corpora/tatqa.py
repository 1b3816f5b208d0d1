"""TAT-QA as pairs: questions over a financial table and its paragraphs (Zhu et al. 2021, arXiv 2105.07624, CC BY 4.0).

The prompt holds the table, the paragraphs and the question; the reply has two lines, ``answer: ...`` and
``scale: ...``. Two forms of the data are understood: a context with all its questions, as the authors publish it, and
one question a row with its context beside it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

from davylamp.corpora.records import Record
from davylamp.corpora.rows import Gathering, RowError, checked_text, shown_names

SCALES = ("", "thousand", "million", "billion", "percent")
"""What an answer is counted in; the empty one is written :data:`NO_SCALE`."""

NO_SCALE = "none"
SPANS_JOINED = "; "
"""Between the spans of an answer that has several, in the order of the data."""

CELLS_JOINED = " | "
DIGITS = 15
"""Significant decimal digits that a float holds for sure; what it shows beyond them is noise of the format."""

SPLITS = "train, dev (or validation) and test"
_QUESTION = ("question", "answer", "scale")
_INNER = {"paragraphs": ("text", "order"), "questions": _QUESTION}
_FILES = {"validation": "dev", "test": "test_gold"}


def file_of(split: str) -> str:
    """Name of the file of a split, as the authors publish it.

    ``test`` is the file with the answers, and ``validation`` is another word for ``dev``.
    """
    return f"tatqa_dataset_{_FILES.get(split, split)}.json"


def add_questions(gathering: Gathering, place: str, row: Mapping[str, Any]) -> None:
    """Turn one row of either form into records, or note its faults.

    Args:
        gathering: where records and faults go.
        place: where the row stands, for messages.
        row: a context with ``questions``, or one ``question`` with its context.
    """
    try:
        _check_keys(row)
        context = _context(row)
        asked = _questions(row)
    except RowError as error:
        gathering.fault(place, str(error))
        return
    for name, question in asked:
        where = f"{place}, {name}" if name else place
        try:
            gathering.take(_pair(context, question))
        except RowError as error:
            gathering.fault(where, str(error))
        if gathering.full:
            break
    for key in _unread(row):
        gathering.leave_out(key)


def _check_keys(row: Mapping[str, Any]) -> None:
    missing = [name for name in ("table", "paragraphs") if name not in row]
    if ("question" in row) == ("questions" in row):
        missing.append("question (one a row) or questions (one context a row)")
    if missing:
        raise RowError(f"is no TAT-QA row: it needs {', '.join(missing)} (keys: {shown_names(row)})")


def _context(row: Mapping[str, Any]) -> str:
    held = row["table"]
    cells = held.get("table") if isinstance(held, Mapping) else held
    table = [
        CELLS_JOINED.join(
            _cell(cell, f"table[{at}][{place}]") for place, cell in enumerate(_list(line, f"table[{at}]"))
        )
        for at, line in enumerate(_list(cells, "'table'"))
    ]
    texts = list(_paragraphs(_list(row["paragraphs"], "'paragraphs'")))
    if not any(line.replace("|", "").strip() for line in table) and not any(texts):
        raise RowError("has an empty table and no text, so that there is nothing to answer from")
    return "\n".join(["Table:", *(line.rstrip() for line in table), "Text:", *texts])


def _paragraphs(held: Sequence[Any]) -> Iterator[str]:
    """The paragraphs' texts, each on one line; where they have an ``order``, in that one."""
    orders = [each.get("order") if isinstance(each, Mapping) else None for each in held]
    known = [order for order in orders if isinstance(order, int)]
    # Without a whole order the place in the list stands for it.
    ranks = known if len(known) == len(held) else list(range(len(held)))
    for at in sorted(range(len(held)), key=ranks.__getitem__):
        field, each = f"paragraphs[{at}]", held[at]
        if isinstance(each, Mapping):
            if "text" not in each:
                raise RowError(f"{field} has no 'text' (keys: {shown_names(each)})")
            field, each = f"{field}.text", each["text"]
        yield _one_line(each, field)


def _questions(row: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    """Each question with a name for messages, which is empty where the row is about one only."""
    if "questions" not in row:
        return [("", row)]
    asked = []
    for number, each in enumerate(_list(row["questions"], "'questions'"), start=1):
        if not isinstance(each, Mapping):
            raise RowError(f"questions[{number - 1}] is not an object")
        asked.append((f"question {number}", each))
    return asked


def _pair(context: str, question: Mapping[str, Any]) -> Record:
    if missing := [name for name in _QUESTION if name not in question]:
        hint = "; the test set is published with answers in a file of its own" if "answer" in missing else ""
        raise RowError(f"has no {shown_names(missing)} (keys: {shown_names(question)}){hint}")
    asked = _one_line(question["question"], "'question'")
    scale = checked_text(question["scale"], "'scale'")
    if scale not in SCALES:
        raise RowError(f"'scale' is {shown_names((scale,))}; allowed: {', '.join(map(repr, SCALES))}")
    reply = f"answer: {_answer(question['answer'])}\nscale: {scale or NO_SCALE}"
    return Record.of_pair(f"{context}\nQuestion: {asked}", reply)


def _answer(value: object) -> str:
    parts = value if isinstance(value, list) else [value]
    # The data has a few answers of several spans with an empty one among them.
    spans = [text for at, part in enumerate(parts) if (text := _span(part, at, value))]
    if not spans:
        raise RowError("'answer' is empty, so there is nothing to train on")
    return SPANS_JOINED.join(spans)


def _span(part: object, at: int, whole: object) -> str:
    field = f"answer[{at}]" if isinstance(whole, list) else "'answer'"
    return _number(part, field) if isinstance(part, int | float) else _one_line(part, field)


def _number(value: float, field: str) -> str:
    """A number as a person would write it: no exponent, no digits beyond what the format holds, no ``.0``."""
    if isinstance(value, bool) or not math.isfinite(value):
        raise RowError(f"{field} is {value!r}, which is no number")
    if isinstance(value, int):
        return str(value)
    text = f"{Decimal(f'{value:.{DIGITS}g}'):f}"
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text == "-0" else text


def _cell(value: object, field: str) -> str:
    if value is None:
        return ""
    return _number(value, field) if isinstance(value, int | float) else _one_line(value, field)


def _one_line(value: object, field: str) -> str:
    """A text with every run of white space as one space: the lines of a prompt and of a reply have a meaning."""
    return " ".join(checked_text(value, field).split())


def _list(value: object, field: str) -> list[Any]:
    if not isinstance(value, list):
        raise RowError(f"{field} is not a list")
    return value


def _unread(row: Mapping[str, Any]) -> Iterator[str]:
    """Keys of a row and of what it holds that are not trained on."""
    yield from (key for key in row if key not in (*_QUESTION, *_INNER, "table"))
    if isinstance(row["table"], Mapping):
        yield from (f"table.{key}" for key in row["table"] if key != "table")
    for name, read in _INNER.items():
        for each in row.get(name, ()):
            if isinstance(each, Mapping):
                yield from (f"{name}[].{key}" for key in each if key not in read)
