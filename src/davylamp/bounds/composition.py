"""Composition: one curve for several releases about the same record.

A piecewise linear curve is the trade-off function of a pair of finite distributions, one atom a segment. The curve of
a composition is that of the product pair (Dong et al. 2022, Def. 3.1), so composing finite pairs is exact: multiply
the atoms, sort by likelihood ratio, add up. Smooth curves are first enclosed between two polygons; the answer is the
outer (less private) one, and its slack is its distance from the composition of the inner ones.
"""

from __future__ import annotations

import math
from functools import reduce

import numpy as np
from numpy.typing import NDArray
from scipy import special

from davylamp.bounds import checks
from davylamp.bounds.claims import ApproxDP, Claim, GaussianDP, claim_faults
from davylamp.bounds.curves import PointsCurve, concave_hull
from davylamp.bounds.extraction import ROUNDING
from davylamp.errors import Fault

Array = NDArray[np.float64]
LARGEST_POLYGON = 1200  # vertices a factor may have before a product; a product has at most the square


def compose(*claims: Claim) -> Claim:
    """The curve of all the releases together, each of which keeps its own claim about the record.

    Gaussian claims compose exactly to ``sqrt(sum mu^2)``; DP-SGD runs through their privacy loss distributions;
    everything else as finite pairs, rounded to the safe side, with the distance from exact in ``slack``.

    Args:
        claims: one or more claims about the same neighbouring relation.

    Raises:
        InputError: no claim is given, or an argument is not a claim.
    """
    if not claims:
        checks.raise_faults([Fault("claims", [], "at least one claim")])
    checks.raise_faults(*(claim_faults(f"claims[{i}]", claim) for i, claim in enumerate(claims)))
    if len(claims) == 1:
        return claims[0]
    if all(isinstance(claim, GaussianDP) for claim in claims):
        return GaussianDP(math.hypot(*(claim.mu for claim in claims if isinstance(claim, GaussianDP))))
    merged = _merge_dp_sgd(list(claims))
    if len(merged) == 1:
        return merged[0]
    pairs = [enclose(claim) for claim in merged]
    outer = reduce(lambda a, b: _coarser(_product(a, b), keep_above=True), [outer for outer, _ in pairs])
    inner = reduce(lambda a, b: _coarser(_product(a, b), keep_above=False), [inner for _, inner in pairs])
    slack = curve_gap(outer, inner)
    name = " + ".join(claim.describe() for claim in merged)
    return PointsCurve(outer.alphas, outer.powers, slack=slack if slack > 1e-13 else 0.0, name=name)


def curve_gap(outer: PointsCurve, inner: PointsCurve) -> float:
    """Largest difference in power, ``sup_a outer - inner``; both are linear between the union of their vertices."""
    x = np.union1d(outer.alphas, inner.alphas)
    return max(0.0, float(np.max(outer.power(x) - inner.power(x))))


def outer_polygon(claim: Claim, grid: Array) -> PointsCurve:
    """Least polygon known to contain a concave power curve from its values on a grid.

    Between two grid points the curve lies below both neighbouring chords prolonged; their meeting points are the
    vertices.

    Args:
        claim: any claim.
        grid: rising levels from 0 to 1, at least 4; those too close to their neighbours for a slope are left out.
    """
    grid = _spaced(grid)
    w = np.asarray(claim.power(grid))
    slopes = np.diff(w) / np.diff(grid)
    before, after = slopes[:-2], slopes[2:]
    start, width, rise = grid[1:-2], np.diff(grid)[1:-1], np.diff(w)[1:-1]
    with np.errstate(divide="ignore", invalid="ignore"):
        step = (rise - after * width) / (before - after)
    step = np.clip(np.where(np.isfinite(step), step, 0.0), 0.0, width)
    x = np.concatenate([[0.0], start + step, [1.0]])
    first = max(w[0], w[1] - slopes[1] * grid[1])
    y = np.concatenate([[first], w[1:-2] + before * step, [1.0]])
    # The last interval is bounded by the prolonged chord before it, up to power 1.
    if slopes[-2] > 0 and w[-2] < 1:
        x = np.append(x, min(1.0, grid[-2] + (1 - w[-2]) / slopes[-2]))
        y = np.append(y, min(1.0, w[-2] + slopes[-2] * (1 - grid[-2])))
    # Values carry a relative 1e-16, slopes between neighbours (apart by a thousandth or more) a thousandfold: lifted.
    return PointsCurve(*concave_hull(np.append(x, grid), np.minimum(np.append(y, w) * (1 + ROUNDING), 1.0)))


