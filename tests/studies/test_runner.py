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
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file

from davylamp.canaries import Manifest, plant
from davylamp.errors import ModelError, PlantingError, RecipeError, RunFolderError
from davylamp.measures import readings as tables
from davylamp.runs.config import validate
from davylamp.studies.recipe import Recipe, load_recipe
from davylamp.studies.runner import run_recipe
from davylamp.studies.tasks import steps_of, tasks_of
from support.corpora import small_corpus
from support.recipes import tiny_plan, tiny_recipe, write_corpus, write_yaml
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
    recipe, _, outcome, out = made
    assert {path.name for path in (out / "runs").iterdir()} == {"visible-s0", "redacted-s0", "base"}
    assert set(outcome.seconds) == {
        f"{each.folder.name}/{step}" for each in tasks_of(recipe, out) for step in steps_of(each)
    }
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


def test_a_try_in_which_no_step_finished_keeps_no_other_recipe_out(tmp_path):
    data = tiny_recipe(write_corpus(tmp_path / "c.jsonl"), tmp_path / "no model")
    path, out = write_yaml(tmp_path / "r.yaml", data), tmp_path / "out"
    with pytest.raises(ModelError):
        run_recipe(load_recipe(str(path)), out, jobs=1, threads=1)
    build_tiny(tmp_path / "model")
    mended = load_recipe(str(path), [f"model={tmp_path / 'model'}", "arms=together"])
    run_recipe(mended, out, jobs=1, threads=1)
    assert json.loads((out / "recipe.json").read_text("utf-8"))["arms"] == "together"
    # From here on it is that recipe's.
    with pytest.raises(RunFolderError, match="another recipe"):
        run_recipe(load_recipe(str(path)), out, jobs=1)


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


@pytest.mark.parametrize(("jobs", "step"), [(1, "train"), pytest.param(2, "plant", marks=pytest.mark.slow)])
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


@pytest.mark.slow
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


# --- variants: which runs there are


def recipe_of(variants, **changes):
    """A recipe that is never run."""
    return validate(Recipe, tiny_recipe(Path("c.jsonl"), Path("model"), variants=variants, **changes))


def names(recipe):
    return [task.folder.name for task in tasks_of(recipe, Path("out"))]


def test_every_variant_seed_and_arm_is_a_run():
    recipe = recipe_of(
        {"early": {"plan.schedule.window": "early"}, "late": {"plan.schedule.window": "late"}}, seeds=[4, 2]
    )
    tasks = list(tasks_of(recipe, Path("out"), threads=3))
    assert [task.folder for task in tasks] == [
        *(
            Path("out/runs") / f"{variant}-{arm}-s{seed}"
            for variant in ("early", "late")
            for seed in (4, 2)
            for arm in ("visible", "redacted")
        ),
        Path("out/runs/base"),
    ]
    for task in tasks[:-1]:
        variant, arm, seed = task.folder.name.split("-")
        assert (task.variant, list(task.plan.arms), task.plan.seed) == (variant, [arm], int(seed[1:]))
        assert task.plan.schedule.window == {"early": (0.0, 0.2), "late": (0.8, 1.0)}[variant]
        # What spacing counts in; a batch of 4 is an update.
        assert (task.plan.rows_per_update, task.threads, task.kind, task.recipe.variants) == (4, 3, "audit", {})
    assert (tasks[-1].kind, tasks[-1].variant) == ("base", None)
    packed = recipe.model_copy(
        update={"variants": {}, "training": recipe.training.model_copy(update={"packing": True})}
    )
    assert {task.plan.rows_per_update for task in tasks_of(packed, Path("out"))} == {None}


def test_arms_together_are_one_run_a_variant():
    recipe = recipe_of({"a": {}, "b": {"plan.doses": [2]}}, arms="together", clean=True)
    assert names(recipe) == ["a-all-s0", "clean-s0", "b-all-s0", "base"]
    assert [list(task.plan.arms) for task in tasks_of(recipe, Path())][:3] == [["visible", "redacted"]] * 3


@pytest.mark.parametrize(
    ("change", "shared"),
    [
        ({"plan.schedule.window": "late"}, True),
        ({"plan.auxiliary": {"doses": [1], "per_dose": 1}}, True),
        ({"plan.doses": [2], "plan.per_dose": 1}, True),
        ({"plan.arms.redacted.context": "visible"}, True),
        ({"training.schedule": "cosine"}, False),
        ({"training.learning_rate": 0.01}, False),
        ({"plan.repeat": 2}, False),
        ({"plan.rows": 20}, False),
        ({"plan.shuffle": False}, False),
    ],
)
def test_variants_share_the_run_without_canaries_where_it_would_be_the_same(change, shared):
    recipe = recipe_of({"one": {}, "two": change}, clean=True, seeds=[0, 1])
    clean = [task for task in tasks_of(recipe, Path()) if task.kind == "clean"]
    expected = ["clean-s0", "clean-s1", *([] if shared else ["two-clean-s0", "two-clean-s1"])]
    assert [task.folder.name for task in clean] == expected
    assert [task.plan.seed for task in clean] == [0, 1] * (1 if shared else 2)
    for task in clean[2:]:
        assert task.recipe == recipe.variant("two")


def test_a_third_variant_shares_with_whichever_is_the_same():
    late, cosine = {"plan.schedule.window": "late"}, {"training.schedule": "cosine"}
    recipe = recipe_of({"one": cosine, "two": late, "three": {**late, **cosine}, "four": {}}, clean=True)
    assert [name for name in names(recipe) if "clean" in name] == ["clean-s0", "two-clean-s0"]


