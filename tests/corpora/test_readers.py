"""Reading corpora: every shape, every way a file can be broken, and nothing lost without a word."""

from __future__ import annotations

import csv
import gzip
import hashlib
import json
import sys
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from davylamp.corpora.hub import read_hub
from davylamp.corpora.readers import Columns, read_corpus
from davylamp.corpora.records import Corpus, Message, Record
from davylamp.errors import CorpusError, DavylampError, InputError, MissingExtraError

BANKING77 = Path(__file__).parents[2] / "../shared/data/banking77/train.csv"
PAIR = '{"prompt": "p", "completion": "c"}\n'


def written(folder: Path, text: str | bytes, name: str = "data.jsonl") -> Path:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def fault_of(folder: Path, text: str | bytes, name: str = "data.jsonl", columns: Columns | None = None) -> str:
    path = written(folder, text, name)
    with pytest.raises(CorpusError) as caught:
        read_corpus(path, columns=columns)
    assert str(path) in str(caught.value)
    return str(caught.value)


# Shapes


def test_each_shape_is_told_from_its_keys(tmp_path: Path) -> None:
    messages = [{"role": role, "content": role[0]} for role in ("system", "user", "assistant", "user", "assistant")]
    chat = read_corpus(written(tmp_path, json.dumps({"messages": messages})))
    assert chat.shape == "messages"
    assert chat.records[0].reply == "a"
    assert [turn.role for turn in chat.records[0].prompt] == ["system", "user", "assistant", "user"]
    assert read_corpus(written(tmp_path, PAIR)).records == (Record.of_pair("p", "c"),)
    assert read_corpus(written(tmp_path, '{"text": "t"}')).records == (Record.of_text("t"),)


def test_columns_name_other_keys_in_jsonl_and_csv(tmp_path: Path) -> None:
    columns = Columns(prompt="question", completion="answer")
    jsonl = read_corpus(written(tmp_path, '{"question": "q", "answer": "a", "id": 3}'), columns=columns)
    table = read_corpus(written(tmp_path, "id,answer,question\n3,a,q\n", "data.csv"), columns=columns)
    assert jsonl.records == table.records == (Record.of_pair("q", "a"),)
    assert jsonl.left_out == table.left_out == ("id",)


def test_what_is_not_trained_on_is_recorded(tmp_path: Path) -> None:
    rows = (
        '{"messages": [{"role": "assistant", "content": "a", "name": "Bo", "weight": null}], "id": 1}\n'
        '{"messages": [{"role": "assistant", "content": "b"}], "source": "x", "id": 2}\n'
    )
    assert read_corpus(written(tmp_path, rows)).left_out == ("messages[].name", "id", "source")
    # An index that was saved along has no name.
    assert read_corpus(written(tmp_path, ",text\n0,hello\n", "data.csv")).left_out == ("column 1",)


def test_the_hash_is_of_the_file_as_it_lies_on_disk(tmp_path: Path) -> None:
    for name, data in (("data.jsonl", PAIR.encode()), ("data.jsonl.gz", gzip.compress(PAIR.encode()))):
        corpus = read_corpus(written(tmp_path, data, name))
        assert corpus.sha256 == hashlib.sha256(data).hexdigest()
        assert corpus.records == (Record.of_pair("p", "c"),)


def test_a_limit_reads_the_first_rows_and_does_not_look_at_the_rest(tmp_path: Path) -> None:
    assert len(read_corpus(written(tmp_path, PAIR * 2 + "broken"), limit=2)) == 2
    assert len(read_corpus(written(tmp_path, 'text\na\nb\n"', "data.csv"), limit=2)) == 2
    assert len(read_corpus(written(tmp_path, PAIR), limit=9)) == 1
    for limit in (0, -1, True, 1.5):
        with pytest.raises(InputError, match="limit"):
            read_corpus(tmp_path / "data.jsonl", limit=limit)  # type: ignore[arg-type]


