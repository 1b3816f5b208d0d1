"""The whole study on the embedded model, with as few rows as it takes."""

from __future__ import annotations

import pytest
import torch

from davylamp.canaries import Manifest
from davylamp.runs.files import read_json
from davylamp.runs.progress import QUIET
from davylamp.studies.clinical.command import run
from davylamp.verdict.frontier_model import Frontier

pytestmark = pytest.mark.slow  # whole studies

SMALL = [
    "seeds=[0]",
    *(f"{part}.rows=100" for part in ("corpus", "landscape.held_out", "landscape.test")),
    "plan.space={kind: coined, size: 200, alternatives: 100}",
    "plan.doses=[2,4]",
    "plan.per_dose=2",
    "plan.twins=2",
    "plan.positive.dose=8",
    "variants={direct: {}, surrogate: {protect: [{name: surrogate}]}}",
]


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    torch.set_num_threads(1)
    out = tmp_path_factory.mktemp("clinical") / "out"
    return out, run(SMALL, out, 1, 1, QUIET, None)


def test_every_intervention_ends_in_the_frontier(done):
    out, outcome = done
    compared = Frontier.load(out / "frontier.json")
    names = ["none", "direct", "surrogate"]
    assert [row.intervention for row in compared.rows] == names
    data = read_json(outcome.json_file)
    assert [each["name"] for each in data["found"]] == names
    assert {each["name"]: each["survival"] is not None for each in data["found"]} == {
        name: name == "surrogate" for name in names
    }
    # 2 x (2 + 4) copies; the positive control is left as it was and counts for nothing.
    left = data["found"][2]["survival"]
    assert (left["copies"], left["exact"]) == (12, 0)
    assert all(each["cpu_seconds"] > 0 and each["seconds"] > 0 for each in data["found"])
    assert sum(data["cpu_seconds"].values()) == pytest.approx(sum(each["cpu_seconds"] for each in data["found"]))
    assert all(path.is_file() for path in outcome.files)
    assert (out / "clinical.md").read_text("utf-8").splitlines() == list(outcome.lines)


def test_no_secret_is_in_what_is_written(done):
    out, outcome = done
    manifest = Manifest.load(out / "runs" / "direct-clinical-s0" / "manifest.json")
    secrets = {canary.secret for canary in manifest.canaries}
    for path in outcome.files:
        text = path.read_text("utf-8")
        assert not [secret for secret in secrets if secret in text], path


def test_a_second_run_does_nothing_again_and_says_the_same(done):
    out, outcome = done
    before = {path: path.stat().st_mtime_ns for path in (out / "runs").rglob("*.json")}
    data = read_json(outcome.json_file)
    assert run(SMALL, out, 1, 1, QUIET, None).lines == outcome.lines
    assert {path: path.stat().st_mtime_ns for path in (out / "runs").rglob("*.json")} == before
    assert read_json(outcome.json_file) == data


def test_the_embedded_model_shows_the_shapes(tmp_path):
    # 30 canaries of one seed tell direct training from an untrained model and from surrogates, at whose side nearly all
    # of them differ; of the 19 that differ between direct training and Goldfish 14 are on one side (p = 0.06), which
    # takes the study's three seeds to tell (46 of 59).
    overrides = ["seeds=[0]", "variants={direct: {}, surrogate: {protect: [surrogate]}}"]
    outcome = run(overrides, tmp_path / "out", 1, 1, QUIET, None)
    words = {shape["statement"]: shape["word"] for shape in read_json(outcome.json_file)["shapes"]}
    assert words["Direct fine-tuning leaks most."] == "held"
    assert words["Surrogates for what is rare leave nothing of the medication, in the rows or in the model."] == "held"
