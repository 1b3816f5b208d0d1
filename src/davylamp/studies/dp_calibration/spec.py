"""The recipe's keys."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from davylamp.runs.config import apply_overrides, load_yaml, validate
from davylamp.training.dp.spec import DPSpec
from davylamp.training.spec import TrainingSpec

RECIPE = Path(__file__).with_name("recipe.yaml")
DIGITS = 4
"""Digits of a canary's code."""
Epsilon = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class PrivateTraining(BaseModel):
    """How each model is trained.

    Attributes:
        batch_size: rows of a batch in expectation.
        epochs: passes over the rows in expectation.
        learning_rate: of AdamW, constant.
        max_grad_norm: clipping norm of a row.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    batch_size: Annotated[int, Field(ge=1)]
    epochs: Annotated[int, Field(ge=1)]
    learning_rate: Annotated[float, Field(gt=0, lt=1)]
    max_grad_norm: Annotated[float, Field(gt=0)] = 1.0

    def spec(self, epsilon: float | None, delta: float) -> TrainingSpec:
        """The same as a training's settings; no epsilon clips and adds no noise."""
        return TrainingSpec(
            batch_size=self.batch_size,
            epochs=self.epochs,
            learning_rate=self.learning_rate,
            dp=DPSpec(
                epsilon=epsilon,
                noise_multiplier=0 if epsilon is None else None,
                delta=delta,
                max_grad_norm=self.max_grad_norm,
                # All rows of most batches in one pass.
                physical_batch=2 * self.batch_size,
            ),
        )


class CalibrationRecipe(BaseModel):
    """The whole study; see the comments of ``recipe.yaml``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    seed: Annotated[int, Field(ge=0)]
    model: str
    epsilons: Annotated[tuple[Epsilon, ...], Field(min_length=1)]
    copies: Annotated[tuple[Annotated[int, Field(ge=1)], ...], Field(min_length=1)]
    per_copy: Annotated[int, Field(ge=1)]
    pairs: Annotated[int, Field(ge=2)]
    background: Annotated[int, Field(ge=1)]
    training: PrivateTraining
    digits: Annotated[tuple[Annotated[int, Field(ge=1, le=DIGITS)], ...], Field(min_length=1)]
    choices: tuple[Annotated[int, Field(ge=2, le=9)], ...] = ()
    risk: Annotated[float, Field(gt=0, lt=1)]
    largest_cap: Annotated[float, Field(gt=0, le=1)]

    @property
    def rows(self) -> int:
        """Rows that a model is trained on in expectation: the background, and half of the canaries' rows."""
        return self.background + self.per_copy * sum(self.copies) // 2

    @property
    def delta(self) -> float:
        """Delta of every claim."""
        return 1 / (10 * self.rows)


def load_recipe(overrides: list[str] | None = None, path: Path = RECIPE) -> CalibrationRecipe:
    """The recipe with overrides applied.

    Raises:
        RecipeError: a key is unknown or missing, or a value is out of range; all are named.
    """
    return validate(CalibrationRecipe, apply_overrides(load_yaml(path), overrides or []), path.name)
