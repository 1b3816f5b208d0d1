"""What a private training makes of a plan's schedules."""

from __future__ import annotations

from davylamp.canaries import Plan
from davylamp.training.spec import TrainingSpec


def schedule_faults(plan: Plan, training: TrainingSpec) -> list[str]:
    """Why a plan's schedules do not survive a training; empty if they do, or if there are none.

    A private training draws each batch by coins, so that a row of the file is in any step by chance: a canary planted
    early is not trained on early.
    """
    if training.dp is None or all(schedule.anywhere for schedule in plan.schedules):
        return []
    return [
        "a schedule places canaries at steps of training, but with dp every row is in each step by chance (Poisson "
        "sampling): leave the schedule out, or train without dp"
    ]
