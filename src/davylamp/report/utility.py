"""What the models are still good for, as tables and plots."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from davylamp.report import curves
from davylamp.report.model import ReportData, Run, Utility
from davylamp.report.panels import BOTH, Figure
from davylamp.report.series import series_of
from davylamp.report.text import percent_span
from davylamp.report.tradeoff import Leakage, leakages, tradeoff
from davylamp.report.view import groups, only_series


@dataclass(frozen=True, slots=True)
class UtilityTable:
    """What was measured in the same way, on the same rows.

    Attributes:
        name: what, in words.
        source: where the rows came from.
        sha256: hash of that source.
        rows: base first, then models without canaries, then the audited ones.
        figure: the rates as a plot.
        with_loss: whether any row has a held-out loss.
        leakages: what each row's model gives away, an arm each; none where it has no canaries.
        tradeoff: utility against leakage, if any of the models was audited.
    """

    name: str
    source: str
    sha256: str
    rows: tuple[Utility, ...]
    figure: Figure
    with_loss: bool
    leakages: tuple[tuple[Leakage, ...], ...]
    tradeoff: Figure | None


def utilities(data: ReportData) -> list[UtilityTable]:
    """Utilities by what was measured."""
    keys = dict.fromkeys((each.name, each.source, each.sha256) for each in data.utilities)
    names = [run.name for run in data.runs]
    found = groups(data)
    leaks = {run.name: tuple(leakages(run, group)) for group in found for run in group.runs}
    made = []
    for index, key in enumerate(keys):
        rows = [each for each in data.utilities if (each.name, each.source, each.sha256) == key]
        rows.sort(key=lambda each: _place(each, names))
        figure = _utility_figure(f"utility{index}", key[0], rows, data.runs)
        made.append(
            UtilityTable(
                *key,
                rows=tuple(rows),
                figure=figure,
                with_loss=any(row.loss is not None for row in rows),
                leakages=tuple(leaks.get(row.who, ()) for row in rows),
                tradeoff=tradeoff(f"tradeoff{index}", rows, found),
            )
        )
    return made


def _place(each: Utility, names: Sequence[str]) -> tuple[int, str]:
    """The base model, models without canaries, and the audited ones in the order of the report."""
    if each.who in names:
        return 2 + names.index(each.who), ""
    return (0, "") if each.who == "base" else (1, each.who)


def _utility_figure(key: str, name: str, rows: Sequence[Utility], runs: Sequence[Run]) -> Figure:
    series = series_of(runs)
    single = {run.name: only_series(run, series) for run in runs}
    kinds = (
        ("the base model", [row for row in rows if row.who == "base"]),
        ("without canaries", [row for row in rows if row.who != "base" and row.who not in single]),
        ("with canaries", [row for row in rows if row.who in single]),
    )
    said = [f"{kind} {percent_span([row.successes / row.trials for row in own])}" for kind, own in kinds if own]
    finding = f"{name}: {'; '.join(said)}."
    bars = []
    for row in rows:
        own = single.get(row.who)
        bars.append((row.who, None if own is None else own.index, row.successes / row.trials, row.low, row.high))
    return Figure(finding, tuple(curves.rates(key, name, finding, bars, kind) for kind in BOTH))
