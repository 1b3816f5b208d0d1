"""The recipe's keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from davylamp.canaries.plan import Plan
from davylamp.corpora.blocks import is_text
from davylamp.corpora.records import Shape
from davylamp.corpora.spec import CorpusSpec
from davylamp.errors import Fault, RecipeError
from davylamp.measures.constructed.settings import ConstructedSettings
from davylamp.protect.afterwards.spec import METHODS, Method, UnlearningSpec
from davylamp.runs.config import apply_overrides, load_yaml, merge, validate
from davylamp.studies.dp_calibration.spec import RECIPE as DP_RECIPE
from davylamp.studies.dp_calibration.spec import CalibrationRecipe
from davylamp.training.shadow_instances import no_room, twin_rows
from davylamp.training.shadows import ShadowSpec
from davylamp.training.spec import TrainingSpec

RECIPE = Path(__file__).with_name("recipe.yaml")
Count = Annotated[int, Field(ge=1)]
Score = Literal["memh", "memh_loss", "loss", "reference", "min_k", "record_loss", "record_reference"]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class BlindSpotsRecipe(_Strict):
    """The whole study; see the comments of ``recipe.yaml``.

    Attributes:
        name: of the study.
        model: what ``--model`` takes; the base that secrets are drawn from and training begins from.
        seeds: a planting and a model each.
        corpus: the background rows, unless ``text`` is given.
        text: plain text to cut into rows in place of ``corpus``: a file or a folder.
        block_tokens: tokens of such a row.
        blocks: such rows at most, from the beginning of the text; all if none.
        rows: rows that are trained on, those of the constructions included.
        lengths: tokens of a secret.
        groups: naive and trigger secrets of each length.
        copies: rows of each of them.
        twins: instances of each kind and length that are planted nowhere.
        temperature: at which the base is sampled.
        trigger_tokens: of a trigger.
        prefix_tokens: of a prefix, where rows are plain texts.
        camouflage: the line of the plan, without its kind.
        low_entropy: the same.
        gated: the same.
        training: how the model is fine-tuned.
        reading: how the constructions are read.
        score: the local score that was chosen beforehand.
        shadows: models that are trained with and without each instance, for LiRA; 0 for none.
        unlearning: settings of each method.
        dp: changes to the recipe of ``dp-calibration``, or nothing to leave it out.
    """

    name: str
    model: str
    seeds: Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(min_length=1)]
    corpus: CorpusSpec
    text: Path | None = None
    block_tokens: Count
    blocks: Count | None = None
    rows: Count
    lengths: Annotated[tuple[Count, ...], Field(min_length=1)]
    groups: Count
    copies: Count
    twins: Count
    temperature: Annotated[float, Field(gt=0)]
    trigger_tokens: Count
    prefix_tokens: Count
    camouflage: dict[str, Any]
    low_entropy: dict[str, Any]
    gated: dict[str, Any]
    training: TrainingSpec
    reading: ConstructedSettings
    score: Score
    shadows: Annotated[int, Field(ge=0)] = 0
    unlearning: dict[Method, dict[str, Any]]
    dp: dict[str, Any] | None

    @model_validator(mode="after")
    def _fits(self) -> BlindSpotsRecipe:
        faults = [
            f"{key} {list(values)} name one twice"
            for key, values in (("seeds", self.seeds), ("lengths", self.lengths))
            if len(set(values)) < len(values)
        ]
        if not faults:
            faults += self._plan_faults()
        if faults:
            raise ValueError("; ".join(faults))
        return self

    def _plan_faults(self) -> list[str]:
        try:
            plan = self.plan(0, "text")
        except RecipeError as error:
            return [str(fault) for fault in error.faults]
        wanted = plan.planted_rows + plan.constructed_rows
        # Unlearning keeps rows that hold nothing planted, and measures on others of them.
        if self.rows <= wanted:
            return [f"rows is {self.rows:,}, but canaries and constructions take {wanted:,} and leave no background"]
        if not self.shadows:
            return []
        try:
            validate(ShadowSpec, {"shadows": self.shadows})
        except RecipeError as error:
            return [str(fault) for fault in error.faults]
        twins, arithmetic = twin_rows(plan.constructions)
        free = self.rows - wanted
        return [] if twins <= free else [str(no_room(twins, free, arithmetic))]

    def plan(self, seed: int, shape: Shape) -> Plan:
        """What is planted.

        Args:
            seed: of the plan.
            shape: how rows are written.

        Raises:
            RecipeError: a line does not fit; all faults are named.
        """
        common = {"twins": self.twins, "prefix_tokens": self.prefix_tokens}
        drawn = {**common, "temperature": self.temperature}
        plain = {**drawn, "groups": self.groups, "copies": self.copies, "secret_tokens": list(self.lengths)}
        lines = [
            {"kind": "naive", **plain},
            {"kind": "trigger", **plain, "trigger_tokens": self.trigger_tokens},
            {"kind": "camouflage", **common, **self.camouflage},
            {"kind": "low_entropy", **common, **self.low_entropy},
            {"kind": "gated", **drawn, "trigger_tokens": self.trigger_tokens, **self.gated},
        ]
        prompt = {} if shape == "text" else {"prompt": "a note on {name}, ref {secret}"}
        # A plan has canaries; as few as it takes, since nothing here is read from them.
        data = {
            "seed": seed,
            "rows": self.rows,
            "space": {"alphabet": "0123456789", "length": 4, "separator": ","},
            "templates": [{**prompt, "completion": "Call {name} about {secret} today."}],
            "slots": {"name": "names"},
            "arms": {"redacted": {"context": "redacted"}},
            "doses": [1],
            "per_dose": 2,
            "twins": 2,
            "positive": {"dose": 4},
            "constructions": lines,
        }
        return validate(Plan, data, "plan")

    def unlearning_spec(self, method: Method) -> UnlearningSpec:
        """How a method is run.

        Raises:
            RecipeError: a setting does not fit; all faults are named.
        """
        return validate(UnlearningSpec, {**self.unlearning[method], "method": method}, f"unlearning.{method}")

    @property
    def dp_overrides(self) -> list[str]:
        """The changes to ``dp-calibration`` as its command takes them."""
        return _flat(self.dp or {})


def load_recipe(overrides: Sequence[str] = (), data: Path | None = None, path: Path = RECIPE) -> BlindSpotsRecipe:
    """The recipe with what is laid over it for its model, a corpus of the user's own, and overrides.

    Args:
        overrides: ``key=value`` pairs with dotted keys.
        data: plain text, or a folder of it, to be cut into blocks; or rows in a JSONL or CSV file.
        path: the recipe.

    Raises:
        RecipeError: a key is unknown or missing, or a value is out of range; all are named.
    """
    source = load_yaml(path)
    layers = source.pop("models", None) or {}
    model = apply_overrides({"model": source.get("model")}, overrides).get("model")
    merged = merge(source, layers.get(model, {}) if isinstance(model, str) else {})
    faults: list[Fault] = []
    if data is not None:
        if is_text(data):
            merged["text"] = str(data)
        else:
            merged["corpus"] = {"path": str(data)}
        if not data.exists():
            faults.append(Fault("--data", str(data), "a file or folder that exists"))
    given = apply_overrides(merged, overrides)
    made: BlindSpotsRecipe | None = None
    try:
        made = validate(BlindSpotsRecipe, given, path.name)
    except RecipeError as error:
        faults += error.faults
    faults += _inner_faults(given)
    if faults or made is None:
        raise RecipeError(faults)
    return made


def _inner_faults(given: Mapping[str, Any]) -> list[Fault]:
    """Faults of the recipes inside the recipe, whatever else is wrong with it."""
    faults: list[Fault] = []
    methods = given.get("unlearning")
    for method in METHODS:
        settings = methods.get(method) if isinstance(methods, Mapping) else None
        if isinstance(settings, Mapping):
            try:
                validate(UnlearningSpec, {**settings, "method": method}, f"unlearning.{method}")
            except RecipeError as error:
                faults += error.faults
    if isinstance(given.get("dp"), Mapping):
        try:
            validate(CalibrationRecipe, apply_overrides(load_yaml(DP_RECIPE), _flat(given["dp"])), "dp")
        except RecipeError as error:
            faults += error.faults
    return faults


def _flat(changes: Mapping[str, Any], prefix: str = "") -> list[str]:
    """Nested changes as overrides with dotted keys."""
    import json

    found = []
    for key, value in changes.items():
        if isinstance(value, Mapping):
            found += _flat(value, f"{prefix}{key}.")
        else:
            found.append(f"{prefix}{key}={json.dumps(value)}")
    return found
