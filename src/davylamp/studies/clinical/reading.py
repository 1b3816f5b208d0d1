"""What the finished runs of the study hold, intervention by intervention."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from davylamp.measures.landscape.model import FILE, Landscape, Leak
from davylamp.protect.corpus.result import read_protection
from davylamp.runs.folder import RunFolder
from davylamp.studies.clinical.result import Found, Survival
from davylamp.studies.tasks import Task
from davylamp.verdict.frontier_estimates import nested_mean
from davylamp.verdict.frontier_metrics import EXPOSURE, FIRST, GREEDY, HELD_OUT, MEDICATION, SEMANTIC, VERBATIM
from davylamp.verdict.frontier_model import Estimate, Frontier

Landscapes = Mapping[str, Sequence[Landscape]]
"""By intervention, seeds in order."""


def read_landscapes(tasks: Sequence[Task]) -> dict[str, list[Landscape]]:
    """The landscapes of a study's runs.

    Raises:
        RunFolderError: one is missing or damaged.
    """
    found: dict[str, list[Landscape]] = {}
    for task in tasks:
        if task.kind in ("audit", "untrained"):
            landscape = Landscape.load(task.folder / FILE)
            found.setdefault(landscape.intervention, []).append(landscape)
    return {name: sorted(own, key=lambda each: each.seed) for name, own in found.items()}


def focus(landscape: Landscape) -> list[Leak]:
    """The canaries that are compared, in the order of their names, which all interventions share."""
    return sorted((leak for leak in landscape.canaries if leak.role == "focus"), key=lambda leak: leak.id)


def exposures(landscapes: Sequence[Landscape]) -> list[float]:
    """Exposures in bits of the canaries of all seeds, in an order that all interventions share."""
    return [leak.exposure for landscape in landscapes for leak in focus(landscape)]


def found_of(
    tasks: Sequence[Task],
    landscapes: Landscapes,
    compared: Frontier,
    wall: Mapping[str, float],
    cpu: Mapping[str, float],
) -> tuple[Found, ...]:
    """Every intervention.

    Args:
        tasks: the study's runs.
        landscapes: what was read of them.
        compared: the same compared.
        wall: seconds on the clock by run and step.
        cpu: seconds of processor time, the same way.

    Raises:
        RunFolderError: what was done to the rows cannot be read.
    """
    made = []
    for row in compared.rows:
        name, own = row.intervention, landscapes[row.intervention]
        runs = [task for task in tasks if (task.variant or "none") == name and task.kind in ("audit", "untrained")]
        twins = [[leak.exposure for leak in each.canaries if leak.role == "twin"] for each in own]
        exposed = _mean([[leak.exposure for leak in focus(each)] for each in own], own, compared.confidence)
        made.append(
            Found(
                name=name,
                seeds=tuple(each.seed for each in own),
                canaries=exposed.n,
                mean_exposure=exposed,
                median_exposure=row.values[EXPOSURE],
                rank1=row.values[FIRST],
                said=row.values[GREEDY],
                verbatim=row.values[VERBATIM],
                semantic=row.values[SEMANTIC],
                held_out=row.values[HELD_OUT],
                medication=row.values[MEDICATION],
                twins=_mean(twins, own, compared.confidence) if all(twins) else None,
                survival=_survival(runs),
                seconds=_of(runs, wall),
                cpu_seconds=_of(runs, cpu),
            )
        )
    return tuple(made)


def _mean(bits: Sequence[Sequence[float]], own: Sequence[Landscape], confidence: float) -> Estimate:
    """Mean exposure by seed in bits, its interval cut to what an exposure can be."""
    mean, low, high = nested_mean([np.asarray(each) for each in bits], confidence)
    ceiling = math.log2(own[0].canaries[0].candidates)
    return Estimate(
        value=mean,
        low=None if low is None else max(low, 0.0),
        high=None if high is None else min(high, ceiling),
        n=sum(map(len, bits)),
        seeds=len(own),
    )


def _of(runs: Sequence[Task], seconds: Mapping[str, float]) -> float | None:
    names = {task.folder.name for task in runs}
    own = [taken for step, taken in seconds.items() if step.split("/")[0] in names]
    return sum(own) if own else None


def _survival(runs: Sequence[Task]) -> Survival | None:
    """What the interventions on the rows left of the secrets, all seeds together."""
    read = [read_protection(RunFolder(task.folder)) for task in runs]
    kept = [each for each in read if each is not None]
    doses = [dose for each in kept for dose in each.leaks.doses]
    if not doses:
        return None
    ended: Counter[str] = Counter()
    for each in kept:
        for step in each.steps:
            ended.update(step.counts)
    return Survival(
        copies=sum(dose.copies for dose in doses),
        exact=sum(dose.secret.exact for dose in doses),
        near=sum(dose.secret.near for dose in doses),
        rows=sum(step.rows for each in kept for step in each.steps),
        ended=dict(ended),
    )
