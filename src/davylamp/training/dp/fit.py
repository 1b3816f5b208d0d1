"""Private fine-tuning: DP-Adam on batches drawn by coins, held to what was accounted for at every step."""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Sequence
from dataclasses import asdict
from importlib.metadata import version
from typing import Any

import torch
from transformers import get_scheduler, set_seed

from davylamp.errors import PrivacyError, TrainingError
from davylamp.runs.progress import QUIET, Reporter
from davylamp.training.dp.accounting import PrivatePlan, plan_private
from davylamp.training.dp.gradients import (
    TOLERANCE,
    RowLosses,
    check_installed,
    clipped_sum,
    no_rows,
    single_row_gradients,
    trained,
    without_dropout,
)
from davylamp.training.dp.noise import NoiseTally, dry_check
from davylamp.training.dp.sampling import Check, PoissonSampler, expected_empty
from davylamp.training.examples import NO_LOSS, Example
from davylamp.training.fit import FitReport, with_adapter
from davylamp.training.spec import TrainingSpec

PROBED = 3
"""Rows on which gradients are compared before training."""
NOTES = (
    "each row is in each step by chance: positions in the file mean nothing for when it was trained on",
    "the claim is for one row of the file; a canary of dose k is k rows",
    "losses and batch sizes are not covered by the claim: this file is the auditor's, not part of the release",
)


def fit_private(
    model: Any,
    examples: Sequence[Example],
    spec: TrainingSpec,
    pad_id: int,
    seed: int,
    reporter: Reporter = QUIET,
    plan: PrivatePlan | None = None,
) -> tuple[Any, FitReport]:
    """Fine-tune a model in place with differential privacy for adding or removing one row.

    As :func:`davylamp.training.fit.fit` trains, with AdamW and its schedule, but: every row is in each batch by a coin
    of its own; the loss of a row is the mean over its own tokens; its gradient over all trained parameters is clipped;
    each step adds one draw of noise to the sum and divides by the expected batch, also where no row was drawn.

    Args:
        model: a causal language model of transformers.
        examples: the rows.
        spec: how; ``spec.dp`` says how privately, and ``spec.max_grad_norm`` is not read.
        pad_id: padding token.
        seed: of the adapter's start and dropout, and of batches and noise where ``spec.dp.seeded``.
        reporter: shows progress.
        plan: rate, steps and noise, where they do not follow from the number of rows.

    Returns:
        The trained model and what happened; ``losses`` has an entry for each step that drew a token to train on.

    Raises:
        MissingExtraError: opacus is not installed.
        InputError: the target cannot be met.
        ModelError: opacus cannot take the model.
        PrivacyError: the training was not what was accounted for; the message says in what.
        TrainingError: a loss or a weight is not finite.
    """
    check_installed()
    dp = spec.dp
    assert dp is not None  # noqa: S101 - the caller has seen to it
    if plan is None:
        plan = plan_private(dp, len(examples), spec.rows_per_update, spec.epochs)
    set_seed(seed % 2**32)
    if spec.method == "lora":
        model = with_adapter(model, spec)
    coins, gaussians = _generators(seed if dp.seeded else None, model.device)
    begun = time.perf_counter()
    before = {name: _fingerprint(parameter) for name, parameter in trained(model).items()}
    with single_row_gradients(model):
        run = _Run(model, spec, plan, dp.physical_batch or spec.batch_size, pad_id, gaussians)
        checks = run.probe(examples)
        _raise_failures(checks)
        sampler = PoissonSampler(len(examples), plan.sampling_rate, coins)
        with reporter.task("training", plan.steps) as advance:
            for _ in range(plan.steps):
                run.step([examples[row] for row in sampler.draw()])
                advance(1)
    tally = sampler.tally
    checks += [*run.noise.checks(plan.steps), *tally.checks(), _moved(model, before, plan.noise_multiplier)]
    checks.append(
        Check(
            "batches without a row were steps with noise",
            f"{tally.empty} batches, {run.empty} steps",
            "as many steps as batches",
            tally.empty == run.empty,
        )
    )
    _raise_failures(checks)
    counts = {id(parameter): parameter for parameter in model.parameters()}.values()
    return model, FitReport(
        steps=plan.steps,
        losses=tuple(run.losses),
        learning_rates=tuple(run.rates),
        peak_learning_rate=max(run.rates),
        cumulative_learning_rate=math.fsum(run.rates),
        seconds=time.perf_counter() - begun,
        precision="float32",
        trainable=sum(parameter.numel() for parameter in counts if parameter.requires_grad),
        parameters=sum(parameter.numel() for parameter in counts),
        dp={
            "claim": plan.claim(),
            "optimizer": "DP-Adam",
            "max_grad_norm": plan.max_grad_norm,
            "expected_batch": plan.expected_batch,
            "batches": {
                "smallest": min(tally.sizes),
                "largest": max(tally.sizes),
                "mean": sum(tally.sizes) / len(tally.sizes),
                "empty": tally.empty,
                "expected_empty": expected_empty(plan.sampling_rate, len(examples), plan.steps),
                "forward_passes": run.passes,
            },
            "rows_never_drawn": tally.counts.count(0),
            "seeded": dp.seeded,
            "checks": [asdict(each) for each in checks],
            "notes": list(NOTES),
            "opacus": version("opacus"),
        },
    )


