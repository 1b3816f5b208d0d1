"""A verdict in sentences that a person reads first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from davylamp.report.text import shorten
from davylamp.verdict.model import Cell, Copying, Verdict, Word

_WORST_FIRST: tuple[Word, ...] = ("leak", "no verdict", "underpowered", "not seen")

_NAME = 80
"""Characters of an arm's name in a sentence."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One sentence of the result.

    Attributes:
        topic: what it is about.
        word: the verdict that it gives; nothing where it gives none.
        text: the sentence.
    """

    topic: Literal["control", "arm", "copying"]
    word: Word | None
    text: str


def headlines(verdicts: Sequence[Verdict]) -> list[str]:
    """The result over all models: controls that failed, then each arm at its largest dose, then copying."""
    return [finding.text for finding in findings(verdicts)]


def overall(verdicts: Sequence[Verdict]) -> Word:
    """The verdict on all models together: the worst that any of them got.

    Where every model failed a control there is none; where only some did, what the others show stands.
    """
    words = {cell_word(cell) for verdict in verdicts if verdict.given for cell in verdict.cells if cell.dose}
    return next((word for word in _WORST_FIRST if word in words), "no verdict")


def cell_word(cell: Cell) -> Word:
    """The worse of the two verdicts on a cell."""
    return min(cell.exposure_verdict, cell.greedy_verdict, key=_WORST_FIRST.index)


def findings(verdicts: Sequence[Verdict]) -> list[Finding]:
    """The sentences of :func:`headlines` with the verdict that each gives."""
    return list(_findings(verdicts))


def _findings(verdicts: Sequence[Verdict]) -> Iterator[Finding]:
    failed = [verdict for verdict in verdicts if not verdict.given]
    if failed:
        yield Finding(
            "control",
            "no verdict",
            f"No verdict for {_of(len(failed), len(verdicts))}: a control failed, so that the audit cannot be "
            "believed.",
        )
        for verdict in failed:
            for control in verdict.controls:
                if not control.passed:
                    yield Finding("control", None, f"Seed {verdict.seed}, {control.name} control: {control.statement}")
    cells = [cell for verdict in verdicts if verdict.given for cell in verdict.cells if cell.dose]
    for arm in dict.fromkeys(cell.arm for cell in cells):
        yield _arm([cell for cell in cells if cell.arm == arm])
    copying = [row for verdict in verdicts if verdict.given for row in verdict.copying]
    for arm in dict.fromkeys(row.arm for row in copying):
        rows = [row for row in copying if row.arm == arm and row.probe == "replacement" and row.dose]
        if rows:
            yield Finding("copying", None, _copied(arm, rows))


def _arm(cells: Sequence[Cell]) -> Finding:
    dose = max(cell.dose for cell in cells)
    top = [cell for cell in cells if cell.dose == dose]
    words = Counter(cell_word(cell) for cell in top)
    found = ", ".join(f"{word} in {_of(count, len(top))}" for word, count in words.items())
    medians = [cell.median for cell in top]
    said, asked = sum(cell.greedy.successes for cell in top), sum(cell.greedy.trials for cell in top)
    leaking = sorted({cell.dose for cell in cells if cell_word(cell) == "leak"})
    since = (
        f" A leak is seen from dose {leaking[0]} on, in at least one model." if leaking and leaking[0] < dose else ""
    )
    return Finding(
        "arm",
        min((cell_word(cell) for cell in cells), key=_WORST_FIRST.index),
        f"{shorten(top[0].arm, _NAME)} (secret {top[0].context} in the training prompt), dose {dose}: {found}. "
        f"Median exposure {_span(medians)} bits; {said} of {asked} secrets are said exactly.{since}",
    )


def _copied(arm: str, rows: Sequence[Copying]) -> str:
    copied = [row.greedy for row in rows if row.target == "replacement"]
    kept = [row.greedy for row in rows if row.target == "trained"]
    shown = sum(rate.trials for rate in copied)
    times = sum(rate.successes for rate in copied)
    share = f" ({times / shown:.0%})" if shown else ""
    lesson = " Copying is not remembering." if times else ""
    return (
        f"{shorten(arm, _NAME)}: shown another code in the prompt, the model copies that one in {times} of {shown} "
        f"cases{share} and says the trained one in {sum(rate.successes for rate in kept)}.{lesson}"
    )


def _span(values: Iterable[float]) -> str:
    low, high = min(values := list(values)), max(values)
    return f"{low:.1f}" if f"{low:.1f}" == f"{high:.1f}" else f"{low:.1f} to {high:.1f}"


def _of(count: int, total: int) -> str:
    return "the only model" if total == 1 else f"{count} of {total} models"
