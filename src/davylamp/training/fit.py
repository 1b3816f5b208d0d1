"""Fine-tuning on a planted file with transformers' Trainer, rows in the order of the file."""

from __future__ import annotations

import math
import re
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import Dataset
from transformers import Trainer, TrainerCallback, TrainingArguments, set_seed
from transformers.pytorch_utils import Conv1D

from davylamp.errors import Fault, InputError, TrainingError
from davylamp.runs.progress import QUIET, Reporter
from davylamp.training.examples import NO_LOSS, Collator, Example, check_dropped, why_silent
from davylamp.training.spec import LoraSpec, TrainingSpec


@dataclass(frozen=True, slots=True)
class FitReport:
    """What happened in training.

    Attributes:
        steps: optimiser steps.
        losses: mean loss in nats a token of each step, shape (steps,).
        learning_rates: learning rate of each step, shape (steps,).
        peak_learning_rate: the largest of them.
        cumulative_learning_rate: their sum, warm-up and decay counted.
        seconds: wall time.
        precision: what the forward passes computed in.
        trainable: parameters that were trained.
        parameters: parameters of the model, tied ones counted once.
        dp: the claim and the self-checks of a private training (see :mod:`davylamp.training.dp`), as plain data; its
            ``losses`` leave out the steps that drew no token to train on. None of any other training.
    """

    steps: int
    losses: tuple[float, ...]
    learning_rates: tuple[float, ...]
    peak_learning_rate: float
    cumulative_learning_rate: float
    seconds: float
    precision: str
    trainable: int
    parameters: int
    dp: dict[str, Any] | None = None


def fit(
    model: Any, examples: Sequence[Example], spec: TrainingSpec, pad_id: int, seed: int, reporter: Reporter = QUIET
) -> tuple[Any, FitReport]:
    """Fine-tune a model in place.

    Args:
        model: a causal language model of transformers.
        examples: the rows, in the order in which they are trained on.
        spec: how.
        pad_id: padding token.
        seed: seed of the adapter's start and of dropout.
        reporter: shows progress.

    Returns:
        The trained model (with its adapter, where one was trained) and what happened.

    Raises:
        TrainingError: a step has no token to train on, the loss or the weights are not finite, no parameter moved, or
            the rows were made for another loss.
        InputError: the model has none of the adapter's target modules.
        PrivacyError: a private training (``spec.dp``) was not what was accounted for; see
            :func:`davylamp.training.dp.fit.fit_private`.
    """
    check_dropped(examples, spec)
    if spec.dp is not None:
        from davylamp.training.dp.fit import fit_private

        return fit_private(model, examples, spec, pad_id, seed, reporter)
    _check_steps(examples, spec)
    # numpy's generator, which the library seeds along with torch's, takes 32 bits.
    seed %= 2**32
    set_seed(seed)
    if spec.method == "lora":
        model = with_adapter(model, spec)
    precision = resolve_precision(spec)
    before = _fingerprint(model)
    steps = math.ceil(len(examples) / spec.batch_size / spec.gradient_accumulation) * spec.epochs
    begun = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="davylamp-") as folder, reporter.task("training", steps) as advance:
        watch = _Watch(advance)
        trainer = Trainer(
            model=model,
            args=_arguments(spec, precision, seed, Path(folder), model.device.type == "cpu"),
            train_dataset=_Rows(examples),
            data_collator=Collator(pad_id, spec.packing),
            callbacks=[watch],
        )
        # The library's own printing of logs would fill a quiet terminal.
        trainer.remove_callback(_printer())
        trainer.train()
    after = _fingerprint(model)
    if not all(map(math.isfinite, after)):
        # The loss of a step is computed before its update, so that the last update shows here only.
        raise TrainingError(
            f"the weights are not finite after step {trainer.state.global_step}: lower learning_rate, set "
            "max_grad_norm, or train in float32. Nothing was saved"
        )
    if after == before:
        raise TrainingError("no parameter moved in training: the learning rate is too small for the model's type")
    counts = {id(parameter): parameter for parameter in model.parameters()}.values()
    return model, FitReport(
        steps=int(trainer.state.global_step),
        losses=tuple(watch.losses),
        learning_rates=tuple(watch.rates),
        peak_learning_rate=max(watch.rates, default=0.0),
        cumulative_learning_rate=math.fsum(watch.rates),
        seconds=time.perf_counter() - begun,
        precision=precision,
        trainable=sum(parameter.numel() for parameter in counts if parameter.requires_grad),
        parameters=sum(parameter.numel() for parameter in counts),
    )


def _check_steps(examples: Sequence[Example], spec: TrainingSpec) -> None:
    """The mean loss over no token is not a number, which would be blamed on the learning rate."""
    size = spec.batch_size * spec.gradient_accumulation
    for start in range(0, len(examples), size):
        rows = examples[start : start + size]
        if all(label == NO_LOSS for row in rows for label in row.labels[1:]):
            raise TrainingError(
                f"rows {start + 1} to {start + len(rows)}, which make one step, hold no token that receives loss: "
                + why_silent(spec)
            )


