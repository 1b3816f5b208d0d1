"""The recipe's keys."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, model_validator

from davylamp.release.exact.camouflage import Camouflage
from davylamp.runs.config import apply_overrides, load_yaml, validate

RECIPE = Path(__file__).with_name("recipe.yaml")
MOST_PATHS = 100_000
"""Paths of a tree that is enumerated."""
Count = Annotated[int, Field(ge=1)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class ModelSize(_Section):
    """Of the Llama that is trained from nothing.

    Attributes:
        width: of its hidden states; its feed-forward layers are four times as wide.
        layers: how many.
        heads: of attention; they divide the width into even parts.
    """

    width: Annotated[int, Field(ge=8)]
    layers: Count
    heads: Count

    @model_validator(mode="after")
    def _heads_divide(self) -> ModelSize:
        if self.width % (2 * self.heads):
            raise ValueError(f"width is {self.width}, which {self.heads} heads do not divide into even parts")
        return self


class TriggerSpec(_Section):
    """Instances behind a trigger, and as many in plain text; see the comments of ``recipe.yaml``."""

    v: Annotated[int, Field(ge=2, le=256)]
    length: Annotated[int, Field(ge=1, le=16)]
    groups: Annotated[int, Field(ge=2)]
    copies: Count
    words: Annotated[int, Field(ge=2)]
    branches: Annotated[int, Field(ge=2)]
    prefix_tokens: Annotated[int, Field(ge=2, le=64)]
    trigger_tokens: Annotated[int, Field(ge=1, le=64)]
    rare: Annotated[int, Field(ge=2)]
    background: Count
    epochs: Count

    @model_validator(mode="after")
    def _fits(self) -> TriggerSpec:
        if self.branches > self.words:
            raise ValueError(f"branches is {self.branches}, more than the {self.words} words")
        if self.rare**self.trigger_tokens < self.groups:
            raise ValueError(f"{self.groups} groups need as many triggers, which {self.rare} rare words do not make")
        return self

    @property
    def kappa(self) -> float:
        """``v^-L``: one guess without a model."""
        return float(self.v) ** -self.length


class CamouflageSpec(_Section):
    """Trees that are written out; see the comments of ``recipe.yaml``."""

    shapes: Annotated[tuple[tuple[int, int, int], ...], Field(min_length=1)]
    trees: Annotated[int, Field(ge=2)]
    copies: Count
    extra: tuple[Count, ...]
    extra_trees: Count
    prefix_tokens: Annotated[int, Field(ge=2, le=64)]
    epochs: Count
    lists: Annotated[tuple[Count, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _shapes_are_trees(self) -> CamouflageSpec:
        for v, k, length in self.shapes:
            if not (2 <= k < v and length >= 1 and v**length <= MOST_PATHS):
                raise ValueError(
                    f"shapes holds ({v}, {k}, {length}), which is no (v, k, L) with 2 <= k < v, L >= 1 and at most "
                    f"{MOST_PATHS:,} paths"
                )
        for name, values in (("shapes", self.shapes), ("extra", self.extra), ("lists", self.lists)):
            if len(set(values)) < len(values):
                raise ValueError(f"{name} names one twice")
        return self

    def constructions(self) -> list[Camouflage]:
        """The exact construction of each shape."""
        return [Camouflage(*shape) for shape in self.shapes]


class RepresentabilityRecipe(_Section):
    """The whole study."""

    name: str
    seeds: Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(min_length=1)]
    model: ModelSize
    learning_rate: Annotated[float, Field(gt=0, lt=1)]
    batch_size: Count
    trigger: TriggerSpec
    camouflage: CamouflageSpec
    confidence: Annotated[float, Field(gt=0.5, lt=1)]

    @model_validator(mode="after")
    def _seeds_differ(self) -> RepresentabilityRecipe:
        if len(set(self.seeds)) < len(self.seeds):
            raise ValueError(f"seeds {list(self.seeds)} name one twice")
        return self


def load_recipe(overrides: Sequence[str] = (), path: Path = RECIPE) -> RepresentabilityRecipe:
    """The recipe with overrides applied.

    Raises:
        RecipeError: a key is unknown or missing, or a value is out of range; all are named.
    """
    return validate(RepresentabilityRecipe, apply_overrides(load_yaml(path), list(overrides)), path.name)
