"""Runs the whole study and writes it down."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from davylamp.bounds import figures
from davylamp.runs.files import write_text
from davylamp.studies.mechanisms.extraction import canaries, entropy_sweep
from davylamp.studies.mechanisms.memorization import advantage_curves, instances, staircase
from davylamp.studies.mechanisms.result import Experiment
from davylamp.studies.mechanisms.spec import MechanismsRecipe


def run_study(recipe: MechanismsRecipe) -> tuple[Experiment, ...]:
    """All five experiments, each with a random stream of its own, so that one can change without the others."""
    streams = [np.random.default_rng(s) for s in np.random.SeedSequence(recipe.seed).spawn(5)]
    return (
        advantage_curves(recipe.curves, recipe.trials, streams[0]),
        staircase(recipe.staircase, recipe.trials, streams[1]),
        entropy_sweep(recipe.sweep, recipe.trials, streams[2]),
        canaries(recipe.canaries, streams[3]),
        instances(recipe.instances, streams[4]),
    )


def write_study(experiments: tuple[Experiment, ...], recipe: MechanismsRecipe, out: Path) -> list[Path]:
    """Writes ``mechanisms.html`` (figures and tables) and ``mechanisms.json`` (the numbers) to a folder.

    Raises:
        StorageError: the folder cannot be written.
    """
    blocks = [
        figures.paragraph(
            f"Seed {recipe.seed}, {recipe.trials} releases a point. "
            "Source: Memorization Is Not Extraction (arXiv 2608.27782)."
        )
    ]
    for experiment in experiments:
        blocks.append(figures.figure(experiment.chart))
        blocks.append(figures.table(("quantity", "paper", "", "ours", "4 sigma", "agrees"), _cells(experiment)))
    page, data = out / "mechanisms.html", out / "mechanisms.json"
    write_text(page, figures.page("Exact mechanisms: the paper's experiments", blocks))
    write_text(data, json.dumps(_as_json(experiments, recipe), indent=1, allow_nan=False) + "\n")
    return [page, data]


def text_table(experiment: Experiment) -> list[str]:
    """The rows as aligned text."""
    lines = [experiment.title, f"  {'':<52}{'paper':>10}{'':>10}{'ours':>11}{'4 sigma':>10}"]
    for quantity, paper, source, ours, error, agrees in _cells(experiment):
        lines.append(f"  {quantity:<52}{paper:>10}{source:>10}{ours:>11}{error:>10}  {agrees}")
    return lines


def _cells(experiment: Experiment) -> list[tuple[str, ...]]:
    return [
        (
            row.quantity,
            f"{row.paper:.5g}",
            "printed" if row.printed else "formula",
            f"{row.ours:.5g}",
            f"{row.error:.1e}" if row.error else "exact",
            "yes" if row.agrees else "NO",
        )
        for row in experiment.rows
    ]


def _as_json(experiments: tuple[Experiment, ...], recipe: MechanismsRecipe) -> dict[str, object]:
    return {
        "recipe": recipe.model_dump(mode="json"),
        "experiments": {
            e.key: [
                {
                    "quantity": r.quantity,
                    "paper": r.paper,
                    "printed": r.printed,
                    "ours": r.ours,
                    "four_sigma": r.error,
                    "tolerance": r.tolerance,
                    "agrees": r.agrees,
                }
                for r in e.rows
            ]
            for e in experiments
        },
    }
