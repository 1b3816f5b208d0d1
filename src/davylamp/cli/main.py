"""The command line: one thin file a verb, one place that turns errors into messages and exit codes."""

from __future__ import annotations

import os
import sys

import typer
from rich.console import Console

from davylamp import __version__
from davylamp.errors import DavylampError

app = typer.Typer(
    name="davylamp",
    help="Says what a fine-tuned language model gives away, and how sure that is.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)


def _print_version(value: bool) -> None:
    if value:
        sys.stdout.write(f"davylamp {__version__}\n")
        raise typer.Exit


@app.callback()
def _root(
    _version: bool = typer.Option(
        False, "--version", callback=_print_version, is_eager=True, help="Print the version."
    ),
    debug: bool = typer.Option(False, "--debug", help="Show a traceback with every error."),
) -> None:
    if debug:
        os.environ["DAVYLAMP_DEBUG"] = "1"


def main() -> None:
    """Entry point of the ``davylamp`` command."""
    try:
        app()
    except DavylampError as error:
        if os.environ.get("DAVYLAMP_DEBUG"):
            raise
        Console(stderr=True).print(f"error: {error}", style="red", markup=False, highlight=False)
        sys.exit(error.exit_code)
