"""Any server that speaks the OpenAI protocol, as a writer of texts: many requests at once, patient, and frugal."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import importlib.util
import threading
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import urlsplit

from davylamp.errors import Fault, InputError, MissingExtraError, ServerError
from davylamp.protect.corpus.base import Answer
from davylamp.protect.corpus.connection import Connection, Endpoint, Request
from davylamp.runs.credentials import HIDDEN

__all__ = ["Request", "Server", "check_url"]

ENDING = 10.0
"""Seconds that requests under way are given to end once nobody waits for them."""


class Server(Endpoint):
    """A server that answers many requests."""

    __slots__ = ()

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
            Fault(field_name, HIDDEN, "a URL without user and password", "Keys come from the environment.")
        )
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        shown = HIDDEN if any(mark in url for mark in "?@#") else url
        raise InputError(Fault(field_name, shown, "a base URL such as https://api.example.com/v1"))


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
        # Names are looked up in further threads, which would outlive the loop for a while.
        with contextlib.suppress(TimeoutError):
            asyncio.run_coroutine_threadsafe(loop.shutdown_default_executor(), loop).result(ENDING)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(ENDING)
        if not thread.is_alive():
            loop.close()


class _Work:
    """Requests under way; lives in one event loop."""

    def __init__(self, server: Server, library: Any) -> None:
        self._server = server
        self._connection = Connection(server, library)
        self._done: asyncio.Queue[tuple[int, Answer]] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None

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
        await self._connection.close()

    async def _run(self, requests: Sequence[Request]) -> None:
        """Send all requests, so many at a time."""
        await self._connection.open()
        waiting = iter(enumerate(requests))

        async def serve() -> None:
            for number, request in waiting:
                await self._done.put((number, await self._connection.answer(request)))

        workers = [asyncio.ensure_future(serve()) for _ in range(min(self._server.concurrency, len(requests)))]
        try:
            await asyncio.gather(*workers)
        finally:
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)
