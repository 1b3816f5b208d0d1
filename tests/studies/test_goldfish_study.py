"""The Goldfish loss on the embedded model: codes that plain training makes it say come out less."""

from __future__ import annotations

import json

import polars as pl
import pytest

PLAN = ("plan.doses=[16]", "seeds=[0]")


@pytest.mark.slow
def test_goldfish_lowers_exposure_at_dose_16(davylamp, tmp_path):
    means, greedy = {}, {}
    for name, more in (("plain", ()), ("goldfish", ("training.goldfish.k=4", "training.goldfish.h=13"))):
        out = tmp_path / name
        code, _, err = davylamp("run", "demo", "--out", out, *PLAN, *more, "--jobs", "1", "--threads", "1", "--quiet")
        assert code == 0, err
        run = out / "runs" / "redacted-s0"
        read = pl.read_parquet(run / "readings.parquet").filter(pl.col("dose") == 16)
        means[name] = read.filter(pl.col("measure") == "exposure")["value"].mean()
        cells = json.loads((run / "verdict.json").read_text())["cells"]
        [greedy[name]] = [cell["greedy"]["successes"] for cell in cells if cell["dose"] == 16]
    # A digit that is never learnt costs log2(10) = 3.3 bits, and one of four is dropped on average. Over 16 canaries
    # the mean difference has a standard deviation of about 1.2 bits; it was 2.9 in the demo's own plan.
    assert means["plain"] - means["goldfish"] > 1
    assert greedy["plain"] > greedy["goldfish"]
