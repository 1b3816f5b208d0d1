"""The study as ``davylamp studies run blind-spots``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from davylamp.runs.files import write_text
from davylamp.runs.progress import Reporter
from davylamp.studies.blind_spots.spec import BlindSpotsRecipe, load_recipe
from davylamp.studies.catalogue import Outcome, Planned


def plan(overrides: Sequence[str], data: Path | None) -> Planned:
    """What would be run.

    Raises:
        RecipeError: the recipe has faults; all are named.
    """
    recipe = load_recipe(overrides, data)
    return Planned(recipe.model_dump(mode="json"), tuple(_planned(recipe)))


def _planned(recipe: BlindSpotsRecipe) -> list[str]:
    source = recipe.text or recipe.corpus.path or recipe.corpus.hub or f"generated {recipe.corpus.generator}"
    taken = recipe.plan(0, "text").constructed_rows
    lengths = ", ".join(map(str, recipe.lengths))
    methods = " and ".join(recipe.unlearning) or "no"
    lines = [
        f"model {recipe.model}, seeds {', '.join(map(str, recipe.seeds))}: {recipe.rows:,} rows of {source}, "
        f"{taken:,} of them of constructions",
        f"{recipe.groups} secrets of each of {lengths} tokens, {recipe.copies} copies each, "
        f"in plain text and behind a trigger; {recipe.twins} twins of each",
        f"then {methods} unlearning",
    ]
    if recipe.shadows:
        lines.append(f"{recipe.shadows} shadows of each seed")
    if recipe.dp is not None:
        lines.append(f"dp-calibration {' '.join(recipe.dp_overrides)}".rstrip())
    return lines


def run(
    overrides: Sequence[str],
    out: Path,
    jobs: int | None,  # noqa: ARG001 - its models are trained one after another
    threads: int | None,
    reporter: Reporter,
    data: Path | None,
) -> Outcome:
    """Carry the study out; exit code 1 where a cell under a claim of privacy violates its bound.

    Raises:
        DavylampError: see :func:`davylamp.studies.blind_spots.run.run_study`.
    """
    from davylamp.studies.blind_spots.result import FILE
    from davylamp.studies.blind_spots.run import run_study
    from davylamp.studies.blind_spots.tables import lines_of

    recipe = load_recipe(overrides, data)
    result = run_study(recipe, out, reporter, threads)
    lines = lines_of(result)
    numbers, text = out / FILE, out / "blind_spots.md"
    write_text(text, "\n".join(lines) + "\n")
    dp = result.dp or {}
    violated = any(cell["violated"] for part in ("memorization", "entropy") for cell in dp.get(part, ()))
    return Outcome(tuple(lines), numbers, (numbers, text), 1 if violated else 0)
