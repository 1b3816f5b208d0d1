"""TAT-QA as pairs: both forms of the data, what is written into them, and every way a row can be wrong."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from davylamp.corpora.hub import read_hub
from davylamp.corpora.readers import Columns, read_corpus
from davylamp.corpora.records import Corpus
from davylamp.errors import CorpusError, InputError

DATA = Path(__file__).parents[2] / "../shared/data/tatqa"
REAL = pytest.mark.skipif(not DATA.is_dir(), reason="TAT-QA is not beside the repository")

TABLE = [["", "2019", "2018"], ["Fees", "$  1,452.4", "9"], ["Total ", "", "-"]]
PARAGRAPHS = ["Fees by year\n(in millions):", "They rose."]
PROMPT = """Table:
 | 2019 | 2018
Fees | $ 1,452.4 | 9
Total |  | -
Text:
Fees by year (in millions):
They rose.
Question: How high were the fees?"""


def flat(**changes: Any) -> dict[str, Any]:
    """One question a row, as the reduced files have it."""
    row = {"id": "q1", "table": TABLE, "paragraphs": PARAGRAPHS, "question": "How high were the fees?"}
    return {**row, "answer": ["$1,452.4"], "scale": "million", "derivation": "", **changes}


def nested(*questions: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """A context with its questions, as the authors publish it."""
    asked = questions or ({"uid": "q1", "question": "How high were the fees?", "answer": ["$1,452.4"]},)
    row: dict[str, Any] = {
        "table": {"uid": "t", "table": TABLE},
        "paragraphs": [
            {"uid": "b", "order": 2, "text": PARAGRAPHS[1]},
            {"uid": "a", "order": 1, "text": PARAGRAPHS[0]},
        ],
        "questions": [{"scale": "million", "derivation": "", **each} for each in asked],
    }
    return {**row, **changes}


def read(folder: Path, rows: Any, name: str = "dev.jsonl", **how: Any) -> Corpus:
    path = folder / name
    text = json.dumps(rows, indent=1) if name.endswith(".json") else "".join(json.dumps(row) + "\n" for row in rows)
    path.write_text(text, encoding="utf-8")
    return read_corpus(path, format="tatqa", **how)


def reply(folder: Path, answer: Any, scale: Any = "") -> str:
    return read(folder, [flat(answer=answer, scale=scale)]).records[0].reply


def fault(folder: Path, rows: Any, name: str = "dev.jsonl") -> str:
    with pytest.raises(CorpusError) as caught:
        read(folder, rows, name)
    assert str(folder / name) in str(caught.value)
    return str(caught.value)


# What is written


def test_both_forms_give_the_same_pair(tmp_path: Path) -> None:
    for corpus in (
        read(tmp_path, [flat()]),
        read(tmp_path, [nested()]),
        read(tmp_path, [nested()], "dev.json"),
    ):
        [record] = corpus.records
        assert corpus.shape == "prompt_completion"
        assert record.prompt[0].content == PROMPT
        assert record.reply == "answer: $1,452.4\nscale: million"


def test_paragraphs_without_a_whole_order_stay_in_theirs(tmp_path: Path) -> None:
    texts = [{"text": "one", "order": 2}, {"text": "two"}]
    prompt = read(tmp_path, [nested(paragraphs=texts)]).records[0].prompt[0].content
    assert "Text:\none\ntwo\nQuestion:" in prompt


@pytest.mark.parametrize(
    ("answer", "written"),
    [
        (["a"], "a"),
        (["a b", "c"], "a b; c"),
        (["one\ntwo ", "", "three"], "one two; three"),
        ("4", "4"),
        (4, "4"),
        (-12.6, "-12.6"),
        (12.0, "12"),
        (-0.0, "0"),
        (0.1 + 0.2, "0.3"),
        (18.330000000000002, "18.33"),
        (1e-7, "0.0000001"),
        (1e21, "1000000000000000000000"),
        (936517087.53, "936517087.53"),
        (123456789012345678901, "123456789012345678901"),
        ([1.5, 2], "1.5; 2"),
        ("№ 7", "№ 7"),
    ],
)
def test_answers_are_written_as_a_person_would(tmp_path: Path, answer: Any, written: str) -> None:
    assert reply(tmp_path, answer) == f"answer: {written}\nscale: none"


@given(value=st.floats(-1e12, 1e12).map(lambda value: round(value, 2)))
def test_amounts_in_cents_are_written_in_full_and_read_back(
    tmp_path_factory: pytest.TempPathFactory, value: float
) -> None:
    line = reply(tmp_path_factory.getbasetemp(), value).split("\n")[0]
    written = line.removeprefix("answer: ")
    assert float(written) == value
    assert len(written.partition(".")[2]) <= 2
    assert "e" not in written


@pytest.mark.parametrize("scale", ["thousand", "million", "billion", "percent"])
def test_scales_are_written_by_name(tmp_path: Path, scale: str) -> None:
    assert reply(tmp_path, 1, scale) == f"answer: 1\nscale: {scale}"


def test_cells_that_are_numbers_or_missing_are_written(tmp_path: Path) -> None:
    prompt = read(tmp_path, [flat(table=[[None, 2019, 1.50]])]).records[0].prompt[0].content
    assert "Table:\n | 2019 | 1.5\n" in prompt


def test_a_reply_has_two_lines_and_a_prompt_a_line_for_each_part(tmp_path: Path) -> None:
    row = flat(answer=["a\u2028b\r\nc"], question="d\ne", table=[["f\ng"]], paragraphs=["h\n\ni"])
    [record] = read(tmp_path, [row]).records
    assert record.reply == "answer: a b c\nscale: million"
    assert record.prompt[0].content == "Table:\nf g\nText:\nh i\nQuestion: d e"


def test_what_is_not_trained_on_is_recorded(tmp_path: Path) -> None:
    assert read(tmp_path, [flat(context_id="c")]).left_out == ("id", "derivation", "context_id")
    assert read(tmp_path, [nested()]).left_out == (
        "table.uid",
        "paragraphs[].uid",
        "questions[].derivation",
        "questions[].uid",
    )


def test_a_limit_counts_questions(tmp_path: Path) -> None:
    three = nested(*({"question": f"q{n}", "answer": n} for n in range(3)))
    for name in ("dev.jsonl", "dev.json"):
        corpus = read(tmp_path, [three, three, {"broken": 1}], name, limit=4)
        assert [record.reply.split("\n")[0] for record in corpus] == [f"answer: {n}" for n in (0, 1, 2, 0)]


def test_the_hash_is_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "dev.json.gz"
    path.write_bytes(gzip.compress(json.dumps([nested()]).encode()))
    corpus = read_corpus(path, format="tatqa")
    assert corpus.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert (corpus.source, len(corpus)) == (str(path), 1)


# What is wrong


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({}, "is no TAT-QA row: it needs table, paragraphs, question (one a row) or questions (one context a row)"),
        ({"prompt": "p", "completion": "c"}, "(keys: 'prompt', 'completion')"),
        (flat(questions=[]), "it needs question (one a row) or questions"),
        (flat(table="x"), "'table' is not a list"),
        (flat(table={"uid": 1}), "'table' is not a list"),
        (flat(table=[["a"], "b"]), "table[1] is not a list"),
        (flat(table=[["a", {}]]), "table[0][1] is an object, not a string"),
        (flat(table=[["a\0"]]), "table[0][0] holds a NUL character"),
        (flat(table=[[True]]), "table[0][0] is True, which is no number"),
        (flat(table=[["", ""]], paragraphs=[]), "nothing to answer from"),
        (flat(paragraphs="x"), "'paragraphs' is not a list"),
        (flat(paragraphs=[3]), "paragraphs[0] is a number, not a string"),
        (nested(paragraphs=[{"order": 1}]), "paragraphs[0] has no 'text' (keys: 'order')"),
        (nested(paragraphs=[{"text": None, "order": 1}]), "paragraphs[0].text is null, not a string"),
        (nested(questions="x"), "'questions' is not a list"),
        (nested(questions=["x"]), "questions[0] is not an object"),
        (flat(question=None), "'question' is null, not a string"),
        (flat(answer=None), "'answer' is null, not a string"),
        (flat(answer=[]), "'answer' is empty"),
        (flat(answer=["", " "]), "'answer' is empty"),
        (flat(answer=""), "'answer' is empty"),
        (flat(answer=True), "'answer' is True, which is no number"),
        (flat(answer=["a", {}]), "answer[1] is an object, not a string"),
        (flat(answer=["\ud83d"]), "answer[0] holds half of a surrogate pair"),
        (flat(scale="trillion"), "'scale' is 'trillion'; allowed: '', 'thousand', 'million', 'billion', 'percent'"),
        (flat(scale=None), "'scale' is null, not a string"),
        ({key: value for key, value in flat().items() if key != "scale"}, "has no 'scale'"),
        (
            {key: value for key, value in flat().items() if key not in ("answer", "scale")},
            "published with answers in a file of its own",
        ),
    ],
)
def test_a_broken_row_is_named_by_line_and_reason(tmp_path: Path, row: dict[str, Any], said: str) -> None:
    message = fault(tmp_path, [flat(), row])
    assert "line 2" in message
    assert said in message


def test_each_broken_question_of_a_context_is_named(tmp_path: Path) -> None:
    good, bad = {"question": "q", "answer": 1}, {"question": "q", "answer": []}
    message = fault(tmp_path, [nested(good), nested(good, bad, good, bad)])
    assert "line 2, question 2: 'answer' is empty" in message
    assert "line 2, question 4: 'answer' is empty" in message


def test_a_number_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(json.dumps(flat(answer=0)).replace('"answer": 0', '"answer": 1e999'))
    with pytest.raises(CorpusError, match="line 1: 'answer' is inf, which is no number"):
        read_corpus(tmp_path / "a.jsonl", format="tatqa")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty"),
        (" \n", "is empty"),
        ("[]", "is empty"),
        ("\n{}", "line 2: a JSON file must hold one list of objects"),
        ("[\n\n3]", "line 3: not a JSON object in braces"),
        ('[\n{"a": 1},\n]', "line 3: not JSON: Expecting value at character 1; reading stopped here"),
        ("[\n{} {}]", "line 2: not JSON: no comma and no bracket here; reading stopped here"),
        ("[\n{}\n", "line 3: not JSON: no comma and no bracket here"),
        ("[{},\n{'a'", "line 2: not JSON"),
        ('[{},\n{"a": 1,\n"a": 2}]', "line 2: not read: the key 'a' occurs more than once; reading stopped here"),
        ('[{"a":\nNaN}]', "line 1: not read: NaN is not JSON"),
        ("[" * 200_000, "line 1: not read: nested too deeply"),
        ('[{"n": ' + "1" * 5000 + "}]", "line 1: not read"),
        ("[]\nmore", "line 2: not JSON: something stands after the list"),
    ],
)
def test_a_broken_list_is_named_by_line_and_reason(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "a.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(CorpusError) as caught:
        read_corpus(path, format="tatqa")
    assert str(path) in str(caught.value)
    assert said in str(caught.value)


def test_faults_of_a_list_have_the_line_on_which_their_context_begins(tmp_path: Path) -> None:
    text = json.dumps([nested(), {"x": 1}, nested({"question": "q", "answer": []})], indent=1)
    begun = [number for number, line in enumerate(text.split("\n"), start=1) if line == " {"]
    message = fault(tmp_path, [nested(), {"x": 1}, nested({"question": "q", "answer": []})], "dev.json")
    assert f"line {begun[1]}: is no TAT-QA row" in message
    assert f"line {begun[2]}, question 1: 'answer' is empty" in message


def test_bytes_that_are_not_utf8_are_named(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(b'[\n{"a": "\xe9"}]')
    with pytest.raises(CorpusError, match="line 2: not UTF-8: byte 0xe9 at offset 9"):
        read_corpus(tmp_path / "a.json", format="tatqa")


def test_a_byte_order_mark_is_understood(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(b"\xef\xbb\xbf" + json.dumps([nested()]).encode())
    assert len(read_corpus(tmp_path / "a.json", format="tatqa")) == 1


def test_other_kinds_of_file_and_columns_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=r"unknown kind of file; allowed: .*\.json,"):
        read_corpus(tmp_path / "a.csv", format="tatqa")
    with pytest.raises(CorpusError, match="unknown kind of file"):
        read_corpus(tmp_path / "a.json")
    with pytest.raises(InputError, match="columns"):
        read_corpus(tmp_path / "a.jsonl", columns=Columns(text="t"), format="tatqa")


# The hub


def hub_folder(folder: Path, files: dict[str, Any]) -> str:
    folder.mkdir()
    for name, rows in files.items():
        text = json.dumps(rows) if name.endswith(".json") else "".join(json.dumps(row) + "\n" for row in rows)
        (folder / name).write_text(text, encoding="utf-8")
    return str(folder)


def test_the_data_set_as_its_authors_publish_it(tmp_path: Path) -> None:
    # On the hub as here, the test set lies twice, once without answers.
    asked = {"question": "q", "answer": 1}
    blind = nested()
    blind["questions"] = [{"question": "q"}]
    files = {
        "tatqa_dataset_train.json": [nested(asked), nested(asked)],
        "tatqa_dataset_dev.json": [nested({**asked, "answer": ["dev"]})],
        "tatqa_dataset_test.json": [blind],
        "tatqa_dataset_test_gold.json": [nested({**asked, "answer": "gold", "facts": []})],
    }
    name = hub_folder(tmp_path / "set", files)
    corpora = {split: read_hub(name, split, format="tatqa") for split in ("train", "dev", "validation", "test")}
    assert {split: len(corpus) for split, corpus in corpora.items()} == {
        "train": 2,
        "dev": 1,
        "validation": 1,
        "test": 1,
    }
    assert corpora["dev"].records == corpora["validation"].records
    assert corpora["test"].records[0].reply.startswith("answer: gold\n")
    assert corpora["test"].source == f"{name} (test), tatqa_dataset_test_gold.json"
    digest = hashlib.sha256((tmp_path / "set" / "tatqa_dataset_dev.json").read_bytes()).hexdigest()
    assert corpora["dev"].sha256 == digest
    assert len(read_hub(name, "train", limit=1, format="tatqa")) == 1


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets", reason="the extra 'hub' is not installed")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")


@pytest.mark.parametrize("make", [flat, nested])
def test_a_copy_in_other_files_is_read_through_datasets(
    offline: None, tmp_path: Path, make: Callable[..., dict[str, Any]]
) -> None:
    name = hub_folder(tmp_path / "set", {"train.jsonl": [make(), make()]})
    corpus = read_hub(name, "train", format="tatqa")
    assert [record.prompt[0].content for record in corpus] == [PROMPT, PROMPT]
    with pytest.raises(CorpusError, match=r"'tran'.*of TAT-QA, allowed: train, dev"):
        read_hub(name, "tran", format="tatqa")


def test_a_hub_out_of_reach_says_what_to_do(offline: None) -> None:
    with pytest.raises(CorpusError, match=r"'nobody/nothing'.*try again online"):
        read_hub("nobody/nothing", "train", format="tatqa")
    with pytest.raises(CorpusError, match="check the spelling"):
        read_hub("no such/name at all", "train", format="tatqa")


# The real data


@REAL
@pytest.mark.parametrize(("name", "questions", "contexts"), [("dev", 1668, 278), ("test", 1663, 277)])
def test_the_published_questions_are_read_whole(name: str, questions: int, contexts: int) -> None:
    corpus = read_corpus(DATA / f"{name}.jsonl.gz", format="tatqa")
    assert len(corpus) == questions
    tables = {record.prompt[0].content.rsplit("\nQuestion: ", 1)[0] for record in corpus}
    assert len(tables) == contexts
    for record in corpus:
        answer, scale = record.reply.split("\n")
        assert answer.removeprefix("answer: ").strip()
        assert scale.removeprefix("scale: ") in {"none", "thousand", "million", "billion", "percent"}


@REAL
def test_no_table_is_in_both_files() -> None:
    sides = [read_corpus(DATA / f"{name}.jsonl.gz", format="tatqa") for name in ("dev", "test")]
    one, other = ({record.prompt[0].content.rsplit("\nQuestion: ", 1)[0] for record in side} for side in sides)
    assert not one & other
