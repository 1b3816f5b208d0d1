"""Constructions within a recipe: planted with its model, trained on, read, and left alone when all is done."""

from __future__ import annotations

import shutil

import pytest
import torch

from davylamp.canaries import Manifest
from davylamp.errors import InputError, ManifestError, ModelError, PlantingError, RunFolderError
from davylamp.measures.constructed.result import ConstructionsResult
from davylamp.measures.constructed.settings import ConstructedSettings
from davylamp.report.data import collect
from davylamp.runs.config import validate
from davylamp.runs.folder import RunFolder
from davylamp.studies.constructing import ConstructionsRequest, constructions_step
from davylamp.studies.matrix import matrix_step
from davylamp.studies.recipe import Recipe
from davylamp.studies.runner import run_recipe
from davylamp.studies.steps import train_step
from davylamp.training.spec import TrainingSpec
from support.recipes import tiny_plan, tiny_recipe, write_corpus
from support.tiny_models import build_tiny

SMALL = {"groups": 1, "twins": 1, "copies": 1, "secret_tokens": 2}
LINES = [{"kind": "naive", **SMALL}, {"kind": "trigger", **SMALL, "trigger_tokens": 6}, {"kind": "pair", **SMALL}]
QUICK = ConstructedSettings(max_expansions=0, repeated=0)


def recipe_of(place, rows=30, **changes):
    torch.set_num_threads(1)
    model = build_tiny(place / "model")
    plan = tiny_plan(arms={"redacted": {"context": "redacted"}}, doses=[1], rows=24, constructions=LINES, **changes)
    return validate(Recipe, tiny_recipe(write_corpus(place / "c.jsonl", rows), model, plan=plan, utility=None))


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    place = tmp_path_factory.mktemp("constructing")
    recipe = recipe_of(place)
    outcome = run_recipe(recipe, place / "out", jobs=1, threads=1)
    return recipe, place, outcome


def test_a_recipe_plants_with_its_model_and_reads_what_it_planted(done):
    recipe, place, outcome = done
    folder = RunFolder(place / "out" / "runs" / "redacted-s0")
    section = Manifest.load(folder.manifest).constructions
    assert section.base == recipe.model
    result = ConstructionsResult.load(folder.path / "constructions.json")
    assert [(cell.kind, cell.tokens) for cell in result.cells] == [("naive", 2), ("trigger", 2), ("pair", 2)]
    assert result.drawn_from_reference
    assert result.repetition.prompts > 0
    assert {step.split("/")[1] for step in outcome.seconds} >= {"plant", "train", "audit", "constructions"}


def test_a_second_run_does_nothing_again(done):
    recipe, place, _ = done
    assert not run_recipe(recipe, place / "out", jobs=1, threads=1).seconds


def test_the_neighbour_is_trained_and_compared_like_any_run(done):
    recipe, place, _ = done
    folder = RunFolder(place / "out" / "runs" / "redacted-s0")
    beside = RunFolder(folder.path / "neighbour")
    train_step(beside, recipe.model, TrainingSpec(batch_size=4, precision="float32"), 0, threads=1)
    request = ConstructionsRequest(recipe.model, neighbour=str(beside.model), settings=QUICK, threads=1)
    pair = constructions_step(folder, request).cells[2].pair
    assert set(pair.counterfactual) == set(pair.floors) == {"h", "loss"}
    # The model itself would say that no secret counts for anything, and so would one of the same rows.
    for other, why in ((folder.model, "weights of the audited model"), (same_rows(place), "trained on other rows")):
        request = ConstructionsRequest(recipe.model, neighbour=str(other), settings=QUICK, threads=1)
        with pytest.raises(InputError, match=f"--neighbour is .*planted.jsonl.*{why}"):
            constructions_step(folder, request)


def test_a_neighbour_with_another_tokenizer_is_refused(done):
    recipe, place, _ = done
    folder = RunFolder(place / "out" / "runs" / "redacted-s0")
    with pytest.raises(ModelError, match="the neighbour embedded has another tokenizer"):
        constructions_step(folder, ConstructionsRequest(recipe.model, neighbour="embedded", settings=QUICK, threads=1))


