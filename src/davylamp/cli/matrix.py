"""``davylamp matrix``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from davylamp.cli.output import JsonFlag, emit, emit_json, emit_table, plain

if TYPE_CHECKING:
    from davylamp.verdict.matrix_model import Matrix, MatrixCell


def matrix(
    run: Annotated[Path, typer.Argument(help="Run folder that was audited.", show_default=False)],
    *,
    threshold: Annotated[
        float, typer.Option("--threshold", help="Extraction from c below which the verifier calls a secret forgotten.")
    ] = 0.15,
    unlearned: Annotated[
        Path | None,
        typer.Option(
            "--unlearned",
            help="Folder that `davylamp unlearn --constructions` wrote (default: RUN/unlearned, where it fits).",
        ),
    ] = None,
    confidence: Annotated[float, typer.Option("--confidence", help="Of every interval.")] = 0.95,
    as_json: JsonFlag = False,
) -> None:
    """Lay what every audit saw of every leak side by side, and say where nobody looked.

    Reads RUN/constructions.json, RUN/verdict.json and RUN/membership.json, as many as there are; and what
    `davylamp unlearn --constructions` left, for the column of the unlearning verifier. Writes RUN/matrix.json.
    """
    from rich.table import Table

    from davylamp.errors import Fault, InputError
    from davylamp.runs.folder import RunFolder, locked
    from davylamp.studies.matrix import matrix_step

    given = {"--threshold": threshold, "--confidence": confidence}
    if faults := [Fault(name, value, "above 0 and below 1") for name, value in given.items() if not 0 < value < 1]:
        raise InputError(faults)
    with locked(run, make=False):
        found = matrix_step(RunFolder(run), threshold, confidence, unlearned)
    if as_json:
        emit_json(found.model_dump(mode="json"))
        return
    table = Table(title=f"{plain(found.model)}: signal from 0 (chance) to 1 (all)", title_justify="left")
    table.add_column("leak")
    for column in found.columns:
        table.add_column(column.title)
    for row in found.rows:
        table.add_row(plain(row.name), *(_short(row.cells[column.key]) for column in found.columns))
    emit_table(table, list(_lines(found)))
    emit([*(f"note: {note}" for note in found.notes), *found.unlooked, f"all of it: {run / 'matrix.json'}"])


def _short(cell: MatrixCell) -> str:
    return "–" if cell.signal is None else f"{cell.signal:.2f} {cell.word}"


def _lines(found: Matrix) -> Iterator[str]:
    for row in found.rows:
        yield f"{row.name}, {row.instances} instances"
        for column in found.columns:
            cell = row.cells[column.key]
            if cell.signal is None:
                yield f"  {column.title:<27} not measured: {cell.detail}"
            else:
                between = f"[{cell.low:.2f}, {cell.high:.2f}]"
                yield f"  {column.title:<27} {cell.signal:.2f} {between} {cell.word}: {cell.detail}"
