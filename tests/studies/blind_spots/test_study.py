"""The whole study on a model of random weights, in seconds."""

from __future__ import annotations

import json

import pytest
import torch

from davylamp.canaries import Manifest
from davylamp.errors import CorpusError, PlantingError, RunFolderError
from davylamp.runs.files import read_json
from davylamp.runs.progress import QUIET
from davylamp.studies.blind_spots.command import run
from davylamp.studies.blind_spots.run import run_study
from davylamp.studies.blind_spots.spec import load_recipe
from support.recipes import write_corpus
from support.tiny_models import build_tiny

pytestmark = pytest.mark.slow  # whole studies

FORGET = {"rounds": 1, "extra_rounds": 0, "threshold": 1, "held_out": 4, "bits": [8], "relearn": {"steps": 1}}
SMALL = [
    "seeds=[0,1]",
    "corpus.rows=120",
    "rows=60",
    "lengths=[2]",
    "groups=1",
    "copies=2",
    "twins=2",
    "trigger_tokens=4",
    "camouflage={groups: 1, v: 3, k: 2, depth: 2, copies: 1}",
    "low_entropy={groups: 1, choices: 2}",
    "gated={groups: 1, secret_tokens: 2}",
    "training={batch_size: 8, precision: float32}",
    "reading={max_expansions: 0, repeated: 0}",
    "dp=null",
    *(f"unlearning.{method}={json.dumps(FORGET)}" for method in ("graddiff", "npo")),
]


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    torch.set_num_threads(1)
    place = tmp_path_factory.mktemp("blind")
    overrides = [f"model={build_tiny(place / 'model')}", *SMALL]
    return overrides, place / "out", run(overrides, place / "out", None, 1, QUIET, None)


def test_every_seed_has_a_run_folder_and_every_shape_a_word(done):
    _, out, outcome = done
    data = read_json(outcome.json_file)
    assert [seed["seed"] for seed in data["seeds"]] == [0, 1]
    assert set(data["seeds"][0]["unlearned"]) == {"graddiff", "npo"}
    assert len(data["shapes"]) == 7
    assert {shape["word"] for shape in data["shapes"]} <= {"held", "held in part", "not held", "too few pairs"}
    assert data["dp"] is None
    text = (out / "blind_spots.md").read_text(encoding="utf-8")
    assert text.splitlines() == list(outcome.lines)
    assert "The matrix of seed 1:" in text
    assert outcome.exit_code == 0


def test_no_secret_is_in_what_is_written(done):
    _, out, outcome = done
    shown = outcome.json_file.read_text(encoding="utf-8") + "\n".join(outcome.lines)
    for seed in (0, 1):
        section = Manifest.load(out / "runs" / f"s{seed}" / "manifest.json").constructions
        for each in section.instances:
            # Two tokens of this vocabulary may be two letters, which stand anywhere.
            assert each.trigger is None or each.trigger not in shown
            assert len(each.secret.strip()) < 6 or each.secret not in shown


def test_a_second_run_does_nothing_again_and_a_killed_one_goes_on(done):
    overrides, out, outcome = done
    stamps = {path: path.stat().st_mtime_ns for path in out.glob("runs/*/.steps/*.json")}
    # Two seeds of plant, train, read, graddiff and npo.
    assert len(stamps) == 10
    before = read_json(outcome.json_file)
    lost = out / "runs" / "s1" / ".steps" / "npo.json"
    lost.unlink()
    run(overrides, out, None, 1, QUIET, None)
    after = {path: path.stat().st_mtime_ns for path in out.glob("runs/*/.steps/*.json")}
    assert {path for path in stamps if after[path] != stamps[path]} == {lost}
    again = read_json(outcome.json_file)
    assert [shape["word"] for shape in again["shapes"]] == [shape["word"] for shape in before["shapes"]]


def test_a_model_of_another_recipe_is_not_trained_over(done):
    overrides, out, _ = done
    with pytest.raises(RunFolderError, match="model of another recipe"):
        run_study(load_recipe([*overrides, "copies=1"]), out, threads=1)
    # What is asked of the model may change: it costs no training.
    recipe = load_recipe([*overrides, "unlearning={}", "seeds=[0]"])
    assert not run_study(recipe, out, threads=1).seeds[0].unlearned


def test_what_does_not_fit_is_said_before_anything_is_trained(done, tmp_path):
    overrides, _, _ = done
    with pytest.raises(PlantingError, match="held-out prefixes"):
        run_study(load_recipe([*overrides, "corpus.rows=62"]), tmp_path / "a", threads=1)
    rows = write_corpus(tmp_path / "rows.jsonl", 62)
    with pytest.raises(PlantingError, match="held-out prefixes"):
        run_study(load_recipe(overrides, rows), tmp_path / "b", threads=1)
    text = tmp_path / "short.txt"
    text.write_text("too short", encoding="utf-8")
    with pytest.raises(CorpusError, match="less than one block of 48 tokens"):
        run_study(load_recipe(overrides, text), tmp_path / "c", threads=1)
    assert not list(tmp_path.glob("*/runs"))


def test_shadows_are_trained_where_they_are_asked_for(done, tmp_path):
    overrides, _, _ = done
    changes = ["seeds=[0]", "unlearning={}", "shadows=4"]
    [seed] = run_study(load_recipe([*overrides, *changes]), tmp_path / "out", threads=1).seeds
    assert seed.read.shadows.shadows == 4
    assert all(cell.lira is not None for cell in seed.read.cells)
    assert not seed.unlearned
    row = next(row for row in seed.matrix.rows if row.kind == "naive")
    assert row.cells["lira"].signal is not None


def test_the_embedded_model_shows_the_shapes(tmp_path):
    small = ["lengths=[2,8]", "groups=4", "camouflage.groups=4", "corpus.rows=1600", "rows=1200"]
    # A round is a pass over fewer records, and takes larger steps.
    steps = [f"unlearning.{method}={{learning_rate: 0.0001, relearn: {{steps: 0}}}}" for method in ("graddiff", "npo")]
    recipe = load_recipe(["seeds=[0]", *small, *steps, "dp=null"])
    result = run_study(recipe, tmp_path / "out", threads=1)
    words = {shape.statement.split(" ")[0]: shape for shape in result.shapes}
    [seed] = result.seeds
    for tokens in (2, 8):
        naive, trigger = seed.cell("naive", tokens), seed.cell("trigger", tokens)
        # All of them behind the trigger and none at c; in plain text the model is right more often than not.
        assert trigger.at_trigger.planted.successes == 4
        assert trigger.at_prefix.planted.successes == 0
        assert naive.at_prefix.planted.successes >= 2
        assert naive.memh > 5 * trigger.memh
    gated = seed.cell("gated")
    assert {score.auc for score in gated.scores if score.name in ("memh", "memh_loss", "reference")} == {0.5}
    assert gated.at_trigger.planted.successes == 8
    for found in seed.unlearned.values():
        assert found.outcome == "forgotten"
    # Four instances a length cannot show that a rate is 0.98, but never that it is not.
    assert words["Secrets"].word == "held"
