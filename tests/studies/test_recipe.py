from __future__ import annotations

import pytest

from davylamp.errors import RecipeError
from davylamp.measures.probes import Probe
from davylamp.protect.corpus.registry import known
from davylamp.studies.recipe import BUILT_IN, build_recipe, load_recipe, source_of
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
    # Records without a prompt have nothing that a secret could be visible in.
    wanted = {"redacted"} if recipe.plan.carrier_chars else {"visible", "redacted"}
    assert {arm.context for arm in recipe.plan.arms.values()} == wanted


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


# --- unseen codes, the model before, and schedules


def test_an_audit_may_show_unseen_codes_and_ask_the_model_before(tmp_path, data):
    path = write_yaml(tmp_path / "r.yaml", data)
    plain = load_recipe(str(path)).audit
    assert (plain.unseen, plain.before, plain.probes) == (None, False, tuple(Probe))
    audit = load_recipe(str(path), ["audit.unseen={codes: 12, encodings: [cyclic_shift( 1 )]}", "audit.before=true"])
    assert audit.audit.unseen.model_dump() == {"codes": 12, "encodings": ("cyclic_shift(1)",), "exposure": False}
    assert audit.audit.before


def test_unseen_codes_that_do_not_fit_the_space_are_refused_before_anything_is_loaded(tmp_path, data):
    # 125 codes; an arm has 4 focus canaries, 2 twins and the positive control, each with a replacement: 14.
    load_recipe(str(write_yaml(tmp_path / "fits.yaml", data)), ["audit.unseen.codes=111"])
    assert (
        "audit.unseen.codes is 112; allowed: at most 111: the space holds 125, canaries take 14"
        in (faults_of(tmp_path, data, "audit.unseen.codes=112")["recipe"])
    )
    # Secrets of the alphabet 01 are their own bits.
    settings = ["audit.unseen={codes: 500, encodings: [binary, ascii]}", "plan.space={alphabet: '01', length: 9}"]
    said = faults_of(tmp_path, data, *settings, "seeds=[1, 1]")["recipe"]
    assert "audit.unseen.codes is 500; allowed: at most 498" in said
    assert "audit.unseen.encodings is 'binary'; allowed: an encoding of this space" in said
    assert "'ascii'" not in said
    assert "twice" in said
    assert "audit.unseen.encodings" in faults_of(tmp_path, data, "audit.unseen.encodings=[morse]")
    # Both arms together hold 26.
    assert "at most 99" in faults_of(tmp_path, data, "audit.unseen.codes=100", "arms=together")["recipe"]


def test_faults_of_a_schedule_are_named_together(tmp_path, data):
    data["plan"]["schedule"] = {"window": "late"}
    said = faults_of(
        tmp_path, data, "training.epochs=2", "training.packing=true", "plan.rows_per_update=3", "seeds=[1,1]"
    )
    assert "plan.rows_per_update is 3, but an update of training takes 4 rows" in said["recipe"]
    assert "each of the 2 epochs" in said["recipe"]
    assert "without packing" in said["recipe"]
    assert "twice" in said["recipe"]
    load_recipe(str(tmp_path / "r.yaml"), ["plan.rows_per_update=4"])


# --- variants


def variants(data, **changes):
    return {**data, "variants": changes}


def test_a_variant_is_the_recipe_with_some_keys_changed(tmp_path, data):
    data = variants(
        data,
        same={},
        late={"plan.schedule.window": "late", "training.schedule": "cosine"},
        more={"plan.auxiliary": {"doses": [2]}, "plan.doses": [2]},
    )
    recipe = load_recipe(str(write_yaml(tmp_path / "r.yaml", data)), ["seeds=[3]"])
    assert recipe.variant("same") == recipe.model_copy(update={"variants": {}})
    late, more = recipe.variant("late"), recipe.variant("more")
    assert (late.plan.schedule.window, late.training.schedule, late.variants) == ((0.8, 1.0), "cosine", {})
    assert (more.plan.auxiliary.doses, more.plan.auxiliary.per_dose, more.plan.doses) == ((2,), 16, (2,))
    assert late.plan.model_copy(update={"schedule": recipe.plan.schedule}) == recipe.plan
    assert (late.seeds, late.audit, late.model) == (recipe.seeds, recipe.audit, recipe.model)
    # The recipe itself is as it was.
    assert (recipe.training.schedule, recipe.plan.auxiliary, recipe.plan.doses) == ("constant", None, (1, 2))


