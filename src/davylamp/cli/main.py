"""The command line: one thin file a verb, one place that turns errors into messages and exit codes."""

from __future__ import annotations

import os
import sys

import typer
from rich.console import Console

from davylamp import __version__
from davylamp.cli.audit import audit
from davylamp.cli.bounds import bounds
from davylamp.cli.compare import compare
from davylamp.cli.constructions import constructions
from davylamp.cli.goldfish import goldfish
from davylamp.cli.judge import judge
from davylamp.cli.kappa import kappa
from davylamp.cli.landscape import landscape
from davylamp.cli.matrix import matrix
from davylamp.cli.output import plain
from davylamp.cli.plan import plan
from davylamp.cli.plant import plant
from davylamp.cli.protect import ProtectCommand, protect
from davylamp.cli.records import records
from davylamp.cli.report import report
from davylamp.cli.run import run
from davylamp.cli.shadows import shadows
from davylamp.cli.studies import studies
from davylamp.cli.train import train
from davylamp.cli.unlearn import unlearn
from davylamp.errors import DavylampError

INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells have it: 128 and the number of the signal."""

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
    _debug: bool = typer.Option(False, "--debug", help="Show a traceback with every error; may stand anywhere."),
) -> None:
    pass


app.command()(records)
app.add_typer(plan, name="plan")
app.command()(plant)
app.command(cls=ProtectCommand)(protect)
app.command()(judge)
app.command()(train)
app.command()(goldfish)
app.command()(shadows)
app.command()(unlearn)
app.command()(audit)
app.command()(constructions)
app.command()(matrix)
app.command()(landscape)
app.command()(compare)
app.command()(report)
app.command()(run)
app.add_typer(studies, name="studies")
app.add_typer(bounds, name="bounds")
app.command()(kappa)


def main() -> None:
    """Entry point of the ``davylamp`` command."""
    # Waiting threads that spin take the time of those that compute: beside other load two threads took 68 s for what
    # one did in 8 s, and 9 s with this. Read by OpenMP when torch is loaded, which is later than here.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    arguments = [argument for argument in sys.argv[1:] if argument != "--debug"]
    debug = len(arguments) < len(sys.argv) - 1
    try:
        app(args=arguments, prog_name=str(app.info.name))
    except DavylampError as error:
        if debug:
            raise
        # Messages quote files and models, which may hold characters that drive a terminal.
        _say(f"error: {plain(str(error))}")
        sys.exit(error.exit_code)
    except OSError as error:
        # A path that may not even be looked at, or a name too long for the system: the user's to mend, and no bug.
        if debug or not error.strerror:
            raise
        where = "" if error.filename is None else f" {error.filename}"
        _say(plain(f"error: cannot use{where}: {error.strerror}"))
        sys.exit(DavylampError.exit_code)
    except SystemExit as ended:
        # Typer turns Ctrl-C into this code and says nothing.
        if ended.code == INTERRUPTED:
            _say("interrupted: nothing was left half-written, and the same command can be run again")
        raise


def _say(text: str) -> None:
    Console(stderr=True).print(text, style="red", markup=False, highlight=False, soft_wrap=True)
