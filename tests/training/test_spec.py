from __future__ import annotations

import pytest

from davylamp.errors import RecipeError
from davylamp.runs.config import validate
from davylamp.training.spec import TrainingSpec


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("method", "qlora"),
        ("epochs", 0),
        ("batch_size", 0),
        ("gradient_accumulation", 0),
        ("learning_rate", 0),
        ("learning_rate", 1),
        ("learning_rate", float("nan")),
        ("schedule", "linear"),
        ("warmup_steps", -1),
        ("weight_decay", -0.1),
        ("max_grad_norm", -1),
        ("max_grad_norm", float("inf")),
        ("weight_decay", float("inf")),
        ("lora.alpha", float("inf")),
        ("max_length", 7),
        ("loss", "prompt"),
        ("style", "raw"),
        ("precision", "float16"),
        ("lora.r", 0),
        ("lora.dropout", 1),
        ("epoch", 1),
    ],
)
def test_what_is_not_allowed_is_named(field, value):
    outer, _, inner = field.partition(".")
    with pytest.raises(RecipeError) as caught:
        validate(TrainingSpec, {outer: {inner: value} if inner else value}, "training")
    assert [fault.field for fault in caught.value.faults] == [f"training.{field}"]