def test_faults_of_all_variants_are_named_with_those_of_the_recipe(tmp_path, data):
    data = variants(
        data,
        fine={"training.epochs": 2},
        late={"plan.schedule.window": "late", "training.epochs": 3},
        wrong={"plan.doses": [0], "training.schedule": "cosin", "plan.arms.visible.contxt": "x"},
        model={"model": "other", "audit.pool": 100, "plan.doses": [0]},
        **{"a/b": {}},
        deep={"plan.seed.x": 1},
        unseen={"plan.space.length": 1},
    )
    faults = faults_of(tmp_path, data, "seeds=[2, 2]", "audit.unseen.codes=20", "training.epochs=none")
    said = {
        "training.epochs": "",
        "recipe": "seeds [2, 2] name a seed twice",
        "variants": "variants is 'a/b'; allowed: names of letters, digits",
        "variants.late": "a schedule places canaries in the planted file, which each of the 3 epochs",
        "variants.wrong.plan.doses.0": "is 0",
        "variants.wrong.training.schedule": "is 'cosin'",
        "variants.wrong.plan.arms.visible.contxt": "is 'x'; allowed: no such key",
        "variants.model.model": "is 'other'; allowed: a key that begins with plan. or training., or protect",
        "variants.model.audit.pool": "is 100; allowed: a key that begins with plan.",
        # What may not be changed hides nothing else of the same variant.
        "variants.model.plan.doses.0": "is 0",
        "variants.deep.plan.seed.x": "is 1",
        "variants.unseen": "audit.unseen.codes is 20; allowed: at most 0: the space holds 5, canaries take 14",
    }
    assert faults.keys() == said.keys()
    assert [field for field, part in said.items() if part not in faults[field]] == []


def test_a_fault_of_the_recipe_is_said_once_and_not_of_every_variant(tmp_path, data):
    data = variants(data, one={}, two={"training.schedule": "cosine"}, three={"training.packing": True})
    data["plan"]["schedule"] = {"window": "early"}
    faults = faults_of(tmp_path, data, "training.epochs=2")
    assert faults.keys() == {"recipe", "variants.three"}
    assert faults["recipe"].count("a schedule places canaries") == 1
    assert "a schedule places canaries" not in faults["variants.three"]


@pytest.mark.parametrize(
    ("arms", "names", "overrides"),
    [
        # x-y with z, and x with y-z.
        (["z", "y-z"], ["x-y", "x"], []),
        (["visible", "y-visible"], ["x", "x-y"], []),
        # The run without canaries of x-y, and the arm y-clean of x.
        (["y-clean"], ["x", "x-y"], ["clean=true"]),
    ],
)
def test_two_runs_do_not_share_a_folder(tmp_path, data, arms, names, overrides):
    data = variants(data, **{name: {} for name in names})
    data["plan"]["arms"] = {arm: {"context": "redacted"} for arm in arms}
    assert "name the same folder" in faults_of(tmp_path, data, *overrides)["variants"]
    load_recipe(str(tmp_path / "r.yaml"), ["arms=together"])


def test_a_variant_of_another_arm_may_take_the_clean_runs_name_where_there_is_none(tmp_path, data):
    data = variants(data, one={"plan.arms": {"clean": {"context": "redacted"}}})
    assert "plan.arms: the name 'clean'" in faults_of(tmp_path, data, "clean=true")["variants.one"]
    load_recipe(str(tmp_path / "r.yaml"))


# --- sources


def test_a_recipe_may_be_built_from_what_its_file_holds(tmp_path, data):
    path = str(write_yaml(tmp_path / "r.yaml", data))
    assert source_of(path) == data
    assert build_recipe(source_of(path), ["seeds=[4]"]) == load_recipe(path, ["seeds=[4]"])


def test_a_folder_that_is_called_as_a_recipe_is_none(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "demo").mkdir()
    assert load_recipe("demo").name == "demo"
    with pytest.raises(RecipeError, match="can be read"):
        source_of(str(tmp_path))
    write_yaml(tmp_path / "banking77", {"name": "mine"})
    assert source_of("banking77") == {"name": "mine"}


SHADOWED = {"audit": {"measures": ["exposure", "recovery", "lira"]}, "constructions": {"shadows": 4}}
UNPROTECTABLE = ("audit.measures has lira", "plan.constructions are planted", "constructions.shadows are trained")


def test_what_takes_planted_rows_is_refused_beside_protection_all_at_once(tmp_path, data):
    data |= SHADOWED
    data["plan"]["constructions"] = [{"kind": "naive", "groups": 2, "copies": 3, "secret_tokens": 2}]
    assert load_recipe(str(write_yaml(tmp_path / "r.yaml", data))).constructions.shadows == 4
    (said,) = faults_of(tmp_path, data, "protect=[surrogate]").values()
    assert all(fault in said for fault in UNPROTECTABLE)
    # In a variant alone it is that variant's fault; what the whole recipe suffers from is said once.
    faults = faults_of(tmp_path, {**data, "variants": {"plain": {}, "away": {"protect": ["surrogate"]}}})
    assert faults.keys() == {"variants.away"}
    assert all(f"protect: {fault}" in faults["variants.away"] for fault in UNPROTECTABLE)
    variants = {"variants": {"away": {"plan.doses": [1]}, "none_of_it": {"protect": []}}}
    (said,) = faults_of(tmp_path, data | variants, "protect=[surrogate]").values()
    assert said.count("audit.measures has lira") == 1
    assert "variants." not in said


# --- interventions


