"""What the page shows, worked out from the report's data: rows of tables, points of plots, sentences."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from davylamp.report.model import CanaryRow, ReportData, Run
from davylamp.report.series import Key, Series, series_of
from davylamp.report.text import shorten
from davylamp.verdict.model import Cell, Copying, Rules
from davylamp.verdict.statistics import holm


@dataclass(frozen=True, slots=True)
class Row:
    """One arm at one dose in one model.

    Attributes:
        run: the model.
        cell: what was read.
        exposure_p: p of the ranks after Holm's correction over the model's cells; nothing for twins.
        greedy_p: the same for exact recovery.
        seen: occurrences in training, all epochs; nothing where davylamp did not train.
    """

    run: Run
    cell: Cell
    exposure_p: float | None
    greedy_p: float | None
    seen: int | None


@dataclass(frozen=True, slots=True)
class More:
    """What the canaries of one arm, dose and model say besides the verdict.

    Attributes:
        run: the model.
        dose: occurrences in the planted file.
        count: number of canaries.
        first: those whose own secret the model finds the likeliest of all planted ones.
        tied: those that share their rank with another candidate.
        exposure: median exposure in bits.
        reference: median exposure under the reference, if there is one.
        difference: median of exposure less reference exposure, canary by canary.
    """

    run: Run
    dose: int
    count: int
    first: int
    tied: int
    exposure: float
    reference: float | None
    difference: float | None


@dataclass(frozen=True, slots=True)
class Group:
    """Models whose secrets are ranked among equally many candidates, so that one plot holds them.

    Attributes:
        key: a name for ids.
        runs: the models.
        series: their arms, in order.
    """

    key: str
    runs: tuple[Run, ...]
    series: tuple[Series, ...]

    def of(self, run: Run, arm: str) -> Series:
        """The series that an arm of a model belongs to."""
        return next(each for each in self.series if (each.variant, each.arm) == (run.variant, arm))

    @property
    def candidates(self) -> int:
        """How many candidates each secret is ranked among."""
        return self.runs[0].verdict.candidates

    @property
    def space(self) -> int | None:
        """Size of the space that the candidates are a pool of; nothing where they are all of it."""
        verdict = self.runs[0].verdict
        return round(1 / verdict.kappa) if verdict.sampled else None

    @property
    def ceiling(self) -> float:
        """Largest exposure in bits."""
        return self.runs[0].verdict.ceiling_bits

    @property
    def baseline(self) -> float:
        """Mean exposure of a random rank in bits."""
        return self.runs[0].verdict.baseline_bits

    @property
    def seeds(self) -> list[int]:
        """Seeds of the plans."""
        return sorted({run.verdict.seed for run in self.runs})

    @property
    def named(self) -> bool:
        """Whether models must be named: arm, variant and seed tell them apart no more."""
        keys = [(run.variant, cell.arm, cell.dose, cell.seed) for run in self.runs for cell in run.verdict.cells]
        return len(set(keys)) < len(keys)

    @property
    def beside(self) -> str:
        """What stands side by side in a plot, as the end of a sentence; nothing where an arm has one mark a dose."""
        words = "; side by side, left to right: "
        runs = sorted(self.runs, key=lambda run: (run.verdict.seed, run.name))
        if self.named:
            return f"{words}models {', '.join(shorten(run.name, 40) for run in runs)}"
        return f"{words}seeds {', '.join(map(str, self.seeds))}" if len(self.seeds) > 1 else ""

    def rows(self, series: Series | None = None) -> list[Row]:
        """Cells of a series (or of all) by dose and model."""
        found = [row for run in self.runs for row in _rows(run) if self._in(series, run, row.cell.arm)]
        return sorted(found, key=lambda row: (self.of(row.run, row.cell.arm).index, row.cell.dose, row.cell.seed))

    def copies(self, probe: str, series: Series | None = None) -> list[tuple[Run, Copying, Copying | None]]:
        """What was said when a code was shown: the trained one, and the shown one where they differ."""
        found = []
        for run in self.runs:
            rows = [row for row in run.verdict.copying if row.probe == probe and self._in(series, run, row.arm)]
            other = {(row.arm, row.dose): row for row in rows if row.target == "replacement"}
            found += [(run, row, other.get((row.arm, row.dose))) for row in rows if row.target == "trained"]
        return sorted(found, key=lambda each: (self.of(each[0], each[1].arm).index, each[1].dose, each[1].seed))

    def more(self, series: Series) -> list[More]:
        """Further readings of a series."""
        found = []
        for run in self.runs:
            own = [each for each in run.canaries if self._in(series, run, each.arm) and each.role != "positive"]
            for dose in sorted({canary.dose for canary in own}):
                found.append(_more(run, dose, [canary for canary in own if canary.dose == dose]))
        return sorted(found, key=lambda each: (each.dose, each.run.verdict.seed))

    def _in(self, series: Series | None, run: Run, arm: str) -> bool:
        return series is None or (series.variant, series.arm) == (run.variant, arm)


def groups(data: ReportData) -> list[Group]:
    """Models by what their secrets are ranked among."""
    found: dict[tuple[int, bool, float], list[Run]] = {}
    for run in data.runs:
        verdict = run.verdict
        found.setdefault((verdict.candidates, verdict.sampled, verdict.kappa), []).append(run)
    every = series_of(data.runs)
    made = []
    for index, runs in enumerate(found.values()):
        keys = {(run.variant, cell.arm) for run in runs for cell in run.verdict.cells}
        made.append(Group(f"g{index}", tuple(runs), tuple(each for key, each in every.items() if key in keys)))
    return made


def only_series(run: Run, series: Mapping[Key, Series]) -> Series | None:
    """The series of a model that has one alone."""
    own = {cell.arm for cell in run.verdict.cells}
    return series[run.variant, own.pop()] if len(own) == 1 else None


def rules(data: ReportData) -> list[Rules]:
    """The rules that verdicts were decided by, each once."""
    found: list[Rules] = []
    for run in data.runs:
        if run.verdict.rules not in found:
            found.append(run.verdict.rules)
    return found


def ruled_out(data: ReportData) -> tuple[float, float] | None:
    """Least and greatest rate that the cells with ``not seen`` by rank leave room for."""
    highs = [
        cell.in_reach.high
        for run in data.runs
        for cell in run.verdict.cells
        if cell.dose and cell.exposure_verdict == "not seen"
    ]
    return (min(highs), max(highs)) if highs else None


def dig(data: Mapping[str, Any] | None, *path: str) -> Any:
    """A value inside nested objects that a file held, or nothing."""
    value: Any = data
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def figure(data: Mapping[str, Any] | None, *path: str) -> float | None:
    """A finite number inside nested objects, or nothing."""
    value = dig(data, *path)
    right = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if right else None


def loss_curve(run: Run) -> list[float]:
    """Losses of each step in nats a token, if davylamp trained the model."""
    losses = dig(run.training, "losses")
    if not isinstance(losses, list):
        return []
    return [float(loss) for loss in losses if isinstance(loss, int | float) and math.isfinite(loss)]


def audit_seconds(run: Run) -> float | None:
    """Wall time of the audit, the reference included, if it was kept."""
    times = [figure(run.audit, "seconds", name) for name in dig(run.audit, "seconds") or ()]
    found = [time for time in times if time is not None]
    return sum(found) if found else None


def examples(data: ReportData) -> list[dict[str, str]]:
    """One carrier for each arm, from the first model that has it."""
    found: dict[str, dict[str, str]] = {}
    for run in data.runs:
        for example in run.examples:
            found.setdefault(example["arm"], example)
    return list(found.values())


def about(run: Run) -> list[tuple[str, str]]:
    """What a model was made from and what was asked, with hashes."""
    elsewhere = "not recorded: trained elsewhere"
    trained = run.training
    return [
        *([("training", elsewhere)] if trained is None else flat(dig(trained, "model"), "trained from: ")),
        ("parameters", _whole(trained, "parameters")),
        *(flat(dig(trained, "preflight"), "preflight: ") if dig(trained, "preflight") else []),
        *(flat(dig(trained, "protection"), "rows protected: ") if dig(trained, "protection") else []),
        *flat(run.corpus, "corpus: "),
        ("planted file: rows", f"{run.rows:,}"),
        ("planted file: sha256", run.planted_sha256),
        ("audited model", str(run.audit.get("release", "not recorded"))),
        ("reference", str(run.audit.get("reference") or "none")),
    ]


def _whole(data: Mapping[str, Any] | None, name: str) -> str:
    value = figure(data, name)
    return "not recorded" if value is None else f"{value:,.0f}"


def flat(data: Any, prefix: str = "") -> list[tuple[str, str]]:
    """Nested settings as dotted keys and texts; long lists of numbers by their length."""
    if isinstance(data, Mapping) and data:
        return [pair for key, value in data.items() for pair in flat(value, f"{prefix}{key}.")]
    name = prefix.removesuffix(".")
    if isinstance(data, list | tuple):
        if any(isinstance(value, Mapping) for value in data):
            return [pair for index, value in enumerate(data) for pair in flat(value, f"{name}[{index}].")]
        if len(data) > 24:
            return [(name, f"{len(data):,} values")]
        return [(name, ", ".join(map(str, data)) or "none")]
    words = {None: "none", True: "yes", False: "no", "": "(empty)"}
    return [(name, words.get(data, str(data)) if data is None or isinstance(data, bool | str) else str(data))]


def same(values: Sequence[Any]) -> Any:
    """The value that all share, or nothing."""
    return values[0] if values and all(value == values[0] for value in values) else None


def _rows(run: Run) -> list[Row]:
    judged = [cell for cell in run.verdict.cells if cell.dose]
    adjusted = holm([cell.exposure_p for cell in judged] + [cell.greedy_p for cell in judged])
    found = {id(cell): (adjusted[at], adjusted[at + len(judged)]) for at, cell in enumerate(judged)}
    epochs = figure(run.training, "spec", "epochs")
    rows = []
    for cell in run.verdict.cells:
        by_rank, word_for_word = found.get(id(cell), (None, None))
        seen = None if epochs is None else round(cell.dose * epochs)
        rows.append(Row(run, cell, by_rank, word_for_word, seen))
    return rows


def _more(run: Run, dose: int, own: Sequence[CanaryRow]) -> More:
    pairs = [(row.exposure, row.reference_exposure) for row in own if row.reference_exposure is not None]
    return More(
        run=run,
        dose=dose,
        count=len(own),
        first=sum(row.rank_among_planted == 1 for row in own),
        tied=sum(row.tied > 0 for row in own),
        exposure=median(row.exposure for row in own),
        reference=median(other for _, other in pairs) if pairs else None,
        difference=median(mine - other for mine, other in pairs) if pairs else None,
    )
