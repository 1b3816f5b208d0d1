"""Presidio and its spaCy model themselves, where they are installed."""

from __future__ import annotations

import importlib.util
import json
import socket
from pathlib import Path

import pytest

from davylamp.corpora.records import Record
from davylamp.errors import InputError, MissingExtraError
from davylamp.protect.corpus.base import Row
from davylamp.protect.corpus.presidio import SPACY_MODEL, PresidioFinder, entity_faults
from davylamp.protect.corpus.scrub import ENTITIES, Scrub, ScrubSpec
from davylamp.runs.progress import QUIET

SHARED = Path(__file__).parents[4] / "shared/data/clinical_synthea/patients.jsonl"
INSTALLED = all(importlib.util.find_spec(name) for name in ("presidio_analyzer", SPACY_MODEL))
needs_presidio = pytest.mark.skipif(not INSTALLED, reason="the extra 'scrub' is not installed")


@pytest.fixture
def no_network(monkeypatch):
    """Any attempt to reach the network is an error."""

    def refused(*arguments, **more):
        raise AssertionError(f"the network was asked for {arguments}")

    for name in ("getaddrinfo", "create_connection", "socket"):
        monkeypatch.setattr(socket, name, refused)


@pytest.fixture(scope="module")
def presidio():
    return PresidioFinder({"en": SPACY_MODEL}, entities=ENTITIES)


def kinds(finder, text, threshold=0.35):
    [found] = finder.find([text])
    return {(each.kind, text[each.start : each.end]) for each in found if each.score >= threshold}


@needs_presidio
@pytest.mark.parametrize("number", ["999-36-6385", "000-12-3456", "666-12-3456", "111-11-1111", "078-05-1120"])
def test_numbers_that_were_never_issued_are_found_too(presidio, number):
    assert ("US_SSN", number) in kinds(presidio, f"SSN: {number}, well.")


@needs_presidio
def test_presidio_alone_refuses_some_of_them():
    finder = PresidioFinder({"en": SPACY_MODEL}, entities=["US_SSN"], any_ssn=False)
    # Should presidio come to take them, the setting would have lost its reason.
    assert kinds(finder, "SSN: 999-36-6385, well.") == {("US_SSN", "999-36-6385")}
    for number in ("000-12-3456", "666-12-3456", "111-11-1111", "078-05-1120"):
        assert not kinds(finder, f"SSN: {number}, well.")
    # What is no such number is none with the setting either.
    assert not kinds(finder, "order 5999-36-63851")


@needs_presidio
def test_mail_is_told_without_the_network(presidio, no_network):
    assert ("EMAIL_ADDRESS", "ada@example.org") in kinds(presidio, "Write to ada@example.org today.")
    assert not {kind for kind, _ in kinds(presidio, "at ada@nothing.invalidtld x")} & {"EMAIL_ADDRESS"}


@needs_presidio
def test_a_log_that_was_set_up_elsewhere_is_not_filled(caplog):
    text = "Patient Ann Lee took three tablets of 20 MG, ten of the second kind."
    finder = PresidioFinder({"en": SPACY_MODEL}, entities=["PERSON"])
    # Presidio would warn of "three", "20" and "ten", numbers being a kind that is not looked for.
    assert [found.kind for found in finder.find([text])[0]] == ["PERSON"]
    assert not caplog.records


@needs_presidio
def test_nothing_is_downloaded(no_network):
    with pytest.raises(InputError, match=r"scrub\.models\.de is 'de_core_news_sm'.*Nothing is downloaded"):
        PresidioFinder({"en": SPACY_MODEL, "de": "de_core_news_sm"}, entities=["PERSON"])


@needs_presidio
def test_unknown_entities_are_told_without_a_model_as_with_one():
    models = {"en": SPACY_MODEL}
    (told,) = entity_faults(models, ["PERSON", "PERSONS", "MRN"], ["MRN"])
    with pytest.raises(InputError) as caught:
        PresidioFinder(models, entities=["PERSON", "PERSONS", "MRN"], patterns=[("MRN", r"MRN \d", 0.9)])
    (found,) = caught.value.faults
    assert (f"scrub.{told.field}", told.value, told.allowed) == (found.field, found.value, found.allowed)
    assert list(entity_faults(models, ENTITIES, [])) == []


@needs_presidio
def test_unknown_entities_and_own_patterns():
    with pytest.raises(InputError, match=r"scrub\.entities is \['PERSONS'\].*PERSON"):
        PresidioFinder({"en": SPACY_MODEL}, entities=["PERSONS"])
    finder = PresidioFinder({"en": SPACY_MODEL}, entities=["US_SSN"], patterns=[("MRN", r"\bMRN \d{7}\b", 0.9)])
    assert kinds(finder, "MRN 1234567 and mrn 1234567") == {("MRN", "MRN 1234567")}


def test_a_missing_package_is_told(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(MissingExtraError, match=r"pip install 'davylamp\[scrub\]'"):
        PresidioFinder({"en": SPACY_MODEL}, entities=["PERSON"])


@needs_presidio
@pytest.mark.skipif(not SHARED.is_file(), reason="the shared clinical records are not here")
def test_records_lose_most_identities_and_keep_coined_medications(presidio):
    with SHARED.open(encoding="utf-8") as lines:
        patients = [json.loads(next(lines)) for _ in range(60)]
    texts = [each["text"].removesuffix(".") + "; zanoprivex." for each in patients]
    rows = [Row(at, Record.of_text(text), 0, at) for at, text in enumerate(texts)]
    made = [each.record.reply for each in Scrub(ScrubSpec(), 0, presidio).apply(rows, QUIET)]
    pairs = list(zip(patients, made, strict=True))
    # Shapes are found always; names as often as the small model does: 0.9 of all 600 records, so that fewer than 45
    # of 60 would be seen once in ten thousand times.
    assert not any(each["ssn"] in text for each, text in pairs)
    assert sum(each["dob"] in text for each, text in pairs) <= 3
    assert sum(f"{each['first_name']} {each['last_name']}" not in text for each, text in pairs) >= 45
    # A medication is no identity to any recogniser; the small model takes a few for names.
    assert sum("zanoprivex" in text for text in made) >= 45
