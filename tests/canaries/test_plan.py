from __future__ import annotations

import pytest

from davylamp.canaries import Plan
from davylamp.errors import RecipeError
from davylamp.runs.config import validate
from support.corpora import plan_data, small_plan


def faults_of(**changes):
    with pytest.raises(RecipeError) as caught:
        validate(Plan, plan_data(**changes), "plan")
    return caught.value.faults


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"templates": []}, "plan.templates"),
        ({"arms": {}}, "plan.arms"),
        ({"arms": {"a": {"context": "hidden"}}}, "plan.arms.a.context"),
        ({"doses": [0]}, "plan.doses.0"),
        ({"doses": []}, "plan.doses"),
        ({"per_dose": 0}, "plan.per_dose"),
        ({"twins": 0}, "plan.twins"),
        ({"positive": {"dose": 0}}, "plan.positive.dose"),
        ({"mask": ""}, "plan.mask"),
        ({"seed": -1}, "plan.seed"),
        ({"rows": 0}, "plan.rows"),
        ({"version": 2}, "plan.version"),
        ({"space": {"alphabet": "0"}}, "plan.space.alphabet"),
    ],
)
def test_a_value_outside_is_named(changes, named):
    assert [fault.field for fault in faults_of(**changes)] == [named]


def test_all_faults_are_named_at_once_and_unknown_keys_too():
    named = {fault.field for fault in faults_of(doses=[0, 1], per_dose=-1, dozes=3, space={"lenght": 4, "length": 0})}
    assert named == {"plan.doses.0", "plan.per_dose", "plan.dozes", "plan.space.lenght", "plan.space.length"}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"templates": [{"prompt": "{secret}", "completion": "x"}]}, "must hold {secret}"),
        ({"templates": [{"prompt": "x", "completion": "{secret}"}]}, "arm 'visible' could not show it"),
        ({"templates": [{"prompt": "{secret} {nmae}", "completion": "{secret}"}]}, "['nmae']"),
        (
            {"templates": [{"prompt": "{secret}", "completion": "{secret}", "system": "code {secret}"}]},
            "system must not hold {secret}",
        ),
        ({"doses": [2, 2]}, "name a dose twice"),
        ({"arms": {"control": {"context": "visible"}}}, "'control' is taken"),
        ({"mask": "1,2,3,4"}, "mask is itself a possible secret"),
        ({"slots": {"name": []}}, "slots.name is empty"),
        ({"slots": {"name": "names", "prompt": ["a"]}}, "{prompt} is filled by davylamp"),
        ({"slots": {"name": "names", "secret": ["a"]}}, "{secret} is filled by davylamp"),
        ({"slots": {"name": "names", "first name": ["a"]}}, "'first name' can stand in no template"),
    ],
)
def test_what_does_not_fit_together_is_said(changes, said):
    assert any(said in str(fault) for fault in faults_of(**changes))


def test_faults_that_only_show_together_are_said_together():
    text = "\n".join(map(str, faults_of(doses=[2, 2], mask="1,2,3,4", slots={"name": []})))
    assert all(said in text for said in ("twice", "mask", "slots.name"))


def test_a_fault_is_not_called_allowed():
    text = "\n".join(map(str, faults_of(doses=[2, 2])))
    assert "allowed: doses" not in text


def test_the_positive_control_is_four_times_the_largest_dose_unless_said():
    assert small_plan(positive={}).positive_dose == 12
    assert small_plan().positive_dose == 5
    assert small_plan().planted_rows == 2 * 2 * 4 + 5


# --- the axes


