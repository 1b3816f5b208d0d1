"""A study carried out, on a small model of random weights: what it leaves, and what a second run finds."""

from __future__ import annotations

import json

import pytest
import torch

from davylamp.errors import InputError, RunFolderError
from davylamp.report.study import StudyResult
from davylamp.runs.config import validate
from davylamp.studies.protocol.analysis import compare, readings_of
from davylamp.studies.protocol.run import analyse, run_study
from davylamp.studies.recipe import Recipe
from davylamp.studies.tasks import tasks_of
from support.recipes import tiny_plan, tiny_recipe, write_corpus
from support.studies import study_of
from support.tiny_models import build_tiny

LATE = {"name": "late over early", "of": {"variant": "late"}, "over": {"variant": "early"}}
STUDY = study_of(
    comparisons=[LATE],
    shapes=[
        {"statement": "All are read.", "checks": [{"level": {"variant": "late"}, "at_least": 0}]},
        {
            "statement": "Nobody expects this.",
            "paper": "figures",
            "checks": [
                {"level": {"variant": "late"}, "at_least": 99},
                {"level": {"measure": "top"}, "at_most": 1},
                {"utility": ["base", "clean"]},
            ],
        },
    ],
)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A study of two variants, its recipe, its outcome and its folder."""
    torch.set_num_threads(1)
    place = tmp_path_factory.mktemp("study")
    data = tiny_recipe(
        write_corpus(place / "c.jsonl", 32),
        build_tiny(place / "model"),
        plan=tiny_plan(arms={"hidden": {"context": "redacted"}}, twins=1),
        variants={"early": {"plan.schedule.window": "1/2"}, "late": {"plan.schedule.window": "2/2"}},
        seeds=[3],
        clean=True,
    )
    recipe, out = validate(Recipe, data), place / "out"
    return STUDY, recipe, run_study(STUDY, recipe, out, task="email", size="cpu", jobs=1, threads=1), out


def again(made, study=STUDY):
    _, recipe, _, out = made
    return run_study(study, recipe, out, task="email", size="cpu", jobs=1, threads=1)


def times(out):
    return {path: path.stat().st_mtime_ns for path in (out / "runs").rglob("*") if path.is_file()}


def test_a_study_leaves_its_result_and_its_report(made):
    study, recipe, outcome, out = made
    result = outcome.result
    assert StudyResult.model_validate_json((out / "study.json").read_text("utf-8")) == result
    assert (result.name, result.task, result.size, result.confidence) == ("made", "email", "cpu", 0.95)
    assert outcome.report.study == result
    assert outcome.html.is_file()
    assert study.title in outcome.html.read_text("utf-8")
    assert len(outcome.report.runs) == 2
    (found,) = result.compared
    assert (found.n, [(seed.seed, seed.n) for seed in found.seeds]) == (4, [(3, 4)])
    assert found.rises + found.falls + found.ties == 4
    frame = readings_of(list(tasks_of(recipe, out)))
    assert found == compare(frame, study.comparisons[0], 0.95)
    assert [shape.word for shape in result.shapes] == ["held", "held in part"]
    assert [check.held for check in result.shapes[1].checks] == [False, True, False]
    assert result.shapes[1].paper == "figures"
    kept = json.loads((out / "seconds.json").read_text("utf-8"))
    steps = {name.partition("/")[0] for name in kept}
    assert steps == {"early-hidden-s3", "late-hidden-s3", "clean-s3", "base"}
    assert result.seconds == pytest.approx(sum(kept.values()))


def test_a_second_run_redoes_nothing_and_finds_the_same(made):
    _, _, outcome, out = made
    before, result = times(out), (out / "study.json").read_bytes()
    second = again(made)
    assert second == outcome
    assert (out / "study.json").read_bytes() == result
    assert times(out) == before


def test_time_is_that_of_all_calls_together(made):
    _, _, outcome, out = made
    kept = json.loads((out / "seconds.json").read_text("utf-8"))
    (out / "runs" / "late-hidden-s3" / "verdict.json").unlink()
    result = again(made).result
    now = json.loads((out / "seconds.json").read_text("utf-8"))
    assert {name for name in now if now[name] != kept[name]} == {"late-hidden-s3/audit"}
    assert result.seconds == pytest.approx(sum(now.values()))
    assert result.compared == outcome.result.compared


@pytest.mark.parametrize("content", ["{", '{"schema_version": 0}'])
def test_a_damaged_result_is_made_again(made, content):
    _, _, _, out = made
    result = (out / "study.json").read_bytes()
    (out / "study.json").write_text(content, "utf-8")
    again(made)
    assert (out / "study.json").read_bytes() == result


def test_damaged_times_cost_no_study(made):
    _, _, _, out = made
    kept = {path: path.read_bytes() for path in (out / "seconds.json", out / "study.json")}
    for content, seconds in (("[", 0.0), ('{"a/train": "long", "b/train": 2.5}', 2.5)):
        (out / "seconds.json").write_text(content, "utf-8")
        assert again(made).result.seconds == seconds
    for path, content in kept.items():
        path.write_bytes(content)


def test_another_recipe_in_the_folder_is_refused_and_the_result_left(made):
    study, recipe, _, out = made
    before = (out / "study.json").read_bytes()
    with pytest.raises(RunFolderError, match="another recipe"):
        run_study(study, recipe.model_copy(update={"seeds": (0,)}), out, task="email", size="cpu")
    assert (out / "study.json").read_bytes() == before


def test_what_cannot_be_compared_is_named_and_the_runs_are_kept(made):
    _, _, _, out = made
    before = times(out)
    every = {"name": "of all variants", "of": {}, "over": {"measure": "top"}}
    with pytest.raises(InputError, match="comparison 'of all variants'"):
        again(made, study_of(comparisons=[every]))
    assert times(out) == before


def test_an_analysis_alone_reads_the_runs_and_writes_nothing(made):
    _, recipe, outcome, out = made
    before = times(out)
    tasks = list(tasks_of(recipe, out))
    found = analyse(STUDY, tasks, out, task="email", size="cpu", seconds=outcome.result.seconds)
    assert found == outcome.result
    assert times(out) == before
