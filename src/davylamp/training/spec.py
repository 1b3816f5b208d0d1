"""How a model is fine-tuned: one frozen value, checked before anything is loaded."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from davylamp.training.dp.spec import DPSpec
from davylamp.training.goldfish import GoldfishSpec


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class LoraSpec(_Strict):
    """A low-rank adapter (Hu et al., 2106.09685), as peft makes it.

    Attributes:
        r: rank.
        alpha: scale; the update is multiplied by ``alpha / r``.
        dropout: dropout before the adapter.
        target_modules: which linear layers; ``all-linear`` is every one but the head.
        top_layers: adapt so many of the last layers only, which also spares the backward pass through the
            others; default all.
    """

    r: int = Field(16, ge=1)
    alpha: float = Field(32.0, gt=0)
    dropout: float = Field(0.0, ge=0, lt=1)
    target_modules: Literal["all-linear"] | tuple[str, ...] = "all-linear"
    top_layers: int | None = Field(None, ge=1)


class TrainingSpec(_Strict):
    """Everything that fine-tuning needs besides the rows and the model.

    Attributes:
        method: ``full`` trains every parameter, ``lora`` an adapter on the frozen model.
        lora: the adapter; read only where ``method`` is ``lora``.
        epochs: passes over the planted file. A canary of dose d is seen ``d x epochs`` times.
        batch_size: rows of a forward pass.
        gradient_accumulation: forward passes of an optimiser step.
        learning_rate: peak learning rate of AdamW.
        schedule: ``constant`` or ``cosine`` (to zero), after the warm-up.
        warmup_steps: steps of linear warm-up.
        weight_decay: decoupled weight decay.
        max_grad_norm: gradients are clipped to this norm; 0 does not clip.
        max_length: longest row in tokens, longer ones are cut; default the model's context.
        loss: ``reply`` trains on the reply and its end, ``all`` also on the prompt.
        packing: join short rows to rows of ``max_length``, each seeing itself only.
        style: how records are rendered: by the ``chat`` template, ``plain``, or ``auto``.
        precision: ``float32``, ``bfloat16`` (autocast), or ``auto``: bfloat16 where the hardware computes in it.
        gradient_checkpointing: compute activations again in the backward pass, to save memory.
        dp: train with differential privacy; ``max_grad_norm`` is then that of ``dp``.
        goldfish: drop one token in k from the loss, the same in every copy (see :mod:`davylamp.training.goldfish`).
            Together with ``dp`` a row's loss is the mean over the tokens that are left.
    """

    method: Literal["full", "lora"] = "full"
    lora: LoraSpec = Field(default_factory=LoraSpec)
    epochs: int = Field(1, ge=1)
    batch_size: int = Field(4, ge=1)
    gradient_accumulation: int = Field(1, ge=1)
    learning_rate: float = Field(1e-4, gt=0, lt=1)
    schedule: Literal["constant", "cosine"] = "constant"
    warmup_steps: int = Field(0, ge=0)
    weight_decay: float = Field(0.0, ge=0)
    max_grad_norm: float = Field(1.0, ge=0)
    max_length: int | None = Field(None, ge=8)
    loss: Literal["reply", "all"] = "reply"
    packing: bool = False
    style: Literal["auto", "chat", "plain"] = "auto"
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    gradient_checkpointing: bool = False
    dp: DPSpec | None = None
    goldfish: GoldfishSpec | None = None

    @model_validator(mode="after")
    def _can_be_private(self) -> TrainingSpec:
        if self.dp is None:
            return self
        faults = []
        if self.packing:
            faults.append("packing joins records to one row, and what is protected is a row: leave it out")
        if self.gradient_checkpointing:
            faults.append("gradient_checkpointing leaves no gradients of single rows: leave it out")
        if self.precision == "bfloat16":
            faults.append("norms in bfloat16 are off by up to 0.4%, and so would the clipping be: take float32")
        if faults:
            raise ValueError("with dp: " + "; ".join(faults))
        return self

    @property
    def rows_per_update(self) -> int:
        """Rows of one optimiser update, where rows are not packed."""
        return self.batch_size * self.gradient_accumulation
