"""How a language model is asked: by a server or on this machine, with leave, and nothing that was answered twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from davylamp.errors import Fault, InputError, ServerError
from davylamp.protect.corpus.answers import Answers, key_of
from davylamp.protect.corpus.base import Answer, Chat, Writer, Writing
from davylamp.protect.corpus.connection import KeyState, key_state
from davylamp.protect.corpus.server import Request, Server, check_url
from davylamp.runs.credentials import HIDDEN, credentials, is_key
from davylamp.runs.wording import counted

CHARACTERS = 4
"""Characters of a token in English text, about: what a forecast of tokens rests on."""


class AskingSpec(BaseModel):
    """Who is asked, and how.

    Attributes:
        server: base URL of a server that speaks the OpenAI protocol; a checkpoint of this machine answers if none.
        model: the model's name on the server, or what ``--model`` takes.
        key_env: environment variable that holds the server's key.
        temperature: of sampling; 0 takes the likeliest token; nothing sends none.
        top_p: share of the mass that is sampled from; nothing sends none.
        max_tokens: tokens of an answer at most.
        stop: texts before which an answer ends, such as an empty line. A checkpoint of this machine goes on past one
            at the beginning or after a colon, where nothing but an announcement stands before.
        batch_size: answers that a checkpoint of this machine writes at a time; a server is asked ``concurrency`` at a
            time.
        limit_field: what the server calls that limit.
        send_seed: ask the server for a reproducible answer; some refuse it.
        body: further fields of each request, as the server wants them.
        concurrency: requests under way at a time.
        retries: how often a request is sent again after 429, 5xx or a time-out.
        timeout: seconds until a request counts as lost.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    server: str | None = None
    model: str = Field(min_length=1)
    key_env: str = Field("OPENAI_API_KEY", pattern=r"^\w+$")
    temperature: float | None = Field(0.8, ge=0, le=2)
    top_p: float | None = Field(0.95, gt=0, le=1)
    max_tokens: int = Field(1024, ge=16)
    stop: tuple[Annotated[str, Field(min_length=1)], ...] = Field((), max_length=4)
    batch_size: int = Field(16, ge=1)
    limit_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    send_seed: bool = True
    body: dict[str, Any] = Field(default_factory=dict)
    concurrency: int = Field(8, ge=1, le=256)
    retries: int = Field(6, ge=0, le=20)
    timeout: float = Field(120.0, gt=0)

    @field_validator("server")
    @classmethod
    def _is_a_url(cls, server: str | None) -> str | None:
        if server is not None:
            check_url(server)
        return server

    @field_validator("key_env")
    @classmethod
    def _is_no_key(cls, name: str) -> str:
        if is_key(name):
            fix = "Put the key into a variable, and its name here: a key here would be written to files."
            raise InputError(Fault("key_env", HIDDEN, "the name of an environment variable", fix))
        return name

    @field_validator("body")
    @classmethod
    def _holds_no_key(cls, body: dict[str, Any]) -> dict[str, Any]:
        # The settings are written to files that others may read.
        allowed, fix = "a field that is no credential", "A key comes from the environment variable that key_env names."
        if found := [Fault(place, HIDDEN, allowed, fix) for place in credentials(body)]:
            raise InputError(found)
        return body


class Forecast(BaseModel):
    """What would be sent, before it is.

    Attributes:
        name: who would send it: a rewriter, or the judge.
        what: what would be sent.
        one: the same, where it is one thing.
        host: who would get it; nothing where a checkpoint of this machine answers.
        encrypted: whether it would travel encrypted.
        key_env: the environment variable that holds the server's key.
        key: whether it is set; the key itself is told nowhere.
        model: which model would answer.
        records: how many there are of ``what``, each draw counted.
        requests: requests that would be sent if none fails.
        cached: answers that are there already.
        prompt_tokens: tokens of these requests, from their characters.
        completion_tokens: tokens of their answers, about.
        limit: tokens of the answers at most.
    """

    name: str
    what: str = "records"
    one: str = "record"
    host: str | None
    encrypted: bool
    key_env: str | None = None
    key: KeyState | None = None
    model: str
    records: int
    requests: int
    cached: int
    prompt_tokens: int
    completion_tokens: int
    limit: int

    @property
    def statement(self) -> str:
        """The same in a sentence."""
        single = self.records == 1
        what, goes = counted(self.records, self.one, self.what), "goes" if single else "go"
        where = (
            f"to {self.host} ({'encrypted' if self.encrypted else 'NOT encrypted'})" if self.host else "to no server"
        )
        if self.host is None:
            what += " (it stays on this machine)" if single else " (they stay on this machine)"
        return (
            f"{self.name}: {what} {goes} {where}, model {self.model}, in {counted(self.requests, 'request')} of about "
            f"{counted(self.prompt_tokens, 'token')}, with about {counted(self.completion_tokens, 'token')} of answers "
            f"(at most {self.limit:,}); {counted(self.cached, 'answer is', 'answers are')} there already"
            + ("" if self.key_env is None or self.key is None else f"; {said_of_key(self.key_env, self.key)}")
        )


