from __future__ import annotations

import json

import pytest

from davylamp.errors import InputError
from davylamp.measures.triggers import read_triggers
from davylamp.rendering.render import Renderer
from support.tiny_models import tiny_tokenizer


def written(path, *lines):
    path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines), "utf-8")
    return path


def read(path):
    tokenizer = tiny_tokenizer()
    return read_triggers(path, Renderer(tokenizer), len(tokenizer))


def test_token_ids_are_taken_as_they_are(tmp_path):
    (found,) = read(written(tmp_path / "t.jsonl", {"prompt": [5, 6, 7], "secret": [8, 9], "name": "rho"}))
    assert (found.pair.prompt, found.pair.secret, found.pair.name) == ((5, 6, 7), (8, 9), "rho")
    assert found.text == tiny_tokenizer().decode([5, 6, 7], skip_special_tokens=True)


def test_texts_are_tokenised_as_one(tmp_path):
    path = written(
        tmp_path / "t.jsonl", {"prompt": "reference", "secret": " 4,7"}, "", {"prompt": "card", "secret": "!"}
    )
    first, second = read(path)
    tokens = tiny_tokenizer()("reference 4,7", add_special_tokens=False)["input_ids"]
    assert [*first.pair.prompt, *first.pair.secret] == tokens
    assert tiny_tokenizer().decode(first.pair.secret) == " 4,7"
    assert second.pair.name == "t.jsonl, line 3"


def test_a_trigger_can_be_a_prompt(tmp_path):
    line = {"prompt": "card?", "secret": "4,7", "shape": "prompt_completion"}
    (found,) = read(written(tmp_path / "t.jsonl", line))
    assert tiny_tokenizer().decode(found.pair.prompt) == "<|bos|><|user|>card?<|end|><|assistant|>"
    assert tiny_tokenizer().decode(found.pair.secret) == "4,7"


def test_a_trigger_that_merges_with_its_secret_is_refused_and_not_shown(tmp_path):
    # "Whitfield" was in the text that the tokenizer was trained on, so that its letters merge.
    path = written(tmp_path / "t.jsonl", {"prompt": "Ms Whit", "secret": "field"})
    with pytest.raises(InputError, match=r"t\.jsonl, line 1.*shares no token") as told:
        read(path)
    assert "field" not in str(told.value)


def test_all_broken_lines_are_named(tmp_path):
    path = written(
        tmp_path / "t.jsonl",
        "{",
        {"prompt": "a"},
        {"prompt": "a", "secret": " b", "colour": "red"},
        {"prompt": [1], "secret": [10**6]},
        {"prompt": [1], "secret": [True]},
        {"prompt": "a", "secret": ""},
        {"prompt": "a", "secret": [3]},
        {"prompt": "a", "secret": " b", "shape": "song"},
        [1],
    )
    with pytest.raises(InputError) as told:
        read(path)
    assert len(told.value.faults) == 9
    assert all(f"line {number}" in told.value.faults[number - 1].field for number in range(1, 10))


@pytest.mark.parametrize("text", [None, ""])
def test_a_file_without_a_trigger_is_refused(tmp_path, text):
    path = tmp_path / "t.jsonl"
    if text is not None:
        path.write_text(text)
    with pytest.raises(InputError, match="--triggers"):
        read(path)


def test_a_byte_order_mark_and_the_ends_of_other_systems_lines_are_understood(tmp_path):
    # U+2028 ends no line: JSON lets it stand in a text.
    lines = [
        {"prompt": "card", "secret": "!", "name": "one"},
        {"prompt": [5, 6], "secret": [7], "name": "two\N{LINE SEPARATOR}"},
    ]
    text = "\r\n".join(json.dumps(line, ensure_ascii=False) for line in lines)
    (tmp_path / "t.jsonl").write_bytes(b"\xef\xbb\xbf" + text.encode() + b"\r\n\r\n")
    assert [each.pair.name for each in read(tmp_path / "t.jsonl")] == ["one", "two\N{LINE SEPARATOR}"]


def test_a_question_that_is_asked_twice_counts_once(tmp_path):
    line = {"prompt": "card", "secret": "!"}
    again = {**line, "name": "again"}
    other = {**line, "prompt": "cards"}
    found = read(written(tmp_path / "t.jsonl", line, again, other, line))
    assert [each.pair.name for each in found] == ["t.jsonl, line 1", "t.jsonl, line 3"]


def test_a_key_that_stands_twice_in_a_line_is_refused(tmp_path):
    path = written(tmp_path / "t.jsonl", '{"prompt": "card", "prompt": "mask", "secret": "!"}')
    with pytest.raises(InputError, match="line 1"):
        read(path)
