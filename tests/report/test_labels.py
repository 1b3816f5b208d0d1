"""Labels beside points: none over another, none over a point, and nothing where there is no room."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from davylamp.report.labels import CLEAR, Box, apart, leaders, placed

AREA = Box(60, 30, 860, 500)


@pytest.mark.parametrize(("count", "seed"), [(3, 0), (9, 1), (30, 2), (30, 3)])
def test_no_label_meets_another_or_a_point(count: int, seed: int) -> None:
    draws = np.random.default_rng(seed)
    points = apart([(float(x), float(y)) for x, y in draws.uniform((70, 40), (840, 490), size=(count, 2))], 11)
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


def test_points_that_lie_on_one_another_stand_side_by_side() -> None:
    moved = apart([(50.0, 50.0), (200.0, 50.0), (50.0, 50.0), (50.0, 50.0)], 10)
    assert moved == [(40.0, 50.0), (200.0, 50.0), (50.0, 50.0), (60.0, 50.0)]
