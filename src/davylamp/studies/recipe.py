"""A recipe: one YAML file that says a whole audit, checked before anything is loaded."""

from __future__ import annotations

import importlib.resources
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from davylamp.canaries.drafts import drafts
from davylamp.canaries.plan import ARM_NAME, Plan
from davylamp.corpora.spec import CorpusSpec
from davylamp.errors import Fault, RecipeError
from davylamp.measures.landscape.spec import LandscapeSpec
from davylamp.measures.unseen import shown_faults, unseen_faults
from davylamp.protect.corpus.registry import Interventions, look
from davylamp.runs.config import apply_overrides, load_yaml, set_keys, validate
from davylamp.runs.faults import inside
from davylamp.studies.audit_spec import AuditSpec, ConstructedSpec, UtilitySpec
from davylamp.studies.variants import MAY_VARY, VARIED, Varied, protections, unfit
from davylamp.training.dp.positions import schedule_faults
from davylamp.training.spec import TrainingSpec

BUILT_IN = ("demo", "banking77", "tatqa", "clinical")
"""Recipes inside the package, by the name that ``davylamp run`` takes."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Recipe(_Strict):
    """A whole audit.

    Attributes:
        name: a name for people.
        model: what ``--model`` takes: ``embedded``, ``smollm2``, a folder, a GGUF file or a hub id.
        corpus: the background.
        plan: what is planted; its seed is replaced by each of ``seeds``.
        training: how the model is fine-tuned.
        audit: how the release is asked and judged.
        utility: what it shall still be good for.
        seeds: one run each.
        arms: ``apart`` trains a model for each arm, at the same budget; ``together`` one for all.
        clean: also train without canaries, to see what they cost.
        protect: what is done to the planted rows before training, in this order; that a server is named here allows
            rows to be sent to it.
        constructions: how the plan's constructions are read, where it has any.
        landscape: read what compares interventions of every model, and of the untrained one; nothing if none.
        variants: runs that differ in some keys of ``plan``, ``training`` and ``protect``, by name: dotted keys and
            their values.
            Each arm and seed is run once for each variant.
    """

    # What takes the place of a missing or faulty value while the rest is checked.
    STAND_INS: ClassVar[dict[str, Any]] = {
        "name": "recipe",
        "model": "embedded",
        "corpus": {"generator": "emails", "rows": 1},
    }

    name: str
    model: str
    corpus: CorpusSpec
    plan: Plan
    training: TrainingSpec = Field(default_factory=TrainingSpec)
    audit: AuditSpec = Field(default_factory=AuditSpec)
    utility: UtilitySpec | None = None
    seeds: tuple[Annotated[int, Field(ge=0)], ...] = Field((0,), min_length=1)
    arms: Literal["apart", "together"] = "apart"
    clean: bool = False
    protect: Interventions = ()
    constructions: ConstructedSpec = Field(default_factory=ConstructedSpec)
    landscape: LandscapeSpec | None = None
    variants: Annotated[dict[str, dict[str, Any]], AfterValidator(protections)] = Field(default_factory=dict)

    @model_serializer(mode="wrap")
    def _without_what_is_not_asked_for(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Folders of recipes that ask for nothing of a kind, made before any could, are still of the same recipe."""
        data: dict[str, Any] = write(self)
        if not self.protect:
            data.pop("protect", None)
        if self.landscape is None:
            data.pop("landscape", None)
        if self.constructions == ConstructedSpec():
            data.pop("constructions", None)
        return data

    @model_validator(mode="after")
    def _consistent(self) -> Recipe:
        own = [
            *self._own_faults(),
            *self._fitting_faults(Varied(plan=self.plan, training=self.training, protect=self.protect)),
        ]
        faults = [*unfit("recipe", own), *self._variant_faults(own)]
        if faults:
            raise RecipeError(faults)
        return self

    def _own_faults(self) -> Iterator[str]:
        if len(set(self.seeds)) != len(self.seeds):
            yield f"seeds {list(self.seeds)} name a seed twice"
        if self.clean and self.utility is None:
            yield "clean trains without canaries to compare utility, but there is no utility"
        if self.landscape is not None and self.arms == "apart" and len(self.plan.arms) > 1:
            yield "landscape compares models of the same canaries: name one arm in plan.arms, or arms: together"
        if self.landscape is not None and "none" in self.variants:
            yield "variants: the name 'none' is taken by the untrained model of landscape"
        if self.constructions.shadows is not None and not self.plan.constructions:
            yield "constructions.shadows are of plan.constructions, and the plan has none"

    def _fitting_faults(self, varied: Varied) -> Iterator[str]:
        """What does not fit together in the recipe, or in a variant with its own plan, training and interventions."""
        plan, training = varied.plan, varied.training
        if varied.protect:
            yield from self._unprotectable(plan)
        if plan.rows_per_update not in (None, training.rows_per_update):
            yield (
                f"plan.rows_per_update is {plan.rows_per_update}, but an update of training takes "
                f"{training.rows_per_update} rows: leave it out"
            )
        yield from plan.training_faults(training.epochs, training.packing, training.rows_per_update)
        yield from schedule_faults(plan, training)
        if self.clean and "clean" in plan.arms:
            yield "plan.arms: the name 'clean' is taken by the run without canaries"
        if self.audit.unseen is not None:
            canaries = drafts(plan.only(next(iter(plan.arms))) if self.arms == "apart" else plan)
            yield from map(str, unseen_faults(self.audit.unseen, plan.space, 2 * len(canaries)))
            yield from map(str, shown_faults(plan))

    def _unprotectable(self, plan: Plan) -> Iterator[str]:
        """What takes the rows as they were planted, and cannot be had of protected ones."""
        fix = "leave one out"
        if "lira" in self.audit.measures:
            yield f"protect: audit.measures has lira, whose shadow models are trained on the rows as planted: {fix}"
        if plan.constructions:
            yield f"protect: plan.constructions are planted token by token, and what is written anew holds none: {fix}"
        if self.constructions.shadows is not None:
            yield f"protect: constructions.shadows are trained on the rows as planted, not on protected ones: {fix}"

    def _variant_faults(self, known: Collection[str]) -> Iterator[Fault]:
        """Faults of all variants, those of the recipe itself left out."""
        runs: dict[str, str] = {}
        shared = []
        for name, changes in self.variants.items():
            if not ARM_NAME.fullmatch(name):
                yield Fault("variants", name, "names of letters, digits, '_' and '-', since they name folders")
            strange = [key for key in changes if key.split(".")[0] not in VARIED]
            yield from (Fault(f"variants.{name}.{key}", changes[key], MAY_VARY) for key in strange)
            try:
                varied = self._varied({key: value for key, value in changes.items() if key not in strange})
            except RecipeError as error:
                yield from (inside(f"variants.{name}", fault) for fault in error.faults)
                continue
            found = self._fitting_faults(varied)
            yield from unfit(f"variants.{name}", [fault for fault in found if fault not in known])
            for word in [*(varied.plan.arms if self.arms == "apart" else ["all"]), *(["clean"] if self.clean else [])]:
                mine = f"{name!r} with {word!r}"
                if (other := runs.setdefault(f"{name}-{word}", mine)) != mine:
                    shared.append(f"{mine} and {other} name the same folder, {name}-{word}: rename one")
        yield from unfit("variants", shared)

    def _varied(self, changes: dict[str, Any]) -> Varied:
        """The plan, the training and the interventions of a variant.

        Raises:
            RecipeError: they are at fault; all faults are named.
        """
        own = self.model_dump(mode="json", exclude={"variants"})
        data = set_keys({key: own[key] for key in VARIED if key in own}, changes)
        return validate(Varied, data)

    def variant(self, name: str) -> Recipe:
        """The recipe of one variant, which has no variants itself.

        Raises:
            RecipeError: the variant's values do not fit.
        """
        data = self.model_dump(mode="json", exclude={"variants"})
        return validate(Recipe, set_keys(data, self.variants[name]))


