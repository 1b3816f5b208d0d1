"""Membership within an audit: from the command line to membership.json."""

from __future__ import annotations

import json
import re
import shutil
import sys

import pytest
import torch

from davylamp.canaries import Plan
from davylamp.cli.main import main
from davylamp.errors import InputError, RecipeError
from davylamp.measures import readings as tables
from davylamp.measures.membership.notes import MembershipNotes
from davylamp.measures.shadow_results import ShadowScores
from davylamp.runs.config import validate
from davylamp.runs.folder import RunFolder
from davylamp.studies.audit_spec import AuditSpec
from davylamp.studies.auditing import AuditRequest, audit_step
from davylamp.studies.steps import plant_step, train_step
from davylamp.training.spec import TrainingSpec
from davylamp.verdict.epsilon import EpsilonResult
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


LIRA = ("--measures", "lira", "--shadows", "6", "--jobs", "1", "--quiet", "shadows.twin_dose=0")


def test_shadows_are_trained_attacked_and_judged_by_the_audit(made, run, davylamp):
    settings = ["membership.fprs=[0.1]", "shadows.twin_dose=0", "membership.shots=2"]
    asked = ("--measures", "membership,lira", "--shadows", "6", "--jobs", "1", "--quiet")
    code, said = davylamp("audit", run.path, *settings, *asked)
    assert code == 0, said
    result, notes = read(run)
    # No twin is in a shadow: so only the scores that need none with the record are given, and the others are named.
    assert {"lira_offline", "rmia_offline", "loss"} <= {cell.score for cell in result.cells}
    assert "lira_online" not in {cell.score for cell in result.cells}
    assert ["lira_online" in sentence for sentence in notes.left_out] == [True]
    assert notes.shadows == 6
    assert {note.name for note in notes.scores} == {cell.score for cell in result.cells}
    scores = ShadowScores.load(run.shadow_scores)
    audit = json.loads(run.audit.read_text("utf-8"))
    assert scores.audited_sha256 == audit["weights_sha256"]
    frame = tables.load(run.readings)
    series = next(
        each
        for each in scores.series
        if (each.measure, each.span, each.probe) == ("lira_offline", "secret", "as_trained")
    )
    number = series.records[0]
    row = frame.filter(
        (frame["measure"] == "membership_lira_offline_secret") & (frame["canary"] == scores.records[number].canary)
    )
    assert row["value"].to_list() == [series.values[0]]
    bounds = EpsilonResult.load(run.epsilon)
    assert {row.audit for row in bounds.rows} == {"pairs", "coins", "extraction"}


def test_shadows_that_are_there_are_taken_as_they_are(made, run, davylamp):
    code, said = davylamp("audit", run.path, *LIRA)
    assert code == 0, said
    before = {path: path.stat().st_mtime_ns for path in run.path.glob("shadows/*")}
    scores = run.shadow_scores.read_bytes()
    assert davylamp("audit", run.path, *LIRA)[0] == 0
    assert run.shadow_scores.read_bytes() == scores
    assert {path: path.stat().st_mtime_ns for path in run.path.glob("shadows/*")} == before


def test_options_of_shadows_need_lira(made, run, davylamp):
    code, said = davylamp("audit", run.path, "--shadows", "6", "--quiet")
    assert code == 2
    assert "lira" in said
    assert "--shadows" in said


def test_an_odd_number_of_shadows_is_refused_before_anything_is_read(made, run, davylamp):
    code, said = davylamp("audit", run.path, "--measures", "lira", "--shadows", "5", "--quiet")
    assert code == 2
    assert "shadows" in said


def test_shadows_of_a_model_that_was_trained_elsewhere_take_the_verb_of_their_own(made, run, davylamp):
    run.training.unlink()
    code, said = davylamp("audit", run.path, *LIRA, "--model", run.model)
    assert code != 0
    assert "davylamp shadows" in said
    trained = (
        "--shadows",
        "6",
        "--jobs",
        "1",
        "--model",
        made[1],
        "--audited",
        run.model,
        "--quiet",
        "--twin-dose",
        "0",
    )
    settings = ("precision=float32", "style=plain")
    code, said = davylamp("shadows", run.path, *settings, *trained)
    assert code == 0, said
    code, said = davylamp("audit", run.path, *LIRA, "--model", run.model, "--style", "plain")
    assert code == 0, said
    assert RunFolder(run.path).membership.is_file()


def test_scores_are_sorted_by_a_rate_that_is_resolved(made, run, monkeypatch, capsys):
    asked = ("--measures", "membership", "membership.shots=2", "membership.scores=[loss,zlib]", "--quiet")
    for fprs, words in (("[0.001,0.1]", "what is found at 10%"), ("[0.001]", "AUC")):
        monkeypatch.setattr(sys, "argv", ["davylamp", "audit", str(run.path), *asked, f"membership.fprs={fprs}"])
        with pytest.raises(SystemExit):
            main()
        out = capsys.readouterr().out
        assert f"sorted by {words}" in out
        if words == "AUC":
            for arm in out.split("membership, arm ")[1:]:
                read = [float(each) for each in re.findall(r"AUC (\d\.\d\d) \[", arm)]
                assert len(read) > 1
                assert read == sorted(read, reverse=True)
