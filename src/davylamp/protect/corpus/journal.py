"""What an intervention has done so far, on disk: a killed protection goes on where it was."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TextIO

from davylamp.corpora.records import Record
from davylamp.errors import StorageError
from davylamp.protect.corpus.base import Protected, Row, Span, texts, with_texts
from davylamp.runs.files import sha256_bytes

EVERY = 64
"""Rows after which what was done is written to the disk."""


def key_of(row: Row) -> str:
    """What a row's transformation depends on, hashed: its record and its draw."""
    return sha256_bytes(f"{row.draw}\n{row.record.line()}".encode())


def digest_rows(rows: Sequence[Row]) -> str:
    """A hash of a whole file of rows."""
    return sha256_bytes("\n".join(f"{row.origin} {key_of(row)}" for row in rows).encode())


class Journal:
    """Finished rows of one intervention over one file, for their owner only; failed ones are not kept."""

    def __init__(self, path: Path) -> None:
        """Read what is there; a line that a kill cut short is passed over, and written anew.

        Raises:
            StorageError: the file cannot be read or made.
        """
        self._path = path
        self._done: dict[str, dict[str, Any]] = {}
        self._stream: TextIO | None = None
        self._waiting = 0
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            whole = 0
            if path.exists():
                for line in path.read_bytes().splitlines(keepends=True):
                    try:
                        entry = json.loads(line) if line.endswith(b"\n") else None
                    except ValueError:
                        entry = None
                    if not isinstance(entry, dict) or not {"key", "texts", "spans"} <= set(entry):
                        break
                    self._done[entry["key"]] = entry
                    whole += len(line)
                os.truncate(path, whole)
        except OSError as error:
            raise StorageError(f"cannot use {path}: {error.strerror or error}") from error

    def __enter__(self) -> Self:
        def private(name: str, flags: int) -> int:
            return os.open(name, flags, 0o600)

        try:
            self._stream = open(self._path, "a", encoding="utf-8", opener=private)
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
        if entry is None:
            return None
        spans = tuple(Span(**span) for span in entry["spans"])
        return Protected(row.position, with_texts(row.record, entry["texts"]), spans)

    def keep(self, row: Row, made: Protected) -> None:
        """Write down what was made of a row.

        Raises:
            StorageError: the disk is full.
        """
        if self._stream is None or made.note != "ok":
            return
        entry: dict[str, Any] = {
            "key": key_of(row),
            "texts": texts(made.record),
            "spans": [asdict(span) for span in made.spans],
        }
        self._done[entry["key"]] = entry
        try:
            self._stream.write(json.dumps(entry, ensure_ascii=False) + "\n")
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
