"""``davylamp compare``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from davylamp.cli.output import JsonFlag, emit, emit_json, emit_table, plain

if TYPE_CHECKING:
    from davylamp.verdict.frontier_model import Frontier, Row


def compare(
    runs: Annotated[
        list[Path],
        typer.Argument(help="Run folders with a landscape, or folders that hold several.", show_default=False),
    ],
    *,
    x: Annotated[str, typer.Option("--x", help="Horizontal axis: capability, or a metric.")] = "capability",
    y: Annotated[str, typer.Option("--y", help="Vertical axis: privacy, or a metric.")] = "privacy",
    doses: Annotated[
        str | None, typer.Option("--doses", help="Pool canaries of these doses only, such as 32,64 (default: all).")
    ] = None,
    confidence: Annotated[float, typer.Option("--confidence", help="Of every interval.")] = 0.95,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Where the result goes, its page beside it (default: frontier.json, compare.html)."),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Lay interventions side by side: what each costs in capability, and what it buys in privacy.

    Reads what `davylamp landscape` wrote in each run; the runs must have the same canaries, base model and records.
    Writes frontier.json and compare.html.
    """
    from davylamp.studies.comparing import CompareRequest, compare_step

    request = CompareRequest(x, y, None if doses is None else _doses(doses), confidence, out)
    found, data, page = compare_step(runs, request)
    if as_json:
        emit_json(found.model_dump(mode="json"))
        return
    title = f"Interventions, {found.confidence:.0%} intervals; mean ranks from 1 (worst)"
    table = Table(title=title, title_justify="left")
    columns = list(_columns(found))
    table.add_column("intervention")
    for title, _ in columns:
        table.add_column(title, justify="right")
    for row in found.rows:
        table.add_row(plain(row.intervention), *(_value(found, row, key) for _, key in columns))
    emit_table(table, list(_lines(found)))
    front = found.front("capability", "privacy")
    if front is not None:
        emit([f"Pareto set of the mean ranks: {', '.join(front.members)}"])
    emit([*(f"note: {note}" for note in found.notes), f"all of it: {data}; {page}"])


def _doses(text: str) -> tuple[int, ...]:
    from davylamp.errors import Fault, InputError

    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and part.isascii() for part in parts):
        raise InputError(Fault("--doses", text, "whole numbers with commas between them, such as 32,64"))
    return tuple(int(part) for part in parts)


def _columns(found: Frontier) -> Iterator[tuple[str, str]]:
    """Headings of the table and their keys: the axes first, then the metrics."""
    ranked = [key for key in ("privacy", "capability") if found.rows[0].ranks]
    for key in ranked:
        yield f"mean rank, {key}", key
    for metric in found.metrics:
        yield metric.title, metric.key


def _value(found: Frontier, row: Row, key: str) -> str:
    from davylamp.report.frontier_numbers import spoken

    return spoken(found, row, key)


def _lines(found: Frontier) -> Iterator[str]:
    for row in found.rows:
        yield f"{row.intervention}, {'seed' if len(row.seeds) == 1 else 'seeds'} {', '.join(map(str, row.seeds))}"
        for title, key in _columns(found):
            yield f"  {title:<36} {_value(found, row, key)}"
