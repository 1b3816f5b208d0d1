"""Rewriters: prompts, draws, the cache, leave to send, forecasts, and a model of this machine."""

from __future__ import annotations

import stat

import pytest

from davylamp.corpora.records import Record
from davylamp.errors import InputError, RecipeError
from davylamp.protect.corpus.base import Answer, Setting
from davylamp.protect.corpus.journal import rows_of
from davylamp.protect.corpus.prompting import load_prompts
from davylamp.protect.corpus.registry import kind_of, spec_of
from davylamp.runs.progress import QUIET
from support.chat_server import Reply, chat_server
from support.clinical_rows import clinical_records

PATIENTS = clinical_records(12)
ROWS = rows_of([*PATIENTS, PATIENTS[0], PATIENTS[0]], once=False)
KINDS = ("rewrite", "privacy_rewrite", "summary", "privacy_summary")


@pytest.fixture
def exemplars(tmp_path):
    path = tmp_path / "exemplars.jsonl"
    path.write_text("".join(record.line() + "\n" for record in clinical_records(5, seed=99)), encoding="utf-8")
    return path


def build(name, tmp_path, agreed=lambda _: True, rows=ROWS, **settings):
    if name.endswith("summary"):
        settings = {"exemplars": str(tmp_path / "exemplars.jsonl"), **settings}
    spec = spec_of({"name": name, "model": "tiny", **settings})
    return kind_of(name).build(spec, Setting(rows, 3, tmp_path / "cache", None, agreed))


def record_in(body):
    """What stands after the last label of a prompt: the record or the summary that is to be written anew."""
    return body["messages"][-1]["content"]


class Echo:
    """A server's script that gives a record back with a mark of the draw."""

    def __init__(self, reply=None):
        self.reply = reply

    def __call__(self, _number, body):
        text = record_in(body)
        if text.endswith("Summary:"):
            return Reply(f"summary {body['seed']}")
        if self.reply is not None:
            return self.reply
        return Reply(f"{PATIENTS[3].reply[:-1]}; draw {body['seed']}.")


@pytest.mark.usefixtures("exemplars")
@pytest.mark.parametrize("name", KINDS)
def test_each_copy_is_written_anew_once_and_never_paid_twice(name, tmp_path):
    pytest.importorskip("openai", reason="the extra 'server' is not installed")
    with chat_server(Echo(), ["tiny"]) as served:
        first = build(name, tmp_path, server=served.url)
        made = sorted(first.apply(ROWS, QUIET), key=lambda each: each.position)
        steps = 2 if name.endswith("summary") else 1
        assert len(served.requests) == steps * len(ROWS)
        assert {each.note for each in made} == {"ok"}
        # The copies of one record are drawn apart.
        assert len({made[at].record for at in (0, 12, 13)}) == 3
        again = build(name, tmp_path, server=served.url, agreed=None)
        assert sorted(again.apply(ROWS, QUIET), key=lambda each: each.position) == made
        assert len(served.requests) == steps * len(ROWS)
        assert again.usage == {"answers from the cache": steps * len(ROWS)}
        assert first.usage["requests"] == steps * len(ROWS)
        assert first.usage["prompt tokens"] == 10 * steps * len(ROWS)
        # Another seed, model or prompt is another request.
        build(name, tmp_path, server=served.url, seed=4)
        assert build(name, tmp_path, server=served.url, seed=4).forecast(ROWS).cached == 0
    cache = tmp_path / "cache" / "rewrites.sqlite"
    assert stat.S_IMODE(cache.stat().st_mode) == 0o600


@pytest.mark.usefixtures("exemplars")
def test_the_second_step_sees_the_summary_and_the_examples_and_not_the_record(tmp_path):
    pytest.importorskip("openai", reason="the extra 'server' is not installed")
    with chat_server(Echo()) as served:
        list(build("privacy_summary", tmp_path, server=served.url).apply(ROWS[:1], QUIET))
    asked, expanded = map(record_in, served.requests)
    assert PATIENTS[0].reply in asked
    assert "Example record" not in asked
    assert PATIENTS[0].reply not in expanded
    assert f"summary {served.requests[0]['seed']}" in expanded
    shown = [record.reply for record in clinical_records(5, seed=99) if record.reply in expanded]
    assert len(shown) == 2


def test_exemplars_come_from_outside_the_cohort(tmp_path):
    path = tmp_path / "exemplars.jsonl"
    with pytest.raises(RecipeError, match=r"exemplars=FILE .* or exemplars=clinical"):
        spec_of({"name": "summary", "model": "tiny"})
    path.write_text("".join(record.line() + "\n" for record in clinical_records(3, seed=99)[:2]) + PATIENTS[4].line())
    with pytest.raises(InputError, match="none is in the cohort"):
        build("summary", tmp_path, server="http://127.0.0.1:9/v1")
    path.write_text(PATIENTS[0].line())
    with pytest.raises(InputError, match="at least 2 different records"):
        build("summary", tmp_path, server="http://127.0.0.1:9/v1")


