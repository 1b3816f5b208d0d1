"""A recipe carried out: every run and step in order, what is done already left alone."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path

from davylamp.errors import RunFolderError, TrainingError
from davylamp.report.build import write_report
from davylamp.report.data import ReportData, collect
from davylamp.runs import files
from davylamp.runs.folder import locked
from davylamp.runs.progress import QUIET, Reporter
from davylamp.runs.workers import end_with_parent
from davylamp.studies.recipe import Recipe
from davylamp.studies.tasks import Task, check_layouts, tasks_of
from davylamp.studies.work import Spent, carry_out

CLAIM = "recipe.json"
"""File of a folder that says whose runs it holds."""
SMALL_BYTES = 20_000_000
"""Weights below which runs share the machine, a process a core."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run of a recipe left behind.

    Attributes:
        report: the report's data.
        html: where the report is.
        seconds: wall time of every step that was carried out, by ``run/step``; steps done before are missing.
        cpu_seconds: processor time of the same steps, all threads together.
    """

    report: ReportData
    html: Path
    seconds: dict[str, float]
    cpu_seconds: dict[str, float]


def run_recipe(
    recipe: Recipe, out: Path, reporter: Reporter = QUIET, *, jobs: int | None = None, threads: int | None = None
) -> Outcome:
    """Carry out a recipe in a folder, or what is missing of it.

    Every run has a folder of its own below ``out/runs``. A step that was finished with the same inputs is not
    done again, so that a killed run resumes and a second one changes nothing.

    Args:
        recipe: what to do.
        out: the folder; made if missing.
        reporter: shows progress.
        jobs: runs at a time, each in a process of its own; by default one a core for a small model, else one.
        threads: threads of torch in each; chosen by the model's size if none.

    Raises:
        PlantingError: a run's canaries do not fit into its rows; all such runs are named.
        RunFolderError: another process works there, or the folder belongs to another recipe.
        DavylampError: a step failed; see the steps.
    """
    from davylamp.release.sources import resolve

    with locked(out):
        tasks = list(tasks_of(recipe, out, threads))
        check_layouts(tasks, recipe.corpus.load())
        if not is_claimed(recipe, out):
            files.write_json(out / CLAIM, recipe.model_dump(mode="json"))
        weights = resolve(recipe.model).weight_files
        at_once = min(len(tasks), jobs if jobs is not None else _jobs(sum(path.stat().st_size for path in weights)))
        spent: dict[str, Spent] = {}
        with reporter.task(recipe.name, len(tasks)) as advance:
            done = _one_by_one(tasks, reporter) if at_once == 1 else _side_by_side(tasks, at_once)
            for taken in done:
                spent |= taken
                advance(1)
        data = collect(out)
        wall, cpu = ({step: getattr(each, key) for step, each in spent.items()} for key in ("wall", "cpu"))
        return Outcome(data, write_report(data, out), wall, cpu)


def _one_by_one(tasks: Sequence[Task], reporter: Reporter) -> Iterator[dict[str, Spent]]:
    for task in tasks:
        yield carry_out(task, reporter)


def _side_by_side(tasks: Sequence[Task], at_once: int) -> Iterator[dict[str, Spent]]:
    # Spawned and not forked: a fork would copy torch's threads in an unknown state.
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(at_once, mp_context=context, initializer=end_with_parent)
    try:
        for finished in as_completed([pool.submit(carry_out, task) for task in tasks]):
            yield finished.result()
    except BrokenProcessPool as error:
        raise TrainingError(
            "the system ended a process of this run, most often for want of memory: run the same command again with "
            "--jobs 1; what was finished is not done again"
        ) from error
    finally:
        # After a failure what has not begun is not begun.
        pool.shutdown(cancel_futures=True)


def _jobs(weight_bytes: int) -> int:
    """A process a core where the model is small; a large one takes all cores, and memory, by itself."""
    return (os.cpu_count() or 1) if weight_bytes < SMALL_BYTES else 1


def is_claimed(recipe: Recipe, out: Path) -> bool:
    """Whether a folder holds runs of this very recipe.

    Raises:
        RunFolderError: it holds those of another one: they would be mixed into this report.
    """
    path = out / CLAIM
    if path.is_file() and any((out / "runs").glob("*/.steps/*.json")):
        if files.sha256_bytes(path.read_bytes()) != files.sha256_bytes(
            files.json_bytes(recipe.model_dump(mode="json"))
        ):
            raise RunFolderError(
                f"{out} holds the run of another recipe (or of other overrides, see {path}): give another --out, or "
                "remove the folder"
            )
        return True
    if path.is_file():
        # A try that failed before any step was finished keeps nobody out.
        return False
    if (out / "runs").exists() or (out / "manifest.json").exists():
        raise RunFolderError(f"{out} holds runs that no recipe made: give another --out")
    return False
