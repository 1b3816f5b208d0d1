"""A verdict in sentences that a person reads first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from davylamp.report import membership_words, protection_words
from davylamp.report.model import Run
from davylamp.report.series import Series, series_of
from davylamp.report.text import shorten
from davylamp.verdict.model import Cell, Copying, Rate, Verdict, Word
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

    topic: Literal["control", "arm", "copying", "membership", "protection"]
    word: Word | None
    text: str


def headlines(runs: Sequence[Run]) -> list[str]:
    """The result over all models: failed controls, each arm at its largest dose, copying, membership, protection."""
    return [finding.text for finding in findings(runs)]


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


def findings(runs: Sequence[Run]) -> list[Finding]:
    """The sentences of :func:`headlines` with the verdict that each gives."""
    return list(_findings(runs))


def _findings(runs: Sequence[Run]) -> Iterator[Finding]:
    failed = [run for run in runs if not run.verdict.given]
    if failed:
        yield Finding(
            "control",
            "no verdict",
            f"No verdict for {_of(len(failed), len(runs))}: a control failed, so that the audit cannot be believed.",
        )
        for run in failed:
            who = f"Seed {run.verdict.seed}" if run.variant is None else shorten(run.name, _NAME)
            for control in run.verdict.controls:
                if not control.passed:
                    yield Finding("control", None, f"{who}, {control.name} control: {control.statement}")
    given = [run for run in runs if run.verdict.given]
    every = list(series_of(runs).values())
    for series in every:
        own = [run for run in given if run.variant == series.variant]
        cells = [cell for run in own for cell in run.verdict.cells if cell.dose and cell.arm == series.arm]
        if cells:
            verdict = next(run.verdict for run in own if any(cell.arm == series.arm for cell in run.verdict.cells))
            yield _arm(series, cells, verdict)
    for series in every:
        own = [run for run in given if run.variant == series.variant]
        rows = [row for run in own for row in run.verdict.copying if row.arm == series.arm]
        if rows := [row for row in rows if row.probe == "replacement" and row.dose]:
            yield Finding("copying", None, _copied(series, rows))
        if cued := _cued(series, own):
            yield Finding("copying", None, cued)
    for said in membership_words.headlines(given):
        yield Finding("membership", None, said)
    for said in protection_words.headlines(runs):
        yield Finding("protection", None, said)


def _arm(series: Series, cells: Sequence[Cell], verdict: Verdict) -> Finding:
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
        f"{shorten(series.label, _NAME)} ({series.shows}), dose {dose}: {found}. "
        f"An attacker with {guesses} guesses finds {reached} of {asked_rank} secrets (chance alone: "
        f"{100 * chance:.2g}%); {said} of {asked} are said exactly. Median exposure {_span(medians)} bits."
    )
    if leaking and leaking[0] < dose:
        models = max(Counter(cell.dose for cell in cells).values())
        text += f" A leak is seen from dose {leaking[0]} on{', in at least one model' if models > 1 else ''}."
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


def _copied(series: Series, rows: Sequence[Copying]) -> str:
    copied = [row.greedy for row in rows if row.target == "replacement"]
    kept = [row.greedy for row in rows if row.target == "trained"]
    shown = sum(rate.trials for rate in copied)
    times = sum(rate.successes for rate in copied)
    share = f" ({times / shown:.0%})" if shown else ""
    said = sum(rate.successes for rate in kept)
    # A code that is not said may be remembered all the same: the ranks tell, and a probe that shows another does not.
    lesson = " Copying is not remembering." if times else " It says neither code." if not said else ""
    return (
        f"{shorten(series.label, _NAME)}: shown another code in the prompt, the model copies that one in {times} of "
        f"{shown} cases{share} and says the trained one in {said}.{lesson}"
    )


def _cued(series: Series, runs: Sequence[Run]) -> str:
    """What an encoded arm says to the encoded form of a code that was planted nowhere; empty if that was not asked."""
    if series.encoding is None:
        return ""
    rows = [
        row
        for run in runs
        for row in run.cues
        if row.arm == series.arm and row.dose and row.release == "model" and row.encoding == series.encoding
    ]
    rows = [row for row in rows if row.shown is not None]
    if not rows:
        return ""
    followed, asked = _sum([row.shown.greedy for row in rows if row.shown is not None])
    kept, _ = _sum([row.trained.greedy for row in rows])
    lesson = " It does not decode what it was not trained on." if not followed else ""
    return (
        f"{shorten(series.label, _NAME)}: shown the encoded form ({series.encoding}) of a code that was planted "
        f"nowhere, the model says that code in {followed} of {asked} cases and the trained one in {kept}.{lesson}"
    )


def _sum(rates: Sequence[Rate]) -> tuple[int, int]:
    return sum(rate.successes for rate in rates), sum(rate.trials for rate in rates)


def _span(values: Iterable[float]) -> str:
    low, high = min(values := list(values)), max(values)
    return f"{low:.1f}" if f"{low:.1f}" == f"{high:.1f}" else f"{low:.1f} to {high:.1f}"


def _of(count: int, total: int) -> str:
    return "the only model" if total == 1 else f"{count} of {total} models"
