"""Every fault of a value that a schema does not take, at its place and in plain words, in one go."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar, get_args, get_origin

from pydantic import BaseModel, ValidationError

from davylamp.errors import Fault, InputError
from davylamp.runs.credentials import discreet

T = TypeVar("T", bound=BaseModel)
Also = Callable[[Any], Iterable[Fault]]
"""What a schema cannot see, such as files that are not there: from what it took to faults."""

WHOLE = "(as a whole)"
"""Stands for a value that is many, whose parts do not fit together."""
_PLAIN = {
    "valid tuple": "list", "valid dictionary": "mapping of keys to values", "Tuple": "List", "Dictionary": "Map",
    "Input should be ": "",
}  # fmt: skip
"""What the library says in Python's words, as YAML has it."""


@dataclass(frozen=True, slots=True)
class _Found:
    """A fault and the place that it came from."""

    place: tuple[Any, ...]
    fault: Fault
    fitting: bool


def check(model: type[T], data: Any, also: Also | None = None) -> tuple[T | None, list[Fault]]:
    """Check data against a schema.

    Values that must fit together, and what the schema cannot see, are looked for even where single values are wrong:
    those are left out for it, as if they had their defaults.

    Args:
        model: the schema.
        data: what is checked.
        also: finds what the schema cannot see; see :data:`Also`.

    Returns:
        What the schema made of it, if it took it; and all faults, whose fields are dotted and begin inside of data. The
        field of data as a whole is empty. No fault repeats what may be a credential.
    """
    try:
        made = model.model_validate(data)
    except ValidationError as error:
        found = list(_found(model, error))
        rest, more = _without(model, data, found)
        places = {each.place for each in found}
        found += [each for each in more if each.fitting and each.place not in places]
        if rest is None and more and isinstance(data, Mapping):
            rest, _ = _without(model, data, found)
        faults = _merged(found)
        fields = {fault.field for fault in faults}
        if also is not None and rest is not None:
            faults += [fault for fault in also(rest) if fault.field not in fields]
        return None, [discreet(fault) for fault in faults]
    return made, [] if also is None else [discreet(fault) for fault in also(made)]


def inside(place: str, fault: Fault) -> Fault:
    """A fault of a value as a fault of what holds it, at ``place``."""
    return replace(fault, field=".".join(filter(None, (place, fault.field))))


def closest(name: object, known: Iterable[str]) -> str:
    """A question whether a known name was meant; empty where none is like it."""
    alike = difflib.get_close_matches(str(name), list(known), n=1)
    return f"Did you mean {alike[0]!r}?" if alike else ""


def _without(model: type[T], data: Any, found: Sequence[_Found]) -> tuple[T | None, list[_Found]]:
    """What a schema takes if faulty keys are left out, or what is still wrong then.

    Names that the user chose (slots, arms) stay, since others may speak of them. A key that has no default and is not
    there, or was left out, is given the value of the schema's ``STAND_INS``, if that has one.
    """
    mended = _copy(data)
    # Each place once: a key that is gone would be taken for one that is missing, and all that holds it be left out.
    for place in dict.fromkeys(tuple(_fixed(model, each.place)) for each in found):
        outer, key = None, None
        inner: Any = mended
        for part in place:
            if not isinstance(inner, dict) or part not in inner:
                break
            outer, key, inner = inner, part, inner[part]
        if outer is not None:
            outer.pop(key, None)
    if isinstance(mended, dict):
        mended = {**getattr(model, "STAND_INS", {}), **mended}
    try:
        return model.model_validate(mended), []
    except ValidationError as error:
        return None, list(_found(model, error))


def _fixed(model: Any, place: Sequence[Any]) -> list[Any]:
    """The part of a place whose keys the schema names; empty where it leads through names that the user chose.

    In mappings of mappings (changes by the names of variants) a change is named, which nobody else speaks of.
    """
    fields = getattr(model, "model_fields", {})
    if not place or place[0] not in fields:
        return list(place[:1])
    kind = fields[place[0]].annotation
    if get_origin(kind) is dict:
        return list(place[:3]) if get_origin(get_args(kind)[1]) is dict else []
    return [place[0], *_fixed(kind, place[1:])] if hasattr(kind, "model_fields") else [place[0]]


def _found(model: type[BaseModel], error: ValidationError) -> Iterator[_Found]:
    """One fault a place: what a value might have been instead is said together, and its inner faults speak for it."""
    details = error.errors()
    # The members of a union are named in the place by their types, which no user wrote.
    places = [tuple(part for part in detail["loc"] if "[" not in str(part)) for detail in details]
    for place, detail in zip(places, details, strict=True):
        inner = any(len(other) > len(place) and other[: len(place)] == place for other in places)
        fitting = detail["type"] == "value_error"
        if inner and not fitting:
            continue
        cause = detail.get("ctx", {}).get("error")
        if isinstance(cause, InputError):
            yield from (_Found(place + _parts(place, each), _placed(place, each), True) for each in cause.faults)
        else:
            yield _Found(place, _fault(model, detail, place), fitting)


def _parts(place: Sequence[Any], fault: Fault) -> tuple[str, ...]:
    """Where in a value a fault lies that its own check found; what checks a single value calls it by its name."""
    return () if not fault.field or (place and fault.field == place[-1]) else tuple(fault.field.split("."))


def _placed(place: Sequence[Any], fault: Fault) -> Fault:
    return replace(fault, field=".".join(map(str, [*place, *_parts(place, fault)])))


def _merged(found: Sequence[_Found]) -> list[Fault]:
    merged: dict[str, Fault] = {}
    for fault in (each.fault for each in found):
        known = merged.get(fault.field)
        if known is None:
            merged[fault.field] = fault
        elif known.allowed != fault.allowed:
            merged[fault.field] = replace(known, allowed=f"{known.allowed}, or: {fault.allowed}")
        elif known.fix != fault.fix:
            merged[fault.field] = replace(known, fix=f"{known.fix}; {fault.fix}")
    return list(merged.values())


def _fault(model: type[BaseModel], detail: Any, place: tuple[Any, ...]) -> Fault:
    field = ".".join(map(str, place))
    message = str(detail["msg"]).removeprefix("Value error, ")
    for python, plain in _PLAIN.items():
        message = message.replace(python, plain)
    if detail["type"] == "extra_forbidden":
        known = _keys(model, place[:-1])
        fix = closest(place[-1], known) or "Remove it, or mend its spelling."
        return Fault(field, detail["input"], "no such key", f"{fix} Known here: {', '.join(known)}." if known else fix)
    if detail["type"] == "missing":
        return Fault(field, "(missing)", "a value", "This key has no default.")
    if detail["type"] == "value_error":
        # These messages say what is wrong, not what would be right.
        if isinstance(detail["input"], Mapping):
            return Fault(field, WHOLE, "values that fit together", message)
        return Fault(field, detail["input"], "another value", message)
    return Fault(field, detail["input"], message[:1].lower() + message[1:])


def _keys(model: Any, place: Sequence[Any]) -> list[str]:
    """Keys that the schema knows at a place; none where several schemas might stand there."""
    at: list[Any] = [model]
    for part in place:
        inner = [each.model_fields[part].annotation for each in at if part in each.model_fields]
        at = [schema for kind in inner or at for schema in (_schemas(kind) if inner else [kind])]
    return sorted(at[0].model_fields) if len(at) == 1 else []


def _schemas(kind: Any) -> list[Any]:
    """The schemas in a type, such as that of a list's elements."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return [kind]
    return [schema for argument in get_args(kind) for schema in _schemas(argument)]


def _copy(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _copy(inner) for key, inner in value.items()}
    return value
