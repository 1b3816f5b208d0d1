"""The study as ``davylamp studies run clinical``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from davylamp.runs.files import write_text
from davylamp.runs.progress import Reporter
from davylamp.studies.catalogue import Outcome, Planned
from davylamp.studies.clinical.spec import load_recipe
from davylamp.studies.recipe import Recipe


def plan(overrides: Sequence[str], data: Path | None) -> Planned:
    """What would be run; lays out the canaries of every run.

    Raises:
        RecipeError: the recipe has faults; all are named.
        PlantingError: canaries do not fit into the rows.
    """
    from davylamp.studies.dry_run import dry_run

    recipe = load_recipe(overrides, data)
    laid_out = dry_run(recipe, Path())
    lines = [*_planned(recipe, laid_out.rows), *laid_out.leaving()]
    return Planned(recipe.model_dump(mode="json"), tuple(lines))


def _planned(recipe: Recipe, rows: int | None) -> Iterator[str]:
    plan = recipe.plan
    count = len(plan.doses) * plan.per_dose
    # A record that carries a canary is no background row.
    left = None if rows is None else rows - plan.hosts
    planted = (min(plan.rows or left, left) if left is not None else plan.rows or 0) * plan.repeat
    yield (
        f"model {recipe.model}, seeds {', '.join(map(str, recipe.seeds))}: {count} canaries at doses "
        f"{', '.join(map(str, plan.doses))} and {plan.twins} twins a seed, {plan.planted_rows:,} of {planted:,} rows"
    )
    for name in recipe.variants:
        yield f"{name}: {_done(recipe.variant(name))}"
    yield f"none: the untrained model; {len(recipe.seeds) * (len(recipe.variants) + 1)} models are read in all"


def _done(recipe: Recipe) -> str:
    """What protects the secrets in a variant."""
    training = recipe.training
    words = [_step(each.model_dump(mode="json")) for each in recipe.protect]
    if training.goldfish is not None:
        words.append(f"Goldfish loss, k {training.goldfish.k}, h {training.goldfish.h}")
    if (dp := training.dp) is not None:
        target = f"epsilon {dp.epsilon:g}" if dp.epsilon is not None else f"noise multiplier {dp.noise_multiplier:g}"
        words.append(f"DP-SGD at {target}")
    updates = f"{training.epochs} epoch{'s' * (training.epochs > 1)}, {training.rows_per_update} rows an update"
    return f"{'; '.join(words) or 'the rows as they are'} ({updates}, learning rate {training.learning_rate:g})"


def _step(settings: dict[str, object]) -> str:
    name, model = str(settings["name"]), settings.get("model")
    if (server := settings.get("server")) is not None:
        return f"{name} by {model} on {urlsplit(str(server)).netloc}"
    return f"{name} by {model}, on this machine" if model else name


def run(
    overrides: Sequence[str],
    out: Path,
    jobs: int | None,
    threads: int | None,
    reporter: Reporter,
    data: Path | None,
) -> Outcome:
    """Carry the study out.

    Raises:
        DavylampError: see :func:`davylamp.studies.clinical.run.run_study`.
    """
    from davylamp.studies.clinical.run import FILES, run_study
    from davylamp.studies.clinical.tables import lines_of

    lines = lines_of(run_study(load_recipe(overrides, data), out, reporter, jobs, threads))
    text = out / "clinical.md"
    write_text(text, "\n".join(lines) + "\n")
    written = [out / name for name in FILES]
    return Outcome(tuple(lines), written[0], (*written, text))