def said_of_key(name: str, state: KeyState) -> str:
    """Whether a key is set, in words."""
    told = {
        "set": "is set",
        "not set": "is NOT set, which only a server that wants no key takes",
        "unusable": "holds what cannot be sent as a key (printable ASCII characters only)",
    }
    return f"the environment variable {name}, for the key, {told[state]}"


@dataclass(frozen=True, slots=True)
class Question:
    """Something that is asked.

    Attributes:
        number: the caller's own.
        chat: the turns.
        draw: seed of the answer; another one is another answer.
    """

    number: int
    chat: Chat
    draw: int


class Asker:
    """A language model with what it has answered before."""

    def __init__(self, spec: AskingSpec, local: Callable[[str], Writer] | None, usage: Counter[str]) -> None:
        """Load the checkpoint, where no server is named.

        Args:
            spec: who is asked, and how.
            local: loads a checkpoint of this machine by its name.
            usage: counts what was sent and what was not; changed in place.

        Raises:
            InputError: no server is named, and no checkpoint can be loaded here.
            ModelError: the checkpoint cannot be used.
        """
        self._spec = spec
        self._usage = usage
        self._writer = None
        if spec.server is None:
            if local is None:
                raise InputError(Fault("server", None, "a base URL", "No checkpoint can be loaded here."))
            self._writer = local(spec.model)

    @property
    def identity(self) -> str:
        """Which weights answer, as far as that is known."""
        return "server" if self._writer is None else self._writer.sha256[:12]

    @property
    def host(self) -> str | None:
        """Who gets what is asked; nothing where it stays on this machine."""
        return None if self._spec.server is None else self._server().host

    @property
    def key_told(self) -> tuple[str | None, KeyState | None]:
        """The environment variable of the server's key, and whether it is set; nothing where no server is named."""
        spec = self._spec
        return (None, None) if spec.server is None else (spec.key_env, key_state(spec.key_env))

    def key(self, question: Question) -> str:
        """What an answer is kept by: who was asked, what, how, and which draw it is."""
        spec = self._spec
        who = spec.server if self._writer is None else self._writer.sha256
        how: list[Any] = [spec.temperature, spec.top_p, spec.max_tokens, spec.body]
        if spec.stop:
            how.append(spec.stop)
        return key_of({"who": who, "model": spec.model, "chat": question.chat, "how": how, "draw": question.draw})

    def ask(self, questions: Sequence[Question], answers: Answers) -> Iterator[tuple[int, Answer]]:
        """Answers with the number of their question, those that are there already first; errors are not kept.

        Raises:
            ServerError: the server cannot be used.
            StorageError: an answer cannot be written down.
        """
        missing: list[tuple[Question, str]] = []
        for question in questions:
            key = self.key(question)
            found = answers.find(key)
            if found is None:
                missing.append((question, key))
            else:
                self._usage["answers from the cache"] += 1
                yield question.number, found
        for at, answer in self._send([question for question, _ in missing]):
            question, key = missing[at]
            if answer.finish != "error":
                answers.keep(key, answer)
            self._usage["requests"] += 1
            self._usage["prompt tokens"] += answer.prompt_tokens
            self._usage["completion tokens"] += answer.completion_tokens
            yield question.number, answer

    def ask_leave(self, told: Forecast, agreed: Callable[[str], bool] | None) -> None:
        """Say what would be sent where, and go on only if that is agreed to.

        Raises:
            InputError: it is not; nothing was sent.
        """
        if self._spec.server is None or told.requests == 0:
            return
        if agreed is None or not agreed(told.statement):
            raise InputError(
                Fault(
                    "server",
                    self._spec.server,
                    "a server that you agree to send these records to",
                    f"{told.statement}. Nothing was sent: add --yes to send them, or look first with --dry-run.",
                )
            )

    def _send(self, questions: Sequence[Question]) -> Iterator[tuple[int, Answer]]:
        if not questions:
            return
        spec = self._spec
        if self._writer is not None:
            writing = Writing(spec.max_tokens, spec.temperature or 0.0, spec.top_p or 1.0, spec.stop, spec.batch_size)
            yield from self._writer.write([each.chat for each in questions], [each.draw for each in questions], writing)
            return
        server = self._server()
        try:
            yield from server.answers([Request(each.chat, each.draw if spec.send_seed else None) for each in questions])
        finally:
            self._usage["requests sent again"] += server.retried

    def _server(self) -> Server:
        spec = self._spec
        if spec.server is None:
            raise ServerError("no server is named")
        sampling = {"temperature": spec.temperature, "top_p": spec.top_p, spec.limit_field: spec.max_tokens}
        body: dict[str, Any] = {key: value for key, value in sampling.items() if value is not None}
        if spec.stop:
            body["stop"] = list(spec.stop)
        if spec.body:
            body["extra_body"] = spec.body
        return Server(spec.server, spec.model, body, spec.key_env, spec.concurrency, spec.retries, spec.timeout)
