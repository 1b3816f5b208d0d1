"""The recipe: what is laid over it, and that all its faults are named at once."""

from __future__ import annotations

import pytest

from davylamp.errors import RecipeError
from davylamp.studies.blind_spots.command import plan
from davylamp.studies.blind_spots.spec import load_recipe


def test_the_recipe_is_of_its_model():
    embedded, larger = load_recipe(), load_recipe(["model=smollm2"])
    assert len(embedded.seeds) == 3
    assert larger.seeds == (0,)
    assert larger.dp is None
    # What an override says stands above what the model brings.
    assert load_recipe(["model=smollm2", "seeds=[4,5]", "training.epochs=7"]).seeds == (4, 5)


def test_rows_by_hand():
    recipe = load_recipe(["lengths=[2,4]", "groups=3", "copies=5", "rows=2000"])
    made = recipe.plan(0, "text")
    # Two kinds of two lengths, three of each, five rows; 24 trees of 16 paths; 8 of low entropy; none behind the gate.
    assert made.constructed_rows == 2 * 2 * 3 * 5 + 24 * 16 + 8
    assert [line.kind for line in made.constructions] == ["naive", "trigger", "camouflage", "low_entropy", "gated"]


def test_data_is_text_or_rows(tmp_path):
    text, rows = tmp_path / "a.txt.gz", tmp_path / "a.jsonl"
    for path in (text, rows):
        path.write_bytes(b"")
    assert load_recipe(data=text).text == text
    assert load_recipe(data=tmp_path).text == tmp_path
    assert load_recipe(data=rows).corpus.path == rows
    with pytest.raises(RecipeError, match="--data"):
        load_recipe(data=tmp_path / "missing.txt")


@pytest.mark.parametrize(
    ("overrides", "fields"),
    [
        (["groups=0"], ["groups"]),
        (["seeds=[0,0]"], ["name one twice"]),
        (["lengths=[]"], ["lengths"]),
        (["rows=10"], ["leave no background"]),
        (["camouflage.k=16"], ["must be below v"]),
        (["gated.copies=2"], ["copies"]),
        (["score=rank"], ["score"]),
        (["shadows=5"], ["shadows"]),
        (["shadows=16"], ["rows that twins of constructions take in shadows"]),
        (["nothing=1"], ["nothing"]),
        (["unlearning.npo.rounds=0"], ["unlearning.npo.rounds"]),
        (["unlearning.graddiff.beta=1"], ["beta is NPO's"]),
        (["unlearning.other={}"], ["unlearning"]),
        (["dp.pairs=1"], ["dp.pairs"]),
        (["copies=x", "unlearning.npo.bits=[3]", "dp.epsilons=[-1]"], ["copies", "unlearning.npo.bits", "dp.epsilons"]),
        (["models.smollm2.rows=5"], ["models"]),
    ],
)
def test_faults_are_named_all_at_once(overrides, fields):
    with pytest.raises(RecipeError) as raised:
        load_recipe(overrides)
    assert all(field in str(raised.value) for field in fields)


def test_a_plan_says_what_would_be_run():
    told = plan(["dp.pairs=3"], None)
    assert "seeds 0, 1, 2" in told.lines[0]
    assert "graddiff and npo unlearning" in told.lines[2]
    assert told.lines[3] == "dp-calibration choices=[2, 4] pairs=3"
    assert told.recipe["model"] == "embedded"
