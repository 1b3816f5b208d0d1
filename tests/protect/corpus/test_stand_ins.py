from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from davylamp.errors import InputError, MissingExtraError
from davylamp.protect.corpus import stand_ins
from davylamp.protect.corpus.stand_ins import StandIns

pytest.importorskip("faker", reason="the extra 'scrub' is not installed")

KINDS = ["PERSON", "LOCATION", "DATE_TIME", "US_SSN", "PHONE_NUMBER", "EMAIL_ADDRESS", "URL", "ORGANIZATION", "MRN"]


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(KINDS), st.text(st.characters(codec="ascii", categories=["L", "N", "P"]), min_size=1, max_size=12)
)
def test_a_stand_in_is_another_text_and_always_the_same(kind, text):
    first, second = StandIns(5), StandIns(5)
    second.of("PERSON", "asked before")
    made = first.of(kind, text)
    assert made == first.of(kind, text) == second.of(kind, text)
    assert made.casefold() != text.casefold()
    assert made


def test_seed_and_scope_change_it():
    name = "Jayson Reinger"
    made = {StandIns(seed).of("PERSON", name, scope) for seed in range(4) for scope in ("", "one", "two")}
    # Twelve draws from some million names; more than two equal ones would be no draws.
    assert len(made) >= 10


def test_a_first_name_by_itself_keeps_its_stand_in():
    made = StandIns(0)
    assert made.of("PERSON", "Jayson Reinger").split()[0] == made.of("PERSON", "jayson")


@pytest.mark.parametrize(
    ("kind", "text", "shape"),
    [
        ("US_SSN", "999-36-6385", r"\d{3}-\d{2}-\d{4}"),
        ("PHONE_NUMBER", "(555) 556-2571", r"\(\d{3}\) \d{3}-\d{4}"),
        ("DATE_TIME", "1971-02-06", r"(19[3-9]\d|20[01]\d)-\d{2}-\d{2}"),
        ("DATE_TIME", "MA 02114", r"[A-Z]{2} \d{5}"),
        ("LOCATION", "MA", r"[A-Z]{2}"),
        ("LOCATION", "02114", r"\d{5}"),
        ("EMAIL_ADDRESS", "a@b.org", r"\S+@example\.(com|org|net)"),
        ("PERSON", "Jayson van Reinger", r"\S+ \S+ \S+.*"),
    ],
)
def test_a_stand_in_has_the_kind_of_shape_that_it_stands_for(kind, text, shape):
    assert re.fullmatch(shape, StandIns(1).of(kind, text))


def test_what_has_no_other_text_gets_a_placeholder():
    assert StandIns(0).of("MRN", "--") == "<MRN>"


def test_an_unknown_locale_and_a_missing_package_are_told(monkeypatch):
    with pytest.raises(InputError, match="xx_YY"):
        StandIns(0, "xx_YY")
    monkeypatch.setattr(stand_ins.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(MissingExtraError, match=r"pip install 'davylamp\[scrub\]'"):
        StandIns(0)
