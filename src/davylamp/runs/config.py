"""YAML in, checked values out, every fault named at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel

from davylamp.errors import Fault, RecipeError
from davylamp.runs.credentials import discreet
from davylamp.runs.faults import Also, check, inside

T = TypeVar("T", bound=BaseModel)


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
        raise RecipeError(discreet(fault) for fault in faults)
    return result


def set_keys(data: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Set dotted keys, whose values are given as they are.

    Raises:
        RecipeError: a key passes through something that is no mapping.
    """
    faults: list[Fault] = []
    result = _set(data, values.items(), faults)
    if faults:
        raise RecipeError(discreet(fault) for fault in faults)
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


def validate(model: type[T], data: Any, prefix: str = "", also: Also | None = None) -> T:
    """Check data against a schema.

    Args:
        model: the schema.
        data: what is checked.
        prefix: stands before each field in messages.
        also: finds what the schema cannot see, such as files that are not there; see
            :func:`davylamp.runs.faults.check`.

    Raises:
        RecipeError: it does not fit; every fault is named.
    """
    made, faults = check(model, data, also)
    if made is None or faults:
        named = [inside(prefix, fault) for fault in faults]
        raise RecipeError(replace(fault, field=fault.field or "recipe") for fault in named)
    return made


def _copy(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _copy(inner) for key, inner in value.items()}
    return value
