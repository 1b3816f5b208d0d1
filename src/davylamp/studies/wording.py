"""How a study's result is said to people: its shapes line by line, and rows of Markdown tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from davylamp.report.study import Checked, ShapeFound


def shape_lines(shapes: Iterable[ShapeFound]) -> Iterator[str]:
    """Each shape with its word, what the paper has, and its checks; read as it is, and as Markdown."""
    for shape in shapes:
        yield f"{shape.word.upper()}: {shape.statement}"
        if shape.paper is not None:
            yield f"- paper: {shape.paper}"
        yield from (f"- {_answer(check)}: {check.statement}" for check in shape.checks)
        # Without it, the next shape would belong to this list.
        yield ""


def _answer(check: Checked) -> str:
    return "yes" if check.held else "too few pairs" if check.few else "no"


def table_head(names: Sequence[str]) -> list[str]:
    """The first two lines of a table."""
    return [table_row(*names), "|" + " --- |" * len(names)]


def table_row(*cells: str) -> str:
    """One line of a table."""
    return "| " + " | ".join(cells) + " |"
