"""``davylamp compare``: files, output, and every fault of its input."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from davylamp.verdict.frontier_model import Frontier
from support.landscapes import landscape, study


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    for name, one in study(("none", "direct", "scrub"), (0,)):
        one.save(tmp_path / "runs" / name / "landscape.json")
    return tmp_path / "runs"


def test_it_writes_the_data_and_a_page_beside_it(davylamp, runs, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, _ = davylamp("compare", *sorted(runs.iterdir()))
    assert code == 0
    assert "Pareto set of the mean ranks: none, direct, scrub" in out
    found = Frontier.load(tmp_path / "frontier.json")
    assert [row.intervention for row in found.rows] == ["none", "direct", "scrub"]
    assert "<svg" in (tmp_path / "compare.html").read_text()


def test_a_folder_of_runs_and_another_place_and_axes(davylamp, runs, tmp_path) -> None:
    where = tmp_path / "out" / "mine.json"
    code, out, _ = davylamp(
        "compare", runs, "--x", "held_out_perplexity", "--y", "exposure", "--doses", "64, 32", "--out", where, "--json"
    )
    assert code == 0
    data = json.loads(out)
    assert data == json.loads(where.read_text())
    assert (data["x"], data["y"], data["doses"]) == ("held_out_perplexity", "exposure", [32, 64])
    assert (tmp_path / "out" / "mine.html").is_file()


def test_a_run_named_twice_counts_once(davylamp, runs, tmp_path) -> None:
    code, _, _ = davylamp(
        "compare", runs, runs / "none-s0", runs / "none-s0" / "landscape.json", "--out", tmp_path / "o"
    )
    assert code == 0


def test_places_without_a_landscape_are_all_named(davylamp, runs, tmp_path) -> None:
    (tmp_path / "empty").mkdir()
    code, _, err = davylamp("compare", runs, tmp_path / "empty", tmp_path / "none", "--out", tmp_path / "o.json")
    assert code == 2
    assert err.count("davylamp landscape") == 2
    assert not (tmp_path / "o.json").exists()


def test_runs_that_are_not_alike_are_refused(davylamp, runs, tmp_path) -> None:
    landscape("goldfish", 0, question="Well?", item="y").save(runs / "other" / "landscape.json")
    code, _, err = davylamp("compare", runs, "--out", tmp_path / "o.json")
    assert code == 2
    assert "question" in err
    assert "item" in err
    assert not (tmp_path / "o.json").exists()


def test_bad_options_say_what_is_allowed(davylamp, runs) -> None:
    code, _, err = davylamp("compare", runs, "--x", "speed")
    assert code == 2
    assert "held_out_perplexity" in err
    code, _, err = davylamp("compare", runs, "--doses", "many")
    assert code == 2
    assert "32,64" in err


def test_the_result_takes_the_place_of_neither_its_page_nor_a_landscape(davylamp, runs, tmp_path) -> None:
    own = next(runs.rglob("landscape.json"))
    before = own.read_bytes()
    for out in (tmp_path / "mine.html", own):
        code, _, err = davylamp("compare", runs, "--out", out)
        assert code == 2
        assert "--out is" in err
    assert own.read_bytes() == before
    assert not (tmp_path / "mine.html").exists()


def test_a_damaged_landscape_is_named(davylamp, runs, tmp_path) -> None:
    (runs / "bad").mkdir()
    (runs / "bad" / "landscape.json").write_text("{")
    code, _, err = davylamp("compare", runs, "--out", tmp_path / "o.json")
    assert code == 2
    assert "bad" in err.replace("\n", "")


def test_numbers_that_no_model_reads_are_refused(davylamp, runs, tmp_path) -> None:
    path = runs / "direct-s0" / "landscape.json"
    found = json.loads(path.read_text())
    found["held_out"][0]["nats"] = 1e308
    path.write_text(json.dumps(found))
    code, _, err = davylamp("compare", runs, "--out", tmp_path / "o.json")
    assert code == 2
    assert "Traceback" not in err
    assert "nats" in err


def test_a_folder_is_no_place_for_the_result(davylamp, runs, tmp_path) -> None:
    (tmp_path / "cmp").mkdir()
    code, _, err = davylamp("compare", runs, "--out", tmp_path / "cmp")
    assert code == 2
    assert "cmp/frontier.json" in err.replace("\n", "")
    assert "space" not in err
    assert not [*(tmp_path / "cmp").iterdir()]


def test_one_seed_is_said_as_one(davylamp, runs, tmp_path) -> None:
    _, out, _ = davylamp("compare", runs, "--out", tmp_path / "o.json")
    assert "direct, seed 0" in out
