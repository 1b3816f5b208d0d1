"""What a private training is asked for: one frozen value, checked before anything is loaded."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

Accountant = Literal["pld", "rdp"]
"""``pld``: privacy loss distributions, tight. ``rdp``: Rényi DP, looser, as older work reports."""


class DPSpec(BaseModel):
    """DP-Adam (Abadi et al., 1607.00133, with AdamW's update) for adding or removing one row.

    Either ``epsilon`` or ``noise_multiplier`` is given. The expected batch is ``batch_size x gradient_accumulation``
    rows, of which every row is part by an independent coin; the steps are ``epochs x rows / expected batch``, rounded
    up.

    Attributes:
        epsilon: target in nats; the least noise that meets it is taken.
        noise_multiplier: standard deviation of the noise over ``max_grad_norm``; 0 clips, adds no noise, and claims
            nothing.
        delta: of the claim; ``1 / (10 rows)`` if none.
        max_grad_norm: the gradient of each row, over all trained parameters, is clipped to this norm.
        accountant: what epsilon is worked out by.
        physical_batch: rows of a forward pass at most, since a batch drawn by coins may be of any size;
            ``batch_size`` if none.
        seeded: draw batches and noise from the seed of the training, so that it can be repeated. Who knows the seed
            can take the noise away again: a model to be given to others takes ``false``, which draws from the system.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    epsilon: float | None = Field(None, gt=0)
    noise_multiplier: float | None = Field(None, ge=0)
    delta: float | None = Field(None, gt=0, lt=1)
    max_grad_norm: float = Field(1.0, gt=0)
    accountant: Accountant = "pld"
    physical_batch: int | None = Field(None, ge=1)
    seeded: bool = True

    @model_validator(mode="after")
    def _one_target(self) -> DPSpec:
        if (self.epsilon is None) == (self.noise_multiplier is None):
            raise ValueError(
                "give either epsilon, and the noise is found, or noise_multiplier, and epsilon is worked out"
            )
        return self
