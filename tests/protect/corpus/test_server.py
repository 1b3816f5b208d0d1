"""A server of the OpenAI protocol as a writer: faults, patience, keys, and what is never sent."""

from __future__ import annotations

import asyncio
import email.utils
import threading
import time

import pytest

from davylamp.errors import InputError, ServerError
from davylamp.protect.corpus.server import Request, Server, check_url
from support.chat_server import Reply, chat_server

pytest.importorskip("openai", reason="the extra 'server' is not installed")


def requests(count):
    return [Request((("system", "be brief"), ("user", f"say {number}")), number) for number in range(count)]


def said(body):
    return body["messages"][-1]["content"]


def ask(served, count, **settings):
    server = Server(served.url, "tiny", {"max_tokens": 7}, **{"retries": 2, **settings})
    return server, dict(server.answers(requests(count)))


def test_every_request_is_answered_so_many_at_a_time():
    with chat_server(lambda _, body: Reply(f"re: {said(body)}", wait=0.05), ["tiny"]) as served:
        _, answers = ask(served, 12, concurrency=3)
    assert [answers[number].text for number in range(12)] == [f"re: say {number}" for number in range(12)]
    assert (answers[0].prompt_tokens, answers[0].completion_tokens, answers[0].finish) == (10, 5, "stop")
    assert served.at_once == 3
    assert all(body["max_tokens"] == 7 and body["model"] == "tiny" for body in served.requests)
    assert sorted(body["seed"] for body in served.requests) == list(range(12))


@pytest.mark.parametrize("status", [429, 500, 503, 408])
def test_what_may_pass_is_sent_again(status):
    with chat_server(lambda number, _: Reply(status=status if number == 0 else 200)) as served:
        server, answers = ask(served, 1)
    assert answers[0].text == "fine"
    assert (len(served.requests), server.retried) == (2, 1)


@pytest.mark.parametrize("form", ["seconds", "clock"])
def test_a_server_is_waited_for_as_long_as_it_asks(form):
    def script(number, _):
        asked = "1.2" if form == "seconds" else email.utils.formatdate(time.time() + 2, usegmt=True)
        return Reply(status=429, headers={"Retry-After": asked}) if number == 0 else Reply()

    with chat_server(script) as served:
        ask(served, 1)
    # A clock of whole seconds: two seconds ahead is more than one.
    assert served.times[1] - served.times[0] > (1.1 if form == "seconds" else 0.9)


def test_a_server_that_asks_for_too_long_is_not_waited_for():
    with (
        chat_server(lambda *_: Reply(status=429, headers={"Retry-After": "7200"})) as served,
        pytest.raises(ServerError, match="run the same command again later"),
    ):
        ask(served, 1)


def test_a_spent_quota_stops_at_once():
    with (
        chat_server(lambda *_: Reply(status=429, code="insufficient_quota")) as served,
        pytest.raises(ServerError, match=r"quota .* is spent"),
    ):
        ask(served, 5, concurrency=1)
    assert len(served.requests) == 1


def test_one_request_that_fails_by_itself_is_one_failed_row():
    with chat_server(lambda _, body: Reply(status=500 if said(body) == "say 2" else 200)) as served:
        _, answers = ask(served, 4, retries=0)
    assert (answers[2].finish, answers[2].reason) == ("error", "the server failed (status 500)")
    assert [answers[number].finish for number in (0, 1, 3)] == ["stop"] * 3


def test_a_time_out_is_tried_again_and_then_fails_its_row():
    with chat_server(lambda _, body: Reply(wait=0.6 if said(body) == "say 0" else 0.0)) as served:
        _, answers = ask(served, 2, timeout=0.2, retries=1)
    assert (answers[0].finish, answers[0].reason) == ("error", "the server failed (no answer in time)")
    assert answers[1].text == "fine"


def test_a_server_that_fails_every_request_stops():
    with (
        chat_server(lambda *_: Reply(status=400)) as served,
        pytest.raises(ServerError, match=r"failed 4 requests one after the other: .*scripted 400"),
    ):
        ask(served, 50, concurrency=2)
    assert len(served.requests) < 10


def test_what_was_answered_before_a_stop_was_given():
    with chat_server(lambda number, _: Reply(status=200 if number < 5 else 400)) as served:
        answers = Server(served.url, "tiny", concurrency=1, retries=0).answers(requests(50))
        assert [next(answers)[0] for _ in range(5)] == [0, 1, 2, 3, 4]
        with pytest.raises(ServerError, match="one after the other"):
            list(answers)


def test_answers_come_inside_a_running_event_loop_too():
    async def cell():
        # As a notebook's cell does: this thread's loop runs already.
        answers = Server(served.url, "tiny", concurrency=2, retries=0).answers(requests(6))
        first = next(answers)
        await asyncio.sleep(0)
        return dict([first, *answers])

    before = set(threading.enumerate())
    with chat_server(lambda _, body: Reply(f"re: {said(body)}"), ["tiny"]) as served:
        answers = asyncio.run(cell())
        assert [answers[number].text for number in range(6)] == [f"re: say {number}" for number in range(6)]
        half_read = Server(served.url, "tiny", concurrency=1).answers(requests(50))
        next(half_read)
        half_read.close()
        assert len(served.requests) < 56
    # The test's own server ends the thread of a broken-off request when it notices.
    left = {each.name for each in set(threading.enumerate()) - before if "process_request" not in each.name}
    assert not left


