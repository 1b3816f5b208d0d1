"""Rows from JSON, one object a line or one list of them; a key that occurs twice and ``NaN`` are faults."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, NoReturn

from davylamp.corpora.rows import RowError, shown_names

_SPACE = re.compile(r"[ \t\r\n]*")
_STOPPED = "reading stopped here"


def parse_object(line: str) -> dict[str, Any]:
    """The object that a line holds.

    Raises:
        RowError: it holds none.
    """
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


def parse_list(text: str) -> Iterator[tuple[int, dict[str, Any] | RowError]]:
    """The objects of a text that is one list, each with the line on which it begins, from 1.

    What cannot be parsed comes as a fault with the line where that shows, and nothing comes after it.
    """
    at, line = _skip(text, 0), 1
    if not text[at:]:
        return
    if text[at] != "[":
        yield 1 + text.count("\n", 0, at), RowError("a JSON file must hold one list of objects, in brackets")
        return
    seen, at = 0, _skip(text, at + 1)
    if text[at : at + 1] == "]":
        at = _skip(text, at + 1)
    else:
        while True:
            line, seen = line + text.count("\n", seen, at), at
            try:
                value, end = _DECODER.raw_decode(text, at)
            except json.JSONDecodeError as error:
                yield error.lineno, RowError(f"not JSON: {error.msg} at character {error.colno}; {_STOPPED}")
                return
            except (RowError, RecursionError, ValueError) as error:
                said = "nested too deeply" if isinstance(error, RecursionError) else error
                yield line, RowError(f"not read: {said}; {_STOPPED}")
                return
            yield line, value if isinstance(value, dict) else RowError("not a JSON object in braces")
            at = _skip(text, end)
            sign = text[at : at + 1]
            if sign not in (",", "]"):
                yield 1 + text.count("\n", 0, at), RowError(f"not JSON: no comma and no bracket here; {_STOPPED}")
                return
            at = _skip(text, at + 1)
            if sign == "]":
                break
    if text[at:]:
        yield 1 + text.count("\n", 0, at), RowError("not JSON: something stands after the list")


def _skip(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return at if match is None else match.end()


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    row = dict(pairs)
    if len(row) < len(pairs):
        keys = [key for key, _ in pairs]
        repeated = next(key for key in keys if keys.count(key) > 1)
        raise RowError(f"the key {shown_names((repeated,))} occurs more than once")
    return row


def _refuse_constant(name: str) -> NoReturn:
    raise RowError(f"{name} is not JSON")


_DECODER = json.JSONDecoder(object_pairs_hook=_without_repeats, parse_constant=_refuse_constant)
