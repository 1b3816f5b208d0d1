"""Copies of a model as it may be deployed: with its adapter merged, with its weights quantised; and relearning."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import nn
from transformers.pytorch_utils import Conv1D

from davylamp.errors import Fault, InputError, TrainingError
from davylamp.protect.afterwards.losses import row_log_likelihoods, token_loss
from davylamp.training.examples import Collator, Example

HOW = "weights rounded to {bits} bits and back, symmetric, a scale for each output of a linear layer, head left out"
"""What a quantised copy is, for a report."""
LOOKS = 4
"""How often a relearning model is looked at."""


def merged(model: Any) -> Any:
    """A copy of a model with its adapter folded into its weights; a plain copy where it has none."""
    twin = copy.deepcopy(model)
    return (twin.merge_and_unload() if hasattr(twin, "merge_and_unload") else twin).eval()


def quantised(model: Any, bits: int) -> Any:
    """A copy whose linear layers hold what is left of their weights after a round trip through small integers.

    Each output's weights w become ``s * round(w / s)`` with ``s = max |w| / (2^(bits - 1) - 1)``: weight-only,
    symmetric, round to nearest, as the common int8 schemes store weights; activations stay as they are. The head is
    left out, as it is by default there, and with it an embedding tied to it. An adapter is merged first. The
    arithmetic is that of the model's own type, so that any release reads the copy on any machine (PyTorch's own
    dynamic quantisation, ``torch.ao.quantization``, is deprecated and tied to the processor's engine).

    Args:
        model: a causal language model.
        bits: width of an integer, from 2.

    Raises:
        InputError: ``bits`` is below 2, or the model has no linear layer.
    """
    if bits < 2:
        raise InputError(Fault("bits", bits, "a whole number of at least 2"))
    twin = merged(model)
    layers = list(_linear(twin))
    if not layers:
        raise InputError(
            Fault("model", type(model).__name__, "a model with linear layers, which are what is quantised")
        )
    with torch.no_grad():
        for layer in layers:
            # A Conv1D holds its weights the other way round: (inputs, outputs).
            axis = 0 if isinstance(layer, Conv1D) else 1
            layer.weight.copy_(round_trip(layer.weight, bits, axis))
    return twin


def round_trip(weight: torch.Tensor, bits: int, axis: int) -> torch.Tensor:
    """Weights after rounding to signed integers of ``bits`` bits with one scale for each line along ``axis``."""
    wide = weight.float()
    scale = wide.abs().amax(dim=axis, keepdim=True) / (2 ** (bits - 1) - 1)
    # A line of zeros has no scale, and stays.
    return torch.where(scale > 0, torch.round(wide / scale.clamp_min(1e-38)) * scale, wide).to(weight.dtype)


def _linear(model: Any) -> Iterator[Any]:
    head = model.get_output_embeddings()
    for module in model.modules():
        if isinstance(module, nn.Linear | Conv1D) and module is not head:
            yield module


def relearn(
    model: Any,
    rows: Sequence[Example],
    steps: int,
    batch_size: int,
    learning_rate: float,
    pad_id: int,
    look: Callable[[int], None],
) -> None:
    """Fine-tune a model in place for a few steps, by AdamW on the rows in their order.

    Args:
        model: moved where it asks for gradients; give a copy.
        rows: rows that hold none of the forgotten content; taken again from the first where they do not suffice.
        steps: optimiser steps, at least 1.
        batch_size: rows of a step.
        learning_rate: constant.
        pad_id: padding token.
        look: called with the steps done, at most :data:`LOOKS` times, the last time after the last; may put the
            model into evaluation mode.

    Raises:
        InputError: there is no row.
        TrainingError: a loss is not finite.
    """
    if not rows:
        raise InputError(Fault("relearn rows", 0, "at least one", "Or unlearning.relearn.steps=0, for no such check."))
    collate = Collator(pad_id, packing=False)
    moved = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(moved, learning_rate, weight_decay=0.0)
    looked = {round(steps * part / LOOKS) for part in range(1, LOOKS + 1)}
    for step in range(1, steps + 1):
        model.train()
        batch = collate([rows[(at + (step - 1) * batch_size) % len(rows)] for at in range(batch_size)])
        loss = token_loss(
            *row_log_likelihoods(model, {name: values.to(model.device) for name, values in batch.items()})
        )
        if not bool(torch.isfinite(loss)):
            raise TrainingError(f"the loss is {float(loss)} at step {step} of relearning: lower its learning_rate")
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(moved, 1.0)
        optimizer.step()
        if step in looked:
            look(step)
