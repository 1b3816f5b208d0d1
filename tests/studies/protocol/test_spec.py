"""Studies as files: those inside the package are whole, and faults of others are named before anything is trained."""

from __future__ import annotations

from pathlib import Path

import pytest

from davylamp.canaries.drafts import places
from davylamp.errors import RecipeError
from davylamp.studies.protocol import spec
from davylamp.studies.protocol.spec import CATALOGUE, TASKS, Select, load_study, study_recipe
from davylamp.studies.recipe import load_recipe
from davylamp.studies.tasks import tasks_of
from support.recipes import write_yaml
from support.studies import study_of

HERE = Path(spec.__file__).parent
SHAPE = {"statement": "S", "checks": [{"level": {}, "at_least": 1}]}


def written(tmp_path, **changes):
    data = {"name": "mine", "title": "T", "figures": "F", "question": "Q?", "shapes": [SHAPE], **changes}
    return str(write_yaml(tmp_path / "study.yaml", {key: value for key, value in data.items() if value is not None}))


def faults_of(tmp_path, **changes):
    with pytest.raises(RecipeError) as caught:
        load_study(written(tmp_path, **changes))
    return {fault.field: str(fault) for fault in caught.value.faults}


# --- the catalogue


def test_the_catalogue_names_the_files_that_there_are():
    assert {path.stem for path in (HERE / "catalogue").glob("*.yaml")} == set(CATALOGUE)
    assert {path.stem for path in (HERE / "tasks").glob("*.yaml")} == set(TASKS)


@pytest.mark.parametrize("name", CATALOGUE)
def test_a_study_of_the_catalogue_is_called_as_its_file_and_says_how_to_run_it(name):
    study = load_study(name)
    assert study.name == name
    first = (HERE / "catalogue" / f"{name}.yaml").read_text("utf-8").splitlines()[0]
    assert first == f"# davylamp studies run {name}"
    assert study.question.endswith("?")


@pytest.mark.parametrize("size", ["cpu", "paper"])
@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("name", CATALOGUE)
def test_every_study_is_a_recipe_on_every_task_at_every_size(name, task, size):
    study = load_study(name)
    recipe = study_recipe(study, task, size)
    assert recipe.name == f"{name} ({task}, {size})"
    assert recipe.seeds == (0, 1, 2)
    base = load_recipe(TASKS[task])
    assert recipe.plan.templates == base.plan.templates
    assert (recipe.model == base.model) == (size == "cpu")
    # Only what its study or its task says of the corpus is changed.
    assert (recipe.corpus.hub, recipe.corpus.generator) == (base.corpus.hub, base.corpus.generator)
    assert set(recipe.plan.arms) <= {arm for layer in layers(study, task, size) for arm in layer}
    tasks = list(tasks_of(recipe, Path("out")))
    assert len({each.folder for each in tasks}) == len(tasks)
    audits = [each for each in tasks if each.kind == "audit"]
    assert len(audits) == 3 * len(recipe.plan.arms) * max(1, len(recipe.variants))
    # Where the number of rows is known, every canary finds its rows in its window.
    rows = recipe.plan.rows or recipe.corpus.rows
    for each in audits:
        if rows is not None and each.plan.seed == 0:
            assert sum(map(len, places(each.plan, rows * each.plan.repeat))) == each.plan.planted_rows
    assert (rows is None) == ((task, size) == ("tatqa", "paper"))


def layers(study, task, size):
    found = [study.recipe, study.sizes.get(size, {}), study.tasks.get(task, {}).get(size, {})]
    return [layer.get("plan", {}).get("arms!", {}) for layer in found]


def test_the_positions_are_thirds_and_fifths_of_training():
    recipe = study_recipe(load_study("position"))
    assert {name: recipe.variant(name).plan.schedule.window for name in recipe.variants} == {
        f"{schedule}-{place}": window
        for schedule in ("constant", "cosine")
        for place, window in (("first", (0, 0.2)), ("middle", (0.4, 0.6)), ("last", (0.8, 1)))
    }


def test_a_later_layer_replaces_what_an_earlier_one_says():
    study = study_of(
        recipe={"plan": {"arms!": {"a": {"context": "redacted"}}, "doses": [2], "slots": {"more": ["x"]}}},
        sizes={"cpu": {"plan": {"doses": [3]}}, "paper": {"plan": {"doses": [5]}}},
        tasks={"email": {"cpu": {"plan": {"doses": [4], "arms": {"b": {"context": "visible"}}}}}},
    )
    email, banking = study_recipe(study), study_recipe(study, "banking77")
    assert (email.plan.doses, list(email.plan.arms)) == ((4,), ["a", "b"])
    assert (banking.plan.doses, list(banking.plan.arms)) == ((3,), ["a"])
    assert study_recipe(study, size="paper").plan.doses == (5,)
    assert set(email.plan.slots) == {*load_recipe("demo").plan.slots, "more"}
    over = study_recipe(study, overrides=["plan.doses=[9]", "name=other", "seeds=[7]"])
    assert (over.plan.doses, over.name, over.seeds) == ((9,), "other", (7,))


