"""What the models are still good for, as tables and plots."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from davylamp.report import curves
from davylamp.report.model import ReportData, Run, Utility
from davylamp.report.panels import BOTH, Figure
from davylamp.report.series import series_of
from davylamp.report.text import percent_span, shorten
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
        origin: where these rows and those of training came from, in a sentence or two.
        foreign: why they do not measure the task trained on, as far as the sources tell; empty where they may.
    """

    name: str
    source: str
    sha256: str
    rows: tuple[Utility, ...]
    figure: Figure
    with_loss: bool
    leakages: tuple[tuple[Leakage, ...], ...]
    tradeoff: Figure | None
    origin: str
    foreign: str


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
                origin=_origin(rows[0], data.runs),
                foreign=_foreign(rows[0], data.runs),
            )
        )
    return made


GENERATED = "generated emails ("
"""How the source of a corpus begins that davylamp made itself; any other was read from a file."""


def _origin(rows: Utility, runs: Sequence[Run]) -> str:
    said = f"Held-out rows: {shorten(rows.source, 160)}. Training rows: {_trained_on(runs)}."
    if any(run.corpus.get("sha256") == rows.sha256 for run in runs):
        said += " Both sources have the same hash, so that a held-out row may have been trained on."
    return said


def _foreign(rows: Utility, runs: Sequence[Run]) -> str:
    generated = rows.source.startswith(GENERATED)
    kinds = {str(run.corpus.get("source")).startswith(GENERATED) for run in runs}
    if kinds != {not generated}:
        return ""
    if generated:
        return f"the held-out rows are emails that davylamp generated, the training rows came from {_trained_on(runs)}."
    return f"the training rows are emails that davylamp generated, the held-out rows came from {rows.source}."


def _trained_on(runs: Sequence[Run]) -> str:
    sources = dict.fromkeys(str(run.corpus.get("source", "not recorded")) for run in runs)
    return "; ".join(shorten(source, 160) for source in sources)


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
