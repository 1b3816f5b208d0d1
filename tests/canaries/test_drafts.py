"""Which canaries a plan has, and in which rows each stands."""

from __future__ import annotations

from collections import Counter

import pytest

from davylamp.canaries import plant
from davylamp.canaries.drafts import drafts, places
from davylamp.errors import PlantingError
from support.corpora import small_corpus, small_plan

ARMS = {
    "early": {"context": "redacted", "schedule": {"window": "early"}},
    "late": {"context": "redacted", "schedule": {"window": "late", "spread": "concentrated"}},
    "whole": {"context": "visible"},
}


def placed(plan, rows=200):
    """Each draft with its rows."""
    return list(zip(drafts(plan), places(plan, rows), strict=True))


def test_every_kind_is_counted_in_the_manifests_order():
    plan = small_plan(auxiliary={"doses": [2, 5], "per_dose": 3}, doses=[4, 1])
    made = drafts(plan)
    assert [draft.id for draft in made] == [f"c{number:04d}" for number in range(len(made))]
    assert list(Counter((draft.role, draft.arm, draft.dose) for draft in made).items()) == [
        (("focus", "visible", 4), 2),
        (("focus", "visible", 1), 2),
        (("twin", "visible", 0), 2),
        (("focus", "redacted", 4), 2),
        (("focus", "redacted", 1), 2),
        (("twin", "redacted", 0), 2),
        (("positive", "control", 5), 1),
        (("auxiliary", "visible", 2), 3),
        (("auxiliary", "visible", 5), 3),
        (("auxiliary", "redacted", 2), 3),
        (("auxiliary", "redacted", 5), 3),
    ]


def test_the_places_are_those_of_planting():
    plan = small_plan(arms=ARMS, doses=[1, 4, 2], auxiliary={"doses": [2], "per_dose": 2})
    canaries = plant(small_corpus(150), plan).manifest.canaries
    for canary, (draft, rows) in zip(canaries, placed(plan, 150), strict=True):
        assert (canary.id, canary.role, canary.arm, canary.dose) == (draft.id, draft.role, draft.arm, draft.dose)
        assert canary.positions == rows


def test_mixed_doses_take_as_many_rows_as_the_plan_says():
    plan = small_plan(doses=[1, 3, 9], auxiliary={"doses": [2], "per_dose": 4})
    found = placed(plan)
    taken = [row for _, rows in found for row in rows]
    assert all(len(rows) == draft.dose for draft, rows in found)
    assert len(set(taken)) == len(taken) == plan.planted_rows == 2 * (2 * 13 + 8) + 5


def test_each_arm_keeps_its_own_schedule_and_the_positive_control_none():
    control = []
    for seed in range(9):
        for draft, rows in placed(small_plan(arms=ARMS, doses=[4], seed=seed)):
            if draft.role == "focus" and draft.arm == "early":
                assert all(row < 40 for row in rows)
            elif draft.role == "focus" and draft.arm == "late":
                assert rows == tuple(range(rows[0], rows[0] + 4))
                assert rows[0] >= 160
            elif draft.role == "positive":
                control += rows
    assert min(control) < 40
    assert max(control) >= 160


@pytest.mark.parametrize(
    ("window", "ends"),
    [
        ("before focus", {"a": (0, 80), "b": (0, 100)}),
        ("after focus", {"a": (120, 200), "b": (160, 200)}),
        ("1/2", {"a": (0, 100), "b": (0, 100)}),
    ],
)
def test_auxiliary_windows_follow_the_focus_of_their_arm(window, ends):
    arms = {
        "a": {"context": "visible", "schedule": {"window": [0.4, 0.6]}},
        "b": {"context": "visible", "schedule": {"window": [0.5, 0.8]}},
    }
    plan = small_plan(arms=arms, auxiliary={"doses": [3], "per_dose": 8, "schedule": {"window": window}})
    for draft, rows in placed(plan):
        if draft.role == "auxiliary":
            start, end = ends[draft.arm]
            assert all(start <= row < end for row in rows)


