"""Which interventions there are: those built in, those registered in this process, those of installed packages.

The shortest way to add one is a function from a text to a text::

    @intervention("lower")
    def lower(text: str, rng: np.random.Generator) -> str:
        return text.lower()

An installed package names such a function, or a :class:`Kind`, in the entry-point group ``davylamp.interventions``. For
a file that is in no package see :mod:`davylamp.protect.corpus.importing`.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Annotated, Any, Final, cast

import numpy as np
from pydantic import BeforeValidator, SerializeAsAny

from davylamp.errors import Fault, InputError, RecipeError
from davylamp.protect.corpus.base import Intervention, InterventionSpec, Protected, Row, Setting, texts, with_texts
from davylamp.runs.credentials import discreet, masked
from davylamp.runs.faults import check, closest, inside
from davylamp.runs.files import sha256_bytes
from davylamp.runs.progress import Reporter
from davylamp.secrets.streams import stream

TextFunction = Callable[[str, np.random.Generator], str]
"""From a text of a record and a stream of random numbers, one a record and draw, to the text in its place."""

GROUP: Final = "davylamp.interventions"
"""The entry-point group in which an installed package names its interventions."""

_HERE = "davylamp.protect.corpus"
_BUILT_IN: Final[dict[str, str]] = {
    "scrub": f"{_HERE}.scrub",
    "surrogate": f"{_HERE}.surrogate",
    "rewrite": f"{_HERE}.rewriting",
    "privacy_rewrite": f"{_HERE}.rewriting",
    "summary": f"{_HERE}.rewriting",
    "privacy_summary": f"{_HERE}.rewriting",
}
"""Modules whose ``KIND`` is the intervention; imported when it is asked for."""
_NAME: Final = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_registered: dict[str, Kind] = {}


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of intervention.

    Attributes:
        spec: its settings; ``name`` is given by the recipe.
        build: makes one of checked settings.
        check: what can be told to be wrong with checked settings before anything is loaded, and without the rows, such
            as a file that is not there. Fields begin inside of the settings (``models.en``).
    """

    spec: type[InterventionSpec]
    build: Callable[[Any, Setting], Intervention]
    check: Callable[[Any], Iterable[Fault]] = lambda _: ()


def intervention(name: str) -> Callable[[TextFunction], TextFunction]:
    """Register a function of texts as an intervention, for this process.

    Args:
        name: what a recipe calls it: letters, digits and ``_`` only, no digit first.

    Returns:
        A decorator that returns the function unchanged.

    Raises:
        InputError: the name is not an identifier or is taken, or the function does not take a text and a stream.
    """

    def keep(function: TextFunction) -> TextFunction:
        register(name, _of_function(name, function))
        return function

    return keep


def register(name: str, kind: Kind) -> None:
    """Register a kind of intervention under a name, for this process.

    Raises:
        InputError: the name is not an identifier or is taken.
    """
    if not _NAME.fullmatch(name):
        raise InputError(Fault("name", name, "letters, digits and '_' only, no digit first"))
    if name in _BUILT_IN or name in _registered:
        raise InputError(Fault("name", name, f"a name that is not taken; taken are {', '.join(known())}"))
    _registered[name] = kind


def forget(name: str) -> None:
    """Take back what was registered in this process under a name, if anything was."""
    _registered.pop(name, None)


def known() -> list[str]:
    """Names of all interventions."""
    return sorted({*_BUILT_IN, *_registered, *_installed()})


def refresh() -> None:
    """Look for installed packages anew, as after one was installed in this process's lifetime."""
    _installed.cache_clear()


def added() -> list[str]:
    """Names of those that are not built in: of installed packages, and registered in this process."""
    return sorted({*_registered, *_installed()})


def kind_of(name: str) -> Kind:
    """The kind that a name stands for.

    Raises:
        InputError: there is none, or an installed package names something else, or something that cannot be loaded.
    """
    if name in _registered:
        return _registered[name]
    if name in _BUILT_IN:
        return cast("Kind", importlib.import_module(_BUILT_IN[name]).KIND)
    if name not in _installed():
        raise InputError(Fault("protect.name", name, f"one of {', '.join(known())}", closest(name, known())))
    point = _installed()[name]
    try:
        found = point.load()
    except (Exception, SystemExit, GeneratorExit) as error:
        # What somebody else's module raises may be anything.
        fix = f"Loading it raised {type(error).__name__}: {error} (--debug shows where)."
        raise InputError(
            Fault("protect.name", name, f"an intervention whose package loads ({point.value})", fix)
        ) from error
    return found if isinstance(found, Kind) else _of_function(name, found)


def spec_of(data: Any, prefix: str = "protect", *, look: bool = False) -> InterventionSpec:
    """Checked settings of one intervention, as a recipe holds them: ``{name: scrub, ...}``, or a name alone.

    Args:
        data: the settings.
        prefix: stands before each field in messages.
        look: also ask the intervention itself what is wrong, such as files that are not there.

    Raises:
        RecipeError: there is no such intervention, or its settings do not fit; all faults are named.
    """
    spec, faults = _checked(data, look)
    if spec is None or faults:
        raise RecipeError(inside(prefix, discreet(fault)) for fault in faults)
    return spec


