"""From a private training by the command line to the claim that an audit holds against it."""

from __future__ import annotations

import json

import pytest
import torch

from davylamp.canaries import Plan
from davylamp.errors import InputError, RecipeError, RunFolderError
from davylamp.runs.config import validate
from davylamp.runs.folder import RunFolder
from davylamp.studies.audit_spec import AuditSpec
from davylamp.studies.dp_claim import with_training_claim
from davylamp.studies.recipe import Recipe
from davylamp.studies.steps import plant_step, read_training, train_step
from davylamp.training.spec import TrainingSpec
from support.corpora import small_corpus
from support.recipes import tiny_plan
from support.tiny_models import build_tiny

pytest.importorskip("opacus", reason="the extra 'dp' is not installed")

MEASURED = ("exposure", "recovery", "extraction")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    torch.set_num_threads(1)
    place = tmp_path_factory.mktemp("private")
    build_tiny(place / "base")
    plant_step(RunFolder(place / "run"), small_corpus(24), Plan.model_validate(tiny_plan()))
    return place / "run"


@pytest.fixture(scope="module")
def trained(run):
    train_step(RunFolder(run), str(run.parent / "base"), TrainingSpec(style="plain", dp={"noise_multiplier": 3}), 0)
    return run


def test_the_command_says_what_is_claimed(run, davylamp):
    arguments = ("--model", run.parent / "base", "style=plain", "--quiet")
    code, out, err = davylamp("train", run, *arguments, "dp.noise_multiplier=3")
    assert code == 0, err
    assert "-DP for one row: noise 3" in out
    assert "self-checks passed" in out
    code, out, _ = davylamp("train", run, *arguments, "dp.noise_multiplier=0", "--json")
    assert code == 0
    assert json.loads(out)["dp"]["claim"] is None
    code, _, err = davylamp("train", run, *arguments, "dp.epsilon=1", "dp.noise_multiplier=1")
    assert code == 2
    assert "either epsilon" in err


def test_training_json_holds_the_claim_and_the_audit_takes_it(trained):
    training = read_training(RunFolder(trained))
    claim, weights = training["dp"]["claim"], training["trained_sha256"]
    assert claim["kind"] == "dpsgd"
    assert claim["delta"] == 1 / (10 * training["rows"])
    assert claim["steps"] == training["steps"]
    spec = AuditSpec(measures=MEASURED)
    assert with_training_claim(spec, training, weights).claim.epsilon == claim["epsilon"]
    assert with_training_claim(spec, training, weights).claim.delta == claim["delta"]
    # Other weights, a claim of the audit's own, and measures that no claim speaks of leave the settings as they are.
    assert with_training_claim(spec, training, "other").claim is None
    own = AuditSpec(measures=MEASURED, claim={"epsilon": 1})
    assert with_training_claim(own, training, weights) == own
    assert with_training_claim(AuditSpec(), training, weights).claim is None
    assert with_training_claim(spec, {}, weights).claim is None


@pytest.mark.parametrize("claim", [{"epsilon": 1}, {"epsilon": -1, "delta": 0}, [], {"epsilon": None, "delta": 0.1}])
def test_a_damaged_claim_is_refused(claim):
    with pytest.raises(RunFolderError, match="damaged privacy claim"):
        with_training_claim(AuditSpec(measures=MEASURED), {"dp": {"claim": claim}, "trained_sha256": "w"}, "w")


def test_schedules_do_not_survive_coins(tmp_path):
    plan = {**tiny_plan(), "schedule": {"window": "early"}}
    folder = RunFolder(tmp_path / "run")
    plant_step(folder, small_corpus(96), Plan.model_validate(plan))
    with pytest.raises(InputError, match="in each step by chance"):
        train_step(folder, "embedded", TrainingSpec(dp={"noise_multiplier": 1}), 0)
    recipe = {"name": "r", "model": "embedded", "corpus": {"generator": "emails", "rows": 96}, "plan": plan}
    validate(Recipe, recipe)
    with pytest.raises(RecipeError, match="in each step by chance"):
        validate(Recipe, {**recipe, "training": {"dp": {"epsilon": 1}}})