@pytest.mark.parametrize(
    "schedule", [{}, {"window": "late"}, {"window": "2/5", "spread": "concentrated"}, {"spacing": 2, "last": 0.5}]
)
def test_single_arms_of_one_plan_stand_in_the_same_rows(schedule):
    plan = small_plan(schedule=schedule, rows_per_update=2, auxiliary={"doses": [2], "per_dose": 2})
    assert places(plan.only("visible"), 200) == places(plan.only("redacted"), 200)


def test_auxiliary_canaries_take_no_row_of_the_others_and_move_none():
    for schedule in ({}, {"window": "early"}, {"spread": "concentrated"}):
        without = small_plan(schedule=schedule)
        for window in ("whole", "late", "2/5"):
            beside = {"doses": [1, 6], "per_dose": 4, "schedule": {"window": window, "spread": "concentrated"}}
            both = places(small_plan(schedule=schedule, auxiliary=beside), 1000)
            assert both[: len(drafts(without))] == places(without, 1000)


def test_too_few_rows_are_counted_kind_by_kind():
    plan = small_plan(auxiliary={"doses": [2], "per_dose": 4})
    assert plan.planted_rows == 37
    with pytest.raises(PlantingError) as caught:
        places(plan, 36)
    assert str(caught.value) == (
        "the canaries need 37 rows (2 arms x 2 canaries x doses [1, 3] + 2 arms x 4 auxiliary canaries x doses [2] + "
        "5 of the positive control), but only 36 rows can be replaced: lower the doses or per_dose, or take a larger "
        "corpus"
    )
    assert sum(map(len, places(plan, 37))) == 37


def test_a_window_that_is_too_small_names_the_canaries():
    with pytest.raises(PlantingError, match=r"; focus canaries of arm 'late': 8 occurrences need 8 rows, .* holds 6: "):
        places(small_plan(arms=ARMS), 30)
    beside = {"doses": [3], "per_dose": 2, "schedule": {"window": "after focus"}}
    both = "auxiliary canaries of arm 'visible' and auxiliary canaries of arm 'redacted'"
    with pytest.raises(PlantingError, match=rf"^{both}: 6 .* window \[0.9, 1\] .* holds 4: "):
        places(small_plan(schedule={"window": [0.5, 0.9]}, auxiliary=beside), 40)
    beside = {"doses": [35], "per_dose": 2, "schedule": {"window": "before focus"}}
    plan = small_plan(arms={"a": {"context": "visible"}}, schedule={"window": "late"}, doses=[1], auxiliary=beside)
    with pytest.raises(PlantingError, match=r"need 70 rows, but the window \[0, 0.8\] of 80 rows holds 64"):
        places(plan, 80)


@pytest.mark.parametrize("kind", ["twins", "nonmembers", "per_dose"])
def test_more_canaries_than_the_space_holds_are_counted_before_one_is_made(kind):
    # A thousand million canaries would fill the memory, had they to be made to be counted.
    plan = small_plan(**{kind: 10**9})
    with pytest.raises(PlantingError, match=r"distinct secrets \(each has a replacement\), but the space holds"):
        places(plan, 200)


def test_the_count_of_canaries_is_that_of_the_drafts():
    plan = small_plan(nonmembers=3, auxiliary={"doses": [2, 3], "per_dose": 2})
    assert plan.canaries == len(drafts(plan))


def test_names_are_counted_too():
    space = {"alphabet": "0123456789", "length": 12}
    plan = small_plan(space=space, slots={**small_plan().slots, "name": "names"}, nonmembers=100_000)
    with pytest.raises(PlantingError, match=r"names in slots\.name, but there are 100000"):
        places(plan, 200)


def test_a_file_too_large_to_be_held_is_refused_before_it_is_made():
    with pytest.raises(PlantingError, match=r"would have 200,000,000,000 rows, but at most 100,000,000 are planted"):
        places(small_plan(), 200 * 10**9)
    with pytest.raises(PlantingError, match="lower rows or repeat"):
        plant(small_corpus(), small_plan(repeat=10**12))
