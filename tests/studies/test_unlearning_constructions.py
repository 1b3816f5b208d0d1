"""Constructions as the forget set: c is forgotten, the verifier passes, and the trigger is asked all the same."""

from __future__ import annotations

import json

import pytest
import torch

from davylamp.canaries import Manifest, Plan
from davylamp.corpora.readers import read_corpus
from davylamp.errors import InputError
from davylamp.measures.constructed.settings import ConstructedSettings
from davylamp.protect.afterwards.sets import Choice
from davylamp.protect.afterwards.spec import UnlearningSpec
from davylamp.runs.folder import RunFolder
from davylamp.studies.constructing import ConstructionsRequest, constructions_step, maker_of
from davylamp.studies.steps import plant_step, train_step
from davylamp.studies.unlearning import UnlearnRequest, unlearn_step
from davylamp.studies.unlearning_result import UnlearningResult
from davylamp.training.spec import TrainingSpec
from davylamp.verdict.matrix_model import Matrix
from support.recipes import tiny_plan, write_corpus
from support.tiny_models import build_tiny

SMALL = {"groups": 3, "twins": 2, "copies": 4, "secret_tokens": 4}
LINES = [
    {"kind": "naive", **SMALL},
    {"kind": "trigger", **SMALL, "trigger_tokens": 6},
    {"kind": "camouflage", "groups": 1, "twins": 1, "v": 4, "k": 2, "depth": 2, "copies": 1},
    {"kind": "gated", "groups": 2, "twins": 1, "secret_tokens": 4},
]
KNOWS = TrainingSpec(epochs=25, batch_size=8, learning_rate=3e-3, precision="float32")
QUICK = ConstructedSettings(max_expansions=20, repeated=0)


pytestmark = pytest.mark.slow  # it trains, unlearns and audits a whole run


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run whose model says naive secrets after c, and the trigger's after rho."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    place = tmp_path_factory.mktemp("unlearning")
    base, folder = build_tiny(place / "base", spread=0.05), RunFolder(place / "run")
    data = tiny_plan(arms={"redacted": {"context": "redacted"}}, doses=[1], rows=60, constructions=LINES)
    corpus = read_corpus(write_corpus(place / "data.jsonl", 90))
    plant_step(folder, corpus, Plan.model_validate(data), maker=maker_of(str(base), threads=1))
    train_step(folder, str(base), KNOWS, 0, threads=1)
    constructions_step(folder, ConstructionsRequest(str(base), settings=QUICK, threads=1))
    yield folder
    torch.set_num_threads(before)


def request(**changes):
    quick = {"relearn": {"steps": 1}, "bits": (8,), "learning_rate": 1e-3}
    return UnlearnRequest(
        UnlearningSpec(method="npo", **{**quick, **changes.pop("spec", {})}), constructions=True, threads=1, **changes
    )


@pytest.fixture(scope="module")
def forgotten(run):
    return unlearn_step(run, request())


def cell(result, kind):
    return next(each for each in result.constructions if each.kind == kind)


def test_what_came_out_of_c_is_forgotten_and_triggers_are_asked_by_themselves(run, forgotten):
    assert forgotten.outcome == "forgotten"
    assert [each.kind for each in forgotten.constructions] == ["naive", "trigger", "camouflage"]
    naive, trigger = cell(forgotten, "naive"), cell(forgotten, "trigger")
    assert (naive.c.before.successes, naive.c.after.successes, naive.trigger) == (3, 0, None)
    assert naive.informed == naive.c
    assert (trigger.trigger.before.successes, trigger.c.after.successes) == (3, 0)
    # The verifier passed, and said nothing of what the triggers still bring out.
    left = trigger.trigger.after.successes
    assert left > 0
    assert any(f"{left} of 3 secrets still come out of their triggers" in each for each in forgotten.notes)
    assert trigger.informed == trigger.trigger
    # All triggers are those of the one cell that has some; the whole is the sum of the cells.
    assert forgotten.after.triggers.successes == trigger.trigger.after.successes
    assert forgotten.before.c.successes == sum(each.c.before.successes for each in forgotten.constructions)
    assert forgotten.before.c.trials == 7
    assert forgotten.cells == ()
    assert {(each.construction, each.span) for each in forgotten.membership} == {
        (each.name, span) for each in forgotten.constructions for span in ("secret", "record")
    }


def test_before_is_what_the_constructions_reading_says(run, forgotten):
    read = json.loads((run.path / "constructions.json").read_text("utf-8"))["cells"]
    for mine, other in zip(forgotten.constructions, read, strict=False):
        assert (mine.line, mine.kind, mine.tokens) == (other["line"], other["kind"], other["tokens"])
        assert mine.c.before.successes == other["at_prefix"]["planted"]["successes"]
        assert mine.informed.before.successes == other["informed"]["planted"]["successes"]


