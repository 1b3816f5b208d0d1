"""Letters in disguise, and codes of which every letter stands by itself."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from davylamp.protect.corpus.letters import GAP, is_single, spelled
from davylamp.protect.corpus.segments import parts_of, tokens_of
from support.spelled_codes import DISGUISES, PARTED


@pytest.mark.parametrize("form", PARTED)
@given(code=st.text(alphabet="0123456789abcdefghABCDEFGH", min_size=3, max_size=12))
def test_a_code_is_one_however_its_letters_are_parted(form, code):
    text = f"the code {PARTED[form](code)} is yours"
    (found,) = spelled(text)
    assert "".join(found.letters) == code
    assert (text[found.start], text[found.end - 1]) == (code[0], code[-1])


@given(
    st.lists(st.text(alphabet="\"',;:|/[](){}*#~=+-_.!?\\", min_size=1, max_size=GAP), min_size=2, max_size=6),
    st.data(),
)
def test_any_run_of_signs_that_is_not_long_joins_letters(gaps, data):
    code = data.draw(st.text(alphabet="0123456789xyz", min_size=len(gaps) + 1, max_size=len(gaps) + 1))
    text = code[0] + "".join(gap + letter for gap, letter in zip(gaps, code[1:], strict=True))
    assert [(each.start, each.end, "".join(each.letters)) for each in spelled(text)] == [(0, len(text), code)]


def test_more_signs_a_word_or_fewer_than_three_letters_make_no_code():
    dots = "." * GAP
    assert spelled(f"4{dots}7{dots}1")
    for text in (f"4{dots}.7{dots}.1", "4, 7", "4 of 7 of 1", "44, 77, 11", "4, 7, <PERSON>, 1, 9"):
        assert not spelled(text)


def test_letters_in_pointed_brackets_are_no_tags():
    assert ["".join(each.letters) for each in spelled("<b><o><b> <4><7>")] == ["bob47"]


@given(st.text(alphabet='aB1 ,;<>/p="\n\N{COMBINING ACUTE ACCENT}_', max_size=60))
def test_whatever_three_signs_or_fewer_part_is_a_code(text):
    """The rule without tags, as one pattern of a few signs: each of its codes lies in one that is found."""
    letter = r"[^\W_]\u0301*"
    plain = re.compile(rf"(?<![^\W_]){letter}(?:[^\w<>/\u0301]{{1,3}}{letter}){{2,}}(?![^\W_])")
    found = spelled(text)
    for code in plain.finditer(text):
        # What stands in a tag (<td a="1 2 3">) is no code.
        inside = re.search(r"<[^<>]*$", text[: code.start()])
        assert inside or any(each.start <= code.start() and code.end() <= each.end for each in found)


@pytest.mark.parametrize("alphabet", DISGUISES)
def test_letters_in_disguise_are_letters(alphabet):
    word = "".join(DISGUISES[alphabet])
    assert [each.text for each in tokens_of(f"for {word} here")] == ["for", word, "here"]
    assert parts_of(word) == (word,)
    assert all(is_single(letter) for letter in word)
    assert "".join(spelled("; ".join(word))[0].letters) == word


@pytest.mark.parametrize(
    "unit",
    [
        "1; ",
        '"1", ',
        "<td>4</td>",
        "<p>4</p>",
        "<td a=",
        "<a>",
        "4 <",
        "<",
        " ",
        "a",
        "a\N{COMBINING ACUTE ACCENT}",
        "ⓐ",
    ],
)
def test_long_rows_take_time_in_proportion(unit):
    def seconds(size):
        text = (unit * size)[:size]
        begun = time.process_time()
        spelled(text)
        return time.process_time() - begun

    # Measured: at most 0.01 s for 10,000 characters; a search that went back over its steps would take minutes.
    assert seconds(10_000) < 0.5
    assert seconds(100_000) < 5
