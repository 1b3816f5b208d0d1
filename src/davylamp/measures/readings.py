"""Readings: one measured value for one canary under one probe, kept in one typed table."""

from __future__ import annotations

import io
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

import polars as pl

from davylamp.canaries.manifest import Canary
from davylamp.errors import RunFolderError
from davylamp.runs import files

REFERENCE = pl.lit("reference")
"""Marks readings of the base model."""

SCHEMA = pl.Schema(
    {
        "arm": pl.String(),
        "dose": pl.Int64(),
        "seed": pl.Int64(),
        "canary": pl.String(),
        "role": pl.String(),
        "context": pl.String(),
        "probe": pl.String(),
        "target": pl.String(),
        "measure": pl.String(),
        "value": pl.Float64(),
        "unit": pl.String(),
        "release": pl.String(),
    }
)
"""Columns of ``readings.parquet``, a row for each canary, probe, target and measure."""


@dataclass(frozen=True, slots=True)
class Reading:
    """One measured value.

    Attributes:
        arm: the canary's arm; ``control`` for the positive control.
        dose: its occurrences in the planted file.
        seed: seed of the plan.
        canary: its id.
        role: ``focus``, ``twin``, ``positive``, or ``unseen`` for a code shown in a canary's place.
        context: what its training prompt showed.
        probe: what the prompt showed when the release was asked.
        target: which code was looked for: ``trained`` or ``replacement``.
        measure: name of the measure.
        value: the value.
        unit: ``bits``, ``nats``, ``rank`` or ``success`` (1 or 0).
        release: ``model``, or ``reference`` for the base model.
    """

    arm: str
    dose: int
    seed: int
    canary: str
    role: str
    context: str
    probe: str
    target: str
    measure: str
    value: float
    unit: str
    release: str = "model"


def reading_of(canary: Canary, seed: int, probe: str, target: str, measure: str, value: float, unit: str) -> Reading:
    """A reading with the canary's own columns filled in."""
    return Reading(
        canary.arm, canary.dose, seed, canary.id, canary.role, canary.context, probe, target, measure, value, unit
    )


def table(readings: Iterable[Reading]) -> pl.DataFrame:
    """Readings as a table with the columns of :data:`SCHEMA`."""
    return pl.DataFrame([asdict(reading) for reading in readings], schema=SCHEMA)


def save(frame: pl.DataFrame, path: Path) -> None:
    """Write a table of readings as Parquet.

    Raises:
        StorageError: it cannot be written.
    """
    # By way of memory: polars tells of a full disk by an exception of its own that is no OSError.
    data = io.BytesIO()
    frame.write_parquet(data)
    files.write_bytes(path, data.getvalue())


def load(path: Path) -> pl.DataFrame:
    """Read a table of readings.

    Raises:
        RunFolderError: it is missing, damaged, or has other columns.
    """
    try:
        frame = pl.read_parquet(path)
    except FileNotFoundError as error:
        raise RunFolderError(f"no readings at {path}: run `davylamp audit` first") from error
    except (OSError, pl.exceptions.PolarsError) as error:
        raise RunFolderError(f"cannot read {path}: {error}; run `davylamp audit` again") from error
    if frame.schema != SCHEMA:
        raise RunFolderError(f"{path} has other columns than readings have: run `davylamp audit` again")
    return frame
