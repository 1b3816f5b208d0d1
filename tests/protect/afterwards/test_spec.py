from __future__ import annotations

import pytest

from davylamp.errors import RecipeError
from davylamp.protect.afterwards.spec import UnlearningSpec
from davylamp.runs.config import validate


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"method": "erase"}, "unlearning.method"),
        ({}, "unlearning.method"),
        ({"method": "npo", "beta": 0}, "unlearning.beta"),
        ({"method": "graddiff", "beta": 0.5}, "beta is NPO's"),
        ({"method": "npo", "rounds": 0}, "unlearning.rounds"),
        ({"method": "npo", "threshold": 0}, "unlearning.threshold"),
        ({"method": "npo", "retain_weight": -1}, "unlearning.retain_weight"),
        ({"method": "npo", "learning_rate": float("inf")}, "unlearning.learning_rate"),
        ({"method": "npo", "bits": [3]}, "unlearning.bits"),
        ({"method": "npo", "relearn": {"step": 3}}, "unlearning.relearn.step"),
    ],
)
def test_what_does_not_fit_is_named(data, said):
    with pytest.raises(RecipeError, match=said):
        validate(UnlearningSpec, data, "unlearning")


def test_a_width_that_stands_twice_is_taken_once():
    assert UnlearningSpec(method="npo", bits=(8, 4, 8)).bits == (8, 4)


@pytest.mark.parametrize("given", [{"method": "graddiff", "rounds": 3}, {"method": "npo", "beta": 0.5}])
def test_what_is_written_is_read_back(given):
    spec = UnlearningSpec.model_validate(given)
    assert UnlearningSpec.model_validate_json(spec.model_dump_json()) == spec
    assert ("beta" in spec.model_dump(mode="json")) == (given["method"] == "npo")
