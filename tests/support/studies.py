"""Runs of a study with known answers: real canaries, and a rank for each that the test chooses."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from davylamp.canaries import plant
from davylamp.canaries.manifest import Canary, Manifest
from davylamp.measures import readings as tables
from davylamp.measures.readings import Reading, reading_of
from davylamp.runs.config import validate
from davylamp.runs.folder import RunFolder
from davylamp.studies.protocol.spec import Study
from davylamp.studies.recipe import Recipe
from davylamp.studies.tasks import Task, tasks_of
from support.corpora import small_corpus
from support.recipes import tiny_recipe
from support.reports import write_utility

Ranks = Callable[[Task, Canary], float]
"""The rank of a canary's secret in a run."""
CODES = 125
"""Secrets of the space that the recipes of :mod:`support.recipes` plant from."""


def study_of(**changes: Any) -> Study:
    """A study with one shape that any readings of focus canaries fit."""
    data: dict[str, Any] = {
        "name": "made",
        "title": "A study",
        "figures": "none",
        "question": "What is read?",
        "shapes": [{"statement": "It is read.", "checks": [{"level": {}, "at_least": 0}]}],
    }
    return validate(Study, {**data, **changes})


def made_recipe(**changes: Any) -> Recipe:
    """The tiny recipe, which is never run."""
    return validate(Recipe, tiny_recipe(Path("c.jsonl"), Path("model"), **changes))


def write_runs(recipe: Recipe, out: Path, ranks: Ranks, **more: Any) -> list[Task]:
    """Manifest and readings of every run of a recipe, as far as an analysis reads them.

    Args:
        recipe: the recipe.
        out: the study's folder.
        ranks: a rank from 1 to :data:`CODES` for each canary.
        more: see :func:`readings`.

    Returns:
        The recipe's runs.
    """
    tasks = list(tasks_of(recipe, out))
    for task in tasks:
        if task.kind == "audit":
            manifest = plant(small_corpus(60), task.plan).manifest
            manifest.save(RunFolder(task.folder).manifest)
            tables.save(tables.table(readings(task, manifest, ranks, **more)), RunFolder(task.folder).readings)
    return tasks


def readings(
    task: Task, manifest: Manifest, ranks: Ranks, said: Callable[[Task, Canary], bool] | None = None
) -> list[Reading]:
    """Exposure, rank and recovery of each canary with its secret hidden; said where it has rank 1, or as told."""
    found = []
    for canary in manifest.measured():
        rank = ranks(task, canary)
        says = rank == 1 if said is None else said(task, canary)
        for measure, value, unit in (
            ("exposure", math.log2(CODES / rank), "bits"),
            ("rank", rank, "rank"),
            ("greedy_recovery", float(says), "success"),
        ):
            found.append(reading_of(canary, task.plan.seed, "hidden", "trained", measure, value, unit))
    return found


def write_utilities(tasks: Sequence[Task], right: Callable[[Task], tuple[int, int]]) -> None:
    """Right answers and rows of every model."""
    for task in tasks:
        write_utility(task.folder, *right(task))
