"""Which of several things no other beats on two axes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from davylamp.errors import Fault, InputError


def pareto(x: ArrayLike, y: ArrayLike) -> NDArray[np.bool_]:
    """The Pareto set, higher being better on both axes.

    A point is left out if another is at least as good on both axes and better on one. Points that are equal on both
    do not exclude one another.

    Args:
        x: shape (..., n), finite.
        y: the same shape.

    Returns:
        Whether each point is in the set, of the same shape.

    Raises:
        InputError: the shapes differ, or a number is not finite.
    """
    first, second = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    faults = [
        Fault(name, _shown(each), "finite numbers, shape (..., n)")
        for name, each in (("x", first), ("y", second))
        if not each.ndim or not np.isfinite(each).all()
    ]
    if first.shape != second.shape:
        faults.append(Fault("y", second.shape, f"the shape of x, {first.shape}"))
    if faults:
        raise InputError(faults)
    over = (first[..., None, :] >= first[..., :, None]) & (second[..., None, :] >= second[..., :, None])
    more = (first[..., None, :] > first[..., :, None]) | (second[..., None, :] > second[..., :, None])
    return np.asarray(~(over & more).any(axis=-1))


def _shown(values: NDArray[np.float64]) -> Sequence[float]:
    return [float(each) for each in values.ravel()[:20]]
