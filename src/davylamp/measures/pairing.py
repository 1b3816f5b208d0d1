"""What keeps two tables of readings from being compared row by row."""

from __future__ import annotations

import polars as pl

from davylamp.errors import Fault
from davylamp.measures.readings import SCHEMA

ALIKE = ("measure", "unit", "probe", "target", "release")
"""Columns that hold one value in a table that was filtered to one question."""

NAMED = 3
"""How many keys a message names."""


def table_faults(frames: dict[str, pl.DataFrame], keys: list[str]) -> list[Fault]:
    """Whatever would drop a row, double one, or compare unlike things; empty if rows can be matched one to one.

    Args:
        frames: two tables of readings with the names that messages give them.
        keys: columns that together name a row.
    """
    faults = []
    if not keys or len(set(keys)) < len(keys) or "value" in keys:
        faults.append(Fault("on", tuple(keys), "names of columns other than value, at least one, each once"))
    for name, frame in frames.items():
        faults += _columns(name, frame, keys)
    if faults:
        return faults
    for name, frame in frames.items():
        faults += _row_faults(name, frame, keys)
    return faults + _unit_faults(frames) + _partner_faults(frames, keys)


def _columns(name: str, frame: pl.DataFrame, keys: list[str]) -> list[Fault]:
    """Faults of the columns, without which nothing else can be looked at."""
    missing = [column for column in dict.fromkeys([*SCHEMA, *keys]) if column not in frame.columns]
    if missing:
        return [Fault(f"{name}.columns", frame.columns, f"the columns of readings and the keys; missing: {missing}")]
    return [
        Fault(f"{name}[{column}]", str(frame.schema[column]), f"{kind}, as readings have it")
        for column, kind in SCHEMA.items()
        if frame.schema[column] != kind
    ]


def _row_faults(name: str, frame: pl.DataFrame, keys: list[str]) -> list[Fault]:
    """Faults of the rows of one table."""
    if frame.is_empty():
        return [Fault(name, "no rows", "at least one reading")]
    faults = []
    for column in ALIKE:
        # A key may tell measures or probes apart, but one median has one unit.
        free = column in keys and column != "unit"
        values = sorted(map(str, frame[column].unique()))
        if not free and (len(values) > 1 or frame[column].has_nulls()):
            faults.append(Fault(f"{name}[{column}]", values, "one value", f"Filter the table to one {column}."))
    field = f"{name}[{', '.join(keys)}]"
    checks = [
        (pl.any_horizontal(pl.col(keys).is_null()), "keys without nulls; rows with one"),
        (pl.struct(keys).is_duplicated(), "keys that stand once; rows whose key stands more than once"),
        (~pl.col("value").is_finite().fill_null(False), "keys whose value is a finite number; rows with another"),
    ]
    for check, allowed in checks:
        rows = frame.filter(check).select(keys)
        if len(rows):
            faults.append(Fault(field, _few(rows), f"{allowed}: {len(rows)} of {len(frame)}"))
    return faults


def _unit_faults(frames: dict[str, pl.DataFrame]) -> list[Fault]:
    (name, frame), (other, against) = frames.items()
    units, others = (set(each["unit"].drop_nulls()) for each in (frame, against))
    # None or several in one table are a fault of that table.
    if len(units) != 1 or len(others) != 1 or units == others:
        return []
    return [Fault(f"{other}[unit]", others.pop(), f"{units.pop()!r}, the unit of {name}")]


def _partner_faults(frames: dict[str, pl.DataFrame], keys: list[str]) -> list[Fault]:
    """Keys of one table that the other has not."""
    (name, frame), (other, against) = frames.items()
    unlike = [key for key in keys if frame.schema[key] != against.schema[key]]
    if unlike:
        types = f"{frame.schema[unlike[0]]}, as in {name}"
        return [Fault(f"{other}[{unlike[0]}]", str(against.schema[unlike[0]]), types)]
    faults = []
    for left, right in ((name, other), (other, name)):
        alone = frames[left].join(frames[right], on=keys, how="anti", nulls_equal=True).select(keys)
        if len(alone):
            allowed = f"keys that {right} has too; rows without a partner: {len(alone)} of {len(frames[left])}"
            fix = "Filter both tables to the same canaries."
            faults.append(Fault(f"{left}[{', '.join(keys)}]", _few(alone), allowed, fix))
    return faults


def _few(rows: pl.DataFrame) -> list[object]:
    """The first few keys, in their order; alone where a key is one column."""
    found = rows.unique().sort(rows.columns).head(NAMED).rows()
    return [row[0] if len(row) == 1 else row for row in found]
