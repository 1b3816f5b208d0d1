"""Argument checks that the bounds share: each returns the faults it found, so that callers can raise all at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from davylamp.errors import Fault, InputError

LARGEST_COUNT = 2**53  # above this a whole number is no longer exact in double precision


def raise_faults(*groups: Iterable[Fault]) -> None:
    """Raises one InputError with every fault of every group, or does nothing.

    Raises:
        InputError: at least one group holds a fault.
    """
    faults = [fault for group in groups for fault in group]
    if faults:
        raise InputError(faults)


def nonnegative(field: str, value: float) -> list[Fault]:
    """Faults of a finite number of at least 0."""
    return [] if _finite(value) and value >= 0 else [Fault(field, value, "a finite number of at least 0")]


def positive(field: str, value: float) -> list[Fault]:
    """Faults of a finite number above 0."""
    return [] if _finite(value) and value > 0 else [Fault(field, value, "a finite number above 0")]


def below_one(field: str, value: float) -> list[Fault]:
    """Faults of a number in [0, 1)."""
    ok = _finite(value) and 0 <= value < 1
    return [] if ok else [Fault(field, value, "a number of at least 0 and below 1")]


def unit(field: str, value: float) -> list[Fault]:
    """Faults of a number in [0, 1]."""
    return [] if _finite(value) and 0 <= value <= 1 else [Fault(field, value, "a number from 0 to 1")]


def open_unit(field: str, value: float) -> list[Fault]:
    """Faults of a number in (0, 1)."""
    return [] if _finite(value) and 0 < value < 1 else [Fault(field, value, "a number above 0 and below 1")]


def whole(field: str, value: int, least: int = 1) -> list[Fault]:
    """Faults of a whole number from ``least`` to 2**53."""
    given: object = value  # callers may hand over anything; the annotation is a wish
    ok = isinstance(given, int | np.integer) and not isinstance(given, bool) and least <= given <= LARGEST_COUNT
    return [] if ok else [Fault(field, value, f"a whole number from {least} to 2**53")]


def unit_array(field: str, value: ArrayLike) -> tuple[NDArray[np.float64], list[Fault]]:
    """An array of numbers in [0, 1], with its faults (the first offending entry is shown)."""
    return checked_array(field, value, "a number from 0 to 1", lambda a: (a >= 0) & (a <= 1))


def open_unit_array(field: str, value: ArrayLike) -> tuple[NDArray[np.float64], list[Fault]]:
    """An array of numbers in (0, 1), with its faults (the first offending entry is shown)."""
    return checked_array(field, value, "a number above 0 and below 1", lambda a: (a > 0) & (a < 1))


def checked_array(
    field: str, value: ArrayLike, allowed: str, test: Callable[[NDArray[np.float64]], NDArray[np.bool_]]
) -> tuple[NDArray[np.float64], list[Fault]]:
    """An array of double precision whose entries all pass ``test``, with its faults (NaN never passes)."""
    try:
        array = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        return np.zeros(0), [Fault(field, value, allowed)]
    good = np.asarray(test(array))
    if good.all():
        return array, []
    if array.ndim == 0:
        return array, [Fault(field, float(array), allowed)]
    where = np.argwhere(~good)[0]
    index = ", ".join(str(int(i)) for i in where)
    return array, [Fault(f"{field}[{index}]", float(array[tuple(where)]), allowed)]


def _finite(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        return False
    return bool(np.isfinite(float(value)))
