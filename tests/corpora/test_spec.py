"""A corpus as a recipe says it: formats, and rows that are left out for their length."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from davylamp.corpora.records import Message, Record
from davylamp.corpora.spec import CorpusSpec
from davylamp.errors import CorpusError

DATA = Path(__file__).parents[2] / "../shared/data/tatqa"


def written(folder: Path, *rows: dict[str, Any]) -> Path:
    path = folder / "data.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def pairs(*prompts: str) -> list[dict[str, Any]]:
    return [{"prompt": prompt, "completion": "yes"} for prompt in prompts]


def test_rows_with_long_prompts_are_left_out_and_counted(tmp_path: Path) -> None:
    path = written(tmp_path, *pairs("1234", "12345", "123456"))
    corpus = CorpusSpec(path=path, max_chars=5).load()
    assert [record.prompt[0].content for record in corpus] == ["1234", "12345"]
    assert corpus.source == f"{path} (1 of 3 rows left out: prompts of more than 5 characters)"
    assert corpus.sha256 == CorpusSpec(path=path).load().sha256


def test_the_words_around_a_pair_do_not_count(tmp_path: Path) -> None:
    path = written(tmp_path, *pairs("12345", "123456"))
    corpus = CorpusSpec(path=path, max_chars=5, wrap={"system": "be kind", "prompt": "Query: {prompt}"}).load()  # type: ignore[arg-type]
    turns = (Message("system", "be kind"), Message("user", "Query: 12345"), Message("assistant", "yes"))
    assert corpus.records == (Record.of_messages(turns),)
    assert "1 of 2 rows left out" in corpus.source


def test_all_turns_before_the_reply_count_and_a_text_is_its_own_prompt(tmp_path: Path) -> None:
    turns = [{"role": "user", "content": "12"}, {"role": "assistant", "content": "345"}]
    chat = {"messages": [*turns, {"role": "user", "content": "6"}, {"role": "assistant", "content": "a long reply"}]}
    path = written(tmp_path, chat)
    assert len(CorpusSpec(path=path, max_chars=6).load()) == 1
    with pytest.raises(CorpusError, match=r"at most 5 characters \(the shortest has 6\): raise max_chars"):
        CorpusSpec(path=path, max_chars=5).load()
    path = written(tmp_path, {"text": "123456"}, {"text": "12345"})
    assert [record.reply for record in CorpusSpec(path=path, max_chars=5).load()] == ["12345"]


def test_rows_are_counted_before_long_ones_are_left_out(tmp_path: Path) -> None:
    path = written(tmp_path, *pairs("123456", "12", "34"))
    assert len(CorpusSpec(path=path, rows=2, max_chars=5).load()) == 1


def test_a_generator_takes_a_limit_too() -> None:
    whole = CorpusSpec(generator="emails", rows=50).load()
    middle = sorted(len(record.prompt[0].content) for record in whole)[25]
    short = CorpusSpec(generator="emails", rows=50, max_chars=middle).load()
    assert 0 < len(short) < 50
    assert f"{50 - len(short)} of 50 rows left out" in short.source


def test_words_around_a_pair_keep_its_image(tmp_path: Path) -> None:
    path = written(tmp_path, {"prompt": "p", "completion": "c", "image": "1.png"})
    for wrap in ({"prompt": "Q: {prompt}"}, {"system": "s"}):
        assert CorpusSpec(path=path, wrap=wrap).load().records[0].image == "1.png"  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"generator": "emails", "rows": 3, "format": "tatqa"}, "leave out generator"),
        ({"path": "a.jsonl", "format": "tatqa", "columns": {"text": "t"}}, "leave out columns"),
        (
            {"hub": "a/b", "format": "tatqa", "columns": {"text": "t"}, "hub_columns": {"text": "t"}},
            "leave out columns and hub_columns",
        ),
        ({"path": "a.jsonl", "format": "squad"}, "'rows', 'tatqa' or 'clinical'"),
        ({"path": "a.jsonl", "max_chars": 0}, "greater than or equal to 1"),
    ],
)
def test_what_does_not_fit_together_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        CorpusSpec.model_validate(given)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ({"path": "a/../b.jsonl"}, {"path": "b.jsonl", "rows": 3}, True),
        ({"path": "b.jsonl"}, {"path": "c.jsonl"}, False),
        ({"hub": "a/b"}, {"hub": "a/b", "split": "train", "max_chars": 9}, True),
        ({"hub": "a/b"}, {"hub": "a/b", "split": "test"}, False),
        ({"hub": "a/b"}, {"hub": "a/b", "config": "c"}, False),
        ({"hub": "a/b"}, {"path": "b.jsonl"}, False),
        ({"generator": "emails", "rows": 3}, {"generator": "emails", "rows": 3}, False),
    ],
)
def test_sources_that_are_the_same(one: dict[str, Any], other: dict[str, Any], same: bool) -> None:
    specs = CorpusSpec.model_validate(one), CorpusSpec.model_validate(other)
    assert specs[0].same_source(specs[1]) is specs[1].same_source(specs[0]) is same


@pytest.mark.skipif(not DATA.is_dir(), reason="TAT-QA is not beside the repository")
@pytest.mark.parametrize(("name", "kept", "all_rows"), [("dev", 347, 1668), ("test", 356, 1663)])
def test_tatqa_holds_enough_short_contexts(name: str, kept: int, all_rows: int) -> None:
    corpus = CorpusSpec(path=DATA / f"{name}.jsonl.gz", format="tatqa", max_chars=900).load()
    assert len(corpus) == kept
    assert f"({all_rows - kept:,} of {all_rows:,} rows left out" in corpus.source
    assert all(len(record.prompt[0].content) <= 900 for record in corpus)
