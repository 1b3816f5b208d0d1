"""``davylamp landscape``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from davylamp.cli.output import (
    AdapterBaseOption,
    ChatTemplateOption,
    JsonFlag,
    QuietFlag,
    StyleOption,
    ThreadsOption,
    emit,
    emit_json,
    style_of,
)

if TYPE_CHECKING:
    from davylamp.measures.landscape.model import Landscape


def landscape(  # noqa: PLR0913 - an argument for each option
    run: Annotated[Path, typer.Argument(help="Run folder that `davylamp plant` wrote.", show_default=False)],
    settings: Annotated[
        list[str] | None,
        typer.Argument(help="Settings as key=value, such as held_out.format=clinical pool=1000 item=REGEX."),
    ] = None,
    *,
    held_out: Annotated[
        Path | None, typer.Option("--held-out", help="Records that no model was trained on.", show_default=False)
    ] = None,
    test: Annotated[
        Path | None, typer.Option("--test", help="Records whose last item is predicted (default: those of --held-out).")
    ] = None,
    question: Annotated[
        str | None, typer.Option("--question", help="What is asked; {subject} and {first} are filled in.")
    ] = None,
    name: Annotated[
        str | None,
        typer.Option("--name", help="What was done to this model, in a word (default: from the run's files)."),
    ] = None,
    model: Annotated[
        str | None, typer.Option("--model", help="The checkpoint or adapter (default: RUN/model).")
    ] = None,
    base: AdapterBaseOption = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", help="The file to write (default: RUN/landscape.json; of another model RUN/landscape-NAME.json)."
        ),
    ] = None,
    style: StyleOption = None,
    chat_template: ChatTemplateOption = None,
    threads: ThreadsOption = None,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Read what a model leaks of every canary, and what it is still good for, for `davylamp compare`.

    Reads each secret after its record and after a question, its rank, and records that the model never saw. Writes
    RUN/landscape.json; of a --model that is not the run's own RUN/landscape-NAME.json, such as landscape-none.json; of
    a checkpoint that `davylamp unlearn RUN` wrote landscape.json beside it.
    """
    from davylamp.errors import Fault, InputError
    from davylamp.measures.landscape.spec import LandscapeSpec
    from davylamp.runs.config import apply_overrides, validate
    from davylamp.runs.folder import RunFolder, locked
    from davylamp.runs.progress import Reporter
    from davylamp.studies.landscape import LandscapeRequest, landscape_step, place_of

    data = apply_overrides({}, settings or [])
    for key, path in (("held_out", held_out), ("test", test)):
        if path is not None:
            beside = data.get(key) or {}
            if not isinstance(beside, dict):
                fix = f"Leave one of {key}=... and --{key.replace('_', '-')} out."
                raise InputError(Fault(f"landscape.{key}", beside, f"settings such as {key}.format=clinical", fix))
            data[key] = {**beside, "path": str(path)}
    if question is not None:
        data["question"] = question
    spec = validate(LandscapeSpec, data, "landscape")
    request = LandscapeRequest(spec, model, base, name, style_of(style), chat_template, threads, out)
    folder = RunFolder(run)
    with locked(run, make=False):
        found = landscape_step(folder, request, Reporter(quiet or as_json))
    if as_json:
        emit_json(found.model_dump(mode="json"))
        return
    emit(
        [
            *_lines(found),
            f"landscape: {place_of(folder, request, found.intervention)}; now `davylamp compare` with other runs",
        ]
    )


def _lines(found: Landscape) -> list[str]:
    from davylamp.report.frontier_numbers import spoken
    from davylamp.verdict.frontier import frontier

    compared = frontier([("this run", found)])
    row = compared.rows[0]
    lines = [f"{found.intervention}: {found.release}"]
    lines += [f"  {metric.title:<36} {spoken(compared, row, metric.key)}" for metric in compared.metrics]
    return [*lines, *(f"note: {note}" for note in found.notes)]
