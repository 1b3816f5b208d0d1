"""Where in training canaries fell, and how fast the model learnt then, in words and figures for each model."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from davylamp.canaries.schedule import Schedule, window_rows
from davylamp.report.model import Run
from davylamp.report.view import dig, figure


@dataclass(frozen=True, slots=True)
class Schedules:
    """When one model was trained on its canaries.

    Attributes:
        run: the model.
        focus: where the canaries under measure fell, an arm each, or one sentence for all.
        auxiliary: the canaries beside them, or ``none``.
        rate: schedule of the learning rate, with its warm-up; nothing where davylamp did not train.
        peak: the largest learning rate of any step.
        cumulative: the sum of the learning rates of all steps.
    """

    run: Run
    focus: tuple[str, ...]
    auxiliary: str
    rate: str | None
    peak: float | None
    cumulative: float | None


def schedules(run: Run) -> Schedules:
    """When a model was trained on its canaries."""
    arms = run.plan.get("arms") or {}
    windows = {arm: _schedule(own.get("schedule") or run.plan.get("schedule")) for arm, own in arms.items()}
    said = {arm: words(schedule, schedule.fractions(), run) for arm, schedule in windows.items()}
    alike = len(set(said.values())) == 1
    focus = (next(iter(said.values())),) if alike else tuple(f"{arm}: {each}" for arm, each in said.items())
    return Schedules(
        run=run,
        focus=focus,
        auxiliary="; ".join(dict.fromkeys(_auxiliary(run, windows))) or "none",
        rate=_rate(run),
        peak=_of_rates(run, "peak_learning_rate", max),
        cumulative=_of_rates(run, "cumulative_learning_rate", math.fsum),
    )


def words(schedule: Schedule, window: tuple[float, float], run: Run) -> str:
    """A schedule in words.

    Args:
        schedule: the schedule.
        window: its window as fractions of training.
        run: the model, for its rows.
    """
    if schedule.anywhere:
        return "anywhere in training"
    first, end = window_rows(window, run.rows)
    parts = [f"from {window[0]:.3g} to {window[1]:.3g} of training (rows {first + 1:,} to {end:,} of {run.rows:,})"]
    if schedule.spacing is not None:
        parts.append(f"an occurrence every {schedule.spacing} update{'s' if schedule.spacing > 1 else ''}")
    else:
        parts.append("in consecutive rows" if schedule.spread == "concentrated" else "in rows drawn at random")
    if schedule.last is not None:
        parts.append(f"the last occurrence at {schedule.last:.3g}")
    return ", ".join(parts)


def _schedule(data: Any) -> Schedule:
    try:
        return Schedule.model_validate(data or {})
    except ValidationError:
        return Schedule()


def _auxiliary(run: Run, windows: Mapping[str, Schedule]) -> Iterator[str]:
    own = run.plan.get("auxiliary")
    if not isinstance(own, Mapping):
        return
    schedule = _schedule(own.get("schedule"))
    doses = ", ".join(f"{dose:,}" for dose in own.get("doses") or ())
    for focus in windows.values():
        where = words(schedule, schedule.fractions(focus.fractions()), run)
        named = f"{schedule.window}, " if isinstance(schedule.window, str) else ""
        yield f"{own.get('per_dose')} of dose {doses} in each arm, {named}{where}"


def _rate(run: Run) -> str | None:
    name = dig(run.training, "spec", "schedule")
    if not isinstance(name, str):
        return None
    steps = figure(run.training, "spec", "warmup_steps") or 0
    return f"{name}, {steps:,.0f} steps of warm-up" if steps else name


def _of_rates(run: Run, name: str, work_out: Any) -> float | None:
    """A figure that training noted, or the same from the rates of its steps, where an older one did not."""
    noted = figure(run.training, name)
    if noted is not None:
        return noted
    rates = dig(run.training, "learning_rates")
    if not isinstance(rates, list) or not rates or not all(isinstance(rate, int | float) for rate in rates):
        return None
    value = float(work_out(rates))
    return value if math.isfinite(value) else None
