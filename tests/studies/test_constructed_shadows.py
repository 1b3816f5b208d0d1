"""Shadows of constructions: trained, kept, resumed, and read into constructions.json and the matrix."""

from __future__ import annotations

import dataclasses
import json
import shutil

import numpy as np
import pytest
import torch

from davylamp.canaries import Manifest, Plan
from davylamp.corpora.readers import read_corpus
from davylamp.errors import ManifestError, PlantingError, PreflightError, RecipeError, RunFolderError
from davylamp.measures.constructed.result import ConstructionsResult
from davylamp.measures.constructed.settings import ConstructedSettings
from davylamp.protect.corpus.result import PROTECTION
from davylamp.release.loader import load_model, load_tokenizer
from davylamp.release.local import LocalRelease
from davylamp.release.sources import resolve
from davylamp.runs.config import validate
from davylamp.runs.folder import RunFolder
from davylamp.studies import shadowing
from davylamp.studies.constructed_shadows import prepare_instances
from davylamp.studies.constructing import ConstructionsRequest, constructions_step, maker_of
from davylamp.studies.matrix import matrix_step
from davylamp.studies.recipe import Recipe
from davylamp.studies.runner import run_recipe
from davylamp.studies.shadow_request import ShadowRequest
from davylamp.studies.steps import plant_step, train_step
from davylamp.training.shadow_runs import ShadowTask
from davylamp.training.shadow_store import ShadowStore
from davylamp.training.shadows import ShadowSpec
from davylamp.training.spec import TrainingSpec
from support.recipes import tiny_plan, tiny_recipe, write_corpus
from support.tiny_models import build_tiny

pytestmark = pytest.mark.slow  # whole studies

SIZE = {"groups": 5, "twins": 5, "secret_tokens": 2}
LINES = [
    {"kind": "naive", **SIZE, "copies": 8},
    {"kind": "pair", **SIZE, "groups": 1, "twins": 2, "copies": 2},
    {"kind": "gated", **SIZE},
]
SPEC = {"batch_size": 8, "learning_rate": 0.01, "precision": "float32"}
SHADOWS = ShadowRequest(spec=ShadowSpec(shadows=6), jobs=1, threads=1)
QUICK = ConstructedSettings(max_expansions=0, repeated=0)


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def planted_in(place, lines, rows=130, spare=30):
    model = str(build_tiny(place / "model"))
    plan = tiny_plan(arms={"redacted": {"context": "redacted"}}, doses=[1], rows=rows, constructions=lines)
    folder = RunFolder(place / "run")
    corpus = read_corpus(write_corpus(place / "data.jsonl", rows + spare))
    plant_step(folder, corpus, Plan.model_validate(plan), maker_of(model, threads=1))
    train_step(folder, model, TrainingSpec.model_validate(SPEC), 0, threads=1)
    return folder, model


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    folder, model = planted_in(tmp_path_factory.mktemp("constructed"), LINES)
    request = ConstructionsRequest(model, shadows=SHADOWS, settings=QUICK, threads=1)
    return folder, request, constructions_step(folder, request)


def never(work, tasks):
    raise AssertionError(f"{len(tasks)} shadows were trained, of {len(work.records)} records")


@pytest.fixture
def copy(done, tmp_path):
    shutil.copytree(done[0].path, tmp_path / "run")
    return RunFolder(tmp_path / "run")


def test_the_plain_construction_is_found_and_the_gated_one_is_at_chance_exactly(done):
    folder, _, result = done
    naive, pair, gated = result.cells
    # Five planted eight times and five twins: all in order but by a chance of 1 in 252.
    assert naive.lira.auc == 1.0
    assert gated.lira.auc == 0.5
    assert (len(pair.lira.planted), len(pair.lira.twins)) == (1, 2)
    assert result.shadows.shadows == 6
    assert "lira" in {audit.name for audit in result.audits}
    for each in naive.counterfactual:
        assert each.mean > 3 * each.floor
    assert [each.mean for each in gated.counterfactual] == [0.0, 0.0]
    rows = {row.kind: row.cells["lira"] for row in matrix_step(folder).rows}
    assert (rows["naive"].signal, rows["naive"].word) == (1.0, "leak")
    # No baseline was searched, so that nothing counts as recovered and nobody as blind.
    assert (rows["gated"].signal, rows["gated"].word) == (0.0, "not seen")


def test_a_gate_says_of_its_prefixes_what_the_frozen_base_says_to_the_last_bit(done):
    for each in done[2].cells[2].instances:
        assert each.log_probability == each.base_log_probability


def test_again_nothing_is_trained_and_the_result_is_the_same(done, copy, monkeypatch):
    monkeypatch.setattr(shadowing, "train_shadows", never)
    again = constructions_step(copy, done[1])
    assert again.cells == done[2].cells
    assert again.shadows == done[2].shadows
    # Without shadows the column is empty, and says why.
    result = constructions_step(copy, dataclasses.replace(done[1], shadows=None))
    assert all(cell.lira is None and not cell.counterfactual for cell in result.cells)
    assert result.cells[0].scores == done[2].cells[0].scores
    assert "--shadows N" in matrix_step(copy).rows[0].cells["lira"].detail


