"""Gradients of single rows, by opacus's hooks, and the proof that they are those of single rows."""

from __future__ import annotations

import contextlib
import importlib.util
import inspect
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import nn

from davylamp.errors import MissingExtraError, ModelError
from davylamp.training.dp.sampling import Check
from davylamp.training.examples import NO_LOSS, Collator, Example

TOLERANCE = 1e-3
"""Relative difference of gradients in float32 that another order of sums explains."""


def check_installed() -> None:
    """Check before anything is loaded that a private training can be carried out.

    Raises:
        MissingExtraError: opacus is not installed.
    """
    if importlib.util.find_spec("opacus") is None:
        raise MissingExtraError("opacus", "dp", "training with differential privacy")


@contextlib.contextmanager
def single_row_gradients(model: nn.Module) -> Iterator[None]:
    """Let every backward pass leave the gradient of each row in ``parameter.grad_sample``, until the end.

    The model itself stays as it is: hooks are put on its layers and taken off again. A tied weight, which several
    layers use, is one parameter, whose row gradients from all layers are summed.

    Raises:
        ModelError: opacus cannot take the model.
    """
    from opacus.grad_sample.grad_sample_module import GradSampleHooks

    model.train()
    try:
        hooks = GradSampleHooks(model, batch_first=True, loss_reduction="sum", strict=True)
    except NotImplementedError as error:
        raise ModelError(f"opacus cannot take gradients of single rows of this model: {error}") from error
    try:
        with warnings.catch_warnings():
            # Inputs of the first layer are tokens, which have no gradient; nothing is lost by it.
            warnings.filterwarnings("ignore", message="Full backward hook is firing")
            yield
    finally:
        hooks.cleanup()


class RowLosses:
    """The loss of each row by itself, so that no row's gradient depends on the rows beside it."""

    def __init__(self, model: nn.Module, pad_id: int) -> None:
        """Take the model and the padding token."""
        self._model = model
        self._collate = Collator(pad_id, packing=False)
        base = getattr(model, "get_base_model", lambda: model)()
        self._positions = "position_ids" in inspect.signature(base.forward).parameters
        self._device = next(model.parameters()).device

    def __call__(self, rows: Sequence[Example]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Run the rows forward.

        Returns:
            The mean loss in nats a token of each row, shape (rows,), 0 for one without a token to train on; the sum
            of losses over all tokens; and the number of these.
        """
        batch = {name: values.to(self._device) for name, values in self._collate(rows).items()}
        labels = batch.pop("labels")[:, 1:]
        if self._positions:
            # Learnt positions would be looked up once for all rows, and have no row gradients.
            batch["position_ids"] = torch.arange(batch["input_ids"].shape[1], device=self._device).expand_as(
                batch["input_ids"]
            )
        logits = self._model(**batch, use_cache=False).logits[:, :-1].float()
        each = nn.functional.cross_entropy(logits.transpose(1, 2), labels, ignore_index=NO_LOSS, reduction="none")
        count = (labels != NO_LOSS).sum(dim=1)
        return each.sum(dim=1) / count.clamp(min=1), each.detach().sum(), count.sum()


def trained(model: nn.Module) -> dict[str, Any]:
    """The parameters that are trained, by name, each once."""
    return {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}


def no_rows(model: nn.Module) -> None:
    """Leave the gradients of an empty batch: a model cannot be run on no row, and yet its step has noise."""
    for parameter in trained(model).values():
        parameter.grad_sample = torch.zeros((0, *parameter.shape), device=parameter.device, dtype=parameter.dtype)


def clipped_sum(
    model: nn.Module, losses: RowLosses, rows: Sequence[Example], most: float
) -> tuple[dict[str, torch.Tensor], list[Check]]:
    """The sum of clipped row gradients by autograd, one row at a time, beside which opacus's are held.

    Args:
        model: with hooks on.
        losses: of the same model.
        rows: the rows; each is run by itself.
        most: the clipping norm.

    Returns:
        The sum by parameter, and how far opacus's gradient of each row lay from autograd's.
    """
    parameters = trained(model)
    total = {name: torch.zeros_like(parameter) for name, parameter in parameters.items()}
    worst, at = 0.0, ""
    for row in rows:
        model.zero_grad(set_to_none=True)
        losses([row])[0].sum().backward()  # type: ignore[no-untyped-call]
        own = {name: _gradient(parameter) for name, parameter in parameters.items()}
        norm = torch.sqrt(torch.stack([gradient.square().sum() for gradient in own.values()]).sum())
        for name, parameter in parameters.items():
            seen = _row_gradient(parameter)
            gap = float((seen - own[name]).norm() / norm.clamp(min=1e-12))
            worst, at = (gap, name) if gap > worst else (worst, at)
            total[name] += own[name] * torch.clamp(most / (norm + 1e-6), max=1.0)
            parameter.grad_sample = None
    model.zero_grad(set_to_none=True)
    check = Check(
        "row gradients are autograd's, tied weights counted once",
        f"{len(parameters)} parameters, largest relative difference {worst:.2g}{f' ({at})' if worst > 0 else ''}",
        f"at most {TOLERANCE:g}",
        worst <= TOLERANCE,
    )
    return total, [check]


def _gradient(parameter: nn.Parameter) -> torch.Tensor:
    return torch.zeros_like(parameter) if parameter.grad is None else parameter.grad.detach().clone()


def _row_gradient(parameter: nn.Parameter) -> torch.Tensor:
    """Opacus's gradient of the only row; a parameter that the row did not reach has none."""
    found: Any = getattr(parameter, "grad_sample", None)
    if found is None:
        return torch.zeros_like(parameter)
    return (
        found[0].detach()
        if isinstance(found, torch.Tensor) and len(found) == 1
        else torch.full_like(parameter, torch.nan)
    )


@contextlib.contextmanager
def without_dropout(model: nn.Module) -> Iterator[None]:
    """Leave dropout out, without leaving training mode, in which alone the hooks work."""
    kept: list[tuple[Any, str, Any]] = []
    for module in model.modules():
        names = ("p",) if isinstance(module, nn.Dropout) else ("attention_dropout", "dropout")
        for name in names:
            value = vars(module).get(name)
            if isinstance(value, float) and value > 0:
                kept.append((module, name, value))
                setattr(module, name, 0.0)
    try:
        yield
    finally:
        for module, name, value in kept:
            setattr(module, name, value)
