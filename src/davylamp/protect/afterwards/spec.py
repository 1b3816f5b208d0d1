"""How a model is made to forget: one frozen value, checked before anything is loaded."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    field_validator,
    model_serializer,
    model_validator,
)

from davylamp.training.spec import LoraSpec

Method = Literal["graddiff", "npo"]
"""``graddiff``: gradient difference (Liu et al., 2203.12817; Maini et al., 2401.06121). ``npo``: negative preference
optimisation (Zhang et al., 2404.05868)."""
METHODS: tuple[Method, ...] = ("graddiff", "npo")


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class RelearnSpec(_Strict):
    """How the unlearned model is fine-tuned again, on rows that hold none of the forgotten secrets.

    Attributes:
        steps: optimiser steps; 0 leaves the check out.
        batch_size: rows of a step.
        learning_rate: of AdamW, constant; that of the unlearning if none.
    """

    steps: int = Field(20, ge=0)
    batch_size: int = Field(8, ge=1)
    learning_rate: float | None = Field(None, gt=0, lt=1)


class UnlearningSpec(_Strict):
    """Everything that unlearning needs besides the model, the rows and the verifier.

    Attributes:
        method: which loss falls on the forget set.
        beta: NPO's inverse temperature; as it falls to 0, NPO becomes gradient ascent.
        forget_weight: weight of the forget set's loss.
        retain_weight: weight of the retain set's loss; 0 leaves the retain set out.
        span: what is forgotten of a row: all tokens that training put loss on (``trained``, as the field has it), or
            only those that cover the secret.
        tuning: ``full`` moves every parameter, ``lora`` a new adapter (or, where the model is an adapter, that one);
            ``auto`` moves what training moved.
        lora: the new adapter; read only where one is made.
        learning_rate: of AdamW, constant; the one that training had if none.
        batch_size: forget rows of a step, and as many retain rows.
        max_grad_norm: gradients are clipped to this norm; 0 does not clip.
        rounds: rounds at most until the verifier passes; a round is one pass over the forget set.
        threshold: the verifier passes where it extracts less than this share of the forget set.
        extra_rounds: rounds after it has passed.
        held_out: retain rows that are only measured, at most; a quarter of all if those are few.
        seed: order of rows, and dropout.
        relearn: the check by relearning.
        bits: widths of the quantised copies.
    """

    method: Method
    beta: float = Field(0.1, gt=0)
    forget_weight: float = Field(1.0, gt=0)
    retain_weight: float = Field(1.0, ge=0)
    span: Literal["trained", "secret"] = "trained"
    tuning: Literal["auto", "full", "lora"] = "auto"
    lora: LoraSpec = Field(default_factory=LoraSpec)
    learning_rate: float | None = Field(None, gt=0, lt=1)
    batch_size: int = Field(8, ge=1)
    max_grad_norm: float = Field(1.0, ge=0)
    rounds: int = Field(14, ge=1)
    threshold: float = Field(0.15, gt=0, le=1)
    extra_rounds: int = Field(1, ge=0)
    held_out: int = Field(64, ge=1)
    seed: int = Field(0, ge=0)
    relearn: RelearnSpec = Field(default_factory=RelearnSpec)
    bits: tuple[Literal[4, 8], ...] = (8, 4)

    @field_validator("bits")
    @classmethod
    def _once(cls, bits: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(dict.fromkeys(bits))

    @model_serializer(mode="wrap")
    def _without_a_useless_beta(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave beta out where it is refused, so that what is written can be read."""
        data: dict[str, Any] = handler(self)
        return data if self.method == "npo" else {key: value for key, value in data.items() if key != "beta"}

    @model_validator(mode="after")
    def _beta_has_a_use(self) -> UnlearningSpec:
        if self.method != "npo" and "beta" in self.model_fields_set:
            raise ValueError(f"beta is NPO's, and {self.method} has none: leave it out")
        return self
