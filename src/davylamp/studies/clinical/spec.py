"""The recipe: what is laid over it for its model, a corpus of the user's own, and overrides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from davylamp.errors import Fault, RecipeError
from davylamp.runs.config import apply_overrides, load_yaml, merge
from davylamp.studies.recipe import Recipe, build_recipe

RECIPE = Path(__file__).with_name("recipe.yaml")
LAYERS = {"smollm2": Path(__file__).with_name("smollm2.yaml")}
"""What is laid over the recipe, by its model."""
REWRITERS = Path(__file__).with_name("rewriters.yaml")
"""What is laid over it where a rewriter is named."""


def load_recipe(overrides: Sequence[str] = (), data: Path | None = None) -> Recipe:
    """The recipe of the study.

    Args:
        overrides: ``key=value`` pairs with dotted keys. ``rewriter`` asks for the interventions that need a language
            model: the name of a checkpoint, or settings of a rewriter.
        data: a file of clinical records, which is split by patient into rows to train on, held-out and test records.

    Raises:
        RecipeError: a key is unknown, a value is out of range, or there is nothing to compare; all faults are named.
    """
    source = load_yaml(RECIPE)
    asked, overrides = _apart(overrides)
    model = apply_overrides({"model": source["model"]}, overrides).get("model")
    if isinstance(model, str) and model in LAYERS:
        source = merge(source, load_yaml(LAYERS[model]))
    if asked:
        source = _with_rewriters(source, _settings(asked))
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


def _apart(overrides: Sequence[str]) -> tuple[list[str], list[str]]:
    """Overrides that say who rewrites, and all others."""
    asked = [each for each in overrides if each.startswith(("rewriter=", "rewriter."))]
    return asked, [each for each in overrides if each not in asked]


def _settings(asked: Sequence[str]) -> dict[str, Any]:
    """Settings of the rewriter; a name alone is a model's.

    Raises:
        RecipeError: there are none, or they are no settings.
    """
    settings: Any = {}
    for override in asked:
        settings = apply_overrides({"rewriter": settings}, [override])["rewriter"]
        settings = {"model": settings} if isinstance(settings, str) else settings
    if not isinstance(settings, Mapping) or not settings or "name" in settings:
        allowed = "a checkpoint's name, or a rewriter's settings such as {model: NAME, server: URL}"
        raise RecipeError(Fault("rewriter", settings, allowed))
    return dict(settings)


def _with_rewriters(source: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """The recipe with the interventions of a rewriter."""
    laid = merge(source, load_yaml(REWRITERS))
    for variant in laid["variants"].values():
        for step in variant.get("protect", ()):
            # Only what a language model writes has a model.
            if "model" in step:
                step.update(settings)
    return laid
