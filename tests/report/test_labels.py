"""Labels beside points: none over another, none over a point, and nothing where there is no room."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from davylamp.report.labels import CLEAR, Box, leaders, placed, sizes

AREA = Box(60, 30, 860, 500)


@pytest.mark.parametrize(("count", "seed"), [(3, 0), (9, 1), (30, 2), (30, 3)])
def test_no_label_meets_another_or_a_point(count: int, seed: int) -> None:
    draws = np.random.default_rng(seed)
    points = [(float(x), float(y)) for x, y in draws.uniform((70, 40), (840, 490), size=(count, 2))]
    texts = [f"intervention {at}" for at in range(count)]
    found = placed(points, texts, AREA)
    assert found is not None
    assert all(label.box.within(AREA) for label in found)
    assert not any(one.box.meets(other.box) for one, other in combinations(found, 2))
    for label in found:
        assert not any(label.box.holds(*point) for point in points)
    for at, begin, end in leaders(points, found):
        assert begin == points[at]
        assert found[at].box.holds(*end)


def test_a_lone_label_stands_beside_its_point_without_a_leader() -> None:
    (label,) = placed([(200.0, 200.0)], ["alone"], AREA) or []
    assert not label.leader
    assert 0 < label.box.left - 200 < 2 * CLEAR


def test_a_label_at_the_edge_turns_inwards() -> None:
    (label,) = placed([(AREA.right - 2, 200.0)], ["at the edge"], AREA) or []
    assert label.box.right < AREA.right


def test_where_there_is_no_room_there_are_no_labels() -> None:
    points = [(100.0 + at, 100.0) for at in range(40)]
    assert placed(points, ["a label of some length"] * 40, Box(90, 90, 300, 120)) is None


def test_a_mark_under_others_is_larger_than_they_are() -> None:
    assert sizes([(50.0, 50.0), (200.0, 50.0), (51.0, 50.0), (50.0, 51.0)], 4) == [8, 4, 6, 4]


def test_labels_of_marks_on_one_another_keep_off_the_largest() -> None:
    points = [(200.0, 200.0), (200.0, 200.0)]
    found = placed(points, ["one", "two"], AREA, clear=[12, 7]) or []
    assert len(found) == 2
    assert not any(label.box.meets(Box(188, 188, 212, 212)) for label in found)


@given(
    x=st.floats(250, 600),
    y=st.floats(150, 380),
    shift=st.tuples(st.floats(-25, 25), st.floats(-25, 25)).filter(lambda shift: 2 < math.hypot(*shift) < 25),
)
def test_labels_of_two_close_marks_stand_in_the_order_of_the_marks(
    x: float, y: float, shift: tuple[float, float]
) -> None:
    points = [(x, y), (x + shift[0], y + shift[1])]
    found = placed(points, ["goldfish", "direct"], AREA) or []
    one, other = (((each.box.left + each.box.right) / 2, (each.box.top + each.box.bottom) / 2) for each in found)
    # Along the line from one mark to the other.
    assert (other[0] - one[0]) * shift[0] + (other[1] - one[1]) * shift[1] > 0
