"""One client of a server that speaks the OpenAI protocol: what is sent again, what fails, and what stops everything."""

from __future__ import annotations

import asyncio
import contextlib
import email.utils
import os
import random
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import urlsplit

from davylamp.errors import Fault, InputError, ServerError
from davylamp.protect.corpus.base import Answer, Chat
from davylamp.runs.wording import counted

FIRST_WAIT, LONGEST_WAIT = 0.5, 60.0
"""Seconds of the first wait before a request is sent again, and of the longest; each wait is twice the last."""
LONGEST_ASKED = 600.0
"""Seconds that a server may ask to wait (Retry-After); one that asks for more is not waited for."""
NO_KEY = "no-key"
"""What is sent as a key where none is set: servers on one's own machine want none, and the client wants some."""
SHOWN = 200
"""Characters of what a server says that are repeated in a message."""
KeyState = Literal["set", "not set", "unusable"]
"""What is told of a key: never the key itself."""


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
class Endpoint:
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


class Connection:
    """A client of one server; lives in one event loop."""

    def __init__(self, server: Endpoint, library: Any) -> None:
        """Take the key from the environment; nothing is sent yet.

        Args:
            server: which, and how it is asked; requests that are sent again are counted there.
            library: the client's package.

        Raises:
            InputError: the key could stand in no header.
        """
        self._server = server
        self._library = library
        self._key = read_key(server.key_env) or NO_KEY
        self._client: Any = None
        self._lost = 0

    async def open(self) -> None:
        """Make the client, and ask for the list of models: a wrong key or name shows before any record is sent.

        Raises:
            ServerError: the server cannot be used, or has no such model.
        """
        self._client = self._library.AsyncOpenAI(
            api_key=self._key,
            base_url=self._server.url,
            timeout=self._server.timeout,
            max_retries=0,
            # A server that sends its visitors elsewhere would send the records to somebody whom nobody named.
            http_client=self._library.DefaultAsyncHttpxClient(follow_redirects=False),
        )
        await self._check_model()

    async def close(self) -> None:
        """End the client, if there is one."""
        if self._client is not None:
            await self._client.close()

    async def _check_model(self) -> None:
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

    async def answer(self, request: Request) -> Answer:
        """The answer to a request; an error where it failed by itself.

        Raises:
            ServerError: what failed would fail for all.
        """
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
        self._lost = 0
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
                tries = counted(attempt + 1, "try", "tries")
                raise ServerError(
                    f"{server.host} cannot be used after {tries}: {self._said(failure)}. What was answered is kept: "
                    "run the same command again later"
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


def read_key(name: str) -> str:
    """The key in an environment variable; empty where there is none.

    Raises:
        InputError: it could stand in no header, and an error of the client's would repeat it.
    """
    key = os.environ.get(name, "").strip()
    if not key.isascii() or not key.isprintable():
        raise InputError(Fault(name, "(not shown)", "a key of printable ASCII characters"))
    return key


def key_state(name: str) -> KeyState:
    """Whether an environment variable holds a key, without the key; one that no header can hold is unusable."""
    try:
        return "set" if read_key(name) else "not set"
    except InputError:
        return "unusable"


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
