"""Secret spaces of coined medication names: they sound like drugs, and are none."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Iterator
from functools import lru_cache
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, field_validator, model_validator

from davylamp.errors import Fault, InputError
from davylamp.secrets.spaces import AlphabetSpace

_STARTS_TEXT = """
ba be bo bra bri ca ce co cri da de do dra du fa fe fo fri ga ge go gra gu ja jo ka ke kra ku la le lo lu ma me mo na
ne no nu pa pe plo po pra ra re ro ru sa se so sta ta te tra tu va ve vo xa xe xo ya yo za ze zo
"""
_OPEN_MIDDLES_TEXT = """
ba bi bu co cu da di do fa fi go gu ja ji ka ki la li lo lu ma mi mu na ni nu pa pi ra ri ru sa si su ta ti tu va vi
xa xi za zi zu
"""
_CLOSED_MIDDLES_TEXT = """
bal bel bim cam cor cul dal dem dor fel fim gal gor jal jem kal kem lam lim lor lum mal mer mir nal nem nor pel pim pol
ral rem ril ros sal sel sim tal tem tir tol val vem vil vor xal xim zal zel zor
"""
# Endings by which classes of medicines are known; a name that carries one says nothing of what it is.
_OPEN_STEMS_TEXT = """
mab tinib ciclib degib rafenib parib zomib lisib pril sartan statin vastatin prazole conazole dipine gliptin gliflozin
floxacin cillin mycin cycline setron triptan parin xaban grelor lukast terol tidine zepam caine platin rubicin taxel
thiazide semide oxetine pramine peridol gabalin racetam profen coxib dronate calcet tegravir buvir navir previr
"""
_CLOSED_STEMS_TEXT = """
umab ximab olol alol amide apine azole azosin efin elin exin idone ilast imod irudin isone istat olone osin oxacin
oxicam ubicin uracil ustine utide afil anib ast enib
"""
SHORTEST, LONGEST = 6, 16
"""Bounds of a name's letters that can be asked for."""
SHOWN = "•" * 8
"""A name as it may be shown; as long for every name, since lengths differ."""