def test_the_name_of_an_image_is_kept(tmp_path: Path) -> None:
    shapes = (
        '"prompt": "p", "completion": "c"',
        '"text": "t"',
        '"messages": [{"role": "user", "content": "p"}, {"role": "assistant", "content": "c"}]',
    )
    for shape in shapes:
        corpus = read_corpus(written(tmp_path, f'{{{shape}, "image": "shots/1.png", "id": 3}}\n{{{shape}}}\n'))
        assert [record.image for record in corpus] == ["shots/1.png", None]
        assert corpus.left_out == ("id",)
        assert corpus.records[0].row()["image"] == "shots/1.png"
        assert "image" not in corpus.records[1].row()
    table = read_corpus(written(tmp_path, "text,image\na,1.png\nb,\n", "data.csv"))
    assert [record.image for record in table] == ["1.png", None]


def test_an_image_that_is_no_name_is_left_out(tmp_path: Path) -> None:
    for value in ("null", '{"bytes": "AAAA", "path": null}', '""', "7"):
        corpus = read_corpus(written(tmp_path, f'{{"text": "t", "image": {value}}}'))
        assert (corpus.records[0].image, corpus.left_out) == (None, ("image",))
    # Where the column is the user's prompt, it is no picture.
    columns = Columns(prompt="image", completion="c")
    pair = read_corpus(written(tmp_path, '{"image": "a cat", "c": "b"}'), columns=columns)
    assert pair.records == (Record.of_pair("a cat", "b"),)
    assert "'image' holds a NUL" in fault_of(tmp_path, '{"text": "t", "image": "a\\u0000b"}')


# Bytes and line ends


def test_crlf_a_byte_order_mark_and_blank_lines_are_understood(tmp_path: Path) -> None:
    plain = PAIR.strip()
    corpus = read_corpus(written(tmp_path, f"\ufeff{plain}\r\n\r\n  \r\n{plain}"))
    assert corpus.records == (Record.of_pair("p", "c"),) * 2
    table = read_corpus(written(tmp_path, "\ufefftext\r\nhello\r\n\r\nyou\r\n", "data.csv"))
    assert [record.reply for record in table] == ["hello", "you"]
    assert table.left_out == ()


def test_blank_lines_count_as_lines(tmp_path: Path) -> None:
    assert "line 3:" in fault_of(tmp_path, PAIR + "\n" + "[]\n")
    assert "line 4:" in fault_of(tmp_path, "text\n\na\n\0\n", "data.csv")


def test_unicode_line_separators_inside_a_string_do_not_end_the_line(tmp_path: Path) -> None:
    record = Record.of_text("one\u2028two\u0085three\x0cfour\x1e\rfive")
    assert read_corpus(written(tmp_path, record.line())).records == (record,)


def test_csv_fields_may_hold_commas_quotes_and_line_ends(tmp_path: Path) -> None:
    text = 'prompt,completion\r\n"a, ""b""\nc\r\nd","e\rf"\r\ng,h\r\n'
    corpus = read_corpus(written(tmp_path, text, "data.csv"))
    assert corpus.records == (Record.of_pair('a, "b"\nc\r\nd', "e\rf"), Record.of_pair("g", "h"))


def test_a_fault_after_a_quoted_line_end_has_the_line_of_the_file(tmp_path: Path) -> None:
    assert "line 5: has 1 field" in fault_of(tmp_path, 'prompt,completion\n"a\nb\nc",d\ne\n', "data.csv")


def test_a_huge_csv_field_is_read_and_the_limit_of_others_is_left_alone(tmp_path: Path) -> None:
    before = csv.field_size_limit()
    corpus = read_corpus(written(tmp_path, "text\n" + "x" * 500_000 + "\n", "data.csv"))
    assert len(corpus.records[0].reply) == 500_000
    assert csv.field_size_limit() == before


def test_not_utf8_is_named_by_line_and_byte_offset(tmp_path: Path) -> None:
    head = b"\xef\xbb\xbf" + PAIR.encode()
    data = head + b'{"text": "caf\xe9"}\n'
    assert f"line 2: not UTF-8: byte 0xe9 at offset {data.index(0xE9)} of the file" in fault_of(tmp_path, data)
    data = b"text\ngood\ncaf\xe9\n"
    assert f"line 3: not UTF-8: byte 0xe9 at offset {data.index(0xE9)}" in fault_of(tmp_path, data, "data.csv")
    assert "UTF-16" in fault_of(tmp_path, PAIR.encode("utf-16"))
    assert "gzip" in fault_of(tmp_path, gzip.compress(PAIR.encode()))


