"""Scrubbing's own rules, with a finder that says what a test wants; presidio and spaCy are tested beside it."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from davylamp.corpora.records import Message, Record
from davylamp.errors import RecipeError
from davylamp.protect.corpus.base import Row
from davylamp.protect.corpus.finding import Found, disjoint
from davylamp.protect.corpus.registry import kind_of, spec_of
from davylamp.protect.corpus.scrub import Scrub, ScrubSpec, documents
from davylamp.runs.progress import QUIET

FOUND = st.builds(
    lambda start, length, kind, score: Found(start, start + length, kind, score),
    st.integers(0, 30),
    st.integers(1, 12),
    st.sampled_from(["PERSON", "LOCATION", "DATE_TIME"]),
    st.sampled_from([0.4, 0.5, 0.85]),
)


class Words:
    """Finds given words, and counts the documents that it is asked for."""

    version = "words 1"

    def __init__(self, **kinds: str) -> None:
        self._kinds = kinds
        self.asked: list[str] = []

    def find(self, documents: Sequence[str]) -> list[list[Found]]:
        self.asked += documents
        return [
            [
                Found(match.start(), match.end(), kind, 0.85)
                for kind, word in self._kinds.items()
                for match in re.finditer(word, text)
            ]
            for text in documents
        ]


def scrubbed(records, finder, draws=None, **settings):
    rows = [Row(at, record, 0 if draws is None else draws[at], 0) for at, record in enumerate(records)]
    return list(Scrub(ScrubSpec(**settings), 3, finder).apply(rows, QUIET))


@given(st.lists(FOUND, max_size=8))
def test_disjoint_covers_what_was_found_and_nothing_twice(found):
    made = disjoint(found)
    covered = [at for each in made for at in range(each.start, each.end)]
    assert len(covered) == len(set(covered))
    assert set(covered) == {at for each in found for at in range(each.start, each.end)}
    assert made == sorted(made, key=lambda each: each.start)
    for at in covered:
        # Each character goes to the surest of those that found it.
        [own] = [each for each in made if each.start <= at < each.end]
        assert own.score == max(each.score for each in found if each.start <= at < each.end)


def test_placeholders_and_spans_by_hand():
    [made] = scrubbed([Record.of_text("Ada of Rome took zanoprine.")], Words(PERSON="Ada", LOCATION="Rome"))
    assert made.record.reply == "<PERSON> of <LOCATION> took zanoprine."
    assert [(each.start, each.end, each.kind, each.replacement) for each in made.spans] == [
        (0, 3, "PERSON", "<PERSON>"),
        (7, 11, "LOCATION", "<LOCATION>"),
    ]
    assert (made.position, made.note) == (0, "ok")


def test_what_is_less_sure_than_the_threshold_is_left():
    finder = Words(PERSON="Ada")
    [left] = scrubbed([Record.of_text("Ada")], finder, threshold=0.9)
    assert left.record.reply == "Ada"
    [gone] = scrubbed([Record.of_text("Ada")], finder, threshold=0.85)
    assert gone.record.reply == "<PERSON>"


def test_a_prompt_and_its_completion_are_read_as_one_text():
    record = Record.of_pair("Seen: Ada ", "Lovelace, well.")
    assert [text for text, _ in documents(record)] == ["Seen: Ada Lovelace, well."]
    [made] = scrubbed([record], Words(PERSON="Ada Lovelace"))
    assert (made.record.prompt[0].content, made.record.reply) == ("Seen: <PERSON>", "<PERSON>, well.")
    # Where no white space parts them a line end is put between, which no span of either text counts.
    record = Record.of_pair("write Ada", "Dear Ada")
    assert [text for text, _ in documents(record)] == ["write Ada\nDear Ada"]
    [made] = scrubbed([record], Words(PERSON="Ada"))
    assert (made.record.prompt[0].content, made.record.reply) == ("write <PERSON>", "Dear <PERSON>")


def test_each_turn_of_a_chat_is_scrubbed_the_system_too():
    turns = (Message("system", "Ada rules"), Message("user", "Ada?"), Message("assistant", "Ada!"))
    [made] = scrubbed([Record.of_messages(turns)], Words(PERSON="Ada"))
    assert [turn.content for turn in made.record.prompt] == ["<PERSON> rules", "<PERSON>?"]
    assert made.record.reply == "<PERSON>!"


def test_equal_texts_are_read_once():
    finder = Words(PERSON="Ada")
    made = scrubbed([Record.of_text("Ada")] * 64, finder, draws=list(range(64)))
    assert finder.asked == ["Ada"]
    assert [each.position for each in made] == list(range(64))


@pytest.mark.parametrize(
    "settings",
    [
        {"threshold": 2},
        {"entities": []},
        {"engine": "hub"},
        {"model": "x"},
        {"patterns": [{"name": "mrn", "regex": "x"}]},
        {"patterns": [{"name": "MRN", "regex": "("}]},
        {"patterns": [{"name": "MRN", "regex": "x*"}]},
        {"engine": "hub", "model": "x", "patterns": [{"name": "MRN", "regex": "x"}]},
        {"colour": 1},
    ],
)
def test_settings_that_do_not_fit_are_refused(settings):
    with pytest.raises(RecipeError, match="protect"):
        spec_of({"name": "scrub", **settings})


def test_the_registry_knows_it():
    assert kind_of("scrub").spec is ScrubSpec
    assert spec_of({"name": "scrub", "replace": "surrogate"}) == ScrubSpec(replace="surrogate")


def test_surrogates_are_the_same_in_the_file_or_in_one_copy_of_a_record():
    pytest.importorskip("faker", reason="the extra 'scrub' is not installed")
    records = [Record.of_text(text) for text in ("Ada and Ada", "Ada alone", "Ada and Ada")]
    finder = Words(PERSON="Ada")
    file = [each.record.reply for each in scrubbed(records, finder, [0, 0, 1], replace="surrogate")]
    name = file[0].split()[0]
    assert name != "Ada"
    assert file == [f"{name} and {name}", f"{name} alone", f"{name} and {name}"]
    made = scrubbed(records, finder, [0, 0, 1], replace="surrogate", consistent="record")
    own = [each.record.reply.split()[0] for each in made]
    assert all(
        each.record.reply.split()[::2] == [first] * 2
        for each, first in zip(made, own, strict=True)
        if "and" in each.record.reply
    )
    assert len(set(own)) > 1
    again = scrubbed(records[::-1], finder, [1, 0, 0], replace="surrogate", consistent="record")
    assert [each.record.reply for each in again][::-1] == [each.record.reply for each in made]
