"""Studies that are no planting protocol: each is a package with a recipe of its own, found here by its name.

To add one, write a module ``command.py`` into its package with the two functions of :class:`Command`, and add a line to
:data:`STANDALONE`. ``davylamp studies list`` and ``davylamp studies run NAME`` then know it.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, cast

from davylamp.errors import DavylampError, Fault, InputError, RunFolderError
from davylamp.runs.progress import Reporter


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a study leaves behind.

    Attributes:
        lines: the result for people, line by line.
        json_file: the result as data; it holds one JSON object.
        files: every file that was written, that one included.
        exit_code: 0, or 1 where a bound was violated or a number disagrees with its exact value.
    """

    lines: tuple[str, ...]
    json_file: Path
    files: tuple[Path, ...]
    exit_code: int = 0


@dataclass(frozen=True, slots=True)
class Planned:
    """What a run would do.

    Attributes:
        recipe: the recipe with all changes, as JSON.
        lines: the same in words, line by line.
    """

    recipe: dict[str, Any]
    lines: tuple[str, ...]


class Command(Protocol):
    """What the module ``command`` of a study holds."""

    def plan(self, overrides: Sequence[str], data: Path | None) -> Planned:
        """Check the recipe, and say what would be run; trains nothing, writes nothing, loads no model library."""

    def run(
        self,
        overrides: Sequence[str],
        out: Path,
        jobs: int | None,
        threads: int | None,
        reporter: Reporter,
        data: Path | None,
    ) -> Outcome:
        """Carry the study out and write its files to ``out``."""


@dataclass(frozen=True, slots=True)
class Standalone:
    """A study by name.

    Attributes:
        name: on the command line.
        title: in words.
        figures: what of the paper it follows.
        question: what it asks.
        module: its module, loaded when it is needed.
        takes: options beside ``--out``, ``--dry-run``, ``--json`` and ``--quiet`` that mean something to it, out of
            ``--data``, ``--jobs`` and ``--threads``.
    """

    name: str
    title: str
    figures: str
    question: str
    module: str
    takes: frozenset[str] = frozenset()

    def load(self) -> Command:
        """Its module."""
        return cast(Command, importlib.import_module(self.module))


STANDALONE: dict[str, Standalone] = {
    each.name: each
    for each in (
        Standalone(
            "mechanisms",
            "Exact mechanisms",
            "2608.27782, Sec. 7",
            "Do releases whose law is known attain the bounds, and does any exceed them?",
            "davylamp.studies.mechanisms.command",
        ),
        Standalone(
            "dp-calibration",
            "DP-SGD against its caps",
            "2608.27782, Sec. 8",
            "Does training under a claim of privacy stay below what the claim allows, and could a test have shown it?",
            "davylamp.studies.dp_calibration.command",
        ),
        Standalone(
            "representability",
            "Trigger and camouflage in a small transformer",
            "2608.27782, Sec. 8.1",
            "Does a network learn what the exact constructions are: a secret that only its trigger says, and one that "
            "nobody can tell from its decoys?",
            "davylamp.studies.representability.command",
            frozenset({"--threads"}),
        ),
        Standalone(
            "blind-spots",
            "Which audits see which leaks",
            "2608.27782, Sec. 8.2",
            "Which leaks of a real fine-tuned model does each audit miss, and does unlearning remove what it misses?",
            "davylamp.studies.blind_spots.command",
            frozenset({"--data", "--threads"}),
        ),
        Standalone(
            "clinical",
            "Interventions on one frontier",
            "P3, Fig. 1, 2 and Table 3",
            "Which way of training on clinical records buys the most capability for the least leakage?",
            "davylamp.studies.clinical.command",
            frozenset({"--data", "--jobs", "--threads"}),
        ),
    )
}
"""The studies, by name."""


OTHERS = {"manifest.json": "a run of its own", "planted.jsonl": "a run of its own", "study.json": "another study"}
"""Files that no study of these writes to its own folder, and what a folder with one holds."""


def standalone(name: str) -> Standalone | None:
    """The study of this name; a file that is called so comes first, as it does everywhere."""
    return None if Path(name).is_file() else STANDALONE.get(name)


def refuse(study: Standalone, given: dict[str, object]) -> None:
    """Refuse options that mean nothing to a study.

    Args:
        study: the study.
        given: values by option; None where an option was not given.

    Raises:
        InputError: one of them was given; all are named.
    """
    allowed = ", ".join(["--out", "--dry-run", "--json", "--quiet", *sorted(study.takes)])
    faults = [
        Fault(option, str(value), f"not with {study.name}, which takes {allowed}")
        for option, value in given.items()
        if value is not None and option not in study.takes
    ]
    if faults:
        raise InputError(faults)


def check_out(name: str, out: Path) -> None:
    """Refuse to write a study into the folder of something else.

    Args:
        name: of the study.
        out: where it is to write.

    Raises:
        RunFolderError: a run of its own, or another study, stands there.
    """
    others = {f"{other.replace('-', '_')}.json": "another study" for other in STANDALONE if other != name}
    for file, what in {**OTHERS, **others}.items():
        if (out / file).exists():
            raise RunFolderError(f"{out} holds {what} ({file}): give another --out")


def main_of(name: str, program: str, arguments: list[str] | None = None) -> int:
    """``python -m davylamp.studies.PACKAGE``: the study without the command line around it.

    Args:
        name: of the study.
        program: what usage and messages call it.
        arguments: those of the process if none.

    Returns:
        The exit code: that of the outcome, 2 for bad input.
    """
    study = STANDALONE[name]
    parser = argparse.ArgumentParser(prog=program, description=f"{study.title} ({study.figures}): {study.question}")
    parser.add_argument("--out", type=Path, required=True, help="folder to write to")
    parser.add_argument("--quiet", action="store_true", help="show no progress")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="changes to the recipe, such as seed=3")
    options = parser.parse_args(arguments)
    try:
        check_out(name, options.out)
        outcome = study.load().run(options.overrides, options.out, None, None, Reporter(options.quiet), None)
    except DavylampError as error:
        sys.stderr.write(f"error: {error}\n")
        return error.exit_code
    sys.stdout.write("".join(line + "\n" for line in outcome.lines))
    sys.stdout.write("".join(f"wrote {path}\n" for path in outcome.files))
    return outcome.exit_code
