"""The study as ``davylamp studies run dp-calibration``, and its tables."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from davylamp.runs.files import write_json, write_text
from davylamp.runs.progress import Reporter
from davylamp.studies.catalogue import Outcome, Planned
from davylamp.studies.dp_calibration.spec import CalibrationRecipe, load_recipe
from davylamp.studies.machine import versions

if TYPE_CHECKING:
    from davylamp.studies.dp_calibration.cells import EntropyCell, MemorizationCell
    from davylamp.training.dp.accounting import PrivatePlan


def plan(overrides: Sequence[str], data: Path | None) -> Planned:  # noqa: ARG001 - its corpus is its own
    """What would be run.

    Raises:
        RecipeError: the recipe has faults; all are named.
    """
    recipe = load_recipe(list(overrides))
    claims = ", ".join([*(f"{each:g}" for each in recipe.epsilons), "inf"])
    return Planned(
        recipe.model_dump(mode="json"),
        (
            f"model {recipe.model}; {2 * recipe.pairs * (len(recipe.epsilons) + 1)} trainings: {recipe.pairs} pairs at "
            f"each epsilon of {claims}",
            f"{recipe.per_copy} canaries a pair for each of {', '.join(map(str, recipe.copies))} copies, "
            f"{recipe.rows} rows in expectation, delta {recipe.delta:.2g}",
        ),
    )


def run(
    overrides: Sequence[str],
    out: Path,
    jobs: int | None,  # noqa: ARG001 - its models are trained one after another
    threads: int | None,  # noqa: ARG001 - chosen by the model's size
    reporter: Reporter,
    data: Path | None,  # noqa: ARG001
) -> Outcome:
    """Carry the study out; exit code 1 where a cell violates its bound.

    Raises:
        RecipeError: the recipe has faults; all are named.
        MissingExtraError: opacus is not installed.
        StorageError: the folder cannot be written.
    """
    from davylamp.studies.dp_calibration.cells import entropy_cells, memorization_cells
    from davylamp.studies.dp_calibration.trials import run_pairs
    from davylamp.training.dp.gradients import check_installed

    begun, cpu = time.perf_counter(), time.process_time()
    check_installed()
    recipe = load_recipe(list(overrides))
    pairs, plans = run_pairs(recipe, reporter)
    claims = {epsilon: curve for epsilon, each in plans.items() if (curve := each.curve) is not None}
    memorized = memorization_cells(recipe, pairs, claims)
    guessed = entropy_cells(recipe, pairs, claims)
    text = tables(recipe, plans, memorized, guessed)
    table, numbers = out / "dp_calibration.md", out / "dp_calibration.json"
    write_text(table, text)
    write_json(
        numbers,
        {
            "recipe": recipe.model_dump(mode="json"),
            "claims": [each.claim() for each in plans.values()],
            "memorization": [_finite(dataclasses.asdict(cell)) for cell in memorized],
            "entropy": [_finite(dataclasses.asdict(cell)) for cell in guessed],
            "seconds": {"wall": time.perf_counter() - begun, "cpu": time.process_time() - cpu},
            "versions": versions(),
        },
    )
    violated = any(cell.violated for cell in memorized) or any(cell.violated for cell in guessed)
    lines = (*text.splitlines(), "", f"{time.process_time() - cpu:.0f} CPU s")
    return Outcome(lines, numbers, (table, numbers), 1 if violated else 0)


def _finite(data: dict[str, Any]) -> dict[str, Any]:
    """An infinite floor (no entropy is enough) as a word, since JSON has no such number."""
    return {key: "none is enough" if value == math.inf else value for key, value in data.items()}


def tables(
    recipe: CalibrationRecipe,
    plans: dict[float, PrivatePlan],
    memorized: list[MemorizationCell],
    guessed: list[EntropyCell],
) -> str:
    """Both tables as Markdown, every cell in them."""
    rate, steps = recipe.training.batch_size / recipe.rows, next(iter(plans.values())).steps
    telling = [cell for cell in memorized if cell.telling]
    caught = sum(cell.without_noise_exceeds for cell in telling)
    lines = [
        f"{recipe.pairs} pairs of models an epsilon, {recipe.per_copy} canaries a pair and k, {recipe.rows} rows in "
        f"expectation, sampling rate {rate:.4f}, {steps} steps, delta {recipe.delta:.2g}.",
        "",
        "Memorization +- standard error (cap); * could have shown a violation (cap at most "
        f"{recipe.largest_cap:g} and above three standard errors); ! a run without noise would have been caught; "
        "VIOLATED where it was.",
        "",
        "| epsilon | noise | " + " | ".join(f"k = {k}" for k in recipe.copies) + " |",
        "| --- | --- |" + " --- |" * len(recipe.copies),
    ]
    for epsilon in dict.fromkeys(cell.epsilon for cell in memorized):
        noise = "0" if epsilon is None else f"{plans[epsilon].noise_multiplier:.3g}"
        row = [_memorization(cell) for cell in memorized if cell.epsilon == epsilon]
        lines.append(f"| {_named(epsilon)} | {noise} | " + " | ".join(row) + " |")
    lines += [
        "",
        f"{len(telling)} of {sum(cell.cap is not None for cell in memorized)} cells could have shown a violation; in "
        f"{caught} of them a run without noise would have been caught; violated: "
        f"{sum(cell.violated for cell in memorized)}.",
        "",
        f"Extraction of the digits that the guesser does not know (floor H* at risk {recipe.risk:g}).",
        "",
        "| epsilon | k | bits | floor | side | kappa | guessed | extracted | bound | could refute | AUC (bound) |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
        *map(_entropy, guessed),
        "",
        *_sides(guessed),
    ]
    return "\n".join(lines) + "\n"


def _named(epsilon: float | None) -> str:
    return "inf" if epsilon is None else f"{epsilon:g}"


def _memorization(cell: MemorizationCell) -> str:
    cap = "" if cell.cap is None else f" ({cell.cap:.3f})"
    marks = ("*" if cell.telling else "") + ("!" if cell.without_noise_exceeds else "")
    return f"{cell.measured:+.3f} +- {cell.error:.3f}{cap}{marks}" + (" VIOLATED" if cell.violated else "")


def _entropy(cell: EntropyCell) -> str:
    floor = "" if cell.floor is None else "none" if math.isinf(cell.floor) else f"{cell.floor:.1f}"
    side = "" if cell.floor is None else "above" if cell.above else "below"
    bound = "" if cell.bound is None else f"{cell.bound:.3g}"
    refute = "" if cell.bound is None else "VIOLATED" if cell.violated else "yes" if cell.telling else "no"
    most = "" if cell.auc_bound is None else f" ({cell.auc_bound:.2f})"
    return (
        f"| {_named(cell.epsilon)} | {cell.copies} | {cell.bits:.1f} | {floor} | {side} | {cell.kappa:g} | "
        f"{cell.guessed}/{cell.trials} | {cell.extracted}/{cell.trials} | {bound} | {refute} | {cell.auc:.2f}{most} |"
    )


def _sides(cells: list[EntropyCell]) -> list[str]:
    """Both sides of the floor in one line each, over all claims."""
    lines = []
    for side, above in (("below", False), ("above", True)):
        chosen = [cell for cell in cells if cell.floor is not None and cell.above is above]
        trials = sum(cell.trials for cell in chosen)
        if trials:
            hits, guesses = (sum(getattr(cell, name) for cell in chosen) for name in ("extracted", "guessed"))
            lines.append(
                f"{side.capitalize()} the floor, all claims: extracted {hits} of {trials}, guessed without a model "
                f"{guesses} of {trials}; the same canary counts once for each epsilon and number of digits."
            )
    return lines
