"""A verdict in sentences that a person reads first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from davylamp.report.text import shorten
from davylamp.verdict.model import Cell, Copying, Verdict, Word
from davylamp.verdict.statistics import trials_to_rule_out

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
    words = [word for word in (cell.exposure_verdict, cell.greedy_verdict) if word is not None]
    return min(words, key=_WORST_FIRST.index, default="no verdict")


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
    cells = [(cell, verdict) for verdict in verdicts if verdict.given for cell in verdict.cells if cell.dose]
    for arm in dict.fromkeys(cell.arm for cell, _ in cells):
        own = [(cell, verdict) for cell, verdict in cells if cell.arm == arm]
        yield _arm([cell for cell, _ in own], own[0][1])
    copying = [row for verdict in verdicts if verdict.given for row in verdict.copying]
    for arm in dict.fromkeys(row.arm for row in copying):
        rows = [row for row in copying if row.arm == arm and row.probe == "replacement" and row.dose]
        if rows:
            yield Finding("copying", None, _copied(arm, rows))


def _arm(cells: Sequence[Cell], verdict: Verdict) -> Finding:
    dose = max(cell.dose for cell in cells)
    top = [cell for cell in cells if cell.dose == dose]
    words = Counter(cell_word(cell) for cell in top)
    found = ", ".join(f"{word} in {_of(count, len(top))}" for word, count in words.items())
    medians = [cell.median for cell in top]
    said, asked = sum(cell.greedy.successes for cell in top), sum(cell.greedy.trials for cell in top)
    leaking = sorted({cell.dose for cell in cells if cell_word(cell) == "leak"})
    reached, asked_rank = sum(cell.in_reach.successes for cell in top), sum(cell.in_reach.trials for cell in top)
    guesses = verdict.rules.guesses
    chance = guesses / verdict.candidates
    text = (
        f"{shorten(top[0].arm, _NAME)} (secret {top[0].context} in the training prompt), dose {dose}: {found}. "
        f"An attacker with {guesses} guesses finds {reached} of {asked_rank} secrets (chance alone: "
        f"{100 * chance:.2g}%); {said} of {asked} are said exactly. Median exposure {_span(medians)} bits."
    )
    if leaking and leaking[0] < dose:
        text += f" A leak is seen from dose {leaking[0]} on, in at least one model."
    return Finding(
        "arm", min((cell_word(cell) for cell in cells), key=_WORST_FIRST.index), text + _rate_left(top, verdict)
    )


def _rate_left(cells: Sequence[Cell], verdict: Verdict) -> str:
    """What the silence of an arm's models leaves room for, in the model that says least."""
    quiet = [cell for cell in cells if cell_word(cell) in ("not seen", "underpowered")]
    if not quiet:
        return ""
    high = max(max(cell.in_reach.high, cell.greedy.high) for cell in quiet)
    room = f" At {verdict.rules.confidence:.0%} confidence at most {high:.0%} of such secrets come out this way"
    if all(cell_word(cell) == "not seen" for cell in quiet):
        return room + "."
    needed = trials_to_rule_out(verdict.rules.rate, verdict.rules.confidence)
    return (
        f"{room}: too much to rule out {verdict.rules.rate:.0%}, which takes at least {needed} canaries without a find."
    )


def _copied(arm: str, rows: Sequence[Copying]) -> str:
    copied = [row.greedy for row in rows if row.target == "replacement"]
    kept = [row.greedy for row in rows if row.target == "trained"]
    shown = sum(rate.trials for rate in copied)
    times = sum(rate.successes for rate in copied)
    share = f" ({times / shown:.0%})" if shown else ""
    said = sum(rate.successes for rate in kept)
    lesson = " Copying is not remembering." if times else " It neither copies nor remembers." if not said else ""
    return (
        f"{shorten(arm, _NAME)}: shown another code in the prompt, the model copies that one in {times} of {shown} "
        f"cases{share} and says the trained one in {said}.{lesson}"
    )


def _span(values: Iterable[float]) -> str:
    low, high = min(values := list(values)), max(values)
    return f"{low:.1f}" if f"{low:.1f}" == f"{high:.1f}" else f"{low:.1f} to {high:.1f}"


def _of(count: int, total: int) -> str:
    return "the only model" if total == 1 else f"{count} of {total} models"
