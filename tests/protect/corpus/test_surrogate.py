"""The surrogate rewriter: what few records hold goes, what many hold stays."""

from __future__ import annotations

import itertools
import re
import time
import unicodedata
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from davylamp.corpora.records import Record
from davylamp.errors import InputError
from davylamp.protect.corpus.background import look_in_background
from davylamp.protect.corpus.base import apply_spans, texts
from davylamp.protect.corpus.journal import rows_of
from davylamp.protect.corpus.leaks import survives
from davylamp.protect.corpus.surrogate import Surrogate
from davylamp.runs.progress import QUIET
from support.clinical_rows import DRUGS, clinical_records, clinical_text
from support.rare_rows import FORMS, coined, rare_records
from support.spelled_codes import DISGUISES, PARTED

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


def words_of(text):
    """Every run of letters (with their marks) or digits, and every run of both, in lower case; by a rule of its own."""
    kinds = [
        "d" if letter.isdecimal() else "l" if letter.isalnum() or unicodedata.category(letter)[0] == "M" else "_"
        for letter in text
    ]
    found = set()
    for joined in (False, True):
        at = 0
        for _, run in itertools.groupby(kinds, key=lambda kind: kind if kind == "_" or not joined else "w"):
            size = len(list(run))
            if kinds[at] != "_":
                found.add(text[at : at + size].casefold())
            at += size
    return found


