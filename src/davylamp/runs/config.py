"""YAML in, checked values out, every fault named at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar, get_origin

import yaml
from pydantic import BaseModel, ValidationError

from davylamp.errors import Fault, RecipeError

T = TypeVar("T", bound=BaseModel)

_PLAIN = {"valid tuple": "list", "valid dictionary": "mapping of keys to values", "Tuple": "List", "Dictionary": "Map"}
"""What the library calls by Python's names, as YAML has it."""


class _Strict(yaml.SafeLoader):
    """A YAML loader that refuses a key given twice, which YAML's own rules forbid and most loaders allow."""


def _mapping(loader: _Strict, node: yaml.MappingNode) -> dict[Any, Any]:
    keys = [loader.construct_object(key, deep=True) for key, _ in node.value]
    for number, (key, (place, _)) in enumerate(zip(keys, node.value, strict=True)):
        if isinstance(key, list | dict | set):
            raise yaml.MarkedYAMLError(problem="a key must be a single value", problem_mark=place.start_mark)
        if key in keys[:number]:
            raise yaml.MarkedYAMLError(problem=f"the key {key!r} stands twice", problem_mark=place.start_mark)
    return {key: loader.construct_object(value, deep=True) for key, (_, value) in zip(keys, node.value, strict=True)}


_Strict.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)


def load_yaml(path: Path) -> dict[str, Any]:
    """Read a YAML file that holds a mapping.

    Raises:
        RecipeError: the file is missing, is not UTF-8 or YAML, or holds something else.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise RecipeError(Fault(str(path), f"byte {error.start}", "UTF-8 text")) from error
    except OSError as error:
        raise RecipeError(Fault(str(path), error.strerror, "a YAML file that can be read")) from error
    return parse_yaml(text, str(path))


def parse_yaml(text: str, where: str) -> dict[str, Any]:
    """Read YAML text that holds a mapping; ``where`` names it in messages.

    Raises:
        RecipeError: the text is not YAML, or holds something else.
    """
    data = _load(text, where)
    if not isinstance(data, dict):
        shown = "(empty)" if data is None else type(data).__name__
        raise RecipeError(Fault(where, shown, "a mapping of keys to values"))
    return data


def _load(text: str, where: str) -> Any:
    try:
        return yaml.load(text, Loader=_Strict)  # noqa: S506 - a subclass of SafeLoader
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f"{where}, line {mark.line + 1}" if mark else where
        raise RecipeError(Fault(place, error.problem, "YAML")) from error
    except (yaml.YAMLError, ValueError) as error:
        # A ValueError is a value that looks like a date or a number and is none.
        raise RecipeError(Fault(where, str(error), "YAML")) from error
    except RecursionError as error:
        raise RecipeError(Fault(where, "nested too deeply", "YAML")) from error


def apply_overrides(data: Mapping[str, Any], overrides: Iterable[str]) -> dict[str, Any]:
    """Set dotted keys: ``training.epochs=3``, ``plan.doses=[1,16]``; values are YAML.

    Raises:
        RecipeError: an override is not ``key=value``, or its key passes through something that is no mapping.
    """
    faults: list[Fault] = []
    values: list[tuple[str, Any]] = []
    for override in overrides:
        key, sign, value = override.partition("=")
        if not sign or not key:
            faults.append(Fault("override", override, "key=value, such as training.epochs=3"))
            continue
        try:
            values.append((key, _load(value, key)))
        except RecipeError:
            faults.append(Fault(key, value, "a YAML value"))
    result = _set(data, values, faults)
    if faults:
        raise RecipeError(faults)
    return result


def set_keys(data: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Set dotted keys, whose values are given as they are.

    Raises:
        RecipeError: a key passes through something that is no mapping.
    """
    faults: list[Fault] = []
    result = _set(data, values.items(), faults)
    if faults:
        raise RecipeError(faults)
    return result


def _set(data: Mapping[str, Any], values: Iterable[tuple[str, Any]], faults: list[Fault]) -> dict[str, Any]:
    """A copy with dotted keys set; an outer key that holds nothing (``null``) is taken for an empty mapping."""
    result: dict[str, Any] = _copy(data)
    for key, value in values:
        *outer, last = key.split(".")
        place: Any = result
        for part in outer:
            if isinstance(place, dict) and place.get(part) is None:
                place[part] = {}
            place = place[part] if isinstance(place, dict) else None
        if not isinstance(place, dict):
            faults.append(Fault(key, value, "a key whose outer keys hold mappings"))
        else:
            place[last] = _copy(value)
    return result


