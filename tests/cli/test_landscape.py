"""``davylamp landscape`` and a recipe that asks for it: from a planted file to a comparison."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from davylamp.canaries import Manifest
from davylamp.measures.exposure import Exposure
from davylamp.measures.landscape.model import Landscape
from davylamp.verdict.frontier_model import Frontier
from support.recipes import tiny_plan, tiny_recipe, write_corpus, write_yaml
from support.tiny_models import build_tiny

QUESTION = "What is the reference? It begins with {first}."
TRAINING = ("batch_size=4", "learning_rate=0.01", "precision=float32", "epochs=2")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("landscape")
    write_corpus(folder / "rows.jsonl", 24, "text")
    write_corpus(folder / "held.jsonl", 5, "text")
    build_tiny(folder / "base", seed=1)
    plan = tiny_plan(arms={"redacted": {"context": "redacted"}})
    plan["templates"] = [{"prompt": "to {name}: ", "completion": "Dear {name}, ref {secret}."}]
    write_yaml(folder / "plan.yaml", plan)
    return folder


@pytest.fixture
def run(davylamp, place, tmp_path) -> Path:
    assert davylamp("plant", place / "rows.jsonl", "--plan", place / "plan.yaml", "--out", tmp_path / "run")[0] == 0
    return tmp_path / "run"


def read(davylamp, place, run, *options):
    item = r"item=(\w+)\W*$"
    held = ("--held-out", place / "held.jsonl", "--question", QUESTION)
    return davylamp("landscape", run, item, *held, "-q", *options)


def test_untrained_and_trained_models_are_read_and_compared(davylamp, place, run, tmp_path) -> None:
    code, out, err = read(davylamp, place, run, "--model", place / "base", "--name", "none")
    assert code == 0, err
    assert "verbatim perplexity" in out
    none = Landscape.load(run / "landscape-none.json")
    assert (none.intervention, none.steps) == ("none", ())
    assert none.base is not None
    assert none.base.weights_sha256 == none.weights_sha256
    none.save(tmp_path / "none" / "landscape.json")

    for name, more in (("direct", ()), ("goldfish", ("goldfish.k=3", "goldfish.h=2"))):
        assert davylamp("train", run, *TRAINING, *more, "--model", place / "base", "-q")[0] == 0
        code, out, err = read(davylamp, place, run, "--json")
        assert code == 0, err
        found = Landscape.load(run / "landscape.json")
        assert json.loads(out) == found.model_dump(mode="json")
        assert found.intervention == name
        assert found.base == none.base.model_copy(update={"name": found.base.name if found.base else ""})
        found.save(tmp_path / name / "landscape.json")
        if name == "goldfish":
            assert "k=3" in found.steps[0]
    code, _, err = davylamp(
        "compare", tmp_path / "none", tmp_path / "direct", tmp_path / "goldfish", "--out", tmp_path / "frontier.json"
    )
    assert code == 0, err
    rows = Frontier.load(tmp_path / "frontier.json").rows
    assert [row.intervention for row in rows] == ["none", "direct", "goldfish"]
    # Training on these very rows lowers their perplexity: the held-out ones are drawn alike.
    assert rows[1].values["held_out_perplexity"].value < rows[0].values["held_out_perplexity"].value


def test_ranks_that_an_audit_has_read_are_not_read_again(davylamp, place, run, monkeypatch) -> None:
    assert davylamp("train", run, *TRAINING, "--model", place / "base", "-q")[0] == 0
    assert read(davylamp, place, run)[0] == 0
    fresh = Landscape.load(run / "landscape.json")
    assert davylamp("audit", run, "-q")[0] == 0
    asked: list[object] = []
    real = Exposure.measure
    monkeypatch.setattr(Exposure, "measure", lambda *given: asked.append(None) or real(*given))
    assert read(davylamp, place, run)[0] == 0
    assert not asked
    assert Landscape.load(run / "landscape.json") == fresh
    assert read(davylamp, place, run, "pool=100")[0] == 0
    assert asked
    assert {leak.candidates for leak in Landscape.load(run / "landscape.json").canaries} == {100}


def test_a_landscape_holds_no_secret(davylamp, place, run) -> None:
    assert read(davylamp, place, run, "--model", place / "base", "--name", "none")[0] == 0
    text = (run / "landscape-none.json").read_text()
    for canary in Manifest.load(run / "manifest.json").canaries:
        assert canary.secret not in text


def test_a_model_that_nobody_knows_must_be_named(davylamp, place, run) -> None:
    code, _, err = read(davylamp, place, run, "--model", place / "base")
    assert code == 2
    assert "--name" in err
    code, _, err = read(davylamp, place, run, "--model", place / "base", "--name", " x")
    assert code == 2
    assert "60 characters" in err
    assert read(davylamp, place, run, "--model", place / "base", "--name", "elsewhere")[0] == 0
    assert Landscape.load(run / "landscape-elsewhere.json").base is None
    # A name need not be one of a file, and names that are written alike stay apart.
    for name in ("a/b c", "a/b-c"):
        assert read(davylamp, place, run, "--model", place / "base", "--name", name)[0] == 0
    found = [Landscape.load(path).intervention for path in run.glob("landscape-a-b*.json")]
    assert sorted(found) == ["a/b c", "a/b-c"]


def test_another_model_does_not_take_the_place_of_the_run_s_own(davylamp, place, run, tmp_path) -> None:
    assert davylamp("train", run, *TRAINING, "--model", place / "base", "-q")[0] == 0
    assert read(davylamp, place, run)[0] == 0
    own = (run / "landscape.json").read_bytes()
    code, out, err = read(davylamp, place, run, "--model", place / "base")
    assert code == 0, err
    assert f"landscape: {run / 'landscape-none.json'}" in out
    assert (run / "landscape.json").read_bytes() == own
    # The run's own model by its path is still the run's own.
    assert read(davylamp, place, run, "--model", run / "model")[0] == 0
    assert (run / "landscape.json").read_bytes() == own
    code, _, err = davylamp("compare", run, "--out", tmp_path / "frontier.json")
    assert code == 0, err
    assert {row.intervention for row in Frontier.load(tmp_path / "frontier.json").rows} == {"none", "direct"}
    assert davylamp("audit", run, "-q")[0] == 0
    assert davylamp("report", run)[0] == 0
    rows = json.loads((run / "report.json").read_text())["frontier"]["rows"]
    assert {row["intervention"] for row in rows} == {"none", "direct"}


def test_a_trained_model_is_not_called_the_untrained_one(davylamp, place, run) -> None:
    assert davylamp("train", run, *TRAINING, "--model", place / "base", "-q")[0] == 0
    code, _, err = read(davylamp, place, run, "--name", "none")
    assert code == 2
    assert "--name is 'none'" in err
    assert not list(run.glob("landscape*.json"))


def test_what_was_planted_or_trained_anew_is_not_compared_as_it_was(davylamp, place, run, tmp_path) -> None:
    train = ("train", run, *TRAINING, "--model", place / "base", "-q")
    assert davylamp(*train)[0] == 0
    assert read(davylamp, place, run)[0] == 0
    assert read(davylamp, place, run, "--model", place / "base")[0] == 0
    out = ("--out", tmp_path / "frontier.json")
    assert davylamp("compare", run, *out)[0] == 0
    assert davylamp(*train, "learning_rate=0.02")[0] == 0
    code, _, err = davylamp("compare", run, *out)
    assert code == 2
    assert "trained anew" in err
    assert "landscape-none.json" not in err
    assert read(davylamp, place, run)[0] == 0
    assert davylamp("compare", run, *out)[0] == 0
    manifest = json.loads((run / "manifest.json").read_text())
    (run / "manifest.json").write_text(json.dumps({**manifest, "planted_sha256": "0" * 64}))
    code, _, err = davylamp("compare", run, *out)
    assert code == 2
    assert err.count("planted anew") == 2


def test_records_that_were_trained_on_or_come_twice_are_counted(davylamp, place, run, tmp_path) -> None:
    held = "".join(json.dumps({"text": f"what of {word}? It is {word} indeed."}) + "\n" for word in ("xa", "xb", "xc"))
    trained = [line for line in (run / "planted.jsonl").read_text().splitlines() if "ref " not in line][:2]
    (tmp_path / "mixed.jsonl").write_text(held + held.splitlines()[0] + "\n" + "\n".join(trained) + "\n")
    base = ("--model", place / "base", "--name", "none")
    assert read(davylamp, place, run, *base, "--held-out", tmp_path / "mixed.jsonl")[0] == 0
    notes = Landscape.load(run / "landscape-none.json").notes
    assert any(note.startswith("2 of 6 held-out records") and "stand in the planted file" in note for note in notes)
    assert any(note.startswith("1 of 6 held-out records") and "copies of others" in note for note in notes)
    (tmp_path / "unseen.jsonl").write_text(held)
    assert read(davylamp, place, run, *base, "--held-out", tmp_path / "unseen.jsonl")[0] == 0
    assert not any("planted file" in note for note in Landscape.load(run / "landscape-none.json").notes)


def test_a_result_is_not_written_over_something_else(davylamp, place, run, tmp_path) -> None:
    manifest = (run / "manifest.json").read_bytes()
    code, _, err = read(
        davylamp, place, run, "--model", place / "base", "--name", "none", "--out", run / "manifest.json"
    )
    assert code == 2
    assert "--out" in err
    assert read(davylamp, place, run, "--model", place / "base", "--name", "none")[0] == 0
    code, _, err = davylamp("compare", run, "--out", run / "landscape-none.json")
    assert code == 2
    code, _, err = davylamp("compare", run, "--out", run / "manifest.json")
    assert code == 2
    assert "--out" in err
    assert (run / "manifest.json").read_bytes() == manifest


def test_bad_input_says_what_is_allowed(davylamp, place, run, tmp_path) -> None:
    code, _, err = read(davylamp, place, run)
    assert code == 2
    assert "davylamp train" in err
    code, _, err = davylamp("landscape", run, "item=(", "question={who}", "--held-out", place / "held.jsonl")
    assert code == 2
    assert "regular expression" in err
    assert "who" in err
    code, _, err = davylamp("landscape", run, "held_out=other", "--held-out", place / "held.jsonl")
    assert code == 2
    assert "landscape.held_out is 'other'" in err
    code, _, err = davylamp("landscape", run)
    assert code == 2
    assert "held_out" in err
    code, _, err = davylamp(
        "landscape", run, "--model", place / "base", "--name", "none", "--held-out", place / "held.jsonl"
    )
    assert code == 2
    assert "landscape.subject" in err
    assert not (run / "landscape.json").exists()


@pytest.mark.slow
def test_a_recipe_reads_every_variant_and_the_untrained_model(davylamp, place, tmp_path) -> None:
    plan = tiny_plan(arms={"redacted": {"context": "redacted"}})
    plan["templates"] = [{"prompt": "to {name}: ", "completion": "Dear {name}, ref {secret}."}]
    recipe = tiny_recipe(
        place / "rows.jsonl",
        place / "base",
        plan=plan,
        variants={
            "direct": {},
            "goldfish": {"training.goldfish": {"k": 3, "h": 2}},
            "hidden": {"protect": [{"name": "surrogate", "common": 2}]},
        },
        landscape={
            "held_out": {"path": str(place / "held.jsonl")},
            "question": QUESTION,
            "item": r"(\w+)\W*$",
        },
        seeds=[0, 1],
    )
    recipe.pop("utility")
    path = write_yaml(tmp_path / "recipe.yaml", recipe)
    code, out, err = davylamp("run", path, "--out", tmp_path / "out", "-q", "--jobs", "1")
    assert code == 0, err
    assert "interventions compared (none (the untrained model), direct, goldfish, hidden)" in out
    assert f"`davylamp compare {tmp_path / 'out'}`" in out
    assert out.count("trained on protected rows (surrogate)") == 2
    assert "hidden: the rows were protected before training (surrogate)" in out
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    names = [row["intervention"] for row in report["frontier"]["rows"]]
    assert names == ["none", "direct", "goldfish", "hidden"]
    assert report["frontier"]["seeds"] == [0, 1]
    code, out, _ = davylamp("run", path, "--out", tmp_path / "out", "-q", "--json")
    assert code == 0
    assert json.loads(out)["seconds"] == {}
    assert json.loads(out)["interventions"] == ["none", "direct", "goldfish", "hidden"]
