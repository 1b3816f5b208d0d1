"""How much of planted identities scrubbing takes out, by kind, with 95% intervals, and what it takes besides.

    pip install 'davylamp[scrub]'
    python benchmarks/scrubbing.py --patients patients.jsonl [--rows 600] [key=value ...]

A record a line, with the fields first_name, last_name, ssn, dob, address, city, state_code, zip, phone, email, mrn,
problems and medications beside its text. To each text a coined medication is added as its last, and a sentence with
telephone, mail and number of the patient. An identity is out where no letter or digit of it is left. key=value are
settings of ScrubSpec.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from davylamp.bounds.intervals import clopper_pearson
from davylamp.corpora.records import Record
from davylamp.protect.corpus.base import Protected, Row
from davylamp.protect.corpus.scrub import Scrub, ScrubSpec
from davylamp.runs.config import apply_overrides, validate
from davylamp.runs.progress import QUIET
from davylamp.secrets.coined import CoinedSpace

SINGLE = ("ssn", "dob", "address", "city", "state_code", "zip", "phone", "email", "mrn")


def text_of(patient: dict[str, Any], coined: str) -> str:
    """The record with a coined medication and a sentence of contacts."""
    text = patient["text"].removesuffix("none.").removesuffix(".").rstrip()
    joint = " " if text.endswith(":") else "; "
    return f"{text}{joint}{coined}. Phone {patient['phone']}, email {patient['email']}, MRN {patient['mrn']}."


def wanted(patient: dict[str, Any], coined: str) -> list[tuple[str, str]]:
    """What is looked for: kind and text."""
    named = [("name", f"{patient['first_name']} {patient['last_name']}")]
    clinical = [("problem", each) for each in patient["problems"]] + [
        ("medication", each) for each in patient["medications"]
    ]
    return [*named, *((kind, str(patient[kind])) for kind in SINGLE), *clinical, ("coined medication", coined)]


def left(text: str, value: str, made: Protected) -> tuple[int, int]:
    """Letters and digits of a value that are left, and how many it has; where it stands first in the text."""
    start = text.index(value)
    covered = {at for span in made.spans if span.replacement is not None for at in range(span.start, span.end)}
    own = [at for at in range(start, start + len(value)) if text[at].isalnum()]
    return sum(at not in covered for at in own), len(own)


def main(arguments: Sequence[str] | None = None) -> None:
    """Scrub and count."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--patients", type=Path, required=True)
    parser.add_argument("--rows", type=int, default=600)
    parser.add_argument("settings", nargs="*")
    chosen = parser.parse_args(arguments)
    with chosen.patients.open(encoding="utf-8") as lines:
        patients = [json.loads(line) for line in islice(lines, chosen.rows)]
    space = CoinedSpace(kind="coined", seed=0)
    coined = [space.secret(at) for at in range(len(patients))]
    texts = [text_of(*each) for each in zip(patients, coined, strict=True)]
    scrub = Scrub(validate(ScrubSpec, apply_overrides({"name": "scrub"}, chosen.settings), "scrub"))
    begun = time.perf_counter()
    made = list(scrub.apply([Row(at, Record.of_text(text), 0, at) for at, text in enumerate(texts)], QUIET))
    seconds = time.perf_counter() - begun
    counts: Counter[tuple[str, str]] = Counter()
    for patient, name, text, row in zip(patients, coined, texts, made, strict=True):
        for kind, value in wanted(patient, name):
            if value not in text:
                continue
            kept, whole = left(text, value, row)
            counts[kind, "all"] += 1
            counts[kind, "out"] += kept == 0
            counts[kind, "part"] += 0 < kept < whole
    print(f"{scrub.version}; {len(texts)} records in {seconds:.1f} s")
    for kind in dict.fromkeys(kind for kind, _ in counts):
        out, part, every = (counts[kind, key] for key in ("out", "part", "all"))
        span = clopper_pearson(out, every, 0.95)
        print(
            f"{kind:18} out {out:5} of {every:5} = {out / every:6.1%} [{span.low:.1%}, {span.high:.1%}]; "
            f"in part {part / every:6.1%}; untouched {1 - (out + part) / every:6.1%}"
        )


if __name__ == "__main__":
    main()
