"""The table of readings on disk."""

from __future__ import annotations

import resource
from pathlib import Path

import polars as pl
import pytest

from davylamp.errors import RunFolderError, StorageError
from davylamp.measures.readings import SCHEMA, Reading, load, save, table

READING = Reading("visible", 4, 7, "c0001", "focus", "visible", "hidden", "trained", "exposure", 3.25, "bits")


def test_readings_come_back_as_they_were(tmp_path: Path) -> None:
    frame = table([READING])
    save(frame, tmp_path / "readings.parquet")
    found = load(tmp_path / "readings.parquet")
    assert found.schema == SCHEMA
    assert found.equals(frame)
    assert found.row(0, named=True)["release"] == "model"


def test_a_full_disk_is_a_storage_error_and_leaves_the_old_readings(tmp_path: Path) -> None:
    path = tmp_path / "readings.parquet"
    save(table([READING]), path)
    before = path.read_bytes()
    # A limit on the size of files makes the system refuse a write as a full disk would.
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
    try:
        with pytest.raises(StorageError, match="cannot write"):
            save(table([READING] * 2), path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert path.read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == ["readings.parquet"]


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
