"""The power curve of an (eps, delta) claim, iterated k times in closed form.

The power curve ``g(a) = 1 - f(a)`` of (eps, delta)-DP is the lower of two increasing lines,
``A(a) = delta + e^eps a`` and ``B(a) = 1 - e^-eps (1 - delta - a)`` (Dong, Roth and Su 2022, Prop. 2.5).
An orbit climbs by A while it is below ``(1 - delta)/(e^eps + 1)`` and by B from then on. Both lines increase,
so k-fold ``g`` is the least value over all orders of k lines, and ``A^n`` then ``B^(k-n)`` attains it: every
n that is tried gives a valid (never too small) power, and the right n gives the exact one.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def _times_exp(value: Array, exponent: Array) -> Array:
    """``value * e^exponent`` for value >= 0, with 0 kept at 0 and overflow kept at infinity."""
    with np.errstate(over="ignore", invalid="ignore"):
        return np.where(value > 0, value * np.exp(exponent), 0.0)


def _drift(epsilon: float, delta: float, steps: Array, sign: float = 1.0) -> Array:
    """``delta * (e^(±n eps) - 1)/(±(e^eps - 1))``, what n steps of a line add (or take away) beside scaling."""
    if delta == 0:
        return np.zeros_like(steps)
    if np.expm1(min(epsilon, 700.0)) == 0:
        return delta * steps
    with np.errstate(over="ignore"):
        if epsilon < 700:
            ratio = sign * np.expm1(sign * steps * epsilon) / np.expm1(epsilon)
        else:
            # e^eps overflows, but to 300 digits the quotient is e^((n-1) eps) upwards and e^-eps downwards.
            ratio = np.where(steps > 0, np.exp((np.maximum(steps, 1) - 1 if sign > 0 else -1.0) * epsilon), 0.0)
    # One step up adds exactly delta.
    return np.where((steps == 1) & (sign > 0), delta, delta * ratio)


def _splits(start: Array, epsilon: float, delta: float, copies: int) -> list[Array]:
    """Numbers of A steps worth trying: both for one copy, else the closed form's and its two neighbours."""
    if copies == 1:
        return [np.zeros(()), np.ones(())]
    near = _lower_steps(start, epsilon, delta, copies)
    return [np.clip(near + shift, 0, copies) for shift in (-1.0, 0.0, 1.0)]


def _lower_steps(start: Array, epsilon: float, delta: float, copies: int) -> Array:
    """How many steps of line A an orbit from ``start`` takes before it passes ``(1 - delta)/(e^eps + 1)``."""
    full = np.full_like(start, copies)
    threshold = (1 - delta) * np.exp(-epsilon) / (1 + np.exp(-epsilon))
    if np.expm1(min(epsilon, 700.0)) == 0:
        return np.where(start > threshold, 0.0, full)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        offset = delta / np.expm1(epsilon) if epsilon < 700 else delta * np.exp(-epsilon)
        # As a difference of logarithms where the ratio could overflow, else by log1p, which is exact near 1.
        ratio = (threshold - start) / (start + offset)
        climb = np.where(
            ratio < 1e3, np.log1p(ratio), np.log(np.maximum(threshold - start, 5e-324)) - np.log(start + offset)
        )
        steps = np.floor(climb / epsilon) + 1
    steps = np.where(start > threshold, 0.0, np.where(np.isnan(steps), full, steps))
    return np.clip(steps, 0, copies)


def power_and_miss(alpha: Array, epsilon: float, delta: float, copies: int) -> tuple[Array, Array]:
    """k-fold power ``g^k(alpha)`` and its complement, each to full relative precision where it is small.

    Args:
        alpha: type-I levels in [0, 1], any shape.
        epsilon: at least 0, nats.
        delta: in [0, 1).
        copies: k, at least 1.

    Returns:
        Power and type-II error (``1 - power``), shaped like ``alpha``, in [0, 1].
    """
    power, miss = np.ones_like(alpha), np.zeros_like(alpha)
    for low in _splits(alpha, epsilon, delta, copies):
        high = copies - low
        reached = _times_exp(alpha, low * epsilon) + _drift(epsilon, delta, low)
        reached = np.minimum(reached, 1.0)
        # B^j as a sum of positive terms for the power, as a difference for the miss: each exact where small.
        shrink, fall = np.exp(-high * epsilon), _drift(epsilon, delta, high, -1.0)
        power = np.minimum(power, reached * shrink - np.expm1(-high * epsilon) + fall)
        miss = np.maximum(miss, (1 - reached) * shrink - fall)
    return power, miss


def level(risk: Array, epsilon: float, delta: float, copies: int) -> Array:
    """Largest type-I level whose k-fold power is at most ``risk``, rounded down; negative where none is.

    Inverts the orbit of :func:`power_and_miss`: steps of B are undone from the top, then steps of A.

    Args:
        risk: in (0, 1), any shape.
        epsilon: at least 0, nats.
        delta: in [0, 1).
        copies: k, at least 1.
    """
    miss = 1 - risk
    best = np.full_like(risk, -1.0)
    for high in _splits(miss, epsilon, delta, copies):
        low = copies - high
        # A difference of numbers near 1 may be off by a few ulps of 1: charged, so that the level errs low.
        with np.errstate(over="ignore"):
            undone = 1 - (miss * np.exp(high * epsilon) + _drift(epsilon, delta, high)) - 4.5e-16
        grown = np.where(high > 0, undone, risk)
        # Less the drift before shrinking: for one copy at risk = delta this is exactly 0.
        left = grown - _drift(epsilon, delta, low) * (1 + (4.5e-16 if copies > 1 else 0.0))
        best = np.maximum(best, np.where(left >= 0, np.maximum(left, 0.0) * np.exp(-low * epsilon), -1.0))
    return best
