"""Training several small models at once; see :mod:`davylamp.training.stacking`."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from davylamp.errors import TrainingError
from davylamp.training.examples import NO_LOSS, Collator, Example, check_dropped, why_silent
from davylamp.training.spec import TrainingSpec
from davylamp.training.stacking import stacked

PLAIN: dict[str, Any] = {
    "method": "full",
    "gradient_accumulation": 1,
    "weight_decay": 0.0,
    "packing": False,
    "gradient_checkpointing": False,
}
"""Settings that training in a stack knows in one way only."""
KNOWN = {
    *PLAIN, "lora", "epochs", "batch_size", "learning_rate", "schedule", "warmup_steps", "max_grad_norm", "max_length",
    "loss", "style", "precision", "goldfish",
}  # fmt: skip
"""All settings that training in a stack knows; others must have their defaults. What goldfish drops has no label."""
TRIED = 3
"""Steps in which :func:`stackable` compares."""
AGREEMENT = 1e-3
"""Relative difference of gradients below which a stack computes what the model itself does, in float32."""


def fit_stack(
    model: nn.Module,
    examples: Sequence[Sequence[Example]],
    widths: Sequence[int],
    spec: TrainingSpec,
    pad_id: int,
    steps: int | None = None,
) -> tuple[nn.Module, torch.Tensor]:
    """Train copies of a model at once, each on rows of its own, as :func:`davylamp.training.fit.fit` trains one.

    The result for each copy is the same to the last bit whatever the others are, and within what another order of
    sums changes in float32 of what ``fit`` gives.

    Args:
        model: the model, left as it is; see :func:`stackable`.
        examples: the rows of each copy, as many for all, in the order in which they are trained on.
        widths: tokens that the rows of each batch are padded to, as many as there are batches in an epoch; none is
            shorter than a row of its batch.
        spec: how.
        pad_id: padding token.
        steps: stop after so many.

    Returns:
        The stack (see :func:`unstack`), and the loss of each step in nats a token, shape (steps, copies).

    Raises:
        TrainingError: a loss or a weight is not finite, a step has no token to train on, or the rows were made for
            another loss.
    """
    from transformers import get_scheduler

    for own in examples:
        check_dropped(own, spec)
    copies, size = len(examples), spec.batch_size
    many = stacked(model, copies).train()
    weights = list(many.parameters())
    optimizer = torch.optim.AdamW(weights, spec.learning_rate, weight_decay=0.0, fused=True)
    kind = "cosine" if spec.schedule == "cosine" else "constant_with_warmup"
    scheduler = get_scheduler(kind, optimizer, spec.warmup_steps, len(widths) * spec.epochs)
    losses: list[torch.Tensor] = []
    for _ in range(spec.epochs):
        for at, width in enumerate(widths):
            if steps is not None and len(losses) == steps:
                break
            rows = [rows[at * size : (at + 1) * size] for rows in examples]
            loss = _losses(many, rows, width, pad_id, spec)
            if not bool(torch.isfinite(loss).all()):
                raise TrainingError(
                    f"the loss is {loss[~torch.isfinite(loss)][0].item()} at step {len(losses) + 1}: lower "
                    "learning_rate, set max_grad_norm, or train in float32. Nothing was saved"
                )
            torch.autograd.backward(loss.sum())
            _clip(weights, spec.max_grad_norm, copies)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
            losses.append(loss.detach())
    if not all(bool(torch.isfinite(weight).all()) for weight in weights):
        raise TrainingError("the weights are not finite after the last step: lower learning_rate. Nothing was saved")
    return many, torch.stack(losses)


def _losses(
    many: nn.Module, rows: Sequence[Sequence[Example]], width: int, pad_id: int, spec: TrainingSpec
) -> torch.Tensor:
    """Mean loss in nats a token of each copy's batch, shape (copies,)."""
    batch = _padded([row for part in rows for row in part], width, pad_id)
    labels = batch.pop("labels")
    logits = many(**batch, use_cache=False).logits[:, :-1]
    found = []
    for part in range(len(rows)):
        own = slice(part * len(rows[part]), (part + 1) * len(rows[part]))
        wanted = labels[own, 1:] != NO_LOSS
        if not bool(wanted.any()):
            raise TrainingError(f"the rows of a step hold no token that receives loss: {why_silent(spec)}")
        found.append(nn.functional.cross_entropy(logits[own][wanted].float(), labels[own, 1:][wanted]))
    return torch.stack(found)


def _padded(rows: Sequence[Example], width: int, pad_id: int) -> dict[str, torch.Tensor]:
    """The tensors of a batch, padded to a width that does not depend on the rows.

    One column more than the longest row may have: where no row of a batch is padded, the library leaves the mask out
    and computes attention another way.
    """
    batch = Collator(pad_id, packing=False)(rows)
    more = width + 1 - batch["input_ids"].shape[1]
    fill = {"input_ids": pad_id, "labels": NO_LOSS, "attention_mask": 0}
    return {name: nn.functional.pad(values, (0, more), value=fill[name]) for name, values in batch.items()}


