"""What a step refuses before it writes, and what it leaves behind when it fails."""

from __future__ import annotations

import json
import shutil

import pytest
import torch

from davylamp.canaries import Plan
from davylamp.errors import InputError, RunFolderError, StorageError
from davylamp.measures import readings as tables
from davylamp.measures.probes import Probe
from davylamp.measures.unseen import UnseenSettings
from davylamp.runs.folder import RunFolder
from davylamp.studies.audit_spec import AuditSpec
from davylamp.studies.auditing import AuditRequest, audit_step
from davylamp.studies.steps import plant_step, train_step
from davylamp.training.spec import TrainingSpec
from support.corpora import small_corpus
from support.recipes import tiny_plan
from support.tiny_models import build_tiny


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A run folder after its audit, and the base that it was trained from."""
    torch.set_num_threads(1)
    place = tmp_path_factory.mktemp("steps")
    base, folder = build_tiny(place / "base"), RunFolder(place / "run")
    plant_step(folder, small_corpus(24), Plan.model_validate(tiny_plan()))
    train_step(folder, str(base), TrainingSpec(precision="float32", style="plain"), 0)
    audit_step(folder, AuditRequest())
    return folder, base


@pytest.fixture
def run(made, tmp_path):
    shutil.copytree(made[0].path, tmp_path / "run")
    return RunFolder(tmp_path / "run")


def test_a_model_whose_training_nothing_describes_is_named_as_a_checkpoint_or_refused(run):
    # As after a process that was killed between the model and its training.json.
    run.training.unlink()
    with pytest.raises(RunFolderError, match=r"training\.json is missing.*davylamp train.*--model"):
        audit_step(run, AuditRequest())
    audit_step(run, AuditRequest(model=str(run.model), style="plain"))


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data.update(spec=[1]),
        lambda data: data["spec"].update(style="other"),
        lambda data: data.pop("spec"),
        lambda data: data.update(model="x"),
    ],
)
def test_a_damaged_training_is_named(run, change):
    data = json.loads(run.training.read_text("utf-8"))
    change(data)
    run.training.write_text(json.dumps(data), "utf-8")
    with pytest.raises(RunFolderError, match=r"training\.json"):
        audit_step(run, AuditRequest())


@pytest.mark.parametrize("content", ["", "null", "[]", "[" * 200_000])
def test_a_training_that_is_no_object_is_named(run, content):
    run.training.write_text(content, "utf-8")
    with pytest.raises(RunFolderError, match=r"training\.json"):
        audit_step(run, AuditRequest())


def test_an_audit_without_a_verdict_leaves_what_was_there(run, monkeypatch):
    def refuse(*_):
        raise RunFolderError("no verdict")

    before = {path.name: path.read_bytes() for path in run.path.iterdir() if path.is_file()}
    monkeypatch.setattr("davylamp.studies.auditing.judge", refuse)
    with pytest.raises(RunFolderError, match="no verdict"):
        audit_step(run, AuditRequest(spec=AuditSpec(probes=(Probe.HIDDEN,))))
    assert {path.name: path.read_bytes() for path in run.path.iterdir() if path.is_file()} == before


def test_no_verdict_stands_beside_readings_that_it_was_not_given_on(run, monkeypatch):
    def full(*_, **__):
        raise StorageError("cannot write")

    monkeypatch.setattr("davylamp.verdict.Verdict.save", full)
    with pytest.raises(StorageError):
        audit_step(run, AuditRequest())
    assert not run.verdict.exists()


def test_the_reference_is_read_with_the_secret_hidden_whatever_stands_first(made, run):
    spec = AuditSpec(
        probes=(Probe.REPLACEMENT, Probe.HIDDEN), exposure_probes=(Probe.REPLACEMENT, Probe.AS_TRAINED, Probe.HIDDEN)
    )
    audit_step(run, AuditRequest(reference=str(made[1]), spec=spec))
    frame = tables.load(run.readings)
    reference = frame.filter(frame["release"] == tables.REFERENCE)
    said = reference.filter(reference["measure"] == "greedy_recovery")
    assert set(said["probe"]) == {"hidden"}
    assert len(set(said["canary"])) == len(set(frame["canary"]))


def test_a_reference_whose_tokens_have_other_numbers_is_refused(run, tmp_path):
    # Both write "0 aA." alike; two letters that stand elsewhere have changed places.
    base = build_tiny(tmp_path / "base")
    data = json.loads((base / "tokenizer.json").read_text("utf-8"))
    vocabulary = data["model"]["vocab"]
    vocabulary["q"], vocabulary["z"] = vocabulary["z"], vocabulary["q"]
    (base / "tokenizer.json").write_text(json.dumps(data), "utf-8")
    with pytest.raises(RunFolderError, match="another tokenizer"):
        audit_step(run, AuditRequest(reference=str(base)))


# --- the model before, unseen codes, variants

UNSEEN = UnseenSettings(codes=3, encodings=("cyclic_shift(1)",), exposure=True)


def asked_of(run, release):
    frame = tables.load(run.readings)
    part = frame.filter(frame["release"] == release)
    return set(part.select("canary", "probe", "target", "measure").rows())


def test_whatever_needs_a_reference_is_named_before_anything_is_read(run):
    before = {path.name: path.read_bytes() for path in run.path.iterdir() if path.is_file()}
    measures = ("exposure", "recovery", "kappa")
    for spec, said in (
        (AuditSpec(before=True), ["before"]),
        (AuditSpec(before=True, measures=measures), ["kappa", "before"]),
    ):
        with pytest.raises(InputError) as caught:
            audit_step(run, AuditRequest(spec=spec))
        assert [fault.field for fault in caught.value.faults] == ["--reference"] * len(said)
        assert all(word in str(fault) for word, fault in zip(said, caught.value.faults, strict=True))
    assert {path.name: path.read_bytes() for path in run.path.iterdir() if path.is_file()} == before


def test_the_model_before_is_asked_under_every_probe_and_for_unseen_codes(made, run):
    spec = AuditSpec(before=True, exposure_probes=tuple(Probe), unseen=UNSEEN)
    audit_step(run, AuditRequest(reference=str(made[1]), spec=spec))
    assert asked_of(run, "model") == asked_of(run, "reference")
    assert {probe for _, probe, *_ in asked_of(run, "reference")} == {
        *(probe.value for probe in Probe if probe is not Probe.REPLACEMENT_ENCODED),
        "unseen",
        "unseen:cyclic_shift(1)",
    }


def test_a_reference_that_is_there_for_kappa_alone_is_not_asked_for_unseen_codes(made, run):
    audit_step(run, AuditRequest(reference=str(made[1]), spec=AuditSpec(unseen=UNSEEN)))
    assert {probe for _, probe, *_ in asked_of(run, "reference")} == {"hidden"}
    assert "unseen" in {probe for _, probe, *_ in asked_of(run, "model")}


def test_unseen_codes_change_nothing_of_the_verdict_but_the_rates_of_copying(run):
    own = audit_step(run, AuditRequest())
    plain = asked_of(run, "model")
    with_codes = audit_step(run, AuditRequest(spec=AuditSpec(unseen=UNSEEN)))
    assert (with_codes.cells, with_codes.controls, with_codes.given) == (own.cells, own.controls, own.given)
    more = asked_of(run, "model") - plain
    assert plain < asked_of(run, "model")
    # 3 codes, in clear and encoded, for both targets: greedily, in the reply, and 5 readings of the rank.
    assert len(more) == 3 * 2 * 2 * (2 + 5)
    assert {row.probe for row in with_codes.copying} - {row.probe for row in own.copying} == {
        "unseen",
        "unseen:cyclic_shift(1)",
    }


def test_unseen_codes_that_do_not_fit_are_named_before_anything_is_read(run, monkeypatch):
    def read(*_):
        raise AssertionError("it was read")

    monkeypatch.setattr("davylamp.measures.exposure.Exposure.measure", read)
    # 125 codes, 26 of them held by 13 canaries and as many replacements.
    spec = AuditSpec(unseen=UnseenSettings(codes=100))
    with pytest.raises(InputError, match=r"audit\.unseen\.codes is 100; allowed: at most 99"):
        audit_step(run, AuditRequest(spec=spec))


def test_an_audit_says_of_which_variant_it_is(run):
    audit_step(run, AuditRequest(variant="late"))
    assert json.loads(run.audit.read_text("utf-8"))["variant"] == "late"
    audit_step(run, AuditRequest())
    assert json.loads(run.audit.read_text("utf-8"))["variant"] is None
