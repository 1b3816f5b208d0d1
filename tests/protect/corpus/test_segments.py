"""Pieces of a record's line, told by position and shape."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from davylamp.protect.corpus.segments import Structure, pieces, shape_of, structure_in, tokens_of

LINE = (
    "Patient Ada Quorn, 52yo F. Address: 11 Elm Way, Boston, MA 02114. SSN: 999-36-6385, DOB 1971-02-06. "
    "Meds: a 2.5 MG, x; b."
)


def test_a_line_falls_into_labelled_pieces():
    found = [(each.text, each.label, each.ordinal, each.listed) for each in pieces(LINE)]
    assert found == [
        ("Patient Ada Quorn", "", 0, False),
        ("52yo F", "", 1, False),
        ("11 Elm Way", "address", 0, False),
        ("Boston", "address", 1, False),
        ("MA 02114", "address", 2, False),
        ("999-36-6385", "ssn", 0, False),
        ("DOB 1971-02-06", "ssn", 1, False),
        # A comma inside a list with semicolons belongs to its item, and so does a point between digits.
        ("a 2.5 MG, x", "meds", 0, True),
        ("b", "meds", 0, True),
    ]


def test_a_long_text_before_a_colon_is_no_label():
    assert [each.label for each in pieces("he said to all of them: go. So: they went")] == ["", "so"]


@pytest.mark.parametrize(
    ("token", "shape"),
    [
        ("Ada", "capital"),
        ("way", "lower"),
        ("52yo", "number"),
        ("999-36-6385", "number"),
        ("1971-2", "number"),
        ("1971-02-06", "date"),
        ("2/6/1971", "date"),
        ("02.06.1971", "date"),
    ],
)
def test_tokens_are_told_by_their_shape(token, shape):
    assert shape_of(token) == shape


@given(st.text(alphabet="aB1 ,;:.-\n", max_size=60))
def test_pieces_and_tokens_stand_where_they_say(text):
    at = 0
    for piece in pieces(text):
        assert text[piece.start : piece.end] == piece.text == piece.text.strip() != ""
        assert piece.start >= at
        at = piece.end
        for token in piece.tokens:
            assert text[token.start : token.end] == token.text
            assert piece.start <= token.start < token.end <= piece.end


def test_only_the_labels_of_a_structure_are_labels():
    text = "Bob Hale: my parcel: late. Order: 77, xx: yy"
    assert structure_in(text)[0] == {"bob hale", "my parcel", "order", "xx"}
    found = pieces(text, Structure(frozenset({"order"})))
    assert [(each.text, each.label, each.ordinal) for each in found] == [
        ("Bob Hale: my parcel: late", "", 0),
        ("77", "order", 0),
        ("xx: yy", "order", 1),
    ]


def test_words_before_a_label_that_follows_a_text_that_is_none_are_a_piece():
    found = pieces("Bob Hale: Order: 7", Structure(frozenset({"order"})))
    assert [(each.text, each.label) for each in found] == [("Bob Hale:", ""), ("7", "order")]


def test_known_placeholders_are_no_words_and_others_are():
    structure = Structure(placeholders=frozenset({"PERSON"}))
    tokens = tokens_of("Ann <PERSON> <EARTH_X>", structure)
    assert [(each.text, each.shape) for each in tokens] == [
        ("Ann", "capital"),
        ("<PERSON>", "placeholder"),
        ("EARTH", "capital"),
        ("X", "capital"),
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        # Combining marks, soft hyphens and joiners belong to their word.
        ("हिन्दी नाम", ["हिन्दी", "नाम"]),
        (
            "Jose\N{COMBINING ACUTE ACCENT} Vexo\N{SOFT HYPHEN}ritan",
            ["Jose\N{COMBINING ACUTE ACCENT}", "Vexo\N{SOFT HYPHEN}ritan"],
        ),
        ("bob_hale", ["bob", "hale"]),
    ],
)
def test_words_are_whole_in_any_script(text, words):
    assert [each.text for each in tokens_of(text)] == words


def test_columns_of_a_table_are_pieces():
    for text in ("aa bb\tcc\r\ndd", "aa bb | cc\ndd"):
        assert [(each.text, each.ordinal) for each in pieces(text)] == [("aa bb", 0), ("cc", 1), ("dd", 0)]


def test_a_code_whose_signs_stand_alone_is_not_cut():
    assert [each.text for each in pieces("ref 4; 7; 1; 9, thanks")] == ["ref 4; 7; 1; 9", "thanks"]
