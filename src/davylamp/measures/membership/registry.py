"""Which membership scores there are: those built in, those registered in this process, those of installed packages.

A score is one function with one docstring::

    @score("loss", unit="nats")
    def loss(evidence: Evidence) -> float:
        '''Mean log-probability of a token.

        Higher = more likely a member: a model gives more probability to what it was trained on.

        Cannot see: whether a text is easy for every model.
        '''
        return float(evidence.logprobs.mean())
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Final, TypeVar, get_args

from davylamp.errors import Fault, InputError
from davylamp.measures.membership.evidence import Evidence, Need

Function = Callable[[Evidence], float]
F = TypeVar("F", bound=Function)

GROUP: Final = "davylamp.scores"
"""The entry-point group in which an installed package names its scores."""
COSTLY: Final[frozenset[Need]] = frozenset({"neighbours", "gradients"})
"""What costs many times the scoring of a record: a score that needs it is taken only where it is asked for."""
NEEDS: Final[tuple[Need, ...]] = get_args(Need)

_SIGN: Final = re.compile(r"\bhigher\b[^.]*\bmember", re.IGNORECASE)
_BLIND: Final = "cannot see:"
_registered: dict[str, Score] = {}


@dataclass(frozen=True, slots=True)
class Score:
    """A membership score; higher = more likely a member.

    Attributes:
        name: what a recipe calls it.
        function: from what is known of one span of one record to a number.
        needs: what it reads besides the per-token log-probabilities.
        unit: of the number.
        summary: what it is, in one sentence.
        sign: why a member scores higher.
        blind: what it cannot see.
    """

    name: str
    function: Function
    needs: frozenset[Need]
    unit: str
    summary: str
    sign: str
    blind: str

    @property
    def costly(self) -> bool:
        """Whether it is taken only where it is asked for."""
        return bool(self.needs & COSTLY)


def score(name: str, *, needs: Sequence[Need] = (), unit: str = "score") -> Callable[[F], F]:
    """Register a membership score under a name, for this process.

    Args:
        name: what a recipe calls it: letters, digits and ``_`` only, no digit first, not ending in ``_secret``.
        needs: what the function reads besides log-probabilities: ``moments``, ``reference``, ``text``, ``lowercase``,
            ``shots``, ``neighbours``, ``gradients``. What is not named here is not there to read.
        unit: of the number.

    Returns:
        A decorator that returns the function unchanged. Its docstring must say what the score is in its first
        paragraph, that higher means more likely a member in another, and what it cannot see in one that begins with
        ``Cannot see:``; reports show all three.

    Raises:
        InputError: the name, a need or the docstring is not as it must be, or the name is taken; all are named.
    """
    faults = []
    if not (name.isascii() and name.isidentifier()) or name.endswith("_secret"):
        allowed = "an identifier: letters, digits and '_' only, no digit first, not ending in '_secret'"
        faults.append(Fault("name", name, allowed))
    elif name in _registered:
        faults.append(Fault("name", name, f"a name that is not taken; taken are {', '.join(sorted(_registered))}"))
    faults += [Fault("needs", need, f"of {', '.join(NEEDS)}") for need in needs if need not in NEEDS]

    def keep(function: F) -> F:
        paragraphs, more = _docstring(name, function)
        if faults or more:
            raise InputError([*faults, *more])
        _registered[name] = Score(name, function, frozenset(needs), unit, *paragraphs)
        return function

    return keep


def _docstring(name: str, function: object) -> tuple[tuple[str, str, str], list[Fault]]:
    text = inspect.getdoc(function) or ""
    paragraphs = [" ".join(part.split()) for part in re.split(r"\n\s*\n", text) if part.strip()]
    sign = next((part for part in paragraphs[1:] if _SIGN.search(part)), "")
    blind = next((part[len(_BLIND) :].strip() for part in paragraphs[1:] if part.lower().startswith(_BLIND)), "")
    parts = {
        "a first paragraph that says what the score is": paragraphs[0] if paragraphs else "",
        "a paragraph that says that higher means more likely a member, and why": sign,
        "a paragraph 'Cannot see: ...'": blind,
    }
    faults = [Fault(f"docstring of {name}", text[:60], missing) for missing, part in parts.items() if not part]
    return (paragraphs[0] if paragraphs else "", sign, blind), faults


def unregister(name: str) -> None:
    """Forget a score that was registered in this process.

    Raises:
        InputError: there is none of the name.
    """
    if name not in _registered:
        raise InputError(Fault("name", name, f"one of {', '.join(sorted(_registered))}"))
    del _registered[name]


def names() -> tuple[str, ...]:
    """The names of all known scores, sorted; loads no installed package."""
    return tuple(sorted({*_registered, *_installed()}))


def find(name: str) -> Score:
    """The score of a name; loads the package that gives it.

    Raises:
        InputError: there is none, or an installed package's cannot be loaded or is given twice.
    """
    for point in _installed().get(name, ()):
        _load(point)
    if name not in _registered:
        raise InputError(Fault("score", name, f"one of {', '.join(names())}"))
    return _registered[name]


@cache
def _installed() -> dict[str, tuple[EntryPoint, ...]]:
    found: dict[str, tuple[EntryPoint, ...]] = {}
    for point in entry_points(group=GROUP):
        found[point.name] = (*found.get(point.name, ()), point)
    return found


@cache
def _load(point: EntryPoint) -> None:
    package = point.dist.name if point.dist else "not known"
    field = f"the entry point {point.name} of {GROUP} (package {package})"
    try:
        function: object = point.load()
    except InputError as error:
        raise InputError(
            [Fault(f"{field}: {fault.field}", fault.value, fault.allowed) for fault in error.faults]
        ) from None
    # What another's module raises when it is imported can be anything; it is named and raised again.
    except Exception as error:
        fix = f"Repair or remove the package: {type(error).__name__}: {error}"
        raise InputError(Fault(field, point.value, "what can be imported", fix)) from error
    known = _registered.get(point.name)
    if known is None or known.function is not function:
        fix = f"Write @score({point.name!r}) above it."
        raise InputError(Fault(field, point.value, "a function that registers under the entry point's name", fix))