def test_exemplars_of_made_up_patients_come_from_a_fresh_seed(tmp_path):
    pytest.importorskip("openai", reason="the extra 'server' is not installed")
    shown = []
    for seed in (0, 1):
        with chat_server(Echo()) as served:
            made = build("summary", tmp_path, server=served.url, exemplars="clinical", seed=seed)
            list(made.apply(ROWS[:1], QUIET))
        shown.append(record_in(served.requests[1]).split("Summary:")[0])
        assert shown[-1].count("Medications: ") == 2
    assert shown[0] != shown[1]


def test_nothing_is_sent_without_leave_and_what_would_be_is_said(tmp_path):
    pytest.importorskip("openai", reason="the extra 'server' is not installed")
    told = []
    with chat_server(Echo(), ["tiny"]) as served:
        for agreed in (None, told.append):
            with pytest.raises(InputError, match="Nothing was sent: add --yes"):
                list(build("rewrite", tmp_path, agreed=agreed, server=served.url).apply(ROWS, QUIET))
        assert served.requests == []
        assert served.keys == []
        host = served.url.split("/")[2]
        assert f"14 records go to {host} (NOT encrypted), model tiny, in 14 requests of about" in told[0]
        found = build("rewrite", tmp_path, server=served.url).forecast(ROWS)
        assert served.requests == []
        characters = sum(len(turn) for _, turn in load_prompts("rewrite").chat("", {"record": PATIENTS[0].reply}))
        assert found.prompt_tokens == pytest.approx(14 * characters / 4, rel=0.2)
        assert found.limit == 14 * 1024


@pytest.mark.parametrize(
    ("held", "state", "said"),
    [
        (None, "not set", "the environment variable MY_KEY, for the key, is NOT set"),
        (" ", "not set", "is NOT set"),
        ("sk-very-secret", "set", "the environment variable MY_KEY, for the key, is set"),
        ("sk-very-secr\u00e9t", "unusable", "holds what cannot be sent as a key"),
    ],
)
def test_a_forecast_says_whether_the_key_is_there_and_never_the_key(tmp_path, monkeypatch, held, state, said):
    monkeypatch.delenv("MY_KEY", raising=False)
    if held is not None:
        monkeypatch.setenv("MY_KEY", held)
    told = build("rewrite", tmp_path, server="https://example.com/v1", key_env="MY_KEY").forecast(ROWS[:1])
    assert (told.key_env, told.key) == ("MY_KEY", state)
    assert said in told.statement
    assert "very-sec" not in told.model_dump_json() + told.statement


def test_one_of_a_thing_is_said_as_one(tmp_path):
    told = build("rewrite", tmp_path, server="https://example.com/v1").forecast(ROWS[:1])
    assert told.statement.startswith("rewrite: 1 record goes to example.com (encrypted), model tiny, in 1 request of")


def test_forecasts_count_what_is_there_already(tmp_path, exemplars):
    pytest.importorskip("openai", reason="the extra 'server' is not installed")
    with chat_server(Echo()) as served:
        list(build("summary", tmp_path, server=served.url).apply(ROWS[:4], QUIET))
        found = build("summary", tmp_path, server=served.url).forecast(ROWS)
    assert (found.records, found.requests, found.cached) == (14, 20, 8)


@pytest.mark.parametrize(
    ("reply", "note"),
    [
        (Reply(""), "failed"),
        (Reply("I'm sorry, I can't."), "refused"),
        (Reply("Patient Ada", finish="length"), "truncated"),
        (Reply("he is well"), "failed"),
        (Reply(status=400), "failed"),
    ],
)
def test_what_is_no_record_has_failed(tmp_path, reply, note):
    pytest.importorskip("openai", reason="the extra 'server' is not installed")
    with chat_server(Echo(reply)) as served:
        made = list(build("rewrite", tmp_path, server=served.url, retries=0).apply(ROWS[:3], QUIET))
        assert [each.note for each in made] == [note] * 3
        # The row as it came is there for messages only.
        assert all(each.spans == () for each in made)
        before = len(served.requests)
        list(build("rewrite", tmp_path, server=served.url, retries=0).apply(ROWS[:3], QUIET))
        # An answer was paid, whatever it says; an error was not, and is asked again.
        assert len(served.requests) == before + (3 if reply.status == 400 else 0)


def test_a_failed_answer_is_drawn_again_as_often_as_asked(tmp_path):
    pytest.importorskip("openai", reason="the extra 'server' is not installed")
    with chat_server(lambda number, _: Reply("") if number < 4 else Reply(PATIENTS[2].reply)) as served:
        rewriter = build("rewrite", tmp_path, server=served.url, attempts=3, concurrency=1)
        made = list(rewriter.apply(ROWS[:2], QUIET))
    assert [each.note for each in made] == ["ok", "ok"]
    seeds = [body["seed"] for body in served.requests]
    assert len(set(seeds)) == len(seeds) == 6
    assert rewriter.usage["answers drawn again"] == 4


