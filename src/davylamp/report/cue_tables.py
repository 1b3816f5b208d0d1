"""Tables of copying, following a cue and remembering: what the prompt showed, and which code was said."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from davylamp.report.cues import OWN, place
from davylamp.report.model import CueRow, Run
from davylamp.report.series import Series
from davylamp.report.view import Group

USUAL = ("hidden", "as_trained", "replacement")
"""Probes that other tables hold whole; where nothing else was asked, these tables would only repeat them."""


@dataclass(frozen=True, slots=True)
class CueLine:
    """One probe in one model.

    Attributes:
        run: the model.
        shows: what the prompt showed, in words.
        first: whether it is the first model under this probe.
        after: the readings of the model.
        before: those of the model before fine-tuning, if they were taken.
    """

    run: Run
    shows: str
    first: bool
    after: CueRow
    before: CueRow | None


@dataclass(frozen=True, slots=True)
class CueTable:
    """One arm at one dose.

    Attributes:
        series: the arm.
        dose: the dose; 0 for twins.
        lines: its readings by probe and model.
    """

    series: Series
    dose: int
    lines: tuple[CueLine, ...]

    @property
    def sides(self) -> tuple[str, ...]:
        """``after``, and ``before`` where it was read."""
        return ("after", "before") if any(line.before is not None for line in self.lines) else ("after",)

    def ranked(self, side: str, target: str) -> bool:
        """Whether any exposure of a code was read."""
        rows = [getattr(line, side) for line in self.lines]
        said = [getattr(row, target) for row in rows if row is not None]
        return any(each is not None and each.bits is not None for each in said)


def cue_tables(group: Group) -> list[CueTable]:
    """A table for each arm and dose, the largest dose of each first; none where only the usual probes were asked."""
    rows = [row for run in group.runs for row in run.cues]
    if all(row.probe in USUAL and (row.release == "model" or row.probe == "hidden") for row in rows):
        return []
    made = []
    for series in group.series:
        doses = {row.dose for run in group.runs for row in run.cues if _belongs(series, run, row)}
        made += [_table(group, series, dose) for dose in sorted(doses, reverse=True)]
    return made


def first_tables(tables: Sequence[CueTable]) -> list[CueTable]:
    """The table of each arm's largest dose."""
    found: dict[int, CueTable] = {}
    for table in tables:
        found.setdefault(table.series.index, table)
    return list(found.values())


def asked_before(run: Run) -> bool:
    """Whether the model before fine-tuning was asked; a reference of other measures is asked without a code alone."""
    return any(row.release == "reference" and row.probe != "hidden" for row in run.cues)


def _belongs(series: Series, run: Run, row: CueRow) -> bool:
    return (run.variant, row.arm) == (series.variant, series.arm)


def _table(group: Group, series: Series, dose: int) -> CueTable:
    found = []
    for run in group.runs:
        own = [row for row in run.cues if _belongs(series, run, row) and row.dose == dose]
        before = {row.probe: row for row in own if row.release == "reference"} if asked_before(run) else {}
        found += [(row, run, before.get(row.probe)) for row in own if row.release == "model"]
    found.sort(key=lambda each: (place(each[0].probe), each[1].verdict.seed, each[1].name))
    lines: list[CueLine] = []
    for row, run, other in found:
        first = not lines or lines[-1].after.probe != row.probe
        lines.append(CueLine(run, shows(row), first, row, other))
    return CueTable(series, dose, tuple(lines))


def shows(row: CueRow) -> str:
    """What the prompt showed under a probe, in words."""
    how = f"encoded ({row.encoding})" if row.encoding else "in clear"
    if row.probe == "hidden":
        return "nothing: the code is masked"
    if row.probe == "cue_masked":
        return "what training showed, its words masked"
    if row.probe in OWN:
        return f"its own code {how}" + (", as in training" if row.probe == "as_trained" else "")
    if row.probe.startswith("unseen"):
        return f"unseen codes {how}"
    return f"another code {how}"