def load_recipe(
    name: str, overrides: Iterable[str] = (), *, data: Path | None = None, held_out: Path | None = None
) -> Recipe:
    """Read a recipe, from a file or by the name of one inside the package.

    Args:
        name: a path, or one of :data:`BUILT_IN`.
        overrides: ``key=value`` pairs with dotted keys.
        data: a file that takes the place of the recipe's corpus.
        held_out: a file that takes the place of the utility's corpus; ``test.csv``, ``test.jsonl`` or
            ``test.jsonl.gz`` beside ``data`` if there is one.

    Raises:
        RecipeError: the file or its content is at fault; all faults are named.
    """
    return build_recipe(source_of(name), overrides, data=data, held_out=held_out)


def build_recipe(
    source: dict[str, Any], overrides: Iterable[str] = (), *, data: Path | None = None, held_out: Path | None = None
) -> Recipe:
    """A recipe from what its file holds; see :func:`load_recipe` for the arguments.

    Raises:
        RecipeError: the content is at fault; all faults are named.
    """
    if data is not None:
        _take_file(source, "corpus", data)
        beside = (data.with_name(f"test{suffix}") for suffix in (".csv", ".jsonl", ".jsonl.gz"))
        held_out = held_out or next((path for path in beside if path.is_file() and path != data), None)
    if held_out is not None and isinstance(source.get("utility"), dict):
        _take_file(source["utility"], "corpus", held_out)
    return validate(Recipe, apply_overrides(source, overrides), also=_outside)