def _spaced(grid: Array) -> Array:
    """Levels that differ by 0.2% or more, of themselves below 1/2 and of their complements above; keeps 0 and 1."""
    kept, last = [0.0], -np.inf
    for a in grid[(grid > 0) & (grid < 1)].tolist():
        place = math.log(a) if a <= 0.5 else 2 * math.log(0.5) - math.log1p(-a)
        if place >= last + 2e-3:
            kept.append(a)
            last = place
    return np.array([*kept, 1.0])


def _merge_dp_sgd(claims: list[Claim]) -> list[Claim]:
    from davylamp.bounds.dpsgd import DPSGD, join_runs

    runs = [claim for claim in claims if isinstance(claim, DPSGD)]
    rest = [claim for claim in claims if not isinstance(claim, DPSGD)]
    return [*rest, join_runs(runs)] if runs else rest


def enclose(claim: Claim) -> tuple[PointsCurve, PointsCurve]:
    """An outer and an inner polygon of a claim, the same one where it is a polygon itself."""
    from davylamp.bounds.dpsgd import DPSGD

    if isinstance(claim, DPSGD):
        return _coarser(claim.curve, keep_above=True), _coarser(claim.optimistic, keep_above=False)
    if isinstance(claim, PointsCurve):
        return _coarser(claim, keep_above=True), _coarser(claim, keep_above=False)
    if isinstance(claim, ApproxDP) and claim.copies == 1:
        kink = (1 - claim.delta) * float(special.expit(-claim.epsilon))
        grid = np.unique([0.0, kink, 1 - claim.delta, 1.0])
        exact = PointsCurve(*concave_hull(grid, claim.power(grid)))
        return exact, exact
    # Levels dense near both ends, and their mirror images, so that both tails of the curve are followed.
    tail = special.ndtr(np.linspace(-8.5, 0, LARGEST_POLYGON // 4))
    grid = np.unique(np.concatenate([[0.0, 1.0], tail, 1 - tail, claim.tradeoff(tail), 1 - claim.power(tail)]))
    return outer_polygon(claim, grid), PointsCurve(*concave_hull(grid, claim.power(grid)))


def _product(first: PointsCurve, second: PointsCurve) -> PointsCurve:
    """Curve of the product of the two finite pairs."""
    q = np.multiply.outer(_masses(first.alphas), _masses(second.alphas)).ravel()
    p = np.multiply.outer(_masses(first.powers), _masses(second.powers)).ravel()
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(q > 0, p / q, np.where(p > 0, np.inf, 0.0))
    order = np.argsort(-ratio, kind="stable")
    jump = float(p[ratio == np.inf].sum())
    q, p, ratio = q[order], p[order], ratio[order]
    # One vertex a distinct likelihood ratio (to 1e-13): equal ratios lie on one line.
    finite = ratio < np.inf
    x = np.concatenate([[0.0], np.cumsum(q[finite])])
    y = np.concatenate([[jump], jump + np.cumsum(p[finite])])
    r = ratio[finite]
    keep = np.concatenate([[True], np.append(r[1:] < r[:-1] * (1 - 1e-13), True)])
    x, y = np.minimum(x[keep], 1.0), np.minimum(y[keep], 1.0)
    return PointsCurve(*concave_hull(np.append(x, 1.0), np.append(y, 1.0)))


def _masses(rising: Array) -> Array:
    return np.diff(rising, prepend=0.0)


def _coarser(curve: PointsCurve, keep_above: bool) -> PointsCurve:
    """At most ``LARGEST_POLYGON`` vertices: an enclosing polygon (above), or some of the curve's own vertices."""
    a, w = curve.alphas, curve.powers
    count = len(a) - 1
    if count <= LARGEST_POLYGON:
        return curve
    # Half of the segments by arc length, half by logarithm of the likelihood ratio, which the tails need.
    arc = a[:-1] + w[:-1]
    with np.errstate(divide="ignore"):
        ratio = np.log(np.maximum(np.diff(w), 1e-300) / np.diff(a))
    half = LARGEST_POLYGON // 2 - 2
    by_arc = np.searchsorted(arc, np.linspace(arc[0], arc[-1], half)).clip(0, count - 1)
    by_ratio = np.searchsorted(-ratio, np.linspace(-ratio[0], min(-ratio[-1], 60.0), half)).clip(0, count - 1)
    grid = a[np.unique(np.concatenate([[0, count], by_arc, by_ratio]))]
    if keep_above:
        return outer_polygon(curve, grid)
    return PointsCurve(*concave_hull(grid, curve.power(grid)))