def test_a_server_that_is_not_there_is_named():
    server = Server("http://127.0.0.1:9/v1", "tiny", retries=1)
    with pytest.raises(ServerError, match=r"127\.0\.0\.1:9 cannot be used after 2 tries: "):
        list(server.answers(requests(3)))
    with pytest.raises(ServerError, match=r"127\.0\.0\.1:9 cannot be used after 1 try: "):
        list(Server("http://127.0.0.1:9/v1", "tiny", retries=0).answers(requests(1)))


def test_an_unknown_model_is_named_before_any_record_is_sent():
    with (
        chat_server(lambda *_: Reply(), ["big", "small"]) as served,
        pytest.raises(ServerError, match="no model 'tiny'; it has big, small; no record was sent"),
    ):
        ask(served, 1)
    assert served.requests == []
    with chat_server(lambda *_: Reply(status=404)) as served, pytest.raises(ServerError, match="knows no model 'tiny'"):
        ask(served, 1)


def test_a_wrong_key_is_refused_before_any_record_is_sent_and_not_repeated(monkeypatch):
    monkeypatch.setenv("OTHER_KEY", "sk-very-secret")
    with chat_server(lambda *_: Reply(), ["tiny"], key="right") as served:
        with pytest.raises(ServerError) as caught:
            ask(served, 3, key_env="OTHER_KEY")
        assert "OTHER_KEY (it holds one)" in str(caught.value)
        assert "very-secret" not in str(caught.value)
        with pytest.raises(ServerError, match=r"NO_SUCH_KEY \(it does not hold one\)"):
            ask(served, 3, key_env="NO_SUCH_KEY")
        assert served.requests == []
        monkeypatch.setenv("OTHER_KEY", "right")
        _, answers = ask(served, 1, key_env="OTHER_KEY")
    assert answers[0].text == "fine"


@pytest.mark.parametrize(
    ("reply", "finish"),
    [
        (Reply("cut", finish="length"), "length"),
        (Reply("no", finish="content_filter"), "refused"),
        (Reply(None), "stop"),
        (Reply(raw='{"id": "x", "object": "chat.completion", "choices": []}'), "error"),
        (Reply(raw="<html>busy</html>", headers={"Content-Type": "text/html"}), "error"),
        (Reply(raw="{broken"), "error"),
        (Reply(raw="[1]"), "error"),
    ],
)
def test_the_end_of_an_answer_is_told(reply, finish):
    with chat_server(lambda *_: reply) as served:
        _, answers = ask(served, 1)
    assert answers[0].finish == finish
    if finish == "stop":
        assert answers[0].text == ""


def test_a_server_that_sends_its_visitors_elsewhere_is_not_followed():
    with chat_server(lambda *_: Reply()) as elsewhere:
        moved = Reply(status=307, headers={"Location": f"{elsewhere.url}/chat/completions"})
        with chat_server(lambda *_: moved) as served:
            _, answers = ask(served, 1)
        assert answers[0].reason == "the server failed (status 307)"
        assert elsewhere.requests == []


def test_a_key_that_no_header_can_hold_is_not_repeated(monkeypatch):
    monkeypatch.setenv("ODD_KEY", "sk-very\nsecret")
    with chat_server(lambda *_: Reply()) as served, pytest.raises(InputError) as caught:
        ask(served, 1, key_env="ODD_KEY")
    assert "very" not in str(caught.value)


def test_a_server_without_a_usable_list_of_models_is_asked_all_the_same():
    with chat_server(lambda *_: Reply(), listed="<html>hello</html>") as served:
        _, answers = ask(served, 1)
    assert answers[0].text == "fine"


def test_a_server_that_does_not_even_list_its_models_in_time_gets_no_record():
    with (
        chat_server(lambda *_: Reply(), listed=None, list_wait=0.5) as served,
        pytest.raises(ServerError, match=r"does not answer within 0\.1 s; no record was sent"),
    ):
        ask(served, 1, timeout=0.1, retries=0)
    assert served.requests == []


@pytest.mark.parametrize("url", ["api.example.com", "ftp://x/v1", "https://", "https://x/v1?key=1", "https://x/#a"])
def test_what_is_no_base_url_is_refused(url):
    with pytest.raises(InputError, match="a base URL"):
        check_url(url)


def test_a_password_in_a_url_is_not_repeated():
    with pytest.raises(InputError) as caught:
        check_url("https://me:hunter2@example.com/v1")
    assert "hunter2" not in str(caught.value)
    check_url("http://127.0.0.1:8000/v1")
