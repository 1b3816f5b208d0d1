from __future__ import annotations

import inspect
import pickle

import pytest

from davylamp import errors

PLAIN = [
    kind
    for _, kind in inspect.getmembers(errors, inspect.isclass)
    if issubclass(kind, errors.DavylampError) and not issubclass(kind, errors.InputError | errors.MissingExtraError)
]
FAULT = errors.Fault("plan.doses[1]", -3, "a whole number of at least 1", "Raise it.")


@pytest.mark.parametrize(
    "error",
    [
        *(kind("said") for kind in PLAIN),
        errors.InputError(FAULT),
        errors.RecipeError([FAULT, FAULT]),
        errors.MissingExtraError("gguf", "gguf", "a GGUF file"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_crosses_from_a_worker_to_its_parent_as_it_was(error):
    again = pickle.loads(pickle.dumps(error))  # noqa: S301 - made one line before
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert vars(again) == vars(error)
    assert again.exit_code == 2


def test_a_fault_says_the_field_the_value_what_is_allowed_and_the_way_out():
    assert str(FAULT) == "plan.doses[1] is -3; allowed: a whole number of at least 1. Raise it."
    assert len(str(errors.Fault("x", "y" * 1000, "less"))) < 200
    assert str(errors.InputError([FAULT, FAULT])).count("\n") == 1
