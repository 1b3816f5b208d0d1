from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from davylamp.canaries import Plan
from davylamp.corpora.readers import read_corpus
from davylamp.errors import InputError, ManifestError, RunFolderError, StorageError
from davylamp.protect.afterwards.sets import Choice
from davylamp.protect.afterwards.spec import UnlearningSpec
from davylamp.release.loader import load_model, load_tokenizer
from davylamp.release.sources import resolve
from davylamp.runs.folder import RunFolder
from davylamp.studies import unlearning
from davylamp.studies.auditing import AuditRequest, audit_step
from davylamp.studies.recipe import load_recipe
from davylamp.studies.steps import plant_step, train_step
from davylamp.studies.unlearning import UnlearnRequest, unlearn_step
from davylamp.studies.unlearning_checks import Checks, membership_check
from davylamp.studies.unlearning_result import UnlearningResult
from davylamp.training.spec import TrainingSpec
from support.recipes import tiny_plan, write_corpus
from support.tiny_models import build_tiny

PLAN = {"arms": {"redacted": {"context": "redacted"}}, "doses": [3], "per_dose": 3, "twins": 6, "seed": 1}
KNOWS = TrainingSpec(epochs=20, batch_size=8, learning_rate=3e-3, precision="float32")
verify = Checks.verify
BLANK = TrainingSpec(batch_size=8, learning_rate=1e-5, precision="float32")


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def planted(folder, **changes):
    corpus = read_corpus(write_corpus(folder / "data.jsonl", 48))
    plant_step(RunFolder(folder / "run"), corpus, Plan.model_validate(tiny_plan(**{**PLAN, **changes})))
    build_tiny(folder / "base", spread=0.05)
    return RunFolder(folder / "run")


@pytest.fixture(scope="module")
def learnt(tmp_path_factory):
    """A run whose model says all three secrets."""
    run = planted(tmp_path_factory.mktemp("learnt"))
    train_step(run, str(run.path.parent / "base"), KNOWS, 0)
    return run


@pytest.fixture
def run(learnt, tmp_path):
    shutil.copytree(learnt.path, tmp_path / "run")
    return RunFolder(tmp_path / "run")


def spec_of(method="npo", **changes):
    return UnlearningSpec(method=method, **changes)


@pytest.fixture(scope="module")
def forgotten(learnt, tmp_path_factory):
    out = tmp_path_factory.mktemp("forgotten") / "out"
    return unlearn_step(learnt, UnlearnRequest(spec_of(), out=out)), out


def test_what_came_out_comes_out_no_more(forgotten):
    result, _ = forgotten
    assert (result.outcome, result.before.c.successes, result.after.c.successes) == ("forgotten", 3, 0)
    assert len(result.rounds) == result.passed_at + 1
    assert [each.passed for each in result.rounds] == [False] * (result.passed_at - 1) + [True, True]
    assert result.rounds[-1].c == result.after.c
    assert result.rounds[-1].held_out == result.after.held_out
    assert "one more round" in result.statement
    assert result.after.c.log_likelihood < result.before.c.log_likelihood
    (cell,) = result.cells
    assert (cell.arm, cell.dose, cell.before, cell.after) == ("redacted", 3, result.before.c, result.after.c)


def test_the_sets_are_what_they_say(forgotten, learnt):
    result, _ = forgotten
    manifest = json.loads(learnt.manifest.read_text())
    focus = [each for each in manifest["canaries"] if each["role"] == "focus"]
    assert result.forgotten == tuple(each["id"] for each in focus)
    assert result.forget_rows == 9
    taken = sum(each["dose"] for each in manifest["canaries"])
    assert result.retain_rows + result.retain_left_out == 48 - taken
    assert result.learning_rate == pytest.approx(3e-4)
    assert not any(each["secret"] in json.dumps(result.model_dump(mode="json")) for each in focus)


def test_rows_beyond_the_context_are_left_out_and_a_broken_model_is_said_to_be_one(run, tmp_path):
    # Training cut such rows off; their perplexity cannot be read.
    path = write_corpus(tmp_path / "retain.jsonl", 12)
    with path.open("a", encoding="utf-8") as file:
        file.writelines(json.dumps({"prompt": "write", "completion": "so it is " * 600}) + "\n" for _ in range(2))
    quick = {"rounds": 1, "extra_rounds": 0, "bits": (), "relearn": {"steps": 0}}
    loud = spec_of("graddiff", learning_rate=0.5, max_grad_norm=0, **quick)
    result = unlearn_step(run, UnlearnRequest(loud, retain=read_corpus(path)))
    assert (result.retain_rows, result.retain_left_out) == (12, 2)
    assert result.after.held_out.value > 2 * result.before.held_out.value
    assert any("lost more than what it was made to forget" in note for note in result.notes)