# Broken rows


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"text": "a"', "not JSON: Expecting ',' delimiter at character 13"),
        ("{'text': 'a'}", "not JSON"),
        ('["text"]', "not a JSON object"),
        ('"text"', "not a JSON object"),
        ("[" * 200_000, "not read: nested too deeply"),
        ('{"text": "a", "n": ' + "1" * 5000 + "}", "not read"),
        ('{"text": "a", "text": "b"}', "the key 'text' occurs more than once"),
        ('{"text": "a", "meta": {"k": 1, "k": 2}}', "the key 'k' occurs more than once"),
        ('{"text": "a", "score": NaN}', "NaN is not JSON"),
        ('{"text": "a", "score": -Infinity}', "-Infinity is not JSON"),
        ("{}", "has the keys none, but needs"),
        ('{"instruction": "a", "output": "b"}', "has the keys 'instruction', 'output', but needs 'messages'"),
        ('{"prompt": "a"}', "has 'prompt' but no 'completion'"),
        ('{"completion": "a"}', "has 'completion' but no 'prompt'"),
        (
            '{"prompt": "a", "completion": "b", "text": "c"}',
            "the keys 'prompt', 'completion', 'text' fit more than one shape",
        ),
        ('{"text": null}', "'text' is null, not a string"),
        ('{"text": 3}', "'text' is a number, not a string"),
        ('{"text": true}', "'text' is a boolean, not a string"),
        ('{"prompt": ["a"], "completion": "b"}', "'prompt' is a list, not a string"),
        ('{"prompt": "a", "completion": {}}', "'completion' is an object, not a string"),
        ('{"text": ""}', "'text' is empty"),
        ('{"prompt": "a", "completion": " \\n\\t"}', "'completion' is empty"),
        ('{"text": "a\\u0000b"}', "'text' holds a NUL character at character 2"),
        (
            '{"prompt": "ab\\ud83d", "completion": "c"}',
            "'prompt' holds half of a surrogate pair (\\ud83d) at character 3",
        ),
        ('{"messages": "hi"}', "'messages' is not a list"),
        ('{"messages": []}', "'messages' holds no message"),
        ('{"messages": ["hi"]}', "messages[0] is not an object"),
        (
            '{"messages": [{"from": "gpt", "value": "x"}]}',
            "messages[0] has no 'role', 'content' (keys: 'from', 'value')",
        ),
        (
            '{"messages": [{"role": "tool", "content": "x"}]}',
            "messages[0].role is 'tool'; allowed: system, user, assistant",
        ),
        ('{"messages": [{"role": "user", "content": "x"}]}', "the last message is by 'user'"),
        ('{"messages": [{"role": "assistant", "content": null}]}', "messages[0].content is null"),
        ('{"messages": [{"role": "assistant", "content": ""}]}', "messages[0].content is empty"),
    ],
)
def test_a_broken_row_is_named_by_line_and_reason(tmp_path: Path, line: str, said: str) -> None:
    message = fault_of(tmp_path, "\n" + line + "\n")
    assert f"line 2: {said}" in message


def test_surrogate_pairs_that_are_whole_are_characters(tmp_path: Path) -> None:
    assert read_corpus(written(tmp_path, '{"text": "\\ud83d\\ude00"}')).records[0].reply == "\U0001f600"


def test_mixed_shapes_name_both_lines(tmp_path: Path) -> None:
    message = fault_of(tmp_path, PAIR + '{"text": "a"}\n')
    assert "line 2: has the shape 'text', but line 1 has 'prompt_completion'" in message


def test_many_faults_are_counted_and_the_first_few_named(tmp_path: Path) -> None:
    message = fault_of(tmp_path, PAIR + "x\n" * 40)
    assert "line 6:" in message
    assert "line 7:" not in message
    assert "and 35 more faults" in message


