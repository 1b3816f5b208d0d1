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