def test_what_was_answered_before_a_stop_is_not_paid_again(tmp_path):
    pytest.importorskip("openai", reason="the extra 'server' is not installed")
    with chat_server(lambda number, _: Reply(PATIENTS[2].reply) if number < 5 else Reply(status=401)) as served:
        with pytest.raises(Exception, match="did not accept the key"):
            list(build("rewrite", tmp_path, server=served.url, concurrency=1).apply(ROWS, QUIET))
        assert build("rewrite", tmp_path, server=served.url).forecast(ROWS).cached == 5


def test_the_key_stands_in_no_file(tmp_path, monkeypatch):
    pytest.importorskip("openai", reason="the extra 'server' is not installed")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret")
    with chat_server(Echo(), ["tiny"], key="sk-very-secret") as served:
        made = build("rewrite", tmp_path, server=served.url)
        list(made.apply(ROWS, QUIET))
    assert all(b"very-secret" not in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert "very-secret" not in made.version


def test_settings_reach_the_server(tmp_path):
    pytest.importorskip("openai", reason="the extra 'server' is not installed")
    settings = {
        "temperature": None,
        "limit_field": "max_completion_tokens",
        "send_seed": False,
        "body": {"think": False},
        "stop": ["\n\n"],
    }
    with chat_server(lambda *_: Reply(PATIENTS[2].reply)) as served:
        list(build("rewrite", tmp_path, server=served.url, **settings).apply(ROWS[:1], QUIET))
    (body,) = served.requests
    assert body["max_completion_tokens"] == 1024
    assert body["think"] is False
    assert body["stop"] == ["\n\n"]
    assert not {"temperature", "seed", "max_tokens"} & set(body)


class Scripted:
    """A model of this machine that gives a record back."""

    name, sha256 = "scripted", "ab" * 32

    def __init__(self):
        self.seeds = []

    def write(self, _chats, seeds, decoding):
        for at, seed in enumerate(seeds):
            self.seeds.append(seed)
            yield at, Answer(PATIENTS[5].reply, "stop", 3, decoding.max_tokens)


def test_a_checkpoint_of_this_machine_needs_no_leave(tmp_path):
    writer = Scripted()
    spec = spec_of({"name": "privacy_rewrite", "model": "smollm2"})
    made = kind_of("privacy_rewrite").build(spec, Setting(ROWS, 0, tmp_path, lambda _: writer))
    assert "they stay on this machine" in made.forecast(ROWS).statement
    assert {each.record for each in made.apply(ROWS, QUIET)} == {PATIENTS[5]}
    assert len(set(writer.seeds)) == len(ROWS)
    assert "abababababab" in made.version
    with pytest.raises(InputError, match="No checkpoint can be loaded here"):
        kind_of("rewrite").build(spec_of({"name": "rewrite", "model": "x"}), Setting(ROWS))


@pytest.mark.parametrize("name", KINDS)
def test_prompts_are_in_files_and_may_be_others(name, tmp_path):
    own = load_prompts(name)
    assert own.version.startswith("1-")
    record = "{record} {summary} {0}"
    last = own.chat("expand" if name.endswith("summary") else "", {"record": record, "summary": record})
    # What fills a slot is not filled again.
    assert record in last[-1][1]
    path = tmp_path / "mine.md"
    path.write_text("version: mine\n\n## system\nx\n\n## user\n{nothing}\n")
    fault = "a section `## expand user`" if name.endswith("summary") else "a section with {record} in it"
    with pytest.raises(InputError, match=fault):
        load_prompts(name, path)
    with pytest.raises(InputError, match="can be read"):
        load_prompts(name, tmp_path / "no.md")
    if not name.endswith("summary"):
        path.write_text("version: mine\n\n## system\n\n## user\nplease: {record}\n")
        assert load_prompts(name, path).chat("", {"record": "r"}) == (("user", "please: r"),)
        assert load_prompts(name, path).version.startswith("mine-")


def test_bad_settings_are_all_named():
    with pytest.raises(RecipeError) as caught:
        spec_of({"name": "rewrite", "server": "example.com", "temperature": 9, "key_env": "a b"})
    assert [fault.field for fault in caught.value.faults] == [
        "protect.server",
        "protect.model",
        "protect.key_env",
        "protect.temperature",
    ]


def test_a_record_of_turns_is_sent_with_its_roles(tmp_path):
    pytest.importorskip("openai", reason="the extra 'server' is not installed")
    rows = rows_of([Record.of_pair("who?", f"Ada {at}.") for at in range(3)], once=False)
    with chat_server(lambda *_: Reply("[user]\nwhat?\n[assistant]\nBela.")) as served:
        made = list(build("rewrite", tmp_path, server=served.url, rows=rows, concurrency=1).apply(rows, QUIET))
    assert "[user]\nwho?\n[assistant]\nAda 0." in record_in(served.requests[0])
    assert {each.record for each in made} == {Record.of_pair("what?", "Bela.")}
