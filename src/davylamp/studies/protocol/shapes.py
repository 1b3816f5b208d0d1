"""The shapes of a study: what its paper saw, and whether it was seen here."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path

import polars as pl
from scipy.stats import binom

from davylamp.bounds.intervals import clopper_pearson, sign_test
from davylamp.errors import RunFolderError
from davylamp.report.data import Utility, utilities_of
from davylamp.report.study import Checked, Compared, ShapeFound, Word
from davylamp.studies.protocol.analysis import middle, said, select
from davylamp.studies.protocol.spec import Check, Select, Shape, Study
from davylamp.studies.tasks import Task

SHARE, POWER = 0.75, 0.8
"""A direction is ruled out where one that three quarters of the pairs take would have been found with this chance."""


def find(
    study: Study, frame: pl.DataFrame, compared: Sequence[Compared], utilities: Mapping[str, Sequence[Utility]]
) -> tuple[ShapeFound, ...]:
    """Look for every shape of a study.

    Args:
        study: the study.
        frame: what :func:`readings_of` gives.
        compared: the study's comparisons.
        utilities: what :func:`utilities_by_model` gives.

    Raises:
        RecipeError: a shape rests on readings that there are not.
        RunFolderError: it rests on a utility that was not measured.
    """
    named = {each.name: each for each in compared}
    return tuple(_shape(shape, study, frame, named, utilities) for shape in study.shapes)


def _shape(
    shape: Shape,
    study: Study,
    frame: pl.DataFrame,
    compared: dict[str, Compared],
    utilities: Mapping[str, Sequence[Utility]],
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
            checks.append(_better(*check.utility, utilities, study.confidence))
    held = sum(each.held for each in checks)
    word: Word = "held" if held == len(checks) else "held in part" if held else "not held"
    if not held and all(each.few for each in checks):
        word = "too few pairs"
    return ShapeFound(statement=shape.statement, paper=shape.paper, word=word, checks=tuple(checks))


def _direction(check: Check, found: Compared, confidence: float) -> Checked:
    up = check.goes == "up"
    right = found.rises > found.falls if up else found.falls > found.rises
    held = right and found.p <= 1 - confidence
    few = not held and (right or found.p > 1 - confidence) and _power(found.rises + found.falls, confidence) < POWER
    told = f"{found.name}, expected to {'rise' if up else 'fall'}: {found.statement}"
    if few:
        told += f"; {found.rises + found.falls} pairs that differ are too few to rule it out"
    return Checked(statement=told, held=held, few=few)


def _power(pairs: int, confidence: float) -> float:
    """Chance that the sign test finds a direction that a share :data:`SHARE` of the pairs takes."""
    needed = next((k for k in range(pairs // 2 + 1, pairs + 1) if sign_test(k, pairs - k) <= 1 - confidence), None)
    return 0.0 if needed is None else float(binom.sf(needed - 1, pairs, SHARE))


def _level(check: Check, what: Select, frame: pl.DataFrame) -> Checked:
    found = select(frame, what)
    values = [middle(part) for _, part in sorted(found.group_by("seed"), key=lambda each: each[0])]
    rate = found["unit"][0] == "success"
    lowest, highest = check.at_least, check.at_most
    held = all((lowest is None or value >= lowest) and (highest is None or value <= highest) for value in values)
    bounds = [
        f"{word} {100 * bound:g}%" if rate else f"{word} {bound:g}"
        for word, bound in (("at least", lowest), ("at most", highest))
        if bound is not None
    ]
    shown = ", ".join(f"{value:.1%}" if rate else f"{value:.2f}" for value in values)
    unit = "" if rate else f" {found['unit'][0]}"
    kind = "rate" if rate else "median"
    return Checked(
        statement=f"{kind} {said(what)}, expected {' and '.join(bounds)} in every seed: {shown}{unit}",
        held=held,
    )


def _order(whats: Sequence[Select], frame: pl.DataFrame) -> Checked:
    rows: dict[int, list[float]] = {}
    rate = False
    for what in whats:
        found = select(frame, what)
        rate = found["unit"][0] == "success"
        for (seed,), part in found.group_by("seed"):
            rows.setdefault(int(str(seed)), []).append(middle(part))
    held = all(a <= b for values in rows.values() for a, b in itertools.pairwise(values))
    form, kind = (".1%", "rates") if rate else (".2f", "medians")
    shown = "; ".join(" -> ".join(format(value, form) for value in rows[seed]) for seed in sorted(rows))
    return Checked(
        statement=f"{kind} that do not fall, {said(whats[0])} to {said(whats[-1])}, in every seed: {shown}", held=held
    )


def _better(worse: str, better: str, utilities: Mapping[str, Sequence[Utility]], confidence: float) -> Checked:
    first, second = (_pooled(who, utilities, confidence) for who in (worse, better))
    what = utilities[better][0].name
    return Checked(
        statement=f"{better} better than {worse} at {what}, intervals apart: {second[0]} against {first[0]}",
        held=second[1] > first[2],
    )


def _pooled(who: str, utilities: Mapping[str, Sequence[Utility]], confidence: float) -> tuple[str, float, float]:
    """Right answers of all models of one kind together.

    Raises:
        RunFolderError: there are none.
    """
    mine = utilities.get(who)
    if not mine:
        raise RunFolderError(f"no utility of {who!r} was measured: the study's recipe needs utility (and clean: true)")
    right, rows = sum(each.successes for each in mine), sum(each.trials for each in mine)
    interval = clopper_pearson(right, rows, confidence)
    return f"{right} of {rows} [{interval.low:.1%}, {interval.high:.1%}]", interval.low, interval.high


def utilities_by_model(tasks: Sequence[Task], folder: Path) -> dict[str, list[Utility]]:
    """What the models of a study are still good for, those of all seeds and variants together.

    Args:
        tasks: the study's runs.
        folder: where they are.

    Returns:
        By ``base``, ``clean`` and the arms (``all`` where they are trained together). An arm that is called ``base``
        is not under that word, which is the model before fine-tuning.

    Raises:
        RunFolderError: a file is damaged.
    """
    known = {task.folder.name: _model(task) for task in tasks}
    found: dict[str, list[Utility]] = {}
    for each in utilities_of(folder):
        if each.who in known:
            found.setdefault(known[each.who], []).append(each)
    return found


def _model(task: Task) -> str:
    # Told by the run itself: of its folder's name an arm such as 'b-a' would be taken for 'a'.
    if task.kind != "audit":
        return task.kind
    if task.recipe.arms == "together":
        return "all"
    (arm,) = task.plan.arms
    return arm if arm not in ("base", "clean") else f"arm {arm}"
