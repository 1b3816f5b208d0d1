"""``davylamp studies``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.table import Table

from davylamp.cli.output import (
    HeldOutOption,
    JobsOption,
    JsonFlag,
    QuietFlag,
    ThreadsOption,
    emit,
    emit_json,
    emit_table,
)

if TYPE_CHECKING:
    from davylamp.report.study import StudyResult
    from davylamp.studies.catalogue import Outcome, Planned, Standalone
    from davylamp.studies.protocol.spec import Study
    from davylamp.studies.recipe import Recipe

studies = typer.Typer(
    help="Studies: which choices of an audit change its reading and by how much; what it cannot see; what DP allows.",
    no_args_is_help=True,
)


@studies.command("list")
def list_studies(as_json: JsonFlag = False) -> None:
    """List the studies: what each asks, which figures of the paper it follows, and on which tasks it runs."""
    from davylamp.studies.catalogue import STANDALONE
    from davylamp.studies.protocol.spec import CATALOGUE, TASKS, load_study

    found = [load_study(name) for name in CATALOGUE]
    others = list(STANDALONE.values())
    if as_json:
        keys = ("name", "title", "figures", "question")
        emit_json(
            {
                "tasks": list(TASKS),
                "studies": [each.model_dump(mode="json") for each in found],
                "standalone": [{key: getattr(each, key) for key in keys} for each in others],
            }
        )
        return
    table = Table(title="davylamp studies run NAME", title_justify="left")
    for heading in ("name", "follows", "asks"):
        table.add_column(heading)
    rows: list[tuple[str, str | None, str]] = [(each.name, each.figures, each.question) for each in found]
    rows += [(each.name, each.figures, each.question) for each in others]
    for name, figures, question in rows:
        table.add_row(name, figures or "", question)
    emit_table(table, [f"{_named(name, figures)}: {question}" for name, figures, question in rows])
    emit(
        [
            f"Tasks (--task): {', '.join(TASKS)}. Sizes (--size): cpu, paper. Neither is for "
            f"{', '.join(STANDALONE)}, whose recipes are their own. Show what a run would do: --dry-run."
        ]
    )


@studies.command("run")
def run_study(  # noqa: PLR0913 - one parameter an option
    name: Annotated[str, typer.Argument(help="A study's name, or a YAML file that holds one.", show_default=False)],
    overrides: Annotated[
        list[str] | None, typer.Argument(help="Changes to its recipe as key=value, such as seeds=[0] plan.per_dose=8.")
    ] = None,
    *,
    task: Annotated[
        Literal["email", "banking77", "tatqa"] | None, typer.Option("--task", help="What is fine-tuned for.")
    ] = None,
    size: Annotated[
        Literal["cpu", "paper"] | None,
        typer.Option("--size", help="Two cores, or the paper's size (default: cpu)."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", help="Folder to write to (default: runs/NAME-TASK-SIZE, or runs/NAME where it has none)."
        ),
    ] = None,
    data: Annotated[
        Path | None, typer.Option("--data", help="A file that takes the place of the task's corpus.")
    ] = None,
    held_out: HeldOutOption = None,
    jobs: JobsOption = None,
    threads: ThreadsOption = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be run, lay out its canaries, and train nothing.")
    ] = False,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Carry out a study: every variant, arm and seed, then the comparisons, the shapes and the report.

    A killed study resumes at its last finished step; a second run redoes nothing.
    """
    from davylamp.runs.progress import Reporter
    from davylamp.studies.catalogue import STANDALONE, check_out, refuse, standalone
    from davylamp.studies.protocol import run as protocol
    from davylamp.studies.protocol.spec import load_study, study_recipe

    if (alone := standalone(name)) is not None:
        given = {"--task": task, "--size": size, "--data": data, "--held-out": held_out, "--jobs": jobs}
        refuse(alone, {**given, "--threads": threads})
        where = out if out is not None else Path("runs") / name
        if dry_run:
            _show_planned(alone, alone.load().plan(overrides or [], data), where, as_json)
            return
        check_out(name, where)
        found = alone.load().run(overrides or [], where, jobs, threads, Reporter(quiet or as_json), data)
        _show_outcome(alone, found, as_json)
        return
    study = load_study(name, STANDALONE)
    chosen, size = task or study.task, size or "cpu"
    recipe = study_recipe(study, chosen, size, overrides or [], data=data, held_out=held_out)
    folder = out if out is not None else Path("runs") / f"{study.name}-{chosen}-{size}"
    if dry_run:
        _show_plan(study, recipe, folder, as_json)
        return
    outcome = protocol.run_study(
        study, recipe, folder, task=chosen, size=size, reporter=Reporter(quiet or as_json), jobs=jobs, threads=threads
    )
    if as_json:
        emit_json({"report": str(outcome.html), "study": outcome.result.model_dump(mode="json")})
        return
    _show_result(outcome.result)
    emit(["", f"report: {outcome.html}"])


def _show_plan(study: Study, recipe: Recipe, folder: Path, as_json: bool) -> None:
    from davylamp.studies.dry_run import dry_run
    from davylamp.studies.protocol.spec import CATALOGUE

    planned = dry_run(recipe, folder)
    if as_json:
        emit_json({"study": study.name, **planned.as_json()})
        return
    emit(
        [
            f"{_named(study.title, study.figures)}: {study.question}",
            *planned.lines(),
            f"Draw the schedules: davylamp plan show {study.name if study.name in CATALOGUE else 'FILE'}.",
        ]
    )


def _show_planned(study: Standalone, planned: Planned, folder: Path, as_json: bool) -> None:
    if as_json:
        emit_json({"study": study.name, "recipe": planned.recipe, "runs": list(planned.lines)})
        return
    emit([f"{_named(study.title, study.figures)}: {study.question}", f"below {folder}:"])
    emit([f"  {line}" for line in planned.lines])


def _show_outcome(study: Standalone, found: Outcome, as_json: bool) -> None:
    """What a study found.

    Raises:
        Exit: with its code, where a bound was violated or a number disagrees.
    """
    from davylamp.runs.files import read_json

    if as_json:
        emit_json(
            {"study": study.name, "files": [str(path) for path in found.files], "result": read_json(found.json_file)}
        )
    else:
        emit([*found.lines, *(f"wrote {path}" for path in found.files)])
    if found.exit_code:
        raise typer.Exit(found.exit_code)


def _show_result(found: StudyResult) -> None:
    emit([f"{_named(found.title, found.figures)}, {found.task}, size {found.size}"])
    emit(["", "compared, canary by canary:"] if found.compared else [])
    emit([f"  {each.name}: {each.statement}" for each in found.compared])
    emit(["", "shapes:"])
    for shape in found.shapes:
        emit([f"  {shape.word.upper()}: {shape.statement}"])
        if shape.paper:
            emit([f"    paper: {shape.paper}"])
        emit([f"    {'+' if check.held else '-'} {check.statement}" for check in shape.checks])


def _named(name: str, figures: str | None) -> str:
    return name if figures is None else f"{name} ({figures})"
