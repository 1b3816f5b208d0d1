"""A record before and after, with what was replaced marked."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from davylamp.protect.corpus.view import changes, marked, masked

TEXT = st.text("ab12 ,.-\n", max_size=30)


@given(TEXT, TEXT)
def test_both_texts_can_be_read_off_the_changes(before, after):
    found = changes(before, after)
    assert "".join(each.text for each in found if each.mark != "+") == before
    assert "".join(each.text for each in found if each.mark != "-") == after


def test_a_name_and_a_number_are_one_change_each():
    before, after = "Patient Ada Quorn, SSN 999-36-6385.", "Patient Bela Elm, SSN 123-45-6789."
    assert marked(before, after) == "Patient [-Ada Quorn-]{+Bela Elm+}, SSN [-999-36-6385-]{+123-45-6789+}."


def test_a_secret_is_masked_however_it_is_split():
    text = "takes Vexoritan, VEXO-RITAN and Vexo ritan; not vexor"
    assert masked(text, "Vexoritan", "***") == "takes ***, *** and ***; not vexor"
    assert masked("ref 4,7,1,9 or 4 7 1 9", "4,7,1,9", "#") == "ref # or #"
    assert masked("a -- b", "--", "#") == "a # b"