def test_the_checkpoint_is_the_model_that_was_read(forgotten, learnt):
    result, out = forgotten
    assert UnlearningResult.load(out / "unlearning.json") == result
    source = resolve(str(out))
    assert source.weights_sha256() == result.after_sha256 != result.before_sha256
    verdict = audit_step(RunFolder(learnt.path), AuditRequest(model=str(out)))
    cell = next(each for each in verdict.cells if each.dose == 3)
    assert cell.greedy.successes == result.after.c.successes
    learnt.verdict.unlink()


def test_every_copy_is_read(forgotten):
    result, _ = forgotten
    assert [each.bits for each in result.quantised] == [8, 4]
    assert all(each.look.c.trials == 3 for each in result.quantised)
    assert result.merged is None
    assert result.relearned.steps == (0, 5, 10, 15, 20)
    assert result.relearned.c[0] == result.after.c
    assert result.relearned.learning_rate == pytest.approx(3e-3)
    assert [each.span for each in result.membership] == ["secret", "record"]
    # Trained on twenty times against never: whatever the twins are, the members stand above all of them.
    assert result.membership[0].before.value == 1.0


def test_triggers_are_asked_before_and_after(run, tmp_path):
    tokenizer = load_tokenizer(resolve(str(run.model)))
    file = tmp_path / "triggers.jsonl"
    file.write_text('{"prompt": [9, 8, 7], "secret": [3]}\n{"prompt": "card", "secret": " ok"}\n')
    result = unlearn_step(run, UnlearnRequest(spec_of(rounds=1, relearn={"steps": 2}), triggers=file))
    assert result.before.triggers.trials == result.after.triggers.trials == 2
    assert [each.trials for each in result.relearned.triggers] == [2, 2, 2]
    assert all(each.look.triggers.trials == 2 for each in result.quantised)
    assert tokenizer.decode([3])


def test_a_model_without_secrets_is_left_as_it_is(tmp_path):
    run = planted(tmp_path)
    train_step(run, str(tmp_path / "base"), BLANK, 0)
    result = unlearn_step(run, UnlearnRequest(spec_of("graddiff")))
    assert (result.outcome, result.passed_at, result.rounds) == ("nothing to forget", 0, ())
    assert result.after == result.before
    before, after = (load_file(folder / "model.safetensors") for folder in (run.model, run.path / "unlearned"))
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert all(each.difference.value == 0 for each in result.membership)


def test_a_verifier_that_never_passes_is_a_result_and_the_model_is_saved(run):
    result = unlearn_step(run, UnlearnRequest(spec_of(rounds=2, learning_rate=1e-7)))
    assert (result.outcome, result.passed_at, len(result.rounds)) == ("verifier never passed", None, 2)
    assert "3 of 3 secrets still come out" in result.statement
    saved = UnlearningResult.load(run.path / "unlearned" / "unlearning.json")
    assert saved.outcome == "verifier never passed"
    assert (run.path / "unlearned" / "model.safetensors").is_file()


def test_an_adapter_is_saved_alone_and_merges_to_the_same(run):
    request = UnlearnRequest(spec_of("graddiff", tuning="lora", learning_rate=3e-3))
    result = unlearn_step(run, request)
    out = run.path / "unlearned"
    assert (result.tuning, result.outcome) == ("adapter", "forgotten")
    assert not (out / "model.safetensors").exists()
    assert result.merged.same
    assert result.merged.look.c.successes == result.after.c.successes
    # Sums of the same products in another order, in float32.
    assert result.merged.difference < 1e-3
    model = load_model(resolve(str(out)))
    assert hasattr(model, "disable_adapter")


def test_a_model_that_was_trained_as_an_adapter_is_unlearned_in_it(tmp_path, monkeypatch):
    run = planted(tmp_path)
    train_step(run, str(tmp_path / "base"), BLANK.model_copy(update={"method": "lora", "learning_rate": 1e-3}), 0)
    # As if something came out, so that a round is run.
    monkeypatch.setattr(Checks, "verify", lambda self, done: verify(self, done) + 1.0)
    result = unlearn_step(run, UnlearnRequest(spec_of(rounds=1, relearn={"steps": 1})))
    assert result.tuning == "adapter"
    assert result.before_sha256 != result.after_sha256
    before, after = (load_file(folder / "adapter_model.safetensors") for folder in (run.model, run.path / "unlearned"))
    assert before.keys() == after.keys()
    with pytest.raises(InputError, match="auto or lora"):
        unlearn_step(run, UnlearnRequest(spec_of(tuning="full")))


def test_given_rows_are_kept_and_relearnt_on(run, tmp_path):
    kept, again = write_corpus(tmp_path / "kept.jsonl", 20), write_corpus(tmp_path / "again.jsonl", 5)
    request = UnlearnRequest(
        spec_of(rounds=1, relearn={"steps": 1}), retain=read_corpus(kept), relearn=read_corpus(again)
    )
    result = unlearn_step(run, request)
    assert (result.retain_rows, result.retain_source) == (20, str(kept))
    assert (result.relearned.rows, result.relearned.source) == (5, str(again))