@pytest.mark.parametrize("form", FORMS)
@given(
    seed=st.integers(0, 2**20),
    count=st.integers(12, 30),
    common=st.integers(2, 6),
    shape=st.sampled_from(["text", "prompt_completion", "messages"]),
)
@settings(max_examples=8, deadline=None)
def test_no_word_or_number_that_few_records_hold_survives_anywhere(form, seed, count, common, shape):
    """The law of the whole: whatever it is taken for, no word of 1 to ``common`` - 1 records is left in their rows."""
    records = rare_records(form, count, seed, shape)
    rows = rows_of([*records, *records[:3] * common], once=False)
    held = Counter(word for record in records for word in {w for text in texts(record) for w in words_of(text)})
    surrogate = Surrogate(rows, common=min(common, len(records) // 2))
    for row in rows:
        own = {word for text in texts(row.record) for word in words_of(text)}
        left = {word for text in texts(surrogate.one(row).record) for word in words_of(text)}
        # A number of one or two digits is one of a hundred, and may be drawn again within a longer one.
        assert not [w for w in own & left if held[w] < common and not (w.isdigit() and len(w) < 3)]


@pytest.mark.parametrize("form", FORMS)
def test_what_survives_of_short_numbers_is_chance(form):
    records = rare_records(form, 60, 1)
    rows = rows_of(records, once=False)
    surrogate = Surrogate(rows)
    held = Counter(word for record in records for word in words_of(record.reply))
    alone = re.compile(r"(?<![\w.,/:@-])\d{1,2}(?![\w.,/:@-]|[.,]\d)")
    for row in rows:
        made = surrogate.one(row).record.reply
        rare = {number for number in alone.findall(row.record.reply) if held[number] < 5}
        assert not rare & set(alone.findall(made))


@pytest.mark.parametrize(
    "text", ["Hello, I am {}, customer {}: my parcel is late", "{}: {} it came broken", "Order {1}: {0}"]
)
def test_what_stands_before_a_colon_is_a_label_only_where_many_records_hold_it(text):
    rng = np.random.default_rng(0)
    names = [f"{coined(rng).title()} {coined(rng).title()}" for _ in range(120)]
    records = [Record.of_text(text.format(name, 50_000 + 37 * at)) for at, name in enumerate(names)]
    rows = rows_of(records, once=False)
    surrogate = Surrogate(rows)
    for row, name in zip(rows, names, strict=True):
        made = surrogate.one(row).record.reply
        for own in (*name.split(), str(50_000 + 37 * row.position)):
            assert own not in made
        # And what all of them say behind it is said still.
        for said in ("my parcel is late", "it came broken", "Order "):
            assert (said in made) == (said in row.record.reply)


def test_a_label_that_as_many_hold_as_must_is_one():
    def records(held):
        return [Record.of_text(f"Zorbn: {'my parcel is late'}. n {at}") for at in range(held)] + [
            Record.of_text(f"Ward: fine. n {at}") for at in range(50, 70)
        ]

    for held, kept in ((4, False), (5, True)):
        rows = rows_of(records(held), once=False)
        assert ("Zorbn" in Surrogate(rows).one(rows[0]).record.reply) is kept


def test_placeholders_of_scrubbing_stay_and_others_are_words():
    forms = ["Dear <PERSON>, file 6904 of <LOCATION>. <WARD> <QUORN{}>"] * 20
    records = [Record.of_text(form.format(chr(65 + at)) + f" {at * 731}") for at, form in enumerate(forms)]
    rows = rows_of(records, once=False)
    made = Surrogate(rows).one(rows[4]).record.reply
    # <WARD> is no kind of ours, but all hold it; <QUORNE> is one record's.
    assert made.startswith("Dear <PERSON>, file 6904 of <LOCATION>. <WARD> <")
    assert "QUORNE" not in made
    alone = rows_of([*records[:19], Record.of_text("Dear Ann <US_SSN> Elm. <EARTH>")], once=False)
    made = Surrogate(alone).one(alone[-1]).record.reply
    assert "<US_SSN>" in made
    assert "EARTH" not in made


def test_a_stand_in_has_the_case_and_about_the_length_of_what_it_stands_for():
    rng = np.random.default_rng(3)
    records = [
        Record.of_text(
            f"Patient {coined(rng).title()} {coined(rng).title()}, {'F' if at % 7 == 0 else 'M'}, "
            f"{'NY' if at % 7 else 'TX'}. "
            f"Take {coined(rng, 9)} 86 MG oral tablet, {coined(rng, 5).upper()}, mail {coined(rng)}@example.com"
        )
        for at in range(14)
    ]
    rows = rows_of(records, once=False)
    surrogate = Surrogate(rows)
    for row in rows:
        made = surrogate.one(row).record.reply
        assert re.fullmatch(
            r"Patient [A-Z][a-z]+ [A-Z][a-z]+, M, NY\. Take [a-z]{9} 86 MG oral tablet, [A-Z]{5}, "
            r"mail [a-z]{7}@example\.com",
            made,
        )


def test_a_short_code_without_a_common_one_stays_a_code():
    states = ["NY", "MA", "TX", "CA", "OH", "IL"]
    records = [Record.of_text(f"State: {states[at % 6]}. Sex: {'FMXDNU'[at % 6]}. n {at // 2}") for at in range(12)]
    rows = rows_of(records, once=False)
    surrogate = Surrogate(rows)
    for row in rows:
        assert re.fullmatch(r"State: [A-Z]{2}\. Sex: [A-Z]\. n \d+", surrogate.one(row).record.reply)
        assert states[row.position % 6] not in surrogate.one(row).record.reply


@pytest.mark.parametrize("name", ["Teodoro de Anda", "Ludwig van der Quorn", "Omar bin al Rasz", "Ana dos Qantos"])
def test_names_with_particles_are_one_name(name):
    others = [f"{name.split()[0]} Elm", f"Ada {name.split()[-1]}", name.replace(name.split()[0], "Bela")]
    records = [
        Record.of_text(f"customer {each} is here, n {at}")
        for at, each in enumerate([*others * 6, *["Zoe Fox"] * 30, name])
    ]
    rows = rows_of(records, once=False)
    surrogate = Surrogate(rows)
    assert [rows[-1].record.reply[span.start : span.end] for span in surrogate.rare(rows[-1].record.reply)][:1] == [
        name
    ]
    # Each word of it is common, and the name is nobody else's.
    assert name not in surrogate.one(rows[-1]).record.reply
    labelled = rows_of(
        [Record.of_text(f"Customer: {name if not at else 'Ada Elm'}. n {at}") for at in range(20)], once=False
    )
    text = labelled[0].record.reply
    assert [text[s.start : s.end] for s in Surrogate(labelled).rare(text) if s.kind == "name"] == [name]


@pytest.mark.parametrize("mark", ["; ", ". ", ", ", " ", "\n", "-", ": "])
def test_a_code_of_letters_goes_however_they_are_parted(mark):
    rng = np.random.default_rng(9)
    codes = [mark.join("abcdefgh"[int(each)] for each in rng.integers(8, size=6)) for _ in range(200)]
    rows = rows_of([Record.of_text(f"pls send ticket {code}, thanks") for code in codes], once=False)
    surrogate = Surrogate(rows)
    # Every letter by itself stands in many records, and all six together in one.
    assert not any(codes[row.position] in surrogate.one(row).record.reply for row in rows[:40])


@pytest.mark.parametrize("form", PARTED)
@given(seed=st.integers(0, 2**20), alphabet=st.sampled_from(["0123456789", "abcdefgh", "ABCD1234"]))
@settings(max_examples=2, deadline=None)
def test_a_code_goes_in_whatever_form_a_file_holds_it(form, seed, alphabet):
    rng = np.random.default_rng(seed)
    codes = ["".join(rng.choice(list(alphabet), size=5)) for _ in range(60)]
    records = [Record.of_text(f"pls send ticket {PARTED[form](code)} to us, thanks") for code in codes]
    rows = rows_of(records, once=False)
    surrogate = Surrogate(rows)
    made = [surrogate.one(row).record for row in rows]
    # Every letter by itself stands in many records, and all five together in one.
    for code, after in zip(codes, made, strict=True):
        assert PARTED[form](code) not in after.reply
        assert after.reply.startswith("pls send ticket ")
        assert after.reply.endswith(" to us, thanks")
        # The form stays, tags with it: all else is as it was.
        mine, theirs = PARTED[form](code), after.reply.removeprefix("pls send ticket ").removesuffix(" to us, thanks")
        assert len(theirs) == len(mine)
        assert [a for a, b in zip(mine, theirs, strict=True) if a != b] == list(code)
    found = look_in_background(records, made, range(60))
    assert (found.numbers.left, found.rows_left) == (0, 0)
    undone = look_in_background(records, records, range(60))
    assert undone.numbers.rare == undone.numbers.left >= 55


@pytest.mark.parametrize("alphabet", DISGUISES)
def test_letters_in_disguise_go_like_others(alphabet):
    rng = np.random.default_rng(4)
    codes = ["".join(rng.choice(DISGUISES[alphabet], size=6)) for _ in range(60)]
    rows = rows_of([Record.of_text(f"pls send ticket {code} to us") for code in codes], once=False)
    surrogate = Surrogate(rows)
    for row, code in zip(rows, codes, strict=True):
        made = surrogate.one(row).record.reply
        assert re.fullmatch(r"pls send ticket \S+ to us", made)
        assert code not in made
        # Nothing of the code is left in it, not even one letter.
        assert not set(code) & set(made)


def test_a_row_of_ten_thousand_signs_takes_less_than_a_second():
    for unit in ("1; ", '"1", ', "<td>4</td>", "a | b | 1"):
        records = [Record.of_text(unit * (10_000 // len(unit))), *PATIENTS[:12]]
        rows = rows_of(records, once=False)
        begun = time.process_time()
        Surrogate(rows).one(rows[0])
        # Measured: 0.1 s.
        assert time.process_time() - begun < 1
