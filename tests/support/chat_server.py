"""A small server on this machine that speaks the OpenAI protocol, with scripted faults."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Reply:
    """What the server says to one request.

    Attributes:
        content: the assistant's text; nothing sends ``null``.
        finish: the reason why it ended.
        status: of HTTP; what is not 200 sends an error body.
        headers: more headers.
        wait: seconds before it answers.
        raw: a body to send as it is.
        code: of an error body.
    """

    content: str | None = "fine"
    finish: str = "stop"
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    wait: float = 0.0
    raw: str | None = None
    code: str | None = None


Script = Callable[[int, dict[str, Any]], Reply]
"""From the number of a request, from 0, and its body to what is said to it."""


@dataclass
class ChatServer:
    """A running server.

    Attributes:
        url: its base URL.
        requests: bodies that came, in order.
        keys: what stood in the header of authorisation.
        at_once: the most requests that were under way at a time.
        times: when each came, in seconds of a monotonic clock.
    """

    url: str
    requests: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    at_once: int = 0
    times: list[float] = field(default_factory=list)


@contextlib.contextmanager
def chat_server(
    script: Script,
    models: list[str] | None = None,
    key: str | None = None,
    listed: str | None = None,
    list_wait: float = 0.0,
) -> Iterator[ChatServer]:
    """Run a server for the time of a test.

    Args:
        script: what it says.
        models: names that it lists; it has no list if none.
        key: the only key that it accepts; any if none.
        listed: what it says in place of a list of models.
        list_wait: seconds before it says it.
    """
    lock = threading.Lock()
    under_way = 0

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

        def _send(self, status: int, body: str, headers: dict[str, str]) -> None:
            data = body.encode("utf-8")
            # A client that did not wait so long is gone.
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                self.send_response(status)
                for name, value in {"Content-Type": "application/json", **headers}.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

        def _refused(self) -> bool:
            given = self.headers.get("Authorization", "")
            served.keys.append(given)
            if key is None or given == f"Bearer {key}":
                return False
            self._send(401, json.dumps({"error": {"message": f"wrong key: {given}", "code": "invalid_api_key"}}), {})
            return True

        def do_GET(self) -> None:
            if self._refused():
                return
            time.sleep(list_wait)
            if listed is not None:
                self._send(200, listed, {})
            elif models is None:
                self._send(404, json.dumps({"error": {"message": "no such page"}}), {})
            else:
                shown = [{"id": name, "object": "model", "created": 0, "owned_by": "x"} for name in models]
                self._send(200, json.dumps({"object": "list", "data": shown}), {})

        def do_POST(self) -> None:
            nonlocal under_way
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if self._refused():
                return
            with lock:
                number = len(served.requests)
                served.requests.append(body)
                served.times.append(time.monotonic())
                under_way += 1
                served.at_once = max(served.at_once, under_way)
            reply = script(number, body)
            time.sleep(reply.wait)
            with lock:
                under_way -= 1
            self._send(reply.status, _body(reply), reply.headers)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    served = ChatServer(f"http://127.0.0.1:{server.server_address[1]}/v1")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield served
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _body(reply: Reply) -> str:
    if reply.raw is not None:
        return reply.raw
    if reply.status != 200:
        return json.dumps({"error": {"message": f"scripted {reply.status}", "code": reply.code}})
    message = {"role": "assistant", "content": reply.content}
    return json.dumps(
        {
            "id": "x",
            "object": "chat.completion",
            "created": 0,
            "model": "tiny",
            "choices": [{"index": 0, "message": message, "finish_reason": reply.finish}],
            "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15},
        }
    )
