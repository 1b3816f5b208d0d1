"""Made-up patients from a seed, thousands a second: no two share a name, a number or an address, and none is real."""

from __future__ import annotations

import datetime
import hashlib
import json
from collections.abc import Iterator, Sequence

import numpy as np

from davylamp.corpora.clinical import ClinicalText
from davylamp.corpora.clinical_words import CONDITIONS, PLACES, RACES, STREET_KINDS, Condition
from davylamp.corpora.names import SURNAMES, full_names
from davylamp.corpora.records import Corpus, Record
from davylamp.errors import Fault, InputError
from davylamp.secrets import stream

REFERENCE = datetime.date(2024, 1, 1)
"""The day on which ages are counted; dates of birth follow from it."""
AREA = 999
"""Area of every social security number; none was or will be issued in it."""
NUMBERS = 1_000_000
"""Social security numbers of the area."""
OLDEST = 89
MOST = 6
"""Conditions that a patient has at most."""


def generate(rows: int, seed: int) -> Corpus:
    """Records of made-up patients, one text each; see :func:`patients`.

    Raises:
        InputError: see :func:`patients`.
    """
    made = tuple(Record.of_text(each.text()) for each in patients(rows, seed))
    digest = hashlib.sha256()
    for record in made:
        digest.update(record.line().encode("utf-8") + b"\n")
    names = tuple(patient_id(number) for number in range(rows))
    return Corpus(made, f"generated clinical records (rows={rows}, seed={seed})", digest.hexdigest(), groups=names)


def patient_id(number: int) -> str:
    """The ``id`` of a generated patient, counted from 0."""
    return f"gen-{number:06d}"


def lines(rows: int, seed: int) -> Iterator[str]:
    """The same patients as lines of JSON with all fields, as a file of clinical records holds them."""
    for number, each in enumerate(patients(rows, seed)):
        yield json.dumps(each.row(patient_id(number)), ensure_ascii=False)


def patients(rows: int, seed: int) -> list[ClinicalText]:
    """Made-up patients.

    Conditions depend on age and sex, medicines on conditions, so that there is something to learn besides the form.
    Names, numbers and addresses are unique and independent of all else. Fewer rows are the first rows of more.

    Args:
        rows: how many, at most as many as there are full names.
        seed: a whole number of at least 0.

    Raises:
        InputError: there are fewer names, or ``rows`` is below 1.
    """
    names = full_names()
    if not 1 <= rows <= len(names):
        raise InputError(Fault("rows", rows, f"1 to {len(names):,}, as many as there are full names"))
    name_order = stream(seed, "patients", "names").permutation(len(names))[:rows]
    numbers = stream(seed, "patients", "numbers").permutation(NUMBERS)[:rows]
    addresses = _addresses(rows, seed)
    rng = stream(seed, "patients", "lives")
    made = []
    for at in range(rows):
        made.append(_patient(rng, names[int(name_order[at])], int(numbers[at]), addresses[at]))
    return made


def _patient(rng: np.random.Generator, name: str, number: int, address: tuple[str, str, str, str]) -> ClinicalText:
    # As many numbers for every patient, whatever they have, so that one life changes nothing of the next.
    draws = rng.random(6 + 2 * MOST)
    days = int(draws[0] * (OLDEST + 1) * 365.25)
    born = REFERENCE - datetime.timedelta(days=days)
    age = REFERENCE.year - born.year - ((REFERENCE.month, REFERENCE.day) < (born.month, born.day))
    gender = "F" if draws[1] < 0.5 else "M"
    race, ethnicity = _race(draws[2])
    # Older people have more.
    count = min(MOST, int((0.4 + age / 22) * 2 * draws[3] + 0.3))
    problems, medications = _conditions(age, gender, count, draws[6:])
    street, city, state, code = address
    return ClinicalText(
        name=name,
        age=age,
        gender=gender,
        race=race,
        ethnicity=ethnicity,
        address=street,
        city=city,
        state_code=state,
        zip=code,
        ssn=f"{AREA}-{number // 10_000:02d}-{number % 10_000:04d}",
        dob=born.isoformat(),
        problems=problems,
        medications=medications,
    )


def _race(draw: float) -> tuple[str, str]:
    for race, ethnicity, share in RACES:
        if draw < share:
            return race, ethnicity
        draw -= share
    return RACES[-1][:2]


def _conditions(
    age: int, gender: str, count: int, draws: Sequence[float] | np.ndarray
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    open_to = [each for each in CONDITIONS if each.ages[0] <= age <= each.ages[1] and each.gender in (None, gender)]
    problems: list[str] = []
    medications: dict[str, None] = {}
    for at in range(min(count, len(open_to))):
        found = _weighted(open_to, draws[2 * at])
        open_to.remove(found)
        problems.append(found.name)
        # Now and then nothing is given.
        choice = int(draws[2 * at + 1] * 1.25 * len(found.medicines))
        if choice < len(found.medicines):
            medications[found.medicines[choice]] = None
    return tuple(problems), tuple(medications)


def _weighted(conditions: Sequence[Condition], draw: float) -> Condition:
    at = draw * sum(each.weight for each in conditions)
    for each in conditions:
        at -= each.weight
        if at < 0:
            return each
    return conditions[-1]


def _addresses(rows: int, seed: int) -> list[tuple[str, str, str, str]]:
    """Street with number, town, state and postal code; a second household at one address gets a unit of its own."""
    draws = stream(seed, "patients", "addresses").random((rows, 5))
    seen: dict[tuple[str, str], int] = {}
    found = []
    for number, name, kind, place, digits in draws:
        words = SURNAMES[int(name * len(SURNAMES))], STREET_KINDS[int(kind * len(STREET_KINDS))]
        street = f"{1 + int(number * 9999)} {' '.join(words)}"
        town, state, first = PLACES[int(place * len(PLACES))]
        units = seen[(street, town)] = seen.get((street, town), 0) + 1
        shown = street if units == 1 else f"{street} Unit {units}"
        found.append((shown, town, state, f"{first}{int(digits * 100):02d}"))
    return found
