"""A study carried out: its recipe's runs, what they show, and the report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from davylamp.report.build import write_report
from davylamp.report.data import ReportData, collect
from davylamp.report.study import StudyResult
from davylamp.runs import files
from davylamp.runs.progress import QUIET, Reporter
from davylamp.studies.protocol.analysis import compare, readings_of
from davylamp.studies.protocol.shapes import find, utilities_by_model
from davylamp.studies.protocol.spec import Size, Study, TaskName
from davylamp.studies.recipe import Recipe
from davylamp.studies.runner import run_recipe
from davylamp.studies.tasks import Task, tasks_of


@dataclass(frozen=True, slots=True)
class StudyOutcome:
    """What a study left behind.

    Attributes:
        result: what it found; ``study.json`` holds it.
        report: the report's data.
        html: where the report is.
    """

    result: StudyResult
    report: ReportData
    html: Path


def run_study(
    study: Study,
    recipe: Recipe,
    out: Path,
    *,
    task: TaskName,
    size: Size,
    reporter: Reporter = QUIET,
    jobs: int | None = None,
    threads: int | None = None,
) -> StudyOutcome:
    """Carry out a study in a folder, or what is missing of it.

    Args:
        study: what is compared and expected.
        recipe: what is run; see :func:`~davylamp.studies.protocol.spec.study_recipe`.
        out: the folder; made if missing.
        task: the task, for the result.
        size: the size, for the result.
        reporter: shows progress.
        jobs: runs at a time.
        threads: threads of torch in each.

    Raises:
        DavylampError: a run failed, or the readings do not hold what the study compares.
    """
    _drop_damaged(out / "study.json")
    outcome = run_recipe(recipe, out, reporter, jobs=jobs, threads=threads)
    tasks = list(tasks_of(recipe, out))
    result = analyse(study, tasks, out, task=task, size=size, seconds=_spent(out, outcome.seconds))
    files.write_json(out / "study.json", result.model_dump(mode="json"))
    data = collect(out)
    return StudyOutcome(result, data, write_report(data, out))


def analyse(
    study: Study, tasks: Sequence[Task], out: Path, *, task: TaskName, size: Size, seconds: float
) -> StudyResult:
    """What the finished runs of a study show.

    Raises:
        RecipeError: the study compares what its recipe does not read.
        RunFolderError: a run lacks its readings.
    """
    frame = readings_of(tasks)
    compared = tuple(compare(frame, each, study.confidence) for each in study.comparisons)
    return StudyResult(
        name=study.name,
        title=study.title,
        figures=study.figures,
        question=study.question,
        task=task,
        size=size,
        confidence=study.confidence,
        compared=compared,
        shapes=find(study, frame, compared, utilities_by_model(tasks, out)),
        seconds=seconds,
    )


def _spent(out: Path, seconds: dict[str, float]) -> float:
    """Wall time of all steps, those of earlier calls on the same folder included."""
    path = out / "seconds.json"
    try:
        kept = files.read_json(path) if path.is_file() else {}
    except (OSError, ValueError):
        # What took how long is worth less than the study.
        kept = {}
    known = {step: float(taken) for step, taken in kept.items() if isinstance(taken, int | float)} | seconds
    files.write_json(path, known)
    return sum(known.values())


def _drop_damaged(path: Path) -> None:
    """Remove a result that cannot be read, or is of another version: the report could not be made beside it."""
    try:
        StudyResult.model_validate(files.read_json(path))
    except FileNotFoundError:
        return
    except (OSError, ValueError):
        path.unlink(missing_ok=True)
