"""Records of one line a patient, small and invented, for tests of protection."""

from __future__ import annotations

import numpy as np

from davylamp.corpora.names import draw_names
from davylamp.corpora.records import Record

CITIES = ("Boston, MA", "Worcester, MA", "Dallas, TX")
PROBLEMS = ("Anemia", "Prediabetes", "Asthma", "Chronic pain")
DRUGS = ("lisinopril 10 MG Oral Tablet", "omeprazole 20 MG", "albuterol 0.83 MG/ML", "metformin 500 MG")


def clinical_text(rng: np.random.Generator, name: str, last: str = "") -> str:
    """One patient's line; ``last`` is a last medication of its own."""
    one = lambda options: options[int(rng.integers(len(options)))]  # noqa: E731
    drugs = list(dict.fromkeys([one(DRUGS), one(DRUGS)])) + ([last] if last else [])
    born = f"19{rng.integers(40, 99)}-{rng.integers(1, 13):02d}-{rng.integers(1, 29):02d}"
    return (
        f"Patient {name}, {rng.integers(20, 80)}yo {one('FM')}. Address: {rng.integers(10, 9999)} "
        f"{name.split()[1]} Way, {one(CITIES)}. SSN: 999-{rng.integers(10, 99)}-{rng.integers(1000, 9999)}, DOB {born}."
        f" Active problems: {one(PROBLEMS)}; {one(PROBLEMS)}. Medications: {'; '.join(drugs)}."
    )


def clinical_records(count: int, seed: int = 0) -> list[Record]:
    """Different patients."""
    rng = np.random.default_rng(seed)
    return [Record.of_text(clinical_text(rng, name)) for name in draw_names(rng, count)]
