"""What a plan or a recipe would plant where, drawn before anything is planted or trained."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from davylamp.canaries import Plan
from davylamp.corpora.readers import read_corpus
from davylamp.corpora.records import Corpus
from davylamp.errors import Fault, InputError, PlantingError
from davylamp.report.layout import Layout, lay_out, rows_planted
from davylamp.runs.config import apply_overrides, validate
from davylamp.studies.protocol.spec import CATALOGUE, load_study, study_recipe
from davylamp.studies.recipe import Recipe, build_recipe, source_of
from davylamp.studies.tasks import Task, tasks_of

RECIPE_KEYS = {"plan", "corpus", "model", "training"}
"""Keys by which a recipe is told from a plan."""


@dataclass(frozen=True, slots=True)
class Preview:
    """The files that a plan or a recipe would plant.

    Attributes:
        title: the recipe's name, or the plan's file.
        layouts: a layout for each file.
        notes: what else there is to know, a sentence each.
    """

    title: str
    layouts: tuple[Layout, ...]
    notes: tuple[str, ...] = ()


def preview(
    source: str,
    overrides: Iterable[str] = (),
    *,
    rows: int | None = None,
    data: Path | None = None,
    arm: str | None = None,
    variant: str | None = None,
) -> Preview:
    """Draw where the canaries of a plan, a recipe or a study fall.

    Args:
        source: the file of one, or the name of a built-in recipe or study, which is drawn on its own task at the size
            ``cpu``.
        overrides: ``key=value`` pairs with dotted keys.
        rows: rows of the corpus.
        data: the corpus, to count its rows.
        arm: one arm only.
        variant: one of the recipe's variants only.

    Raises:
        InputError: the file, its content or an argument is at fault.
        CorpusError: the corpus cannot be read.
        PlantingError: the plan cannot be satisfied, or nothing says how many rows there are.
    """
    if rows is not None and data is not None:
        raise InputError(Fault("--rows", rows, "no --data beside it", "Give one of them."))
    study = source in CATALOGUE and not Path(source).is_file()
    held = {} if study else source_of(source)
    if study or "shapes" in held:
        return _of_recipe(study_recipe(load_study(source), None, "cpu", overrides, data=data), rows, arm, variant)
    if RECIPE_KEYS & held.keys():
        return _of_recipe(build_recipe(held, overrides, data=data), rows, arm, variant)
    if variant is not None:
        raise InputError(Fault("--variant", variant, "a recipe with variants", f"{source} is a plan."))
    return _of_plan(Path(source), held, overrides, rows, data, arm)


def _of_plan(
    path: Path, held: dict[str, Any], overrides: Iterable[str], rows: int | None, data: Path | None, arm: str | None
) -> Preview:
    plan = validate(Plan, apply_overrides(held, overrides), "plan")
    if arm is not None:
        _check_arm(arm, plan)
        plan = plan.only(arm)
    counted = len(read_corpus(data)) if data is not None else rows
    planted = rows_planted(plan, counted, str(data) if data is not None else "the corpus")
    notes: tuple[str, ...] = ()
    if plan.rows_per_update is None:
        notes = ("Give rows_per_update=N, the batch size times gradient accumulation, to count in optimiser updates.",)
    return Preview(path.name, (lay_out(plan, planted, path.name),), notes)


def _of_recipe(recipe: Recipe, rows: int | None, arm: str | None, variant: str | None) -> Preview:
    if variant is not None and variant not in recipe.variants:
        allowed = f"one of {', '.join(recipe.variants)}" if recipe.variants else "a recipe with variants"
        raise InputError(Fault("--variant", variant, allowed))
    if arm is not None and recipe.arms == "together":
        raise InputError(Fault("--arm", arm, "a recipe with arms: apart", f"{recipe.name} trains one model on all."))
    one = recipe.model_copy(update={"seeds": recipe.seeds[:1]})
    tasks = [task for task in tasks_of(one, Path()) if task.kind == "audit" and variant in (None, task.variant)]
    if arm is not None:
        for task in tasks:
            _check_arm(arm, task.recipe.plan)
        tasks = [task for task in tasks if arm in task.plan.arms]
    counted = rows if rows is not None else count_rows(recipe)
    return Preview(recipe.name, tuple(_of_task(task, counted) for task in tasks), tuple(_notes(recipe)))


def _of_task(task: Task, counted: int | None) -> Layout:
    recipe = task.recipe
    name = recipe.name if task.variant is None else f"{recipe.name}, variant {task.variant}"
    try:
        planted = rows_planted(task.plan, counted, recipe.corpus.hub or "the corpus")
        return lay_out(task.plan, planted, name, apart=recipe.arms == "apart", epochs=recipe.training.epochs)
    except PlantingError as error:
        if task.variant is None:
            raise
        raise PlantingError(f"variant {task.variant}: {error}") from error


def count_rows(recipe: Recipe) -> int | None:
    """Rows of a recipe's corpus, if they can be told without asking the hub.

    Raises:
        CorpusError: the corpus is a file that cannot be read.
    """
    corpus = corpus_at_hand(recipe)
    if corpus is not None:
        return len(corpus)
    return recipe.corpus.rows if recipe.corpus.generator is not None else None


def corpus_at_hand(recipe: Recipe) -> Corpus | None:
    """A recipe's corpus, where it takes neither the hub nor long to have it.

    Raises:
        CorpusError: it is a file that cannot be read.
    """
    spec = recipe.corpus
    carried = recipe.plan.carried and spec.generator != "synthea"
    wanted = spec.path is not None or (spec.generator is not None and (spec.split_by_patient is not None or carried))
    return spec.load() if wanted else None


def _notes(recipe: Recipe) -> Iterator[str]:
    if others := recipe.seeds[1:]:
        who = f"Seed {others[0]} draws" if len(others) == 1 else f"Seeds {', '.join(map(str, others))} draw"
        yield f"{who} other rows: seeds=[{others[0]}] shows them."
    if recipe.training.packing:
        yield "Rows are packed, so that the update of a row depends on the length of those before it."
    if recipe.clean:
        yield "The clean run reads the same rows before any is replaced."


def _check_arm(arm: str, plan: Plan) -> None:
    if arm not in plan.arms:
        raise InputError(Fault("--arm", arm, f"one of {', '.join(plan.arms)}"))
