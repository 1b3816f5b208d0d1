"""The table of readings on disk."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from davylamp.errors import RunFolderError
from davylamp.measures.readings import SCHEMA, Reading, load, save, table

READING = Reading("visible", 4, 7, "c0001", "focus", "visible", "hidden", "trained", "exposure", 3.25, "bits")


def test_readings_come_back_as_they_were(tmp_path: Path) -> None:
    frame = table([READING])
    save(frame, tmp_path / "readings.parquet")
    found = load(tmp_path / "readings.parquet")
    assert found.schema == SCHEMA
    assert found.equals(frame)
    assert found.row(0, named=True)["release"] == "model"


def test_no_readings_are_a_table_with_the_same_columns() -> None:
    assert table([]).schema == SCHEMA


def test_missing_damaged_or_foreign_readings_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match="no readings"):
        load(tmp_path / "readings.parquet")
    (tmp_path / "damaged.parquet").write_bytes(b"PAR1 not really")
    with pytest.raises(RunFolderError, match="cannot read"):
        load(tmp_path / "damaged.parquet")
    pl.DataFrame({"arm": ["visible"]}).write_parquet(tmp_path / "foreign.parquet")
    with pytest.raises(RunFolderError, match="other columns"):
        load(tmp_path / "foreign.parquet")