def _outside(recipe: Recipe) -> Iterator[Fault]:
    """What is wrong with files and with what is installed, and with interventions of all variants."""
    yield from _missing_files(recipe)
    yield from _shared_contexts(recipe)
    own = list(look(recipe.protect))
    yield from own
    for name in recipe.variants:
        found = look(recipe.variant(name).protect)
        yield from (inside(f"variants.{name}", fault) for fault in found if fault not in own)


def _take_file(outer: dict[str, Any], key: str, path: Path) -> None:
    """Let a corpus come from a file; what a recipe says of columns and words around the rows stays."""
    corpus = outer.get(key)
    kept = dict(corpus) if isinstance(corpus, dict) else {}
    for other in ("hub", "generator", "split", "config"):
        kept.pop(other, None)
    outer[key] = {**kept, "path": str(path)}


def source_of(name: str) -> dict[str, Any]:
    """What a recipe's file holds, or that of one inside the package.

    Raises:
        RecipeError: there is none, or it is no YAML mapping.
    """
    path = Path(name)
    # A folder that happens to be called so is none.
    if not path.is_file() and name in BUILT_IN:
        path = Path(str(importlib.resources.files("davylamp") / "studies" / name / "recipe.yaml"))
    if not path.exists():
        raise RecipeError(Fault("recipe", name, f"a YAML file, or one of {', '.join(BUILT_IN)}"))
    return load_yaml(path)


def _missing_files(recipe: Recipe) -> Iterable[Fault]:
    corpora = {"corpus.path": recipe.corpus.path}
    if recipe.utility is not None:
        corpora["utility.corpus.path"] = recipe.utility.corpus.path
    if recipe.landscape is not None:
        corpora["landscape.held_out.path"] = recipe.landscape.held_out.path
        corpora["landscape.test.path"] = None if recipe.landscape.test is None else recipe.landscape.test.path
    for field, path in corpora.items():
        if path is not None and not path.is_file():
            yield Fault(field, str(path), "a file that exists", f"Give it as {field}=FILE.")


def _shared_contexts(recipe: Recipe) -> Iterable[Fault]:
    """TAT-QA asks several questions on one table: a file on both sides would ask about tables that were trained on."""
    if recipe.utility is None or "tatqa" not in (recipe.corpus.format, recipe.utility.corpus.format):
        return
    if recipe.corpus.same_source(recipe.utility.corpus):
        named = recipe.corpus.path or recipe.corpus.hub
        fix = "Split the data by context into two files, and give the second with --held-out."
        yield Fault("utility.corpus", str(named), "another source than corpus, with other tables", fix)
