"""``davylamp run``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from davylamp.cli.output import (
    HeldOutOption,
    JobsOption,
    JsonFlag,
    QuietFlag,
    ThreadsOption,
    emit,
    emit_json,
    emit_verdict,
)
from davylamp.cli.protect import protected_note

if TYPE_CHECKING:
    from davylamp.studies.recipe import Recipe
    from davylamp.studies.runner import Outcome


def run(  # noqa: PLR0913 - one parameter an option
    recipe: Annotated[
        str,
        typer.Argument(
            help="A recipe file, or the name of a built-in one: demo, banking77, tatqa, clinical.", show_default=False
        ),
    ],
    overrides: Annotated[
        list[str] | None, typer.Argument(help="Changes as key=value, such as seeds=[0,1] training.epochs=2.")
    ] = None,
    *,
    out: Annotated[Path | None, typer.Option("--out", help="Folder to write to (default: runs/NAME).")] = None,
    data: Annotated[
        Path | None, typer.Option("--data", help="A file that takes the place of the recipe's corpus.")
    ] = None,
    held_out: HeldOutOption = None,
    jobs: JobsOption = None,
    threads: ThreadsOption = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Say which runs and steps there are and what goes to which server; do nothing."),
    ] = False,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Carry out a whole recipe: plant, train, audit, report.

    A killed run resumes at its last finished step; a second one redoes nothing.
    """
    from davylamp.runs.progress import Reporter
    from davylamp.studies.recipe import load_recipe
    from davylamp.studies.runner import run_recipe

    _refuse_rewriter(overrides or [])
    what = load_recipe(recipe, overrides or [], data=data, held_out=held_out)
    folder = out if out is not None else Path("runs") / what.name
    if dry_run:
        show_dry_run(what, folder, as_json)
        return
    outcome = run_recipe(what, folder, Reporter(quiet or as_json), jobs=jobs, threads=threads)
    frontier = outcome.report.frontier
    if as_json:
        emit_json(
            {
                "report": str(outcome.html),
                "headlines": list(outcome.report.headlines),
                "interventions": [row.intervention for row in frontier.rows] if frontier is not None else None,
                "seconds": outcome.seconds,
                "verdicts": {each.name: each.verdict.model_dump(mode="json") for each in outcome.report.runs},
            }
        )
        return
    for each in outcome.report.runs:
        emit([f"\n{each.name}"])
        emit_verdict(each.verdict, each.name)
        emit(protected_note(each.training or {}))
    emit(["", *outcome.report.headlines, "", *_compared(outcome, folder), f"report: {outcome.html}"])


def _refuse_rewriter(overrides: Sequence[str]) -> None:
    """Say where a study's own key belongs, which no recipe has."""
    from davylamp.errors import Fault, RecipeError
    from davylamp.runs.credentials import discreet

    for each in overrides:
        key, _, value = each.partition("=")
        if key.partition(".")[0] == "rewriter":
            fix = f"It belongs to the study: davylamp studies run clinical {key}=..."
            raise RecipeError(discreet(Fault(key, value, "no key of a recipe", fix)))


def _compared(outcome: Outcome, folder: Path) -> Iterator[str]:
    """Which interventions the report compares, the untrained model among them, which has no verdict."""
    from davylamp.studies.landscape import UNTRAINED

    found, faults = outcome.report.frontier, outcome.report.frontier_faults
    if found is not None:
        names = [
            f"{row.intervention} (the untrained model)" if row.intervention == UNTRAINED else row.intervention
            for row in found.rows
        ]
        yield (
            f"interventions compared ({', '.join(names)}): {outcome.html}#frontier; `davylamp compare {folder}` writes "
            "a page of them alone"
        )
    yield from (f"interventions are not compared: {fault}" for fault in faults)


def show_dry_run(recipe: Recipe, folder: Path, as_json: bool) -> None:
    """Say what a recipe would do; a folder that it may not write to is refused as it would be."""
    from davylamp.studies.dry_run import dry_run
    from davylamp.studies.runner import is_claimed

    planned = dry_run(recipe, folder)
    begun = is_claimed(recipe, folder)
    if as_json:
        emit_json(planned.as_json())
        return
    emit([f"recipe {recipe.name}", *planned.lines()])
    emit(["Steps there that were finished with the same inputs are not done again."] if begun else [])
