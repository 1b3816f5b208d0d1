"""The recipe: what is laid over it, what would be run, and that faults are named before anything is."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from davylamp.corpora.spec import CorpusSpec
from davylamp.errors import PlantingError, RecipeError
from davylamp.studies.clinical.command import plan
from davylamp.studies.clinical.spec import load_recipe
from davylamp.studies.recipe import load_recipe as built_in

DOCS = Path(__file__).parents[3] / "docs" / "studies.md"


def documented():
    """The overrides that the documentation gives for a GPU and a hosted rewriter."""
    text = DOCS.read_text(encoding="utf-8")
    begins = "$ davylamp studies run clinical --dry-run "
    command = text[text.index(begins) :].split("```")[0]
    # A shell joins lines at a backslash, which shlex does not.
    return shlex.split(command.removeprefix(begins).replace("\\\n", " "))


def test_every_intervention_is_asked_on_the_same_canaries():
    recipe = load_recipe()
    assert list(recipe.variants) == ["direct", "goldfish", "dp_sgd", "scrub", "surrogate"]
    assert (len(recipe.seeds), recipe.plan.doses) == (3, (1, 4, 16, 32, 64))
    assert all(recipe.variant(name).plan == recipe.plan for name in recipe.variants)
    assert all(recipe.variant(name).training.epochs == 1 for name in recipe.variants)
    assert recipe == built_in("clinical")


def test_nobody_is_in_two_parts():
    for recipe in (load_recipe(), load_recipe(["model=smollm2"])):
        corpora = (recipe.corpus, recipe.landscape.held_out, recipe.landscape.test)
        subjects = [{record.line() for record in corpus.load().records} for corpus in corpora]
        assert all(subjects)
        assert sum(map(len, subjects)) == len(set().union(*subjects)) == recipe.corpus.rows


def test_the_larger_model_brings_fewer_canaries_and_overrides_stand_above():
    larger = load_recipe(["model=smollm2", "seeds=[4,5]", "plan.twins=9"])
    assert (larger.seeds, larger.plan.twins, larger.plan.per_dose) == ((4, 5), 9, 3)
    assert larger.training.precision == "bfloat16"
    assert larger.variant("dp_sgd").training.precision == "float32"


def test_a_rewriter_brings_the_interventions_that_need_one():
    recipe = load_recipe(["rewriter=smollm2", "plan.twins=9", "rewriter.max_tokens=99"])
    assert list(recipe.variants) == ["direct", "surrogate", "rewrite", "privacy_rewrite", "summary", "privacy_summary"]
    assert (recipe.model, recipe.plan.twins) == ("embedded", 9)
    steps = [recipe.variant(name).protect for name in recipe.variants]
    assert [[(each.model, each.max_tokens) for each in step] for step in steps[2:]] == [[("smollm2", 99)]] * 4
    assert all(recipe.variant(name).plan == recipe.plan for name in recipe.variants)
    assert all(recipe.variant(name).training == recipe.training for name in recipe.variants)
    hosted = ['rewriter={model: NAME, server: "https://api.example.com/v1", on_failure: surrogate}']
    (step,) = load_recipe(hosted).variant("privacy_summary").protect
    assert (step.name, step.server, step.on_failure) == ("privacy_summary", "https://api.example.com/v1", "surrogate")
    going = f"up to {recipe.plan.rows} records of 1 run go to api.example.com"
    sent = [line.split(":")[0].strip() for line in plan(hosted, None).lines if going in line]
    assert sent == ["rewrite", "privacy_rewrite", "summary", "privacy_summary"]


@pytest.mark.parametrize("value", ["3", "null", "[smollm2]", "{}", "{name: rewrite}"])
def test_what_is_no_rewriter_is_refused(value):
    with pytest.raises(RecipeError, match="rewriter"):
        load_recipe([f"rewriter={value}"])


def test_records_of_ones_own_are_split(tmp_path):
    path, generated = tmp_path / "patients.jsonl", CorpusSpec(generator="clinical", rows=40)
    rows = ({"id": at, **json.loads(record.line())} for at, record in enumerate(generated.load().records))
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    recipe = load_recipe(data=path)
    parts = [len(each.load()) for each in (recipe.corpus, recipe.landscape.held_out, recipe.landscape.test)]
    assert sum(parts) == 40
    with pytest.raises(RecipeError, match="a file that exists"):
        load_recipe(data=tmp_path / "missing.jsonl")


def test_rows_that_carry_canaries_are_not_counted_as_rows_to_train_on():
    # 150 records, 115 of them in the part of training, of which 9 canaries, 4 twins and the control each take one.
    assert "79 of 101 rows" in plan(["model=smollm2"], None).lines[0]


def test_a_hosted_rewriter_is_named_before_anything_is_sent():
    overrides = documented()
    lines = plan(overrides, None).lines
    assert "100 canaries at doses 1, 4, 16, 32, 64 and 20 twins a seed" in lines[0]
    kinds = ["rewrite", "privacy_rewrite", "summary", "privacy_summary"]
    assert [
        name for name in kinds if any(line.startswith(f"{name}: {name} by NAME on api.example.com") for line in lines)
    ] == kinds
    sent = [line for line in lines if "records of" in line]
    assert [line.split(":")[0].strip() for line in sent] == kinds
    rows = len(load_recipe(overrides).corpus.load())
    assert all(
        f"up to {3 * rows:,} records of 3 runs go to api.example.com (encrypted), model NAME" in line for line in sent
    )
    assert all("OPENAI_API_KEY, for the key, is" in line for line in sent)
    assert any("30 models are read in all" in line for line in lines)


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["landscape=null"], "landscape"),
        (["variants={}"], "variants"),
        (["nothing=1"], "nothing"),
        (["variants.other={protect: [{name: nowhere}]}"], "nowhere"),
        (["variants.none={}"], "untrained"),
    ],
)
def test_faults_are_named(overrides, said):
    with pytest.raises(RecipeError, match=said):
        plan(overrides, None)


def test_canaries_that_do_not_fit_are_refused_with_the_arithmetic():
    with pytest.raises(PlantingError, match="20 canaries x doses"):
        plan(["plan.per_dose=20"], None)
