"""What an intervention has done so far, on disk: a killed protection goes on where it was."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from davylamp.corpora.records import Record
from davylamp.corpora.rows import RowError, check_record
from davylamp.errors import ProtectionError, StorageError
from davylamp.protect.corpus.base import Protected, Row, Span, texts, with_texts
from davylamp.runs.files import sha256_bytes, write_bytes

EVERY = 64
"""Rows after which what was done is written to the disk."""


def key_of(row: Row) -> str:
    """What a row's transformation depends on, hashed: its record and its draw."""
    return sha256_bytes(f"{row.draw}\n{row.record.line()}".encode())


def digest_rows(rows: Sequence[Row]) -> str:
    """A hash of a whole file of rows."""
    return sha256_bytes("\n".join(f"{row.origin} {key_of(row)}" for row in rows).encode())


class _Span(BaseModel):
    """A span as a line holds it."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    part: int = Field(ge=0)
    start: int = Field(ge=0)
    end: int = Field(ge=0)
    kind: str
    replacement: str | None = None


class _Entry(BaseModel):
    """A line: what was made of a row, and a hash of all that, by which a line that was damaged shows."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    key: str
    texts: tuple[str, ...]
    spans: tuple[_Span, ...]
    check: str

    def made_of(self, row: Row) -> Protected | None:
        """What was made of a row; nothing where that is no such record, so that it is made anew."""
        before = texts(row.record)
        inside = all(
            each.part < len(before) and each.start <= each.end <= len(before[each.part]) for each in self.spans
        )
        if len(self.texts) != len(before) or not inside:
            return None
        record = with_texts(row.record, self.texts)
        try:
            check_record(record)
        except RowError:
            return None
        return Protected(row.position, record, tuple(Span(**each.model_dump()) for each in self.spans))


def _line(entry: dict[str, Any], step: str) -> bytes:
    return json.dumps({**entry, "check": _check(entry, step)}, ensure_ascii=False).encode("utf-8") + b"\n"


def _check(entry: dict[str, Any], step: str) -> str:
    """A hash of a line and of the step that it is of: under another step's name it is no line."""
    held = json.dumps([step, entry], ensure_ascii=False, sort_keys=True)
    return sha256_bytes(held.encode("utf-8", "backslashreplace"))[:16]


def _entry(line: bytes, step: str) -> _Entry | None:
    """What a line holds; nothing where it was cut short, is no line of this journal, or was changed."""
    if not line.endswith(b"\n"):
        return None
    try:
        entry = _Entry.model_validate_json(line)
    except ValidationError:
        return None
    return entry if entry.check == _check(entry.model_dump(mode="json", exclude={"check"}), step) else None


class Journal:
    """Finished rows of one intervention over one file, for their owner only; failed ones are not kept.

    It only saves work: a line that is not as it was written, because a kill cut it short or somebody changed it, or
    that was written of another step, is taken out, and its row is made anew.
    """

    def __init__(self, path: Path, step: str) -> None:
        """Read what is there.

        Args:
            path: the file.
            step: all that what is made of a row depends on, hashed; lines of another step are not taken.

        Raises:
            StorageError: the file cannot be read or made.
        """
        self._path = path
        self._step = step
        self._done: dict[str, _Entry] = {}
        self._stream: BinaryIO | None = None
        self._waiting = 0
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
        except OSError as error:
            raise StorageError(f"cannot use {path}: {error.strerror or error}") from error

        whole = []
        for line in lines:
            entry = _entry(line, step)
            if entry is not None:
                self._done[entry.key] = entry
                whole.append(line)
        if len(whole) < len(lines):
            write_bytes(path, b"".join(whole), private=True)

    def __enter__(self) -> Self:
        def private(name: str, flags: int) -> int:
            return os.open(name, flags, 0o600)

        try:
            self._stream = open(self._path, "ab", opener=private)
            # One that was there, as after a copy of the folder, may be open to others.
            self._path.chmod(0o600)
        except OSError as error:
            raise StorageError(f"cannot write {self._path}: {error.strerror or error}") from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._stream is not None:
            with contextlib.suppress(OSError):
                self._stream.close()

    def __len__(self) -> int:
        return len(self._done)

    def find(self, row: Row) -> Protected | None:
        """What was made of a row, if it was."""
        entry = self._done.get(key_of(row))
        return None if entry is None else entry.made_of(row)

    def keep(self, row: Row, made: Protected) -> None:
        """Write down what was made of a row.

        Raises:
            ProtectionError: it is no such row: it has other turns, or spans that lie outside of what was there.
            StorageError: the disk is full.
        """
        if self._stream is None or made.note != "ok":
            return
        entry: dict[str, Any] = {
            "key": key_of(row),
            "texts": texts(made.record),
            "spans": [asdict(span) for span in made.spans],
        }
        try:
            line = _line(entry, self._step)
            kept = _Entry.model_validate_json(line)
        except (TypeError, ValueError) as error:
            # Not what it says, which may repeat the row.
            raise ProtectionError(
                f"row {row.position}: what came back cannot be written down ({type(error).__name__})"
            ) from error
        if kept.made_of(row) is None:
            raise ProtectionError(f"row {row.position}: what came back has other turns, or spans outside its texts")
        self._done[kept.key] = kept
        try:
            self._stream.write(line)
            self._waiting += 1
            if self._waiting >= EVERY:
                self._stream.flush()
                self._waiting = 0
        except OSError as error:
            raise StorageError(
                f"cannot write {self._path}: {error.strerror or error}. Free some space, then run the same command "
                "again: what was done is not done again"
            ) from error


def rows_of(records: Sequence[Record], once: bool) -> list[Row]:
    """The rows of a file, with the number of each copy and of each different record.

    Args:
        records: the planted records.
        once: give all copies the number 0, so that they stay equal.
    """
    origins: dict[str, int] = {}
    copies: dict[int, int] = {}
    rows = []
    for position, record in enumerate(records):
        origin = origins.setdefault(record.line(), len(origins))
        draw = copies.get(origin, 0)
        copies[origin] = draw + 1
        rows.append(Row(position, record, 0 if once else draw, origin))
    return rows


def different(rows: Sequence[Row]) -> Iterator[Row]:
    """One row of each record and draw."""
    seen: set[str] = set()
    for row in rows:
        key = key_of(row)
        if key not in seen:
            seen.add(key)
            yield row
