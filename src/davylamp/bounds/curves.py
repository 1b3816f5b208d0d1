"""Trade-off curves given by points, and curves without a closed form: groups and symmetrised curves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from davylamp.bounds import checks
from davylamp.bounds.claims import Advantage, Claim, claim_faults, levels, risks, search_advantage
from davylamp.errors import Fault

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class PointsCurve:
    """A piecewise linear trade-off curve; build it with :func:`curve_by_points`.

    Attributes:
        alphas: type-I levels of the vertices, strictly rising from 0 to 1.
        powers: ``1 - f`` there: concave, rising to 1.
        slack: how far (absolute) the curve may lie below the exact one that it stands for; 0 where it is exact.
        name: what the curve describes.
    """

    alphas: Array
    powers: Array
    slack: float = 0.0
    name: str = "curve by points"

    @property
    def betas(self) -> Array:
        """Type-II errors at the vertices."""
        return 1 - self.powers

    @property
    def symmetric(self) -> bool:
        """Whether the curve is its own inverse, to within 1e-12 at every vertex."""
        rising = self.alphas <= self._end
        mirrored = self.power(np.clip(1 - self.powers[rising], 0, 1))
        return bool(np.max(np.abs(mirrored - (1 - self.alphas[rising]))) < 1e-12)

    @property
    def _end(self) -> float:
        """Least level at which the power is 1."""
        return float(self.alphas[int(np.argmax(self.powers >= 1))])

    def tradeoff(self, alpha: ArrayLike) -> Array:
        """Least type-II error at type-I level ``alpha``."""
        return np.asarray(1 - self.power(alpha))

    def power(self, alpha: ArrayLike) -> Array:
        """Largest power at type-I level ``alpha``."""
        return np.asarray(np.interp(levels("alpha", alpha), self.alphas, self.powers))

    def inverse(self, beta: ArrayLike) -> Array:
        """Left inverse ``inf {a : f(a) <= beta}``."""
        return self._level(1 - levels("beta", beta))

    def level(self, risk: ArrayLike) -> Array:
        """``sup {a : 1 - f(a) <= risk}``; negative where ``risk`` is below ``1 - f(0)``."""
        wanted = risks(risk)
        return np.where(wanted < self.powers[0], -1.0, self._level(wanted))

    def _level(self, power: Array) -> Array:
        last = int(np.argmax(self.powers >= 1)) + 1
        return np.asarray(np.interp(power, self.powers[:last], self.alphas[:last]))

    def advantage(self) -> Advantage:
        """Largest gap between power and level, which some vertex attains."""
        gaps = self.powers - self.alphas
        # Where the curve has slope -1 every level attains it: the least one is given, whatever rounding prefers.
        first = int(np.argmax(gaps >= gaps.max() - 1e-12))
        return Advantage(float(gaps.max()), float(self.alphas[first]))

    def group(self, copies: int) -> Claim:
        """The k-fold curve, evaluated step by step."""
        checks.raise_faults(checks.whole("copies", copies))
        return self if copies == 1 else GroupedCurve(self, int(copies))

    def describe(self) -> str:
        """One line for people."""
        exact = "" if self.slack == 0 else f", at most {self.slack:.1e} below the exact curve"
        return f"{self.name}, {len(self.alphas)} points{exact}"

    def as_dict(self) -> dict[str, object]:
        """Kind and size; the points themselves are left out where there are many."""
        shown: dict[str, object] = {"kind": "points", "points": len(self.alphas), "slack": self.slack}
        if len(self.alphas) <= 100:
            shown |= {"alphas": self.alphas.tolist(), "betas": self.betas.tolist()}
        return shown


def curve_by_points(alphas: ArrayLike, betas: ArrayLike, name: str = "curve by points") -> PointsCurve:
    """The lower convex hull of given points ``(alpha, f(alpha))``, joined by straight lines.

    The hull is taken because a trade-off function is convex: a point above the hull claims more privacy than the
    others allow, and is dropped. The point (1, 0), which every curve has, is added; the point at alpha = 0 must be
    given, since ``1 - f(0)`` is the probability of a catastrophic leak and cannot be guessed on the safe side.

    Args:
        alphas: type-I levels, shape (n,), in [0, 1], in any order.
        betas: type-II errors there, shape (n,), each at most ``1 - alpha``.
        name: what the curve describes.

    Raises:
        InputError: points are missing, unequal in number, outside [0, 1] or above ``1 - alpha``.
    """
    x, faults = checks.unit_array("alphas", alphas)
    y, more = checks.unit_array("betas", betas)
    checks.raise_faults(faults, more)
    checks.raise_faults(_point_faults(x, y))
    return PointsCurve(*concave_hull(np.append(x, 1.0), np.append(1 - y, 1.0)), name=name)


def _point_faults(alphas: Array, betas: Array) -> list[Fault]:
    if alphas.ndim != 1 or alphas.size == 0:
        return [Fault("alphas", alphas.tolist(), "a non-empty list of numbers from 0 to 1")]
    if alphas.shape != betas.shape:
        return [Fault("betas", betas.tolist(), f"as many numbers as alphas ({alphas.size})")]
    faults = []
    if not (alphas == 0).any():
        faults.append(
            Fault(
                "alphas", float(alphas.min()), "a list that contains 0", "Add the point (0, f(0)); f(0) is 1 - delta."
            )
        )
    above = np.flatnonzero(alphas + betas > 1 + 1e-12)
    if above.size:
        first = int(above[0])
        faults.append(
            Fault(f"betas[{first}]", float(betas[first]), f"at most 1 - alphas[{first}] ({1 - alphas[first]:g})")
        )
    return faults


def concave_hull(x: Array, y: Array) -> tuple[Array, Array]:
    """Least concave function above the points, as vertices with strictly rising ``x``; never falls."""
    order = np.lexsort((-y, x))
    hull: list[tuple[float, float]] = []
    for px, py in zip(x[order].tolist(), np.clip(y[order], 0.0, 1.0).tolist(), strict=True):
        if hull and px == hull[-1][0]:
            continue
        while len(hull) >= 2:
            (ax, ay), (bx, by) = hull[-2], hull[-1]
            if (by - ay) * (px - bx) > (py - by) * (bx - ax):
                break
            hull.pop()
        hull.append((px, py))
    out = np.array(hull)
    return np.ascontiguousarray(out[:, 0]), np.maximum.accumulate(out[:, 1])


@dataclass(frozen=True, slots=True)
class GroupedCurve:
    """``f^(k) = 1 - (1-f)^{∘k}``: the curve of ``base`` for data sets that differ in ``copies`` records.

    Source: Dong, Roth and Su 2022, Thm 2.14. Evaluated by applying the power curve ``copies`` times; stops early
    when nothing moves any more.
    """

    base: Claim
    copies: int

    def __post_init__(self) -> None:
        checks.raise_faults(claim_faults("base", self.base), checks.whole("copies", self.copies))

    @property
    def symmetric(self) -> bool:
        """As the base curve: iterating keeps the symmetry."""
        return self.base.symmetric

    def tradeoff(self, alpha: ArrayLike) -> Array:
        """Least type-II error at type-I level ``alpha``."""
        return np.asarray(1 - self.power(alpha))

    def power(self, alpha: ArrayLike) -> Array:
        """The base's power applied ``copies`` times."""
        value = levels("alpha", alpha)
        for _ in range(self.copies):
            following = np.minimum(self.base.power(value), 1.0)
            if np.array_equal(following, value):
                break
            value = following
        return value

    def inverse(self, beta: ArrayLike) -> Array:
        """Left inverse: each step undone in turn (``f^-1 = 1 - g`` of the inverse power)."""
        value = levels("beta", beta)
        for _ in range(self.copies):
            following = 1 - self.base.inverse(value)
            if np.array_equal(following, value):
                break
            value = following
        return np.asarray(1 - value)

    def level(self, risk: ArrayLike) -> Array:
        """``sup {a : 1 - f(a) <= risk}``: the base's level, taken ``copies`` times; negative where none is."""
        value = risks(risk)
        for _ in range(self.copies):
            inside = (value > 0) & (value < 1)
            stepped = self.base.level(np.where(inside, value, 0.5))
            # At level 0 a further step is safe only if the base never succeeds from 0.
            stuck = np.where((value == 0) & (self.base.power(0.0) == 0), 0.0, -1.0)
            following = np.where(inside, stepped, np.where(value >= 1, 1.0, stuck))
            if np.array_equal(following, value):
                break
            value = following
        return value

    def advantage(self) -> Advantage:
        """By trisection, rounded to the safe side."""
        return search_advantage(self)

    def group(self, copies: int) -> GroupedCurve:
        """The curve for ``copies`` times as many records."""
        checks.raise_faults(checks.whole("copies", copies))
        return GroupedCurve(self.base, self.copies * int(copies))

    def describe(self) -> str:
        """One line for people."""
        return f"{self.base.describe()} over {self.copies} copies"

    def as_dict(self) -> dict[str, object]:
        """The base's description with the number of copies."""
        return {**self.base.as_dict(), "copies": self.copies}