def test_a_message_shows_no_content_and_cuts_long_names(tmp_path: Path) -> None:
    message = fault_of(tmp_path, '{"prompt": "my secret 1234", "' + "k" * 5000 + '": "4321"}\n')
    assert "1234" not in message
    assert "4321" not in message
    assert len(message) < 500


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("prompt,completion\na,b,c\n", "line 2: has 3 fields, but the header has 2 ('prompt', 'completion')"),
        ("prompt,completion\na,b\nc\n", "line 3: has 1 field"),
        ("text,text\na,b\n", "line 1: the header names 'text' more than once"),
        ("query,intent\na,b\n", "line 1: has the keys 'query', 'intent', but needs"),
        ("prompt;completion\na;b\n", "line 1: the header is one field with semicolons"),
        ("messages\n[]\n", "line 1: a CSV field cannot hold messages"),
        ('text\na\n"b\nc\n', "line 3: not CSV: unexpected end of data"),
        ('text\n"a"b\n', "line 2: not CSV"),
        ("text\na\rb\n", "line 2: not CSV"),
        ("prompt,completion\na,\n", "line 2: 'completion' is empty"),
        ("text\na\0b\n", "line 2: 'text' holds a NUL character"),
    ],
)
def test_broken_csv_is_named_by_line_and_reason(tmp_path: Path, text: str, said: str) -> None:
    assert said in fault_of(tmp_path, text, "data.csv")


def test_a_named_column_that_is_not_there_is_said_once(tmp_path: Path) -> None:
    columns = Columns(prompt="query", completion="intent")
    message = fault_of(tmp_path, "text,category\na,b\nc,d\n", "data.csv", columns)
    assert message.count("has no 'query', 'intent' (columns: 'text', 'category')") == 1


@pytest.mark.parametrize(("name", "text"), [("a.jsonl", ""), ("a.jsonl", "\n \n"), ("a.csv", ""), ("a.csv", "text\n")])
def test_an_empty_corpus_is_refused(tmp_path: Path, name: str, text: str) -> None:
    assert "is empty" in fault_of(tmp_path, text, name)


def test_files_that_cannot_be_read_say_why(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="No such file"):
        read_corpus(tmp_path / "none.jsonl")
    (tmp_path / "folder.jsonl").mkdir()
    with pytest.raises(CorpusError, match="directory"):
        read_corpus(tmp_path / "folder.jsonl")
    assert "unknown kind of file" in fault_of(tmp_path, "{}", "data.json")
    whole = gzip.compress(PAIR.encode() * 50)
    for damaged in (whole[:-6], PAIR.encode(), whole[:30] + b"\0" * 8):
        assert "not a whole gzip file" in fault_of(tmp_path, damaged, "data.jsonl.gz")


@pytest.mark.parametrize(
    "given_columns",
    [
        {},
        {"prompt": "a"},
        {"completion": "a"},
        {"text": "a", "prompt": "b", "completion": "c"},
        {"prompt": "a", "completion": "a"},
        {"text": ""},
        {"messages": "m", "text": "t"},
    ],
)
def test_columns_must_make_one_shape(given_columns: dict[str, str]) -> None:
    with pytest.raises(InputError, match="columns"):
        Columns(**given_columns)


# Laws

SOUND = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"))
REPLY = SOUND.filter(lambda text: bool(text.strip()))
TURN = st.builds(Message, st.sampled_from(["system", "user", "assistant"]), SOUND)
IMAGE = st.none() | REPLY
RECORDS = st.one_of(
    st.lists(st.builds(Record.of_text, REPLY, IMAGE), min_size=1),
    st.lists(st.builds(Record.of_pair, SOUND, REPLY, IMAGE), min_size=1),
    st.lists(
        st.builds(
            lambda turns, reply, image: Record.of_messages((*turns, Message("assistant", reply)), image),
            st.lists(TURN),
            REPLY,
            IMAGE,
        ),
        min_size=1,
    ),
)


@settings(deadline=None)
@given(records=RECORDS, end=st.sampled_from(["\n", "\r\n"]), packed=st.booleans())
def test_records_written_as_jsonl_are_read_back(
    tmp_path_factory: pytest.TempPathFactory, records: list[Record], end: str, packed: bool
) -> None:
    data = "".join(record.line() + end for record in records).encode()
    name = "data.jsonl.gz" if packed else "data.jsonl"
    path = written(tmp_path_factory.getbasetemp(), gzip.compress(data) if packed else data, name)
    assert list(read_corpus(path)) == records


