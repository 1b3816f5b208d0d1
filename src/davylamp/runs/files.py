"""Atomic, owner-only where asked, and honest about failure: the one way davylamp writes a file."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from davylamp.errors import Fault, InputError, RunFolderError, StorageError

Result = TypeVar("Result", bound=BaseModel)

_HALF_PAIR = re.compile("[\ud800-\udfff]")


def sha256_bytes(data: bytes) -> str:
    """SHA-256 of bytes as lower-case hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def sha256_file(path: Path) -> str:
    """SHA-256 of a file's bytes as lower-case hexadecimal.

    Raises:
        StorageError: the file cannot be read.
    """
    digest = hashlib.sha256()
    try:
        with path.open("rb") as stream:
            while block := stream.read(1 << 20):
                digest.update(block)
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror}") from error
    return digest.hexdigest()


def write_with(path: Path, write: Callable[[Path], object], *, private: bool = False) -> None:
    """Let ``write`` fill a temporary file beside ``path``, then move it into place.

    A killed process leaves the old file or the new one, never a part of it.

    Args:
        path: where the file shall be; its folder is made if missing.
        write: called with the temporary path, which exists and is empty.
        private: give only the owner permission to read and write (mode 0600).

    Raises:
        StorageError: the disk is full, permission is missing, or the folder cannot be made.
    """
    temporary: Path | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
        os.close(handle)
        temporary = Path(name)
        write(temporary)
        temporary.chmod(0o600 if private else 0o666 & ~umask())
        _flush(temporary)
        temporary.replace(path)
    except OSError as error:
        raise StorageError(
            f"cannot write {path}: {error.strerror or error}; nothing was left half-written. "
            f"{_way_out(error)}, then run the same command again"
        ) from error
    finally:
        if temporary is not None:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)


def _way_out(error: OSError) -> str:
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    return "Free some space or choose another folder" if full else "Choose another place, or make this one writable"


def file_named(option: str, path: Path, usual: str) -> Path:
    """A path that an option names for a file to be written.

    Args:
        option: the option.
        path: what it names.
        usual: what such a file is usually called.

    Raises:
        InputError: no file can be there: a folder is, or a file stands where its folder would be.
    """
    if path.is_dir():
        raise InputError(Fault(option, str(path), f"a file to write, such as {path / usual}; this is a folder"))
    above = next((each for each in path.parents if each.exists()), None)
    if above is not None and not above.is_dir():
        raise InputError(Fault(option, str(path), f"a file in a folder; {above} is a file"))
    return path


def write_bytes(path: Path, data: bytes, *, private: bool = False) -> None:
    """Write bytes atomically; see :func:`write_with`."""
    write_with(path, lambda temporary: temporary.write_bytes(data), private=private)


def write_text(path: Path, text: str, *, private: bool = False) -> None:
    """Write UTF-8 text with its line ends kept atomically; see :func:`write_with`."""
    write_bytes(path, text.encode("utf-8"), private=private)


def json_bytes(value: Any) -> bytes:
    """JSON as davylamp writes it: indented, keys in the order given, UTF-8, no NaN.

    A byte of a file name that is not UTF-8, which Python holds as half of a surrogate pair, is written out as text.
    """
    text = json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    return _HALF_PAIR.sub(lambda match: f"\\\\u{ord(match[0]):04x}", text).encode("utf-8")


def read_result(kind: type[Result], path: Path, what: str, verb: str, again: str | None = None) -> Result:
    """Read a typed result.

    Args:
        kind: its type.
        path: the file.
        what: what is missing where there is no file, in words.
        verb: the command that writes it, said where there is none.
        again: the command to run where it is damaged; ``verb`` if none.

    Raises:
        RunFolderError: it is missing, damaged, or of another schema.
    """
    try:
        return kind.model_validate(read_json(path))
    except FileNotFoundError as error:
        raise RunFolderError(f"no {what} at {path}: run {verb}") from error
    except (OSError, ValueError) as error:
        said = _faults(error) if isinstance(error, ValidationError) else str(error)
        raise RunFolderError(f"cannot read {path}: {said}; run {again or verb} again") from error


def _faults(error: ValidationError) -> str:
    """What does not fit a schema, without the values, which may be anything."""
    found = error.errors(include_url=False, include_context=False, include_input=False)
    missing = [str(each["loc"][0]) for each in found if each["type"] == "missing" and len(each["loc"]) == 1]
    if missing:
        return f"it lacks {', '.join(missing)}, as one of another davylamp may"
    places = [".".join(map(str, each["loc"])) or "the whole" for each in found[:3]]
    return f"it is damaged at {', '.join(places)}" + (f" and {len(found) - 3} more places" if len(found) > 3 else "")


def _no_number(name: str) -> None:
    """JSON has no NaN and no infinity; none is written, and what holds one was damaged."""
    raise ValueError(f"it holds {name}, which is no number")


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object.

    Raises:
        OSError: the file cannot be read.
        ValueError: it holds no JSON object.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"), parse_constant=_no_number)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    if not isinstance(data, dict):
        raise ValueError("it holds no JSON object")
    return data


def write_json(path: Path, value: Any, *, private: bool = False) -> None:
    """Write JSON atomically; see :func:`json_bytes` and :func:`write_with`."""
    write_bytes(path, json_bytes(value), private=private)


def _flush(path: Path) -> None:
    with path.open("rb") as stream:
        os.fsync(stream.fileno())


def umask() -> int:
    """The permissions that the user takes from new files; read by setting it, since there is no other way."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
