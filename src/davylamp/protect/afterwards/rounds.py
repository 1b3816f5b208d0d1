"""Unlearning in rounds, until a verifier reports the content forgotten."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from davylamp.errors import Fault, InputError, TrainingError
from davylamp.protect.afterwards.losses import ascent_loss, npo_loss, row_log_likelihoods, token_loss
from davylamp.protect.afterwards.reports import Outcome, RoundReport, Unlearning
from davylamp.protect.afterwards.spec import UnlearningSpec
from davylamp.runs.progress import QUIET, Reporter
from davylamp.secrets import stream
from davylamp.training.examples import NO_LOSS, Collator, Example
from davylamp.training.fit import with_adapter
from davylamp.training.spec import TrainingSpec

Verifier = Callable[[int], float]
"""Called with the number of rounds that are done, from 0; gives the share of the forget set that still comes out."""


def made_tunable(model: Any, spec: UnlearningSpec) -> Any:
    """Let gradients flow into what is to be moved, and into nothing else.

    Returns:
        The model, with a new adapter where one is asked for.

    Raises:
        InputError: all parameters shall be moved, and the model is an adapter on a frozen base.
    """
    if hasattr(model, "peft_config"):
        if spec.tuning == "full":
            allowed = "auto or lora, since the model is an adapter"
            raise InputError(Fault("unlearning.tuning", spec.tuning, allowed, "Merge it first to move all weights."))
        prefix = model.base_model.prefix
        for name, parameter in model.named_parameters():
            # An adapter that was loaded to be used is frozen like all else.
            parameter.requires_grad_(f".{prefix}" in name)
        return model
    if spec.tuning == "lora":
        return with_adapter(model, TrainingSpec(method="lora", lora=spec.lora))
    return model.requires_grad_(True)


def unlearn(
    model: Any,
    forget: Sequence[Example],
    retain: Sequence[Example],
    spec: UnlearningSpec,
    learning_rate: float,
    pad_id: int,
    verify: Verifier,
    reporter: Reporter = QUIET,
) -> Unlearning:
    """Unlearn in place: ``forget_weight * L_forget + retain_weight * L_retain`` by AdamW, a pass a round.

    Each step takes ``batch_size`` forget rows and as many retain rows. After each round the verifier is asked; once
    it passes, ``extra_rounds`` more are run. NPO's reference is the model as it was given.

    Args:
        model: from :func:`made_tunable`.
        forget: the rows to forget, each once.
        retain: the rows to keep; may be empty if they have no weight.
        spec: how.
        learning_rate: of AdamW, constant.
        pad_id: padding token.
        verify: may put the model into evaluation mode.
        reporter: shows progress.

    Raises:
        InputError: there is nothing to forget, or retain rows are needed and there is none.
        TrainingError: a row has no token to forget, or a loss or the weights are not finite.
    """
    _check_rows(forget, retain, spec)
    before = verify(0)
    if before < spec.threshold:
        return Unlearning("nothing to forget", 0, before, ())
    collate = Collator(pad_id, packing=False)
    reference = _reference(model, forget, spec.batch_size, collate)
    moved = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(moved, learning_rate, weight_decay=0.0)
    kept, passed_at = _endless(retain, spec), None
    reports: list[RoundReport] = []
    with torch.random.fork_rng(), reporter.task("unlearning", spec.rounds + spec.extra_rounds) as advance:
        torch.manual_seed(spec.seed)
        while len(reports) < (spec.rounds if passed_at is None else passed_at + spec.extra_rounds):
            steps = [
                _step(model, [(forget[at], reference[at]) for at in rows], kept, spec, optimizer, collate)
                for rows in _order(len(forget), len(reports), spec)
            ]
            _check_weights(moved, len(reports) + 1)
            rate = verify(len(reports) + 1)
            reports.append(_report(len(reports) + 1, steps, rate))
            if passed_at is None and rate < spec.threshold:
                passed_at = len(reports)
            advance(1)
    outcome: Outcome = "verifier never passed" if passed_at is None else "forgotten"
    return Unlearning(outcome, passed_at, before, tuple(reports))


@dataclass(frozen=True, slots=True)
class _Step:
    objective: float
    forget_loss: float
    retain_loss: float | None
    gradient_norm: float


def _check_rows(forget: Sequence[Example], retain: Sequence[Example], spec: UnlearningSpec) -> None:
    faults = []
    if not forget:
        faults.append(Fault("forget rows", 0, "at least one"))
    if spec.retain_weight > 0 and not retain:
        faults.append(Fault("retain rows", 0, "at least one", "Or unlearning.retain_weight=0, which keeps nothing."))
    if faults:
        raise InputError(faults)
    for kind, rows in (("forget", forget), ("retain", retain)):
        for number, row in enumerate(rows, start=1):
            if all(label == NO_LOSS for label in row.labels[1:]):
                raise TrainingError(
                    f"{kind} row {number} has no token that receives loss: raise max_length in training"
                )


def _reference(model: Any, rows: Sequence[Example], size: int, collate: Collator) -> torch.Tensor:
    """Log-likelihood in nats of each forget row under the model before any step, shape (rows,)."""
    model.eval()
    with torch.no_grad():
        parts = [
            row_log_likelihoods(model, _on(model, collate(rows[at : at + size])))[0] for at in range(0, len(rows), size)
        ]
    return torch.cat(parts)


def _step(
    model: Any,
    forget: Sequence[tuple[Example, torch.Tensor]],
    kept: Iterator[list[Example]],
    spec: UnlearningSpec,
    optimizer: torch.optim.Optimizer,
    collate: Collator,
) -> _Step:
    model.train()
    log_p, counts = row_log_likelihoods(model, _on(model, collate([row for row, _ in forget])))
    if spec.method == "npo":
        objective = spec.forget_weight * npo_loss(log_p, torch.stack([known for _, known in forget]), spec.beta)
    else:
        objective = spec.forget_weight * ascent_loss(log_p, counts)
    retain_loss = None
    if spec.retain_weight > 0:
        descended = token_loss(*row_log_likelihoods(model, _on(model, collate(next(kept)))))
        objective = objective + spec.retain_weight * descended
        retain_loss = float(descended.detach())
    if not bool(torch.isfinite(objective)):
        raise TrainingError(f"the unlearning loss is {float(objective)}: lower learning_rate. Nothing was saved")
    optimizer.zero_grad()
    torch.autograd.backward(objective)
    moved = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    norm = torch.nn.utils.clip_grad_norm_(moved, spec.max_grad_norm if spec.max_grad_norm > 0 else math.inf)
    optimizer.step()
    forgotten = float(token_loss(log_p.detach(), counts))
    return _Step(float(objective.detach()), forgotten, retain_loss, float(norm))


def _on(model: Any, batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: values.to(model.device) for name, values in batch.items()}


def _order(rows: int, done: int, spec: UnlearningSpec) -> Iterator[list[int]]:
    order = stream(spec.seed, "unlearning forget", done).permutation(rows).tolist()
    for start in range(0, rows, spec.batch_size):
        yield order[start : start + spec.batch_size]


def _endless(retain: Sequence[Example], spec: UnlearningSpec) -> Iterator[list[Example]]:
    """Batches of retain rows, each row once before any a second time."""
    waiting: list[int] = []
    number = 0
    while True:
        while len(waiting) < spec.batch_size:
            waiting += stream(spec.seed, "unlearning retain", number).permutation(len(retain)).tolist()
            number += 1
        yield [retain[at] for at in waiting[: spec.batch_size]]
        waiting = waiting[spec.batch_size :]


def _check_weights(moved: Sequence[torch.Tensor], number: int) -> None:
    if not all(bool(torch.isfinite(parameter).all()) for parameter in moved):
        raise TrainingError(
            f"the weights are not finite after round {number}: lower learning_rate, or set max_grad_norm. Nothing was "
            "saved"
        )


def _report(number: int, steps: Sequence[_Step], rate: float) -> RoundReport:
    kept = [step.retain_loss for step in steps if step.retain_loss is not None]
    return RoundReport(
        number=number,
        steps=len(steps),
        objective=math.fsum(step.objective for step in steps) / len(steps),
        forget_loss=math.fsum(step.forget_loss for step in steps) / len(steps),
        retain_loss=math.fsum(kept) / len(kept) if kept else None,
        gradient_norm=math.fsum(step.gradient_norm for step in steps) / len(steps),
        extraction=rate,
    )