def merge(data: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Lay changes over data: mappings are merged key by key, every other value replaces what was there.

    A key that ends in ``!`` replaces a whole mapping: ``arms!: {...}`` leaves nothing of the arms below.
    """
    result: dict[str, Any] = _copy(data)
    for key, value in changes.items():
        whole = isinstance(key, str) and key.endswith("!")
        name = key[:-1] if whole else key
        if isinstance(value, Mapping):
            # Where there is nothing to lay it over, too, since keys inside it may end in the mark.
            below = result.get(name)
            result[name] = merge(below if isinstance(below, Mapping) and not whole else {}, value)
        else:
            result[name] = value
    return result


def validate(model: type[T], data: Mapping[str, Any], prefix: str = "") -> T:
    """Check data against a schema.

    Raises:
        RecipeError: it does not fit; every fault is named, with ``prefix`` before each field.
    """
    try:
        return model.model_validate(data)
    except ValidationError as error:
        details = error.errors()
        raise RecipeError(_faults([*details, *_fitting_faults(model, data, details)], prefix)) from error


def _fitting_faults(model: type[BaseModel], data: Mapping[str, Any], details: Sequence[Any]) -> list[Any]:
    """Faults of values that must fit together, which are looked for only once every value is right by itself.

    So the faulty keys are left out, as if they had their defaults. Names that the user chose (slots, arms) stay,
    since others may speak of them.
    """
    mended = _copy(data)
    for detail in details:
        outer, key = None, None
        inner: Any = mended
        for part in _fixed(model, detail["loc"]):
            if not isinstance(inner, dict) or part not in inner:
                break
            outer, key, inner = inner, part, inner[part]
        if outer is not None:
            outer.pop(key, None)
    try:
        model.model_validate(mended)
    except ValidationError as error:
        known = {detail["loc"] for detail in details}
        return [each for each in error.errors() if each["type"] == "value_error" and each["loc"] not in known]
    return []


def _fixed(model: Any, place: Sequence[Any]) -> list[Any]:
    """The part of a place whose keys the schema names; empty where it leads through names that the user chose."""
    fields = getattr(model, "model_fields", {})
    if not place or place[0] not in fields:
        return list(place[:1])
    kind = fields[place[0]].annotation
    if get_origin(kind) is dict:
        return []
    return [place[0], *_fixed(kind, place[1:])] if hasattr(kind, "model_fields") else [place[0]]


def _faults(details: Sequence[Any], prefix: str) -> list[Fault]:
    """One fault a place: what a value might have been instead is said together, and its inner faults speak for it."""
    # The members of a union are named in the place by their types, which no user wrote.
    places = [tuple(part for part in detail["loc"] if "[" not in str(part)) for detail in details]
    found: dict[str, Fault] = {}
    for place, detail in zip(places, details, strict=True):
        inner = any(len(other) > len(place) and other[: len(place)] == place for other in places)
        if inner and detail["type"] != "value_error":
            continue
        fault = _fault(detail, place, prefix)
        known = found.get(fault.field)
        allowed = fault.allowed if known is None else f"{known.allowed}, or: {fault.allowed}"
        found[fault.field] = replace(fault, allowed=allowed)
    return list(found.values())


def _fault(detail: Any, place: tuple[Any, ...], prefix: str) -> Fault:
    name = ".".join(map(str, place))
    field = f"{prefix}.{name}" if prefix and name else prefix or name or "recipe"
    message = str(detail["msg"]).removeprefix("Value error, ")
    for python, plain in _PLAIN.items():
        message = message.replace(python, plain)
    if detail["type"] == "extra_forbidden":
        return Fault(field, detail["input"], "no such key", "Remove it, or mend its spelling.")
    if detail["type"] == "missing":
        return Fault(field, "(missing)", "a value", "This key has no default.")
    if detail["type"] == "value_error":
        # These messages say what is wrong, not what would be right.
        given = "(as a whole)" if isinstance(detail["input"], Mapping) else detail["input"]
        return Fault(field, given, "values that fit together", message)
    return Fault(field, detail["input"], message[:1].lower() + message[1:])


def _copy(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _copy(inner) for key, inner in value.items()}
    return value
