"""The file of paid answers: what was kept is found, and what is damaged is said."""

from __future__ import annotations

import json
import sqlite3

import pytest
from hypothesis import given
from hypothesis import strategies as st

from davylamp.errors import StorageError
from davylamp.protect.corpus.answers import FILE, Answers
from davylamp.protect.corpus.base import Answer

ANSWER = Answer("a record", "length", 12, 3)


def put(folder, text):
    with sqlite3.connect(folder / FILE) as file:
        file.execute("UPDATE answers SET answer = ?", (text,))
    file.close()


def kept(folder):
    with Answers(folder) as answers:
        answers.keep("key", ANSWER)
    return folder


def test_what_was_kept_is_found(tmp_path):
    with Answers(kept(tmp_path)) as answers:
        assert answers.find("key") == ANSWER
        assert answers.find("other") is None


@pytest.mark.parametrize(
    "held",
    [
        "{",
        "5",
        "[]",
        "null",
        "{}",
        '{"text": 5, "finish": "stop"}',
        '{"text": null, "finish": "stop"}',
        '{"text": "a", "finish": "sometimes"}',
        '{"text": "a", "finish": "stop", "prompt_tokens": "many"}',
        b"\xff",
    ],
)
def test_an_answer_that_is_none_is_said_to_be_damaged(tmp_path, held):
    put(kept(tmp_path), held)
    with Answers(tmp_path) as answers, pytest.raises(StorageError, match="damaged"):
        answers.find("key")


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=9), st.lists, max_leaves=5))
def test_no_value_takes_the_place_of_a_text(tmp_path_factory, value):
    folder = kept(tmp_path_factory.mktemp("fuzz"))
    put(folder, json.dumps({"text": value, "finish": "stop"}))
    with Answers(folder) as answers:
        if isinstance(value, str):
            assert answers.find("key") == Answer(value, "stop")
        else:
            with pytest.raises(StorageError, match="damaged"):
                answers.find("key")
