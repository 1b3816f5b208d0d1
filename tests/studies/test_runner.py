from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from davylamp.canaries import Manifest
from davylamp.errors import PlantingError, RunFolderError
from davylamp.studies.recipe import load_recipe
from davylamp.studies.runner import run_recipe
from support.recipes import tiny_recipe, write_corpus, write_yaml
from support.tiny_models import build_tiny

RUN = (
    "import sys; from pathlib import Path; from davylamp.studies.recipe import load_recipe;"
    "from davylamp.studies.runner import run_recipe\n"
    "if __name__ == '__main__':\n"
    "    run_recipe(load_recipe(sys.argv[1]), Path(sys.argv[2]), jobs=int(sys.argv[3]), threads=1)"
)
# What does not depend on the clock, the machine or the memory.
RESULTS = ("planted.jsonl", "manifest.json", "readings.parquet", "verdict.json", "utility.json")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A recipe, and the folder of an undisturbed run of it."""
    place = tmp_path_factory.mktemp("runner")
    torch.set_num_threads(1)
    data = tiny_recipe(write_corpus(place / "c.jsonl"), build_tiny(place / "model"))
    path = write_yaml(place / "r.yaml", data)
    recipe = load_recipe(str(path))
    return recipe, path, run_recipe(recipe, place / "out", jobs=1, threads=1), place / "out"


def results(out):
    found = {}
    for path in sorted((out / "runs").rglob("*")):
        if path.name in RESULTS:
            # The utility names the model by its path.
            found[str(path.relative_to(out))] = path.read_bytes().replace(str(out).encode(), b"")
        if path.name == "model.safetensors":
            found[str(path.relative_to(out))] = {name: tensor.tolist() for name, tensor in load_file(path).items()}
    return found


def times(out):
    kept = {path for path in (out / "runs").rglob("*") if path.is_file() and path.name != ".lock"}
    return {path.relative_to(out): path.stat().st_mtime_ns for path in kept}


def test_every_run_has_its_files_and_its_own_arm(made):
    _, _, outcome, out = made
    assert {path.name for path in (out / "runs").iterdir()} == {"visible-s0", "redacted-s0", "base"}
    assert outcome.html.is_file()
    assert set(outcome.seconds) == {
        *(f"{arm}-s0/{step}" for arm in ("visible", "redacted") for step in ("plant", "train", "audit")),
        "base/utility",
    }
    for arm in ("visible", "redacted"):
        manifest = Manifest.load(out / "runs" / f"{arm}-s0" / "manifest.json")
        assert set(manifest.plan.arms) == {arm}
        made_of = json.loads((out / "runs" / f"{arm}-s0" / "training.json").read_text("utf-8"))
        # 24 rows in fours: canaries take the place of rows and add no step.
        assert (made_of["steps"], made_of["rows"]) == (6, 24)


def test_a_second_run_redoes_nothing_and_says_the_same(made):
    recipe, _, outcome, out = made
    before = times(out)
    again = run_recipe(recipe, out, jobs=1, threads=1)
    assert again.seconds == {}
    assert times(out) == before
    assert again.report == outcome.report


def test_a_step_is_redone_when_its_files_are_gone_and_only_it(made, tmp_path):
    recipe, _, _, out = made
    expected, before = results(out), times(out)
    (out / "runs" / "visible-s0" / "verdict.json").unlink()
    again = run_recipe(recipe, out, jobs=1, threads=1)
    assert set(again.seconds) == {"visible-s0/audit"}
    assert results(out) == expected
    changed = {path for path, when in times(out).items() if before[path] != when}
    assert {path.parts[1] for path in changed} == {"visible-s0"}
    assert not {path.name for path in changed} & {
        "planted.jsonl",
        "manifest.json",
        "training.json",
        "model.safetensors",
    }


def test_another_recipe_in_the_same_folder_is_refused(made):
    _, path, _, out = made
    before = times(out)
    with pytest.raises(RunFolderError, match="another recipe"):
        run_recipe(load_recipe(str(path), ["training.epochs=2"]), out, jobs=1)
    assert times(out) == before


def test_a_folder_with_runs_of_nobody_is_refused(made, tmp_path):
    recipe, *_ = made
    (tmp_path / "manifest.json").write_text("{}")
    with pytest.raises(RunFolderError, match="no recipe made"):
        run_recipe(recipe, tmp_path, jobs=1)


def descendants(process):
    return [
        int(status.parent.name)
        for status in Path("/proc").glob("[0-9]*/status")
        if f"\nPPid:\t{process.pid}\n" in _read(status)
    ]


def _read(path):
    try:
        return path.read_text()
    except OSError:
        return ""


def alive(pids):
    states = [_read(Path(f"/proc/{pid}/status")) for pid in pids]
    return [state for state in states if state and "State:\tZ" not in state]


@pytest.mark.parametrize(("jobs", "step"), [(1, "train"), (2, "plant")])
def test_a_killed_run_resumes_and_ends_as_an_undisturbed_one(made, tmp_path, jobs, step):
    recipe, path, _, undisturbed = made
    out = tmp_path / "out"
    log = (tmp_path / "log").open("w")
    process = subprocess.Popen([sys.executable, "-c", RUN, str(path), str(out), str(jobs)], stderr=log)
    deadline = time.monotonic() + 120
    while not list(out.glob(f"runs/*-s0/.steps/{step}.json")):
        assert process.poll() is None, (tmp_path / "log").read_text()
        assert time.monotonic() < deadline
        time.sleep(0.01)
    with pytest.raises(RunFolderError, match="in use"):
        run_recipe(recipe, out, jobs=1)
    children = descendants(process)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    log.close()
    # Nobody may go on writing there once the lock has fallen.
    deadline = time.monotonic() + 20
    while alive(children):
        assert time.monotonic() < deadline, "a worker outlived its killed parent"
        time.sleep(0.05)
    finished = {stamp.parents[1].name + "/" + stamp.stem for stamp in out.glob("runs/*/.steps/*.json")}
    before = times(out)
    again = run_recipe(recipe, out, jobs=1, threads=1)
    steps = {f"{arm}-s0/{each}" for arm in ("visible", "redacted") for each in ("plant", "train", "audit")}
    assert set(again.seconds) == {*steps, "base/utility"} - finished
    assert finished
    assert again.seconds
    outputs = {"plant": ("planted.jsonl", "manifest.json"), "train": ("training.json", "model/model.safetensors")}
    for run, each in (name.split("/") for name in finished):
        for output in outputs.get(each, ()):
            place = Path("runs") / run / output
            assert times(out)[place] == before[place]
    assert results(out) == results(undisturbed)


@pytest.mark.slow
def test_a_fault_of_a_worker_is_its_own_error(made, tmp_path):
    recipe, *_ = made
    plan = recipe.plan.model_copy(update={"rows": 1000})
    with pytest.raises(PlantingError, match=r"plan\.rows is 1000"):
        run_recipe(recipe.model_copy(update={"plan": plan}), tmp_path / "out", jobs=2, threads=1)


def test_a_fault_leaves_what_was_done_and_nothing_half(made, tmp_path):
    recipe, *_ = made
    plan = recipe.plan.model_copy(update={"doses": (30,)})
    with pytest.raises(PlantingError, match="rows"):
        run_recipe(recipe.model_copy(update={"plan": plan}), tmp_path / "out", jobs=1)
    left = {path.name for path in (tmp_path / "out").rglob("*") if path.is_file()}
    assert left <= {".lock", "recipe.json"}


def test_adapters_clean_runs_and_arms_together(made, tmp_path):
    _, path, _, _ = made
    recipe = load_recipe(
        str(path), ["training.method=lora", "training.lora.r=2", "clean=true", "arms=together", "seeds=[5]"]
    )
    outcome = run_recipe(recipe, tmp_path / "out", jobs=1, threads=1)
    assert [each.name for each in outcome.report.runs] == ["all-s5"]
    assert {(each.who, each.trials) for each in outcome.report.utilities} == {
        ("base", 3),
        ("clean-s5", 3),
        (outcome.report.runs[0].name, 3),
    }
    assert (tmp_path / "out" / "runs" / "clean-s5" / "model" / "adapter_model.safetensors").is_file()
    assert not (tmp_path / "out" / "runs" / "clean-s5" / "manifest.json").exists()
