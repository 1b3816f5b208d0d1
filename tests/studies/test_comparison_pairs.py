"""A comparison keeps the values of both its sides, pair by pair, for a plot; nothing tells which canary they are of."""

from __future__ import annotations

import statistics

import polars as pl
import pytest

from davylamp.measures.readings import Reading, table
from davylamp.studies.protocol.analysis import compare
from davylamp.studies.protocol.spec import Comparison, Select

VALUES = {"early": {0: (1.0, 4.0, 2.5), 1: (0.5, 3.0, 9.0)}, "late": {0: (3.0, 3.5, 2.5), 1: (7.0, 13.0, 8.0)}}


def frame() -> pl.DataFrame:
    """Three canaries in two seeds and two variants; rows of one variant in the other order."""
    parts = []
    for variant, seeds in VALUES.items():
        for seed, values in seeds.items():
            made = [
                Reading("a", 4, seed, f"c{at}", "focus", "redacted", "hidden", "trained", "exposure", value, "bits")
                for at, value in enumerate(values)
            ]
            rows = table(made if variant == "early" else reversed(made))
            parts.append(rows.with_columns(variant=pl.lit(variant), key=pl.col("canary")))
    return pl.concat(parts)


def test_pairs_are_those_of_one_canary_and_sorted() -> None:
    found = compare(frame(), Comparison(name="x", of=Select(variant="late"), over=Select(variant="early")), 0.95)
    assert found.pairs == ((0, 1.0, 3.0), (0, 2.5, 2.5), (0, 4.0, 3.5), (1, 0.5, 7.0), (1, 3.0, 13.0), (1, 9.0, 8.0))
    assert found.sides == ("early", "late")
    assert (found.n, found.rises, found.falls, found.ties) == (6, 3, 2, 1)
    assert found.median == statistics.median(of - over for _, over, of in found.pairs)
    assert found.second_median == statistics.median(over for _, over, _ in found.pairs)


@pytest.mark.parametrize(
    ("of", "over", "sides"),
    [
        ({"arm": "b"}, {"arm": "a"}, ("a", "b")),
        ({"dose": 16}, {"dose": 4}, ("dose 4", "dose 16")),
        ({"variant": "v", "arm": "b"}, {"variant": "u", "arm": "a"}, ("u, a", "v, b")),
        ({"probe": "as_trained"}, {}, ("probe hidden", "probe as_trained")),
        ({"measure": "top"}, {"measure": "greedy_recovery"}, ("said exactly", "rank 1")),
        ({}, {"release": "reference"}, ("before fine-tuning", "fine-tuned")),
    ],
)
def test_sides_are_named_by_what_tells_them_apart(
    of: dict[str, str | int], over: dict[str, str | int], sides: tuple[str, str]
) -> None:
    rows = frame().filter(pl.col("variant") == "early", pl.col("seed") == 0)
    both = [rows.with_columns(**{name: pl.lit(value) for name, value in side.items()}) for side in (of, over)]
    whole = pl.concat(both, how="vertical_relaxed").cast({"dose": pl.Int64})
    found = compare(whole, Comparison(name="x", of=Select(**of), over=Select(**over)), 0.95)
    assert found.sides == sides
