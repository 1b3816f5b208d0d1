from __future__ import annotations

import numpy as np
import pytest

from davylamp.studies.recipe import load_recipe
from davylamp.studies.runner import run_recipe


@pytest.mark.slow
def test_the_demo_shows_that_masked_context_is_what_is_memorised(tmp_path) -> None:
    # Six models were seen at 13.3 bits (redacted) and 0.6 to 1.1 (visible); sixteen canaries without a trace of
    # memory have a median above 3 bits with a chance of 1e-4 (more than 7 of 16 ranks in the best eighth).
    outcome = run_recipe(load_recipe("demo"), tmp_path / "demo")
    assert [run.name for run in outcome.report.runs] == [
        f"{arm}-s{k}" for arm in ("visible", "redacted") for k in range(3)
    ]
    for run in outcome.report.runs:
        assert run.verdict.given, run.verdict.controls
        cells = {cell.dose: cell for cell in run.verdict.cells}
        copied = [row for row in run.verdict.copying if row.probe == "replacement" and row.target == "replacement"]
        kept = [row for row in run.verdict.copying if row.probe == "replacement" and row.target == "trained"]
        assert np.mean([row.greedy.value for row in copied]) >= 0.9
        assert sum(row.greedy.successes for row in kept) == 0
        if run.name.startswith("redacted"):
            assert cells[16].median >= 10
            assert cells[16].exposure_verdict == cells[16].greedy_verdict == "leak"
            assert cells[1].median < cells[4].median < cells[16].median
        else:
            assert cells[16].median <= 3
            assert {cell.exposure_verdict for cell in run.verdict.cells if cell.dose} == {"not seen"}
            assert all(cell.greedy.successes == 0 for cell in run.verdict.cells)
    base = next(utility for utility in outcome.report.utilities if utility.who == "base")
    assert base.successes / base.trials >= 0.9
