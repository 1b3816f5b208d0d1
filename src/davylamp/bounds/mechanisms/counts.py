"""Noisy counts: geometric and Laplace."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from davylamp.bounds import checks
from davylamp.bounds.claims import ApproxDP
from davylamp.bounds.curves import PointsCurve, concave_hull

Array = NDArray[np.float64]
Whole = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class GeometricCount:
    """A count with two-sided geometric noise, ``P(noise = j) = (1-b)/(1+b) b^|j|`` with ``b = e^-eps``.

    Source: Ghosh, Roughgarden and Sundararajan 2009. Counts k apart differ in total variation by exactly the k-copy
    constant of P1, Lemma 4.4, for every k.
    """

    epsilon: float

    def __post_init__(self) -> None:
        checks.raise_faults(checks.positive("epsilon", self.epsilon))

    @property
    def claim(self) -> ApproxDP:
        """Pure eps-DP."""
        return ApproxDP(self.epsilon)

    def sample(self, count: ArrayLike, rng: np.random.Generator, size: int | tuple[int, ...] | None = None) -> Whole:
        """Noisy counts, shaped like ``count`` or ``size``: the difference of two geometric variables."""
        counts = np.asarray(count, dtype=np.int64)
        shape = counts.shape if size is None else size
        stop = -math.expm1(-self.epsilon)
        noise = rng.geometric(stop, shape) - rng.geometric(stop, shape)
        return np.asarray(counts + noise, dtype=np.int64)

    def mass(self, value: ArrayLike, count: int = 0) -> Array:
        """Probability of noisy values given the count."""
        distance = np.abs(np.asarray(value, dtype=np.float64) - count)
        return np.asarray(np.tanh(self.epsilon / 2) * np.exp(-self.epsilon * distance))

    def at_least(self, value: ArrayLike, count: int = 0) -> Array:
        """Probability of a noisy value of at least ``value``."""
        j = np.asarray(value, dtype=np.float64) - count
        tail = np.exp(-self.epsilon * np.maximum(j, 1 - j)) * special.expit(self.epsilon)
        # P(noise >= j) = b^j/(1+b) for j >= 1; below, one less the mirrored tail P(noise >= 1-j).
        upper = np.exp(-self.epsilon * np.maximum(j, 0.0)) * special.expit(self.epsilon)
        return np.asarray(np.where(j >= 1, upper, 1 - tail))

    def curve(self, copies: int = 1) -> PointsCurve:
        """Exact curve of counts ``copies`` apart: thresholds from 1 to ``copies``, the rest lies on the same lines."""
        checks.raise_faults(checks.whole("copies", copies))
        t = np.arange(0, copies + 2)
        x, y = self.at_least(t), self.at_least(t, copies)
        return PointsCurve(*concave_hull(np.concatenate([[0.0, 1.0], x]), np.concatenate([[0.0, 1.0], y])))

    def shift_distance(self, copies: int) -> float:
        """Total variation between counts ``copies`` apart: the gap at the middle threshold."""
        checks.raise_faults(checks.whole("copies", copies))
        middle = copies // 2 + 1 if copies % 2 else copies // 2
        return float(self.at_least(middle, copies) - self.at_least(middle))

    def neighbour_curves(self) -> tuple[PointsCurve, ...]:
        """One record more and one record less; the noise is symmetric, so both are the same curve."""
        return self.curve(1), self.curve(1)


@dataclass(frozen=True, slots=True)
class LaplaceCount:
    """A count with Laplace noise of scale ``1/eps``. Its shift-k distance is the k-copy constant for even k only."""

    epsilon: float

    def __post_init__(self) -> None:
        checks.raise_faults(checks.positive("epsilon", self.epsilon))

    @property
    def claim(self) -> ApproxDP:
        """Pure eps-DP."""
        return ApproxDP(self.epsilon)

    def sample(self, count: ArrayLike, rng: np.random.Generator, size: int | tuple[int, ...] | None = None) -> Array:
        """Noisy counts, shaped like ``count`` or ``size``."""
        counts = np.asarray(count, dtype=np.float64)
        return np.asarray(counts + rng.laplace(0.0, 1 / self.epsilon, counts.shape if size is None else size))

    def shift_distance(self, copies: int) -> float:
        """Total variation between counts ``copies`` apart: ``1 - e^{-k eps/2}``."""
        checks.raise_faults(checks.whole("copies", copies))
        return -math.expm1(-copies * self.epsilon / 2)

    def power(self, alpha: ArrayLike, copies: int = 1) -> Array:
        """Exact power of the best test for a shift: threshold tests, whose ratio rises with the output."""
        a = np.asarray(alpha, dtype=np.float64)
        shift = copies * self.epsilon
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            # Threshold t (in units of the scale) with P(noise > t) = a, then the tail of noise at t - shift.
            t = np.where(a <= 0.5, -np.log(2 * a), np.log(2 * (1 - a)))
            u = t - shift
            return np.asarray(np.where(u >= 0, np.exp(-np.abs(u)) / 2, 1 - np.exp(-np.abs(u)) / 2))

    def neighbour_curves(self) -> tuple[PointsCurve, ...]:
        """Inner polygons of the exact curve (chords of ``power``), both orders the same."""
        a = np.unique(np.concatenate([[0.0, 1.0], np.geomspace(1e-12, 0.5, 400), 1 - np.geomspace(1e-12, 0.5, 400)]))
        curve = PointsCurve(*concave_hull(a, self.power(a)))
        return curve, curve
