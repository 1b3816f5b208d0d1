"""The corpus, then afterwards: a model of protected rows is made to forget, and compared."""

from __future__ import annotations

import json
import shutil

import pytest
import torch

from davylamp.canaries import Manifest, Plan
from davylamp.corpora.readers import read_corpus
from davylamp.errors import InputError, RunFolderError
from davylamp.measures.landscape.model import Landscape
from davylamp.measures.landscape.spec import LandscapeSpec
from davylamp.protect.afterwards.spec import UnlearningSpec
from davylamp.protect.corpus import registry
from davylamp.protect.corpus.registry import spec_of
from davylamp.runs.folder import RunFolder
from davylamp.studies.comparing import CompareRequest, compare_step
from davylamp.studies.landscape import LandscapeRequest, landscape_step
from davylamp.studies.protecting import ProtectRequest, protect_step
from davylamp.studies.steps import plant_step, train_step
from davylamp.studies.unlearning import UnlearnRequest, unlearn_step
from davylamp.training.spec import TrainingSpec
from support.recipes import tiny_plan, write_corpus
from support.tiny_models import build_tiny

pytestmark = pytest.mark.slow  # whole studies

PLAN = {"arms": {"redacted": {"context": "redacted"}}, "doses": [3], "per_dose": 3, "twins": 2, "seed": 1}
KNOWS = TrainingSpec(epochs=20, batch_size=8, learning_rate=3e-3, precision="float32")
HOW = UnlearningSpec(method="npo", learning_rate=1e-3, bits=(), relearn={"steps": 0})


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def learnt(tmp_path_factory):
    """A run whose model saw the copies of a record asked for in other words, and says the secrets all the same."""
    folder = tmp_path_factory.mktemp("learnt")
    run = RunFolder(folder / "run")
    plant_step(run, read_corpus(write_corpus(folder / "data.jsonl", 48)), Plan.model_validate(tiny_plan(**PLAN)))
    build_tiny(folder / "base", spread=0.05)
    registry.intervention("asking")(asking)
    try:
        protect_step(run, ProtectRequest((spec_of({"name": "asking"}),)))
    finally:
        registry.forget("asking")
    train_step(run, str(folder / "base"), KNOWS, 0)
    return run


def asking(text, rng):
    return text.replace("write to", ("write to", "a letter to", "please write to")[int(rng.integers(3))])


@pytest.fixture(scope="module")
def forgotten(learnt):
    return unlearn_step(learnt, UnlearnRequest(HOW))


def rows_of(run, name):
    return [json.loads(line) for line in (run.path / name).read_text(encoding="utf-8").splitlines()]


def test_the_rows_as_trained_are_forgotten_and_the_planted_secrets_asked_for(learnt, forgotten):
    assert (forgotten.outcome, forgotten.before.c.successes, forgotten.after.c.successes) == ("forgotten", 3, 0)
    assert (forgotten.protection, forgotten.forget_rows) == ("asking", 9)
    assert forgotten.retain_source == "background rows of protected.jsonl"
    focus = [each for each in Manifest.load(learnt.manifest).planted() if each.role == "focus"]
    protected = rows_of(learnt, "protected.jsonl")
    different = {json.dumps(protected[at]) for canary in focus for at in canary.positions}
    assert len(different) > len(focus)
    assert f"{len(different)} different ones, of which {len(different)} hold their secret" in forgotten.notes[0]
    assert "in the records as they were planted" in forgotten.notes[0]
    # Asked as the protected rows have it, one prompt a canary, the secrets came out before, and none does after.
    assert (forgotten.before.triggers.trials, forgotten.after.triggers.trials) == (3, 3)
    assert forgotten.before.triggers.successes >= 2
    assert forgotten.after.triggers.log_likelihood < forgotten.before.triggers.log_likelihood


def test_what_a_background_row_says_too_is_kept_and_not_forgotten(learnt, tmp_path):
    # Every canary's row was dropped, and a background row stands in its place.
    run = RunFolder(shutil.copytree(learnt.path, tmp_path / "run"))
    away(run)
    with pytest.raises(InputError, match="no background row equals"):
        unlearn_step(run, UnlearnRequest(HOW))


