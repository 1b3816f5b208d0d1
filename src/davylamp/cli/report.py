"""``davylamp report``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from davylamp.cli.output import JsonFlag, emit, emit_json


def report(
    run: Annotated[Path, typer.Argument(help="A run folder, or a folder that holds several.", show_default=False)],
    show_secrets: Annotated[
        bool, typer.Option("--show-secrets", help="Leave the secrets in clear; only you may read the files then.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Write RUN/report.html, one self-contained page, and RUN/report.json, the same as data."""
    from davylamp.report.build import write_report
    from davylamp.report.data import collect

    data = collect(run, show_secrets)
    path = write_report(data, run)
    if as_json:
        emit_json(data.model_dump(mode="json"))
        return
    emit([*data.headlines, f"report: {path}"])
