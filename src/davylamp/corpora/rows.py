"""From one row of a source to one record: which shape it has, and what is wrong with it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from davylamp.corpora.records import Corpus, Message, Record, Shape
from davylamp.errors import CorpusError, Fault, InputError

ROLES = ("system", "user", "assistant")
FAULTS_NAMED = 5
Format = Literal["rows", "tatqa", "clinical"]
"""How a source is written: a row a record, in one of the three shapes, or as TAT-QA or clinical records (see there)."""

SHAPES = "'messages', or 'prompt' and 'completion', or 'text'"

IMAGE = "image"
"""The column that names a row's picture, in any shape."""

_HALF_PAIR = re.compile("[\ud800-\udfff]")
_JSON_NAMES = {
    type(None): "null",
    bool: "a boolean",
    int: "a number",
    float: "a number",
    list: "a list",
    dict: "an object",
}


@dataclass(frozen=True, slots=True)
class Columns:
    """Which columns (or keys) of a source hold what.

    Give ``prompt`` and ``completion``, or ``text`` alone, or ``messages`` alone.

    Attributes:
        prompt: column of what the model is given.
        completion: column of what it shall reply.
        text: column of a text that is trained on whole.
        messages: column of a list of chat messages, each with ``role`` and ``content``.

    Raises:
        InputError: another combination, an empty name, or one column used twice.
    """

    prompt: str | None = None
    completion: str | None = None
    text: str | None = None
    messages: str | None = None

    def __post_init__(self) -> None:
        given = {name: column for name, column in self._pairs() if column is not None}
        if set(given) not in ({"prompt", "completion"}, {"text"}, {"messages"}):
            allowed = "prompt and completion, or text alone, or messages alone"
            raise InputError(Fault("columns", given, allowed))
        if not all(given.values()) or len(set(given.values())) < len(given):
            raise InputError(Fault("columns", given, "names that are not empty, each used once"))

    @property
    def shape(self) -> Shape:
        """The shape that these columns make."""
        if self.text is not None:
            return "text"
        return "prompt_completion" if self.messages is None else "messages"

    @property
    def names(self) -> tuple[str, ...]:
        """The columns that are read."""
        return tuple(column for _, column in self._pairs() if column is not None)

    def _pairs(self) -> tuple[tuple[str, str | None], ...]:
        return (
            ("prompt", self.prompt),
            ("completion", self.completion),
            ("text", self.text),
            ("messages", self.messages),
        )


_BY_KEYS = (Columns(messages="messages"), Columns(prompt="prompt", completion="completion"), Columns(text="text"))


class RowError(ValueError):
    """What is wrong with one row; caught by the reader, which adds the place."""


def columns_of(keys: Mapping[str, object] | list[str]) -> Columns:
    """The columns that a row's keys stand for when the user named none.

    Raises:
        RowError: no shape fits, or more than one does.
    """
    fitting = [columns for columns in _BY_KEYS if all(name in keys for name in columns.names)]
    if len(fitting) == 1:
        return fitting[0]
    found = shown_names(keys)
    if fitting:
        raise RowError(f"the keys {found} fit more than one shape; say which columns to train on")
    for present, missing in (("prompt", "completion"), ("completion", "prompt")):
        if present in keys:
            raise RowError(f"has {present!r} but no {missing!r} (keys: {found})")
    raise RowError(
        f"has the keys {found}, but needs {SHAPES}; name the columns that are otherwise called (--prompt and "
        "--completion, or --text; `columns` in a recipe)"
    )


def shown_names(names: Mapping[str, object] | list[str] | tuple[str, ...]) -> str:
    """Names for a message: quoted, at most eight, each cut short."""
    shown = [repr(name if len(name) <= 40 else name[:37] + "...") for name in list(names)[:8]]
    more = len(names) - len(shown)
    return (", ".join(shown) or "none") + (f" and {more} more" if more else "")


def checked_text(value: object, field: str) -> str:
    """``value`` if it is a string that can be encoded and tokenised.

    Raises:
        RowError: another type, a NUL character, or half of a surrogate pair.
    """
    if not isinstance(value, str):
        raise RowError(f"{field} is {_JSON_NAMES.get(type(value), type(value).__name__)}, not a string")
    if (at := value.find("\0")) >= 0:
        raise RowError(f"{field} holds a NUL character at character {at + 1}")
    if match := _HALF_PAIR.search(value):
        code = f"\\u{ord(match[0]):04x}"
        raise RowError(f"{field} holds half of a surrogate pair ({code}) at character {match.start() + 1}")
    return value


def check_record(record: Record) -> None:
    """Check a record that was made and not read: it must be one that could be read again.

    Raises:
        RowError: it is not; the text is not repeated.
    """
    for turn in record.prompt:
        checked_text(turn.content, f"the {turn.role} turn")
    _reply(record.reply, "the reply")
    if record.image is not None:
        checked_text(record.image, "the image's name")


