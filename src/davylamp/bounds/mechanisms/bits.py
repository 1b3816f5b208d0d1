"""One released bit: randomised response and the Bernoulli staircase."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray

from davylamp.bounds import checks
from davylamp.bounds.claims import ApproxDP
from davylamp.bounds.curves import PointsCurve
from davylamp.bounds.mechanisms.pairs import neyman_pearson_curve
from davylamp.bounds.memorization import k_copies
from davylamp.errors import Fault

Array = NDArray[np.float64]
Whole = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class RandomisedResponse:
    """A bit that is told truly with probability ``e^eps/(e^eps+1)``, then flipped with probability ``flip``.

    Without the flip it attains the advantage ``tanh(eps/2)``; the binary symmetric channel scales that by
    ``1 - 2 flip`` (Warner 1965).
    """

    epsilon: float
    flip: float = 0.0

    def __post_init__(self) -> None:
        faults = checks.unit("flip", self.flip)
        if not faults and self.flip > 0.5:
            faults = [Fault("flip", self.flip, "a number from 0 to 0.5")]
        checks.raise_faults(checks.nonnegative("epsilon", self.epsilon), faults)

    @property
    def claim(self) -> ApproxDP:
        """Pure eps-DP; the flip is post-processing and can only help."""
        return ApproxDP(self.epsilon)

    @property
    def advantage(self) -> float:
        """Exact total variation between the two bits' releases."""
        return (1 - 2 * self.flip) * math.tanh(self.epsilon / 2)

    @property
    def truth(self) -> float:
        """Probability that the released bit is the true one."""
        return (1 + self.advantage) / 2

    def sample(self, bit: ArrayLike, rng: np.random.Generator, size: int | tuple[int, ...] | None = None) -> Whole:
        """Released bits, shaped like ``bit`` or ``size``."""
        bits = np.asarray(bit, dtype=np.int64)
        wrong = rng.random(bits.shape if size is None else size) >= self.truth
        return np.asarray(bits ^ wrong, dtype=np.int64)

    def neighbour_curves(self) -> tuple[PointsCurve, ...]:
        """Bit 0 against bit 1 and back."""
        zero, one = [self.truth, 1 - self.truth], [1 - self.truth, self.truth]
        return neyman_pearson_curve(zero, one), neyman_pearson_curve(one, zero)


@dataclass(frozen=True, slots=True)
class BernoulliStaircase:
    """One bit whose probability climbs the optimal orbit with the number of copies (P1, Lemma 4.4).

    ``P(1 | j copies) = a_j`` with ``a_{j+1} = 1 - f(a_j)``, up to ``copies`` steps and flat beyond: it attains the
    k-copy constant with a single released bit.
    """

    epsilon: float
    copies: int

    def __post_init__(self) -> None:
        checks.raise_faults(checks.positive("epsilon", self.epsilon), checks.whole("copies", self.copies))
        if self.copies > 1000:
            checks.raise_faults([Fault("copies", self.copies, "a whole number from 1 to 1000")])

    @property
    def claim(self) -> ApproxDP:
        """Pure eps-DP."""
        return ApproxDP(self.epsilon)

    @property
    def steps(self) -> Array:
        """``a_0, ..., a_k``."""
        return np.array(k_copies(self.claim, self.copies).orbit)

    def sample(self, count: ArrayLike, rng: np.random.Generator, size: int | tuple[int, ...] | None = None) -> Whole:
        """Released bits for counts of copies, shaped like ``count`` or ``size``."""
        level = self.steps[np.clip(np.asarray(count, dtype=np.int64), 0, self.copies)]
        return np.asarray(rng.random(level.shape if size is None else size) < level, dtype=np.int64)

    def neighbour_curves(self) -> tuple[PointsCurve, ...]:
        """Each pair of successive steps, both orders."""
        a = self.steps
        laws = [np.array([1 - p, p]) for p in a]
        return tuple(
            neyman_pearson_curve(first, second)
            for lower, upper in pairwise(laws)
            for first, second in ((lower, upper), (upper, lower))
        )
