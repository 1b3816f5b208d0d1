"""Membership within an audit: from the command line to membership.json."""

from __future__ import annotations

import json
import shutil
import sys

import pytest
import torch

from davylamp.canaries import Plan
from davylamp.cli.main import main
from davylamp.errors import InputError, RecipeError
from davylamp.measures import readings as tables
from davylamp.measures.membership.measure import MembershipNotes
from davylamp.runs.config import validate
from davylamp.runs.folder import RunFolder
from davylamp.studies.auditing import AuditRequest, audit_step
from davylamp.studies.recipe import AuditSpec
from davylamp.studies.steps import plant_step, train_step
from davylamp.training.spec import TrainingSpec
from davylamp.verdict.membership_model import MembershipResult
from support.corpora import small_corpus
from support.recipes import tiny_plan
from support.tiny_models import build_tiny


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A trained run folder with further non-members, and the base that it was trained from."""
    torch.set_num_threads(1)
    place = tmp_path_factory.mktemp("membership")
    base, folder = build_tiny(place / "base"), RunFolder(place / "run")
    plant_step(folder, small_corpus(24), Plan.model_validate(tiny_plan(nonmembers=20)))
    train_step(folder, str(base), TrainingSpec(precision="float32", style="plain"), 0)
    return folder, base


@pytest.fixture
def run(made, tmp_path):
    shutil.copytree(made[0].path, tmp_path / "run")
    return RunFolder(tmp_path / "run")


@pytest.fixture
def davylamp(monkeypatch, capsys):
    """Runs the command as its entry point does; returns exit code and standard error."""

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["davylamp", *map(str, arguments)])
        try:
            main()
        except SystemExit as end:
            return end.code or 0, capsys.readouterr().err
        return 0, capsys.readouterr().err

    return call


def read(folder):
    data = json.loads((folder.path / "membership.json").read_text("utf-8"))
    notes = MembershipNotes.model_validate(data.pop("notes"))
    return MembershipResult.model_validate(data), notes


def test_the_command_line_writes_readings_and_the_result(made, run, davylamp):
    settings = ["membership.fprs=[0.1,0.001]", "membership.shots=2"]
    asked = ("--measures", "membership", "--reference", made[1], "--quiet")
    assert davylamp("audit", run.path, *settings, *asked)[0] == 0
    result, notes = read(run)
    assert set(result.nonmembers) == {"visible", "redacted"}
    # Two twins and 20 further ones in each arm, less the shots.
    assert {cell.nonmembers for cell in result.cells} == {20}
    assert {cell.dose for cell in result.cells} == {None, 1, 2}
    assert {cell.score for cell in result.cells} == {note.name for note in notes.scores}
    assert (notes.reference_how, notes.reference_tokens) == ("checkpoint", "same")
    assert {point.word for cell in result.cells for point in cell.points if point.fpr == 0.001} == {"underpowered"}
    assert {point.word for cell in result.cells for point in cell.points if point.fpr == 0.1} == {"measured"}
    assert len(result.underpowered) == 2
    frame = tables.load(run.readings)
    membership = frame.filter(frame["measure"].str.starts_with("membership_"))
    # Nothing else is read from the further non-members, and membership not from the reference.
    assert set(frame.filter(frame["role"] == "nonmember")["measure"]) == set(membership["measure"])
    assert set(membership["release"]) == {"model"}
    audit = json.loads(run.audit.read_text("utf-8"))
    assert audit["spec"]["measures"] == ["exposure", "recovery", "membership"]
    # An audit without it leaves none behind, since it would be of other readings.
    assert davylamp("audit", run.path, "--quiet")[0] == 0
    assert not (run.path / "membership.json").exists()


def test_a_reference_of_its_own_may_have_another_tokenizer(run, tmp_path):
    other = build_tiny(tmp_path / "other", digits_isolated=False, seed=1)
    membership = {"scores": ("loss", "reference"), "reference": str(other)}
    audit_step(
        run, AuditRequest(spec=AuditSpec(measures=("exposure", "recovery", "membership"), membership=membership))
    )
    _, notes = read(run)
    assert (notes.reference_tokens, notes.reference_how) == ("own", "checkpoint")


def test_a_score_without_the_reference_that_it_needs_is_named_before_anything_is_loaded(run):
    spec = AuditSpec(measures=("exposure", "recovery", "membership", "kappa"), membership={"scores": ("reference",)})
    with pytest.raises(InputError, match=r"(?s)--reference.*calibrates by one.*--reference.*kappa"):
        audit_step(run, AuditRequest(spec=spec))


def test_settings_that_do_not_fit_are_named(run, davylamp):
    with pytest.raises(RecipeError, match=r"audit\.membership\.scores.*score is 'los'"):
        validate(AuditSpec, {"membership": {"scores": ["los"]}}, "audit")
    code, said = davylamp("audit", run.path, "measures=[exposure,recovery]", "--measures", "membership")
    assert code == 2
    assert "--measures is 'membership'; allowed: either this or the setting" in said
    code, said = davylamp("audit", run.path, "--measures", "membershp")
    assert code == 2
    assert "measures" in said
