from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
import torch

from davylamp.canaries import Plan
from davylamp.corpora.readers import read_corpus
from davylamp.measures.shadow_results import ShadowScores
from davylamp.runs.folder import RunFolder, locked
from davylamp.studies.steps import plant_step
from davylamp.training.shadow_store import Signals
from support.recipes import tiny_plan, write_corpus
from support.tiny_models import build_tiny

SETTINGS = ("batch_size=8", "learning_rate=0.003", "precision=float32")


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    """A planted run folder beside the corpus and the model."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("shadows")
    corpus = read_corpus(write_corpus(folder / "data.jsonl", 48))
    plant_step(RunFolder(folder / "run"), corpus, Plan.model_validate(tiny_plan(twins=4, per_dose=3, seed=1)))
    build_tiny(folder / "model")
    return folder


@pytest.fixture
def run(planted, tmp_path):
    shutil.copytree(planted / "run", tmp_path / "run")
    return tmp_path / "run"


@pytest.fixture
def quick(monkeypatch):
    """Signals in place of training: a record that is in is a little better known."""
    from davylamp.studies import shadowing

    def draw(work, task):
        rng = np.random.default_rng(task.index)
        members = dict(zip([example.ids for example in work.records], task.members, strict=True))
        names = {each.name for each in work.scored}
        inside = dict(zip(sorted(names), members.values(), strict=True))
        logs = tuple(
            -rng.random(length) * (0.5 if inside[each.name] else 1.0)
            for each, length in zip(work.scored, work.lengths, strict=True)
        )
        return Signals(logs, np.zeros(1)).to_bytes({"key": task.key})

    def draw_all(work, tasks):
        return [draw(work, task) for task in tasks]

    monkeypatch.setattr(shadowing, "train_shadows", draw_all)


def assert_refused(answer, *said):
    code, out, err = answer
    assert code == 2, err
    assert out == ""
    assert "Traceback" not in err
    message = " ".join(err.split())
    for each in said:
        assert each in message


def test_for_people_it_says_what_was_done_and_what_came_out(davylamp, planted, run, quick):
    where = ("--model", planted / "model", *SETTINGS, "--jobs", 1, "--threads", 1)
    code, out, err = davylamp("shadows", run, "--shadows", 8, *where)
    assert code == 0, err
    assert "trained 8 shadows; each of 20 records is in half of them" in out
    assert "redacted, dose 2, 5 records, secret hidden in the prompt: AUC over all shadows LiRA" in out
    assert "noise floor" in out
    code, out, _ = davylamp("shadows", run, "--shadows", 10, *where)
    assert "trained 2 shadows, 8 were there" in out


def test_json_is_one_object_with_the_figures(davylamp, planted, run, quick):
    code, out, err = davylamp(
        "shadows", run, "--shadows", 8, "--model", planted / "model", *SETTINGS, "--jobs", 1, "--json"
    )
    assert code == 0, err
    said = json.loads(out)
    assert out.count("\n") == 1
    assert (said["trained"], said["shadows"], said["records"], said["audited"]) == (8, 8, 20, None)
    scores = ShadowScores.load(run / "shadow_scores.json")
    assert said["cells"] == json.loads(scores.model_dump_json())["cells"]
    for each in said["auc"]:
        assert 0 <= each["auc"] <= 1
    assert {each["measure"] for each in said["auc"]} >= {"lira_online", "lira_offline", "rmia"}


def test_a_real_shadow_run_from_the_command_line(davylamp, planted, run):
    where = (*SETTINGS, "--threads", 1)
    code, _, err = davylamp("train", run, "--model", planted / "model", *where)
    assert code == 0, err
    options = ("--shadows", 4, "--corpus", planted / "data.jsonl", "--jobs", 1, "--threads", 1, "--twin-dose", 1)
    code, out, err = davylamp("shadows", run, *options)
    assert code == 0, err
    scores = ShadowScores.load(run / "shadow_scores.json")
    assert scores.background == "corpus"
    assert scores.audited == str(run / "model")
    assert "note: no shadow was attacked in turn" in out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--shadows", 7), ("shadows is 7", "multiple of 2")),
        (("--shadows", 2), ("shadows is 2", "4")),
        (("--twin-dose", -1), ("twin_dose",)),
        (("--address", "auto"), ("--address", "--executor ray")),
        (("--prompt", "ask"), ("--corpus", "columns")),
        (("--corpus", "none.jsonl"), ("none.jsonl",)),
        ((), ("--model BASE",)),
        (("--model", "./none"), ("./none",)),
        (("--truncation", 0, "--model", "{model}"), ("truncation",)),
        (("lr=1", "--model", "{model}"), ("training.lr",)),
    ],
)
def test_what_does_not_fit_is_refused_in_one_message(davylamp, planted, run, arguments, said):
    given = [str(each).format(model=planted / "model") for each in arguments]
    assert_refused(davylamp("shadows", run, *given), *said)
    assert not (run / "shadow_scores.json").exists()
    assert not (run / "shadows").exists()


def test_a_misspelt_folder_is_not_made(davylamp, tmp_path):
    assert_refused(davylamp("shadows", tmp_path / "typo"), "davylamp plant")
    assert not (tmp_path / "typo").exists()


def test_a_run_that_another_process_holds_is_refused(davylamp, planted, run):
    with locked(run):
        assert_refused(davylamp("shadows", run, "--model", planted / "model"), "in use")
