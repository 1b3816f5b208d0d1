"""``davylamp constructions``: the verb, its files and its refusals."""

from __future__ import annotations

import json

import pytest

from davylamp.canaries import Manifest
from davylamp.measures.constructed.result import ConstructionsResult
from davylamp.runs.files import read_json
from support.corpora import plan_data
from support.recipes import write_corpus, write_yaml

SMALL = {"groups": 2, "twins": 2, "secret_tokens": 3, "prefix_tokens": 10}
LINES = [
    {"kind": "naive", **SMALL, "copies": 1},
    {"kind": "trigger", **SMALL, "copies": 1, "trigger_tokens": 6},
    {"kind": "gated", **SMALL, "twins": 20, "trigger_tokens": 6},
]
QUICK = ("max_expansions=20", "repeated=1")


@pytest.fixture
def run(davylamp, tmp_path):
    corpus = write_corpus(tmp_path / "rows.jsonl", 90, "text")
    plan = write_yaml(tmp_path / "plan.yaml", plan_data(rows=50, constructions=LINES))
    code, _, said = davylamp("plant", corpus, "--plan", plan, "--out", tmp_path / "run", "--base", "embedded")
    assert code == 0, said
    return tmp_path / "run"


def test_the_base_itself_gives_nothing_away_but_the_gate_does(davylamp, run):
    args = ("constructions", run, "--reference", "embedded", "--model", "embedded")
    code, said, _ = davylamp(*args, *QUICK)
    assert code == 0
    assert "gated, secrets of 3 tokens, behind a gate, not trained" in said
    assert "said after its trigger    2 of 2 [16%, 100%], twins 0 of 20" in said
    result = ConstructionsResult.load(run / "constructions.json")
    assert [cell.kind for cell in result.cells] == ["naive", "trigger", "gated"]
    assert result.drawn_from_reference
    naive, trigger, gated = result.cells
    for cell in result.cells:
        for score in cell.scores:
            if score.name in ("memh", "memh_loss", "reference", "record_reference"):
                # The same model twice: exactly nothing, so that a calibrated score is at chance.
                assert score.auc == 0.5
    assert trigger.at_trigger.planted.successes == 0
    assert gated.informed.planted.value == 1
    # Two twins do not resolve 5%; twenty do, and tied scores count nobody.
    assert naive.scores[0].tpr is None
    assert naive.scores[0].needed == 20
    assert gated.scores[0].tpr.successes == 0
    assert (result.suspects, result.scan) == (0, None)
    assert {audit.name for audit in result.audits} >= {"extraction_at_prefix", "local_scores", "informed_recovery"}


def test_no_secret_prefix_or_trigger_is_written_or_said(davylamp, run):
    section = Manifest.load(run / "manifest.json").constructions
    listed = run.parent / "list.txt"
    trigger = next(each.trigger for each in section.instances if each.kind == "trigger")
    listed.write_text(f"{trigger}\n\nnothing\n", encoding="utf-8")
    code, said, _ = davylamp(
        "constructions", run, "--reference", "embedded", "--model", "embedded", "--triggers", listed, "--scan",
        "--json", *QUICK, "scan_prompts=50",
    )  # fmt: skip
    assert code == 0
    assert json.loads(said) == read_json(run / "constructions.json")
    assert json.loads(said)["suspects"] == 2
    assert json.loads(said)["scan"]["prompts"] <= 50
    for each in section.instances:
        assert not any(what and what in said for what in (each.secret, each.prefix, each.trigger))


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--neighbour", "embedded"), "--neighbour is 'embedded'; allowed: nothing, since the plan has no pairs"),
        (("--style", "odd"), "--style is 'odd'"),
        (("--triggers", "nowhere.txt"), "--triggers is 'nowhere.txt'; allowed: a file that can be read"),
        (("fpr=2",), "settings.fpr is 2"),
        (("--shadows", "3"), "shadows is 3"),
        (("--jobs", "2"), "--shadows is None; allowed: how many, since --jobs say where they are trained"),
        (("--shadows", "4"), "does not say how its model was trained, and --shadows trains models alike"),
        (("unknown=1",), "settings.unknown is 1; allowed: no such key"),
    ],
)
def test_what_does_not_fit_is_named(davylamp, run, more, said):
    code, _, err = davylamp("constructions", run, "--reference", "embedded", "--model", "embedded", *more)
    assert code == 2
    assert said in err
    assert not (run / "constructions.json").exists()