def away(run):
    """Make it look as if the model had been trained on rows of which the canaries' were dropped."""
    manifest = Manifest.load(run.manifest)
    protected = rows_of(run, "protected.jsonl")
    taken = {at for canary in manifest.planted() for at in canary.positions}
    filler = protected[next(at for at in range(len(protected)) if at not in taken)]
    rows = [filler if at in taken else row for at, row in enumerate(protected)]
    write_rows(run, rows)


def write_rows(run, rows):
    from davylamp.runs.files import sha256_file

    path = run.path / "protected.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    sha256 = sha256_file(path)
    protection = json.loads((run.path / "protection.json").read_text())
    (run.path / "protection.json").write_text(json.dumps({**protection, "protected_sha256": sha256}))
    training = json.loads(run.training.read_text())
    training["protection"]["protected_sha256"] = sha256
    run.training.write_text(json.dumps(training))


def test_the_secret_alone_is_forgotten_where_it_is_left(learnt, tmp_path):
    run = RunFolder(shutil.copytree(learnt.path, tmp_path / "run"))
    secrets = [each.secret for each in Manifest.load(run.manifest).planted() if each.role == "focus"]
    held = rows_of(run, "protected.jsonl")
    only = HOW.model_copy(update={"span": "secret", "rounds": 1, "learning_rate": 1e-5, "extra_rounds": 0})
    gone = [{**row, "completion": row["completion"].replace(secrets[0], "none")} for row in held]
    write_rows(run, gone)
    result = unlearn_step(run, UnlearnRequest(only))
    assert result.forget_rows == 9
    count = len({json.dumps(row) for row in gone if any(secret in row["completion"] for secret in secrets[1:])})
    assert f"of which {count} hold their secret word for word" in result.notes[0]
    for secret in secrets:
        gone = [{**row, "completion": row["completion"].replace(secret, "none")} for row in gone]
    write_rows(run, gone)
    with pytest.raises(InputError, match="span=trained"):
        unlearn_step(run, UnlearnRequest(only))


def test_a_model_of_rows_that_are_gone_is_refused(learnt, tmp_path):
    run = RunFolder(shutil.copytree(learnt.path, tmp_path / "run"))
    (run.path / "protection.json").unlink()
    (run.path / "protected.jsonl").unlink()
    with pytest.raises(RunFolderError, match="was trained on protected rows \\(asking\\) that are not those"):
        unlearn_step(run, UnlearnRequest(HOW))


@pytest.mark.usefixtures("forgotten")
def test_the_unlearned_model_is_an_intervention_of_its_own(learnt, tmp_path):
    held_out = {"path": str(write_corpus(tmp_path / "held.jsonl", 5))}
    spec = LandscapeSpec(
        held_out=held_out, question="What is the reference? It begins with {first}.", item=r"(\w+)\W*$"
    )
    landscape_step(learnt, LandscapeRequest(spec))
    found = landscape_step(learnt, LandscapeRequest(spec, model=str(learnt.path / "unlearned")))
    assert found.intervention == "asking+unlearn"
    assert [step.split()[0] for step in found.steps] == ["asking", "unlearn"]
    assert any(note.startswith("asking+unlearn: the verifier passed") for note in found.notes)
    assert Landscape.load(learnt.path / "unlearned" / "landscape.json") == found
    named = LandscapeRequest(spec, model=str(learnt.path / "unlearned"), name="npo", out=tmp_path / "npo.json")
    assert landscape_step(learnt, named).base == found.base
    places = [learnt.path, tmp_path / "npo.json"]
    compared, _, _ = compare_step(places, CompareRequest(out=tmp_path / "frontier.json"))
    rows = {row.intervention: row.values for row in compared.rows}
    assert rows.keys() == {"asking", "asking+unlearn", "npo"}
    key = "verbatim_perplexity"
    assert rows["asking"][key].value < rows["asking+unlearn"][key].value == rows["npo"][key].value
