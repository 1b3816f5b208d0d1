"""From the runs of a study to what it found: comparisons canary by canary, and the shapes."""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from davylamp.bounds.intervals import clopper_pearson
from davylamp.canaries.manifest import Canary, Manifest
from davylamp.errors import Fault, RecipeError, RunFolderError
from davylamp.measures import readings as tables
from davylamp.measures.paired import Paired, paired_readings
from davylamp.report.data import Utility, utilities_of
from davylamp.report.study import Checked, Compared, SeedPart, ShapeFound, Word
from davylamp.runs.folder import RunFolder
from davylamp.studies.protocol.spec import Check, Comparison, Select, Shape, Study
from davylamp.studies.runner import Task


def readings_of(tasks: Sequence[Task]) -> pl.DataFrame:
    """The readings of every audited run, with the run's variant and a key that is one for one canary.

    Returns:
        The columns of :data:`davylamp.measures.readings.SCHEMA` and ``run``, ``variant`` and ``key``; where
        exposure was read, ``top`` is a measure too.

    Raises:
        RunFolderError: a run lacks its readings.
    """
    frames = []
    for task in tasks:
        if task.kind != "audit":
            continue
        folder = RunFolder(task.folder)
        manifest = Manifest.load(folder.manifest)
        keys = {canary.id: _key(canary) for canary in manifest.canaries}
        frame = tables.load(folder.readings)
        frames.append(
            frame.with_columns(
                run=pl.lit(task.folder.name),
                variant=pl.lit(task.variant, pl.String),
                # Readings of a code that was shown in a canary's place belong to that canary's carrier.
                key=pl.col("canary").str.split(".").list.first().replace_strict(keys)
                + pl.col("canary").str.extract(r"(\..*)$").fill_null(""),
            )
        )
    whole = pl.concat(frames)
    top = whole.filter(pl.col("measure") == "rank").with_columns(
        measure=pl.lit("top"), value=(pl.col("value") == 1).cast(pl.Float64), unit=pl.lit("success")
    )
    return pl.concat([whole, top])


def _key(canary: Canary) -> str:
    """A canary's identity across runs: two that share an id but not a secret are not compared."""
    text = repr((canary.secret, canary.carrier.prompt, canary.carrier.completion, canary.carrier.system))
    return f"{canary.id}:{hashlib.sha256(text.encode('utf-8')).hexdigest()[:12]}"


def select(frame: pl.DataFrame, what: Select) -> pl.DataFrame:
    """The readings that a selection names.

    Raises:
        RecipeError: there are none.
    """
    given = what.model_dump(exclude_none=True)
    found = frame.filter(*(pl.col(name) == value for name, value in given.items()))
    if found.is_empty():
        raise RecipeError(Fault("select", said(what), "readings that the study's recipe takes"))
    return found


def said(what: Select) -> str:
    """A selection in words."""
    parts = [part for part in (what.variant, what.arm) if part]
    if what.dose is not None:
        parts.append(f"dose {what.dose}")
    if what.role != "focus":
        parts.append(what.role)
    if what.probe != "hidden":
        parts.append(f"probe {what.probe}")
    if what.target != "trained":
        parts.append(f"{what.target} code")
    if what.release != "model":
        parts.append("before fine-tuning")
    return f"{what.measure} of {', '.join(parts) or 'all'}"


def compare(frame: pl.DataFrame, comparison: Comparison, confidence: float) -> Compared:
    """One comparison over all seeds, and seed by seed.

    Raises:
        RecipeError: a side has no readings.
        InputError: the sides are not readings of the same canaries.
    """
    of, over = select(frame, comparison.of), select(frame, comparison.over)
    unit = str(of["unit"][0])
    found = paired_readings(
        over, of, on=("seed", "key"), by="seed", what=_plural(comparison.of.measure), confidence=confidence
    )
    return Compared(
        name=comparison.name,
        statement=found.statement,
        unit=unit,
        n=found.n,
        rises=found.rises,
        falls=found.falls,
        ties=found.ties,
        median=found.median,
        low=found.low,
        high=found.high,
        exact_low=_finite(found.exact_low),
        exact_high=_finite(found.exact_high),
        p=found.p,
        seeds=tuple(_seeds(found)),
        first_median=_middle(of),
        second_median=_middle(over),
        sides=_sides(comparison),
        pairs=_pairs(over, of),
    )


def _sides(comparison: Comparison) -> tuple[str, str]:
    """What tells the sides of a comparison apart, in words: ``constant-first`` and ``constant-last``."""
    over, of = comparison.over.model_dump(), comparison.of.model_dump()
    keys = [key for key in over if over[key] != of[key]]
    return _side(over, keys), _side(of, keys)


def _side(side: dict[str, Any], keys: Sequence[str]) -> str:
    forms = {"dose": "dose {}", "probe": "probe {}", "target": "{} code"}
    words = {
        "top": "rank 1",
        "greedy_recovery": "said exactly",
        "model": "fine-tuned",
        "reference": "before fine-tuning",
    }
    parts = [forms.get(key, "{}").format(words.get(side[key], side[key])) for key in keys if side[key] is not None]
    return ", ".join(parts) or "all"


def _pairs(over: pl.DataFrame, of: pl.DataFrame) -> tuple[tuple[int, float, float], ...]:
    """Seed and both values of every pair; that the keys of both sides are the same was checked before."""
    joined = over.join(of, on=["seed", "key"], suffix="_of").select("seed", "value", "value_of")
    return tuple(sorted((int(seed), float(first), float(second)) for seed, first, second in joined.rows()))


