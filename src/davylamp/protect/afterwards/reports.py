"""What unlearning did, as values that are read without torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Outcome = Literal["forgotten", "nothing to forget", "verifier never passed"]
"""``nothing to forget``: the verifier passed before the first step, so that none was taken."""


@dataclass(frozen=True, slots=True)
class RoundReport:
    """What a round did.

    Attributes:
        number: from 1.
        steps: optimiser steps in it.
        objective: mean of the loss that was descended; its unit depends on the method and the weights.
        forget_loss: mean loss on the forget rows as they were stepped on, in nats a token.
        retain_loss: the same of the retain rows; none if they have no weight.
        gradient_norm: mean norm of the gradients before they were clipped.
        extraction: what the verifier said afterwards.
    """

    number: int
    steps: int
    objective: float
    forget_loss: float
    retain_loss: float | None
    gradient_norm: float
    extraction: float


@dataclass(frozen=True, slots=True)
class Unlearning:
    """What unlearning did.

    Attributes:
        outcome: see :data:`Outcome`.
        passed_at: the round after which the verifier passed first, 0 for before any; none if it never did.
        before: what the verifier said before the first step.
        rounds: the rounds, in order.
    """

    outcome: Outcome
    passed_at: int | None
    before: float
    rounds: tuple[RoundReport, ...]
