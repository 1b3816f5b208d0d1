"""The study carried out: the recipe's runs, the frontier, and the shapes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from davylamp.runs import files
from davylamp.runs.progress import QUIET, Reporter
from davylamp.studies.clinical.reading import found_of, read_landscapes
from davylamp.studies.clinical.result import FILE, ClinicalResult
from davylamp.studies.clinical.shapes import shapes_of
from davylamp.studies.comparing import CompareRequest, compare_step
from davylamp.studies.machine import versions
from davylamp.studies.recipe import Recipe
from davylamp.studies.runner import run_recipe
from davylamp.studies.tasks import tasks_of
from davylamp.verdict.frontier_model import FILE as FRONTIER

TIMES = "seconds.json"
"""What each step took, in the study's folder."""
FILES = (FILE, FRONTIER, FRONTIER.replace(".json", ".html"), "report.html")


def run_study(
    recipe: Recipe,
    out: Path,
    reporter: Reporter = QUIET,
    jobs: int | None = None,
    threads: int | None = None,
) -> ClinicalResult:
    """Carry the study out in a folder, or what is missing of it, and write ``clinical.json`` and ``frontier.json``.

    Args:
        recipe: what to do; see :func:`~davylamp.studies.clinical.spec.load_recipe`.
        out: the folder; made if missing.
        reporter: shows progress.
        jobs: runs at a time.
        threads: threads of torch in each.

    Raises:
        DavylampError: a run failed, or the runs cannot be compared; see :func:`~davylamp.studies.runner.run_recipe`.
    """
    outcome = run_recipe(recipe, out, reporter, jobs=jobs, threads=threads)
    wall, cpu = _kept(out, {"wall": outcome.seconds, "cpu": outcome.cpu_seconds})
    tasks = list(tasks_of(recipe, out))
    landscapes = read_landscapes(tasks)
    compared, _, _ = compare_step([out], CompareRequest(out=out / FRONTIER))
    found = found_of(tasks, landscapes, compared, wall, cpu)
    result = ClinicalResult(
        recipe=recipe.model_dump(mode="json"),
        candidates=compared.candidates,
        found=found,
        shapes=shapes_of(found, landscapes, compared),
        cpu_seconds=cpu,
        versions=versions(),
    )
    result.save(out / FILE)
    return result


def _kept(out: Path, spent: Mapping[str, Mapping[str, float]]) -> tuple[dict[str, float], dict[str, float]]:
    """What every step took on the clock and of the processor, earlier calls included; new ones are kept."""
    path = out / TIMES
    try:
        held = files.read_json(path) if path.is_file() else {}
    except (OSError, ValueError):
        # What took how long is worth less than the study.
        held = {}
    known: dict[str, dict[str, float]] = {}
    for clock in ("wall", "cpu"):
        before = held.get(clock)
        steps = before.items() if isinstance(before, dict) else ()
        kept = {step: float(taken) for step, taken in steps if isinstance(taken, int | float)}
        known[clock] = kept | dict(spent[clock])
    if any(spent.values()):
        files.write_json(path, known)
    return known["wall"], known["cpu"]
