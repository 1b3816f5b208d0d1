"""The TAT-QA recipe: what it plants, what it refuses, and a whole run on a small model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from davylamp.canaries import plant
from davylamp.errors import RecipeError
from davylamp.studies.recipe import Recipe, load_recipe
from davylamp.studies.runner import run_recipe

DATA = Path(__file__).parents[3] / "shared" / "data" / "tatqa"
REAL = pytest.mark.skipif(not DATA.is_dir(), reason="the TAT-QA files are not beside this checkout")


def question(number: int, tables: str) -> dict[str, Any]:
    table = [["", "2019"], ["Fees", f"{number}.5"]]
    row = {"table": table, "paragraphs": [f"{tables} {number} (in millions):"], "question": "How high were the fees?"}
    return {**row, "answer": [f"{number}.5"], "scale": "million"}


def write(folder: Path, name: str, rows: int, tables: str) -> Path:
    path = folder / name
    path.write_text("".join(json.dumps(question(n, tables)) + "\n" for n in range(rows)), encoding="utf-8")
    return path


@pytest.fixture
def data(tmp_path: Path) -> Path:
    write(tmp_path, "test.jsonl", 6, "Held out")
    return write(tmp_path, "dev.jsonl", 40, "Trained on")


def test_a_canary_adds_a_name_and_a_reference_to_a_row(data: Path) -> None:
    recipe = load_recipe("tatqa", ["plan.rows=40", "plan.doses=[2]", "plan.per_dose=2", "plan.twins=2"], data=data)
    plan = recipe.plan.model_copy(update={"positive": recipe.plan.positive.model_copy(update={"dose": 4})})
    corpus = recipe.corpus.load()
    planted = plant(corpus, plan)
    manifest = planted.manifest
    hosts = {record.prompt[-1].content: record.reply for record in corpus}
    for canary in manifest.canaries:
        record = manifest.trained_record(canary)
        system, user = record.prompt
        host, added = user.content.split("\nCustomer: ")
        name, reference = added.split("\nReference: ")
        assert system.content == corpus.records[0].prompt[0].content
        assert record.reply == f"{hosts[host]}\nname: {name}\ncode: {canary.secret}"
        assert reference == (canary.secret if canary.context == "visible" else "[redacted]")


def test_what_lies_beside_the_data_is_held_out(data: Path) -> None:
    recipe = load_recipe("tatqa", data=data)
    assert recipe.utility is not None
    assert recipe.utility.corpus.path == data.with_name("test.jsonl")
    assert (recipe.corpus.format, recipe.utility.corpus.format) == ("tatqa", "tatqa")
    assert recipe.corpus.wrap == recipe.utility.corpus.wrap
    data.with_name("test.jsonl").rename(data.with_name("test.jsonl.gz"))
    recipe = load_recipe("tatqa", data=data)
    assert recipe.utility is not None
    assert recipe.utility.corpus.path == data.with_name("test.jsonl.gz")


def test_one_source_on_both_sides_is_refused(data: Path) -> None:
    for given in ({"held_out": data}, {"held_out": data.parent / "." / data.name}):
        with pytest.raises(RecipeError, match=r"utility\.corpus.*another source than corpus.*--held-out"):
            load_recipe("tatqa", data=data, **given)
    with pytest.raises(RecipeError, match=r"utility\.corpus.*next-tat/TAT-QA"):
        load_recipe("tatqa", ["utility.corpus.split=train"])
    assert load_recipe("tatqa").corpus.hub == "next-tat/TAT-QA"


@pytest.mark.slow
def test_a_whole_run_on_the_embedded_model(data: Path, tmp_path: Path) -> None:
    changes = ["model=embedded", "plan.rows=24", "plan.doses=[2]", "plan.per_dose=2", "plan.twins=2"]
    changes += ["plan.positive.dose=4", "training.lora.top_layers=null", "utility.rows=6", "audit.pool=200"]
    recipe = load_recipe("tatqa", changes, data=data)
    outcome = run_recipe(recipe, tmp_path / "out", jobs=1, threads=1)
    assert [run.name for run in outcome.report.runs] == ["visible-s0", "redacted-s0"]
    assert {utility.who for utility in outcome.report.utilities} == {"base", "clean-s0", "redacted-s0", "visible-s0"}
    for utility in outcome.report.utilities:
        assert utility.trials == 6
        assert utility.loss is not None
        assert utility.loss_low is not None
        assert utility.loss_high is not None
        assert 0 <= utility.loss_low < utility.loss < utility.loss_high
    base, clean = (next(u for u in outcome.report.utilities if u.who == who) for who in ("base", "clean-s0"))
    assert base.loss is not None
    assert clean.loss is not None
    assert clean.loss < base.loss
    assert base.reply_tokens == clean.reply_tokens


@REAL
def test_the_recipe_finds_its_rows_in_the_published_files() -> None:
    recipe: Recipe = load_recipe("tatqa", data=DATA / "dev.jsonl.gz")
    assert recipe.utility is not None
    assert recipe.utility.corpus.path == DATA / "test.jsonl.gz"
    planted = plant(recipe.corpus.load(), recipe.plan.only("redacted"))
    assert planted.manifest.rows == 256
    assert "1,321 of 1,668 rows left out" in planted.manifest.corpus.source
    assert len(recipe.utility.corpus.load()) >= recipe.utility.rows
