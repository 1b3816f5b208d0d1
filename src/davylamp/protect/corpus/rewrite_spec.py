"""Settings of the rewriters, and what they would send before they do."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, Field, field_validator, model_validator

from davylamp.corpora.spec import CorpusSpec
from davylamp.protect.corpus.base import InterventionSpec
from davylamp.protect.corpus.server import check_url

Name = Literal["rewrite", "privacy_rewrite", "summary", "privacy_summary"]


FRESH = 771_000_000
"""First of the seeds from which exemplars are generated; cohorts begin at 0."""
GENERATED = 20
"""Exemplars that are generated, of which two are shown."""


def _corpus(value: Any) -> Any:
    """A corpus by the word of its generator, by a path, or as a recipe names one."""
    if value == "clinical":
        return {"generator": "clinical", "rows": GENERATED, "seed": FRESH}
    return {"path": value} if isinstance(value, str | Path) else value


class RewriteSpec(InterventionSpec):
    """Settings of a rewriter.

    Attributes:
        name: which of the four.
        server: base URL of a server that speaks the OpenAI protocol; a checkpoint of this machine writes if none.
        model: the model's name on the server, or what ``--model`` takes.
        key_env: environment variable that holds the server's key.
        prompts: file of prompts in place of the package's.
        exemplars: records of which two show the form to the summary rewriters, none of the cohort: a file, a corpus as
            a recipe names one, or ``clinical``, made-up patients of a seed that is used for nothing else.
        temperature: of sampling; 0 takes the likeliest token; nothing sends none.
        top_p: share of the mass that is sampled from; nothing sends none.
        max_tokens: tokens of an answer at most.
        limit_field: what the server calls that limit.
        send_seed: ask the server for a reproducible answer; some refuse it.
        body: further fields of each request, as the server wants them.
        attempts: draws until an answer is a record; each is paid.
        concurrency: requests under way at a time.
        retries: how often a request is sent again after 429, 5xx or a time-out.
        timeout: seconds until a request counts as lost.
        form: share of the form's labels that an answer must hold.
        longest: length of an answer at most, as a multiple of the record's.
    """

    name: Name
    server: str | None = None
    model: str = Field(min_length=1)
    key_env: str = Field("OPENAI_API_KEY", pattern=r"^\w+$")
    prompts: Path | None = None
    exemplars: Annotated[CorpusSpec, BeforeValidator(_corpus)] | None = None
    temperature: float | None = Field(0.8, ge=0, le=2)
    top_p: float | None = Field(0.95, gt=0, le=1)
    max_tokens: int = Field(1024, ge=16)
    limit_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    send_seed: bool = True
    body: dict[str, Any] = Field(default_factory=dict)
    attempts: int = Field(1, ge=1, le=10)
    concurrency: int = Field(8, ge=1, le=256)
    retries: int = Field(6, ge=0, le=20)
    timeout: float = Field(120.0, gt=0)
    form: float = Field(0.5, ge=0, le=1)
    longest: float = Field(3.0, ge=1)

    @field_validator("server")
    @classmethod
    def _is_a_url(cls, server: str | None) -> str | None:
        if server is not None:
            check_url(server)
        return server

    @model_validator(mode="after")
    def _shows_the_form(self) -> RewriteSpec:
        if self.name.endswith("summary") and self.exemplars is None:
            raise ValueError(
                f"{self.name} shows the form by two records: give exemplars=FILE of records that are not in the "
                "cohort, or exemplars=clinical"
            )
        return self


class Forecast(BaseModel):
    """What a rewriter would send, before it does.

    Attributes:
        name: which rewriter.
        host: who would get the records; nothing where a checkpoint of this machine writes.
        encrypted: whether they would travel encrypted.
        model: which model would write.
        records: different records and draws.
        requests: requests that would be sent if none fails.
        cached: answers that are there already.
        prompt_tokens: tokens of these requests, from their characters.
        completion_tokens: tokens of their answers, if they are as long as the records.
        limit: tokens of the answers at most.
    """

    name: str
    host: str | None
    encrypted: bool
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
        where = (
            f"to {self.host} ({'encrypted' if self.encrypted else 'NOT encrypted'})" if self.host else "to no server"
        )
        what = f"{self.records:,} records" if self.host else f"{self.records:,} records (they stay on this machine)"
        return (
            f"{self.name}: {what} go {where}, model {self.model}, in {self.requests:,} requests of about "
            f"{self.prompt_tokens:,} tokens, with about {self.completion_tokens:,} tokens of answers (at most "
            f"{self.limit:,}); {self.cached:,} answers are there already"
        )
