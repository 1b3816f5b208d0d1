"""Any server that speaks the OpenAI protocol, as a writer of texts: many requests at once, patient, and frugal."""

from __future__ import annotations

import asyncio
import contextlib
import email.utils
import importlib
import importlib.util
import os
import random
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from davylamp.errors import Fault, InputError, MissingExtraError, ServerError
from davylamp.protect.corpus.base import Answer, Chat

FIRST_WAIT, LONGEST_WAIT = 0.5, 60.0
"""Seconds of the first wait before a request is sent again, and of the longest; each wait is twice the last."""
LONGEST_ASKED = 600.0
"""Seconds that a server may ask to wait (Retry-After); one that asks for more is not waited for."""
NO_KEY = "no-key"
"""What is sent as a key where none is set: servers on one's own machine want none, and the client wants some."""
ENDING = 10.0
"""Seconds that requests under way are given to end once nobody waits for them."""
SHOWN = 200
"""Characters of what a server says that are repeated in a message."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request.

    Attributes:
        chat: the turns.
        seed: sent along where the server shall be asked for a reproducible answer.
    """

    chat: Chat
    seed: int | None


@dataclass(slots=True)
class Server:
    """A server, and how it is asked.

    Attributes:
        url: its base URL, such as ``https://api.example.com/v1``.
        model: the model's name there.
        body: what every request holds besides the turns and the seed.
        key_env: the environment variable that holds the key.
        concurrency: requests under way at a time.
        retries: how often a request is sent again.
        timeout: seconds until a request counts as lost.
        retried: requests that were sent again, so far.
    """

    url: str
    model: str
    body: Mapping[str, Any] = field(default_factory=dict)
    key_env: str = "OPENAI_API_KEY"
    concurrency: int = 8
    retries: int = 6
    timeout: float = 120.0
    retried: int = 0

    @property
    def host(self) -> str:
        """Who gets the records."""
        return urlsplit(self.url).netloc

    def answers(self, requests: Sequence[Request]) -> Iterator[tuple[int, Answer]]:
        """Answers with the number of their request, as they come.

        A request that fails by itself is answered with an error. What fails for all stops at once: a key that is not
        accepted, an unknown model, a server that cannot be reached or whose quota is spent.

        Raises:
            ServerError: the server cannot be used; what was answered before has been given.
            MissingExtraError: the client is not installed.
        """
        if importlib.util.find_spec("openai") is None:
            raise MissingExtraError("openai", "server", "sending rows to a server")
        work = _Work(self, importlib.import_module("openai"))
        with _own_loop() as loop:
            asyncio.run_coroutine_threadsafe(work.begin(requests), loop).result()
            try:
                for _ in requests:
                    yield asyncio.run_coroutine_threadsafe(work.next(), loop).result()
            finally:
                asyncio.run_coroutine_threadsafe(work.close(), loop).result(ENDING)


def check_url(url: str, field_name: str = "server") -> None:
    """Refuse what is no base URL of a server, or holds a password.

    Raises:
        InputError: it is not ``http(s)://host...``, or holds a user, a query or a fragment.
    """
    parts = urlsplit(url)
    if parts.username or parts.password:
        # Not repeated: it may be a password.
        raise InputError(
            Fault(field_name, "(not shown)", "a URL without user and password", "Keys come from the environment.")
        )
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise InputError(Fault(field_name, url, "a base URL such as https://api.example.com/v1"))


@contextlib.contextmanager
def _own_loop() -> Iterator[asyncio.AbstractEventLoop]:
    """An event loop in a thread of its own, since that of a notebook's cell has a running one already."""
    loop = asyncio.new_event_loop()
    # Of no use without the caller, and nothing to wait for when the program ends.
    thread = threading.Thread(target=loop.run_forever, name="davylamp requests", daemon=True)
    thread.start()
    try:
        yield loop
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(ENDING)
        if not thread.is_alive():
            loop.close()


