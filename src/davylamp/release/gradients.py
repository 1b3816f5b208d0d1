"""How far a local model would move for a record: norms of gradients of its loss."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from davylamp.errors import AccessError
from davylamp.release.answers import check_finite
from davylamp.release.base import Release
from davylamp.release.local import LocalRelease


def gradient_norms(release: Release, ids: Sequence[int], spans: Sequence[tuple[int, int]]) -> list[float]:
    """Euclidean norm of the gradient of each span's mean loss by the parameters that fine-tuning moves.

    These are the adapter's where there is one, else all. The loss is summed in float32 whatever the weights' type; no
    parameter changes and no gradient is left behind.

    Args:
        release: a model on this machine.
        ids: tokens of a record.
        spans: tokens [first, last), none of which begins with the record's first.

    Returns:
        A norm for each span, of a loss in nats.

    Raises:
        AccessError: the release is no model on this machine, or a reference with its adapter disabled.
        PrefixError: the record is longer than the model's context, or a norm is not finite.
    """
    if not isinstance(release, LocalRelease) or release._reference:
        raise AccessError(f"gradients need a model on this machine, which {release.name} is not")
    release._check([ids[:1]], [len(ids)])
    tokens, mask = release._pad([ids])
    found = []
    with _asking(release._model) as parameters, torch.enable_grad():
        logits = release._model(tokens, attention_mask=mask).logits[0, :-1].float()
        losses = torch.nn.functional.cross_entropy(logits, tokens[0, 1:], reduction="none")
        for number, (first, last) in enumerate(spans):
            slopes = torch.autograd.grad(
                losses[first - 1 : last - 1].mean(),
                parameters,
                retain_graph=number + 1 < len(spans),
                allow_unused=True,
            )
            squares = [slope.float().square().sum().double() for slope in slopes if slope is not None]
            found.append(torch.stack(squares).sum().sqrt().cpu().numpy().reshape(1))
            check_finite(found[-1], 0, release.name)
    return [float(each[0]) for each in found]


@contextlib.contextmanager
def _asking(model: Any) -> Iterator[list[Any]]:
    """The parameters that fine-tuning moves, with gradients allowed for as long as they are asked for."""
    # An adapter that was loaded to be used, and not to be trained on, is frozen like all else.
    prefix = getattr(getattr(model, "base_model", None), "prefix", None) if hasattr(model, "peft_config") else None
    moved = [each for name, each in model.named_parameters() if prefix is None or f".{prefix}" in name]
    before = [(each, each.requires_grad) for each in model.parameters()]
    chosen = {id(each) for each in moved}
    try:
        for each, _ in before:
            each.requires_grad_(id(each) in chosen)
        yield moved
    finally:
        for each, flag in before:
            each.requires_grad_(flag)
