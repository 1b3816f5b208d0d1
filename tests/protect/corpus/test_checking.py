"""Is an answer a record."""

from __future__ import annotations

import pytest

from davylamp.corpora.records import Message, Record
from davylamp.protect.corpus.base import Answer
from davylamp.protect.corpus.checking import cleaned, form_of, judged, written
from davylamp.protect.corpus.journal import rows_of
from support.clinical_rows import clinical_records

PATIENTS = clinical_records(20)
ROWS = rows_of(PATIENTS, once=False)
FORM = form_of(ROWS, 0.5, 3.0)
OTHER = PATIENTS[1].reply
TURNS = (Message("user", "hello there"), Message("assistant", "good day"))


def test_the_form_is_what_nearly_all_records_share():
    assert FORM.labels == {"address", "ssn", "active problems", "medications"}


@pytest.mark.parametrize(
    ("text", "finish", "note", "reason"),
    [
        (OTHER, "stop", "ok", ""),
        (f"Here is the rewritten record:\n\n{OTHER}", "stop", "ok", ""),
        (f"The rewritten record is:\n\n{OTHER}", "stop", "ok", ""),
        (f"Record:\n{OTHER}", "stop", "ok", ""),
        (f"```\n{OTHER}\n```", "stop", "ok", ""),
        (f"<think>who is it</think>\n{OTHER}", "stop", "ok", ""),
        (f"{OTHER}\n\nI hope that this helps!", "stop", "ok", ""),
        ("", "stop", "failed", "an empty answer"),
        ("  \n", "stop", "failed", "an empty answer"),
        (OTHER, "length", "truncated", "cut by max_tokens"),
        (f"{OTHER}\n\nUpdate: the patient", "length", "ok", ""),
        (f"{OTHER}\n\n{OTHER * 4}", "stop", "ok", ""),
        (f"Here is the record:\n\n{OTHER}", "length", "truncated", "cut by max_tokens"),
        (OTHER, "refused", "refused", "the model refused"),
        ("I'm sorry, but I can't help with medical records.", "stop", "refused", "the model refused"),
        ("I cannot rewrite this.", "stop", "refused", "the model refused"),
        ("The patient is well.", "stop", "failed", "not a record: labels of the form are missing"),
        (f"{OTHER} {OTHER} {OTHER} {OTHER}", "stop", "failed", "too long to be a record"),
        ("", "error", "failed", "the server failed (status 500)"),
    ],
)
def test_answers_are_told_apart(text, finish, note, reason):
    why = "the server failed (status 500)" if finish == "error" else ""
    made = judged(Answer(text, finish, reason=why), PATIENTS[0], FORM)
    assert made[:2] == (note, reason)
    assert made[2].reply == (OTHER if note == "ok" else PATIENTS[0].reply)


def test_a_conversation_comes_back_with_its_turns():
    record = Record.of_messages(TURNS, "a.png")
    form = form_of(rows_of([record] * 3, once=False), 0.5, 3.0)
    assert written(record) == "[user]\nhello there\n[assistant]\ngood day"
    note, _, made = judged(Answer("[user]\nhi\n[assistant]\nhello", "stop"), record, form)
    assert (note, made) == ("ok", Record.of_messages((Message("user", "hi"), Message("assistant", "hello")), "a.png"))
    for text in ("hi", "[assistant]\nhello", "well [user]\nhi\n[assistant]\nhello"):
        assert judged(Answer(text, "stop"), record, form)[1] == "not a record: its turns are missing"


def test_a_record_that_begins_like_an_announcement_is_kept():
    for text in ("Here are the facts: none.", "Record: none.", "The record of Ada is long:\n\nnone."):
        assert cleaned(text) == text
