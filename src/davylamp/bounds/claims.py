"""Privacy claims as trade-off curves.

A claim promises that nobody who sees the release tells two neighbouring data sets apart better than a trade-off
function ``f`` allows: any test with type-I error (false alarm) ``alpha`` has a type-II error (miss) of at least
``f(alpha)`` (Dong, Roth and Su, *Gaussian Differential Privacy*, JRSS-B 84, 2022, Def. 2.3). ``f`` is convex,
non-increasing and at most ``1 - alpha``. The power ``1 - f(alpha)`` is computed by its own formula, not by the
subtraction, so that it stays exact at levels such as 1e-300.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from davylamp.bounds import checks, iterates
from davylamp.errors import Fault

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Advantage:
    """The largest gap between power and level that a claim allows.

    Attributes:
        value: ``sup_a 1 - a - f(a)``, in [0, 1]; the total variation distance that the claim allows.
        at: a type-I level that attains it.
    """

    value: float
    at: float


@runtime_checkable
class Claim(Protocol):
    """What every trade-off curve answers. Levels and errors are probabilities; arrays keep their shape."""

    @property
    def symmetric(self) -> bool:
        """Whether ``f`` is its own inverse, so that the order of the two data sets makes no difference."""

    def tradeoff(self, alpha: ArrayLike) -> Array:
        """Least type-II error ``f(alpha)`` at type-I level ``alpha``."""

    def power(self, alpha: ArrayLike) -> Array:
        """Largest power ``1 - f(alpha)``, exact in relative terms where it is small."""

    def inverse(self, beta: ArrayLike) -> Array:
        """Left inverse ``inf {a : f(a) <= beta}``."""

    def level(self, risk: ArrayLike) -> Array:
        """``sup {a : 1 - f(a) <= risk}``; negative where no level is that safe (risk below ``1 - f(0)``)."""

    def advantage(self) -> Advantage:
        """``sup_a 1 - a - f(a)`` with a maximiser."""

    def group(self, copies: int) -> Claim:
        """The curve ``1 - (1-f)^{∘k}`` for data sets that differ in ``copies`` records."""

    def describe(self) -> str:
        """One line for people."""

    def as_dict(self) -> dict[str, object]:
        """Kind and parameters, of JSON types."""


@dataclass(frozen=True, slots=True)
class ApproxDP:
    """(eps, delta)-DP: ``f(a) = max(0, 1 - delta - e^eps a, e^-eps (1 - delta - a))`` (Dong et al., Prop. 2.5).

    Attributes:
        epsilon: privacy loss in nats, finite and at least 0.
        delta: in [0, 1).
        copies: k; the curve is the exact k-fold ``1 - (1-f)^{∘k}`` of the one-record curve.

    Raises:
        InputError: a parameter is outside its range.
    """

    epsilon: float
    delta: float = 0.0
    copies: int = 1

    def __post_init__(self) -> None:
        checks.raise_faults(
            checks.nonnegative("epsilon", self.epsilon),
            checks.below_one("delta", self.delta),
            checks.whole("copies", self.copies),
        )

    @property
    def symmetric(self) -> bool:
        """True: the definition holds for both orders of the data sets."""
        return True

    def tradeoff(self, alpha: ArrayLike) -> Array:
        """Least type-II error at type-I level ``alpha``."""
        return iterates.power_and_miss(levels("alpha", alpha), self.epsilon, self.delta, self.copies)[1]

    def power(self, alpha: ArrayLike) -> Array:
        """``min(1, delta + e^eps a, 1 - e^-eps (1 - delta - a))`` for one copy, its k-th iterate for k."""
        return iterates.power_and_miss(levels("alpha", alpha), self.epsilon, self.delta, self.copies)[0]

    def inverse(self, beta: ArrayLike) -> Array:
        """The curve itself, which is symmetric."""
        return self.tradeoff(levels("beta", beta))

    def level(self, risk: ArrayLike) -> Array:
        """Largest level with power at most ``risk``; negative where ``risk`` is below ``1 - f(0)``."""
        return iterates.level(risks(risk), self.epsilon, self.delta, self.copies)

    def advantage(self) -> Advantage:
        """``delta + (1-delta) tanh(eps/2)`` at ``(1-delta)/(e^eps+1)`` for one copy (P1, Thm 4.1).

        For k copies of pure DP the exact constant of P1, Lemma 4.4; otherwise the fixed point of the curve.
        """
        if self.copies == 1:
            half = np.tanh(self.epsilon / 2)
            return Advantage(
                float(self.delta + (1 - self.delta) * half),
                float((1 - self.delta) * special.expit(-self.epsilon)),
            )
        if self.delta == 0:
            return _pure_copies(self.epsilon, self.copies)
        return search_advantage(self)

    def group(self, copies: int) -> ApproxDP:
        """The exact curve for ``copies`` times as many differing records."""
        checks.raise_faults(checks.whole("copies", copies))
        return ApproxDP(self.epsilon, self.delta, self.copies * int(copies))

    def describe(self) -> str:
        """One line for people."""
        name = f"eps = {self.epsilon:g} pure DP" if self.delta == 0 else f"({self.epsilon:g}, {self.delta:g})-DP"
        return name if self.copies == 1 else f"{name} over {self.copies} copies"

    def as_dict(self) -> dict[str, object]:
        """Kind and parameters."""
        if self.delta == 0:
            shown: dict[str, object] = {"kind": "pure", "epsilon": float(self.epsilon)}
        else:
            shown = {"kind": "approx", "epsilon": float(self.epsilon), "delta": float(self.delta)}
        return shown if self.copies == 1 else {**shown, "copies": self.copies}


def pure_dp(epsilon: float) -> ApproxDP:
    """eps-DP: ``f(a) = max(0, 1 - e^eps a, e^-eps (1-a))``, the (eps, 0) case of :class:`ApproxDP`.

    Raises:
        InputError: ``epsilon`` is negative, infinite or NaN.
    """
    return ApproxDP(epsilon)


@dataclass(frozen=True, slots=True)
class GaussianDP:
    """mu-GDP: ``f(a) = Phi(Phi^-1(1-a) - mu)`` (Dong et al., Def. 2.6).

    Attributes:
        mu: separation of two unit normals, finite and at least 0.

    Raises:
        InputError: ``mu`` is outside its range.
    """

    mu: float

    def __post_init__(self) -> None:
        checks.raise_faults(checks.nonnegative("mu", self.mu))

    @property
    def symmetric(self) -> bool:
        """True: the two normals may be swapped."""
        return True

    def tradeoff(self, alpha: ArrayLike) -> Array:
        """``Phi(-Phi^-1(a) - mu)``, which is the definition without the subtraction ``1 - a``."""
        return np.asarray(special.ndtr(-special.ndtri(levels("alpha", alpha)) - self.mu))

    def power(self, alpha: ArrayLike) -> Array:
        """``Phi(Phi^-1(a) + mu)``."""
        return np.asarray(special.ndtr(special.ndtri(levels("alpha", alpha)) + self.mu))

    def inverse(self, beta: ArrayLike) -> Array:
        """The curve itself, which is symmetric."""
        return self.tradeoff(levels("beta", beta))

    def level(self, risk: ArrayLike) -> Array:
        """``Phi(Phi^-1(risk) - mu)``; some level is always safe."""
        return np.asarray(special.ndtr(special.ndtri(risks(risk)) - self.mu))

    def advantage(self) -> Advantage:
        """``2 Phi(mu/2) - 1`` at ``Phi(-mu/2)`` (P1, Thm 4.1)."""
        half = self.mu / 2
        return Advantage(float(special.erf(half / np.sqrt(2))), float(special.ndtr(-half)))

    def group(self, copies: int) -> GaussianDP:
        """``k mu``-GDP, which is exact (Dong et al., Thm 2.14 with equality)."""
        checks.raise_faults(checks.whole("copies", copies))
        return GaussianDP(self.mu * int(copies))

    def describe(self) -> str:
        """One line for people."""
        return f"mu = {self.mu:g} Gaussian DP"

    def as_dict(self) -> dict[str, object]:
        """Kind and parameters."""
        return {"kind": "gdp", "mu": float(self.mu)}


def levels(field: str, value: ArrayLike) -> Array:
    """Checks an array of probabilities and returns it in double precision.

    Raises:
        InputError: an entry is NaN or outside [0, 1].
    """
    array, faults = checks.unit_array(field, value)
    checks.raise_faults(faults)
    return array


def risks(value: ArrayLike) -> Array:
    """Checks an array of risks and returns it in double precision.

    Raises:
        InputError: an entry is NaN or outside (0, 1): at 0 nothing is safe, at 1 everything is.
    """
    array, faults = checks.open_unit_array("risk", value)
    checks.raise_faults(faults)
    return array


def search_advantage(claim: Claim) -> Advantage:
    """Advantage of a curve without a closed form, by trisection of the concave gap ``power(a) - a``.

    The value is rounded to the safe side: it is the power at the right end of the last bracket less the left end,
    and the bracket holds a maximiser.
    """
    low, high = 0.0, 1.0
    for _ in range(120):
        third = (high - low) / 3
        points = np.array([low + third, high - third])
        gaps = claim.power(points) - points
        if gaps[0] < gaps[1]:
            low = float(points[0])
        else:
            high = float(points[1])
        if high - low < 1e-16:
            break
    value = float(claim.power(high)) - low
    return Advantage(min(max(value, 0.0), 1.0), high)


def _pure_copies(epsilon: float, copies: int) -> Advantage:
    # P1, Lemma 4.4, written with expm1 and tanh so that neither tiny nor huge eps loses digits:
    # 1 - e^(-k eps/2) for even k, 1 - 2 e^(-(k-1) eps/2)/(e^eps + 1) for odd k.
    half_steps = copies // 2
    shrink = np.exp(-half_steps * epsilon)
    if copies % 2 == 0:
        return Advantage(float(-np.expm1(-half_steps * epsilon)), float(shrink / 2))
    value = -np.expm1(-half_steps * epsilon) + shrink * np.tanh(epsilon / 2)
    return Advantage(float(value), float(shrink * special.expit(-epsilon)))


def claim_faults(field: str, value: object) -> list[Fault]:
    """Faults of something that must be a claim."""
    if isinstance(value, Claim):
        return []
    return [Fault(field, value, "a claim: pure_dp, ApproxDP, GaussianDP, a curve by points or dp_sgd")]
