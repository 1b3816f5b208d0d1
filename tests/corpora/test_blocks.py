"""Plain text cut into blocks of tokens; the tokenizer of these tests takes each word for a token."""

from __future__ import annotations

import gzip
import re

import pytest

from davylamp.corpora.blocks import is_text, read_blocks
from davylamp.errors import CorpusError


def words(text):
    return [match.span() for match in re.finditer(r"\S+", text)]


def test_blocks_hold_as_many_tokens_and_the_rest_is_left_out(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("one two  three\nfour five six seven", encoding="utf-8")
    corpus = read_blocks(path, words, 3)
    # Seven words are two blocks of three, each with the space inside it as it was; the seventh word is left out.
    assert [record.reply for record in corpus] == ["one two  three", "four five six"]
    assert corpus.shape == "text"
    assert "blocks of 3 tokens" in corpus.source
    assert [record.reply for record in read_blocks(path, words, 3, limit=1)] == ["one two  three"]


def test_a_folder_is_read_by_name_and_no_block_spans_two_files(tmp_path):
    (tmp_path / "b.txt").write_text("three four five", encoding="utf-8")
    with gzip.open(tmp_path / "a.txt.gz", "wt", encoding="utf-8") as file:
        file.write("one two")
    (tmp_path / "notes.md").write_text("not read", encoding="utf-8")
    corpus = read_blocks(tmp_path, words, 2)
    assert [record.reply for record in corpus] == ["one two", "three four"]
    whole = tmp_path / "whole.txt"
    whole.write_text("one two", encoding="utf-8")
    # The hash is of what the files hold, packed or not.
    assert read_blocks(whole, words, 2).sha256 == read_blocks(tmp_path / "a.txt.gz", words, 2).sha256


def test_blocks_of_white_space_are_no_rows(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("ab    cd", encoding="utf-8")
    pairs = read_blocks(path, lambda text: [(at, at + 1) for at in range(len(text))], 2)
    assert [record.reply for record in pairs] == ["ab", "cd"]


@pytest.mark.parametrize(
    ("name", "data", "why"),
    [
        ("a.txt", b"", "less than one block of 2 tokens"),
        ("a.txt", b"word", "less than one block"),
        ("a.txt", b"ab \xff cd", "not UTF-8: byte 3 is 0xff"),
        ("a.txt.gz", b"not packed", "not a whole gzip file"),
        ("a.csv", b"a,b", "not a file of plain text"),
    ],
)
def test_what_cannot_be_cut_is_named(tmp_path, name, data, why):
    path = tmp_path / name
    path.write_bytes(data)
    with pytest.raises(CorpusError, match=why):
        read_blocks(path, words, 2)


def test_a_missing_file_and_an_empty_folder_are_named(tmp_path):
    with pytest.raises(CorpusError, match="cannot read"):
        read_blocks(tmp_path / "none.txt", words, 2)
    with pytest.raises(CorpusError, match="holds no file"):
        read_blocks(tmp_path, words, 2)


def test_text_is_told_from_rows_by_its_name(tmp_path):
    assert is_text(tmp_path)
    assert is_text(tmp_path / "valid.txt.gz")
    assert not is_text(tmp_path / "rows.jsonl")
