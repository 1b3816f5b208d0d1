"""The study's shape at a fraction of its size, and whole in the slow suite."""

import json
import subprocess
import sys

import numpy as np
import pytest

from davylamp.bounds import extraction_bound, pure_dp, uniform_prior, zipf_prior
from davylamp.errors import RecipeError
from davylamp.studies.mechanisms.extraction import best_list_rate, list_rate_from_counts
from davylamp.studies.mechanisms.result import Row, four_errors
from davylamp.studies.mechanisms.run import run_study, write_study
from davylamp.studies.mechanisms.spec import load_recipe

SMALL = ["trials=20000", "canaries.trials=2000", "sweep.bits=[3,6,7,10]", "curves.epsilons=[0.5,2.0]"]


def test_every_row_agrees_and_the_seed_fixes_every_byte(tmp_path):
    recipe = load_recipe(SMALL)
    first, second = run_study(recipe), run_study(recipe)
    for experiment in first:
        assert experiment.agrees, [row for row in experiment.rows if not row.agrees]
    for name, experiments in (("a", first), ("b", second)):
        write_study(experiments, recipe, tmp_path / name)
    for file in ("mechanisms.html", "mechanisms.json"):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()
    data = json.loads((tmp_path / "a" / "mechanisms.json").read_text())
    assert data["experiments"].keys() == {"curves", "staircase", "sweep", "canaries", "instances"}
    page = (tmp_path / "a" / "mechanisms.html").read_text()
    assert page.count("<svg") == 5
    assert "<script" not in page


def test_a_leaky_release_would_be_seen():
    # The same estimator on a release that breaks its claim: counts noised for eps = 3 against a claim of eps = 1.
    rng, trials = np.random.default_rng(3), 20_000
    rate = list_rate_from_counts(3.0, 1024, 4, trials, rng)
    row = Row("leaky", extraction_bound(pure_dp(1.0), 4 / 1024), False, rate, four_errors((rate, trials)), below=True)
    assert not row.agrees


@pytest.mark.parametrize("size", [8, 64, 512])
def test_two_binomials_stand_for_the_whole_histogram(size):
    # The shortcut against whole histograms: both estimate one rate, so they differ by four standard errors at most.
    rng, trials = np.random.default_rng(size), 20_000
    short = list_rate_from_counts(1.0, size, 4, trials, rng)
    whole = best_list_rate(uniform_prior(size), 1.0, 4, trials, rng)
    assert abs(short - whole) <= four_errors((short, trials), (whole, trials))


def test_best_list_uses_the_prior():
    # At a tiny eps the release says nothing, and the best list is the prior's own.
    prior = zipf_prior(1.2, 100)
    rate = best_list_rate(prior, 1e-6, 4, 20_000, np.random.default_rng(1))
    assert abs(rate - prior.kappa(4)) <= four_errors((rate, 20_000))


def test_rows_know_when_they_disagree():
    assert Row("x", 0.5, False, 0.51, error=0.02).agrees
    assert not Row("x", 0.5, False, 0.53, error=0.02).agrees
    assert Row("x", 0.5, False, 0.3, error=0.02, below=True).agrees


def test_recipe_faults_are_named_together():
    with pytest.raises(RecipeError) as error:
        load_recipe(["trials=1", "staircase.epsilon=-1", "nonsense=3"])
    named = " ".join(fault.field for fault in error.value.faults)
    for field in ("trials", "staircase.epsilon", "nonsense"):
        assert field in named


@pytest.mark.slow
def test_whole_study_from_the_command_line(tmp_path):
    command = [sys.executable, "-m", "davylamp.studies.mechanisms", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " NO" not in done.stdout
