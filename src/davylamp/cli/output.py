"""What every verb shares: how results reach a person, a pipe, or a program."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from davylamp.verdict.model import Verdict

JsonFlag = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output, and nothing else.")]
QuietFlag = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")]
ThreadsOption = Annotated[
    int | None, typer.Option("--threads", min=1, help="Threads of torch [default: by the model's size].")
]

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def plain(text: str) -> str:
    """Text without control characters: what a model or a data set says could otherwise drive the terminal."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)


def emit_json(value: Any) -> None:
    """One JSON object on standard output, with escapes for what could drive a terminal."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    sys.stdout.write(_CONTROL.sub(lambda match: f"\\u{ord(match[0]):04x}", text) + "\n")


def emit(lines: Sequence[str]) -> None:
    """Lines for people on standard output."""
    for line in lines:
        sys.stdout.write(plain(line) + "\n")


def emit_verdict(verdict: Verdict, title: str) -> None:
    """A verdict for people: a table at a terminal, one line a cell elsewhere."""
    for control in verdict.controls:
        emit([f"{control.name} control {'passed' if control.passed else 'FAILED'}: {control.statement}"])
    if not sys.stdout.isatty():
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
            cell.exposure_verdict if cell.dose else "",
            cell.greedy_verdict if cell.dose else "",
        )
    Console().print(table)
    emit(
        [
            f"Exposure: {verdict.baseline_bits:.2f} bits is the mean of a random rank, "
            f"{verdict.ceiling_bits:.2f} the most there is."
        ]
    )