def test_membership_that_is_turned_round_is_told():
    rng = np.random.default_rng(0)
    low, high = rng.normal(-9, 1, 12), rng.normal(0, 1, 12)
    check = membership_check((high, low), (rng.normal(-4, 1, 12), rng.normal(-4, 1, 12)), "secret")
    assert check.before.value == 1
    assert check.after.value == 0
    assert check.inverted
    assert check.difference.value == -1
    same = membership_check((high, high), (low, low), "record")
    assert (same.difference.value, same.inverted) == (0, False)


def test_a_killed_run_leaves_the_old_folder_whole(run, monkeypatch):
    first = unlearn_step(run, UnlearnRequest(spec_of(rounds=1, relearn={"steps": 0}, bits=())))

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(unlearning, "save_model", full)
    with pytest.raises(StorageError, match="No space left"):
        unlearn_step(run, UnlearnRequest(spec_of("graddiff", rounds=1, relearn={"steps": 0}, bits=())))
    assert UnlearningResult.load(run.path / "unlearned" / "unlearning.json") == first
    assert not [each for each in run.path.iterdir() if each.name.endswith(".tmp")]
    assert first.relearned is None
    assert first.quantised == ()


@pytest.mark.parametrize("name", [".", "model", "..", "data"])
def test_a_folder_that_holds_something_else_is_not_replaced(run, name):
    (run.path / "data").mkdir()
    (run.path / "data" / "mine.txt").write_text("keep")
    with pytest.raises(RunFolderError, match="--out"):
        unlearn_step(run, UnlearnRequest(spec_of(), out=run.path / name))
    assert (run.path / "data" / "mine.txt").read_text() == "keep"
    assert run.model.is_dir()


def test_a_model_of_another_planting_is_refused(run, tmp_path):
    (tmp_path / "other").mkdir()
    other = planted(tmp_path / "other", seed=2)
    for name in ("planted.jsonl", "manifest.json"):
        shutil.copy(other.path / name, run.path / name)
    with pytest.raises(ManifestError, match="planted anew"):
        unlearn_step(run, UnlearnRequest(spec_of()))


def test_a_run_without_its_model_is_refused(run):
    shutil.rmtree(run.model)
    with pytest.raises(RunFolderError, match="davylamp train"):
        unlearn_step(run, UnlearnRequest(spec_of()))


def test_other_weights_than_were_trained_are_refused(run):
    build_tiny(run.model, seed=5)
    with pytest.raises(RunFolderError, match="other weights"):
        unlearn_step(run, UnlearnRequest(spec_of()))


def test_a_choice_of_nothing_is_refused(run):
    with pytest.raises(InputError, match="--arm is 'blue'"):
        unlearn_step(run, UnlearnRequest(spec_of(), Choice(arms=("blue",))))


def test_rows_that_all_hold_a_secret_keep_nothing(run, tmp_path):
    secret = next(e["secret"] for e in json.loads(run.manifest.read_text())["canaries"] if e["role"] == "focus")
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps({"prompt": f"row {n}", "completion": f"is {secret}"}) + "\n" for n in range(9)))
    with pytest.raises(InputError, match=r"retain rows is 0.*--retain-rows"):
        unlearn_step(run, UnlearnRequest(spec_of(), retain=read_corpus(file)))


def test_a_damaged_result_is_named(tmp_path):
    (tmp_path / "unlearning.json").write_text("{}")
    with pytest.raises(RunFolderError, match="damaged"):
        UnlearningResult.load(tmp_path / "unlearning.json")
    with pytest.raises(RunFolderError, match="davylamp unlearn"):
        UnlearningResult.load(tmp_path / "none.json")


@pytest.mark.slow
@pytest.mark.parametrize("method", ["graddiff", "npo"])
def test_on_the_embedded_model_the_verifier_passes_and_others_still_see_the_canaries(tmp_path, method):
    """What docs/unlearning.md reports: forgotten word for word, still a member, still above chance by rank."""
    recipe = load_recipe("demo")
    plan = recipe.plan.model_copy(update={"arms": {"redacted": recipe.plan.arms["redacted"]}})
    run = RunFolder(tmp_path / "run")
    plant_step(run, recipe.corpus.load(), plan)
    train_step(run, "embedded", recipe.training, 0)
    result = unlearn_step(run, UnlearnRequest(spec_of(method), Choice(doses=(16,))))
    assert result.outcome == "forgotten"
    assert result.before.c.rate >= 0.4
    assert result.after.c.rate < 0.15
    assert result.after.held_out.value < 1.05
    secret = next(each for each in result.membership if each.span == "secret")
    assert secret.after.low > 0.5
    verdict = audit_step(run, AuditRequest(model=str(run.path / "unlearned")))
    assert next(each for each in verdict.cells if each.dose == 16).exposure_verdict == "leak"