@pytest.mark.parametrize(
    ("listed", "field", "said"),
    [
        (5, "protect", "is 5; allowed: a list of interventions (KNOWN), in their order"),
        (None, "protect", "allowed: a list of interventions (KNOWN)"),
        ("scrub", "protect", "Put it in a list."),
        ({"name": "scrub"}, "protect", "Put it in a list."),
        ("nope", "protect", "is 'nope'; allowed: a list of interventions (KNOWN)"),
        ([5], "protect.0", "is 5; allowed: the name of an intervention (KNOWN), or settings with a name"),
        ([["scrub"]], "protect.0", "allowed: the name of an intervention (KNOWN)"),
        (["nope"], "protect.0", "is 'nope'; allowed: one of KNOWN"),
        (["surogate"], "protect.0", "allowed: one of KNOWN. Did you mean 'surrogate'?"),
        ([{}], "protect.0.name", "is '(missing)'; allowed: one of KNOWN"),
        ([{"name": None}], "protect.0.name", "is None; allowed: one of KNOWN"),
        ([{"name": "wash"}], "protect.0.name", "is 'wash'; allowed: one of KNOWN"),
        ([{"surrogate": {"common": 3}}], "protect.0.name", "Write {name: surrogate, ...}"),
        (
            ["surrogate", {"name": "surrogate", "comon": 3}],
            "protect.1.comon",
            "is 3; allowed: no such key. Did you mean 'common'? Known here: common, name, on_failure, once, seed.",
        ),
        ([{"name": "surrogate", "common": "x"}], "protect.0.common", "is 'x'; allowed: a valid integer"),
        ([{"name": "surrogate", "common": 1}], "protect.0.common", "is 1; allowed: greater than or equal to 2"),
        ([{"name": "rewrite"}], "protect.0.model", "is '(missing)'; allowed: a value"),
        (
            [{"name": "rewrite", "model": "m", "server": "ftp://x"}],
            "protect.0.server",
            "is 'ftp://x'; allowed: a base URL such as",
        ),
        ([{"name": "summary", "model": "m"}], "protect.0.exemplars", "allowed: two records that show summary the form"),
        ([{"name": "rewrite", "model": "m", "prompts": "no.md"}], "protect.0.prompts", "a file of UTF-8 text"),
        (
            [{"name": "scrub", "patterns": [{"name": "MRN", "regex": "("}]}],
            "protect.0.patterns.0.regex",
            "is '('; allowed: a regular expression",
        ),
    ],
)
def test_a_wrong_intervention_is_said_at_its_place_with_what_is_allowed(tmp_path, data, listed, field, said):
    said = said.replace("KNOWN", ", ".join(known()))
    for where, source in (
        ("", data | {"protect": listed}),
        ("variants.away.", data | {"variants": {"away": {"protect": listed}}}),
    ):
        faults = faults_of(tmp_path, source)
        assert faults.keys() == {where + field}
        assert said in faults[where + field]


def test_the_same_intervention_may_come_twice_and_none_is_none(tmp_path, data):
    twice = [{"name": "surrogate", "common": 8}, "surrogate"]
    recipe = build_recipe(data | {"protect": twice})
    assert [each.name for each in recipe.protect] == ["surrogate", "surrogate"]
    assert build_recipe(data | {"protect": []}) == build_recipe(data)


def test_faults_of_every_intervention_of_every_variant_are_named_at_once(tmp_path, data):
    pytest.importorskip("presidio_analyzer", reason="the extra 'scrub' is not installed")
    pytest.importorskip("faker", reason="the extra 'scrub' is not installed")
    scrub = {"name": "scrub", "entities": ["PERSON", "SHOE_SIZE"], "locale": "xx_YY", "threshold": 7}
    rewriter = {"name": "privacy_summary", "model": "m", "prompts": "no.md", "exemplars": "no.jsonl", "form": 2}
    data |= {
        "protect": [scrub, "nope"],
        "variants": {"one": {"protect": [rewriter], "plan.doses": [0]}, "two": {"protect": [scrub, 5]}},
        "landscape": {"item": "(", "question": "{x}?", "answer": "none", "subject": "abc", "pool": 1},
    }
    del data["name"]
    faults = faults_of(tmp_path, data, "seeds=[-1]")
    scrubbed = {"entities", "locale", "threshold"}
    assert faults.keys() == {
        *(f"protect.0.{key}" for key in scrubbed),
        "protect.1",
        *(f"variants.one.protect.0.{key}" for key in ("prompts", "exemplars.path", "form")),
        "variants.one.plan.doses.0",
        *(f"variants.two.protect.0.{key}" for key in scrubbed),
        "variants.two.protect.1",
        *(f"landscape.{key}" for key in ("held_out", "item", "question", "answer", "subject", "pool")),
        "name",
        "seeds.0",
    }
    assert "allowed: names among" in faults["protect.0.entities"]
    assert "PHONE_NUMBER" in faults["protect.0.entities"]


def test_what_is_wrong_outside_a_recipe_is_said_with_what_is_wrong_in_it(tmp_path, data):
    data |= {"corpus": {"path": "none.jsonl"}, "protect": [{"name": "rewrite", "model": "m", "prompts": "no.md"}]}
    assert faults_of(tmp_path, data, "seeds=[-1]").keys() == {"corpus.path", "protect.0.prompts", "seeds.0"}
    assert faults_of(tmp_path, data).keys() == {"corpus.path", "protect.0.prompts"}
