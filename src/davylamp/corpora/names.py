"""Names of people who do not exist, many enough that a canary can have one of its own."""

from __future__ import annotations

from collections.abc import Collection
from functools import cache

import numpy as np

from davylamp.errors import Fault, InputError

_FIRST_NAMES_TEXT = """
Ada Agnes Albert Alice Alma Amir Anders Anita Anton Arthur Astrid Aziz Bela Berta Bruno Carla Cedric
Chloe Clara Dalia Daniel Daria David Dora Edgar Edith Elena Elias Elif Emil Emma Enzo Erik Esther
Eva Fatima Felix Fiona Frida Georg Greta Gustav Hana Hassan Hedda Helen Henrik Hugo Ida Igor Ines
Irene Isaac Ivan Jakob Jana Jasper Jonas Josef Judith Julia Kamal Karin Kira Klara Lars Laura Leila
Leo Lina Lorenz Lucas Lydia Magda Malik Marco Maria Marta Matteo Milan Mira Nadia Nils Nina Nora
Olga Omar Oscar Otto Paula Pedro Petra Priya Rafael Rosa Ruth Samir Selma Simon Vera
"""
FIRST_NAMES: tuple[str, ...] = tuple(_FIRST_NAMES_TEXT.split())
"""A hundred first names."""

_STEMS_TEXT = """
Ash Bar Beck Birch Black Brad Bram Bright Brook Cal Carl Clay Clif Crow Dal Dun East Fair Fern Fox
Glen Gold Gran Hal Har Hart Hazel High Holm Kel King Lang Lin Mar Mill North Oak Rad Red Stan
"""
_STEMS: tuple[str, ...] = tuple(_STEMS_TEXT.split())
_ENDINGS_TEXT = """
berg beck bridge brook burn by croft dale den field ford gate ham hill hurst land ley man more ridge
son stead stone ton wood
"""
_ENDINGS: tuple[str, ...] = tuple(_ENDINGS_TEXT.split())
SURNAMES: tuple[str, ...] = tuple(f"{stem}{ending}" for stem in _STEMS for ending in _ENDINGS)
"""A thousand surnames, each a stem and an ending."""


@cache
def full_names() -> tuple[str, ...]:
    """Every full name, in a fixed order: 100 first names times 1,000 surnames."""
    return tuple(f"{first} {last}" for first in FIRST_NAMES for last in SURNAMES)


def draw_names(rng: np.random.Generator, n: int, exclude: Collection[str] = ()) -> tuple[str, ...]:
    """Draw distinct full names, uniformly and without replacement.

    Args:
        rng: where the draw comes from; see :func:`davylamp.secrets.streams.stream`.
        n: how many names.
        exclude: names that are already taken.

    Returns:
        ``n`` different names, none of them in ``exclude``.

    Raises:
        InputError: ``n`` is negative or more than the names that are left.
    """
    taken = frozenset(exclude)
    pool = full_names() if not taken else tuple(name for name in full_names() if name not in taken)
    if not 0 <= n <= len(pool):
        raise InputError(Fault("n", n, f"0 to {len(pool):,}, the names that are left"))
    return tuple(pool[int(index)] for index in rng.choice(len(pool), size=n, replace=False))