def _clip(weights: Sequence[nn.Parameter], most: float, copies: int) -> None:
    """Clip the gradient of each copy by its own norm."""
    if most <= 0:
        return
    gradients = [weight.grad for weight in weights if weight.grad is not None]
    for part in range(copies):
        # One copy after the other: a sum over all at once may be in another order than a sum over one.
        own = [gradient[part] for gradient in gradients]
        norm = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(gradient) for gradient in own]))
        factor = torch.clamp(most / (norm + 1e-6), max=1.0)
        for gradient in own:
            gradient.mul_(factor)


def stackable(
    model: Any, examples: Sequence[Example], longest: int, spec: TrainingSpec, precision: str, pad_id: int
) -> bool:
    """Whether copies of a model can be trained in a stack: the settings allow it, and it was tried.

    Tried out on the first rows: the loss and the gradients of a stack are the model's own, and two copies together
    give the bits of each alone.

    Args:
        model: a causal language model of transformers, on a CPU.
        examples: rows that training will begin with.
        longest: tokens of the longest row of all; a column of padding comes after it.
        spec: how it would be trained.
        precision: what the forward passes compute in.
        pad_id: padding token.
    """
    defaults = type(spec)().model_dump()
    asked = spec.model_dump()
    fits = all(asked[name] == value for name, value in PLAIN.items())
    fits = fits and all(asked[name] == defaults[name] for name in asked.keys() - KNOWN)
    one_thread = model.device.type == "cpu" and torch.get_num_threads() == 1
    if not fits or not one_thread or precision != "float32" or _drops(model) or _nested(model):
        return False
    context = getattr(model.config, "max_position_embeddings", None)
    if context is not None and longest >= context:
        return False
    first = list(examples[: TRIED * spec.batch_size])
    batches = [first[at : at + spec.batch_size] for at in range(0, len(first), spec.batch_size)]
    widths = [max(len(row.ids) for row in batch) for batch in batches]
    if any(all(label == NO_LOSS for row in batch for label in row.labels[1:]) for batch in batches):
        return False
    try:
        return _same_gradients(model, batches[0], widths[0], spec, pad_id) and _same_bits(
            model, first, widths, spec, pad_id
        )
    except (RuntimeError, TypeError, ValueError, NotImplementedError):
        # A module that cannot be stacked, whatever it does; the ordinary trainer knows it.
        return False


def _drops(model: Any) -> bool:
    """Whether training drops anything at random, which no two copies would do alike."""
    modules = any(module.p > 0 for module in model.modules() if isinstance(module, nn.Dropout))
    settings = model.config.to_dict().items()
    return modules or any("att" in name and "drop" in name and value for name, value in settings)


def _nested(model: nn.Module) -> bool:
    """Whether a module has weights of its own and others below it, which the stack would lose."""
    return any(list(module.named_parameters(recurse=False)) and list(module.children()) for module in model.modules())


def _same_gradients(model: Any, batch: Sequence[Example], width: int, spec: TrainingSpec, pad_id: int) -> bool:
    """Whether loss and gradients of a stack of one are those that the model computes with its own loss."""
    plain = copy.deepcopy(model).train()
    expected = plain(**_padded(batch, width, pad_id), use_cache=False).loss
    expected.backward()
    many = stacked(model, 1).train()
    found = _losses(many, [batch], width, pad_id, spec)
    torch.autograd.backward(found.sum())
    if not torch.allclose(found[0], expected, rtol=AGREEMENT):
        return False
    gradients = dict(many.named_parameters())
    for name, weight in plain.named_parameters():
        one, other = weight.grad, gradients[name].grad
        if (one is None) != (other is None):
            return False
        if one is not None and other is not None:
            scale = torch.linalg.vector_norm(one) + 1e-8
            if float(torch.linalg.vector_norm(one - other[0]) / scale) > AGREEMENT:
                return False
    return True


def _same_bits(model: Any, rows: Sequence[Example], widths: Sequence[int], spec: TrainingSpec, pad_id: int) -> bool:
    """Whether two copies, the second on the same rows backwards, end with the bits that each alone ends with."""
    wide = [max(widths)] * len(widths)
    size = len(widths) * spec.batch_size
    whole = list(rows) if len(rows) == size else list(rows[: len(rows) // spec.batch_size * spec.batch_size])
    if not whole:
        return False
    wide = wide[: len(whole) // spec.batch_size]
    parts = [whole, whole[::-1]]
    once = spec.model_copy(update={"epochs": 1})
    many, _ = fit_stack(model, parts, wide, once, pad_id)
    for which, part in enumerate(parts):
        alone, _ = fit_stack(model, [part], wide, once, pad_id)
        pairs = zip(many.parameters(), alone.parameters(), strict=True)
        if not all(torch.equal(one[which], other[0]) for one, other in pairs):
            return False
    return True
