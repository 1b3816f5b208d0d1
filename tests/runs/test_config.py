from __future__ import annotations

import copy
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, model_validator

from davylamp.errors import RecipeError
from davylamp.runs.config import apply_overrides, load_yaml, merge, parse_yaml, set_keys, validate


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


# --- merge and set_keys

LEAF = (
    st.none()
    | st.booleans()
    | st.integers(-9, 9)
    | st.text("xyz", max_size=2)
    | st.lists(st.integers(0, 3), max_size=2)
)
NAMES = st.sampled_from(["a", "b", "c", "d.e"])
TREES = st.recursive(
    st.dictionaries(NAMES, LEAF, max_size=3),
    lambda inner: st.dictionaries(NAMES, LEAF | inner, max_size=3),
    max_leaves=8,
)


def leaves(data: dict[str, Any], *place: str) -> dict[tuple[str, ...], Any]:
    """Every value that is no mapping, or an empty one, by its place."""
    found: dict[tuple[str, ...], Any] = {}
    for key, value in data.items():
        inner = leaves(value, *place, key) if isinstance(value, dict) else {}
        found |= inner or {(*place, key): value}
    return found


def at(data: Any, place: tuple[str, ...]) -> Any:
    for key in place:
        data = data[key]
    return data


@given(TREES, TREES)
def test_what_is_laid_over_stays_and_what_it_does_not_speak_of_too(below, over):
    before = copy.deepcopy((below, over))
    made = merge(below, over)
    for place, value in leaves(over).items():
        # An empty mapping changes nothing of a mapping below it.
        if value != {}:
            assert at(made, place) == value
    for place, value in leaves(below).items():
        covered = any(place[: len(other)] == other or other[: len(place)] == place for other in leaves(over))
        if not covered:
            assert at(made, place) == value
    assert (below, over) == before


@given(TREES)
def test_nothing_laid_over_changes_nothing_and_the_same_again_neither(data):
    assert merge(data, {}) == data
    assert merge({}, data) == data
    assert merge(data, data) == data
    made = merge(data, {})
    made["a"] = made.get("a") or {}
    if isinstance(made["a"], dict):
        made["a"]["new"] = 1
        assert "new" not in (data.get("a") or {})


@given(TREES, TREES, TREES)
def test_layers_may_be_laid_together_first(one, two, three):
    """What is a mapping in one layer and a value in the next is where the order of laying matters."""
    kinds = [{place: isinstance(value, dict) for place, value in every(each).items()} for each in (one, two, three)]
    places = set().union(*kinds)
    if all(len({kind[place] for kind in kinds if place in kind}) == 1 for place in places):
        assert merge(merge(one, two), three) == merge(one, merge(two, three))


def every(data: dict[str, Any], *place: str) -> dict[tuple[str, ...], Any]:
    found: dict[tuple[str, ...], Any] = {}
    for key, value in data.items():
        found[*place, key] = value
        if isinstance(value, dict):
            found |= every(value, *place, key)
    return found


@given(TREES, TREES)
def test_a_marked_key_replaces_the_whole_of_what_was_there(below, over):
    assert merge(below, {"a!": over}) == {**below, "a": over}
    # Where there is nothing below it, and inside another marked key, too.
    assert merge(below, {"new": {"a!": over}}) == {**below, "new": {"a": over}}
    assert merge(below, {"a!": {"b!": over}}) == {**below, "a": {"b": over}}
    assert merge({"a": 3}, {"a": {"b!": over}}) == {"a": {"b": over}}


@pytest.mark.parametrize("value", [None, 3, [1], "x"])
def test_a_marked_key_may_hold_what_is_no_mapping(value):
    assert merge({"a": {"b": 1}, "c": 2}, {"a!": value}) == {"a": value, "c": 2}


def test_keys_that_are_no_texts_are_left_to_the_schema():
    assert merge({1: {"a": 1}}, {1: {"b": 2}, None: 3}) == {1: {"a": 1, "b": 2}, None: 3}


@given(TREES, st.dictionaries(st.sampled_from(["a", "a.b", "c.d.e", "b"]), LEAF | TREES, max_size=3))
def test_set_keys_sets_the_last_of_what_is_given_and_leaves_its_inputs(data, values):
    before = copy.deepcopy((data, values))
    try:
        made = set_keys(data, values)
    except RecipeError:
        made = None
    assert (data, values) == before
    if made is not None and values:
        key, value = list(values.items())[-1]
        assert at(made, tuple(key.split("."))) == value


def test_an_outer_key_that_holds_nothing_is_taken_for_an_empty_mapping():
    data = {"plan": {"auxiliary": None}, "other": 1}
    assert set_keys(data, {"plan.auxiliary.doses": [8], "plan.auxiliary.schedule.window": "early"}) == {
        "plan": {"auxiliary": {"doses": [8], "schedule": {"window": "early"}}},
        "other": 1,
    }
    assert data == {"plan": {"auxiliary": None}, "other": 1}


def test_values_are_set_as_they_are_and_every_fault_is_named():
    # No YAML is read: this text stays a text.
    assert set_keys({}, {"a": "[1, 2]"}) == {"a": "[1, 2]"}
    assert set_keys({"a": {"b": 1, "c": 2}}, {"a": {"b": 3}}) == {"a": {"b": 3}}
    with pytest.raises(RecipeError) as caught:
        set_keys({"a": 1, "b": [2]}, {"a.x": 1, "b.y.z": 2, "c.d": 3})
    assert [fault.field for fault in caught.value.faults] == ["a.x", "b.y.z"]
