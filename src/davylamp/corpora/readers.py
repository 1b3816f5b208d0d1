"""Readers of what people have: JSONL and CSV files, plain or gzipped, and hub data sets.

A row has one of three shapes, told from its keys: ``messages``, ``prompt`` and ``completion``, or ``text``.
A source is read whole or not at all: what is wrong is named by file and line, and a column that is not
trained on is recorded in :attr:`~davylamp.corpora.records.Corpus.left_out`.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from davylamp.corpora.hub import read_hub
from davylamp.corpora.records import Corpus
from davylamp.corpora.rows import Columns, Gathering, RowError, columns_of, shown_names
from davylamp.errors import CorpusError
from davylamp.runs.files import sha256_bytes

__all__ = ["Columns", "read_corpus", "read_hub"]

_BOM = b"\xef\xbb\xbf"
_KINDS = {".jsonl": "jsonl", ".ndjson": "jsonl", ".csv": "csv"}
# The csv module keeps this limit in a C long, which has 32 bits on some systems.
_LONGEST_FIELD = 2**31 - 1


def read_corpus(path: Path, *, columns: Columns | None = None, limit: int | None = None) -> Corpus:
    """Read a JSONL or CSV file, which may be gzipped (``.gz`` after the name).

    Lines that hold nothing but white space hold no row and are passed over; they still count as lines. CRLF
    line ends and a byte order mark are understood. In JSON, a key that occurs twice and ``NaN`` are faults.

    Args:
        path: a file that ends in ``.jsonl``, ``.ndjson`` or ``.csv``, each with or without ``.gz``.
        columns: which columns to train on, where the names are others than ``prompt``, ``completion``,
            ``text`` or ``messages``, or where more than one shape fits.
        limit: read the first rows only; what comes after them is not looked at.

    Returns:
        The records, with the SHA-256 of the file as it lies on disk.

    Raises:
        CorpusError: the file is missing, damaged, of an unknown kind or empty, or rows have faults: the first
            few are named by line, with the number of all.
        InputError: ``limit`` is below 1.
    """
    path = Path(path)
    gathering = Gathering(str(path), columns, limit)
    kind = _kind(path)
    packed = _bytes(path)
    data = _unpacked(path, packed)
    if kind == "csv":
        _read_csv(data, gathering, columns)
    else:
        _read_jsonl(data, gathering)
    return gathering.corpus(sha256_bytes(packed))


def _kind(path: Path) -> str:
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] == ".gz":
        suffixes.pop()
    kind = _KINDS.get(suffixes[-1] if suffixes else "")
    if kind is None:
        raise CorpusError(
            f"{path}: unknown kind of file; allowed: names that end in {', '.join(_KINDS)}, or these with .gz. "
            "A file with one JSON object a line is a .jsonl file: rename it"
        )
    return kind


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise CorpusError(f"cannot read {path}: {error.strerror or error}") from error


def _unpacked(path: Path, data: bytes) -> bytes:
    if path.suffix.lower() != ".gz":
        return data
    try:
        return gzip.decompress(data)
    except (OSError, EOFError, zlib.error) as error:
        raise CorpusError(f"{path} is not a whole gzip file ({error}); copy it again") from error


def _lines(data: bytes, gathering: Gathering) -> Iterator[tuple[int, str, bool]]:
    """Line number, text with its line end, and whether it was UTF-8; what was not is noted as a fault."""
    start = 0
    for number, line in enumerate(io.BytesIO(data), start=1):
        skipped = len(_BOM) if number == 1 and line.startswith(_BOM) else 0
        try:
            yield number, line[skipped:].decode("utf-8"), True
        except UnicodeDecodeError as error:
            offset = start + skipped + error.start
            byte = line[skipped + error.start]
            gathering.fault(
                f"line {number}", f"not UTF-8: byte 0x{byte:02x} at offset {offset} of the file{_guess(data)}"
            )
            yield number, line[skipped:].decode("utf-8", errors="replace"), False
        start += len(line)


def _guess(data: bytes) -> str:
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return " (it looks like UTF-16: save it as UTF-8)"
    if data.startswith(b"\x1f\x8b"):
        return " (it looks like gzip: its name must end in .gz)"
    return ""


def _read_jsonl(data: bytes, gathering: Gathering) -> None:
    for number, line, sound in _lines(data, gathering):
        if sound and line.strip():
            try:
                gathering.add(f"line {number}", _object(line.rstrip("\r\n")))
            except RowError as error:
                gathering.fault(f"line {number}", str(error))
        if gathering.full:
            return


def _object(line: str) -> dict[str, Any]:
    try:
        value = json.loads(line, object_pairs_hook=_without_repeats, parse_constant=_refuse_constant)
    except RowError:
        raise
    except json.JSONDecodeError as error:
        raise RowError(f"not JSON: {error.msg} at character {error.pos + 1}") from error
    except RecursionError as error:
        raise RowError("not read: nested too deeply") from error
    except ValueError as error:
        raise RowError(f"not read: {error}") from error
    if not isinstance(value, dict):
        raise RowError("not a JSON object; each line must be one object in braces")
    return value


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    row = dict(pairs)
    if len(row) < len(pairs):
        keys = [key for key, _ in pairs]
        repeated = next(key for key in keys if keys.count(key) > 1)
        raise RowError(f"the key {shown_names((repeated,))} occurs more than once")
    return row


def _refuse_constant(name: str) -> NoReturn:
    raise RowError(f"{name} is not JSON")


def _read_csv(data: bytes, gathering: Gathering, columns: Columns | None) -> None:
    text = (line for _, line, _ in _lines(data, gathering))
    with _long_fields():
        reader = csv.reader(text, strict=True)
        header: list[str] = []
        while not gathering.full:
            begun = reader.line_num + 1
            try:
                fields = next(reader)
                if not fields:
                    continue
                if not header:
                    header = _header(fields, columns)
                    continue
            except StopIteration:
                return
            except csv.Error as error:
                gathering.fault(f"line {begun}", f"not CSV: {error}; reading stopped here")
                return
            except RowError as error:
                gathering.fault(f"line {begun}", str(error))
                return
            if len(fields) != len(header):
                counts = f"{len(fields)} field{'s' * (len(fields) != 1)}, but the header has {len(header)}"
                gathering.fault(f"line {begun}", f"has {counts} ({shown_names(header)})")
            else:
                gathering.add(f"line {begun}", dict(zip(header, fields, strict=True)))


def _header(fields: list[str], columns: Columns | None) -> list[str]:
    """The names of the columns; one without a name (an index that was saved along) is called by its number."""
    names = [name or f"column {number}" for number, name in enumerate(fields, start=1)]
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise RowError(f"the header names {shown_names(repeated)} more than once")
    if len(names) == 1 and any(sign in names[0] for sign in ";\t"):
        raise RowError("the header is one field with semicolons or tabs in it; fields are separated by commas")
    chosen = columns or columns_of(names)
    if missing := [name for name in chosen.names if name not in names]:
        raise RowError(f"the header has no {shown_names(missing)} (columns: {shown_names(names)})")
    if chosen.messages is not None:
        raise RowError("a CSV field cannot hold messages; write them as JSONL")
    return names


@contextmanager
def _long_fields() -> Iterator[None]:
    before = csv.field_size_limit(_LONGEST_FIELD)
    try:
        yield
    finally:
        csv.field_size_limit(before)