class _Work:
    """Requests under way; lives in one event loop."""

    def __init__(self, server: Server, library: Any) -> None:
        self._server = server
        self._library = library
        self._done: asyncio.Queue[tuple[int, Answer]] = asyncio.Queue()
        self._key = _key(server.key_env)
        self._client: Any = None
        self._task: asyncio.Task[None] | None = None
        self._lost = 0
        self._answered = False

    async def begin(self, requests: Sequence[Request]) -> None:
        """Begin to send."""
        self._task = asyncio.ensure_future(self._run(requests))

    async def next(self) -> tuple[int, Answer]:
        """The next answer, or what stopped the work."""
        coming = asyncio.ensure_future(self._done.get())
        work = [] if self._task is None else [self._task]
        await asyncio.wait([coming, *work], return_when=asyncio.FIRST_COMPLETED)
        if not coming.done() and self._done.empty():
            coming.cancel()
            # Raises what stopped the work; without it the last answer would be in the queue.
            for task in work:
                task.result()
            raise ServerError(f"{self._server.host} left requests unanswered")
        return await coming

    async def close(self) -> None:
        """End what is under way."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError, ServerError):
                await self._task
        if self._client is not None:
            await self._client.close()

    async def _run(self, requests: Sequence[Request]) -> None:
        """Send all requests, so many at a time."""
        self._client = self._library.AsyncOpenAI(
            api_key=self._key,
            base_url=self._server.url,
            timeout=self._server.timeout,
            max_retries=0,
            # A server that sends its visitors elsewhere would send the records to somebody whom nobody named.
            http_client=self._library.DefaultAsyncHttpxClient(follow_redirects=False),
        )
        await self._check_model()
        waiting = iter(enumerate(requests))

        async def serve() -> None:
            for number, request in waiting:
                await self._done.put((number, await self._answer(request)))

        workers = [asyncio.ensure_future(serve()) for _ in range(min(self._server.concurrency, len(requests)))]
        try:
            await asyncio.gather(*workers)
        finally:
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)

    async def _check_model(self) -> None:
        """Ask for the list of models first: a wrong key or name shows before any record is sent."""
        library, server = self._library, self._server
        try:
            listed = await self._patiently(self._client.models.list)
        except (library.AuthenticationError, library.PermissionDeniedError) as error:
            raise self._refused_key(error) from error
        except library.APITimeoutError as error:
            raise ServerError(
                f"{server.host} does not answer within {server.timeout:g} s; no record was sent"
            ) from error
        except (library.APIStatusError, library.APIResponseValidationError, ValueError):
            # Not every server has a list.
            return
        names = [str(getattr(each, "id", "")) for each in getattr(listed, "data", None) or []]
        if names and server.model not in names:
            shown = ", ".join(sorted(names)[:5])
            raise ServerError(f"{server.host} has no model {server.model!r}; it has {shown}; no record was sent")

    async def _answer(self, request: Request) -> Answer:
        library, server = self._library, self._server
        seeded = {} if request.seed is None else {"seed": request.seed}
        turns = [{"role": role, "content": text} for role, text in request.chat]

        async def send() -> Any:
            return await self._client.chat.completions.create(
                model=server.model, messages=turns, **{**server.body, **seeded}
            )

        try:
            said = await self._patiently(send)
        except (library.AuthenticationError, library.PermissionDeniedError) as error:
            raise self._refused_key(error) from error
        except library.NotFoundError as error:
            raise ServerError(f"{server.host} knows no model {server.model!r}: {self._said(error)}") from error
        except (
            library.APIStatusError,
            library.APIResponseValidationError,
            library.APITimeoutError,
            ValueError,
        ) as error:
            # A body that is no JSON is a ValueError of the client's.
            return self._lost_one(error)
        self._lost, self._answered = 0, True
        return _answer_of(said)

    def _lost_one(self, error: Exception) -> Answer:
        """A request that failed by itself; when all fail one after the other, the server does."""
        self._lost += 1
        if self._lost > max(3, self._server.concurrency):
            raise ServerError(
                f"{self._server.host} failed {self._lost} requests one after the other: {self._said(error)}. What was "
                "answered is kept: run the same command again"
            ) from error
        status = getattr(error, "status_code", None)
        told = f"status {status}" if isinstance(error, self._library.APIStatusError) else "an answer that is no JSON"
        if isinstance(error, self._library.APITimeoutError):
            told = "no answer in time"
        return Answer("", "error", reason=f"the server failed ({told})")

    async def _patiently(self, send: Any) -> Any:
        """Send, and send again after 429, 5xx and time-outs, as long after as the server asks for."""
        library, server = self._library, self._server
        wait = FIRST_WAIT
        for attempt in range(server.retries + 1):
            try:
                return await send()
            except library.APIStatusError as error:
                if not _may_be_repeated(error):
                    if error.status_code == 429:
                        raise ServerError(f"the quota at {server.host} is spent: {self._said(error)}") from error
                    raise
                if attempt == server.retries and error.status_code != 429:
                    raise
                asked = _retry_after(error.response.headers)
                failure: Exception = error
            except library.APIConnectionError as error:
                # A time-out is one too; it may be the fault of a single long request.
                if attempt == server.retries and isinstance(error, library.APITimeoutError):
                    raise
                asked, failure = None, error
            if attempt == server.retries or (asked or 0) > LONGEST_ASKED:
                raise ServerError(
                    f"{server.host} cannot be used after {attempt + 1} tries: {self._said(failure)}. What was answered "
                    "is kept: run the same command again later"
                ) from failure
            server.retried += 1
            # Spread, so that requests that failed together are not sent again together.
            await asyncio.sleep(asked if asked is not None else wait * random.uniform(0.5, 1.0))
            wait = min(2 * wait, LONGEST_WAIT)
        raise AssertionError("unreachable: the last try returns or raises")

    def _refused_key(self, error: Exception) -> ServerError:
        held = "it does not hold one" if self._key == NO_KEY else "it holds one"
        return ServerError(
            f"{self._server.host} did not accept the key in the environment variable {self._server.key_env} ({held}): "
            f"{self._said(error)}"
        )

    def _said(self, error: Exception) -> str:
        """What the server said, without the key."""
        text = " ".join(str(getattr(error, "message", error)).split())
        cause = error.__cause__
        if cause is not None and str(cause):
            text += f" ({cause})"
        return text.replace(self._key, "(key)")[:SHOWN]


def _key(name: str) -> str:
    """The key in an environment variable.

    Raises:
        InputError: it could stand in no header, and an error of the client's would repeat it.
    """
    key = os.environ.get(name, "").strip()
    if not key.isascii() or not key.isprintable():
        raise InputError(Fault(name, "(not shown)", "a key of printable ASCII characters"))
    return key or NO_KEY


def _may_be_repeated(error: Any) -> bool:
    """Whether to try again; a quota that is spent stays spent."""
    if getattr(error, "code", None) == "insufficient_quota":
        return False
    return error.status_code in (408, 409, 429) or error.status_code >= 500


def _retry_after(headers: Any) -> float | None:
    """Seconds that a server asks to wait: a number, or the time of a clock."""
    value = headers.get("retry-after")
    if value is None:
        return None
    with contextlib.suppress(ValueError):
        return max(0.0, float(value))
    parsed = email.utils.parsedate_tz(value)
    return None if parsed is None else max(0.0, email.utils.mktime_tz(parsed) - time.time())


def _answer_of(said: Any) -> Answer:
    """What a completion says; a server that sends something else has failed this request."""
    choices = getattr(said, "choices", None)
    if not choices or getattr(choices[0], "message", None) is None:
        return Answer("", "error", reason="the server's answer holds no choice")
    choice, usage = choices[0], getattr(said, "usage", None)
    refused = bool(getattr(choice.message, "refusal", None)) or choice.finish_reason == "content_filter"
    return Answer(
        text=choice.message.content or "",
        finish="refused" if refused else "length" if choice.finish_reason == "length" else "stop",
        prompt_tokens=int(getattr(usage, "prompt_tokens", 0) or 0),
        completion_tokens=int(getattr(usage, "completion_tokens", 0) or 0),
    )