LATE = {"schedule": {"window": "late"}}
BEFORE = {"doses": [1], "schedule": {"window": "before focus"}}
AFTER = {"doses": [1], "schedule": {"window": "after focus"}}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"arms": {"a": {"context": "encoded"}}}, "context encoded needs an encoding, and no other context takes one"),
        ({"arms": {"a": {"context": "visible", "encoding": "binary"}}}, "no other context takes one"),
        ({"arms": {"a": {"context": "encoded", "encoding": "rot13"}}}, "encoding is 'rot13'; allowed: ascii, binary"),
        ({"arms": {"a": {"context": "encoded", "encoding": "cyclic_shift"}}}, "cyclic_shift(by)"),
        (
            {"space": {"alphabet": "01", "length": 9}, "arms": {"a": {"context": "encoded", "encoding": "binary"}}},
            "arms.a.encoding: binary writes symbols of the alphabet '01' as they are",
        ),
        (
            {"arms": {"a": {"context": "encoded", "encoding": "binary + cyclic_shift(1)"}}},
            "arms.a.encoding: binary writes no secret of the space, so that cyclic_shift(1) cannot follow it",
        ),
        (
            {
                "templates": [{"prompt": "x", "completion": "{secret}"}],
                "arms": {"a": {"context": "encoded", "encoding": "binary"}},
            },
            "arm 'a' could not show it",
        ),
        ({"schedule": {"window": "never"}}, "'never' is no window"),
        ({"schedule": {"window": "before focus"}}, "schedule.window: 'before focus' is for auxiliary canaries only"),
        (
            {"arms": {"a": {"context": "visible", "schedule": {"window": "after focus"}}}},
            "arms.a.schedule.window: 'after focus' is for auxiliary canaries only",
        ),
        ({"auxiliary": BEFORE}, "nothing lies before the focus of arm 'visible', at [0, 1]"),
        ({"auxiliary": AFTER}, "nothing lies after the focus of arm 'redacted', at [0, 1]"),
        ({**LATE, "auxiliary": AFTER}, "nothing lies after the focus of arm 'visible', at [0.8, 1]"),
        ({"auxiliary": {"doses": []}}, "auxiliary.doses"),
        ({"auxiliary": {"doses": [0]}}, "auxiliary.doses.0"),
        ({"auxiliary": {"doses": [1], "per_dose": 0}}, "auxiliary.per_dose"),
        ({"auxiliary": {"doses": [1], "twins": 3}}, "auxiliary.twins"),
        ({"repeat": 0}, "plan.repeat"),
        ({"rows_per_update": 0}, "plan.rows_per_update"),
        ({"schedule": {"spacing": 2, "spread": "concentrated"}}, "exclude one another"),
    ],
)
def test_an_axis_that_cannot_be_is_said(changes, said):
    assert any(said in str(fault) for fault in faults_of(**changes))


def test_faults_of_several_axes_are_said_together():
    arms = {
        "a": {"context": "encoded", "encoding": "binary + ascii"},
        "b": {"context": "redacted", "schedule": {"window": "before focus"}},
    }
    text = "\n".join(map(str, faults_of(arms=arms, doses=[2, 2])))
    assert all(said in text for said in ("ascii cannot follow it", "arms.b.schedule.window", "name a dose twice"))


def test_an_arm_takes_the_plans_schedule_unless_it_has_its_own():
    arms = {"a": {"context": "visible"}, "b": {"context": "redacted", "schedule": {"window": "late", "spacing": 3}}}
    plan = small_plan(arms=arms, schedule={"window": "2/5"}, auxiliary=BEFORE)
    assert plan.schedule_of("a").fractions() == (0.2, 0.4)
    assert plan.schedule_of("b").fractions() == (0.8, 1)
    assert plan.schedule_of("b").spacing == 3
    assert plan.schedules == (plan.schedule_of("a"), plan.schedule_of("b"), plan.auxiliary.schedule)
    assert plan.only("b").schedules == plan.schedules[1:]


def test_an_encoding_is_known_by_one_name_however_it_is_written():
    arms = {"a": {"context": "encoded", "encoding": "block_reversal( 2 )+cyclic_shift(1)"}, "b": {"context": "visible"}}
    plan = small_plan(arms=arms)
    assert plan.encoding_of("a").name == "block_reversal(2) + cyclic_shift(1)"
    assert plan.encoding_of("b") is None


def test_auxiliary_rows_are_counted():
    assert small_plan(auxiliary={"doses": [1, 4], "per_dose": 3}).planted_rows == small_plan().planted_rows + 2 * 3 * 5


def test_a_training_that_would_move_canaries_is_told_with_all_its_faults() -> None:
    spaced = small_plan(schedule={"window": "late", "spacing": 2}, rows_per_update=4)
    faults = spaced.training_faults(epochs=3, packing=True, rows_per_update=8)
    assert len(faults) == 3
    assert "repeat=3 (plan.repeat in a recipe)" in faults[0]
    assert "updates of 4 rows" in faults[2]
    assert spaced.training_faults(epochs=1, packing=False, rows_per_update=4) == []
    assert small_plan().training_faults(epochs=3, packing=True, rows_per_update=8) == []
