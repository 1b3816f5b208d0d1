"""Rare names and numbers of the rows without canaries that still stand, against counts by hand."""

from __future__ import annotations

import time

from davylamp.corpora.records import Record
from davylamp.protect.corpus.background import look_in_background
from support.clinical_rows import clinical_records

FORM = "Patient {}, file {}. seen"
# Each rare but "Ada Elm", which five different records hold; what differs there is the file's number.
BEFORE = [FORM.format("Ada Elm", 1000 + at) for at in range(5)] + [
    FORM.format("Zelda Quorn", 2001),
    FORM.format("Teodoro de Anda", 2002),
    FORM.format("Ada Fox", "1971-02-06"),
]


def look(after, positions=None, common=5):
    records = [Record.of_text(text) for text in BEFORE]
    positions = range(len(records)) if positions is None else positions
    return look_in_background(records, [Record.of_text(text) for text in after], positions, common)


def test_all_that_is_rare_stands_where_nothing_was_done():
    found = look(BEFORE)
    # "Patient Ada Elm" is held by five; three other names and all eight numbers are rare.
    assert (found.names.rare, found.names.left) == (3, 3)
    assert (found.numbers.rare, found.numbers.left) == (8, 8)
    assert (found.rows, found.rows_left) == (8, 8)


def test_nothing_stands_where_all_of_it_was_replaced():
    found = look([FORM.format("<PERSON>", "<ID>")] * 8)
    assert (found.names.left, found.numbers.left, found.rows_left) == (0, 0, 0)


def test_a_name_stands_whole_or_by_a_rare_word_of_it_and_not_by_a_common_one():
    after = [FORM.format("<PERSON>", "<ID>")] * 8
    after[5] = "the file of Quorn, 2,001"
    after[6] = "teodoro DE anda"
    after[7] = "Ada Beck, file 1972-02-06"
    found = look(after)
    # Quorn and the whole of Teodoro de Anda stand; of Ada Fox only Ada does, whom six records hold.
    assert (found.names.left, found.numbers.left, found.rows_left) == (2, 0, 2)


def test_a_number_in_other_marks_is_found_by_a_rare_part_of_four_digits():
    after = ["nothing"] * 8
    after[5] = "id X-2001-b"
    assert (look(after).numbers.left, look(after).rows_left) == (1, 1)


def test_a_code_letter_by_letter_is_looked_for_whole():
    before = [Record.of_text(f"the code {'; '.join(f'{731 * at % 10000:04d}')}") for at in range(1, 61)]
    # Every digit is common; the codes are not, and stand as they were, in other marks, or as one number.
    after = [before[0], Record.of_text("1 - 4, 6 2 it is"), Record.of_text("so 2193"), *[Record.of_text("1; 2")] * 57]
    found = look_in_background(before, after, range(60))
    assert (found.numbers.rare, found.numbers.left, found.rows_left) == (60, 3, 3)
    # What five records hold is common.
    many = [Record.of_text(f"{name}er: 4; 7; 1; 9") for name in "abcde"]
    assert look_in_background(many, many, range(5)).numbers.rare == 0


def test_only_the_rows_asked_for_are_looked_at_and_another_row_s_name_is_not_this_one_s():
    after = [*BEFORE[:5], BEFORE[6], BEFORE[5], BEFORE[7]]
    found = look(after, [5, 6])
    assert (found.rows, found.names.rare, found.names.left, found.numbers.left) == (2, 2, 0, 0)


def test_what_is_common_depends_on_how_many_records_make_it_so():
    # With 6, the name of five records is rare too: once in each of their rows.
    assert look(BEFORE, common=6).names.rare == 8
    # Copies of a record count as one: five copies make nothing common.
    copies = [Record.of_text("file of Zelda Quorn, 2001")] * 5 + [Record.of_text("none")]
    found = look_in_background(copies, copies, range(6))
    assert (found.names.rare, found.names.left) == (5, 5)


def test_it_takes_less_than_a_second_for_a_thousand_rows():
    records = clinical_records(1000)
    begun = time.process_time()
    found = look_in_background(records, records, range(1000))
    # Measured: 0.4 s of processor time; twice that would still do.
    assert time.process_time() - begun < 1
    assert found.rows_left == 1000