def test_a_file_takes_the_place_of_the_tasks_corpus(tmp_path):
    for name in ("train.csv", "test.csv"):
        (tmp_path / name).write_text("text,category\na,b\n", "utf-8")
    recipe = study_recipe(load_study("rank-first"), "banking77", data=tmp_path / "train.csv")
    assert (recipe.corpus.path, recipe.corpus.hub) == (tmp_path / "train.csv", None)
    assert recipe.utility.corpus.path == tmp_path / "test.csv"
    with pytest.raises(RecipeError, match=r"corpus\.path"):
        study_recipe(load_study("rank-first"), "banking77", data=tmp_path / "none.csv")


# --- files of the user's own


def test_a_study_may_be_a_file(tmp_path):
    path = written(
        tmp_path,
        recipe={"plan": {"doses": [2]}, "seeds": [1]},
        comparisons=[{"name": "c", "of": {"arm": "redacted"}, "over": {"arm": "visible"}}],
        shapes=[{"statement": "S", "checks": [{"comparison": "c", "goes": "down"}]}],
        task="banking77",
    )
    study = load_study(path)
    recipe = study_recipe(study)
    assert (recipe.name, recipe.plan.doses, recipe.seeds) == ("mine (banking77, cpu)", (2,), (1,))
    assert study.comparisons[0].over == Select(arm="visible")


def test_a_folder_that_is_called_as_a_study_is_none(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "utility").mkdir()
    assert load_study("utility").name == "utility"
    with pytest.raises(RecipeError, match=r"study is 'utilty'; allowed: a YAML file, or one of context-dose, position"):
        load_study("utilty")
    with pytest.raises(RecipeError, match="can be read"):
        load_study(str(tmp_path))


def test_a_comparison_that_there_is_not_is_named(tmp_path):
    shapes = [{"statement": "S", "checks": [{"comparison": "late over early"}, {"comparison": "c"}]}]
    two = [{"name": "c", "of": {}, "over": {"arm": "visible"}}] * 2
    said = faults_of(tmp_path, comparisons=two, shapes=shapes)["recipe"]
    assert "'late over early', which is not among ['c', 'c']" in said
    assert "two comparisons have one name" in said


@pytest.mark.parametrize(
    ("check", "said"),
    [
        ({}, "exactly one of comparison, level, order and utility must be given, not none"),
        ({"goes": "up"}, "not none"),
        ({"comparison": "c", "level": {}, "at_least": 1}, "not ['comparison', 'level']"),
        ({"order": [{}, {}], "utility": ["base", "clean"]}, "not ['order', 'utility']"),
        ({"level": {}}, "level needs at_least or at_most"),
        ({"comparison": "c", "at_most": 1}, "nothing else takes them"),
        ({"level": {}, "at_least": float("nan")}, "finite"),
        ({"order": [{}]}, "at least 2"),
        ({"utility": ["base"]}, "utility"),
        ({"level": {"does": 4}, "at_least": 1}, "no such key"),
        ({"level": {"release": "base"}, "at_least": 1}, "'model' or 'reference'"),
        ({"comparison": "c", "goes": "sideways"}, "'up' or 'down'"),
    ],
)
def test_a_check_is_of_one_kind_and_whole(tmp_path, check, said):
    faults = faults_of(
        tmp_path, comparisons=[{"name": "c", "of": {}, "over": {}}], shapes=[{"statement": "S", "checks": [check]}]
    )
    assert all(field.startswith("shapes.0.checks.0") for field in faults)
    assert any(said in text for text in faults.values())


def test_faults_of_all_parts_are_named_at_once(tmp_path):
    faults = faults_of(
        tmp_path,
        title=None,
        task="chess",
        confidence=0.5,
        sizes={"huge": {}},
        shapes=[{"statement": "S", "checks": []}],
        comparisons=[{"name": "c", "of": {}}],
        receipe={},
    )
    fields = ("title", "task", "confidence", "shapes.0.checks", "comparisons.0.over", "receipe")
    assert {*fields} <= set(faults)
    assert any(field.startswith("sizes") for field in faults)


@pytest.mark.parametrize("name", ["../elsewhere", "a/b", "", "."])
def test_a_studys_name_names_a_folder_inside_runs(tmp_path, name):
    assert "name" in faults_of(tmp_path, name=name)


# --- what is compared is read


def recipe_faults(study, *overrides):
    with pytest.raises(RecipeError) as caught:
        study_recipe(study, overrides=overrides)
    return {fault.field: str(fault) for fault in caught.value.faults}