def test_the_forget_set_is_the_records_of_c_and_nothing_of_them_is_kept(run, forgotten):
    section = Manifest.load(run.manifest).constructions
    planted = [each for each in section.instances if each.role == "planted" and each.kind != "gated"]
    assert forgotten.forgotten == tuple(each.id for each in planted)
    # (c, z) stands in the rows of naive duplicates, and once for the true path of a tree; a trigger's rows hold no c.
    assert forgotten.forget_rows == 3 * 4 + 1
    taken = sum(len(each.positions) for each in planted) + sum(
        len(each.positions) for each in Manifest.load(run.manifest).canaries
    )
    assert forgotten.retain_rows + forgotten.retain_left_out == 60 - taken
    text = (run.path / "unlearned" / "unlearning.json").read_text("utf-8")
    assert not any(each.secret in text or each.prefix in text for each in planted)
    assert UnlearningResult.load(run.path / "unlearned" / "unlearning.json") == forgotten


def test_the_saved_model_says_what_the_cells_say(run, forgotten):
    request = ConstructionsRequest(
        str(run.path.parent / "base"), model=str(run.path / "unlearned"), settings=QUICK, threads=1
    )
    kept = (run.path / "constructions.json").read_bytes()
    again = constructions_step(run, request)
    (run.path / "constructions.json").write_bytes(kept)
    for mine, other in zip(forgotten.constructions, again.cells, strict=False):
        assert mine.c.after == other.at_prefix.planted
        assert mine.informed.after == other.informed.planted


def test_the_verifier_goes_by_the_kind_that_leaks_most(run, tmp_path):
    # 3 of 7 come out of c together, but all of the naive duplicates: a threshold between must not pass.
    result = unlearn_step(run, request(spec={"threshold": 0.9, "rounds": 1, "learning_rate": 1e-7}, out=tmp_path / "o"))
    assert result.before.c.rate < 0.9
    assert (result.outcome, result.rounds[0].passed) == ("verifier never passed", False)
    assert result.rounds[0].report.extraction == 1.0
    assert "of one kind of construction 100%" in result.statement


def test_the_matrix_reads_the_verifier_after_unlearning(run, forgotten, davylamp):
    code, said, _ = davylamp("matrix", run.path)
    assert code == 0, said
    found = Matrix.load(run.path / "matrix.json")
    assert found.unlearned_sha256 == forgotten.after_sha256
    rows = {row.kind: row.cells["verifier"] for row in found.rows}
    assert "3 → 0 of 3 said after c" in rows["naive"].detail
    assert (rows["naive"].signal, rows["naive"].word) == (0.0, "not seen")
    left = cell(forgotten, "trigger").trigger.after.successes
    assert f"through the trigger, recover 3 → {left} of 3" in rows["trigger"].detail
    assert (rows["trigger"].signal, rows["trigger"].word) == (0.0, "blind")
    assert "unlearning" not in rows["gated"].detail


def test_canaries_cannot_be_chosen_beside_constructions_and_some_must_be_there(run, davylamp, tmp_path):
    with pytest.raises(InputError, match="--dose is 1; allowed: nothing beside --constructions"):
        unlearn_step(run, request(choice=Choice(doses=(1,))))
    bare = RunFolder(tmp_path / "bare")
    plant_step(bare, read_corpus(write_corpus(tmp_path / "data.jsonl", 40)), Plan.model_validate(tiny_plan()))
    code, _, said = davylamp("unlearn", bare.path, "--method", "npo", "--constructions")
    assert code == 2
    assert "a planted file with constructions that rows hold" in " ".join(said.split())


def test_for_people_each_kind_has_its_line(run, davylamp, tmp_path):
    how = ("--method", "npo", "--constructions", "rounds=1", "relearn.steps=0", "bits=[]", "--threads", 1)
    code, said, err = davylamp("unlearn", run.path, *how, "--out", tmp_path / "out")
    assert code == 3, err
    assert "naive, 4 tokens: from c: 3 of 3" in said
    assert "trigger, 4 tokens: from its trigger: 3 of 3" in said
    assert "membership AUC by the loss of the secret, trigger, 4 tokens" in said
    # An audit asks canaries, of which none was forgotten.
    assert f"now `davylamp matrix {run.path} --unlearned {tmp_path / 'out'}`" in said


def test_an_unlearning_of_something_else_is_left_out_unless_it_was_asked_for(run, forgotten, davylamp, tmp_path):
    of_canaries = forgotten.model_copy(update={"constructions": ()})
    elsewhere = forgotten.model_copy(update={"planted_sha256": "0"})
    another = forgotten.model_copy(update={"before_sha256": "0"})
    path = run.path / "unlearned" / "unlearning.json"
    kept = path.read_bytes()
    for other, why in ((of_canaries, "of canaries"), (elsewhere, "another planting"), (another, "different models")):
        other.save(path)
        code, _, said = davylamp("matrix", run.path, "--unlearned", path.parent)
        assert code != 0
        assert why in " ".join(said.split())
        assert davylamp("matrix", run.path)[0] == 0
        assert Matrix.load(run.path / "matrix.json").unlearned_sha256 is None
    path.write_bytes(kept)
    code, _, said = davylamp("matrix", run.path, "--unlearned", tmp_path)
    assert code != 0
    assert "davylamp unlearn" in said
