from __future__ import annotations

import dataclasses
import json
import shutil

import numpy as np
import pytest
import torch
from scipy import stats
from transformers import AutoModelForCausalLM, AutoTokenizer

from davylamp.canaries import Plan
from davylamp.corpora.readers import read_corpus
from davylamp.errors import InputError, ManifestError, PreflightError, RunFolderError
from davylamp.measures.shadow_results import SCORES, ShadowScores
from davylamp.runs.folder import RunFolder
from davylamp.studies.shadow_preparing import prepare
from davylamp.studies.shadow_request import ShadowRequest
from davylamp.studies.shadow_work import read_signals, train_shadows
from davylamp.studies.shadowing import shadows_step
from davylamp.studies.steps import plant_step, train_step
from davylamp.training.shadow_runs import ShadowTask
from davylamp.training.shadow_store import ShadowStore, Signals
from davylamp.training.shadows import ShadowSpec, design
from davylamp.training.spec import TrainingSpec
from support.recipes import tiny_plan, write_corpus
from support.tiny_models import build_tiny

SPEC = {"batch_size": 8, "learning_rate": 0.003, "precision": "float32"}
FEW = ShadowRequest(spec=ShadowSpec(shadows=6), jobs=1, threads=1)
EACH = dataclasses.replace(FEW, together=0)
"""Every shadow by the trainer of the audited model."""


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A corpus and a model of random weights."""
    folder = tmp_path_factory.mktemp("shadowing")
    write_corpus(folder / "data.jsonl", 48)
    build_tiny(folder / "model")
    return folder


@pytest.fixture(scope="module")
def trained(place):
    """A run folder with a model in it."""
    folder = RunFolder(place / "trained")
    plan = Plan.model_validate(tiny_plan(doses=[1, 3], twins=3, nonmembers=1, seed=2))
    plant_step(folder, read_corpus(place / "data.jsonl"), plan)
    train_step(folder, str(place / "model"), TrainingSpec.model_validate(SPEC), 0, None, 1)
    return folder


@pytest.fixture(scope="module")
def shadowed(trained):
    """The same after its shadows."""
    outcome = shadows_step(trained, FEW)
    assert outcome.trained == 6
    return trained, outcome.scores


@pytest.fixture
def copy(shadowed, tmp_path):
    """A copy that may be spoilt."""
    shutil.copytree(shadowed[0].path, tmp_path / "run")
    return RunFolder(tmp_path / "run")


@pytest.fixture
def quick(monkeypatch):
    """Signals drawn at random in place of training, for what does not depend on them."""
    from davylamp.studies import shadowing

    def draw(work, task):
        rng = np.random.default_rng(int(task.key[:8], 16))
        logs = tuple(-rng.random(length) for length in work.lengths)
        if task.keep is not None:
            task.keep.mkdir(parents=True)
        return Signals(logs, np.zeros(1)).to_bytes({"key": task.key})

    monkeypatch.setattr(shadowing, "train_shadows", lambda work, tasks: [draw(work, task) for task in tasks])


def prepared(folder, request=FEW):
    from davylamp.canaries import Manifest

    manifest = Manifest.load(folder.manifest)
    drawn = design(manifest, read_corpus(folder.planted).records, request.spec)
    training = json.loads(folder.training.read_text("utf-8"))
    return drawn, prepare(manifest, drawn, TrainingSpec.model_validate(training["spec"]), training, request)[0]


def test_the_result_is_on_disk_and_whole(shadowed):
    folder, scores = shadowed
    assert ShadowScores.load(folder.path / "shadow_scores.json") == scores
    assert scores.audited == str(folder.model)
    assert len(scores.records) == 2 * (4 + 3 + 1)
    assert scores.members.shape == (6, 16)
    assert (scores.members.sum(axis=0) == 3).all()
    found = {(series.probe, series.span, series.measure) for series in scores.series}
    for span in ("secret", "reply"):
        for measure in (*SCORES, "counterfactual_probability", "counterfactual_log_loss"):
            assert ("hidden", span, measure) in found
            assert ("as_trained", span, measure) in found
    for series in scores.series:
        arms = {scores.records[number].arm for number in series.records}
        assert arms == ({"visible", "redacted"} if series.probe == "hidden" else {"visible"})
    assert {trials.measure for trials in scores.trials} == set(SCORES)
    assert len(list((folder.path / "shadows").glob("*.npz"))) == 7


def test_the_shadow_that_holds_what_the_model_was_trained_on_is_the_model(shadowed):
    # The strongest check of the rows, the order and the settings: the same signals, to the last bit.
    folder, scores = shadowed
    drawn, work = prepared(folder, EACH)
    members = tuple(target.canary.dose > 0 for target in drawn.targets)
    seed = json.loads(folder.training.read_text("utf-8"))["seed"]
    store = ShadowStore(folder.path / "again")
    store.save("k", train_shadows(work, [ShadowTask(0, members, seed, "k")])[0])
    known = {path.stem for path in (folder.path / "shadows").iterdir()} - {key[:32] for key in scores.keys}
    audited = np.load(folder.path / "shadows" / f"{known.pop()}.npz")
    found = store.load("k", work.lengths)
    np.testing.assert_array_equal(np.concatenate(found.logprobs), audited["logprobs"])
    losses = json.loads(folder.training.read_text("utf-8"))["losses"]
    np.testing.assert_array_equal(found.losses, losses)


def test_scores_are_those_of_the_signals(shadowed):
    """LiRA and memorization of one record, from the files, by hand."""
    folder, scores = shadowed
    drawn, work = prepared(folder)
    store = ShadowStore(folder.path / "shadows")
    signals = [store.load(key, work.lengths) for key in scores.keys]
    at = next(n for n, target in enumerate(drawn.targets) if target.dose == 3)
    first, last = (place - work.replies[at] for place in work.scored[at].secret)
    logs = np.array([each.logprobs[at][first:last] for each in signals])
    inside = scores.members[:, at]
    totals = logs.sum(axis=1)
    series = {(s.probe, s.span, s.measure): s for s in scores.series}
    value = series["hidden", "secret", "counterfactual_probability"]
    expected = np.exp(totals)[inside].mean() - np.exp(totals)[~inside].mean()
    assert value.values[value.records.index(at)] == pytest.approx(expected)
    p = np.exp(logs.mean(axis=1))
    phi = np.log(p / (1 - p))
    own = scores.records[at]
    mates = [n for n, r in enumerate(scores.records) if (r.arm, r.shadow_dose) == (own.arm, own.shadow_dose)]
    squares = free = 0.0
    for mate in mates:
        start, end = (place - work.replies[mate] for place in work.scored[mate].secret)
        q = np.exp([each.logprobs[mate][start:end].mean() for each in signals])
        out = np.log(q / (1 - q))[~scores.members[:, mate]]
        squares, free = squares + ((out - out.mean()) ** 2).sum(), free + len(out) - 1
    audited_file = next(f for f in store.folder.iterdir() if f.stem not in {k[:32] for k in scores.keys})
    audited = np.split(np.load(audited_file)["logprobs"], np.cumsum(work.lengths)[:-1])[at][first:last].mean()
    z = (np.log(np.exp(audited) / (1 - np.exp(audited))) - phi[~inside].mean()) / np.sqrt(squares / free)
    lira = series["hidden", "secret", "lira_offline"]
    assert lira.values[lira.records.index(at)] == pytest.approx(-stats.norm.logsf(z), rel=1e-6)


def test_again_nothing_is_trained_and_the_result_is_the_same(copy, shadowed):
    before = (shadowed[0].path / "shadow_scores.json").read_bytes()
    assert shadows_step(copy, FEW).trained == 0
    after = (copy.path / "shadow_scores.json").read_bytes()
    assert after.replace(str(copy.model).encode(), str(shadowed[0].model).encode()) == before


def test_a_run_that_was_killed_trains_only_what_is_missing(copy, shadowed, monkeypatch):
    files = {path.name: path.read_bytes() for path in (copy.path / "shadows").iterdir()}
    gone = [f"{key[:32]}.npz" for key in shadowed[1].keys[1:3]]
    (copy.path / "shadows" / gone[0]).unlink()
    (copy.path / "shadows" / gone[1]).write_bytes(files[gone[1]][:100])
    assert shadows_step(copy, FEW).trained == 2
    assert {path.name: path.read_bytes() for path in (copy.path / "shadows").iterdir()} == files


def test_what_was_finished_before_a_failure_is_kept(copy, quick, monkeypatch):
    from davylamp.studies import shadowing

    shutil.rmtree(copy.path / "shadows")
    draw = shadowing.train_shadows

    def interrupted(work, tasks):
        if tasks[0].index == 4:
            raise KeyboardInterrupt
        return draw(work, tasks)

    monkeypatch.setattr(shadowing, "train_shadows", interrupted)
    with pytest.raises(KeyboardInterrupt):
        shadows_step(copy, FEW)
    assert len(list((copy.path / "shadows").glob("*.npz"))) == 4
    monkeypatch.setattr(shadowing, "train_shadows", draw)
    assert shadows_step(copy, FEW).trained == 2


def test_more_shadows_train_only_those_that_are_more(copy, quick):
    assert shadows_step(copy, dataclasses.replace(FEW, spec=ShadowSpec(shadows=8))).trained == 2


@pytest.mark.parametrize("change", ["settings", "twin_dose", "corpus", "model"])
def test_whatever_the_signals_depend_on_makes_other_shadows(copy, place, quick, change, tmp_path):
    request = {
        "settings": dataclasses.replace(FEW, settings=("learning_rate=0.001",)),
        "twin_dose": dataclasses.replace(FEW, spec=ShadowSpec(shadows=6, twin_dose=2)),
        "corpus": dataclasses.replace(FEW, corpus=read_corpus(place / "data.jsonl")),
    }.get(change)
    if request is None:
        request = dataclasses.replace(FEW, model=str(build_tiny(tmp_path / "other", seed=3)))
    outcome = shadows_step(copy, request)
    assert outcome.trained == 6
    assert outcome.scores.background == ("corpus" if change == "corpus" else "planted")
    warned = any("other settings" in note for note in outcome.scores.notes)
    assert warned == (change == "settings")


def test_twins_that_are_in_no_shadow_have_offline_scores_only(copy, quick):
    outcome = shadows_step(copy, dataclasses.replace(FEW, spec=ShadowSpec(shadows=6, twin_dose=0)))
    roles = {
        series.measure: {outcome.scores.records[number].role for number in series.records}
        for series in outcome.scores.series
        if series.probe == "hidden"
    }
    assert roles["lira_offline"] == roles["rmia_offline"] == {"focus", "twin", "nonmember"}
    for measure in ("lira_online", "rmia", "rmia_ratio", "counterfactual_probability"):
        assert roles[measure] == {"focus"}


def test_without_a_trained_model_shadows_are_attacked_in_turn(copy, place):
    shutil.rmtree(copy.model)
    copy.training.unlink()
    with pytest.raises(RunFolderError, match="--model BASE"):
        shadows_step(copy, FEW)
    settings = tuple(f"{name}={value}" for name, value in SPEC.items())
    outcome = shadows_step(copy, dataclasses.replace(FEW, model=str(place / "model"), settings=settings))
    # They are those that were trained with training.json's settings.
    assert outcome.trained == 0
    assert outcome.scores.audited is None
    assert not {series.measure for series in outcome.scores.series} & set(SCORES)
    assert {trials.measure for trials in outcome.scores.trials} == set(SCORES)


def test_models_are_kept_where_that_is_asked(copy, quick):
    request = dataclasses.replace(FEW, keep_models=True)
    # The signals are there, the models are not.
    outcome = shadows_step(copy, request)
    assert outcome.trained == 6
    folders = {folder.name for folder in (copy.path / "shadows" / "models").iterdir()}
    assert folders == {key[:32] for key in outcome.scores.keys}
    assert shadows_step(copy, request).trained == 0


def test_a_kept_model_is_the_one_that_the_signals_are_of(copy, tmp_path):
    _, work = prepared(copy)
    task = ShadowTask(0, (True,) * len(work.records), 1, "k", tmp_path / "kept")
    store = ShadowStore(tmp_path)
    store.save("k", train_shadows(work, [task])[0])
    tokenizer = AutoTokenizer.from_pretrained(task.keep)
    model = AutoModelForCausalLM.from_pretrained(task.keep)
    again = read_signals(work, model, tokenizer)
    np.testing.assert_array_equal(
        np.concatenate(again.logprobs), np.concatenate(store.load("k", work.lengths).logprobs)
    )


def test_fewer_than_six_shadows_leave_no_trials_and_say_so(copy):
    outcome = shadows_step(copy, dataclasses.replace(FEW, spec=ShadowSpec(shadows=4)))
    assert outcome.trained == 0
    assert outcome.scores.trials == ()
    assert any("6 shadows" in note for note in outcome.scores.notes)


def test_adapters_have_shadows_too(copy, place):
    settings = {**SPEC, "method": "lora", "lora": {"r": 2}, "learning_rate": 0.05}
    made = train_step(copy, str(place / "model"), TrainingSpec.model_validate(settings), 5, None, 1)
    drawn, work = prepared(copy)
    assert "peft" in work.versions
    members = tuple(target.canary.dose > 0 for target in drawn.targets)
    store = ShadowStore(copy.path / "again")
    store.save("k", train_shadows(work, [ShadowTask(0, members, 5, "k")])[0])
    np.testing.assert_array_equal(store.load("k", work.lengths).losses, made["losses"])
    # Another seed begins from another adapter.
    store.save("l", train_shadows(work, [ShadowTask(0, members, 6, "l")])[0])
    assert not np.array_equal(store.load("l", work.lengths).losses, made["losses"])


def test_an_audited_adapter_is_read_over_its_base(copy, place, quick):
    settings = {**SPEC, "method": "lora", "lora": {"r": 2}, "learning_rate": 0.05}
    train_step(copy, str(place / "model"), TrainingSpec.model_validate(settings), 5, None, 1)
    assert shadows_step(copy, FEW).scores.audited == str(copy.model)


def test_packed_rows_give_the_model_itself_too(place, tmp_path):
    folder = RunFolder(tmp_path / "run")
    plant_step(folder, read_corpus(place / "data.jsonl"), Plan.model_validate(tiny_plan()))
    spec = {**SPEC, "packing": True, "max_length": 128, "batch_size": 2}
    made = train_step(folder, str(place / "model"), TrainingSpec.model_validate(spec), 0, None, 1)
    drawn, work = prepared(folder)
    members = tuple(target.canary.dose > 0 for target in drawn.targets)
    store = ShadowStore(folder.path / "again")
    store.save("k", train_shadows(work, [ShadowTask(0, members, 0, "k")])[0])
    np.testing.assert_array_equal(store.load("k", work.lengths).losses, made["losses"])


def test_what_does_not_fit_is_refused(copy, place, tmp_path):
    with pytest.raises(InputError, match=r"training\.learning_rate"):
        shadows_step(copy, dataclasses.replace(FEW, settings=("learning_rate=-1",)))
    with pytest.raises(PreflightError, match="would receive no loss"):
        shadows_step(copy, dataclasses.replace(FEW, settings=("max_length=40",)))
    other = build_tiny(tmp_path / "merging", digits_isolated=False)
    with pytest.raises(RunFolderError, match="another tokenizer"):
        shadows_step(copy, dataclasses.replace(FEW, audited=str(other)))
    corpus = read_corpus(write_corpus(tmp_path / "other.jsonl", 47))
    with pytest.raises(InputError, match="--corpus"):
        shadows_step(copy, dataclasses.replace(FEW, corpus=corpus))
    text = copy.training.read_text("utf-8")
    copy.training.write_text(text.replace('"planted_sha256": "', '"planted_sha256": "0'), "utf-8")
    with pytest.raises(ManifestError, match="planted anew"):
        shadows_step(copy, FEW)
    copy.training.write_text(text.replace('"spec": {', '"spec": {"x": 1,'), "utf-8")
    with pytest.raises(RunFolderError, match="'spec' is damaged"):
        shadows_step(copy, FEW)


def test_a_base_that_was_changed_is_refused(copy, place, tmp_path):
    moved = shutil.copytree(place / "model", tmp_path / "base")
    train_step(copy, str(moved), TrainingSpec.model_validate(SPEC), 0, None, 1)
    build_tiny(moved, seed=9)
    with pytest.raises(RunFolderError, match="other weights"):
        shadows_step(copy, FEW)


def test_readings_are_named_as_all_membership_scores_are(shadowed):
    _, scores = shadowed
    readings = scores.readings()
    names = {reading.measure for reading in readings}
    assert {"membership_lira_online", "membership_lira_online_secret", "counterfactual_log_loss_noise_secret"} <= names
    for reading in readings:
        if reading.context == "redacted":
            assert reading.probe == "as_trained"
        assert reading.role in ("focus", "twin", "nonmember")
    keys = [(r.canary, r.probe, r.measure) for r in readings]
    assert len(set(keys)) == len(keys)


def test_no_file_holds_a_secret(shadowed):
    folder, _ = shadowed
    text = (folder.path / "shadow_scores.json").read_text("utf-8")
    manifest = json.loads(folder.manifest.read_text("utf-8"))
    assert not [canary["id"] for canary in manifest["canaries"] if canary["secret"] in text]


def test_a_stack_of_shadows_is_what_the_trainer_makes_but_for_the_order_of_sums(shadowed):
    folder, _ = shadowed
    drawn, stack = prepared(folder)
    _, each = prepared(folder, EACH)
    assert stack.stacked
    assert not each.stacked
    members = [tuple(map(bool, flags)) for flags in drawn.inside[:2]]
    tasks = [ShadowTask(index, flags, 0, f"k{index}") for index, flags in enumerate(members)]
    store = ShadowStore(folder.path / "compared")
    for work in (stack, each):
        for task, data in zip(tasks, train_shadows(work, tasks), strict=True):
            store.save(f"{task.key}{work.stacked}", data)
    for task in tasks:
        one, other = (np.load(store.path(f"{task.key}{kind}")) for kind in (True, False))
        # A dozen steps at 3e-3; log-probabilities reach -100 nats here.
        np.testing.assert_allclose(one["losses"], other["losses"], rtol=1e-4)
        np.testing.assert_allclose(one["logprobs"], other["logprobs"], rtol=1e-3, atol=1e-3)


def test_how_many_are_trained_at_once_changes_no_byte(copy):
    files = {path.name: path.read_bytes() for path in (copy.path / "shadows").iterdir()}
    shutil.rmtree(copy.path / "shadows")
    assert shadows_step(copy, dataclasses.replace(FEW, together=1)).trained == 6
    assert {path.name: path.read_bytes() for path in (copy.path / "shadows").iterdir()} == files


@pytest.mark.slow
@pytest.mark.parametrize("request_", [FEW, EACH], ids=["together", "each"])
@pytest.mark.parametrize("how", [{"jobs": 2}, {"executor": "ray", "jobs": 2}], ids=["processes", "ray"])
def test_processes_and_ray_give_the_same_bytes(copy, how, request_):
    if "executor" in how:
        pytest.importorskip("ray", reason="the extra 'ray' is not installed")
    shadows_step(copy, request_)
    files = {path.name: path.read_bytes() for path in (copy.path / "shadows").iterdir()}
    shutil.rmtree(copy.path / "shadows")
    assert shadows_step(copy, dataclasses.replace(request_, **how)).trained == 6
    found = {path.name: path.read_bytes() for path in (copy.path / "shadows").iterdir()}
    assert found == {name: files[name] for name in found}
    assert len(found) == 7