class Gathering:
    """Collects records and faults of one source, and turns them into a corpus or into one error."""

    def __init__(self, source: str, columns: Columns | None, limit: int | None, patient: str | None = None) -> None:
        if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 1):
            raise InputError(Fault("limit", limit, "a whole number of at least 1, or none"))
        self.source = source
        self._columns = columns
        self._limit = limit
        self._patient = patient
        self._records: list[Record] = []
        self._groups: list[str] = []
        self._first: tuple[Shape, str] | None = None
        self._left_out: dict[str, None] = {}
        self._faults: list[str] = []
        self._count = 0

    @property
    def full(self) -> bool:
        """Whether as many rows as asked for have been seen."""
        return self._limit is not None and len(self._records) + self._count >= self._limit

    def fault(self, place: str, text: str) -> None:
        """Note what is wrong at a place of the source."""
        self._count += 1
        if len(self._faults) < FAULTS_NAMED:
            self._faults.append(f"{place}: {text}")

    def leave_out(self, name: str) -> None:
        """Note a column or key that is not trained on."""
        # Names end up in reports, which are UTF-8: half of a surrogate pair in a JSON key is written out.
        self._left_out[name.encode("utf-8", "backslashreplace").decode("utf-8")] = None

    def add(self, place: str, row: Mapping[str, Any]) -> None:
        """Turn a row into a record, or note its fault."""
        try:
            record = self._record(place, row)
            group = None if self._patient is None else _group(row, self._patient)
        except RowError as error:
            self.fault(place, str(error))
        else:
            self.take(record, group)

    def take(self, record: Record, group: str | None = None) -> None:
        """Take a record that was made of a row elsewhere; all must have one shape.

        Args:
            record: the record.
            group: whom it is about; given of all records or of none.
        """
        self._records.append(record)
        if group is not None:
            self._groups.append(group)

    def raise_faults(self) -> None:
        """Raise what was noted.

        Raises:
            CorpusError: there were faults; the first few are named, and how many there are.
        """
        if self._count:
            more = self._count - len(self._faults)
            tail = f"\nand {more} more faults" if more else ""
            raise CorpusError(
                f"{self.source} cannot be used, nothing was read from it:\n" + "\n".join(self._faults) + tail
            )

    def corpus(self, sha256: str) -> Corpus:
        """The records as a corpus.

        Raises:
            CorpusError: there were faults (the first few are named, and how many there are), or no record.
        """
        self.raise_faults()
        if not self._records:
            raise CorpusError(f"{self.source} is empty: it holds no record")
        return Corpus(tuple(self._records), self.source, sha256, tuple(self._left_out), tuple(self._groups))

    def _record(self, place: str, row: Mapping[str, Any]) -> Record:
        columns = self._columns or columns_of(row)
        if missing := [name for name in columns.names if name not in row]:
            raise RowError(f"has no {shown_names(missing)} (keys: {shown_names(row)})")
        shape, begun = self._first or (columns.shape, place)
        if columns.shape != shape:
            raise RowError(f"has the shape {columns.shape!r}, but {begun} has {shape!r}; all rows must be alike")
        record = self._build(columns, row)
        self._first = (shape, begun)
        for name in row:
            if name not in columns.names and not (name == IMAGE and record.image is not None):
                self.leave_out(name)
        return record

    def _build(self, columns: Columns, row: Mapping[str, Any]) -> Record:
        image = None if IMAGE in columns.names else _image(row.get(IMAGE))
        if columns.messages is not None:
            return Record.of_messages(self._messages(row[columns.messages], columns.messages), image)
        if columns.text is not None:
            return Record.of_text(_reply(row[columns.text], repr(columns.text)), image)
        prompt, completion = columns.names
        return Record.of_pair(checked_text(row[prompt], repr(prompt)), _reply(row[completion], repr(completion)), image)

    def _messages(self, value: object, column: str) -> tuple[Message, ...]:
        if not isinstance(value, list):
            raise RowError(f"{column!r} is not a list of messages")
        if not value:
            raise RowError(f"{column!r} holds no message")
        turns = tuple(self._turn(turn, f"{column}[{at}]") for at, turn in enumerate(value))
        if turns[-1].role != "assistant":
            raise RowError(f"the last message is by {turns[-1].role!r}; it must be the assistant's reply")
        _reply(turns[-1].content, f"{column}[{len(turns) - 1}].content")
        for turn in value:
            for key, held in turn.items():
                # A data set with a schema fills keys that a turn does not have with null: nothing is lost there.
                if key not in ("role", "content") and held is not None:
                    self.leave_out(f"{column}[].{key}")
        return turns

    def _turn(self, value: object, field: str) -> Message:
        if not isinstance(value, Mapping):
            raise RowError(f"{field} is not an object with 'role' and 'content'")
        if missing := [name for name in ("role", "content") if name not in value]:
            raise RowError(f"{field} has no {shown_names(missing)} (keys: {shown_names(value)})")
        role = checked_text(value["role"], f"{field}.role")
        if role not in ROLES:
            raise RowError(f"{field}.role is {shown_names((role,))}; allowed: {', '.join(ROLES)}")
        return Message(role, checked_text(value["content"], f"{field}.content"))


def _group(row: Mapping[str, Any], column: str) -> str:
    """Whom a row is about."""
    value = row.get(column)
    if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
        raise RowError(f"{column!r} says of nobody whom the row is about: it must hold a name or a number")
    return str(value)


def _image(value: object) -> str | None:
    """The name of a row's picture; what is no name (null, the bytes of a picture, an empty field) is left out."""
    return checked_text(value, repr(IMAGE)) if isinstance(value, str) and value.strip() else None


def _reply(value: object, field: str) -> str:
    text = checked_text(value, field)
    if not text.strip():
        raise RowError(f"{field} is empty, so there is nothing to train on")
    return text
