"""The noise as it was really added: taken back out of every step's gradient, and measured."""

from __future__ import annotations

import math
from typing import Any

import torch

from davylamp.training.dp.sampling import Check

SLACK = 1e-3
"""Relative error of a standard deviation that float32 may account for, beside five standard errors."""


class NoiseTally:
    """Hangs between opacus's noise and the optimiser's update, and measures the one before the other."""

    def __init__(self, noise_multiplier: float, max_grad_norm: float) -> None:
        """Take what was accounted for."""
        self._multiplier = noise_multiplier
        self._norm = max_grad_norm
        self._squares = 0.0
        self._coordinates = 0
        self._beyond = 0.0
        self.rows = 0
        self.steps = 0

    def __call__(self, optimizer: Any) -> None:
        """What opacus calls once it has clipped, summed, added noise and divided."""
        squares = total = 0.0
        for parameter in optimizer.params:
            noise = parameter.grad * optimizer.expected_batch_size - parameter.summed_grad
            squares += float(noise.double().square().sum())
            total += float(parameter.summed_grad.double().square().sum())
            self._coordinates += noise.numel()
        self._squares += squares
        self.steps += 1
        if self.rows == 0:
            # No row was drawn: a gradient other than zero would be one that nobody accounted for.
            self._beyond = max(self._beyond, math.inf if total > 0 else 0.0)
        else:
            self._beyond = max(self._beyond, math.sqrt(total) / (self.rows * self._norm))

    def checks(self, steps: int) -> list[Check]:
        """Whether each of ``steps`` steps had one draw of the accounted noise, on gradients clipped as accounted."""
        aimed = self._multiplier * self._norm
        seen = math.sqrt(self._squares / max(1, self._coordinates))
        margin = aimed * (SLACK + 5 / math.sqrt(2 * max(1, self._coordinates)))
        if aimed == 0:
            # Dividing by the batch and multiplying again leaves rounding alone.
            margin = 1e-4 * self._norm
        return [
            Check("one noise draw a step", f"{self.steps} draws", f"{steps} steps", self.steps == steps),
            Check(
                "the noise's standard deviation is noise_multiplier x max_grad_norm",
                f"{seen:.6g} over {self._coordinates} coordinates",
                f"{aimed:.6g} +- {margin:.2g}",
                abs(seen - aimed) <= margin,
            ),
            Check(
                "no batch's gradient exceeds its rows x max_grad_norm",
                f"largest {self._beyond:.4g} times that",
                f"at most {1 + SLACK:g}",
                self._beyond <= 1 + SLACK,
            ),
        ]


def dry_check(seen: dict[str, torch.Tensor], expected: dict[str, torch.Tensor], tolerance: float) -> Check:
    """Whether the clipped sum that several passes accumulated is the one that was worked out row by row."""
    scale = math.sqrt(sum(float(each.double().square().sum()) for each in expected.values()))
    gap = math.sqrt(sum(float((seen[name] - each).double().square().sum()) for name, each in expected.items()))
    ratio = gap / max(scale, 1e-12)
    return Check(
        "accumulated passes hold each row once, clipped, and no noise",
        f"relative difference {ratio:.2g} from one row at a time",
        f"at most {tolerance:g}",
        ratio <= tolerance,
    )
