"""What a study compares, held against what its recipe's audits will read: before anything is trained."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from davylamp.errors import Fault
from davylamp.measures.probes import Probe
from davylamp.measures.unseen import CLEAR
from davylamp.studies.recipe import Recipe

if TYPE_CHECKING:
    from davylamp.studies.protocol.spec import Select, Study

SAID = ("greedy_recovery", "reply_recovery")
"""Measures that are taken under ``audit.probes``."""
RANKED = ("exposure", "rank", "top", "tied", "rank_among_planted", "log_likelihood")
"""Measures that are taken under ``audit.exposure_probes``."""
FIX = "The study compares what its recipe, with its overrides, does not read."


def unread(study: Study, recipe: Recipe) -> Iterator[Fault]:
    """A fault for each thing that a study selects and no audit of its recipe will read.

    Whether a probe applies to an arm is left to the readings, and so are the roles and probes of other measures than
    :data:`SAID` and :data:`RANKED`.
    """
    variants: dict[str | None, Recipe] = {name: recipe.variant(name) for name in recipe.variants}
    variants = variants or {None: recipe}
    for number, comparison in enumerate(study.comparisons):
        yield from _unread(f"comparisons.{number}.of", comparison.of, variants)
        yield from _unread(f"comparisons.{number}.over", comparison.over, variants)
    models = _models(recipe, list(variants.values()))
    for shape_number, shape in enumerate(study.shapes):
        for number, check in enumerate(shape.checks):
            place = f"shapes.{shape_number}.checks.{number}"
            if check.level is not None:
                yield from _unread(f"{place}.level", check.level, variants)
            for at, what in enumerate(check.order or ()):
                yield from _unread(f"{place}.order.{at}", what, variants)
            for at, who in enumerate(check.utility or ()):
                yield from _missing(f"{place}.utility.{at}", who, models)


def _unread(place: str, what: Select, variants: Mapping[str | None, Recipe]) -> Iterator[Fault]:
    known = [name for name in variants if name is not None]
    if what.variant is not None and what.variant not in known:
        yield from _missing(f"{place}.variant", what.variant, known)
        return
    recipes = [*variants.values()] if what.variant is None else [variants[what.variant]]
    audit = recipes[0].audit
    if what.arm is not None:
        yield from _missing(f"{place}.arm", what.arm, _arms(what, recipes))
    if what.dose is not None:
        yield from _missing(f"{place}.dose", what.dose, _doses(what, recipes))
    if what.measure not in (*SAID, *RANKED):
        return
    roles = ["focus", "twin", "positive", *(["unseen"] if audit.unseen is not None else [])]
    yield from _missing(f"{place}.role", what.role, roles)
    yield from _missing(f"{place}.probe", what.probe, _probes(what, recipes))
    if what.release == "reference" and not (audit.before or "kappa" in audit.measures):
        yield Fault(f"{place}.release", what.release, "model, unless audit.before is true", FIX)
    if what.role == "unseen" and what.measure not in SAID and not (audit.unseen and audit.unseen.exposure):
        yield Fault(f"{place}.measure", what.measure, f"{', '.join(SAID)}, unless audit.unseen.exposure is true", FIX)


def _missing(field: str, value: object, allowed: Sequence[object]) -> Iterator[Fault]:
    if value not in allowed:
        yield Fault(field, value, ", ".join(map(str, dict.fromkeys(allowed))) or "nothing: there is none", FIX)


def _arms(what: Select, recipes: Sequence[Recipe]) -> list[str]:
    return ["control"] if what.role == "positive" else [arm for recipe in recipes for arm in recipe.plan.arms]


def _doses(what: Select, recipes: Sequence[Recipe]) -> list[int]:
    if what.role in ("twin", "nonmember"):
        return [0]
    if what.role == "positive":
        return [recipe.plan.positive_dose for recipe in recipes]
    return [dose for recipe in recipes for dose in recipe.plan.doses]


def _probes(what: Select, recipes: Sequence[Recipe]) -> list[str]:
    audit = recipes[0].audit
    if what.role == "unseen":
        if audit.unseen is None:
            return []
        names = audit.unseen.encodings
        if names is None:
            plans = [recipe.plan for recipe in recipes]
            names = tuple(own.name for plan in plans for arm in plan.arms if (own := plan.encoding_of(arm)))
        return [CLEAR, *(f"{CLEAR}:{name}" for name in names)]
    probes = audit.probes if what.measure in SAID else audit.exposure_probes
    if what.release == "reference" and not audit.before:
        probes = tuple(probe for probe in probes if probe is Probe.HIDDEN or what.measure not in SAID)
    return [probe.value for probe in probes]


def _models(recipe: Recipe, variants: Sequence[Recipe]) -> list[str]:
    """Models whose utility is measured, by the words that a check of utility knows."""
    if recipe.utility is None:
        return []
    trained = [arm for each in variants for arm in each.plan.arms] if recipe.arms == "apart" else ["all"]
    return ["base", *(["clean"] if recipe.clean else []), *trained]
