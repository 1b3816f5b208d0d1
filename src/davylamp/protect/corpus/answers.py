"""Answers that were paid for, kept on disk by what they answer: nothing is asked, and paid, twice."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from pydantic import TypeAdapter, ValidationError

from davylamp.errors import StorageError
from davylamp.protect.corpus.base import Answer
from davylamp.runs.files import sha256_bytes

FILE = "rewrites.sqlite"
PATIENCE = 60.0
"""Seconds to wait for another process that writes."""
_ANSWER = TypeAdapter(Answer)


def key_of(request: Mapping[str, Any]) -> str:
    """A hash of everything that an answer depends on."""
    return sha256_bytes(json.dumps(request, sort_keys=True, ensure_ascii=False).encode("utf-8", "backslashreplace"))


class Answers:
    """A file of answers by the hash of their request, for its owner only.

    Requests are not in it, but answers are texts made of records: remove the file to forget them.
    """

    def __init__(self, folder: Path | None) -> None:
        """Open the file of a folder, or keep answers in memory where there is none.

        Raises:
            StorageError: the file cannot be used.
        """
        self._path = None if folder is None else folder / FILE
        try:
            if self._path is not None:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                self._path.touch(mode=0o600)
            self._file = sqlite3.connect(":memory:" if self._path is None else self._path, timeout=PATIENCE)
            self._file.execute("PRAGMA journal_mode=WAL")
            self._file.execute("CREATE TABLE IF NOT EXISTS answers (key TEXT PRIMARY KEY, answer TEXT NOT NULL)")
            self._file.commit()
        except (OSError, sqlite3.Error) as error:
            raise StorageError(f"cannot use the file of answers {self._path}: {error}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def find(self, key: str) -> Answer | None:
        """The answer to a request, if it was given.

        Raises:
            StorageError: the file is damaged.
        """
        try:
            row = self._file.execute("SELECT answer FROM answers WHERE key = ?", (key,)).fetchone()
            return None if row is None else _ANSWER.validate_json(row[0], strict=True)
        except ValidationError as error:
            raise StorageError(
                f"the file of answers {self._path} is damaged (an answer in it is none): remove it"
            ) from error
        except sqlite3.Error as error:
            raise StorageError(f"the file of answers {self._path} is damaged ({error}): remove it") from error

    def keep(self, key: str, answer: Answer) -> None:
        """Write an answer down at once.

        Raises:
            StorageError: the disk is full.
        """
        try:
            with self._file:
                held = json.dumps(asdict(answer), ensure_ascii=False)
                self._file.execute("INSERT OR REPLACE INTO answers VALUES (?, ?)", (key, held))
        except sqlite3.Error as error:
            raise StorageError(f"cannot write the file of answers {self._path}: {error}") from error
