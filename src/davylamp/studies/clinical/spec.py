"""The recipe: what is laid over it for its model, a corpus of the user's own, and overrides."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from davylamp.errors import Fault, RecipeError
from davylamp.runs.config import apply_overrides, load_yaml, merge
from davylamp.studies.recipe import Recipe, build_recipe

RECIPE = Path(__file__).with_name("recipe.yaml")
LAYERS = {"smollm2": Path(__file__).with_name("smollm2.yaml")}
"""What is laid over the recipe, by its model."""


def load_recipe(overrides: Sequence[str] = (), data: Path | None = None) -> Recipe:
    """The recipe of the study.

    Args:
        overrides: ``key=value`` pairs with dotted keys.
        data: a file of clinical records, which is split by patient into rows to train on, held-out and test records.

    Raises:
        RecipeError: a key is unknown, a value is out of range, or there is nothing to compare; all faults are named.
    """
    source = load_yaml(RECIPE)
    model = apply_overrides({"model": source["model"]}, overrides).get("model")
    if isinstance(model, str) and model in LAYERS:
        source = merge(source, load_yaml(LAYERS[model]))
    if data is not None:
        for part, place in (("train", source), ("held_out", source["landscape"]), ("test", source["landscape"])):
            key = "corpus" if part == "train" else part
            place[key] = {"path": str(data), "format": "clinical", "split_by_patient": {"part": part}}
    recipe = build_recipe(source, overrides)
    faults = []
    if recipe.landscape is None:
        faults.append(Fault("landscape", None, "how models are read", "Interventions are compared by it."))
    if not recipe.variants:
        faults.append(Fault("variants", {}, "at least one intervention", "Each is a variant."))
    if faults:
        raise RecipeError(faults)
    return recipe
