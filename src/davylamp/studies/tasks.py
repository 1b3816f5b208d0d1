"""The runs of a recipe: which there are, and whether their canaries fit before one is trained."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from davylamp.canaries import Plan
from davylamp.canaries.constructions.laying import check_held_out, rows_of
from davylamp.canaries.drafts import places
from davylamp.canaries.plant import rows_left
from davylamp.corpora.records import Corpus
from davylamp.errors import PlantingError
from davylamp.report.layout import rows_planted
from davylamp.runs.folder import digest
from davylamp.studies.landscape import UNTRAINED
from davylamp.studies.recipe import Recipe
from davylamp.training.shadow_instances import no_room, twin_rows


@dataclass(frozen=True, slots=True)
class Task:
    """One run of a recipe.

    Attributes:
        recipe: the recipe.
        folder: the run's folder.
        plan: what is planted; nothing for the base model.
        kind: ``audit`` plants, trains and audits; ``clean`` trains without canaries; ``base`` does not train;
            ``untrained`` plants and asks the model as it came for the canaries.
        threads: threads of torch.
        variant: the recipe's variant, if it has any.
    """

    recipe: Recipe
    folder: Path
    plan: Plan
    kind: Literal["audit", "clean", "base", "untrained"]
    threads: int | None = None
    variant: str | None = None


def tasks_of(recipe: Recipe, out: Path, threads: int | None = None) -> Iterator[Task]:
    """Every run of a recipe, in order: variants, seeds, arms, and the runs that they are compared with."""
    runs = out / "runs"
    cleaned: dict[tuple[str, int], str] = {}
    for variant in recipe.variants or (None,):
        own = recipe if variant is None else recipe.variant(variant)
        prefix = "" if variant is None else f"{variant}-"
        for seed in recipe.seeds:
            rows = None if own.training.packing else own.training.rows_per_update
            plan = own.plan.model_copy(update={"seed": seed, "rows_per_update": rows})
            if recipe.arms == "together":
                yield Task(own, runs / f"{prefix}all-s{seed}", plan, "audit", threads, variant)
            else:
                for arm in plan.arms:
                    yield Task(own, runs / f"{prefix}{arm}-s{seed}", plan.only(arm), "audit", threads, variant)
            if recipe.clean:
                # Variants that differ in their canaries alone share the run without any.
                key = digest(
                    {
                        "training": own.training.model_dump(mode="json"),
                        "background": [plan.rows, plan.repeat, plan.shuffle],
                    }
                )
                if (key, seed) not in cleaned:
                    cleaned[key, seed] = prefix
                    first = not any(other != prefix for (_, at), other in cleaned.items() if at == seed)
                    name = f"clean-s{seed}" if first else f"{prefix}clean-s{seed}"
                    yield Task(own, runs / name, plan, "clean", threads, variant)
    if recipe.utility is not None:
        yield Task(recipe, runs / "base", recipe.plan, "base", threads)
    if recipe.landscape is not None:
        yield from _untrained(recipe, runs, threads)


def steps_of(task: Task) -> tuple[str, ...]:
    """The steps of a run, in order, by the names that they are stamped and timed with."""
    recipe = task.recipe
    asked = {
        "plant": task.kind in ("audit", "untrained"),
        "protect": task.kind == "audit" and bool(recipe.protect),
        "train": task.kind in ("audit", "clean"),
        "audit": task.kind == "audit",
        "constructions": task.kind == "audit" and bool(task.plan.constructions),
        "landscape": task.kind in ("audit", "untrained") and recipe.landscape is not None,
        "utility": task.kind in ("clean", "base") and recipe.utility is not None,
    }
    return tuple(step for step, done in asked.items() if done)


def _untrained(recipe: Recipe, runs: Path, threads: int | None) -> Iterator[Task]:
    """The model as it came, asked for the canaries of each seed."""
    rows = None if recipe.training.packing else recipe.training.rows_per_update
    for seed in recipe.seeds:
        plan = recipe.plan.model_copy(update={"seed": seed, "rows_per_update": rows})
        # As a run of one arm has it, so that its canaries are the same.
        plan = plan if recipe.arms == "together" else plan.only(next(iter(plan.arms)))
        yield Task(recipe, runs / f"{UNTRAINED}-s{seed}", plan, "untrained", threads)


def check_layouts(tasks: Sequence[Task], corpus: Corpus | int) -> None:
    """Lay out the canaries of every run, so that none is refused after others were trained.

    Args:
        tasks: the runs.
        corpus: the corpus; or how many rows it has, where it is not at hand: which of them can carry canaries is not
            known then.

    Raises:
        PlantingError: canaries do not fit; every fault is named once, with the runs that it stops.
    """
    faults: dict[str, list[str]] = {}
    for task in tasks:
        if task.kind not in ("audit", "untrained"):
            continue
        try:
            left = corpus if isinstance(corpus, int) else len(rows_left(corpus, task.plan))
            # Of a mere number it is assumed that a row that carries a canary takes no other row's place.
            rows = rows_planted(task.plan, left) if left is corpus else (task.plan.rows or left) * task.plan.repeat
            places(task.plan, rows)
            check_held_out(task.plan.constructions, left, task.plan.rows)
            if task.recipe.constructions.shadows is not None:
                _check_twins(task.plan, rows)
        except PlantingError as error:
            faults.setdefault(str(error), []).append(task.folder.name)
    if faults:
        raise PlantingError("; ".join(f"{', '.join(runs)}: {fault}" for fault, runs in faults.items()))


def _check_twins(plan: Plan, rows: int) -> None:
    """Check that the twins of a plan's constructions find rows in its shadows.

    Raises:
        PlantingError: they do not; the arithmetic is shown.
    """
    taken = sum(map(len, places(plan, rows))) + rows_of(plan.constructions)
    wanted, arithmetic = twin_rows(plan.constructions)
    if wanted > rows - taken:
        raise PlantingError(str(no_room(wanted, rows - taken, arithmetic)))
