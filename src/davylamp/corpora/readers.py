"""Readers of the files that people have: JSONL and CSV, plain or gzipped.

A row has one of three shapes, told from its keys: ``messages``, ``prompt`` and ``completion``, or ``text``.
A source is read whole or not at all: what is wrong is named by file and line, and a column that is not
trained on is recorded in :attr:`~davylamp.corpora.records.Corpus.left_out`.
"""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from davylamp.corpora.clinical import add_clinical
from davylamp.corpora.objects import parse_list, parse_object
from davylamp.corpora.records import Corpus
from davylamp.corpora.rows import Columns, Format, Gathering, RowError, columns_of, shown_names
from davylamp.corpora.tatqa import add_questions
from davylamp.errors import CorpusError, Fault, InputError
from davylamp.runs.files import sha256_bytes

__all__ = ["Columns", "read_corpus", "read_objects"]

_BOM = b"\xef\xbb\xbf"
_KINDS: dict[Format, dict[str, str]] = {
    "rows": {".jsonl": "jsonl", ".ndjson": "jsonl", ".csv": "csv"},
    "tatqa": {".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "json"},
    "clinical": {".jsonl": "jsonl", ".ndjson": "jsonl"},
}
# The csv module keeps this limit in a C long, which has 32 bits on some systems.
_LONGEST_FIELD = 2**31 - 1

_Add = Callable[[str, Mapping[str, Any]], None]
"""Takes a row and the place where it stands."""


def read_corpus(
    path: Path,
    *,
    columns: Columns | None = None,
    limit: int | None = None,
    format: Format = "rows",
    patient: str | None = None,
) -> Corpus:
    """Read a JSONL or CSV file, which may be gzipped (``.gz`` after the name).

    Lines that hold nothing but white space hold no row and are passed over; they still count as lines. CRLF
    line ends and a byte order mark are understood. In JSON, a key that occurs twice and ``NaN`` are faults.

    Args:
        path: a file that ends in ``.jsonl``, ``.ndjson`` or ``.csv``, each with or without ``.gz``; for TAT-QA one of
            JSON, a list of contexts, or of JSON lines.
        columns: which columns to train on, where the names are others than ``prompt``, ``completion``,
            ``text`` or ``messages``, or where more than one shape fits.
        limit: read the first rows (of TAT-QA, questions) only; what comes after them is not looked at.
        format: how the file is written.
        patient: column that says whom a row is about, in the format of rows; clinical records have their own.

    Returns:
        The records, with the SHA-256 of the file as it lies on disk.

    Raises:
        CorpusError: the file is missing, damaged, of an unknown kind or empty, or rows have faults: the first
            few are named by line, with the number of all.
        InputError: ``limit`` is below 1, or columns (or a patient's) are named in a format that has its own.
    """
    path = Path(path)
    if patient is not None and format != "rows":
        raise InputError(Fault("patient", patient, f"none, since format {format} has its own"))
    gathering = Gathering(str(path), columns, limit, patient)
    add = adder(gathering, columns, format)
    kind = _kind(path, format)
    packed = _bytes(path)
    data = _unpacked(path, packed)
    if kind == "csv":
        _read_csv(data, gathering, columns)
    elif kind == "json":
        _read_list(data, gathering, add)
    else:
        _read_jsonl(data, gathering, add)
    return gathering.corpus(sha256_bytes(packed))


def read_objects(path: Path) -> list[tuple[int, dict[str, Any]]]:
    """The objects of a JSONL file with all they hold, each with its line, from 1; for rows that are written again.

    Raises:
        CorpusError: the file is missing, damaged, of another kind or empty.
    """
    if _kind(path, "rows") != "jsonl":
        raise CorpusError(f"{path}: rows are kept with all their fields from JSONL files only")
    gathering = Gathering(str(path), None, None)
    found: list[tuple[int, dict[str, Any]]] = []
    _read_jsonl(
        _unpacked(path, _bytes(path)),
        gathering,
        lambda place, row: found.append((int(place.removeprefix("line ")), dict(row))),
    )
    gathering.raise_faults()
    if not found:
        raise CorpusError(f"{path} is empty: it holds no record")
    return found


def adder(gathering: Gathering, columns: Columns | None, format: Format) -> _Add:
    """What turns a row of a format into records.

    Raises:
        InputError: columns are named, and the format has its own.
    """
    if format == "rows":
        return gathering.add
    if columns is not None:
        raise InputError(Fault("columns", columns, f"none, since format {format} has its own"))
    return partial(add_clinical if format == "clinical" else add_questions, gathering)


def _kind(path: Path, format: Format) -> str:
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] == ".gz":
        suffixes.pop()
    kind = _KINDS[format].get(suffixes[-1] if suffixes else "")
    if kind is None:
        raise CorpusError(
            f"{path}: unknown kind of file; allowed: names that end in {', '.join(_KINDS[format])}, or these with .gz. "
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


def _read_jsonl(data: bytes, gathering: Gathering, add: _Add) -> None:
    for number, line, sound in _lines(data, gathering):
        if sound and line.strip():
            try:
                add(f"line {number}", parse_object(line.rstrip("\r\n")))
            except RowError as error:
                gathering.fault(f"line {number}", str(error))
        if gathering.full:
            return


def _read_list(data: bytes, gathering: Gathering, add: _Add) -> None:
    parts = list(_lines(data, gathering))
    if not all(sound for _, _, sound in parts):
        return
    for number, found in parse_list("".join(line for _, line, _ in parts)):
        if isinstance(found, RowError):
            gathering.fault(f"line {number}", str(found))
        else:
            add(f"line {number}", found)
        if gathering.full:
            return


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
