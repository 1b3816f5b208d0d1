"""What a plan may ask of constructions, and what it counts."""

from __future__ import annotations

import math

import pytest
from pydantic import ValidationError

from support.constructions import LINES, PREFIXES, ROWS
from support.corpora import plan_data, small_plan


def lines_of(*lines):
    return small_plan(constructions=list(lines)).constructions


def test_each_kind_counts_its_rows_and_instances():
    lines = lines_of(*LINES)
    assert [line.rows for line in lines] == [2 * 2 * 3, 2, 1, 4 * 2, 1, 0]
    assert small_plan(constructions=LINES).constructed_rows == ROWS
    assert sum(line.instances for line in lines) == PREFIXES


def test_a_size_may_stand_alone_or_in_a_list():
    alone, listed = lines_of({"kind": "naive", "secret_tokens": 4}, {"kind": "naive", "secret_tokens": [1, 16]})
    assert (alone.sizes, listed.sizes) == ((4,), (1, 16))


def test_a_plan_without_constructions_is_written_as_before_there_were_any():
    assert "constructions" not in small_plan().model_dump(mode="json")
    assert "constructions" not in small_plan(constructions=[]).model_dump(mode="json")
    again = small_plan(constructions=LINES).model_dump(mode="json")
    assert small_plan(**{**plan_data(), "constructions": again["constructions"]}).constructions == lines_of(*LINES)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ({"kind": "naive", "secret_tokens": [4, 4]}, "name a size twice"),
        ({"kind": "naive", "temperature": 0}, "greater than 0"),
        ({"kind": "naive", "trigger_tokens": 8}, "Extra inputs"),
        ({"kind": "nothing"}, "does not match any of the expected tags"),
        ({"kind": "trigger", "groups": 2, "triggers": ["a b"]}, "triggers are 1, but 2 instances are planted"),
        ({"kind": "trigger", "groups": 2, "triggers": ["a b", "a b"]}, "one prompt would have two answers"),
        ({"kind": "camouflage", "v": 4, "k": 4}, "must be below v"),
        ({"kind": "camouflage", "v": 16, "k": 8, "depth": 5}, "at most 4,096"),
        # log2(16) = 4 bits; H* = log2(1 / 0.1) = 3.32 bits at epsilon 0.
        ({"kind": "low_entropy", "choices": 16}, "entropy floor H.*3.32 bits: take fewer choices"),
    ],
)
def test_what_cannot_be_is_refused(line, said):
    with pytest.raises(ValidationError, match=said):
        small_plan(constructions=[line])


def test_the_entropy_floor_is_that_of_the_bounds():
    (line,) = lines_of({"kind": "low_entropy", "choices": 4, "risk": 0.1})
    assert line.floor_bits == pytest.approx(math.log2(10))
    # One copy under eps-DP adds eps log2 e bits in the first regime (P1, Thm 5.1).
    (more,) = lines_of({"kind": "low_entropy", "choices": 16, "risk": 0.1, "epsilon": 1.0})
    assert more.floor_bits == pytest.approx(math.log2(10) + math.log2(math.e))