class _Run:
    """One private training: the optimiser, its schedule, and what is counted on the way."""

    def __init__(
        self, model: Any, spec: TrainingSpec, plan: PrivatePlan, physical: int, pad_id: int, noise: torch.Generator
    ) -> None:
        from opacus.optimizers import DPOptimizer

        self._model = model
        self._loss = RowLosses(model, pad_id)
        self._physical = physical
        self._plan = plan
        adam = torch.optim.AdamW(_groups(model, spec.weight_decay), lr=spec.learning_rate, betas=(0.9, 0.999), eps=1e-8)
        kind = "cosine" if spec.schedule == "cosine" else "constant_with_warmup"
        self._scheduler = get_scheduler(kind, adam, spec.warmup_steps, plan.steps)
        self._optimizer = DPOptimizer(
            adam,
            noise_multiplier=plan.noise_multiplier,
            max_grad_norm=plan.max_grad_norm,
            expected_batch_size=plan.expected_batch,
            loss_reduction="mean",
            generator=noise,
        )
        self.noise = NoiseTally(plan.noise_multiplier, plan.max_grad_norm)
        self._optimizer.attach_step_hook(self.noise)
        self.losses: list[float] = []
        self.rates: list[float] = []
        self.empty = self.passes = 0

    def step(self, rows: Sequence[Example]) -> None:
        """One update: clipped gradients of the rows, if any, and one draw of noise."""
        self.noise.rows = len(rows)
        self.rates.append(float(self._scheduler.get_last_lr()[0]))
        if rows:
            self._accumulate(rows)
        else:
            self.empty += 1
            no_rows(self._model)
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        self._scheduler.step()

    def _accumulate(self, rows: Sequence[Example]) -> None:
        """Run rows forward and back; all passes but the last are clipped and summed at once, without noise."""
        pieces = [rows[start : start + self._physical] for start in range(0, len(rows), self._physical)]
        total, tokens = 0.0, 0
        for number, piece in enumerate(pieces):
            each, summed, count = self._loss(piece)
            if not bool(torch.isfinite(each).all()):
                raise TrainingError(
                    f"the loss is not finite at step {len(self.rates)}: lower learning_rate. Nothing was saved"
                )
            each.sum().backward()  # type: ignore[no-untyped-call]
            for parameter in trained(self._model).values():
                if parameter.grad_sample is None:
                    # No row of the pass reached it; its gradient is zero in each.
                    parameter.grad_sample = torch.zeros((len(piece), *parameter.shape), device=parameter.device)
            self.passes += 1
            total, tokens = total + float(summed), tokens + int(count)
            if number < len(pieces) - 1:
                self._optimizer.signal_skip_step(do_skip=True)
                self._optimizer.step()
                self._optimizer.zero_grad(set_to_none=True)
        self._optimizer.signal_skip_step(do_skip=False)
        if tokens:
            self.losses.append(total / tokens)

    def probe(self, examples: Sequence[Example]) -> list[Check]:
        """Dry steps before the first real one, which change no weight.

        A few rows are run in passes of two rows and of what is left; what opacus sums up is compared with what autograd
        gives for each row alone. An empty batch shows the noise by itself.
        """
        rows = [row for row in examples if any(label != NO_LOSS for label in row.labels[1:])][:PROBED]
        with without_dropout(self._model):
            expected, checks = clipped_sum(self._model, self._loss, rows, self._plan.max_grad_norm)
            kept, self._physical = self._physical, 2
            self.noise.rows = len(rows)
            self._accumulate(rows)
        self._optimizer.pre_step()
        parameters = trained(self._model)
        checks.append(dry_check({name: each.summed_grad for name, each in parameters.items()}, expected, TOLERANCE))
        self._optimizer.zero_grad(set_to_none=True)
        self.noise.rows = 0
        no_rows(self._model)
        self._optimizer.pre_step()
        self._optimizer.zero_grad(set_to_none=True)
        dry = self.noise.checks(2)
        checks += [Check(f"before training: {each.name}", each.seen, each.allowed, each.passed) for each in dry[:2]]
        # What the dry steps counted is none of the training's.
        self._physical, self.losses, self.passes = kept, [], 0
        self.noise = NoiseTally(self._plan.noise_multiplier, self._plan.max_grad_norm)
        self._optimizer.attach_step_hook(self.noise)
        return checks


