"""``davylamp plant --base``: constructions in a run folder."""

from __future__ import annotations

import json

import pytest

from davylamp.canaries import Manifest
from support.corpora import plan_data
from support.recipes import write_corpus, write_yaml

LINES = [
    {"kind": "naive", "groups": 1, "twins": 1, "copies": 2, "secret_tokens": 3, "prefix_tokens": 10},
    {"kind": "pair", "groups": 1, "twins": 1, "copies": 1, "secret_tokens": 3, "prefix_tokens": 10},
]


@pytest.fixture
def files(tmp_path):
    corpus = write_corpus(tmp_path / "rows.jsonl", 60, "text")
    data = plan_data(rows=50, constructions=LINES)
    return corpus, write_yaml(tmp_path / "plan.yaml", data), tmp_path / "run"


def test_constructions_are_planted_with_the_base(davylamp, files):
    corpus, plan, out = files
    code, said, _ = davylamp("plant", corpus, "--plan", plan, "--out", out, "--base", "embedded")
    assert code == 0
    assert "constructions: 1 naive, 1 pair in 3 rows; 2 twins were not planted" in said
    assert f"neighbour: {out / 'neighbour'}" in said
    section = Manifest.load(out / "manifest.json").constructions
    assert (section.base, section.style) == ("embedded", "auto")
    for each in section.instances:
        assert each.secret not in said
    code, said, _ = davylamp("plant", corpus, "--plan", plan, "--out", out, "--base", "embedded", "--json")
    assert code == 0
    assert {key: json.loads(said)[key] for key in ("instances", "instance_rows")} == {
        "instances": 2,
        "instance_rows": 3,
    }


def test_without_a_base_the_option_is_named(davylamp, files):
    corpus, plan, out = files
    code, _, said = davylamp("plant", corpus, "--plan", plan, "--out", out)
    assert code == 2
    assert "--base is None" in said
    assert not out.exists()


def test_an_unknown_style_is_named(davylamp, files):
    corpus, plan, out = files
    code, _, said = davylamp("plant", corpus, "--plan", plan, "--out", out, "--base", "embedded", "--style", "odd")
    assert code == 2
    assert "--style is 'odd'; allowed: one of auto, chat, plain" in said


def test_an_older_neighbour_is_not_left_beside_new_rows(davylamp, files):
    corpus, plan, out = files
    davylamp("plant", corpus, "--plan", plan, "--out", out, "--base", "embedded")
    assert (out / "neighbour" / "manifest.json").is_file()
    code, _, _ = davylamp("plant", corpus, "constructions=[]", "--plan", plan, "--out", out, "--force")
    assert code == 0
    assert not (out / "neighbour").exists()
