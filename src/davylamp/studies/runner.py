"""A recipe carried out: every run and step in order, what is done already left alone."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from davylamp.canaries import Plan
from davylamp.canaries.constructions import Maker
from davylamp.canaries.constructions.laying import check_held_out, rows_of
from davylamp.canaries.drafts import places
from davylamp.canaries.plant import background
from davylamp.errors import PlantingError, RunFolderError, TrainingError
from davylamp.measures.constructed.model import FILE as CONSTRUCTIONS_FILE
from davylamp.measures.landscape.model import FILE as LANDSCAPE
from davylamp.protect.corpus.result import PROTECTED, PROTECTION
from davylamp.report.build import write_report
from davylamp.report.data import ReportData, collect
from davylamp.runs import files
from davylamp.runs.folder import RunFolder, digest, locked
from davylamp.runs.progress import QUIET, Reporter
from davylamp.runs.workers import end_with_parent
from davylamp.studies import auditing, constructing, steps
from davylamp.studies.landscape import UNTRAINED, LandscapeRequest, landscape_step
from davylamp.studies.protecting import ProtectRequest, protect_step
from davylamp.studies.recipe import Recipe
from davylamp.studies.shadow_request import ShadowRequest
from davylamp.studies.utility import utility_step
from davylamp.training.shadow_instances import no_room, twin_rows
from davylamp.training.shadows import ShadowSpec

SMALL_BYTES = 20_000_000
"""Weights below which runs share the machine, a process a core."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run of a recipe left behind.

    Attributes:
        report: the report's data.
        html: where the report is.
        seconds: wall time of every step that was carried out, by ``run/step``; steps done before are missing.
        cpu_seconds: processor time of the same steps, all threads together.
    """

    report: ReportData
    html: Path
    seconds: dict[str, float]
    cpu_seconds: dict[str, float]


@dataclass(frozen=True, slots=True)
class Spent:
    """What a step took.

    Attributes:
        wall: seconds on the clock.
        cpu: seconds of processor time, all threads of its process together.
    """

    wall: float
    cpu: float


def run_recipe(
    recipe: Recipe, out: Path, reporter: Reporter = QUIET, *, jobs: int | None = None, threads: int | None = None
) -> Outcome:
    """Carry out a recipe in a folder, or what is missing of it.

    Every run has a folder of its own below ``out/runs``. A step that was finished with the same inputs is not
    done again, so that a killed run resumes and a second one changes nothing.

    Args:
        recipe: what to do.
        out: the folder; made if missing.
        reporter: shows progress.
        jobs: runs at a time, each in a process of its own; by default one a core for a small model, else one.
        threads: threads of torch in each; chosen by the model's size if none.

    Raises:
        PlantingError: a run's canaries do not fit into its rows; all such runs are named.
        RunFolderError: another process works there, or the folder belongs to another recipe.
        DavylampError: a step failed; see the steps.
    """
    from davylamp.release.sources import resolve

    with locked(out):
        tasks = list(tasks_of(recipe, out, threads))
        check_layouts(tasks, len(recipe.corpus.load()))
        _claim(recipe, out)
        weights = resolve(recipe.model).weight_files
        at_once = min(len(tasks), jobs if jobs is not None else _jobs(sum(path.stat().st_size for path in weights)))
        spent: dict[str, Spent] = {}
        with reporter.task(recipe.name, len(tasks)) as advance:
            done = _one_by_one(tasks, reporter) if at_once == 1 else _side_by_side(tasks, at_once)
            for taken in done:
                spent |= taken
                advance(1)
        data = collect(out)
        wall, cpu = ({step: getattr(each, key) for step, each in spent.items()} for key in ("wall", "cpu"))
        return Outcome(data, write_report(data, out), wall, cpu)


def check_layouts(tasks: Sequence[Task], corpus_rows: int) -> None:
    """Lay out the canaries of every run, so that none is refused after others were trained.

    Args:
        tasks: the runs.
        corpus_rows: rows of the corpus.

    Raises:
        PlantingError: canaries do not fit; every fault is named once, with the runs that it stops.
    """
    faults: dict[str, list[str]] = {}
    for task in tasks:
        if task.kind != "audit":
            continue
        rows = min(task.plan.rows or corpus_rows, corpus_rows) * task.plan.repeat
        try:
            places(task.plan, rows)
            check_held_out(task.plan.constructions, corpus_rows, task.plan.rows)
            if task.recipe.constructions.shadows is not None:
                _check_twins(task.plan, rows)
        except PlantingError as error:
            faults.setdefault(str(error), []).append(task.folder.name)
    if faults:
        raise PlantingError("; ".join(f"{', '.join(runs)}: {fault}" for fault, runs in faults.items()))


def _check_twins(plan: Plan, rows: int) -> None:
    """Check that the twins of a plan's constructions find rows in its shadows.

    Raises:
        PlantingError: they do not; the arithmetic is shown.
    """
    taken = sum(map(len, places(plan, rows))) + rows_of(plan.constructions)
    wanted, arithmetic = twin_rows(plan.constructions)
    if wanted > rows - taken:
        raise PlantingError(str(no_room(wanted, rows - taken, arithmetic)))


def _one_by_one(tasks: Sequence[Task], reporter: Reporter) -> Iterator[dict[str, Spent]]:
    for task in tasks:
        yield carry_out(task, reporter)


def _side_by_side(tasks: Sequence[Task], at_once: int) -> Iterator[dict[str, Spent]]:
    # Spawned and not forked: a fork would copy torch's threads in an unknown state.
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(at_once, mp_context=context, initializer=end_with_parent)
    try:
        for finished in as_completed([pool.submit(carry_out, task) for task in tasks]):
            yield finished.result()
    except BrokenProcessPool as error:
        raise TrainingError(
            "the system ended a process of this run, most often for want of memory: run the same command again with "
            "--jobs 1; what was finished is not done again"
        ) from error
    finally:
        # After a failure what has not begun is not begun.
        pool.shutdown(cancel_futures=True)


def _jobs(weight_bytes: int) -> int:
    """A process a core where the model is small; a large one takes all cores, and memory, by itself."""
    return (os.cpu_count() or 1) if weight_bytes < SMALL_BYTES else 1


def _claim(recipe: Recipe, out: Path) -> None:
    """Refuse a folder of another recipe: its runs would be mixed into this report."""
    path = out / "recipe.json"
    mine = recipe.model_dump(mode="json")
    if path.is_file():
        if files.sha256_bytes(path.read_bytes()) != files.sha256_bytes(files.json_bytes(mine)):
            raise RunFolderError(
                f"{out} holds the run of another recipe (or of other overrides, see {path}): give another --out, or "
                "remove the folder"
            )
        return
    if (out / "runs").exists() or (out / "manifest.json").exists():
        raise RunFolderError(f"{out} holds runs that no recipe made: give another --out")
    files.write_json(path, mine)


@dataclass(frozen=True, slots=True)
class Task:
    """One run of a recipe.

    Attributes:
        recipe: the recipe.
        folder: the run's folder.
        plan: what is planted; nothing for the base model.
        kind: ``audit`` plants, trains and audits; ``clean`` trains without canaries; ``base`` does not train;
            ``untrained`` plants and asks the model as it came for the canaries.
        threads: threads of torch.
        variant: the recipe's variant, if it has any.
    """

    recipe: Recipe
    folder: Path
    plan: Plan
    kind: Literal["audit", "clean", "base", "untrained"]
    threads: int | None = None
    variant: str | None = None


def tasks_of(recipe: Recipe, out: Path, threads: int | None = None) -> Iterator[Task]:
    """Every run of a recipe, in order: variants, seeds, arms, and the runs that they are compared with."""
    runs = out / "runs"
    cleaned: dict[tuple[str, int], str] = {}
    for variant in recipe.variants or (None,):
        own = recipe if variant is None else recipe.variant(variant)
        prefix = "" if variant is None else f"{variant}-"
        for seed in recipe.seeds:
            rows = None if own.training.packing else own.training.rows_per_update
            plan = own.plan.model_copy(update={"seed": seed, "rows_per_update": rows})
            if recipe.arms == "together":
                yield Task(own, runs / f"{prefix}all-s{seed}", plan, "audit", threads, variant)
            else:
                for arm in plan.arms:
                    yield Task(own, runs / f"{prefix}{arm}-s{seed}", plan.only(arm), "audit", threads, variant)
            if recipe.clean:
                # Variants that differ in their canaries alone share the run without any.
                key = digest({"training": _dump(own.training), "background": [plan.rows, plan.repeat, plan.shuffle]})
                if (key, seed) not in cleaned:
                    cleaned[key, seed] = prefix
                    first = not any(other != prefix for (_, at), other in cleaned.items() if at == seed)
                    name = f"clean-s{seed}" if first else f"{prefix}clean-s{seed}"
                    yield Task(own, runs / name, plan, "clean", threads, variant)
    if recipe.utility is not None:
        yield Task(recipe, runs / "base", recipe.plan, "base", threads)
    if recipe.landscape is not None:
        yield from _untrained(recipe, runs, threads)


def _untrained(recipe: Recipe, runs: Path, threads: int | None) -> Iterator[Task]:
    """The model as it came, asked for the canaries of each seed."""
    rows = None if recipe.training.packing else recipe.training.rows_per_update
    for seed in recipe.seeds:
        plan = recipe.plan.model_copy(update={"seed": seed, "rows_per_update": rows})
        # As a run of one arm has it, so that its canaries are the same.
        plan = plan if recipe.arms == "together" else plan.only(next(iter(plan.arms)))
        yield Task(recipe, runs / f"{UNTRAINED}-s{seed}", plan, "untrained", threads)


def carry_out(task: Task, reporter: Reporter = QUIET) -> dict[str, Spent]:
    """Carry out what is still to do of one run; returns what each step that was done took."""
    work = _Work(task, reporter)
    {"audit": work.audit, "clean": work.clean, "base": work.base, "untrained": work.untrained}[task.kind]()
    return work.spent


class _Work:
    """The steps of one run, and how long each took."""

    def __init__(self, task: Task, reporter: Reporter) -> None:
        self._task = task
        self._recipe = task.recipe
        self._folder = RunFolder(task.folder)
        self._reporter = reporter
        self._corpus = task.recipe.corpus.load()
        self.spent: dict[str, Spent] = {}

    def audit(self) -> None:
        """Plant, train, audit."""
        recipe, folder, task = self._recipe, self._folder, self._task
        key: dict[str, Any] = {"corpus": self._corpus.sha256, "plan": task.plan.model_dump(mode="json")}
        if task.plan.constructions:
            # Their secrets come from the model that training begins from.
            key |= self._training_key()
        with self._step("plant", key, folder.planted, folder.manifest) as todo:
            if todo:
                steps.plant_step(folder, self._corpus, task.plan, self._maker(), replace=True)
        if recipe.protect:
            key |= {"protect": [_dump(each) for each in recipe.protect]}
            with self._step("protect", key, folder.path / PROTECTED, folder.path / PROTECTION) as todo:
                if todo:
                    protect_step(folder, self._protecting(), self._reporter)
        key |= self._training_key()
        with self._step("train", key, folder.model, folder.training) as todo:
            if todo:
                steps.train_step(
                    folder, recipe.model, recipe.training, task.plan.seed, None, task.threads, self._reporter
                )
        key |= {"audit": recipe.audit.model_dump(mode="json"), "utility": _dump(recipe.utility)}
        scored = (folder.membership, folder.epsilon) if {"membership", "lira"} & {*recipe.audit.measures} else ()
        with self._step("audit", key, folder.readings, folder.verdict, folder.audit, *scored) as todo:
            if todo:
                # The model that training began from is the base that kappa is read from.
                base = recipe.model if recipe.audit.before or "kappa" in recipe.audit.measures else None
                request = auditing.AuditRequest(
                    reference=base,
                    spec=recipe.audit,
                    utility=recipe.utility,
                    threads=task.threads,
                    variant=task.variant,
                    # Runs are spread over the cores already.
                    shadows=ShadowRequest(corpus=self._corpus, jobs=1),
                )
                auditing.audit_step(folder, request, self._reporter)
        if task.plan.constructions:
            self._constructions(key)
        self._landscape(key, None, task.variant)

    def untrained(self) -> None:
        """Plant, and ask the model as it came."""
        key = {"corpus": self._corpus.sha256, "plan": self._task.plan.model_dump(mode="json"), **self._training_key()}
        with self._step("plant", key, self._folder.planted, self._folder.manifest) as todo:
            if todo:
                steps.plant_step(self._folder, self._corpus, self._task.plan, self._maker(), replace=True)
        self._landscape(key, self._recipe.model, UNTRAINED)

    def _landscape(self, key: Mapping[str, Any], model: str | None, name: str | None) -> None:
        """Read what compares interventions, where the recipe asks for it."""
        spec = self._recipe.landscape
        if spec is None:
            return
        key = {**key, "landscape": spec.model_dump(mode="json"), "name": name}
        with self._step("landscape", key, self._folder.path / LANDSCAPE) as todo:
            if todo:
                style = None if model is None else self._recipe.training.style
                request = LandscapeRequest(spec, model, name=name, style=style, threads=self._task.threads)
                landscape_step(self._folder, request, self._reporter)

    def _protecting(self) -> ProtectRequest:
        """The recipe's interventions; what is sent where is said, and allowed, since the recipe names the server."""

        def agreed(statement: str) -> bool:
            # Whether or not anyone sits at a terminal: it must be in the log before anything leaves the machine.
            print(f"{self._folder.path.name}: {statement}", file=sys.stderr, flush=True)
            return True

        return ProtectRequest(self._recipe.protect, agreed=agreed, threads=self._task.threads)

    def _maker(self) -> Maker | None:
        """The base model, where the plan has constructions, which are drawn from it."""
        if not self._task.plan.constructions:
            return None
        return constructing.maker_of(self._recipe.model, self._recipe.training.style, threads=self._task.threads)

    def _constructions(self, key: Mapping[str, Any]) -> None:
        """Read the constructions by every audit but the scan, which takes longest and is asked for by its own verb."""
        shadows = None
        if (count := self._recipe.constructions.shadows) is not None:
            key = {**key, "shadows": count}
            # Runs are spread over the cores already.
            shadows = ShadowRequest(spec=ShadowSpec(shadows=count), corpus=self._corpus, jobs=1)
        with self._step("constructions", key, self._folder.path / CONSTRUCTIONS_FILE) as todo:
            if todo:
                request = constructing.ConstructionsRequest(
                    self._recipe.model, shadows=shadows, threads=self._task.threads
                )
                constructing.constructions_step(self._folder, request, self._reporter)

    def clean(self) -> None:
        """Train on the background as it was, and measure utility."""
        recipe, folder, task = self._recipe, self._folder, self._task
        key = {"corpus": self._corpus.sha256, "plan": task.plan.model_dump(mode="json"), **self._training_key()}
        with self._step("train", key, folder.model, folder.training) as todo:
            if todo:
                rows = background(self._corpus, task.plan)
                steps.train_clean_step(
                    folder, rows, recipe.model, recipe.training, task.plan.seed, task.threads, self._reporter
                )
        self._utility(key, str(folder.model))

    def base(self) -> None:
        """Measure the utility of the model as it came."""
        self._utility(self._training_key(), self._recipe.model)

    def _utility(self, key: Mapping[str, Any], model: str) -> None:
        recipe, folder = self._recipe, self._folder
        if recipe.utility is None:
            return
        with self._step("utility", {**key, "utility": _dump(recipe.utility)}, folder.utility) as todo:
            if todo:
                adapter = (Path(model) / "adapter_config.json").is_file()
                utility_step(
                    folder,
                    model,
                    recipe.utility,
                    recipe.training.style,
                    self._task.threads,
                    recipe.model if adapter else None,
                )

    def _training_key(self) -> dict[str, Any]:
        from davylamp.release.sources import resolve

        weights = resolve(self._recipe.model).weights_sha256()
        training = self._recipe.training.model_dump(mode="json")
        return {"weights": weights, "training": training, "seed": self._task.plan.seed}

    @contextlib.contextmanager
    def _step(self, step: str, key: Mapping[str, Any], *outputs: Path) -> Iterator[bool]:
        """Say whether a step is still to do, and stamp it once it was done."""
        stamp = {"step": step, "inputs": digest(key)}
        todo = not self._folder.is_done(step, stamp, outputs)
        begun, used = time.perf_counter(), time.process_time()
        if todo:
            self._reporter.say(f"{self._folder.path.name}: {step}")
        yield todo
        if todo:
            self._folder.finish(step, stamp)
            taken = Spent(time.perf_counter() - begun, time.process_time() - used)
            self.spent[f"{self._folder.path.name}/{step}"] = taken


def _dump(value: Any) -> Any:
    return None if value is None else value.model_dump(mode="json")
