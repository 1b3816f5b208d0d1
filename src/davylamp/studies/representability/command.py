"""The study as ``davylamp studies run representability``: parts that are kept one by one, then the result."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from davylamp import __version__
from davylamp.errors import RunFolderError
from davylamp.runs.files import json_bytes, read_json, sha256_bytes, write_json
from davylamp.runs.progress import Advance, Reporter
from davylamp.studies.catalogue import Outcome, Planned
from davylamp.studies.machine import versions
from davylamp.studies.representability import camouflage, trigger
from davylamp.studies.representability.findings import camouflage_row, shapes_of, trigger_rows
from davylamp.studies.representability.result import RepresentabilityResult
from davylamp.studies.representability.spec import RepresentabilityRecipe, load_recipe
from davylamp.studies.wording import shape_lines

Part = TypeVar("Part", bound=BaseModel)


def plan(overrides: Sequence[str], data: Path | None) -> Planned:  # noqa: ARG001 - its sequences are synthetic
    """What would be run.

    Raises:
        RecipeError: the recipe has faults; all are named.
    """
    recipe = load_recipe(overrides)
    spec, seeds = recipe.trigger, len(recipe.seeds)
    lines = [
        f"seeds {', '.join(map(str, recipe.seeds))}; a Llama of {recipe.model.layers} layers of width "
        f"{recipe.model.width}, trained from nothing {seeds * (2 + len(recipe.camouflage.shapes))} times",
        f"trigger: {seeds} x 2 models, {spec.groups} secrets behind a trigger and {spec.groups} in plain text a seed, "
        f"kappa {spec.kappa:.2g}, {trigger.steps(recipe):,} steps a seed",
    ]
    for shape in recipe.camouflage.constructions():
        trees = recipe.camouflage.trees + len(recipe.camouflage.extra) * recipe.camouflage.extra_trees
        lines.append(
            f"camouflage ({shape.v}, {shape.k}, {shape.length}): {seeds} models of {trees} trees, "
            f"{shape.v**shape.length:,} paths each, {camouflage.steps(recipe, shape):,} steps a model"
        )
    return Planned(recipe.model_dump(mode="json"), tuple(lines))


def run(
    overrides: Sequence[str],
    out: Path,
    jobs: int | None,  # noqa: ARG001 - its models are trained one after another
    threads: int | None,
    reporter: Reporter,
    data: Path | None,  # noqa: ARG001
) -> Outcome:
    """Carry the study out; what an earlier call finished is read and not done again.

    Raises:
        RecipeError: the recipe has faults; all are named.
        InputError: so many threads are of no use.
        RunFolderError: the folder holds parts of another recipe, or damaged ones.
        StorageError: the folder cannot be written.
    """
    recipe = load_recipe(overrides)
    _use_threads(threads)
    parts = _Parts(out / "parts", recipe)
    shapes = recipe.camouflage.constructions()
    total = len(recipe.seeds) * (trigger.steps(recipe) + sum(camouflage.steps(recipe, shape) for shape in shapes))
    triggered, hidden = [], []
    with reporter.task("training from nothing", total) as advance:
        for seed in recipe.seeds:
            triggered.append(
                parts.get(
                    f"trigger-s{seed}",
                    trigger.TriggerPart,
                    partial(trigger.measure, recipe, seed),
                    trigger.steps(recipe),
                    advance,
                )
            )
            for shape in shapes:
                hidden.append(
                    parts.get(
                        f"camouflage-{shape.v}-{shape.k}-{shape.length}-s{seed}",
                        camouflage.CamouflagePart,
                        partial(camouflage.measure, recipe, shape, seed),
                        camouflage.steps(recipe, shape),
                        advance,
                    )
                )
    rows = trigger_rows(triggered, recipe.confidence)
    trees = tuple(camouflage_row(shape, hidden, recipe) for shape in shapes)
    result = RepresentabilityResult(
        recipe=recipe.model_dump(mode="json"),
        kappa=recipe.trigger.kappa,
        trigger=rows,
        camouflage=trees,
        shapes=shapes_of(rows, trees, recipe.trigger.kappa),
        cpu_seconds=round(parts.seconds, 1),
        versions=versions(),
    )
    file = out / "representability.json"
    write_json(file, result.model_dump(mode="json"))
    return Outcome(tuple(lines_of(result)), file, (file,))


def lines_of(result: RepresentabilityResult) -> list[str]:
    """The result for people."""
    return [*shape_lines(result.shapes), f"{result.cpu_seconds:.0f} CPU s"]


def _use_threads(threads: int | None) -> None:
    import torch

    from davylamp.training.threads import use_threads

    # All models of the study are small; a module without weights stands for them.
    use_threads(torch.nn.Module(), threads)


class _Parts:
    """Readings of finished models, one file each."""

    def __init__(self, folder: Path, recipe: RepresentabilityRecipe) -> None:
        self._folder = folder
        settings = recipe.model_dump(mode="json", exclude={"name", "seeds", "confidence"})
        self._of = sha256_bytes(json_bytes({"davylamp": __version__, **settings}))
        self.seconds = 0.0

    def get(self, name: str, kind: type[Part], make: Callable[[Advance], Part], steps: int, advance: Advance) -> Part:
        """A part, read if it is there, else made and kept.

        Raises:
            RunFolderError: it is damaged, or of another recipe.
        """
        path = self._folder / f"{name}.json"
        if path.exists():
            found, seconds = self._read(path, kind)
            advance(steps)
        else:
            begun = time.process_time()
            found = make(advance)
            seconds = time.process_time() - begun
            write_json(
                path, {"of": self._of, "cpu_seconds": round(seconds, 2), "reading": found.model_dump(mode="json")}
            )
        self.seconds += seconds
        return found

    def _read(self, path: Path, kind: type[Part]) -> tuple[Part, float]:
        try:
            data: dict[str, Any] = read_json(path)
            of, seconds = data["of"], float(data["cpu_seconds"])
            if of == self._of:
                return kind.model_validate(data["reading"]), seconds
        except (OSError, ValueError, KeyError, TypeError, ValidationError) as error:
            said = f"{error.error_count()} faults" if isinstance(error, ValidationError) else error
            raise RunFolderError(f"cannot read {path}: {said}; remove it, and run the study again") from error
        raise RunFolderError(
            f"{path} belongs to another recipe or version; choose another --out, or remove {self._folder}"
        )
