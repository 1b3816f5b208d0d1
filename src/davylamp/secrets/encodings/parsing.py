"""From the name in a plan to an encoding, alone or composed of several."""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass
from itertools import pairwise

from davylamp.errors import Fault, InputError
from davylamp.secrets.encodings.base import Encoding, require, stays_in_space
from davylamp.secrets.encodings.guarded import Guarded, called
from davylamp.secrets.encodings.registry import Factory, built_in, factory_of, names, syntax
from davylamp.secrets.spaces import AlphabetSpace

PART = re.compile(r"(?P<name>[^\s()+,]+)\s*(?:\((?P<arguments>[^()]*)\))?")
WHOLE_NUMBER = re.compile(r"-?[0-9]{1,18}")  # int() alone would also take underscores and other scripts' digits


@dataclass(frozen=True)
class Composition:
    """Several encodings, applied from left to right.

    Attributes:
        parts: the encodings, two or more.
    """

    parts: tuple[Encoding, ...]

    @property
    def name(self) -> str:
        """The canonical name: the parts' names, joined by ``' + '``."""
        return " + ".join(part.name for part in self.parts)

    @property
    def in_space(self) -> bool:
        """Whether every result is a secret of the space, which it is if it is for each part."""
        return all(stays_in_space(part) for part in self.parts)

    def faults(self, space: AlphabetSpace) -> list[str]:
        """The faults of each part, and a fault for each that something follows and must not."""
        followed = [
            f"{part.name} writes no secret of the space, so that {after.name} cannot follow it"
            for part, after in pairwise(self.parts)
            if not stays_in_space(part)
        ]
        own = [fault for part in self.parts for fault in part.faults(space)]
        return followed + list(dict.fromkeys(own))

    def encode(self, secret: str, space: AlphabetSpace) -> str:
        """The secret, encoded by each part in turn; see :class:`Encoding`."""
        require(self, space)
        for part in self.parts:
            secret = part.encode(secret, space)
        return secret

    def decode(self, text: str, space: AlphabetSpace) -> str:
        """The text, decoded by each part from the last to the first; see :class:`Encoding`."""
        require(self, space)
        for part in reversed(self.parts):
            text = part.decode(text, space)
        return text


def encoding(name: str) -> Encoding:
    """The encoding that a plan names.

    Args:
        name: an encoding's name, with its whole numbers in brackets where it has parameters, or several joined by
            ``+`` and applied from left to right: ``binary``, ``block_reversal(4)``,
            ``block_reversal(2) + cyclic_shift(1)``. Spaces between the parts of a name do not matter.

    Raises:
        InputError: the name cannot be read, is not known, or has other parameters; every fault of it is named.
    """
    faults: list[Fault] = []
    parts: list[Encoding] = []
    for text in name.split("+"):
        try:
            parts.append(_part(text.strip()))
        except InputError as error:
            faults += error.faults
    if faults:
        raise InputError(faults)
    return parts[0] if len(parts) == 1 else Composition(tuple(parts))


def _part(text: str) -> Encoding:
    found = PART.fullmatch(text)
    factory = factory_of(found["name"]) if found else None
    if not found or not factory:
        known = ", ".join(map(syntax, names()))
        allowed = f"{known}; or several of them joined by ' + ', applied from left to right"
        raise InputError(Fault("encoding", text, allowed, "Parameters are whole numbers in brackets."))
    bound = _bound(text, found["name"], found["arguments"], factory)
    shown = ", ".join(str(value) for value in bound.args)
    canonical = f"{found['name']}({shown})" if bound.args else found["name"]
    made: object = called(f"the factory of {canonical!r}", lambda: factory(*bound.args))
    if not isinstance(made, Encoding):
        allowed = "an encoding: an object with name, faults, encode and decode"
        raise InputError(Fault(f"what the factory of {canonical!r} returns", made, allowed))
    if made.name != canonical:
        # A manifest keeps the name alone, which must lead back to the same encoding.
        raise InputError(Fault(f"the name of the encoding {canonical!r}", made.name, repr(canonical)))
    return made if built_in(found["name"]) else Guarded(made)


def _bound(text: str, name: str, arguments: str | None, factory: Factory) -> inspect.BoundArguments:
    """The parameters as whole numbers, with the factory's defaults where they are left out."""
    signature = inspect.signature(factory)
    form = f"{name}({', '.join(signature.parameters)})" if signature.parameters else name
    values = [] if arguments is None else [value.strip() for value in arguments.split(",")]
    try:
        if not all(map(WHOLE_NUMBER.fullmatch, values)):
            raise TypeError
        bound = signature.bind(*map(int, values))
    except TypeError:
        if signature.parameters:
            allowed = f"{form}, where {' and '.join(signature.parameters)} must be a whole number of up to 18 digits"
        else:
            allowed = f"{name}, which has no parameter"
        raise InputError(Fault("encoding", text, allowed)) from None
    bound.apply_defaults()
    return bound
