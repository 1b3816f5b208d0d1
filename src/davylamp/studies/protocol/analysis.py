"""From the runs of a study to its readings, and to what compares them canary by canary."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import polars as pl

from davylamp.canaries.manifest import Canary, Manifest
from davylamp.errors import Fault, InputError, RecipeError, RunFolderError
from davylamp.measures import readings as tables
from davylamp.measures.paired import Paired, paired_readings
from davylamp.measures.unseen import carrier_of, unseen_codes
from davylamp.report.study import Compared, SeedPart
from davylamp.runs.folder import RunFolder
from davylamp.studies.protocol.spec import Comparison, Select
from davylamp.studies.tasks import Task

_SALT = os.urandom(16)
"""Keeps the keys of one process from being worked out by another."""


WITHIN = {"top": 1, "top10": 10}
"""Measures that are 1 where the code's rank is at most so large, and 0 elsewhere."""


def readings_of(tasks: Sequence[Task]) -> pl.DataFrame:
    """The readings of every audited run, with the run's variant and a key that is one for one canary.

    Returns:
        The columns of :data:`davylamp.measures.readings.SCHEMA` and ``run``, ``variant`` and ``key``; where
        exposure was read, those of :data:`WITHIN` are measures too.

    Raises:
        RunFolderError: a run lacks its readings, or they are of other canaries than its manifest.
    """
    frames = []
    for task in tasks:
        if task.kind != "audit":
            continue
        folder = RunFolder(task.folder)
        frame = tables.load(folder.readings)
        keys = _keys(task, Manifest.load(folder.manifest), frame["canary"].unique().sort())
        frames.append(
            frame.with_columns(
                run=pl.lit(task.folder.name),
                variant=pl.lit(task.variant, pl.String),
                key=pl.col("canary").replace_strict(keys, return_dtype=pl.String),
            )
        )
    whole = pl.concat(frames)
    ranks = whole.filter(pl.col("measure") == "rank")
    return pl.concat([whole, *(_within(ranks, name, rank) for name, rank in WITHIN.items())])


def _within(ranks: pl.DataFrame, name: str, rank: int) -> pl.DataFrame:
    return ranks.with_columns(
        measure=pl.lit(name), value=(pl.col("value") <= rank).cast(pl.Float64), unit=pl.lit("success")
    )


def _keys(task: Task, manifest: Manifest, names: Iterable[str]) -> dict[str, str]:
    """The key of each id that readings hold."""
    canaries = {canary.id: canary for canary in manifest.canaries}
    settings = task.recipe.audit.unseen
    codes = [] if settings is None else unseen_codes(manifest, settings.codes)
    keys = {}
    for name in names:
        carrier, number = carrier_of(name)
        if carrier not in canaries or (number is not None and number >= len(codes)):
            raise RunFolderError(f"{task.folder} holds readings of {name!r}, which its manifest does not know")
        keys[name] = _key(name, canaries[carrier], "" if number is None else codes[number])
    return keys


def _key(name: str, canary: Canary, shown: str) -> str:
    """A canary's identity across runs: two that share an id but not a secret are not compared.

    Messages hold keys. Of a small space a plain hash would give the secret away to whoever tries them all.
    """
    text = repr((canary.secret, canary.carrier, shown))
    return f"{name}:{hashlib.blake2b(text.encode('utf-8', 'backslashreplace'), key=_SALT, digest_size=6).hexdigest()}"


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
    what = _plural(comparison.of.measure)
    try:
        found = paired_readings(over, of, on=("seed", "key"), by="seed", what=what, confidence=confidence)
    except InputError as error:
        # The two tables have no names that a user knows.
        names = {"frame_first": "over", "frame_second": "of"}
        raise InputError(_renamed(fault, comparison.name, names) for fault in error.faults) from error
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
        first_median=middle(of),
        second_median=middle(over),
        sides=_sides(comparison),
        pairs=_pairs(over, of),
    )


def _renamed(fault: Fault, comparison: str, names: dict[str, str]) -> Fault:
    field, allowed = fault.field, fault.allowed
    for table, name in names.items():
        field, allowed = field.replace(table, name), allowed.replace(table, name)
    return replace(fault, field=f"comparison {comparison!r}, {field}", allowed=allowed)


def _sides(comparison: Comparison) -> tuple[str, str]:
    """What tells the sides of a comparison apart, in words: ``constant-first`` and ``constant-last``."""
    over, of = comparison.over.model_dump(), comparison.of.model_dump()
    keys = [key for key in over if over[key] != of[key]]
    return _side(over, keys), _side(of, keys)


def _side(side: dict[str, Any], keys: Sequence[str]) -> str:
    forms = {"dose": "dose {}", "probe": "probe {}", "target": "{} code"}
    words = {
        "top": "rank 1",
        "top10": "rank 10 or better",
        "greedy_recovery": "said exactly",
        "reply_recovery": "said in a whole reply",
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
    plurals = {"exposure": "exposures", "greedy_recovery": "recoveries", "top": "ranks", "top10": "ranks"}
    return plurals.get(measure, f"{measure} values")


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def middle(frame: pl.DataFrame) -> float:
    """Median of a selection; its mean, which is a rate, where it holds successes."""
    statistic = frame["value"].mean() if frame["unit"][0] == "success" else frame["value"].median()
    return float(str(statistic))
