"""``davylamp train``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from davylamp.cli.goldfish import trained_with
from davylamp.cli.output import ChatTemplateOption, JsonFlag, QuietFlag, ThreadsOption, emit, emit_json
from davylamp.cli.protect import protected_note
from davylamp.runs.wording import counted


def train(  # noqa: PLR0913 - one parameter an option
    run: Annotated[Path, typer.Argument(help="Run folder that `davylamp plant` wrote.", show_default=False)],
    settings: Annotated[
        list[str] | None, typer.Argument(help="Settings as key=value, such as learning_rate=1e-4 method=lora.")
    ] = None,
    *,
    model: Annotated[
        str, typer.Option("--model", help="'embedded', 'smollm2', a folder, a .gguf file, or a hub id.")
    ] = "embedded",
    spec: Annotated[Path | None, typer.Option("--spec", help="YAML file of settings.")] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Replace a model in RUN/model that nothing could make again.")
    ] = False,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of adapters and dropout.")] = 0,
    chat_template: ChatTemplateOption = None,
    threads: ThreadsOption = None,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Fine-tune a model on the planted rows, or on the protected ones if there are any, in their order.

    Before the first step a preflight shows that every planted secret receives loss. Writes RUN/model/ and
    RUN/training.json; an earlier model of its own is replaced. Your own trainer may take this step's place: train it on
    RUN/planted.jsonl.

    Settings: method (full, lora), lora.r, lora.alpha, epochs, batch_size, gradient_accumulation, learning_rate,
    schedule (constant, cosine), warmup_steps, weight_decay, max_grad_norm, max_length, loss (reply, all),
    packing, style (auto, chat, plain), precision (auto, float32, bfloat16), gradient_checkpointing.

    With a Goldfish loss (docs/protect.md): goldfish.k, goldfish.h; `davylamp goldfish RUN` shows what it drops.

    With differential privacy for adding or removing one row (docs/dp.md): dp.epsilon or dp.noise_multiplier, dp.delta,
    dp.max_grad_norm, dp.accountant (pld, rdp), dp.physical_batch, dp.seeded.
    """
    from davylamp.runs.config import apply_overrides, load_yaml, validate
    from davylamp.runs.folder import RunFolder, locked
    from davylamp.runs.progress import Reporter
    from davylamp.studies.replacing import check_model_replaceable
    from davylamp.studies.steps import train_step
    from davylamp.training.spec import TrainingSpec

    data = load_yaml(spec) if spec is not None else {}
    how = validate(TrainingSpec, apply_overrides(data, settings or []), "training")
    folder = RunFolder(run)
    with locked(run, make=False):
        if not force:
            check_model_replaceable(folder)
        made = train_step(folder, model, how, seed, chat_template, threads, Reporter(quiet or as_json))
    # A private training may have drawn no row at all.
    losses = made.pop("losses") or [None]
    if as_json:
        del made["learning_rates"]
        emit_json({"trained": str(folder.model), "first_loss": losses[0], "last_loss": losses[-1], **made})
        return
    checked = made["preflight"]
    emit(
        [
            *protected_note(made),
            f"preflight: {_every(checked['occurrences'], 'occurrence')} of "
            f"{counted(checked['canaries'], 'canary', 'canaries')} {_receive(checked['occurrences'])} loss"
            + (", but for what goldfish drops" if checked["dropped"] is not None else "")
            + _constructed(checked),
            f"trained {made['trainable']:,} of {made['parameters']:,} parameters for {counted(made['steps'], 'step')} "
            f"in {made['seconds']:.0f} s; {_course(losses)}",
            *trained_with(made),
            *_private(made["dp"]),
            f"model: {folder.model}",
        ]
    )


def _constructed(checked: dict[str, Any]) -> str:
    rows, count = checked["instance_rows"], checked["instances"]
    if not count:
        return ""
    so = "does" if rows == 1 else "do"
    return f"; so {so} {_every(rows, 'row')} of {counted(count, 'instance')} of constructions"


def _every(count: int, one: str) -> str:
    return f"the only {one}" if count == 1 else f"all {counted(count, one)}"


def _receive(count: int) -> str:
    return "receives" if count == 1 else "receive"


def _course(losses: list[float | None]) -> str:
    first, last = losses[0], losses[-1]
    return "no row was drawn" if first is None or last is None else f"loss {first:.2f} -> {last:.2f} nats a token"


def _private(dp: dict[str, Any] | None) -> list[str]:
    """What a private training promises, in one line."""
    if dp is None:
        return []
    claim = dp["claim"]
    checked = f"{len(dp['checks'])} self-checks passed"
    if claim is None:
        return [f"rows were clipped to norm {dp['max_grad_norm']:g}, without noise: nothing is claimed; {checked}"]
    return [
        f"({claim['epsilon']:.4g}, {claim['delta']:.3g})-DP for one row: noise {claim['noise_multiplier']:g}, "
        f"sampling rate {claim['sampling_rate']:.4g}, {claim['steps']} steps; {checked}"
    ]
