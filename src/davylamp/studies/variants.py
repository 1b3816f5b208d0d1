"""What the variants of a recipe may change, and what is wrong with what they do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict

from davylamp.canaries.plan import Plan
from davylamp.errors import Fault, RecipeError
from davylamp.protect.corpus.registry import Interventions
from davylamp.runs.faults import WHOLE, check, inside
from davylamp.training.spec import TrainingSpec

VARIED = ("plan", "training", "protect")
"""What variants may differ in: the questions asked of every model are the same."""
MAY_VARY = "a key that begins with plan. or training., or protect: the questions asked of every model are the same"


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Protecting(_Strict):
    """What is done to the rows."""

    protect: Interventions = ()


class Varied(Protecting):
    """What a variant may change."""

    plan: Plan
    training: TrainingSpec


def protections(variants: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Check what variants do to the rows, which depends on nothing else: with all other faults, whatever they are."""
    faults = []
    for name, changes in variants.items():
        if "protect" in changes:
            _, found = check(Protecting, {"protect": changes["protect"]})
            faults += [inside(name, fault) for fault in found]
    if faults:
        raise RecipeError(faults)
    return variants


def unfit(field: str, faults: Sequence[str]) -> Iterator[Fault]:
    """What does not fit together in a recipe, or in one of its variants, as one fault."""
    if faults:
        yield Fault(field, WHOLE, "values that fit together", "; ".join(faults))
