"""Pieces of a record's line, told by position and shape."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from davylamp.protect.corpus.segments import pieces, shape_of

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
