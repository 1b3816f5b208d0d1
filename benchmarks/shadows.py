"""Shadow training: one after the other, stacked, a process each, a Ray task each, in one run on the same plan.

    python benchmarks/shadows.py [--shadows 16] [--rows 1200] [--batch 4] [--jobs 2] [--ways each stack4 ...]

Wall seconds, and processor seconds of this process and its children (a local Ray's workers are neither), for the arm
``redacted`` of the demo's plan on the embedded model with one thread each. Ratios are to ``each``: every shadow by the
trainer that made the audited model, one after the other. Signals are compared byte by byte within a trainer, and by
value between the two. On a busy machine trust the processor seconds, and wall seconds on a quiet one alone.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import shutil
import tempfile
import time
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

WAYS: dict[str, dict[str, Any]] = {
    "each": {"together": 0, "jobs": 1},
    "stack1": {"together": 1, "jobs": 1},
    "stack4": {"together": 4, "jobs": 1},
    "stack8": {"together": 8, "jobs": 1},
    "each, processes": {"together": 0},
    "stack4, processes": {"together": 4},
    "each, ray": {"together": 0, "executor": "ray"},
    "stack4, ray": {"together": 4, "executor": "ray"},
}


def table(rows: Sequence[Sequence[str]]) -> str:
    """Rows as a Markdown table; the first holds the headings."""
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([lines[0], "| " + " | ".join("---" for _ in rows[0]) + " |", *lines[1:]])


def processor() -> float:
    """Processor seconds of this process and of those that it has waited for."""
    return sum(os.times()[:4])


def planted(folder: Path, rows: int) -> None:
    """Plant the demo's redacted arm into so many rows."""
    from davylamp.canaries import Plan
    from davylamp.corpora.spec import CorpusSpec
    from davylamp.runs.config import load_yaml
    from davylamp.runs.folder import RunFolder
    from davylamp.studies.steps import plant_step

    recipe = load_yaml(Path(str(files("davylamp") / "studies" / "demo" / "recipe.yaml")))
    corpus = CorpusSpec(generator="emails", rows=rows, seed=1000).load()
    # As many canaries as leave half of the rows to the background, at most the demo's 16 a dose.
    per_dose = max(2, min(16, rows // 2 // sum(recipe["plan"]["doses"]) // 2))
    changes = {"per_dose": per_dose, "twins": per_dose, "positive": {"dose": 16}}
    plan = Plan.model_validate({**recipe["plan"], **changes}).only("redacted")
    plant_step(RunFolder(folder), corpus, plan)


def signals(folder: Path) -> dict[str, bytes]:
    """What was kept, by the name of the file."""
    return {path.name: path.read_bytes() for path in sorted((folder / "shadows").glob("*.npz"))}


def main() -> None:
    """Time every way."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shadows", type=int, default=16)
    parser.add_argument("--rows", type=int, default=1200)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--ways", nargs="*", default=list(WAYS), choices=list(WAYS))
    options = parser.parse_args()
    from davylamp.measures.shadow_results import ShadowScores
    from davylamp.runs.folder import RunFolder
    from davylamp.studies.shadow_request import ShadowRequest
    from davylamp.studies.shadowing import shadows_step
    from davylamp.training.shadows import ShadowSpec

    settings = ("learning_rate=0.0006", f"batch_size={options.batch}", "precision=float32")
    request = ShadowRequest(
        spec=ShadowSpec(shadows=options.shadows), model="embedded", settings=settings, threads=1, jobs=options.jobs
    )
    lines = [["way", "wall s", "processor s", "wall s a shadow", "ratio, wall", "ratio, processor"]]
    kept: dict[bool, dict[str, bytes]] = {}
    found: dict[bool, ShadowScores] = {}
    first: tuple[float, float] | None = None
    # What the first way would otherwise pay for all.
    import davylamp.release.local
    import davylamp.training.fit
    import davylamp.training.stacked_fit  # noqa: F401

    with tempfile.TemporaryDirectory() as name:
        planted(Path(name) / "run", options.rows)
        for way in options.ways:
            folder = Path(name) / "way"
            shutil.copytree(Path(name) / "run", folder)
            wall, cpu = time.perf_counter(), processor()
            outcome = shadows_step(RunFolder(folder), dataclasses.replace(request, **WAYS[way]))
            wall, cpu = time.perf_counter() - wall, processor() - cpu
            stack = WAYS[way]["together"] > 0
            assert kept.setdefault(stack, signals(folder)) == signals(folder), f"{way}: other bytes"
            found[stack] = outcome.scores
            first = first or (wall, cpu)
            shown = "not seen" if "ray" in way else f"{cpu:.1f}"
            ratio = "" if "ray" in way else f"{first[1] / cpu:.2f}"
            lines.append([way, f"{wall:.1f}", shown, f"{wall / options.shadows:.2f}", f"{first[0] / wall:.2f}", ratio])
            print(lines[-1], flush=True)
            shutil.rmtree(folder)
    print(f"\n{options.shadows} shadows of {options.rows} rows, batch {options.batch}, {options.jobs} jobs\n")
    print(table(lines))
    print("\nsignals of each trainer: the same bytes in every way")
    if len(found) == 2:
        compare(found[False], found[True])


def compare(one: Any, other: Any) -> None:
    """How far the two trainers' results are from each other."""
    for measure in ("lira_online", "lira_offline"):
        scores = [
            np.array(trials.scores)
            for result in (one, other)
            for trials in result.trials
            if (trials.measure, trials.probe, trials.span) == (measure, "hidden", "secret")
        ]
        if len(scores) == 2:
            far = np.abs(scores[0] - scores[1])
            print(f"{measure}, trainer against stack: differs by {np.median(far):.1e} (median) to {far.max():.1e} nats")
    for cell, same in zip(one.cells, other.cells, strict=True):
        if (cell.probe, cell.span, cell.measure) == ("hidden", "secret", "counterfactual_probability"):
            print(f"dose {cell.shadow_dose}: memorization {cell.mean:.5f} and {same.mean:.5f}")


if __name__ == "__main__":
    main()
