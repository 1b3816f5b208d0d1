from __future__ import annotations

import pytest

from davylamp.errors import RecipeError
from davylamp.studies.recipe import BUILT_IN, load_recipe
from support.recipes import tiny_recipe, write_corpus, write_yaml


@pytest.fixture
def data(tmp_path):
    return tiny_recipe(write_corpus(tmp_path / "c.jsonl"), tmp_path / "model")


def faults_of(tmp_path, data, *overrides):
    path = write_yaml(tmp_path / "r.yaml", data)
    with pytest.raises(RecipeError) as caught:
        load_recipe(str(path), overrides)
    return {fault.field: str(fault) for fault in caught.value.faults}


@pytest.mark.parametrize("name", BUILT_IN)
def test_the_built_in_recipes_are_whole(name):
    recipe = load_recipe(name)
    assert recipe.name == name
    assert {arm.context for arm in recipe.plan.arms.values()} == {"visible", "redacted"}


def test_the_demo_is_what_was_promised():
    plan = load_recipe("demo").plan
    assert (plan.doses, plan.per_dose, plan.space.size) == ((1, 4, 16), 16, 10_000)


def test_a_recipe_says_what_it_was_given(tmp_path, data):
    recipe = load_recipe(str(write_yaml(tmp_path / "r.yaml", data)), ["seeds=[3, 4]", "training.epochs=2"])
    assert (recipe.seeds, recipe.training.epochs, recipe.arms) == ((3, 4), 2, "apart")


def test_every_unknown_key_is_named_at_once(tmp_path, data):
    data |= {"modle": "x", "seed": 3}
    data["training"]["lr"] = 1
    data["plan"]["space"]["symbols"] = "01"
    data["plan"]["templates"][0]["reply"] = "x"
    faults = faults_of(tmp_path, data, "audit.rules.treshold=1", "utility.row=3")
    unknown = {"modle", "seed", "training.lr", "plan.space.symbols", "plan.templates.0.reply"}
    assert faults.keys() == {*unknown, "audit.rules.treshold", "utility.row"}
    assert all("no such key" in text for text in faults.values())


def test_faults_of_all_parts_are_named_at_once(tmp_path, data):
    del data["name"]
    data["corpus"] = {}
    faults = faults_of(tmp_path, data, "seeds=[]", "training.epochs=0", "plan.doses=[]", "arms=both", "seeds=[-1]")
    assert {"name", "corpus", "training.epochs", "plan.doses", "arms", "seeds.0"} <= faults.keys()


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("seeds=[1, 1]", "twice"),
        ("audit.probes=[as_trained]", "'hidden'"),
        ("audit.probes=[hidden,hidden]", "probes name one twice"),
        ("audit.exposure_probes=[hidden,hidden]", "exposure_probes name one twice"),
        ("audit.measures=[exposure,recovery,exposure]", "measures name one twice"),
        ("corpus.hub=a/b", "exactly one of"),
        ("utility=null clean=true", "no utility"),
    ],
)
def test_what_does_not_fit_together(tmp_path, data, override, said):
    faults = faults_of(tmp_path, data, *override.split(" ") if "null" in override else [override])
    assert any(said in text for text in faults.values())


def test_missing_files_are_named_together_before_anything_is_loaded(tmp_path, data):
    faults = faults_of(tmp_path, data, "corpus.path=none.jsonl", "utility.corpus.path=nada.jsonl")
    assert faults.keys() == {"corpus.path", "utility.corpus.path"}


def test_a_name_that_is_no_recipe_lists_the_built_in_ones():
    with pytest.raises(RecipeError, match="demo, banking77"):
        load_recipe("dmeo")


@pytest.mark.parametrize("arm", ["../../elsewhere", "a/b", "", ".", "a b"])
def test_an_arm_names_a_folder_inside_the_run(tmp_path, data, arm):
    data["plan"]["arms"] = {arm: {"context": "redacted"}}
    assert "letters, digits" in faults_of(tmp_path, data)["plan"]


def test_an_arm_does_not_take_the_clean_runs_folder(tmp_path, data):
    data["plan"]["arms"] = {"clean": {"context": "redacted"}}
    assert "'clean' is taken" in faults_of(tmp_path, data, "clean=true")["recipe"]