def test_an_override_that_takes_away_what_is_compared_is_refused_before_anything_is_trained():
    faults = recipe_faults(load_study("context-dose"), "plan.doses=[4]")
    assert faults["comparisons.0.of.dose"].startswith("comparisons.0.of.dose is 16; allowed: 4.")
    assert "comparisons.1.of.dose" not in faults
    assert {"shapes.0.checks.0.level.dose", "shapes.1.checks.0.order.1.dose"} <= set(faults)
    faults = recipe_faults(load_study("position"), "variants={constant-first: {}, constant-last: {}}")
    assert faults["comparisons.1.of.variant"] == (
        "comparisons.1.of.variant is 'constant-middle'; allowed: constant-first, constant-last. "
        "The study compares what its recipe, with its overrides, does not read."
    )
    assert "comparisons.0.of.variant" not in faults
    assert set(recipe_faults(load_study("utility"), "clean=false")) == {"shapes.0.checks.0.utility.1"}
    assert "shapes.1.checks.0.utility.1" in recipe_faults(load_study("utility"), "arms=together")


ENCODED = {"plan": {"arms!": {"b": {"context": "encoded", "encoding": "binary"}}, "doses": [2]}}


@pytest.mark.parametrize(
    ("what", "recipe", "field"),
    [
        ({"variant": "v"}, {}, "variant"),
        ({"arm": "visible"}, {}, "arm"),
        ({"arm": "control"}, {}, "arm"),
        ({"dose": 2, "role": "twin"}, {}, "dose"),
        ({"dose": 2, "role": "positive"}, {}, "dose"),
        ({"role": "auxiliary"}, {}, "role"),
        ({"role": "unseen", "probe": "unseen"}, {}, "role"),
        ({"probe": "original"}, {}, "probe"),
        ({"probe": "shown"}, {}, "probe"),
        ({"probe": "original", "measure": "greedy_recovery"}, {"probes": ["hidden"]}, "probe"),
        ({"release": "reference"}, {}, "release"),
        ({"role": "unseen", "probe": "unseen:ascii", "measure": "top"}, {"unseen": {"exposure": True}}, "probe"),
        ({"role": "unseen", "probe": "unseen:binary"}, {"unseen": {}}, "measure"),
        ({"role": "unseen", "measure": "greedy_recovery"}, {"unseen": {}}, "probe"),
    ],
)
def test_a_selection_that_no_audit_will_read_is_named(what, recipe, field):
    study = study_of(
        recipe={**ENCODED, "audit": recipe}, shapes=[{**SHAPE, "checks": [{"level": what, "at_least": 0}]}]
    )
    assert f"shapes.0.checks.0.level.{field}" in recipe_faults(study)


@pytest.mark.parametrize(
    ("what", "recipe"),
    [
        ({"arm": "b", "dose": 2}, {}),
        ({"arm": "control", "role": "positive", "dose": 8}, {}),
        ({"role": "twin", "dose": 0}, {}),
        ({"measure": "top"}, {}),
        # Left to the readings.
        ({"measure": "min_k", "role": "nonmember", "probe": "as_trained", "dose": 0}, {}),
        ({"probe": "original", "measure": "greedy_recovery"}, {}),
        ({"probe": "original"}, {"exposure_probes": ["hidden", "original"]}),
        ({"release": "reference", "probe": "original", "measure": "reply_recovery"}, {"before": True}),
        ({"role": "unseen", "probe": "unseen:binary", "measure": "greedy_recovery"}, {"unseen": {}}),
        ({"role": "unseen", "probe": "unseen:ascii"}, {"unseen": {"encodings": ["ascii"], "exposure": True}}),
    ],
)
def test_a_selection_that_an_audit_will_read_is_let_pass(what, recipe):
    study = study_of(
        recipe={**ENCODED, "audit": recipe}, shapes=[{**SHAPE, "checks": [{"level": what, "at_least": 0}]}]
    )
    study_recipe(study)


def test_a_variants_own_arms_and_doses_may_be_compared():
    study = study_of(
        recipe={**ENCODED, "variants": {"one": {}, "two": {"plan.doses": [3], "plan.arms.c.context": "redacted"}}},
        comparisons=[
            {"name": "c", "of": {"variant": "two", "arm": "c", "dose": 3}, "over": {"variant": "one", "dose": 2}}
        ],
    )
    study_recipe(study)
    other = study.model_copy(
        update={
            "comparisons": tuple(
                study_of(
                    comparisons=[{"name": "c", "of": {"variant": "one", "arm": "c", "dose": 3}, "over": {}}]
                ).comparisons
            )
        }
    )
    assert set(recipe_faults(other)) == {"comparisons.0.of.arm", "comparisons.0.of.dose"}
