from __future__ import annotations

from typing import Literal

import pytest
from pydantic import BaseModel, ConfigDict, model_validator

from davylamp.errors import RecipeError
from davylamp.runs.config import apply_overrides, load_yaml, parse_yaml, validate


class Inner(BaseModel):
    model_config = ConfigDict(extra="forbid")
    size: int = 1


class Outer(BaseModel):
    model_config = ConfigDict(extra="forbid")
    name: str
    inner: Inner = Inner()
    either: Literal["all"] | tuple[int, ...] = "all"


class Fitting(BaseModel):
    model_config = ConfigDict(extra="forbid")
    low: int = 0
    high: int = 1
    names: dict[str, int] = {}

    @model_validator(mode="after")
    def _ordered(self) -> Fitting:
        if self.low >= self.high or "x" not in self.names:
            raise ValueError("low lies below high, and names hold x")
        return self


class Holder(BaseModel):
    model_config = ConfigDict(extra="forbid")
    inner: Fitting
    count: int = 3


def test_every_fault_is_named_with_its_place():
    with pytest.raises(RecipeError) as caught:
        validate(Outer, {"naem": "x", "inner": {"size": "many", "sise": 2}}, "recipe")
    fields = {fault.field for fault in caught.value.faults}
    assert fields == {"recipe.naem", "recipe.name", "recipe.inner.size", "recipe.inner.sise"}
    text = str(caught.value)
    assert "no such key" in text
    assert "no default" in text


def test_the_members_of_a_union_are_one_fault():
    with pytest.raises(RecipeError) as caught:
        validate(Outer, {"name": "x", "either": {}})
    assert [fault.field for fault in caught.value.faults] == ["either"]
    assert ", or: " in caught.value.faults[0].allowed


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: 1\nb: 2\na: 3", "line 3 is \"the key 'a' stands twice\""),
        ("a:\n  b: 1\n  b: 2", "the key 'b' stands twice"),
        ("a: [1, 2", "line 1"),
        ("a: b: c", "line 1"),
        ("- 1", "mapping of keys"),
        ("", "'(empty)'; allowed: a mapping of keys"),
        ("? [a]\n: 1", "single value"),
        ("a: 2020-13-45", "month"),
        ("a: " + "[" * 5000, "nested too deeply"),
        ("a: !!python/object/apply:os.system [ls]", "constructor"),
        ("a: &x {b: *x}", "recursive"),
        ("a: \x07", "special characters"),
    ],
)
def test_what_is_no_plain_yaml_mapping_is_refused(text, said):
    with pytest.raises(RecipeError, match=r"plan\.yaml") as caught:
        parse_yaml(text, "plan.yaml")
    assert said in str(caught.value)


@pytest.mark.parametrize("content", [b"a: \xff", b"\xff\xfea"])
def test_a_file_that_is_not_utf8_is_refused_with_its_name(tmp_path, content):
    path = tmp_path / "plan.yaml"
    path.write_bytes(content)
    with pytest.raises(RecipeError, match=r"plan\.yaml is 'byte \d'; allowed: UTF-8"):
        load_yaml(path)


def test_a_missing_file_and_a_folder_are_refused(tmp_path):
    for path in (tmp_path / "none.yaml", tmp_path):
        with pytest.raises(RecipeError, match="can be read"):
            load_yaml(path)


def test_overrides_set_dotted_keys_and_leave_the_source_alone():
    data = {"training": {"epochs": 1, "lora": {"r": 4}}, "seeds": [0]}
    made = apply_overrides(
        data, ["training.epochs=3", "training.lora.alpha=2.5", "seeds=[1, 2]", "a.b=x=y", "note=", "on='1'"]
    )
    assert made == {
        "training": {"epochs": 3, "lora": {"r": 4, "alpha": 2.5}},
        "seeds": [1, 2],
        "a": {"b": "x=y"},
        "note": None,
        "on": "1",
    }
    assert data == {"training": {"epochs": 1, "lora": {"r": 4}}, "seeds": [0]}


def test_all_bad_overrides_are_named_at_once():
    with pytest.raises(RecipeError) as caught:
        apply_overrides({"seeds": [0]}, ["epochs", "=3", "x=[1", "seeds.first=1", "ok=1", "d={a: 1, a: 2}"])
    assert len(caught.value.faults) == 5


def test_values_that_do_not_fit_together_are_named_with_those_that_are_wrong_by_themselves() -> None:
    # Without the faulty count and the unknown key, what is left does not fit together either.
    with pytest.raises(RecipeError) as caught:
        validate(Holder, {"inner": {"low": 5, "names": {"x": 1}, "hgih": 9}, "count": "many"}, "recipe")
    assert [fault.field for fault in caught.value.faults] == ["recipe.inner.hgih", "recipe.count", "recipe.inner"]
    # A name that the user chose is not left out: what speaks of it would then seem wrong too.
    with pytest.raises(RecipeError) as caught:
        validate(Holder, {"inner": {"names": {"x": "one"}}}, "recipe")
    assert [fault.field for fault in caught.value.faults] == ["recipe.inner.names.x"]