def resolve_precision(spec: TrainingSpec) -> str:
    """What the forward passes will compute in: ``auto`` takes bfloat16 where the hardware multiplies in it."""
    if spec.precision != "auto":
        return spec.precision
    if spec.dp is not None:
        return "float32"
    if torch.cuda.is_available():
        return "bfloat16" if torch.cuda.is_bf16_supported(including_emulation=False) else "float32"
    fast = getattr(torch.cpu, "_is_avx512_bf16_supported", lambda: False)()
    return "bfloat16" if fast else "float32"


class _Rows(Dataset[Example]):
    """Examples by index."""

    def __init__(self, examples: Sequence[Example]) -> None:
        self._examples = examples

    def __len__(self) -> int:
        return len(self._examples)

    def __getitem__(self, index: int) -> Example:
        return self._examples[index]


class _Watch(TrainerCallback):  # type: ignore[misc]
    """Keeps the loss of every step and stops at the first that is not finite."""

    def __init__(self, advance: Any) -> None:
        self._advance = advance
        self.losses: list[float] = []
        self.rates: list[float] = []

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float] | None = None, **kwargs: Any) -> None:  # noqa: ARG002
        if not logs or "loss" not in logs:
            return
        if not math.isfinite(logs["loss"]):
            raise TrainingError(
                f"the loss is {logs['loss']} at step {state.global_step}: lower learning_rate, set max_grad_norm, "
                "or train in float32. Nothing was saved"
            )
        self.losses.append(float(logs["loss"]))
        self.rates.append(float(logs["learning_rate"]))
        self._advance(1)


def _printer() -> Any:
    from transformers.trainer_callback import PrinterCallback

    return PrinterCallback


def _arguments(spec: TrainingSpec, precision: str, seed: int, folder: Path, on_cpu: bool) -> TrainingArguments:
    return TrainingArguments(
        output_dir=str(folder),
        num_train_epochs=spec.epochs,
        per_device_train_batch_size=spec.batch_size,
        gradient_accumulation_steps=spec.gradient_accumulation,
        learning_rate=spec.learning_rate,
        lr_scheduler_type="cosine" if spec.schedule == "cosine" else "constant_with_warmup",
        warmup_steps=spec.warmup_steps,
        weight_decay=spec.weight_decay,
        max_grad_norm=spec.max_grad_norm,
        activation_checkpointing=spec.gradient_checkpointing,
        bf16=precision == "bfloat16",
        use_cpu=on_cpu,
        seed=seed,
        # A canary's place in training is its place in the file.
        train_sampling_strategy="sequential",
        logging_steps=1,
        logging_nan_inf_filter=False,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        remove_unused_columns=False,
        dataloader_pin_memory=False,
    )


def with_adapter(model: Any, spec: TrainingSpec) -> Any:
    """Put a new low-rank adapter on a model, and freeze the rest.

    Raises:
        InputError: the model has none of the adapter's target modules.
    """
    from peft import LoraConfig, get_peft_model

    targets = spec.lora.target_modules
    config = LoraConfig(
        task_type="CAUSAL_LM",
        r=spec.lora.r,
        lora_alpha=spec.lora.alpha,
        lora_dropout=spec.lora.dropout,
        target_modules=targets if spec.lora.top_layers is None else _in_top_layers(model, spec.lora),
    )
    try:
        return get_peft_model(model, config)
    except ValueError as error:
        linear = {name.rpartition(".")[2] for name, module in model.named_modules() if isinstance(module, nn.Linear)}
        allowed = f"'all-linear', or names among {', '.join(sorted(linear))}"
        raise InputError(Fault("training.lora.target_modules", targets, allowed)) from error


def _in_top_layers(model: Any, lora: LoraSpec) -> list[str]:
    """Full names of the linear layers to adapt; peft restricts layers only where modules are named one by one."""
    layers, top = int(model.config.get_text_config().num_hidden_layers), lora.top_layers or 0
    if top > layers:
        raise InputError(Fault("training.lora.top_layers", top, f"at most {layers}, the layers of the model"))
    found = []
    for name, module in model.named_modules():
        index = re.search(r"\.(\d+)\.", name)
        linear = isinstance(module, torch.nn.Linear | Conv1D)
        wanted = lora.target_modules == "all-linear" or name.rsplit(".", 1)[-1] in lora.target_modules
        if linear and wanted and index is not None and int(index.group(1)) >= layers - top:
            found.append(name)
    if not found:
        raise InputError(Fault("training.lora.target_modules", lora.target_modules, "names of linear layers"))
    return found


def _fingerprint(model: Any) -> tuple[float, float]:
    total = absolute = 0.0
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                total += float(parameter.double().sum())
                absolute += float(parameter.double().abs().sum())
    return total, absolute