@settings(deadline=None)
@given(pairs=st.lists(st.tuples(SOUND, REPLY), min_size=1))
def test_pairs_written_as_csv_are_read_back(
    tmp_path_factory: pytest.TempPathFactory, pairs: list[tuple[str, str]]
) -> None:
    path = tmp_path_factory.getbasetemp() / "data.csv"
    with path.open("w", encoding="utf-8", newline="") as stream:
        csv.writer(stream, quoting=csv.QUOTE_ALL).writerows([("prompt", "completion"), *pairs])
    assert list(read_corpus(path)) == [Record.of_pair(*pair) for pair in pairs]


@settings(deadline=None)
@given(data=st.binary(max_size=200), name=st.sampled_from(["a.jsonl", "a.csv", "a.jsonl.gz", "a.csv.gz"]))
def test_any_bytes_give_a_corpus_or_a_typed_error(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, name: str
) -> None:
    try:
        corpus = read_corpus(written(tmp_path_factory.getbasetemp(), data, name))
    except DavylampError:
        return
    assert len(corpus) > 0


# Real data and the hub


@pytest.mark.skipif(not BANKING77.is_file(), reason="Banking77 is not beside the repository")
def test_banking77_is_read_whole() -> None:
    columns = Columns(prompt="text", completion="category")
    corpus = read_corpus(BANKING77, columns=columns)
    assert len(corpus) == 10_003
    assert corpus.left_out == ()
    assert corpus.sha256 == "b06e26ac675513959a63135f11b94ea7786ed02da65db93a5650d8838cbc664b"
    assert len(Counter(record.reply for record in corpus)) == 77
    assert corpus.records[0] == Record.of_pair("I am still waiting on my card?", "card_arrival")
    assert read_corpus(BANKING77).left_out == ("category",)


def hub_folder(folder: Path, rows: list[dict[str, object]]) -> str:
    folder.mkdir()
    (folder / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(folder)


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets", reason="the extra 'hub' is not installed")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")


def test_a_data_set_is_read_through_datasets(offline: None, tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [{"q": f"question {n}", "a": f"answer {n}", "n": n} for n in range(3)]
    columns = Columns(prompt="q", completion="a")
    name = hub_folder(tmp_path / "set", rows)
    corpus = read_hub(name, "train", columns=columns, limit=2)
    assert corpus.records == tuple(Record.of_pair(f"question {n}", f"answer {n}") for n in range(2))
    assert corpus.left_out == ("n",)
    lines = "".join(record.line() + "\n" for record in corpus)
    assert corpus.sha256 == hashlib.sha256(lines.encode()).hexdigest()
    with pytest.raises(CorpusError, match=r"row 1: .*'q', 'a', 'n'"):
        read_hub(name, "train")


def test_class_numbers_are_read_as_names(offline: None, tmp_path: Path) -> None:
    import datasets

    features = datasets.Features({"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["no", "yes"])})
    table = datasets.Dataset.from_dict({"text": ["a", "b"], "label": [1, 0]}, features=features)
    (tmp_path / "set").mkdir()
    table.to_parquet(tmp_path / "set" / "train.parquet")
    corpus = read_hub(str(tmp_path / "set"), "train", columns=Columns(prompt="text", completion="label"))
    assert [record.reply for record in corpus] == ["yes", "no"]


def test_hub_trouble_says_what_to_do(offline: None, tmp_path: Path) -> None:
    name = hub_folder(tmp_path / "set", [{"text": "a"}])
    with pytest.raises(CorpusError, match=r"'nope'.*train"):
        read_hub(name, "nope")
    with pytest.raises(CorpusError, match="try again online"):
        read_hub("nobody/nothing", "train")
    script = tmp_path / "scripted"
    script.mkdir()
    (script / "scripted.py").write_text("raise SystemExit('remote code ran')\n")
    with pytest.raises(CorpusError, match="no remote code"):
        read_hub(str(script), "train")


def test_a_missing_extra_names_the_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'davylamp\[hub\]'"):
        read_hub("owner/name", "train")


def test_a_corpus_knows_its_length_and_shape(tmp_path: Path) -> None:
    corpus: Corpus = read_corpus(written(tmp_path, PAIR * 3))
    assert len(corpus) == len(list(corpus)) == 3
    assert corpus.shape == "prompt_completion"
