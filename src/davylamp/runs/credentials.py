"""What looks like a credential, by its name or by where it stands: it is kept in no file and repeated in no message."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from davylamp.errors import Fault

HIDDEN: Final = "(not shown)"
"""Stands in a message for a value that may be a credential."""

_COUNTED: Final = re.compile(r"(?<!access_)(?<!api_)(?<!refresh_)(tokens|token_ids?|tokeni[sz]\w*)", re.IGNORECASE)
"""Tokens of a text, which servers and trainings count (``max_tokens``, ``stop_token_ids``)."""
_NAME: Final = re.compile(r"key(?!word)|token|secret|auth(?!or(?!i))|password|passwd|credential|bearer", re.IGNORECASE)
_SET: Final = re.compile(r"\W*([\w.-]+)['\"\s]*[=:]")
_HELD: Final = re.compile(r"[?@#]")
"""What begins the parts of a URL that may hold a key or a password."""
_KEY: Final = re.compile(r"(?<![A-Za-z0-9])(?:sk-|sk_|hf_|gsk_|xai-|AIza|Bearer )\w")
"""How keys of well-known servers begin."""


def is_named(name: object) -> bool:
    """Whether a name is that of a credential, such as ``api_key`` or ``Authorization``."""
    return isinstance(name, str) and _NAME.search(_COUNTED.sub("", name)) is not None


def is_key(value: object) -> bool:
    """Whether a text holds what begins as keys of well-known servers do."""
    return isinstance(value, str) and _KEY.search(value) is not None


def credentials(value: object, place: tuple[str, ...] = ()) -> Iterator[str]:
    """Dotted places inside a value, keys of mappings and numbers in lists, that are named as credentials are."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            at = (*place, str(key))
            if is_named(key):
                yield ".".join(at)
            else:
                yield from credentials(inner, at)
    elif isinstance(value, list | tuple):
        for number, inner in enumerate(value):
            yield from credentials(inner, (*place, str(number)))


def discreet(fault: Fault) -> Fault:
    """A fault that repeats no credential: not under such a name, not inside of a value, and not of a server's URL."""
    names = [part for part in fault.field.split(".") if not part.isdigit()]
    named = bool(names) and is_named(names[-1])
    url = "server" in names[-1:] and isinstance(fault.value, str) and _HELD.search(fault.value) is not None
    # Where nothing was given there is nothing to hide, and that it is missing is what must be said.
    shown = fault.value is None or fault.value == "(missing)"
    value = HIDDEN if (named or url) and not shown else masked(fault.value)
    return fault if value is fault.value else replace(fault, value=value)


def masked(value: Any) -> Any:
    """A value without what may be a credential in it; itself where there is none."""
    if isinstance(value, Mapping):
        inner = {key: HIDDEN if is_named(key) else masked(each) for key, each in value.items()}
        server = inner.get("server")
        if isinstance(server, str) and _HELD.search(server):
            inner["server"] = HIDDEN
        return value if inner == value else inner
    if isinstance(value, list | tuple):
        items = [masked(each) for each in value]
        return value if all(new is old for new, old in zip(items, value, strict=True)) else items
    if isinstance(value, str):
        return HIDDEN if is_key(value) or _sets(value) else value
    return value


def _sets(text: str) -> bool:
    """Whether a text is a setting that holds a credential (``body={api_key: ...}``), or a URL with a query."""
    if _SET.match(text) and any(is_named(each[1].rpartition(".")[2]) for each in _SET.finditer(text)):
        return True
    return "://" in text and "?" in text