def _seeds(found: Paired) -> Iterator[SeedPart]:
    for group in found.groups:
        yield SeedPart(seed=int(group.name), n=group.n, rises=group.rises, falls=group.falls, median=group.median)


def _plural(measure: str) -> str:
    return {"exposure": "exposures", "greedy_recovery": "recoveries", "top": "ranks"}.get(measure, f"{measure} values")


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _middle(frame: pl.DataFrame) -> float:
    """Median of a selection; its mean, which is a rate, where it holds successes."""
    statistic = frame["value"].mean() if frame["unit"][0] == "success" else frame["value"].median()
    return float(str(statistic))


def find(
    study: Study, frame: pl.DataFrame, compared: Sequence[Compared], utilities: Sequence[Utility], arms: Sequence[str]
) -> tuple[ShapeFound, ...]:
    """Look for every shape of a study."""
    named = {each.name: each for each in compared}
    return tuple(_shape(shape, study, frame, named, utilities, arms) for shape in study.shapes)


def _shape(
    shape: Shape,
    study: Study,
    frame: pl.DataFrame,
    compared: dict[str, Compared],
    utilities: Sequence[Utility],
    arms: Sequence[str],
) -> ShapeFound:
    checks = []
    for check in shape.checks:
        if check.comparison is not None:
            checks.append(_direction(check, compared[check.comparison], study.confidence))
        elif check.level is not None:
            checks.append(_level(check, check.level, frame))
        elif check.order is not None:
            checks.append(_order(check.order, frame))
        elif check.utility is not None:
            checks.append(_better(*check.utility, utilities, arms, study.confidence))
    held = sum(each.held for each in checks)
    word: Word = "held" if held == len(checks) else "held in part" if held else "not held"
    return ShapeFound(statement=shape.statement, paper=shape.paper, word=word, checks=tuple(checks))


def _direction(check: Check, found: Compared, confidence: float) -> Checked:
    up = check.goes == "up"
    right = found.rises > found.falls if up else found.falls > found.rises
    return Checked(
        statement=f"{found.name}, expected to {'rise' if up else 'fall'}: {found.statement}",
        held=right and found.p <= 1 - confidence,
    )


def _level(check: Check, what: Select, frame: pl.DataFrame) -> Checked:
    found = select(frame, what)
    values = [_middle(part) for _, part in sorted(found.group_by("seed"), key=lambda each: each[0])]
    rate = found["unit"][0] == "success"
    lowest, highest = check.at_least, check.at_most
    held = all((lowest is None or value >= lowest) and (highest is None or value <= highest) for value in values)
    bounds = [
        f"at least {lowest:g}" if lowest is not None else "",
        f"at most {highest:g}" if highest is not None else "",
    ]
    shown = ", ".join(f"{value:.0%}" if rate else f"{value:.2f}" for value in values)
    unit = "" if rate else f" {found['unit'][0]}"
    kind = "rate" if rate else "median"
    return Checked(
        statement=f"{kind} {said(what)}, expected {' and '.join(filter(None, bounds))} in every seed: {shown}{unit}",
        held=held,
    )


def _order(whats: Sequence[Select], frame: pl.DataFrame) -> Checked:
    rows: dict[int, list[float]] = {}
    for what in whats:
        for (seed,), part in select(frame, what).group_by("seed"):
            rows.setdefault(int(str(seed)), []).append(_middle(part))
    held = all(a <= b for values in rows.values() for a, b in itertools.pairwise(values))
    shown = "; ".join(" -> ".join(f"{value:.2f}" for value in rows[seed]) for seed in sorted(rows))
    return Checked(
        statement=f"medians that do not fall, {said(whats[0])} to {said(whats[-1])}, in every seed: {shown}", held=held
    )


def _better(worse: str, better: str, utilities: Sequence[Utility], arms: Sequence[str], confidence: float) -> Checked:
    first, second = (_pooled(who, utilities, arms, confidence) for who in (worse, better))
    what = utilities[0].name
    return Checked(
        statement=f"{better} better than {worse} at {what}, intervals apart: {second[0]} against {first[0]}",
        held=second[1] > first[2],
    )


def _pooled(who: str, utilities: Sequence[Utility], arms: Sequence[str], confidence: float) -> tuple[str, float, float]:
    """Right answers of all models of one kind together.

    Raises:
        RunFolderError: there are none.
    """
    mine = [each for each in utilities if _kind(each.who, arms) == who]
    if not mine:
        raise RunFolderError(f"no utility of {who!r} was measured: the study's recipe needs utility (and clean: true)")
    right, rows = sum(each.successes for each in mine), sum(each.trials for each in mine)
    interval = clopper_pearson(right, rows, confidence)
    return f"{right} of {rows} [{interval.low:.1%}, {interval.high:.1%}]", interval.low, interval.high


def _kind(who: str, arms: Sequence[str]) -> str:
    """``base``, ``clean`` or the arm of a run by its name, which ends in ``-sSEED``."""
    stem = who.rpartition("-s")[0] or who
    return next((name for name in (*arms, "clean", "base") if stem == name or stem.endswith(f"-{name}")), stem)


def utilities_below(folder: Path) -> tuple[Utility, ...]:
    """What the models of a study are still good for."""
    return tuple(utilities_of(folder))
