"""Where a corpus comes from, as a recipe says it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from davylamp.corpora import emails
from davylamp.corpora.hub import read_hub
from davylamp.corpora.readers import read_corpus
from davylamp.corpora.records import Corpus, Message, Record
from davylamp.corpora.rows import Columns, Format
from davylamp.errors import CorpusError


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Wrap(_Strict):
    """Words around each pair of a corpus: ``{prompt}`` and ``{completion}`` stand for what the corpus holds.

    Attributes:
        system: a system turn before each pair, which makes chat messages of it.
        prompt: must hold ``{prompt}``.
        completion: must hold ``{completion}``.
    """

    system: str | None = None
    prompt: str = "{prompt}"
    completion: str = "{completion}"

    @model_validator(mode="after")
    def _keeps_both(self) -> Wrap:
        for name in ("prompt", "completion"):
            if "{" + name + "}" not in getattr(self, name):
                raise ValueError(f"{name} must hold {{{name}}}")
        return self

    def record(self, record: Record) -> Record:
        """The pair in its words."""
        prompt = self.prompt.replace("{prompt}", record.prompt[0].content)
        completion = self.completion.replace("{completion}", record.reply)
        if self.system is None:
            return Record.of_pair(prompt, completion, record.image)
        turns = (Message("system", self.system), Message("user", prompt), Message("assistant", completion))
        return Record.of_messages(turns, record.image)


class CorpusSpec(_Strict):
    """A corpus: a file, a data set of the hub, or a generator; exactly one of them.

    Attributes:
        path: a JSONL or CSV file; for TAT-QA a file of JSON or of JSON lines.
        hub: id of a data set on the Hugging Face hub.
        split: split of the hub's data set.
        config: configuration of the hub's data set.
        generator: ``emails``, the drafts and polished emails of the demo.
        rows: rows to generate, or to read at most, from the beginning and before ``max_chars``.
        seed: seed of the generator.
        columns: which columns are the prompt and the completion, or the text.
        hub_columns: the same for the hub's data set, where its columns are called otherwise than a file's.
        wrap: words around each pair.
        format: how the source is written: ``rows``, or ``tatqa`` (see :mod:`davylamp.corpora.tatqa`).
        max_chars: leave out rows whose prompt has more characters, before ``wrap`` adds its own. The prompt is all
            turns before the reply, and of a plain text the text itself.
    """

    path: Path | None = None
    hub: str | None = None
    split: str = "train"
    config: str | None = None
    generator: Literal["emails"] | None = None
    rows: int | None = Field(None, ge=1)
    seed: int = Field(0, ge=0)
    columns: Columns | None = None
    hub_columns: Columns | None = None
    wrap: Wrap | None = None
    format: Format = "rows"
    max_chars: int | None = Field(None, ge=1)

    @model_validator(mode="after")
    def _one_source(self) -> CorpusSpec:
        given = [name for name in ("path", "hub", "generator") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"exactly one of path, hub and generator must be given, not {given or 'none'}")
        if self.generator and self.rows is None:
            raise ValueError("a generator needs rows")
        if self.format != "rows":
            unfit = [name for name in ("generator", "columns", "hub_columns") if getattr(self, name) is not None]
            if unfit:
                raise ValueError(f"format {self.format} says itself what is read: leave out {' and '.join(unfit)}")
        return self

    def same_source(self, other: CorpusSpec) -> bool:
        """Whether both read the same file or the same split, whatever they take of it."""
        if self.path is not None and other.path is not None:
            return self.path.resolve() == other.path.resolve()
        mine, others = (each.model_dump(include={"hub", "config", "split"}) for each in (self, other))
        return self.hub is not None and mine == others

    def load(self) -> Corpus:
        """Read or generate the corpus.

        Raises:
            CorpusError: it cannot be read, has no pairs to wrap, or no row that is short enough.
            MissingExtraError: a hub data set is asked for and ``datasets`` is not installed.
        """
        if self.generator is not None:
            corpus = emails.generate(self.rows or 0, self.seed)
        elif self.hub is not None:
            columns = self.hub_columns or self.columns
            corpus = read_hub(self.hub, self.split, self.config, columns, self.rows, self.format)
        else:
            corpus = read_corpus(self.path or Path(), columns=self.columns, limit=self.rows, format=self.format)
        if self.max_chars is not None:
            corpus = _shorter(corpus, self.max_chars)
        if self.wrap is None:
            return corpus
        if corpus.shape != "prompt_completion":
            raise CorpusError(f"wrap needs rows of prompt and completion, but {corpus.source} holds {corpus.shape}")
        records = tuple(self.wrap.record(record) for record in corpus.records)
        return replace(corpus, records=records)


def _shorter(corpus: Corpus, most: int) -> Corpus:
    """The rows whose prompt has ``most`` characters or fewer; how many were left out is said in the source's name."""
    lengths = [sum(len(turn.content) for turn in each.prompt) if each.prompt else len(each.reply) for each in corpus]
    kept = tuple(record for record, length in zip(corpus, lengths, strict=True) if length <= most)
    if not kept:
        raise CorpusError(
            f"no row of {corpus.source} has a prompt of at most {most:,} characters (the shortest has "
            f"{min(lengths):,}): raise max_chars"
        )
    left = len(corpus) - len(kept)
    source = f"{corpus.source} ({left:,} of {len(corpus):,} rows left out: prompts of more than {most:,} characters)"
    return replace(corpus, records=kept, source=source)
