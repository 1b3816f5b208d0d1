"""The study as ``davylamp studies run mechanisms``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from davylamp.runs.progress import Reporter
from davylamp.studies.catalogue import Outcome, Planned
from davylamp.studies.mechanisms.run import run_study, text_table, write_study
from davylamp.studies.mechanisms.spec import load_recipe


def plan(overrides: Sequence[str], data: Path | None) -> Planned:  # noqa: ARG001 - it has no corpus
    """What would be run.

    Raises:
        RecipeError: the recipe has faults; all are named.
    """
    recipe = load_recipe(list(overrides))
    return Planned(
        recipe.model_dump(mode="json"),
        (f"five experiments on releases whose law is known, {recipe.trials:,} releases a point, seed {recipe.seed}",),
    )


def run(
    overrides: Sequence[str],
    out: Path,
    jobs: int | None,  # noqa: ARG001 - it takes half a minute
    threads: int | None,  # noqa: ARG001
    reporter: Reporter,  # noqa: ARG001
    data: Path | None,  # noqa: ARG001
) -> Outcome:
    """Carry the study out; exit code 1 where a row disagrees.

    Raises:
        RecipeError: the recipe has faults; all are named.
        StorageError: the folder cannot be written.
    """
    recipe = load_recipe(list(overrides))
    experiments = run_study(recipe)
    files = write_study(experiments, recipe, out)
    lines = [line for experiment in experiments for line in (*text_table(experiment), "")]
    [data_file] = [path for path in files if path.suffix == ".json"]
    agrees = all(experiment.agrees for experiment in experiments)
    return Outcome(tuple(lines), data_file, tuple(files), 0 if agrees else 1)