class CoinedSpace(BaseModel):
    """Names of medications that do not exist, as many as asked for, the same for the same settings.

    A name is a start, a middle and an ending by which a class of medicines is known (``-mab``, ``-tinib``, ``-olol``),
    such as ``varelolol``: 9 to 11 letters if nothing else is asked for. No name is part of another one. Which names
    there are depends on the fields and on nothing else: not on the drug list, the machine or numpy's version. That none
    of them exists is checked when they are planted, against a drug list and the corpus
    (:func:`davylamp.canaries.novelty.check_coined`).

    A secret is ranked among itself and ``alternatives`` names that no canary holds, so that the largest exposure is
    ``log2(alternatives + 1)``: 12.6214 bits for 6,300 (P3 gives log2 6300 = 12.6211, as 12.62).

    Attributes:
        kind: ``coined``, which tells it from a space of symbols.
        version: of the word parts; another version coins other names.
        seed: which names are taken, of those that can be made.
        size: how many names, those of canaries and the alternatives together.
        alternatives: unplanted names that each secret is ranked among, beside itself; drawn from those that no canary
            holds.
        letters: the shortest and the longest name, in letters.
        exclude: names that must not be among them; others take their places.
        drug_list: a file of real names (see :func:`davylamp.canaries.novelty.read_names`), held against when planting.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Literal["coined"] = "coined"
    version: Literal[1] = 1
    seed: int = Field(0, ge=0)
    size: int = Field(7000, ge=4)
    alternatives: int = Field(6300, ge=1)
    letters: tuple[int, int] = (9, 11)
    exclude: tuple[str, ...] = ()
    drug_list: str | None = None

    @field_validator("exclude")
    @classmethod
    def _one_writing(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(sorted({name.strip().casefold() for name in names}))

    @model_validator(mode="after")
    def _can_be_made(self) -> CoinedSpace:
        shortest, longest = self.letters
        if not SHORTEST <= shortest <= longest <= LONGEST:
            bounds = f"two numbers from {SHORTEST} to {LONGEST}, ascending"
            raise ValueError(f"letters {list(self.letters)} must be {bounds}")
        if self.alternatives >= self.size:
            raise ValueError(
                f"size {self.size} leaves no name for a canary beside {self.alternatives} alternatives: raise size"
            )
        made = len(self._names())
        if made < self.size:
            raise ValueError(f"only {made:,} names of {shortest} to {longest} letters can be coined, not {self.size:,}")
        return self

    def _names(self) -> tuple[str, ...]:
        return _coined(self.seed, self.size, self.letters, self.exclude)

    def _places(self) -> dict[str, int]:
        return _indexed(self.seed, self.size, self.letters, self.exclude)

    @property
    def bits(self) -> float:
        """Entropy of a uniform name of the space, in bits; exposure reaches less, see :attr:`alternatives`."""
        return math.log2(self.size)

    def secret(self, index: int) -> str:
        """The name at an index from 0 to ``size - 1``; the order tells nothing of the names.

        Raises:
            InputError: the index is outside the space.
        """
        if not 0 <= index < self.size:
            raise InputError(Fault("index", index, f"a whole number from 0 to {self.size - 1}"))
        return self._names()[index]

    def index(self, secret: str) -> int:
        """The index of a name; the inverse of :meth:`secret`.

        Raises:
            InputError: the string is not in the space (its value is not repeated in the message).
        """
        found = self._places().get(secret)
        if found is None:
            raise InputError(
                Fault("secret", "(not shown)", f"one of the {self.size:,} coined names", "It is not in its space.")
            )
        return found

    def __contains__(self, secret: object) -> bool:
        return isinstance(secret, str) and secret in self._places()

    def masked(self, secret: str) -> str:
        """A name as it may be shown: as many dots for every name.

        Raises:
            InputError: the string is not in the space.
        """
        self.index(secret)
        return SHOWN

    def candidates(self) -> Iterator[str]:
        """Every name of the space, in the order of :meth:`secret`."""
        return iter(self._names())

    def draw(self, rng: np.random.Generator, count: int, exclude: Collection[str] = ()) -> list[str]:
        """Distinct names, uniform over the space without those excluded.

        Args:
            rng: the stream to draw from.
            count: how many.
            exclude: names that must not be drawn.

        Raises:
            InputError: fewer than ``count`` names are left.
        """
        places = self._places()
        taken = {places[secret] for secret in exclude if secret in places}
        if count > self.size - len(taken):
            left = f"at most {self.size - len(taken)} (the space holds {self.size}, {len(taken)} are taken)"
            raise InputError(Fault("count", count, left, "Raise the space's size or take fewer canaries."))
        names, drawn = self._names(), []
        free = [index for index in range(self.size) if index not in taken]
        for at in rng.permutation(len(free))[:count]:
            drawn.append(names[free[int(at)]])
        return drawn


def _kind(value: Any) -> str:
    """Which space is meant; a mapping that says a kind means this one, so that a misspelt kind is named as such."""
    if isinstance(value, CoinedSpace) or (isinstance(value, dict) and "kind" in value):
        return "[coined]"
    return "[alphabet]"


# Tags in brackets are left out of the places that messages name.
AnySpace = Annotated[
    Annotated[AlphabetSpace, Tag("[alphabet]")] | Annotated[CoinedSpace, Tag("[coined]")], Discriminator(_kind)
]
"""The spaces that a plan can name: one of symbols, or, with ``kind: coined``, one of coined names."""


@lru_cache(maxsize=16)
def _coined(seed: int, size: int, letters: tuple[int, int], exclude: tuple[str, ...]) -> tuple[str, ...]:
    """The first names, in an order by hash, of which none is excluded or part of another."""
    names: dict[str, None] = {}
    inner: set[str] = set()
    for name in _ordered(seed, letters):
        parts = _parts(name, letters[0])
        if name in exclude or name in inner or any(part in names for part in parts):
            continue
        names[name] = None
        inner |= parts
        if len(names) == size:
            break
    return tuple(names)


@lru_cache(maxsize=16)
def _indexed(seed: int, size: int, letters: tuple[int, int], exclude: tuple[str, ...]) -> dict[str, int]:
    return {name: index for index, name in enumerate(_coined(seed, size, letters, exclude))}


@lru_cache(maxsize=4)
def _ordered(seed: int, letters: tuple[int, int]) -> tuple[str, ...]:
    # By hash and not by numpy, which does not promise that a permutation stays the same in later versions.
    made = {name for name in _combinations() if letters[0] <= len(name) <= letters[1]}
    return tuple(sorted(made, key=lambda name: hashlib.sha256(f"coined|1|{seed}|{name}".encode()).digest()))


def _combinations() -> Iterator[str]:
    for middles, stems in (
        (_OPEN_MIDDLES_TEXT.split(), _OPEN_STEMS_TEXT.split()),
        (_CLOSED_MIDDLES_TEXT.split(), _CLOSED_STEMS_TEXT.split()),
    ):
        for start in _STARTS_TEXT.split():
            for middle in middles:
                yield from (start + middle + stem for stem in stems)


def _parts(name: str, shortest: int) -> set[str]:
    """Proper parts of a name that are long enough to be a name."""
    return {name[at : at + length] for length in range(shortest, len(name)) for at in range(len(name) - length + 1)}
