"""The matrix from what a run folder holds, by its verb."""

from __future__ import annotations

import json

import pytest
import torch

from davylamp.canaries import Plan
from davylamp.runs.folder import RunFolder
from davylamp.studies.audit_spec import AuditSpec
from davylamp.studies.auditing import AuditRequest, audit_step
from davylamp.studies.steps import plant_step, train_step
from davylamp.training.spec import TrainingSpec
from davylamp.verdict.matrix_model import Matrix
from support.corpora import small_corpus
from support.recipes import tiny_plan
from support.tiny_models import build_tiny


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """An audited run without constructions, membership measured."""
    torch.set_num_threads(1)
    place = tmp_path_factory.mktemp("matrix")
    base, folder = build_tiny(place / "base"), RunFolder(place / "run")
    plant_step(folder, small_corpus(24), Plan.model_validate(tiny_plan(nonmembers=20)))
    train_step(folder, str(base), TrainingSpec(precision="float32", style="plain"), 0)
    spec = AuditSpec.model_validate(
        {"measures": ["exposure", "recovery", "membership"], "membership": {"scores": ["loss", "zlib"]}}
    )
    audit_step(folder, AuditRequest(spec=spec))
    return folder


def test_a_release_without_constructions_has_the_same_columns_and_says_where_nobody_looked(run, davylamp):
    code, said, _ = davylamp("matrix", run.path)
    assert code == 0
    found = Matrix.load(run.path / "matrix.json")
    assert {row.kind for row in found.rows} == {"canaries"}
    assert {row.copies for row in found.rows} == {1, 2}
    for row in found.rows:
        assert set(row.cells) == {column.key for column in found.columns}
        assert row.cells["informed"].signal is None
        assert row.cells["lira"].signal is None
        assert row.cells["loss_mia"].signal is not None
    assert any("behind a trigger" in each for each in found.unlooked)
    assert "no clean model" in said
    data = json.loads((run.path / "membership.json").read_text("utf-8"))
    cells = [each for each in data["cells"] if (each["dose"], each["span"], each["arm"]) == (1, "secret", "redacted")]
    best = max(each["auc"]["value"] for each in cells)
    mine = next(row for row in found.rows if row.name == "canaries, redacted, dose 1").cells["loss_mia"]
    assert mine.signal == pytest.approx(max(0.0, 2 * best - 1))


def test_a_run_that_was_not_audited_and_a_threshold_outside_its_range_are_refused(run, davylamp, tmp_path):
    plant_step(RunFolder(tmp_path / "run"), small_corpus(24), Plan.model_validate(tiny_plan()))
    code, _, said = davylamp("matrix", tmp_path / "run")
    assert code != 0
    assert "davylamp audit" in said
    code, _, said = davylamp("matrix", run.path, "--threshold", "2", "--confidence", "1")
    assert code == 2
    assert "--threshold" in said
    assert "--confidence" in said
