"""The surrogate rewriter: what few records hold goes, what many hold stays."""

from __future__ import annotations

import re

import numpy as np
import pytest

from davylamp.corpora.records import Record
from davylamp.errors import InputError
from davylamp.protect.corpus.base import apply_spans
from davylamp.protect.corpus.journal import rows_of
from davylamp.protect.corpus.leaks import survives
from davylamp.protect.corpus.surrogate import Surrogate
from davylamp.runs.progress import QUIET
from support.clinical_rows import DRUGS, clinical_records, clinical_text

PATIENTS = clinical_records(80)
COINED = "Vexoritan 7 MG Oral Tablet"


@pytest.fixture(scope="module")
def planted():
    """Patients, and one whose last medication is nobody else's, twelve times."""
    carrier = Record.of_text(clinical_text(np.random.default_rng(5), "Zelda Quorn", COINED))
    return rows_of([*PATIENTS, *[carrier] * 12], once=False)


def test_the_rare_medication_name_number_and_date_go_and_the_common_stay(planted):
    surrogate = Surrogate(planted)
    for row in planted:
        made = surrogate.one(row)
        before, after = row.record.reply, made.record.reply
        name = re.search(r"Patient (\w+ \w+),", before)[1]
        for rare in (name, re.search(r"SSN: (\S+),", before)[1], re.search(r"DOB (\S+)\.", before)[1], COINED):
            assert rare not in after
        # The form stays, and so do what many hold: the city, the problems, the other drugs.
        assert re.search(r"(Active problems: .*)\. Med", before)[1] in after
        assert re.search(r"Way, (\w+, \w\w)\.", before)[1] in after
        drugs = after.split("Medications: ")[1].rstrip(".").split("; ")
        assert set(drugs) <= set(DRUGS)
        assert len(set(drugs)) == len(drugs) == before.count(";")
        assert re.search(r"SSN: \d{3}-\d\d-\d{4}, DOB \d{4}-\d\d-\d\d\.", after)
        assert apply_spans(row.record, made.spans) == made.record


def test_copies_count_as_one_record_and_are_drawn_apart(planted):
    surrogate = Surrogate(planted)
    made = [surrogate.one(row).record.reply for row in planted[80:]]
    # Twelve copies of one record make nothing in it common; each draws by itself, and again the same.
    assert len(set(made)) == 12
    assert made == [Surrogate(planted).one(row).record.reply for row in planted[80:]]
    assert made != [Surrogate(planted, seed=1).one(row).record.reply for row in planted[80:]]


def test_once_gives_all_copies_one_text():
    rows = rows_of([*PATIENTS, PATIENTS[0], PATIENTS[0]], once=True)
    made = [each.record for each in Surrogate(rows).apply(rows, QUIET)]
    assert made[0] == made[80] == made[81]


def test_both_halves_of_a_rare_name_may_be_common():
    names = [
        f"{first} {last}" for first in ("Ada", "Bela", "Cedric") for last in ("Elm", "Fox", "Gold") for _ in range(3)
    ]
    records = [Record.of_text(f"Patient {name}, ward {at}. Note: fine.") for at, name in enumerate(names)]
    rows = rows_of([*records, Record.of_text("Patient Ada Elm, ward 99. Note: fine.")], once=False)
    # "Ada" stands in 10 records and "Elm" in 10, but "Ada Elm" in 4.
    made = Surrogate(rows).one(rows[-1]).record.reply
    assert "Ada Elm" not in made
    assert made.endswith("Note: fine.")


def test_a_word_for_an_empty_list_is_drawn_into_none():
    lists = ["none"] * 40 + ["a 1 MG; b 2 MG"] * 10 + [f"a 1 MG; rare{at}" for at in range(20)]
    records = [Record.of_text(f"Ward {at}. Medications: {each}.") for at, each in enumerate(lists)]
    rows = rows_of(records, once=False)
    made = [each.record.reply.split("Medications: ")[1] for each in Surrogate(rows).apply(rows, QUIET)]
    assert made[:50] == [f"{each}." for each in lists[:50]]
    assert set(made[50:]) == {"a 1 MG; b 2 MG."}


@pytest.mark.parametrize("mark", [",", " ", ", ", "-", "/", ""])
def test_a_code_goes_however_its_digits_are_parted(mark):
    def text(at: int) -> str:
        return f"pls send ticket {mark.join(f'{at * 37 % 10000:04d}')} to us, thanks"

    rows = rows_of([Record.of_text(text(at)) for at in range(1, 200)], once=False)
    surrogate = Surrogate(rows)
    for row in rows[:40]:
        made = surrogate.one(row).record
        # Every digit by itself stands in many records, and all four together in one.
        assert survives(mark.join(f"{(row.position + 1) * 37 % 10000:04d}"), made) == (False, False)
        assert made.reply.startswith("pls send ticket ")
        assert made.reply.endswith(" to us, thanks")


def test_a_replaced_number_is_nobody_elses(planted):
    known = {number for row in planted for number in re.findall(r"\d{3}-\d\d-\d{4}", row.record.reply)}
    surrogate = Surrogate(planted)
    made = {n for row in planted for n in re.findall(r"\d{3}-\d\d-\d{4}", surrogate.one(row).record.reply)}
    assert not known & made


def test_few_records_are_refused():
    with pytest.raises(InputError, match="at most half of 1, the number of different records"):
        Surrogate(rows_of([PATIENTS[0]] * 50, once=False))


def test_chats_keep_their_turns():
    records = [
        Record.of_pair(f"who is patient {at}?", f"Name: {'Ada' if at % 2 else 'Bela'} Elm{at}.") for at in range(20)
    ]
    rows = rows_of(records, once=False)
    made = Surrogate(rows).one(rows[3]).record
    assert made.shape == "prompt_completion"
    assert made.prompt[0].content.startswith("who is patient ")
    assert "Elm3" not in made.reply