def symmetrised(claim: Claim, orders: Literal["both", "one"] = "both") -> Claim:
    """The symmetric curve that a claim implies; a symmetric claim is its own.

    Args:
        claim: any claim; one that is neither symmetric nor given by points is first enclosed in a polygon.
        orders: ``both`` where the claim holds for each order of the two data sets, as f-DP means it: then
            ``max(f, f^-1)`` holds too (Dong et al. 2022, Prop. 2.4). ``one`` where ``f`` describes only one order
            (say, removing a record): then only the lower convex hull of ``min(f, f^-1)`` holds for both.

    Raises:
        InputError: ``orders`` is neither.
    """
    wrong = [] if orders in ("both", "one") else [Fault("orders", orders, "'both' or 'one'")]
    checks.raise_faults(claim_faults("claim", claim), wrong)
    if claim.symmetric:
        return claim
    return _symmetrised_points(claim if isinstance(claim, PointsCurve) else _polygon(claim), orders)


def _polygon(claim: Claim) -> PointsCurve:
    from davylamp.bounds.composition import enclose

    return enclose(claim)[0]


def _symmetrised_points(curve: PointsCurve, orders: str) -> PointsCurve:
    rising = curve.powers < 1
    mirror_x = np.concatenate([1 - curve.powers[rising], [0.0, 1.0]])
    mirror_y = np.concatenate([1 - curve.alphas[rising], [1 - curve._end, 1.0]])
    mirror = PointsCurve(*concave_hull(mirror_x, mirror_y))
    x = np.union1d(curve.alphas, mirror.alphas)
    ours, theirs = curve.power(x), mirror.power(x)
    if orders == "one":
        return PointsCurve(*concave_hull(x, np.maximum(ours, theirs)), slack=curve.slack, name=curve.name)
    gap = ours - theirs
    cross = np.flatnonzero(gap[:-1] * gap[1:] < 0)
    share = gap[cross] / (gap[cross] - gap[cross + 1])
    met = x[cross] + share * (x[cross + 1] - x[cross])
    x = np.union1d(x, met)
    lower = np.minimum(curve.power(x), mirror.power(x))
    return PointsCurve(*concave_hull(x, lower), slack=curve.slack, name=curve.name)
