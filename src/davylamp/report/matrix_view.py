"""The audit-disagreement matrix on a page: its cells in words, shades and signs, and what to read off it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from davylamp.report.constructed_model import Unaudited
from davylamp.report.model import Run
from davylamp.report.text import interval, number, shorten
from davylamp.verdict.matrix_columns import CORRECTED, PREFIX
from davylamp.verdict.matrix_model import Matrix, MatrixCell, MatrixColumn, MatrixRow

SIGNS: Mapping[str, str] = {
    "leak": "▲",
    "recovered": "◆",
    "guessed": "≈",
    "capped": "⊓",
    "blind": "⊘",
    "not seen": "○",
}
"""A sign for each word, so that none is told by its border alone."""
WORDS: Mapping[str, str] = {
    "leak": "more than chance came out, or was told apart",
    "recovered": "the same, by who knows how the secret was planted: the ground truth",
    "guessed": "secrets came out, but no more than guessing gets without the model",
    "capped": "no more than the construction lets anybody have, even one who sees the whole model",
    "blind": "no more than chance, though another column of the row says that there is something to see",
    "not seen": "no more than chance, and no other column of the row saw anything",
}
"""What each word says."""
SHADES = ("0", "to 0.2", "to 0.4", "to 0.6", "to 0.8", "to 1")
"""The signals of each shade, from chance on."""
ACCESS: Mapping[str, str] = {
    "generate": "generated text",
    "logprobs": "log-probabilities",
    "reference": "a reference model",
    "retrain": "shadow models, trained anew",
}
"""What an audit asks for, in words."""
FOUND = ("leak", "recovered")


@dataclass(frozen=True, slots=True)
class Shown:
    """A cell.

    Attributes:
        column: its audit.
        cell: what was seen.
        shade: from 0 (chance) to 5; nothing where it was not measured.
        sign: of its word.
        number: the signal.
        between: its interval.
        letter: names why it is empty.
    """

    column: MatrixColumn
    cell: MatrixCell
    shade: int | None
    sign: str
    number: str
    between: str
    letter: str


@dataclass(frozen=True, slots=True)
class Line:
    """A row.

    Attributes:
        row: the leak.
        about: how many of it were planted, and how often each.
        given: whether there is a verdict: not of canaries whose control failed.
        cells: by column, in order.
    """

    row: MatrixRow
    about: str
    given: bool
    cells: tuple[Shown, ...]


@dataclass(frozen=True, slots=True)
class Part:
    """The matrix of one run.

    Attributes:
        key: prefix of ids.
        run: the run.
        matrix: what it holds.
        lines: its rows.
        reasons: why cells are empty, by letter.
        finding: what to read off it, in sentences.
    """

    key: str
    run: Run | Unaudited
    matrix: Matrix
    lines: tuple[Line, ...]
    reasons: Mapping[str, str]
    finding: str


def parts(runs: Sequence[Run | Unaudited]) -> list[Part]:
    """The matrices of all runs that have one, in the order of the report."""
    return [_part(f"x{at}", run, run.matrix) for at, run in enumerate(runs) if run.matrix is not None]


def tag(column: MatrixColumn) -> str:
    """Where an audit looks, in a word or two."""
    if column.knows:
        return "knows the construction"
    return "local: own prefix" if column.local else "any prompt tried"


def asks(column: MatrixColumn) -> str:
    """What an audit asks for."""
    return ", ".join(ACCESS.get(each, each) for each in column.access)


def _part(key: str, run: Run | Unaudited, matrix: Matrix) -> Part:
    empty = (cell.detail for row in matrix.rows for cell in row.cells.values() if cell.signal is None)
    letters = {detail: _letter(at) for at, detail in enumerate(dict.fromkeys(empty))}
    lines = tuple(
        Line(
            row,
            _about(row),
            not isinstance(run, Run) or run.verdict.given or row.kind != "canaries",
            tuple(_shown(column, row.cells[column.key], letters) for column in matrix.columns),
        )
        for row in matrix.rows
    )
    return Part(key, run, matrix, lines, {letter: detail for detail, letter in letters.items()}, _finding(lines))


def _letter(at: int) -> str:
    return chr(ord("a") + at) if at < 26 else str(at + 1)


def _shown(column: MatrixColumn, cell: MatrixCell, letters: Mapping[str, str]) -> Shown:
    if cell.signal is None or cell.low is None or cell.high is None:
        return Shown(column, cell, None, "–", "", "", letters.get(cell.detail, ""))
    sign = SIGNS.get(cell.word or "", "")
    return Shown(column, cell, shade(cell.signal), sign, signal(cell.signal), interval(cell.low, cell.high), "")


def shade(value: float) -> int:
    """The shade of a signal: 0 for chance alone, then one for each fifth."""
    return min(len(SHADES) - 1, math.ceil((len(SHADES) - 1) * value))


def signal(value: float) -> str:
    """A signal, never 0 or 1 where it is not chance or all of it."""
    said = number(value)
    if 0 < value < 1 and said in ("0.00", "1.00"):
        return "<0.01" if value < 0.5 else ">0.99"
    return said


def _about(row: MatrixRow) -> str:
    planted = f"{row.instances:,} planted"
    if not row.copies:
        return f"{planted}, in no row"
    return f"{planted}, each in {row.copies:,} row{'s' if row.copies != 1 else ''}"


def _finding(lines: Iterable[Line]) -> str:
    counted = [line for line in lines if line.given]
    found = [line for line in counted if any(each.cell.word in FOUND for each in line.cells)]
    said = [f"In {len(found)} of {len(counted)} rows some column says leak or recovered."] if counted else []
    missed = [line for line in found if not any(each.column.local and each.cell.word in FOUND for each in line.cells)]
    if missed:
        said.append(
            f"In {len(missed)} of these no audit does that reads nothing but a record's own prefix and secret: "
            f"{_names(missed)}."
        )
    guessed = [
        line
        for line in counted
        if (line.row.cells[PREFIX.key].word, line.row.cells[CORRECTED.key].word) == ("leak", "guessed")
    ]
    if guessed:
        said.append(f"Extraction takes for a leak what guesses get as well: {_names(guessed)}.")
    return " ".join(said)


def _names(lines: Iterable[Line]) -> str:
    return "; ".join(shorten(line.row.name, 60) for line in lines)