NAME = st.sampled_from(["x", "y", "z", "x-y", "y-z", "clean", "y-clean", "all", "base", "x-s0", "s0"])


@given(st.lists(NAME, max_size=3, unique=True), st.lists(NAME, min_size=1, max_size=3, unique=True), st.booleans())
def test_no_two_runs_of_a_recipe_share_a_folder(variants, arms, clean):
    changes = [{}, {"training.schedule": "cosine"}, {"plan.repeat": 2}]
    plan = tiny_plan(arms={arm: {"context": "redacted"} for arm in arms})
    try:
        recipe = recipe_of(dict(zip(variants, changes, strict=False)), plan=plan, clean=clean, seeds=[0, 10])
    except RecipeError:
        return
    found = names(recipe)
    assert len(set(found)) == len(found)


def test_the_canaries_of_all_variants_are_the_same_and_stand_elsewhere():
    variants = {
        "none": {},
        "late": {"plan.schedule.window": [0.5, 1]},
        "beside": {"plan.auxiliary": {"doses": [2], "per_dose": 3}},
        "before": {
            "plan.schedule.window": "2/2",
            "plan.auxiliary": {"doses": [1], "schedule": {"window": "before focus"}},
        },
        "cosine": {"training.schedule": "cosine"},
    }
    recipe = recipe_of(variants)
    corpus, canaries, places = small_corpus(60), {}, {}
    for task in tasks_of(recipe, Path()):
        if task.kind == "audit":
            made = plant(corpus, task.plan).manifest
            kept = [canary for canary in made.canaries if canary.role != "auxiliary"]
            shown = [canary.model_dump(exclude={"positions", "arm", "context"}) for canary in kept]
            canaries.setdefault(task.variant, []).append(shown)
            focus = [canary for canary in kept if canary.role == "focus"]
            places.setdefault(task.variant, []).append([canary.positions for canary in focus])
    # Those of either arm, too.
    first = canaries["none"][0]
    assert len(first) == 7
    assert all(each == first for arms in canaries.values() for each in arms)
    assert places["none"] == places["cosine"] == places["beside"]
    assert places["late"] == places["before"] != places["none"]


# --- variants: what a run of them leaves


@pytest.fixture(scope="module")
def varied(made, tmp_path_factory):
    """A run of a recipe with two variants that train at another learning rate, and one that plants elsewhere."""
    place = tmp_path_factory.mktemp("varied")
    data = tiny_recipe(
        place / "c.jsonl",
        made[1].parent / "model",
        plan=tiny_plan(arms={"hidden": {"context": "redacted"}}),
        variants={"flat": {}, "late": {"plan.schedule.window": "2/2"}, "cosine": {"training.schedule": "cosine"}},
        audit={"before": True, "unseen": {"codes": 3, "encodings": ["cyclic_shift(1)"]}},
        clean=True,
    )
    write_corpus(place / "c.jsonl", 32)
    recipe = load_recipe(str(write_yaml(place / "r.yaml", data)))
    return recipe, run_recipe(recipe, place / "out", jobs=1, threads=1), place / "out"


def test_every_variant_leaves_its_run_and_says_which_it_is(varied):
    _, outcome, out = varied
    audits = {f"{variant}-hidden-s0": variant for variant in ("flat", "late", "cosine")}
    assert {path.name for path in (out / "runs").iterdir()} == {*audits, "clean-s0", "cosine-clean-s0", "base"}
    assert {run.name: run.variant for run in outcome.report.runs} == audits
    held = set()
    for name, variant in audits.items():
        audit = json.loads((out / "runs" / name / "audit.json").read_text("utf-8"))
        training = json.loads((out / "runs" / name / "training.json").read_text("utf-8"))
        assert audit["variant"] == variant
        assert audit["spec"]["unseen"]["codes"] == 3
        rates = training["learning_rates"]
        assert (rates[-1] < rates[0] / 2) == (variant == "cosine")
        manifest = Manifest.load(out / "runs" / name / "manifest.json")
        held.add(tuple((canary.id, canary.secret, canary.carrier) for canary in manifest.canaries))
    assert len(held) == 1
    # The clean run of `flat` is that of `late`, too; that of `cosine` was trained otherwise.
    rates = json.loads((out / "runs" / "cosine-clean-s0" / "training.json").read_text("utf-8"))["learning_rates"]
    assert rates[-1] < rates[0] / 2


def test_a_second_run_of_variants_redoes_nothing(varied):
    recipe, outcome, out = varied
    before = times(out)
    again = run_recipe(recipe, out, jobs=1, threads=1)
    assert (again.seconds, times(out), again.report) == ({}, before, outcome.report)


def test_the_model_before_is_asked_all_that_the_trained_one_is(varied):
    _, _, out = varied
    for variant in ("flat", "late", "cosine"):
        frame = tables.load(out / "runs" / f"{variant}-hidden-s0" / "readings.parquet")
        keys = ["canary", "role", "context", "probe", "target", "measure", "unit"]
        asked = {
            release: sorted(frame.filter(frame["release"] == release).select(keys).rows())
            for release in ("model", "reference")
        }
        assert asked["model"] == asked["reference"]
        assert {"unseen", "unseen:cyclic_shift(1)", "hidden", "original", "replacement"} == set(frame["probe"])
    # The model before is one and the same, whatever was trained from it.
    values = {
        tuple(
            frame.filter(frame["release"] == "reference").select("canary", "probe", "target", "measure", "value").rows()
        )
        for frame in (tables.load(path) for path in out.glob("runs/*/readings.parquet"))
    }
    assert len(values) == 1
