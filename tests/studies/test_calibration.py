"""The calibration study: a few cells quickly, all of them when asked for, and proof that it can fail."""

import json

import numpy as np
import pytest
from scipy import special

from davylamp.bounds import EpsilonBound
from davylamp.studies.calibration import calibrate, known_cases, main, measure, null_cases


def test_cells_of_every_estimator_are_valid():
    # 60 audits of every twelfth cell; a valid cell fails once in 30,000 (see the study).
    cases = [*null_cases(), *known_cases()][::12]
    assert len(cases) >= 10
    for i, (estimator, situation, truth, audit) in enumerate(cases):
        cell = measure(estimator, situation, truth, audit, 60, np.random.default_rng(i))
        assert cell.valid, cell


def test_an_estimator_that_reads_noise_as_leakage_is_caught():
    # The gap between the rates, taken at face value, as if it had no error: above 0 half of the time.
    def careless(rng):
        gap = special.ndtri(rng.binomial(100, 0.5) / 100)
        return EpsilonBound(max(0.0, gap), 0.0, 0.95, "two-run", 200, 100, 9.0, "noise")

    cell = measure("careless", "null", 0.0, careless, 200, np.random.default_rng(0))
    assert not cell.valid
    assert cell.beyond > 60


def test_the_command_writes_its_cells(tmp_path, capsys):
    out = tmp_path / "cells.json"
    assert main(["--audits", "1", "--out", str(out)]) == 0
    cells = json.loads(out.read_text(encoding="utf-8"))["cells"]
    assert len(cells) > 100
    assert all(cell["valid"] for cell in cells)
    assert f"{len(cells)} cells of 1 audits, 0 beyond" in capsys.readouterr().out


@pytest.mark.slow
def test_a_thousand_audits_of_every_cell():
    cells = list(calibrate(1000, 1))
    assert [cell for cell in cells if not cell.valid] == []
    assert max(cell.beyond for cell in cells) > 30  # the exact bounds use up most of their error
