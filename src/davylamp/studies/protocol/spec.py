"""A study: a recipe in variants, what is compared, and the shape that is expected."""

from __future__ import annotations

import importlib.resources
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from davylamp.canaries.plan import ARM_NAME
from davylamp.errors import Fault, RecipeError
from davylamp.runs.config import load_yaml, merge, validate
from davylamp.studies.protocol.checks import unread
from davylamp.studies.recipe import Recipe, build_recipe, source_of

Size = Literal["cpu", "paper"]
TaskName = Literal["email", "banking77", "tatqa"]
TASKS: dict[TaskName, str] = {"email": "demo", "banking77": "banking77", "tatqa": "tatqa"}
"""The tasks, and the built-in recipe that each begins from."""
CATALOGUE = (
    "context-dose",
    "position",
    "mixed-dose",
    "population",
    "cues",
    "rank-first",
    "transformations",
    "utility",
)
"""Studies inside the package."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Select(_Strict):
    """Which readings: those that agree with every key that is given.

    Attributes:
        variant: of this variant of the recipe.
        arm: of this arm.
        dose: of canaries of this dose.
        role: of canaries of this role.
        probe: under this probe.
        target: of this code.
        measure: of this measure; ``top`` is 1 where the code has rank 1, ``top10`` where its rank is at most 10.
        release: of the trained model, or of the ``reference``, which is the model before fine-tuning.
    """

    variant: str | None = None
    arm: str | None = None
    dose: int | None = None
    role: str = "focus"
    probe: str = "hidden"
    target: str = "trained"
    measure: str = "exposure"
    release: Literal["model", "reference"] = "model"


class Comparison(_Strict):
    """Two readings of the same canaries, pair by pair.

    Attributes:
        name: in words: ``late over early``.
        of: what is read.
        over: what it is compared with: the differences are ``of`` less ``over``.
    """

    name: str
    of: Select
    over: Select


class Check(_Strict):
    """One part of a shape; exactly one of ``comparison``, ``level``, ``order`` and ``utility``.

    Attributes:
        comparison: name of a comparison.
        goes: the direction that is expected of it: the sign test must find it at the study's confidence.
        level: readings whose median (or rate, where they are successes) is held against a number, seed by seed.
        at_least: the least that is expected.
        at_most: the most that is expected.
        order: readings whose medians must not fall from one to the next, seed by seed.
        utility: two models, of which the second is expected to be better: ``base``, ``clean`` or an arm. Their
            intervals, over all seeds, must not overlap.
    """

    comparison: str | None = None
    goes: Literal["up", "down"] = "up"
    level: Select | None = None
    at_least: float | None = None
    at_most: float | None = None
    order: tuple[Select, ...] | None = Field(None, min_length=2)
    utility: tuple[str, str] | None = None

    @model_validator(mode="after")
    def _one_kind(self) -> Check:
        given = [name for name in ("comparison", "level", "order", "utility") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(
                f"exactly one of comparison, level, order and utility must be given, not {given or 'none'}"
            )
        if (self.level is not None) != (self.at_least is not None or self.at_most is not None):
            raise ValueError("level needs at_least or at_most, and nothing else takes them")
        return self


class Shape(_Strict):
    """What the paper saw, and how it is looked for.

    Attributes:
        statement: in words.
        paper: the paper's figures, where they are known.
        checks: all must hold.
    """

    statement: str
    paper: str | None = None
    checks: tuple[Check, ...] = Field(min_length=1)


class Study(_Strict):
    """A study of the planting protocol.

    Attributes:
        name: its name on the command line, which names a folder: letters, digits, '_' and '-' only.
        title: in words.
        figures: figures of the paper that it follows, if it follows any.
        question: what it asks.
        task: the task that it runs on unless told otherwise.
        recipe: laid over the task's recipe.
        sizes: laid over that, by size.
        tasks: laid over that, by task and size.
        comparisons: what is compared, canary by canary.
        shapes: what is expected.
        confidence: of intervals and tests.
    """

    name: str = Field(pattern=rf"^{ARM_NAME.pattern}$")
    title: str
    figures: str | None = None
    question: str
    task: TaskName = "email"
    recipe: dict[str, Any] = Field(default_factory=dict)
    sizes: dict[Size, dict[str, Any]] = Field(default_factory=dict)
    tasks: dict[TaskName, dict[Size, dict[str, Any]]] = Field(default_factory=dict)
    comparisons: tuple[Comparison, ...] = ()
    shapes: tuple[Shape, ...] = Field(min_length=1)
    confidence: float = Field(0.95, gt=0.5, lt=1)

    @model_validator(mode="after")
    def _names_fit(self) -> Study:
        names = [comparison.name for comparison in self.comparisons]
        faults = []
        if len(set(names)) < len(names):
            faults.append("two comparisons have one name")
        for shape in self.shapes:
            for check in shape.checks:
                if check.comparison is not None and check.comparison not in names:
                    faults.append(f"a shape rests on the comparison {check.comparison!r}, which is not among {names}")
        if faults:
            raise ValueError("; ".join(faults))
        return self


def load_study(name: str, beside: Iterable[str] = ()) -> Study:
    """Read a study, from a file or by the name of one inside the package.

    Args:
        name: a file or a name.
        beside: names of other studies that the caller knows, said where this is none.

    Raises:
        RecipeError: the file or its content is at fault; all faults are named.
    """
    path = Path(name)
    # A folder that happens to be called so is none.
    if not path.is_file() and name in CATALOGUE:
        path = Path(str(_here() / "catalogue" / f"{name}.yaml"))
    if not path.exists():
        raise RecipeError(Fault("study", name, f"a YAML file, or one of {', '.join((*CATALOGUE, *beside))}"))
    return validate(Study, load_yaml(path))


def study_recipe(
    study: Study,
    task: TaskName | None = None,
    size: Size = "cpu",
    overrides: Iterable[str] = (),
    *,
    data: Path | None = None,
    held_out: Path | None = None,
) -> Recipe:
    """The recipe of a study on a task at a size.

    Args:
        study: the study.
        task: the task; the study's own if none.
        size: ``cpu`` fits two cores, ``paper`` is the paper's size.
        overrides: ``key=value`` pairs with dotted keys, laid over all else.
        data: a file that takes the place of the task's corpus.
        held_out: a file that takes the place of the utility's corpus.

    Raises:
        RecipeError: what they make together is no recipe, or reads less than the study compares; all faults are named.
    """
    task = task or study.task
    layers = [
        load_yaml(Path(str(_here() / "tasks" / f"{task}.yaml"))).get(size) or {},
        study.recipe,
        study.sizes.get(size, {}),
        study.tasks.get(task, {}).get(size, {}),
    ]
    made = source_of(TASKS[task])
    for layer in layers:
        made = merge(made, layer)
    made["name"] = f"{study.name} ({task}, {size})"
    recipe = build_recipe(made, overrides, data=data, held_out=held_out)
    # After hours of training would be too late.
    faults = list(unread(study, recipe))
    if faults:
        raise RecipeError(faults)
    return recipe


def _here() -> Any:
    return importlib.resources.files("davylamp") / "studies" / "protocol"
