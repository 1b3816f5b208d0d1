"""The recipe's keys."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from davylamp.runs.config import apply_overrides, load_yaml, validate

RECIPE = Path(__file__).with_name("recipe.yaml")
Epsilon = Annotated[float, Field(gt=0, le=50, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=100, le=100_000_000)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Curves(_Section):
    """The three advantage curves."""

    epsilons: Annotated[list[Epsilon], Field(min_length=2)]
    delta: Annotated[float, Field(ge=0, lt=1)]


class Corpus(_Section):
    """A corpus of values drawn from a Zipf law."""

    values: Annotated[int, Field(ge=10, le=1_000_000)]
    records: Annotated[int, Field(ge=1, le=100_000_000)]
    exponent: Annotated[float, Field(ge=0, le=10)]


class Staircase(_Section):
    """A canary planted k times in the corpus."""

    epsilon: Epsilon
    copies: Annotated[int, Field(ge=1, le=50)]
    corpus: Corpus


class Sweep(_Section):
    """Uniform secrets of growing entropy."""

    epsilon: Epsilon
    budget: Annotated[int, Field(ge=1, le=1000)]
    risk: Annotated[float, Field(gt=0, lt=1)]
    bits: Annotated[list[Annotated[int, Field(ge=1, le=50)]], Field(min_length=2)]


class Zipf(_Section):
    """A Zipf prior."""

    exponent: Annotated[float, Field(ge=0, le=10)]
    values: Annotated[int, Field(ge=2, le=20_000)]


class Canaries(_Section):
    """The low-entropy canary and the uniform one."""

    epsilon: Epsilon
    budget: Annotated[int, Field(ge=1, le=100)]
    trials: Count
    zipf: Zipf
    uniform_bits: Annotated[int, Field(ge=2, le=14)]


class Instances(_Section):
    """Records with privacy parameters of their own."""

    number: Annotated[int, Field(ge=10, le=100_000)]
    low: Epsilon
    high: Epsilon
    flip: Annotated[float, Field(ge=0, le=0.5)]
    trials: Count


class MechanismsRecipe(_Section):
    """The whole study."""

    name: str
    seed: Annotated[int, Field(ge=0)]
    trials: Count
    curves: Curves
    staircase: Staircase
    sweep: Sweep
    canaries: Canaries
    instances: Instances


def load_recipe(overrides: list[str] | None = None, path: Path = RECIPE) -> MechanismsRecipe:
    """The recipe with overrides applied.

    Raises:
        RecipeError: a key is unknown or missing, or a value is out of range; all are named.
    """
    return validate(MechanismsRecipe, apply_overrides(load_yaml(path), overrides or []), path.name)
