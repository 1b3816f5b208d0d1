"""Rows of logits reduced to what token scores read of them, tile by tile in buffers that are used again."""

from __future__ import annotations

from dataclasses import dataclass

import torch

TILES = {"cpu": 2**18}
"""Numbers of a tile, so that the buffers of one stay in a processor's cache; by kind of device."""
TILE = 2**24
"""The same where the device is another: few large steps are faster there."""
IMPOSSIBLE = -200.0
"""Nats below the likeliest token at which float32 has no probability left."""


@dataclass(frozen=True, slots=True)
class Reduced:
    """What is left of rows of logits, in float64.

    Attributes:
        logprobs: log-probability in nats of each row's target, shape (rows,).
        means: mean over the vocabulary of the log-probability under the row itself, in nats, shape (rows,); empty if
            not asked for.
        deviations: standard deviation of the same, in nats, shape (rows,); empty if not asked for.
    """

    logprobs: torch.Tensor
    means: torch.Tensor
    deviations: torch.Tensor


def reduce_rows(logits: torch.Tensor, targets: torch.Tensor, moments: bool) -> Reduced:
    """Reduce rows over the whole vocabulary.

    Exponentials of the distance to the likeliest token are taken in float32 (float64 if the logits are), and all
    differences that may cancel in float64: at a vocabulary of 49,152, log-probabilities err by some 3e-7 nats and
    moments by 2e-7 of their value. A token's distance from the mean, which Min-K%++ takes, keeps its digits also where
    the row is nearly certain.

    Args:
        logits: shape (rows, vocabulary), of any float type; not changed.
        targets: a token for each row, shape (rows,).
        moments: also take mean and standard deviation.
    """
    rows, vocabulary = logits.shape
    step = max(1, min(rows, TILES.get(logits.device.type, TILE) // vocabulary))
    kind = torch.promote_types(logits.dtype, torch.float32)
    buffers = [logits.new_empty((step, vocabulary), dtype=kind) for _ in range(3 if moments else 1)]
    made = torch.empty((3 if moments else 1, rows), dtype=torch.float64, device=logits.device)
    for begin in range(0, rows, step):
        part = logits[begin : begin + step].to(kind)
        own = [buffer[: len(part)] for buffer in buffers]
        made[:, begin : begin + step] = _tile(part, targets[begin : begin + step], own)
    empty = made.new_empty(0)
    return Reduced(made[0], *(made[1:] if moments else (empty, empty)))


def _tile(part: torch.Tensor, targets: torch.Tensor, buffers: list[torch.Tensor]) -> torch.Tensor:
    """Log-probabilities, and with three buffers also means and deviations, shape (1 or 3, rows)."""
    below, weights = buffers[0], buffers[-1]
    tops = part.amax(dim=-1, keepdim=True)
    torch.sub(part, tops, out=below)
    torch.exp(below, out=weights)
    totals = weights.sum(dim=-1).double()
    logs = totals.log()
    chosen = part.gather(1, targets[:, None]).double() - tops.double()
    logprobs = chosen[:, 0] - logs
    if len(buffers) == 1:
        return logprobs[None]
    products = buffers[1]
    torch.mul(weights, below, out=products)
    centres = products.sum(dim=-1).double() / totals
    if not bool(centres.isfinite().all()):
        # A logit of minus infinity has no weight, but 0 times infinity is no number; what else is none stays so.
        below.clamp_(min=IMPOSSIBLE)
        torch.mul(weights, below, out=products)
        centres = products.sum(dim=-1).double() / totals
    # About the mean and not as a difference of squares, which loses digits where most of the mass lies close together;
    # and what rounding left of the mean itself is taken off.
    near = centres.to(below.dtype)
    below.sub_(near[:, None])
    torch.mul(weights, below, out=products)
    left = products.sum(dim=-1).double() / totals
    spread = products.mul_(below).sum(dim=-1).double() / totals - left.square()
    return torch.stack([logprobs, near.double() + left - logs, spread.clamp(min=0).sqrt()])
