"""What a recipe would do is said before anything is trained or sent."""

from __future__ import annotations

import json

import pytest

from davylamp.canaries.plant import background
from davylamp.errors import PlantingError
from davylamp.studies.dry_run import dry_run
from davylamp.studies.recipe import build_recipe
from davylamp.studies.runner import run_recipe
from support.clinical_rows import clinical_records
from support.recipes import tiny_plan, tiny_recipe, write_corpus, write_yaml

SERVER = "http://127.0.0.1:9/v1"
"""Where nothing listens: whatever asked it would fail."""


@pytest.fixture
def data(tmp_path):
    return tiny_recipe(write_corpus(tmp_path / "c.jsonl", 24), tmp_path / "no model")


def with_servers(data):
    summary = {"name": "summary", "model": "large", "server": "https://api.example.com/v1", "exemplars": "clinical"}
    return data | {
        "seeds": [0, 1],
        "variants": {
            "plain": {},
            "rewritten": {"protect": ["surrogate", {"name": "rewrite", "model": "tiny", "server": SERVER}]},
            "summed": {"protect": [{**summary, "attempts": 3, "key_env": "MY_KEY"}]},
            "here": {"protect": [{"name": "rewrite", "model": "smollm2"}]},
        },
    }


def test_what_goes_where_is_said_for_all_runs_together(tmp_path, data, monkeypatch):
    monkeypatch.setenv("MY_KEY", "sk-very-secret")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    found = dry_run(build_recipe(with_servers(data)), tmp_path / "out")
    # 4 variants, 2 arms, 2 seeds, and the base.
    assert len(found.runs) == 17
    assert {run.run: (run.steps, run.protect) for run in found.runs}["rewritten-visible-s1"] == (
        ("plant", "protect", "train", "audit"),
        ("surrogate", "rewrite"),
    )
    rewrite, summary = found.sends
    # 24 rows a run, in 4 runs; a summary takes two requests, and each of three attempts as many.
    assert (rewrite.host, rewrite.encrypted, rewrite.runs, rewrite.records, rewrite.requests) == (
        ("127.0.0.1:9", False, 4, 96, 96)
    )
    assert (rewrite.key_env, rewrite.key) == ("OPENAI_API_KEY", "not set")
    assert (summary.host, summary.encrypted, summary.records, summary.requests) == ("api.example.com", True, 96, 576)
    assert (summary.key_env, summary.key) == ("MY_KEY", "set")
    said = "\n".join(found.lines())
    assert "rewritten-visible-s1: plant, protect (surrogate + rewrite), train, audit; 11 rows of canaries" in said
    assert "rewrite: up to 96 records of 4 runs go to 127.0.0.1:9 (NOT encrypted), model tiny, in up to 96" in said
    assert "very-secret" not in said + json.dumps(found.as_json())
    assert not (tmp_path / "out").exists()


def test_a_plan_may_take_fewer_rows_and_read_them_more_than_once(tmp_path, data):
    data["plan"] |= {"rows": 20, "repeat": 2}
    (sending,) = dry_run(
        build_recipe(data | {"protect": [{"name": "rewrite", "model": "m", "server": SERVER}]}), tmp_path / "out"
    ).sends
    assert (sending.runs, sending.records) == (2, 80)


def test_rows_that_nobody_knows_yet_are_not_counted(tmp_path, data):
    data |= {"corpus": {"hub": "nobody/nothing"}, "protect": [{"name": "rewrite", "model": "m", "server": SERVER}]}
    found = dry_run(build_recipe(data), tmp_path / "out")
    assert (found.rows, found.sends[0].records, found.sends[0].requests) == (None, None, None)
    assert "rewrite: all records of the corpus of 2 runs go to 127.0.0.1:9" in "\n".join(found.lines())


def test_canaries_that_do_not_fit_are_refused(tmp_path, data):
    with pytest.raises(PlantingError, match="visible-s0"):
        dry_run(build_recipe(data, ["plan.doses=[1, 40]", "plan.positive={dose: 50}"]), tmp_path / "out")


def test_the_command_says_it_and_does_nothing(tmp_path, data, davylamp, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = write_yaml(tmp_path / "r.yaml", with_servers(data))
    before = sorted(tmp_path.iterdir())
    code, out, err = davylamp("run", path, "--dry-run", "seeds=[0]")
    assert code == 0, err
    lines = out.splitlines()
    assert lines[0] == "recipe tiny"
    assert "9 runs below runs/tiny:" in lines[1]
    assert "what leaves this machine" in out
    assert "go to 127.0.0.1:9 (NOT encrypted)" in out
    code, out, _ = davylamp("run", path, "--dry-run", "--json", "--out", tmp_path / "there")
    told = json.loads(out)
    assert (code, told["folder"], len(told["runs"]), len(told["sends"])) == (0, str(tmp_path / "there"), 17, 2)
    assert sorted(tmp_path.iterdir()) == before
    code, out, _ = davylamp("run", path, "--dry-run", "variants={}")
    assert (code, out.splitlines()[-1]) == (0, "No record leaves this machine.")


def test_a_folder_of_another_recipe_is_refused_as_it_would_be(tmp_path, data, davylamp):
    path = write_yaml(tmp_path / "r.yaml", data)
    stamps = tmp_path / "out" / "runs" / "all-s0" / ".steps"
    stamps.mkdir(parents=True)
    (tmp_path / "out" / "recipe.json").write_text("{}", encoding="utf-8")
    # As long as no step was finished there.
    assert davylamp("run", path, "--dry-run", "--out", tmp_path / "out")[0] == 0
    (stamps / "plant.json").write_text("{}", encoding="utf-8")
    code, _, err = davylamp("run", path, "--dry-run", "--out", tmp_path / "out")
    assert code == 2
    assert "holds the run of another recipe" in err


def test_rows_that_carry_canaries_are_not_background(tmp_path):
    lines = "".join(record.line() + "\n" for record in clinical_records(40))
    (tmp_path / "patients.jsonl").write_text(lines, encoding="utf-8")
    plan = tiny_plan(templates=[{"prompt": "{text}", "cut": {".": "; "}, "completion": "{secret}."}])
    plan |= {"arms": {"redacted": {"context": "redacted"}}, "repeat": 2}
    data = {
        "name": "carried",
        "model": str(tmp_path / "no model"),
        "corpus": {"path": str(tmp_path / "patients.jsonl")},
        "plan": plan,
        "training": {},
        "seeds": [0],
    }
    recipe = build_recipe(data)
    corpus = recipe.corpus.load()
    left = len(background(corpus, recipe.plan)) // 2
    # Each canary of the plan stands in a row of its own.
    assert left < 40
    dry_run(build_recipe({**data, "plan": {**plan, "rows": left}}), tmp_path / "out")
    short = build_recipe({**data, "plan": {**plan, "rows": left + 1}})
    with pytest.raises(PlantingError, match=f"has only {left} rows beside those"):
        dry_run(short, tmp_path / "out")
    # A run says the same, before anything is written.
    with pytest.raises(PlantingError, match=f"has only {left} rows beside those"):
        run_recipe(short, tmp_path / "out")
    assert not list((tmp_path / "out").glob("[!.]*"))


def test_more_rows_than_a_corpus_has_are_refused(tmp_path, data):
    short = build_recipe({**data, "plan": {**data["plan"], "rows": 25}})
    with pytest.raises(PlantingError, match=r"plan\.rows is 25, but .* has only 24 rows"):
        dry_run(short, tmp_path / "out")
