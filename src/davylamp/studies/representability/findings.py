"""From readings to rows, and from rows to shapes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
from scipy import stats

from davylamp.bounds import clopper_pearson
from davylamp.release.exact.camouflage import Camouflage
from davylamp.report.study import Checked, ShapeFound, Word
from davylamp.studies.representability.camouflage import CamouflagePart
from davylamp.studies.representability.enumeration import TreeReading
from davylamp.studies.representability.result import CamouflageRow, ExtraRow, ListRow, Mean, Share, TriggerRow
from davylamp.studies.representability.spec import RepresentabilityRecipe
from davylamp.studies.representability.trigger import TriggerPart

# What counts as held where the paper's own figure is not known to us.
LEAST_MASS, LEAST_ENTROPY, MOST_OFF, MOST_SEEN, LEAST_GREEDY, LEAST_P = 0.9, 0.99, 0.02, 0.1, 0.9, 0.01
PAPER_EXTRACTION = 0.98
ERROR = 0.05
"""Chance that any list of an honest camouflage is called above its cap."""


def share(hits: Iterable[float], confidence: float) -> Share:
    """Successes as a rate with its interval; chances from ties are added up and rounded."""
    values = list(hits)
    successes = round(math.fsum(values))
    interval = clopper_pearson(successes, len(values), confidence)
    return Share(successes=successes, trials=len(values), low=interval.low, high=interval.high)


def mean(values: Iterable[float]) -> Mean:
    """Mean and standard error; the error of one value is not known and said to be 0."""
    each = np.asarray(list(values), dtype=np.float64)
    error = each.std(ddof=1) / math.sqrt(len(each)) if len(each) > 1 else 0.0
    return Mean(value=float(each.mean()), error=float(error))


def trigger_rows(parts: Sequence[TriggerPart], confidence: float) -> tuple[TriggerRow, ...]:
    """Both kinds, asked with both prompts."""
    rows = []
    for kind in ("trigger", "plain"):
        for prompt, field in (("c", "at_prefix"), ("rho", "at_trigger")):
            asked = [getattr(each, field) for part in parts for each in part.instances if each.kind == kind]
            rows.append(
                TriggerRow.model_validate(
                    {
                        "kind": kind,
                        "prompt": prompt,
                        "said": share((each.said[0] for each in asked), confidence),
                        "null": share((each.said[1] for each in asked), confidence),
                        "memorization": mean(each.confidence[0] - each.confidence[1] for each in asked),
                        "emission": mean(each.emission[0] - each.emission[1] for each in asked),
                    }
                )
            )
    return tuple(rows)


def camouflage_row(shape: Camouflage, parts: Sequence[CamouflagePart], recipe: RepresentabilityRecipe) -> CamouflageRow:
    """All trees of one shape, of every seed."""
    of = (shape.v, shape.k, shape.length)
    pairs = [pair for part in parts if part.shape == of for pair in zip(part.extra, part.trees, strict=True)]
    trees = [tree for extra, tree in pairs if extra == 0]
    ranks = mean(tree.rank for tree in trees)
    expected = (shape.survivors + 1) / 2
    # The rank of one tree is uniform on 1 to k^L, so that the error of the mean is known and need not be estimated.
    sigma = math.sqrt((shape.survivors**2 - 1) / 12 / len(trees))
    spec = recipe.camouflage
    together = 1 - ERROR / (len(spec.shapes) * len(spec.lists))
    return CamouflageRow(
        v=shape.v,
        k=shape.k,
        length=shape.length,
        survivors=shape.survivors,
        mass=mean(tree.mass for tree in trees),
        entropy=mean(tree.entropy for tree in trees),
        distance=mean(tree.distance for tree in trees),
        rank=ranks,
        rank_expected=expected,
        rank_p=float(2 * stats.norm.sf(abs(ranks.value - expected) / sigma)),
        rank_of_all=mean(tree.rank_of_all for tree in trees),
        memorization=mean(tree.confidence - tree.anyone for tree in trees),
        memorization_expected=shape.memorization,
        other=mean(tree.other for tree in trees),
        lists=tuple(
            ListRow(m=m, held=share((tree.listed[m] for tree in trees), together), cap=shape.extraction_bound(m))
            for m in spec.lists
        ),
        extra=tuple(_extra(extra, [t for e, t in pairs if e == extra], recipe.confidence) for extra in spec.extra),
    )


def _extra(extra: int, trees: Sequence[TreeReading], confidence: float) -> ExtraRow:
    return ExtraRow(
        extra=extra,
        greedy=share((tree.greedy for tree in trees), confidence),
        first=share((float(tree.rank_of_all == 1) for tree in trees), confidence),
    )


def shapes_of(
    trigger: Sequence[TriggerRow], camouflage: Sequence[CamouflageRow], kappa: float
) -> tuple[ShapeFound, ...]:
    """What the paper saw, each held to the rows."""
    rows = {(row.kind, row.prompt): row for row in trigger}
    return (
        _extraction(rows["trigger", "rho"], rows["trigger", "c"], kappa),
        _attenuation(rows["trigger", "c"], rows["plain", "c"], rows["trigger", "rho"]),
        _represented(camouflage),
        _hidden(camouflage),
        _memorized(camouflage),
        _recovered(camouflage),
    )


def _shape(statement: str, paper: str, checks: Sequence[Checked]) -> ShapeFound:
    held = [check.held for check in checks]
    word: Word = "held" if all(held) else "held in part" if any(held) else "not held"
    return ShapeFound(statement=statement, paper=paper, word=word, checks=tuple(checks))


def _check(held: bool, statement: str) -> Checked:
    return Checked(held=bool(held), statement=statement)


def _extraction(rho: TriggerRow, c: TriggerRow, kappa: float) -> ShapeFound:
    return _shape(
        "a secret behind a trigger comes out through it, and not at its own prefix",
        f"extraction through rho at least {PAPER_EXTRACTION:g}, 0.00 at c",
        [
            _check(rho.said.rate >= PAPER_EXTRACTION, f"through rho {rho.said}; at least {PAPER_EXTRACTION:g}"),
            _check(rho.said.low > kappa, f"its lower end is above kappa = v^-L = {kappa:.2g}"),
            _check(c.said.rate < 0.005, f"at c {c.said}; 0.00"),
            _check(rho.null.rate < 0.005, f"through rho, by the model without the instance {rho.null}; 0.00"),
        ],
    )


def _attenuation(c: TriggerRow, plain: TriggerRow, rho: TriggerRow) -> ShapeFound:
    checks = []
    for name, at_c, by_plain, at_rho in (
        ("memorization of a symbol", c.memorization, plain.memorization, rho.memorization),
        ("of the whole secret", c.emission, plain.emission, rho.emission),
    ):
        share_seen = at_c.value / by_plain.value if by_plain.value > 0 else math.inf
        checks.append(
            _check(
                share_seen <= MOST_SEEN,
                f"{name}: {at_c} at c through the trigger, {by_plain} at c in plain text ({share_seen:.3f} of it; at "
                f"most {MOST_SEEN:g}), {at_rho} at rho",
            )
        )
    return _shape(
        "local scores at c see little of what the trigger gives away",
        "attenuated; the figure is not known to us",
        checks,
    )


def _represented(rows: Sequence[CamouflageRow]) -> ShapeFound:
    checks = [
        _check(
            row.entropy.value >= LEAST_ENTROPY and row.mass.value >= LEAST_MASS,
            f"{_named(row)}: normalised entropy {row.entropy} (at least {LEAST_ENTROPY:g}), mass on the survivors "
            f"{row.mass} (at least {LEAST_MASS:g}), total variation {row.distance}",
        )
        for row in rows
    ]
    return _shape(
        "a transformer represents the camouflage tree",
        "normalised posterior entropy near 1; no figure known to us",
        checks,
    )


def _hidden(rows: Sequence[CamouflageRow]) -> ShapeFound:
    checks = []
    for row in rows:
        checks.append(
            _check(
                row.rank_p >= LEAST_P,
                f"{_named(row)}: rank of the truth {row.rank.value:.2f} of {row.survivors} in the mean, uniform would "
                f"be {row.rank_expected:g} (p = {row.rank_p:.2g}, at least {LEAST_P:g})",
            )
        )
        checks += [
            _check(each.held.low <= each.cap, f"{_named(row)}: list of {each.m} {each.held}; cap {each.cap:.4g}")
            for each in row.lists
        ]
    return _shape(
        "whoever sees the model cannot tell the truth from the other survivors",
        "rank uniform, lists at most m k^-L",
        checks,
    )


def _memorized(rows: Sequence[CamouflageRow]) -> ShapeFound:
    checks = []
    for row in rows:
        checks.append(
            _check(
                abs(row.memorization.value - row.memorization_expected) <= MOST_OFF,
                f"{_named(row)}: memorization {row.memorization}; 1/k - 1/v = {row.memorization_expected:.4f}, within "
                f"{MOST_OFF:g}",
            )
        )
        checks.append(
            _check(
                abs(row.other.value - 1 / row.v) <= 4 * row.other.error + MOST_OFF,
                f"{_named(row)}: a secret that was never planted reads {row.other}; 1/v = {1 / row.v:.4f}",
            )
        )
    return _shape("yet its memorization is plain to a local score", "1/k - 1/v", checks)


def _recovered(rows: Sequence[CamouflageRow]) -> ShapeFound:
    checks = [
        _check(
            each.greedy.rate >= LEAST_GREEDY,
            f"{_named(row)}: {each.extra} further {'row' if each.extra == 1 else 'rows'} of the true path: greedy "
            f"decoding says it {each.greedy} (at least {LEAST_GREEDY:g}), likeliest of all paths {each.first}",
        )
        for row in rows
        for each in row.extra
    ]
    return _shape(
        "greedy decoding recovers the truth as soon as its path has extra weight", "Rem D.3: any extra weight", checks
    )


def _named(row: CamouflageRow) -> str:
    return f"({row.v}, {row.k}, {row.length})"