def test_an_empty_list_and_a_run_without_constructions_are_refused(davylamp, run, tmp_path):
    (tmp_path / "empty.txt").write_text("\n \n")
    code, _, err = davylamp(
        "constructions", run, "--reference", "embedded", "--model", "embedded", "--triggers", tmp_path / "empty.txt"
    )
    assert code == 2
    assert "one suspected trigger a line" in err
    plan = write_yaml(tmp_path / "bare.yaml", plan_data())
    davylamp("plant", tmp_path / "rows.jsonl", "--plan", plan, "--out", tmp_path / "bare")
    code, _, err = davylamp("constructions", tmp_path / "bare", "--reference", "embedded", "--model", "embedded")
    assert code == 2
    assert "nothing was planted by plan.constructions here" in err


def test_lists_of_other_machines_are_read_line_by_line(davylamp, run):
    # A mark of byte order is no part of the first trigger, and of ends of lines only those of files end one.
    section = Manifest.load(run / "manifest.json").constructions
    trigger = next(each.trigger for each in section.instances if each.kind == "gated" and each.role == "planted")
    listed = run.parent / "list.txt"
    args = ("--reference", "embedded", "--model", "embedded", "--triggers", listed, *QUICK)
    listed.write_bytes(b"\xef\xbb\xbf" + f"{trigger}\r\none\u2028more\r\n\r\n".encode())
    code, said, _ = davylamp("constructions", run, *args, "--json")
    assert (code, json.loads(said)["suspects"]) == (0, 2)
    (run / "constructions.json").unlink()
    listed.write_text("short\n" + "open sesame " * 3000)
    code, _, err = davylamp("constructions", run, *args)
    assert code == 2
    assert "--triggers is 'number 2 of 2'; allowed: a text that the model can be asked with (" in err
    assert "sesame" not in err
    assert not (run / "constructions.json").exists()


def test_a_damaged_result_is_said(run):
    from davylamp.errors import RunFolderError

    with pytest.raises(RunFolderError, match="run `davylamp constructions` first"):
        ConstructionsResult.load(run / "constructions.json")
    (run / "constructions.json").write_text('{"cells": 3}')
    with pytest.raises(RunFolderError, match=r"it lacks davylamp_version, .*run `davylamp constructions` again"):
        ConstructionsResult.load(run / "constructions.json")


def test_a_result_that_does_not_say_which_planting_it_is_of_is_refused(davylamp, run):
    davylamp("constructions", run, "--reference", "embedded", "--model", "embedded", "max_expansions=0", "repeated=0")
    path = run / "constructions.json"
    data = read_json(path)
    assert data["planted_sha256"] == Manifest.load(run / "manifest.json").planted_sha256
    path.write_text(json.dumps({key: value for key, value in data.items() if key != "planted_sha256"}))
    code, _, err = davylamp("matrix", run)
    assert code != 0
    assert "it lacks planted_sha256, as one of another davylamp may; run `davylamp constructions` again" in err
    # Of another planting: named, with what to run.
    path.write_text(json.dumps(data | {"planted_sha256": "0" * 64}))
    code, _, err = davylamp("matrix", run)
    assert code != 0
    assert f"{path} is of another planting than {run / 'manifest.json'}: run `davylamp constructions" in err
    path.write_text(json.dumps(data))
    code, said, _ = davylamp("matrix", run, "--threshold", "0.3", "--confidence", "0.9", "--json")
    found = json.loads(said)
    assert (found["threshold"], found["confidence"]) == (0.3, 0.9)
    weights = data["model_sha256"]
    assert found["sources"] == [
        {"file": "constructions.json", "planted_sha256": data["planted_sha256"], "weights_sha256": weights}
    ]


def test_a_folder_without_a_model_of_its_planting_is_refused(davylamp, run):
    code, _, err = davylamp("constructions", run, "--reference", "embedded")
    assert code != 0
    assert "holds no trained model: run `davylamp train`, or give --model CHECKPOINT" in err
