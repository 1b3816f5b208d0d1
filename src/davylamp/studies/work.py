"""One run of a recipe, step by step: what was done with the same inputs is left alone."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from davylamp.canaries.constructions import Maker
from davylamp.canaries.plant import background
from davylamp.measures.constructed.result import FILE as CONSTRUCTIONS_FILE
from davylamp.measures.landscape.model import FILE as LANDSCAPE
from davylamp.protect.corpus.result import PROTECTED, PROTECTION
from davylamp.runs.folder import RunFolder, digest
from davylamp.runs.progress import QUIET, Reporter
from davylamp.studies import auditing, constructing, steps
from davylamp.studies.landscape import UNTRAINED, LandscapeRequest, landscape_step
from davylamp.studies.protecting import ProtectRequest, protect_step
from davylamp.studies.shadow_request import ShadowRequest
from davylamp.studies.tasks import Task
from davylamp.studies.utility import utility_step
from davylamp.training.shadows import ShadowSpec


@dataclass(frozen=True, slots=True)
class Spent:
    """What a step took.

    Attributes:
        wall: seconds on the clock.
        cpu: seconds of processor time, all threads of its process together.
    """

    wall: float
    cpu: float


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
                out = self._folder.path / LANDSCAPE
                request = LandscapeRequest(spec, model, name=name, style=style, threads=self._task.threads, out=out)
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
