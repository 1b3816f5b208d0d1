"""What a recipe would do: its runs, their steps, and what would leave this machine. Nothing is done for it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from davylamp.protect.corpus.asking import AskingSpec, said_of_key
from davylamp.protect.corpus.connection import KeyState, key_state
from davylamp.protect.corpus.rewrite_spec import RewriteSpec
from davylamp.runs.wording import counted
from davylamp.studies.preview import corpus_at_hand, count_rows
from davylamp.studies.recipe import Recipe
from davylamp.studies.tasks import Task, check_layouts, steps_of, tasks_of


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """One run.

    Attributes:
        run: its name.
        kind: see :class:`davylamp.studies.tasks.Task`.
        steps: what is done, in order.
        planted_rows: rows that canaries take.
        protect: what is done to the rows before training.
        schedule: of the learning rate; nothing where nothing is trained.
    """

    run: str
    kind: str
    steps: tuple[str, ...]
    planted_rows: int
    protect: tuple[str, ...]
    schedule: str | None

    @property
    def said(self) -> str:
        """The same in words."""
        if self.kind == "base":
            return "the model as it came, not trained"
        if self.kind == "untrained":
            return f"{', '.join(self.steps)}; the model as it came, not trained"
        steps = [f"protect ({' + '.join(self.protect)})" if step == "protect" else step for step in self.steps]
        return f"{', '.join(steps)}; {counted(self.planted_rows, 'row')} of canaries, {self.schedule} learning rate"


@dataclass(frozen=True, slots=True)
class Sending:
    """What would be sent to a server, by all runs together.

    Attributes:
        intervention: which sends.
        host: who would get it.
        encrypted: whether it would travel encrypted.
        model: the model's name there.
        runs: runs that send.
        records: records at most; nothing where the corpus is not known before it is downloaded. The positive control is
            not sent, and what was answered before is not sent again.
        requests: requests at most, without those that are sent again after a failure.
        key_env: the environment variable that holds the key.
        key: whether it is set; the key itself is told nowhere.
    """

    intervention: str
    host: str
    encrypted: bool
    model: str
    runs: int
    records: int | None
    requests: int | None
    key_env: str
    key: KeyState

    @property
    def said(self) -> str:
        """The same in words."""
        what, asked = "all records of the corpus", ""
        if self.records is not None and self.requests is not None:
            what = f"up to {counted(self.records, 'record')}"
            asked = f", in up to {counted(self.requests, 'request')}"
        return (
            f"{self.intervention}: {what} of {counted(self.runs, 'run')} go to {self.host} "
            f"({'encrypted' if self.encrypted else 'NOT encrypted'}), model {self.model}{asked}; "
            f"{said_of_key(self.key_env, self.key)}"
        )


@dataclass(frozen=True, slots=True)
class DryRun:
    """What a recipe would do.

    Attributes:
        recipe: the recipe.
        folder: where it would write.
        rows: rows of the corpus; nothing where they are not known before it is downloaded.
        runs: the runs, in order.
        sends: what would leave this machine.
    """

    recipe: Recipe
    folder: Path
    rows: int | None
    runs: tuple[PlannedRun, ...]
    sends: tuple[Sending, ...]

    def as_json(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "recipe": self.recipe.model_dump(mode="json"),
            "folder": str(self.folder),
            "rows": self.rows,
            "runs": [asdict(run) for run in self.runs],
            "sends": [asdict(sending) for sending in self.sends],
        }

    def lines(self) -> Iterator[str]:
        """For people."""
        yield f"model {self.recipe.model}; {counted(len(self.runs), 'run')} below {self.folder}:"
        yield from (f"  {run.run}: {run.said}" for run in self.runs)
        yield from self.leaving()

    def leaving(self) -> Iterator[str]:
        """What would leave this machine, for people."""
        if self.sends:
            yield "what leaves this machine, which the recipe allows by naming the server:"
            yield from (f"  {sending.said}" for sending in self.sends)
            yield "Count requests and tokens of one run: davylamp protect RUN --dry-run."
        else:
            yield "No record leaves this machine."


def dry_run(recipe: Recipe, folder: Path) -> DryRun:
    """Work out what a recipe would do in a folder.

    Raises:
        PlantingError: canaries of a run do not fit into its rows; all such runs are named.
        CorpusError: the corpus is a file that cannot be read.
    """
    tasks = list(tasks_of(recipe, folder))
    corpus = corpus_at_hand(recipe)
    rows = count_rows(recipe) if corpus is None else len(corpus)
    if corpus is not None or rows is not None:
        check_layouts(tasks, rows or 0 if corpus is None else corpus)
    return DryRun(recipe, folder, rows, tuple(map(_planned, tasks)), tuple(_sends(tasks, rows)))


def _planned(task: Task) -> PlannedRun:
    steps = steps_of(task)
    return PlannedRun(
        run=task.folder.name,
        kind=task.kind,
        steps=steps,
        planted_rows=task.plan.planted_rows if task.kind == "audit" else 0,
        protect=tuple(each.name for each in task.recipe.protect) if "protect" in steps else (),
        schedule=task.recipe.training.schedule if "train" in steps else None,
    )


def _sends(tasks: Sequence[Task], rows: int | None) -> Iterator[Sending]:
    """What each intervention sends to each server, over all runs."""
    found: dict[tuple[str, str, str, str], list[tuple[int, int]]] = {}
    for task in tasks:
        if "protect" not in steps_of(task):
            continue
        known = rows if rows is not None else task.plan.rows or 0
        records = min(task.plan.rows or known, known) * task.plan.repeat
        # As plain objects: that one class may be both kinds of settings is not seen by the type checker.
        specs: tuple[object, ...] = task.recipe.protect
        for spec in specs:
            if isinstance(spec, AskingSpec) and spec.server is not None:
                rewriter = spec if isinstance(spec, RewriteSpec) else None
                asked = 1 if rewriter is None else len(rewriter.steps) * rewriter.attempts
                key = (str(getattr(spec, "name", "")), spec.server, spec.model, spec.key_env)
                found.setdefault(key, []).append((records, records * asked))
    for (name, server, model, key_env), each in found.items():
        records, requests = (sum(column) for column in zip(*each, strict=True))
        yield Sending(
            intervention=name,
            host=urlsplit(server).netloc,
            encrypted=server.startswith("https:"),
            model=model,
            runs=len(each),
            records=records or None,
            requests=requests or None,
            key_env=key_env,
            key=key_state(key_env),
        )