def _groups(model: Any, decay: float) -> list[dict[str, Any]]:
    """Weight decay where the ordinary trainer has it: not on biases and norms."""
    plain: list[Any] = []
    decayed: list[Any] = []
    for name, parameter in trained(model).items():
        (plain if name.endswith("bias") or "norm" in name.lower() else decayed).append(parameter)
    groups = [{"params": decayed, "weight_decay": decay}, {"params": plain, "weight_decay": 0.0}]
    return [group for group in groups if group["params"]]


def _generators(seed: int | None, device: torch.device) -> tuple[torch.Generator, torch.Generator]:
    """Randomness of batches and of noise, apart from each other and from that of dropout."""
    if seed is None:
        first, second = secrets.randbits(63), secrets.randbits(63)
    else:
        first, second = (seed * 2 + which + 0x5D9F_3A17 for which in (0, 1))
    return (
        torch.Generator().manual_seed(first % 2**63),
        torch.Generator(device=device).manual_seed(second % 2**63),
    )


def _fingerprint(parameter: torch.Tensor) -> tuple[float, float]:
    whole = parameter.detach().double()
    return float(whole.sum()), float(whole.square().sum())


def _moved(model: Any, before: dict[str, tuple[float, float]], noise: float) -> Check:
    """With noise every parameter moves; without it some may have no gradient."""
    after = {name: _fingerprint(parameter) for name, parameter in trained(model).items()}
    if not all(math.isfinite(value) for pair in after.values() for value in pair):
        raise TrainingError("the weights are not finite after the last step: lower learning_rate. Nothing was saved")
    moved = sum(after[name] != before[name] for name in before)
    needed = len(before) if noise > 0 else 1
    allowed = f"all {needed}" if noise > 0 else "at least 1"
    return Check("the parameters moved", f"{moved} of {len(before)}", allowed, moved >= needed)


def _raise_failures(checks: Sequence[Check]) -> None:
    failed = [f"{each.name}: {each.seen}; allowed: {each.allowed}" for each in checks if not each.passed]
    if failed:
        raise PrivacyError(
            "this training is not the one that was accounted for, so that no claim holds; nothing was saved:\n"
            + "\n".join(failed)
        )
