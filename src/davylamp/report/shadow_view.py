"""What shadow models say, as tables and plots: LiRA and RMIA from trials, and counterfactual memorization."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from davylamp.measures.shadow_results import SCORES
from davylamp.report import panels, plots, svg
from davylamp.report.marks import Point, Spec
from davylamp.report.membership_model import Memorization
from davylamp.report.membership_words import together
from davylamp.report.model import Run
from davylamp.report.panels import CROWDED, Figure, Panel
from davylamp.report.series import Series
from davylamp.report.text import digits, percent, shorten, ticks
from davylamp.report.view import Group

MEASURES: Mapping[str, str] = {
    "counterfactual_probability": "probability",
    "counterfactual_log_loss": "truncated log-loss",
}
"""Counterfactual memorization, by the score that it is a difference of."""


@dataclass(frozen=True, slots=True)
class ShadowRow:
    """What shadows say of the records of one arm and dose, under one probe and over one span.

    Attributes:
        run: the run.
        series: the arm.
        dose: occurrences in a shadow that a record is in.
        asked: what the prompt showed, in words.
        span: ``secret`` or ``reply``.
        records: how many.
        aucs: AUC of each score over all shadows; empty where no shadow was attacked.
        cells: memorization by measure.
    """

    run: Run
    series: Series
    dose: int
    asked: str
    span: str
    records: int
    aucs: Mapping[str, float]
    cells: Mapping[str, Memorization]


def shadow_rows(group: Group) -> list[ShadowRow]:
    """Rows of all models, by arm, what was asked, span, dose and seed."""
    found = [row for run in group.runs for row in _rows(group, run)]
    return sorted(
        found,
        key=lambda row: (row.series.index, row.asked, row.span != "secret", row.dose, row.run.verdict.seed),
    )


def _rows(group: Group, run: Run) -> Iterator[ShadowRow]:
    if run.shadows is None:
        return
    aucs: dict[tuple[str, int, str, str], dict[str, float]] = {}
    records: dict[tuple[str, int, str, str], int] = {}
    cells: dict[tuple[str, int, str, str], dict[str, Memorization]] = {}
    for auc in run.shadows.trials:
        key = (auc.arm, auc.shadow_dose, auc.probe, auc.span)
        aucs.setdefault(key, {})[auc.measure] = auc.auc
        records[key] = auc.records
    for cell in run.shadows.cells:
        key = (cell.arm, cell.shadow_dose, cell.probe, cell.span)
        cells.setdefault(key, {})[cell.measure] = cell
        records[key] = cell.records
    for key, count in records.items():
        arm, dose, probe, span = key
        series = group.of(run, arm)
        yield ShadowRow(run, series, dose, _asked(probe, series), span, count, aucs.get(key, {}), cells.get(key, {}))


def _asked(probe: str, series: Series) -> str:
    if probe == "hidden":
        return "secret hidden, as trained" if series.context == "redacted" else "secret hidden"
    return "as trained" if probe == "as_trained" else probe


def measures_of(rows: Sequence[ShadowRow]) -> list[str]:
    """The scores that any row has, in a fixed order."""
    return [score for score in SCORES if any(score in row.aucs for row in rows)]


def memorization(group: Group) -> Figure | None:
    """Counterfactual memorization of the secret, hidden in the prompt, against dose, with the noise floor as a band."""
    rows = [row for row in shadow_rows(group) if row.span == "secret" and row.asked.startswith("secret hidden")]
    made = []
    for measure, words in MEASURES.items():
        cells = [(row, row.cells[measure]) for row in rows if measure in row.cells]
        if cells:
            made.append((words, _spec(group, measure, words, cells), [_point(row, cell) for row, cell in cells]))
    if not made:
        return None
    finding = " ".join(spec.finding for _, spec, _ in made)
    if all(len({(point.series, point.dose) for point in points}) <= CROWDED // 2 for _, _, points in made):
        drawn = tuple(Panel(f"by {words}", plots.against_dose(spec, points, svg.HALF)) for words, spec, points in made)
        return Figure(finding, panels=drawn, legend=group.series)
    parts = [panels.lines(group, spec, points) for _, spec, points in made]
    return Figure(
        " ".join(part.finding for part in parts),
        tuple(drawing for part in parts for drawing in part.drawings),
        tuple(panel for part in parts for panel in part.panels),
        narrow=all(part.narrow for part in parts),
        legend=group.series,
    )


def _spec(group: Group, measure: str, words: str, cells: Sequence[tuple[ShadowRow, Memorization]]) -> Spec:
    high = max(0.01, *(max(cell.mean + cell.mean_error, cell.floor_mean_q95) for _, cell in cells))
    low = min(min(cell.mean - cell.mean_error, -cell.floor_mean_q95) for _, cell in cells)
    above = ticks(high)
    step = above[1] if len(above) > 1 else high
    below = [-step * index for index in range(int(-low / step + 1e-9), 0, -1)]
    title = f"Counterfactual memorization by {words} against dose"
    spec = Spec(
        key=f"{group.key}-{measure.replace('_', '-')}",
        title=title,
        finding="",
        unit=f"memorization, {words}",
        most=high * 1.06,
        marks=[*below, *above],
        mark=lambda value: f"{value:g}",
        levels=(),
        arms={series.index: series.label for series in group.series},
        least=low * 1.06,
        dose="dose: occurrences in a shadow",
    )
    return replace(spec, finding=f"By {words}: {_finding(cells)}.")


def _finding(cells: Sequence[tuple[ShadowRow, Memorization]]) -> str:
    said = []
    for series in {row.series.index: row.series for row, _ in cells}.values():
        own = [(row, cell) for row, cell in cells if row.series is series]
        most = max(row.dose for row, _ in own)
        means = [cell.mean for row, cell in own if row.dose == most]
        floors = [cell.floor_mean_q95 for row, cell in own if row.dose == most]
        values, floor = _span(means), _span(floors)
        said.append(f"{shorten(series.label, 60)} {values} at dose {most:,} (noise floor {floor})")
    return "; ".join(said)


def _span(values: Sequence[float]) -> str:
    low, high = small(min(values)), small(max(values))
    return low if low == high else f"{low} to {high}"


def small(value: float) -> str:
    """A number of any size and sign with two digits that count, three from 1 on."""
    size = abs(value)
    if size == 0:
        return "0"
    sign = "−" if value < 0 else ""
    # Rounded first, so that 0.000099999 is written as the 0.00010 that it rounds to.
    if float(f"{size:.1e}") >= 1e-4:
        return f"{sign}{digits(size) if size >= 1 else f'{size:#.2g}'}"
    mantissa, exponent = f"{size:.1e}".split("e")
    return f"{sign}{mantissa}e−{-int(exponent)}"


def _point(row: ShadowRow, cell: Memorization) -> Point:
    seed = row.run.verdict.seed
    return Point(
        arm=row.series.index,
        series=(row.series.index, f"{seed:012d} {row.run.name}"),
        dose=row.dose,
        value=cell.mean,
        low=cell.mean - cell.mean_error,
        high=cell.mean + cell.mean_error,
        filled=cell.mean > cell.floor_mean_q95,
        judged=row.run.verdict.given,
        label=(
            f"{shorten(row.series.label, 60)}, dose {row.dose}, seed {seed}: {small(cell.mean)}, standard error "
            f"{small(cell.mean_error)}; noise floor {small(cell.floor_mean_q95)}"
        ),
        floor=cell.floor_mean_q95,
    )


def shadow_notes(runs: Sequence[Run]) -> list[tuple[str, str]]:
    """What is to be said of each run's shadows: the run's name and a sentence; equal sentences once."""
    with_shadows = [run for run in runs if run.shadows is not None]
    return together([(run.name, sentence) for run in with_shadows for sentence in _notes(run)], len(with_shadows))


def _notes(run: Run) -> Iterator[str]:
    shadows = run.shadows
    if shadows is None:
        return
    rows = "the corpus's own" if shadows.background == "corpus" else "other rows of the planted file"
    yield f"{shadows.count} shadow models; where a record is out, {rows} stand in its place."
    if shadows.other_model:
        yield f"The shadows attacked another model ({shadows.audited}) than the one that was audited."
    cut = max((cell.truncated for cell in shadows.cells), default=0.0)
    if cut:
        yield f"Log-losses are cut off at {shadows.truncation:g} nats, which up to {percent(cut)} of them reach."
    for note in shadows.notes:
        yield f"{note[:1].upper()}{note[1:].rstrip('.')}."