def _checked(data: Any, look: bool) -> tuple[InterventionSpec | None, list[Fault]]:
    """Settings of an intervention, or all that is wrong with them."""
    if isinstance(data, InterventionSpec):
        return data, list(kind_of(data.name).check(data)) if look else []
    field, names = ("", known()) if isinstance(data, str) else ("name", known())
    if isinstance(data, str):
        data = {"name": data}
    if not isinstance(data, Mapping):
        return None, [Fault("", data, f"the name of an intervention ({', '.join(names)}), or settings with a name")]
    if "name" not in data:
        meant = next((key for key in data if key in names), None)
        fix = "" if meant is None else f"Write {{name: {meant}, ...}}, with its settings beside the name."
        return None, [Fault(field, "(missing)", f"one of {', '.join(names)}", fix)]
    name = data["name"]
    if not isinstance(name, str) or name not in names:
        return None, [Fault(field, name, f"one of {', '.join(names)}", closest(name, names))]
    try:
        kind = kind_of(name)
    except InputError as error:
        return None, [replace(fault, field=field) for fault in error.faults]
    made, faults = check(kind.spec, data)
    # Who has something to mend is told all of it.
    return check(kind.spec, data, kind.check) if look or faults else (made, faults)


def _intervention(value: Any) -> InterventionSpec:
    """Settings of an intervention as a recipe holds them, for a schema that names the place itself."""
    return spec_of(value, "")


def _list(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return value
    fix = "Put it in a list." if isinstance(value, Mapping) or value in known() else ""
    raise RecipeError(Fault("", masked(value), f"a list of interventions ({', '.join(known())}), in their order", fix))


Interventions = Annotated[
    tuple[Annotated[SerializeAsAny[InterventionSpec], BeforeValidator(_intervention)], ...], BeforeValidator(_list)
]
"""A recipe's interventions, in their order: settings with a name, or names alone."""


def look(specs: Iterable[InterventionSpec], prefix: str = "protect") -> Iterator[Fault]:
    """What interventions say themselves is wrong with their settings, before anything is loaded."""
    for at, spec in enumerate(specs):
        yield from (inside(f"{prefix}.{at}", fault) for fault in kind_of(spec.name).check(spec))


@cache
def _installed() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=GROUP) if point.name not in _BUILT_IN}


def _of_function(name: str, function: TextFunction) -> Kind:
    try:
        fits = callable(function) and len(inspect.signature(function).parameters) == 2
    except ValueError:
        # Some functions that are not written in Python say nothing of their arguments.
        fits = False
    if not fits:
        raise InputError(Fault(f"intervention {name}", function, "a function of a text and a random generator"))
    return Kind(InterventionSpec, lambda spec, setting: _Function(name, function, spec, setting))


class _Function:
    """A function of texts as an intervention."""

    def __init__(self, name: str, function: TextFunction, spec: InterventionSpec, setting: Setting) -> None:
        self.name = name
        self.version = _version_of(function)
        self._function = function
        self._seed = setting.seed if spec.seed is None else spec.seed

    def apply(self, rows: Sequence[Row], reporter: Reporter) -> Iterator[Protected]:
        """Call the function for every text of every row."""
        with reporter.task(self.name, len(rows)) as advance:
            for row in rows:
                rng = stream(self._seed, self.name, row.record.line(), row.draw)
                yield self._one(row, rng)
                advance(1)

    def _one(self, row: Row, rng: np.random.Generator) -> Protected:
        """Call the function for every text of a row; a row on which it fails has failed, whatever it raised."""
        try:
            made = [self._function(text, rng) for text in texts(row.record)]
        except (Exception, SystemExit, GeneratorExit) as error:  # noqa: BLE001 - it may be anything but Ctrl-C
            reason = f"it raised {type(error).__name__}"
            return Protected(row.position, row.record, (), "failed", reason, error)
        # What somebody else's function gives back may be anything too.
        given: list[object] = [*made]
        wrong = next((each for each in given if not isinstance(each, str)), "")
        if not isinstance(wrong, str):
            reason = f"it gave back {type(wrong).__name__} in place of a text"
            return Protected(row.position, row.record, (), "failed", reason)
        return Protected(row.position, with_texts(row.record, made))


def _version_of(function: TextFunction) -> str:
    """A hash of the file that holds a function, since what it calls there is part of it; else its name."""
    name = f"{function.__module__}.{getattr(function, '__qualname__', type(function).__name__)}"
    try:
        lines, _ = inspect.findsource(function)
    except (OSError, TypeError):
        return name
    return sha256_bytes("".join([name.rpartition(".")[2], *lines]).encode("utf-8"))[:12]