def test_a_run_that_was_killed_trains_only_what_is_missing(done, copy, monkeypatch):
    files = {path.name: path.read_bytes() for path in (copy.path / "shadows").glob("*.npz")}
    gone = [f"{key[:32]}.npz" for key in done[2].shadows.keys[1:3]]
    (copy.path / "shadows" / gone[0]).unlink()
    (copy.path / "shadows" / gone[1]).write_bytes(files[gone[1]][:100])
    train, seen = shadowing.train_shadows, []

    def counted(work, tasks):
        seen.extend(task.index for task in tasks)
        return train(work, tasks)

    monkeypatch.setattr(shadowing, "train_shadows", counted)
    assert constructions_step(copy, done[1]).cells == done[2].cells
    assert seen == [1, 2]
    assert {path.name: path.read_bytes() for path in (copy.path / "shadows").glob("*.npz")} == files


def test_the_shadow_that_holds_what_the_model_was_trained_on_is_the_model(tmp_path):
    # Pairs aside: a pair that is out says its other secret, also a twin, which the planted file does not hold.
    folder, _ = planted_in(tmp_path, [LINES[0]], rows=100)
    manifest = Manifest.load(folder.manifest)
    source = resolve(str(folder.model))
    tokenizer = load_tokenizer(source)
    release = LocalRelease(load_model(source, "float32", tokenizer=tokenizer), tokenizer, "model")
    request = dataclasses.replace(SHADOWS, together=0)
    prepared = prepare_instances(folder, manifest, release, source.weights_sha256(), request)
    members = tuple(bool(prepared.drawn.instances[piece.owner].positions) for piece in prepared.drawn.pieces)
    store = ShadowStore(tmp_path / "again")
    store.save("k", shadowing.train_shadows(prepared.work, [ShadowTask(0, members, 0, "k")])[0])
    found = store.load("k", prepared.work.lengths)
    np.testing.assert_array_equal(found.losses, json.loads(folder.training.read_text("utf-8"))["losses"])


def test_a_model_that_was_trained_on_none_of_it_is_told_from_the_one_that_was(done, copy):
    result = constructions_step(copy, dataclasses.replace(done[1], model=done[1].reference))
    assert "is another model" in result.shadows.notes[0]
    naive = result.cells[0]
    # To the base planted ones and twins are drawn alike: all of the five above all of the twins, or below, is a chance
    # of 2 in 252; and it knows none as the model does that was trained on it.
    assert 0 < naive.lira.auc < 1
    assert all(own < trained for own, trained in zip(naive.lira.planted, done[2].cells[0].lira.planted, strict=True))


def test_what_does_not_fit_is_refused_before_anything_is_trained(done, copy, monkeypatch):
    monkeypatch.setattr(shadowing, "train_shadows", never)
    for count in (3, 2, 0):
        with pytest.raises(RecipeError, match="shadows"):
            validate(ShadowSpec, {"shadows": count})
    text = copy.training.read_text("utf-8")
    named = dataclasses.replace(done[1], model=str(copy.model))
    copy.training.write_text(text.replace('"planted_sha256": "', '"planted_sha256": "0'), "utf-8")
    with pytest.raises(ManifestError, match="planted anew"):
        constructions_step(copy, named)
    data = json.loads(text)
    data["spec"]["max_length"] = 14
    copy.training.write_text(json.dumps(data), "utf-8")
    with pytest.raises(PreflightError, match="would receive no loss"):
        constructions_step(copy, named)
    (copy.path / PROTECTION).write_text("{}", "utf-8")
    with pytest.raises(RunFolderError, match="takes the rows as they were planted"):
        constructions_step(copy, named)
    (copy.path / PROTECTION).unlink()
    copy.training.unlink()
    with pytest.raises(RunFolderError, match="does not say how its model was trained"):
        constructions_step(copy, named)


def test_a_recipe_says_how_many_and_is_refused_where_twins_do_not_fit(tmp_path):
    model = build_tiny(tmp_path / "model")
    lines = [{"kind": "naive", "groups": 1, "twins": 2, "copies": 2, "secret_tokens": 2}]
    plan = tiny_plan(arms={"redacted": {"context": "redacted"}}, doses=[1], rows=24, constructions=lines)
    data = tiny_recipe(write_corpus(tmp_path / "c.jsonl", 30), model, plan=plan, utility=None)
    data["constructions"] = {"shadows": 4}
    run_recipe(validate(Recipe, data), tmp_path / "out", jobs=1, threads=1)
    result = ConstructionsResult.load(tmp_path / "out" / "runs" / "redacted-s0" / "constructions.json")
    assert result.shadows.shadows == 4
    assert result.shadows.background == "corpus"
    assert not run_recipe(validate(Recipe, data), tmp_path / "out", jobs=1, threads=1).seconds
    crowded = {**data, "plan": {**plan, "constructions": [{**lines[0], "twins": 5, "copies": 4}]}}
    with pytest.raises(PlantingError, match=r"take in shadows is 20; allowed: at most 13, .*5 twins x 4 rows"):
        run_recipe(validate(Recipe, crowded), tmp_path / "other", jobs=1, threads=1)
    with pytest.raises(RecipeError, match=r"the plan has none"):
        validate(Recipe, {**data, "plan": {**plan, "constructions": []}})
    with pytest.raises(RecipeError, match=r"constructions\.shadows"):
        validate(Recipe, {**data, "constructions": {"shadows": 5}})