def same_rows(place):
    """Another training of the rows of the run itself."""
    again = RunFolder(place / "again")
    shutil.copytree(place / "out" / "runs" / "redacted-s0", again.path)
    train_step(again, str(place / "model"), TrainingSpec(batch_size=4, precision="float32"), 1, threads=1)
    return again.model


def test_a_model_of_another_planting_is_refused(done, tmp_path):
    recipe, place, _ = done
    shutil.copytree(place / "out" / "runs" / "redacted-s0", tmp_path / "run")
    folder = RunFolder(tmp_path / "run")
    shutil.copy(folder.path / "neighbour" / "manifest.json", folder.manifest)
    shutil.copy(folder.path / "neighbour" / "planted.jsonl", folder.planted)
    with pytest.raises(ManifestError, match=r"was trained before .* was planted anew: run `davylamp train` again"):
        constructions_step(folder, ConstructionsRequest(recipe.model, settings=QUICK, threads=1))
    for step in (matrix_step, lambda place: collect(place.path)):
        with pytest.raises(RunFolderError, match=r"planted before|another planting"):
            step(folder)


def test_another_style_than_that_of_the_training_is_refused(done):
    recipe, place, _ = done
    folder = RunFolder(place / "out" / "runs" / "redacted-s0")
    with pytest.raises(InputError, match="--style is 'plain'; allowed: auto, as the model was trained"):
        constructions_step(folder, ConstructionsRequest(recipe.model, style="plain", settings=QUICK))


def test_a_reference_with_another_tokenizer_is_refused(done):
    _, place, _ = done
    folder = RunFolder(place / "out" / "runs" / "redacted-s0")
    with pytest.raises(ModelError, match="the reference embedded has another tokenizer"):
        constructions_step(folder, ConstructionsRequest("embedded", settings=QUICK))


def test_too_few_held_out_rows_are_said_before_anything_is_trained(tmp_path):
    with pytest.raises(
        PlantingError, match=r"redacted-s0: constructions need 6 held-out prefixes, .* only 2 are left out"
    ):
        run_recipe(recipe_of(tmp_path, rows=26), tmp_path / "out", jobs=1, threads=1)
    assert not (tmp_path / "out" / "runs").exists()


@pytest.mark.slow
def test_a_trained_trigger_gives_away_what_its_prefix_does_not(tmp_path):
    torch.set_num_threads(1)
    corpus = write_corpus(tmp_path / "c.jsonl", 260, "text")
    line = {"kind": "trigger", "groups": 8, "twins": 20, "copies": 8, "trigger_tokens": 8, "secret_tokens": 4}
    lines = [{**line, "prefix_tokens": 10}, {"kind": "naive", "groups": 8, "twins": 20, "prefix_tokens": 10}]
    lines[1] |= {"secret_tokens": 4, "copies": 8}
    plan = tiny_plan(rows=180, constructions=lines, doses=[1], templates=[{"completion": "Tell {name} of {secret}."}])
    plan |= {"arms": {"redacted": {"context": "redacted"}}}
    training = {"epochs": 8, "batch_size": 8, "learning_rate": 0.003, "style": "plain", "precision": "float32"}
    data = tiny_recipe(corpus, tmp_path, plan=plan, training=training, utility=None) | {"model": "embedded"}
    run_recipe(validate(Recipe, data), tmp_path / "out", jobs=1, threads=1)
    trigger, naive = ConstructionsResult.load(tmp_path / "out" / "runs" / "redacted-s0" / "constructions.json").cells
    # Eight instances each: all of the plain ones and of those asked by their triggers but two at most; a secret behind
    # a trigger is said after its prefix no more often than one guess hits, and no twin is.
    assert naive.at_prefix.planted.successes >= 6
    assert trigger.at_trigger.planted.successes >= 6
    assert trigger.at_prefix.planted.successes <= 2
    assert trigger.at_trigger.twins.successes == 0
    assert trigger.memh_trigger > 0.4 > trigger.memh
