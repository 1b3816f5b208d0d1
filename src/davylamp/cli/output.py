"""What every verb shares: how results reach a person, a pipe, or a program."""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, overload

import typer
from rich.console import Console
from rich.table import Table

from davylamp.errors import StorageError

if TYPE_CHECKING:
    # Not imported where it is not needed: numpy alone takes a second, in which Ctrl-C would show a traceback.
    from davylamp.rendering.render import Style
    from davylamp.verdict.model import Verdict

JsonFlag = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output, and nothing else.")]
QuietFlag = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")]
ThreadsOption = Annotated[
    int | None, typer.Option("--threads", min=1, help="Threads of torch (default: by the model's size).")
]
JobsOption = Annotated[
    int | None,
    typer.Option("--jobs", min=1, help="Runs at a time (default: one a core for a small model, else one)."),
]
ExecutorOption = Annotated[
    Literal["local", "ray"], typer.Option("--executor", help="This machine, or a Ray task for each shadow.")
]
AddressOption = Annotated[
    str | None, typer.Option("--address", help="Ray cluster, such as auto or host:6379 (default: a local Ray).")
]
ShadowJobsOption = Annotated[
    int | None, typer.Option("--jobs", min=1, help="Shadows at a time (default: one a core for a small model).")
]
ChatTemplateOption = Annotated[
    Path | None, typer.Option("--chat-template", help="Jinja file, for a tokenizer that has no chat template.")
]
StyleOption = Annotated[
    str | None, typer.Option("--style", help="How your trainer wrote records: auto, chat or plain.")
]
AdapterBaseOption = Annotated[
    str | None, typer.Option("--base", help="The model under an unmerged adapter, where it has moved.")
]
HeldOutOption = Annotated[
    Path | None, typer.Option("--held-out", help="Rows to measure utility on (default: test.* beside --data).")
]

TABLE_WIDTH = 110
"""Columns of a terminal from which a verdict is a table; in a narrower one its words would be cut."""

# Half pairs of surrogates, by which Python holds the bytes of a file name that is not UTF-8, are no text at all.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


@overload
def style_of(name: str) -> Style: ...


@overload
def style_of(name: None) -> None: ...


def style_of(name: str | None) -> Style | None:
    """The style that an option names.

    Raises:
        InputError: it is none.
    """
    from davylamp.errors import Fault, InputError

    styles: dict[str, Style] = {"auto": "auto", "chat": "chat", "plain": "plain"}
    if name is not None and name not in styles:
        raise InputError(Fault("--style", name, f"one of {', '.join(styles)}"))
    return None if name is None else styles[name]


def plain(text: str) -> str:
    """Text without control characters: what a model or a data set says could otherwise drive the terminal."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)


def emit_json(value: Any) -> None:
    """One JSON object on standard output, with escapes for what could drive a terminal."""
    text = json.dumps(value, ensure_ascii=not _speaks_unicode(), allow_nan=False)
    _write(_CONTROL.sub(lambda match: f"\\u{ord(match[0]):04x}", text) + "\n")


def emit(lines: Sequence[str]) -> None:
    """Lines for people on standard output."""
    _write("".join(plain(line) + "\n" for line in lines))


def emit_verdict(verdict: Verdict, title: str) -> None:
    """A verdict for people: a table at a wide terminal, one sentence a cell elsewhere."""
    if sys.stdout is None:
        return
    for control in verdict.controls:
        emit([f"{control.name} control {'passed' if control.passed else 'FAILED'}: {control.statement}"])
    console = Console()
    if not sys.stdout.isatty() or console.width < TABLE_WIDTH:
        emit([cell.statement for cell in verdict.cells])
        return
    table = Table(title=plain(title), title_justify="left")
    for heading in ("arm", "dose", "median exposure, bits", "said exactly", "by rank", "word for word"):
        table.add_column(heading, justify="right" if heading not in ("arm", "by rank", "word for word") else "left")
    for cell in verdict.cells:
        table.add_row(
            plain(cell.arm),
            str(cell.dose) if cell.dose else "0 (twins)",
            f"{cell.median:.2f} [{cell.median_low:.2f}, {cell.median_high:.2f}]",
            f"{cell.greedy.successes} of {cell.greedy.trials} [{cell.greedy.low:.0%}, {cell.greedy.high:.0%}]",
            cell.exposure_verdict or "",
            cell.greedy_verdict or "",
        )
    emit_table(table, [])
    emit(
        [
            f"Exposure: {verdict.baseline_bits:.2f} bits is the mean of a random rank, "
            f"{verdict.ceiling_bits:.2f} the most there is."
        ]
    )


def emit_table(table: Table, lines: Sequence[str]) -> None:
    """A table at a wide terminal, lines elsewhere."""
    console = Console()
    if sys.stdout is None or not sys.stdout.isatty() or console.width < TABLE_WIDTH:
        emit(lines)
        return
    with console.capture() as captured:
        console.print(table)
    _write(captured.get())


def _speaks_unicode() -> bool:
    return sys.stdout is not None and (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"


def _write(text: str) -> None:
    """Write to standard output at once; without one there is nobody to tell, as for Python's own print.

    Raises:
        StorageError: it cannot be written, as on a full disk; a reader that has left is no fault.
    """
    if sys.stdout is None:
        return
    if not _speaks_unicode():
        encoding = sys.stdout.encoding or "ascii"
        text = text.encode(encoding, "backslashreplace").decode(encoding)
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        # What is still held back would fail again at exit, with a message of the interpreter's own.
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise StorageError(f"cannot write to standard output: {error.strerror or error}") from error
