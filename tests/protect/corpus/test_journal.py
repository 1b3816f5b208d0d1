"""The journal of what was done before a kill: what is whole is kept, and everything else is done anew."""

from __future__ import annotations

import json
import stat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from davylamp.corpora.records import Record
from davylamp.errors import ProtectionError
from davylamp.protect.corpus.base import Protected, Row, Span
from davylamp.protect.corpus.journal import Journal, key_of, rows_of

ROWS = rows_of([Record.of_text(f"record {number} of Ann") for number in range(6)], once=False)
STEP = "a step's key"
PAIR = Row(9, Record.of_pair("ask", "reply"))

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


def made_of(row):
    return Protected(row.position, Record.of_text(row.record.reply[:-3] + "Eve"), (Span(0, 12, 15, "PERSON", "Eve"),))


def filled(path, rows=ROWS):
    with Journal(path, STEP) as journal:
        for row in rows:
            journal.keep(row, made_of(row))
    return path.read_bytes().splitlines(keepends=True)


def found_in(path):
    with Journal(path, STEP) as journal:
        return [journal.find(row) for row in ROWS]


def test_what_was_done_is_found_again_and_is_the_owners_alone(tmp_path):
    path = tmp_path / "store" / "j.jsonl"
    filled(path)
    assert found_in(path) == [made_of(row) for row in ROWS]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_lines_of_another_step_are_not_taken(tmp_path):
    path = tmp_path / "j.jsonl"
    filled(path)
    with Journal(path, "another step's key") as journal:
        assert [journal.find(row) for row in ROWS] == [None] * len(ROWS)
    assert path.read_bytes() == b""


def test_a_journal_that_was_open_to_others_is_closed_to_them(tmp_path):
    path = tmp_path / "j.jsonl"
    filled(path)
    path.chmod(0o644)
    assert found_in(path) == [made_of(row) for row in ROWS]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_line_that_a_kill_cut_short_is_done_anew_and_the_rest_stays(tmp_path):
    path = tmp_path / "j.jsonl"
    whole = b"".join(filled(path))
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        done = whole[:length].count(b"\n")
        assert found_in(path) == [*map(made_of, ROWS[:done]), *[None] * (len(ROWS) - done)]
        # What is written next must stand on a line of its own.
        filled(path, ROWS[done:])
        assert path.read_bytes() == whole


@pytest.mark.parametrize(
    "change",
    [
        lambda entry: entry | {"texts": ["a row that nobody made"]},
        lambda entry: entry | {"texts": [*entry["texts"], "one more"]},
        lambda entry: entry | {"texts": entry["texts"][0]},
        lambda entry: entry | {"texts": []},
        lambda entry: entry | {"texts": [""]},
        lambda entry: entry | {"texts": [None]},
        lambda entry: entry | {"spans": [{"part": 0}]},
        lambda entry: entry | {"spans": ["PERSON"]},
        lambda entry: entry | {"spans": None},
        lambda entry: entry | {"spans": [entry["spans"][0] | {"replacement": "Ann"}]},
        lambda entry: entry | {"key": [entry["key"]]},
        lambda entry: entry | {"key": key_of(ROWS[3])},
        lambda entry: entry | {"check": None},
        lambda entry: entry | {"more": 1},
        lambda entry: {name: entry[name] for name in ("key", "texts", "spans")},
        lambda entry: [entry],
        lambda entry: entry["key"],
    ],
)
def test_a_line_that_was_changed_never_becomes_a_row(tmp_path, change):
    path = tmp_path / "j.jsonl"
    lines = filled(path)
    lines[2] = json.dumps(change(json.loads(lines[2]))).encode() + b"\n"
    path.write_bytes(b"".join(lines))
    expected = [made_of(row) for row in ROWS]
    expected[2] = None
    assert found_in(path) == expected
    # It is taken out, so that what is done anew stands there once.
    assert len(path.read_bytes().splitlines()) == len(ROWS) - 1


@given(st.lists(JSON.map(json.dumps) | st.text(max_size=30) | st.integers(0, 5), max_size=8))
def test_whatever_stands_there_is_a_row_that_was_made_or_none(tmp_path_factory, lines):
    path = tmp_path_factory.mktemp("fuzz") / "j.jsonl"
    good = filled(path)
    path.write_bytes(
        b"".join(good[line] if isinstance(line, int) else line.encode("utf-8", "replace") + b"\n" for line in lines)
    )
    kept = {line for line in lines if isinstance(line, int)}
    assert found_in(path) == [made_of(row) if at in kept else None for at, row in enumerate(ROWS)]


@given(st.dictionaries(st.sampled_from(["key", "texts", "spans", "check"]), JSON))
def test_whatever_a_line_is_changed_to_is_no_row(tmp_path_factory, changes):
    path = tmp_path_factory.mktemp("fuzz") / "j.jsonl"
    lines = filled(path)
    entry = json.loads(lines[0])
    path.write_bytes(json.dumps(entry | changes).encode() + b"\n")
    unchanged = entry | changes == entry
    assert found_in(path)[0] == (made_of(ROWS[0]) if unchanged else None)


def test_what_is_no_row_is_refused_before_it_is_kept(tmp_path):
    with Journal(tmp_path / "j.jsonl", STEP) as journal:
        for spans in ((Span(2, 0, 1, "X"),), (Span(0, 0, 999, "X"),), (Span(0, 3, 1, "X"),)):
            with pytest.raises(ProtectionError, match="row 9: what came back has other turns, or spans outside"):
                journal.keep(PAIR, Protected(9, PAIR.record, spans))
        with pytest.raises(ProtectionError, match="row 9"):
            journal.keep(PAIR, Protected(9, Record.of_text("one text"), ()))
        assert journal.find(PAIR) is None
