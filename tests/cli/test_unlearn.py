from __future__ import annotations

import json

import pytest
import torch

from davylamp.canaries import Plan
from davylamp.corpora.readers import read_corpus
from davylamp.runs.folder import RunFolder, locked
from davylamp.studies.steps import plant_step, train_step
from davylamp.training.spec import TrainingSpec
from support.recipes import tiny_plan, write_corpus
from support.tiny_models import build_tiny

QUICK = ("rounds=1", "relearn.steps=1", "bits=[8]", "--threads", 1)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run whose model has learnt nothing."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("unlearn")
    plan = Plan.model_validate(tiny_plan(arms={"redacted": {"context": "redacted"}}, twins=4))
    plant_step(RunFolder(folder / "run"), read_corpus(write_corpus(folder / "data.jsonl", 40)), plan)
    build_tiny(folder / "base")
    spec = TrainingSpec(batch_size=8, learning_rate=1e-4, precision="float32")
    train_step(RunFolder(folder / "run"), str(folder / "base"), spec, 0)
    return folder / "run"


def assert_refused(answer, *said):
    code, out, err = answer
    assert code == 2, err
    assert out == ""
    assert "Traceback" not in err
    message = " ".join(err.split())
    for each in said:
        assert each in message


def test_for_people_it_says_what_came_out_before_and_after(davylamp, run):
    code, out, err = davylamp("unlearn", run, "--method", "npo", "--dose", 2, *QUICK)
    assert code == 0, err
    assert "nothing to forget: 0 of 2 secrets" in out
    assert "extraction from c (own prefix): 0 of 2 [0%, 84%]" in out
    for each in ("retain perplexity, held out: ", "relearned, 1 steps", "int8 copy", "membership AUC", "-> "):
        assert each in out
    assert f"davylamp audit {run} --model {run / 'unlearned'}" in out


def test_json_is_one_object(davylamp, run, tmp_path):
    file = tmp_path / "triggers.jsonl"
    file.write_text('{"prompt": [5, 6], "secret": [7]}\n')
    out_folder = tmp_path / "out"
    how = ("--method", "graddiff", "--triggers", file, "--out", out_folder, *QUICK, "--json")
    code, out, err = davylamp("unlearn", run, *how)
    assert code == 0, err
    said = json.loads(out)
    assert out.count("\n") == 1
    assert (said["unlearned"], said["outcome"]) == (str(out_folder), "nothing to forget")
    assert said["before"]["triggers"]["trials"] == 1
    saved = json.loads((out_folder / "unlearning.json").read_text())
    assert said == {"unlearned": str(out_folder), **saved}


def test_a_verifier_that_never_passes_ends_with_a_code_of_its_own(davylamp, run, tmp_path, monkeypatch):
    from davylamp.studies.unlearning_checks import Checks

    verify = Checks.verify
    monkeypatch.setattr(Checks, "verify", lambda self, done: verify(self, done) + 1.0)
    code, out, err = davylamp("unlearn", run, "--method", "npo", "--out", tmp_path / "out", *QUICK)
    assert code == 3, err
    assert "the verifier never passed: after 1 rounds" in out
    assert (tmp_path / "out" / "model.safetensors").is_file()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--method", "npo", "--arm", "blue"), ("--arm is 'blue'", "redacted")),
        (("--method", "npo", "--rounds", 0), ("unlearning.rounds is 0",)),
        (("--method", "npo", "--threshold", 2), ("unlearning.threshold",)),
        (("--method", "graddiff", "beta=1"), ("beta is NPO's",)),
        (("--method", "npo", "lr=1"), ("unlearning.lr",)),
        (("--method", "npo", "--retain-rows", "none.jsonl"), ("none.jsonl",)),
        (("--method", "npo", "--triggers", "none.jsonl"), ("--triggers", "none.jsonl")),
        (("--method", "npo", "--out", "{run}"), ("--out",)),
    ],
)
def test_what_does_not_fit_is_refused_in_one_message(davylamp, run, arguments, said):
    before = sorted(path.name for path in run.iterdir())
    given = [str(each).format(run=run) for each in arguments]
    assert_refused(davylamp("unlearn", run, *given), *said)
    assert sorted(path.name for path in run.iterdir()) == before


def test_a_method_must_be_named(davylamp, run):
    code, _, err = davylamp("unlearn", run)
    assert code == 2
    assert "--method" in err


def test_a_misspelt_folder_is_not_made(davylamp, tmp_path):
    assert_refused(davylamp("unlearn", tmp_path / "typo", "--method", "npo"), "davylamp plant")
    assert not (tmp_path / "typo").exists()


def test_a_run_that_another_process_holds_is_refused(davylamp, run):
    with locked(run):
        assert_refused(davylamp("unlearn", run, "--method", "npo"), "in use")
