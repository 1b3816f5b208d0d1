"""The Pareto set: against a slow count, and where points tie."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from davylamp.errors import InputError
from davylamp.verdict.pareto import pareto

GRID = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=12)


def test_what_another_beats_on_one_axis_and_ties_on_the_other_is_left_out() -> None:
    # (1, 2) is weakly dominated by (2, 2); the two (3, 1) exclude one another not.
    assert pareto([1, 2, 3, 3, 0], [2, 2, 1, 1, 0]).tolist() == [False, True, True, True, False]


@given(GRID)
def test_it_is_what_a_slow_count_says(points: list[tuple[int, int]]) -> None:
    slow = [not any(p[0] >= q[0] and p[1] >= q[1] and p != q for p in points) for q in points]
    assert pareto(*zip(*points, strict=True)).tolist() == slow


@given(GRID)
def test_it_depends_on_the_orders_alone(points: list[tuple[int, int]]) -> None:
    x, y = (np.asarray(each, dtype=float) for each in zip(*points, strict=True))
    assert pareto(x, y).tolist() == pareto(np.exp(x), y**3).tolist() == pareto(y, x).tolist()
    assert pareto(x, y).any()


def test_many_at_once_are_each_their_own() -> None:
    x, y = np.random.default_rng(0).integers(0, 5, size=(2, 7, 6))
    assert pareto(x, y).tolist() == [pareto(one, other).tolist() for one, other in zip(x, y, strict=True)]


def test_what_is_no_number_is_refused_with_all_its_faults() -> None:
    with pytest.raises(InputError) as caught:
        pareto([1, float("nan")], [1, 2, 3])
    assert [fault.field for fault in caught.value.faults] == ["x", "y"]
