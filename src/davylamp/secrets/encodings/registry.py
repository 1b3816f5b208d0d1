"""Which encodings there are: those built in, those registered in this process, those of installed packages."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Final, TypeVar

from davylamp.errors import Fault, InputError
from davylamp.secrets.encodings.base import Encoding
from davylamp.secrets.encodings.symbols import BlockReversal, ChainedSubstitution, CyclicShift, Substitution
from davylamp.secrets.encodings.texts import Ascii, Binary, ChainedFruit

Factory = Callable[..., Encoding]
"""Makes an encoding of whole numbers, given by position; none for an encoding without parameters."""

F = TypeVar("F", bound=Factory)

GROUP: Final = "davylamp.encodings"
"""The entry-point group in which an installed package names its factories."""

_BUILT_IN: Final[dict[str, Factory]] = {
    "ascii": Ascii,
    "binary": Binary,
    "block_reversal": BlockReversal,
    "chained_fruit": ChainedFruit,
    "chained_substitution": ChainedSubstitution,
    "cyclic_shift": CyclicShift,
    "substitution": Substitution,
}
_registered: dict[str, Factory] = {}


def register(name: str) -> Callable[[F], F]:
    """Register a factory of encodings under a name, for this process.

    Args:
        name: what a plan calls it: letters, digits and ``_`` only, no digit first.

    Returns:
        A decorator that returns the factory unchanged. The factory takes whole numbers by position and returns
        an encoding whose ``name`` is the one it is called by, such as ``rotate(3)``.

    Raises:
        InputError: the name is not an identifier or is taken, or the factory cannot be called so.
    """
    _check_name("name", name)
    if name in _BUILT_IN or name in _registered:
        taken = sorted({*_BUILT_IN, *_registered})
        raise InputError(Fault("name", name, f"a name that is not taken; taken are {', '.join(taken)}"))

    def keep(factory: F) -> F:
        _check_factory("factory", factory)
        _registered[name] = factory
        return factory

    return keep


def unregister(name: str) -> None:
    """Forget a factory that was registered in this process.

    Raises:
        InputError: none was registered under the name; built-in and installed ones cannot be removed.
    """
    if name not in _registered:
        known = ", ".join(sorted(_registered)) or "none at present"
        raise InputError(Fault("name", name, f"a name registered in this process ({known})"))
    del _registered[name]


def names() -> tuple[str, ...]:
    """The names of all known encodings, sorted; loads no installed package."""
    return tuple(sorted({*_BUILT_IN, *_registered, *_installed()}))


def factory_of(name: str) -> Factory | None:
    """The factory of a name, or None for a name that is not known.

    Raises:
        InputError: an installed package's factory cannot be loaded, or several factories have the name.
    """
    found: list[tuple[str, Factory]] = []
    if name in _BUILT_IN:
        found.append(("davylamp", _BUILT_IN[name]))
    # Loaded before the next question, since a package may also register its factory when it is imported.
    loaded = [(f"the package {_package(point)}", _loaded(point)) for point in _installed().get(name, ())]
    if name in _registered:
        found.append(("a registration in this process", _registered[name]))
    found += loaded
    if any(factory is not found[0][1] for _, factory in found):
        givers = " and ".join(giver for giver, _ in found)
        raise InputError(Fault("encoding", name, "a name with one factory", f"It is given by {givers}."))
    return found[0][1] if found else None


def built_in(name: str) -> bool:
    """Whether an encoding comes with davylamp."""
    return name in _BUILT_IN


def syntax(name: str) -> str:
    """How a plan writes an encoding: ``binary``, ``block_reversal(width)``; the bare name if not loaded yet."""
    factory = _BUILT_IN.get(name) or _registered.get(name)
    parameters = ", ".join(inspect.signature(factory).parameters) if factory else ""
    return f"{name}({parameters})" if parameters else name


@cache
def _installed() -> dict[str, tuple[EntryPoint, ...]]:
    found: dict[str, tuple[EntryPoint, ...]] = {}
    for point in entry_points(group=GROUP):
        found[point.name] = (*found.get(point.name, ()), point)
    return found


@cache
def _loaded(point: EntryPoint) -> Factory:
    field = f"the entry point {point.name} of {GROUP} (package {_package(point)})"
    _check_name(field, point.name)
    try:
        factory: object = point.load()
    # What another's module raises when it is imported can be anything; it is named and raised again.
    except Exception as error:
        fix = f"Repair or remove the package: {type(error).__name__}: {error}"
        raise InputError(Fault(field, point.value, "what can be imported", fix)) from error
    return _check_factory(field, factory)


def _package(point: EntryPoint) -> str:
    return point.dist.name if point.dist else "not known"


def _check_name(field: str, name: str) -> None:
    if not (name.isascii() and name.isidentifier()):
        raise InputError(Fault(field, name, "an identifier: letters, digits and '_' only, no digit first"))


def _check_factory(field: str, factory: object) -> Factory:
    fault = Fault(field, factory, "a callable that takes whole numbers by position and returns an encoding")
    if not callable(factory):
        raise InputError(fault)
    try:
        parameters = inspect.signature(factory).parameters.values()
    except (TypeError, ValueError):
        raise InputError(fault) from None
    if any(one.kind is one.KEYWORD_ONLY and one.default is one.empty for one in parameters):
        raise InputError(fault)
    return factory
