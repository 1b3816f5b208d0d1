"""What ``unlearning.json`` holds: what was forgotten, what the verifier said, and what the other checks say."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from davylamp.errors import RunFolderError
from davylamp.measures.constructed.forgotten import ForgottenCell
from davylamp.measures.forgetting import Extraction
from davylamp.measures.utility import HeldOutLoss
from davylamp.protect.afterwards.reports import Outcome, RoundReport
from davylamp.protect.afterwards.spec import UnlearningSpec
from davylamp.runs import files
from davylamp.verdict.roc import Auc
from davylamp.verdict.roc_paired import AucDifference

FILE = "unlearning.json"
"""The result, beside the weights that it is of."""
SCHEMA_VERSION: Literal[1] = 1


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class RetainPerplexity(_Strict):
    """Perplexity of the replies of retain rows, ``exp`` of the mean loss of a token.

    Attributes:
        value: the perplexity.
        low: lower end of its 95% interval, whose sampling unit is the row; none where there is one row only.
        high: upper end.
        tokens: reply tokens.
    """

    value: float
    low: float | None
    high: float | None
    tokens: int

    @classmethod
    def of(cls, loss: HeldOutLoss) -> RetainPerplexity:
        """From a mean loss in nats a token; one that no float holds is cut off at ``exp(700)``."""
        value, low, high = (
            None if each is None else math.exp(min(each, 700.0)) for each in (loss.loss, loss.low, loss.high)
        )
        return cls(value=value or 1.0, low=low, high=high, tokens=loss.tokens)


class Look(_Strict):
    """What one model says.

    Attributes:
        c: extraction from the forgotten records' own prefixes: what the verifier reads.
        triggers: extraction from the given triggers; none if none were given.
        held_out: perplexity of retain rows that were not stepped on.
        retain: perplexity of retain rows that were; none where only the others were read.
    """

    c: Extraction
    triggers: Extraction | None
    held_out: RetainPerplexity
    retain: RetainPerplexity | None = None


class Cell(_Strict):
    """Extraction from the own prefixes of one arm and dose, before and after."""

    arm: str
    dose: int
    before: Extraction
    after: Extraction


class Round(_Strict):
    """A round, and what the model said after it.

    Attributes:
        report: what was done.
        c: extraction from the records' own prefixes.
        held_out: perplexity of retain rows that were not stepped on.
        passed: whether the verifier passed.
    """

    report: RoundReport
    c: Extraction
    held_out: RetainPerplexity
    passed: bool


class MembershipCheck(_Strict):
    """Whether the forgotten records can be told from twins that were never planted, by the score ``loss``.

    Attributes:
        span: ``secret`` or ``record``.
        before: AUC before; 0.5 is chance.
        after: AUC afterwards. Far *below* 0.5 betrays membership as well: the forgotten are the unlikely ones.
        difference: after less before, on the same canaries.
        inverted: whether the whole interval of ``after`` lies below 0.5.
        construction: kind and tokens of the constructions that it is of, for people; none of canaries.
    """

    span: Literal["secret", "record"]
    before: Auc
    after: Auc
    difference: AucDifference
    inverted: bool
    construction: str | None = None

    @property
    def of(self) -> str:
        """What it is of, to go behind its span; nothing of canaries."""
        return "" if self.construction is None else f", {self.construction}"


class Relearning(_Strict):
    """The unlearned model after a few steps on rows that hold none of the forgotten secrets.

    Attributes:
        source: where the rows came from.
        rows: how many there were.
        steps: optimiser steps, 0 for the unlearned model itself.
        c: extraction after each of ``steps``.
        triggers: the same from the triggers; empty if none were given.
        learning_rate: of AdamW.
    """

    source: str
    rows: int
    steps: tuple[int, ...]
    c: tuple[Extraction, ...]
    triggers: tuple[Extraction, ...]
    learning_rate: float


class QuantisedCopy(_Strict):
    """The unlearned model with rounded weights."""

    bits: int
    how: str
    look: Look


class MergedCopy(_Strict):
    """The unlearned model with its adapter merged.

    Attributes:
        look: what it says.
        difference: largest difference of a secret's log-likelihood from the unmerged model's, in nats.
        same: whether as many secrets come out.
    """

    look: Look
    difference: float
    same: bool


class UnlearningResult(_Strict):
    """What unlearning did, and what is left.

    Attributes:
        schema_version: version of this schema.
        outcome: see :data:`davylamp.protect.afterwards.reports.Outcome`.
        statement: the outcome in a sentence.
        passed_at: round after which the verifier passed first; 0 for before any, none for never.
        spec: the settings.
        learning_rate: the one that was used.
        tuning: ``full``, or ``adapter``.
        forgotten: ids of the canaries, or of the instances of constructions, of the forget set.
        forget_rows: rows that were trained on and hold their records; each distinct record is stepped on once a round.
        retain_source: where retain rows came from.
        retain_rows: retain rows that were at hand.
        retain_left_out: rows that were not, since they hold a forgotten secret or a trigger, or do not fit
            into the model's context.
        before: the model as it was given.
        after: the model as it was saved.
        cells: extraction by arm and dose, of canaries.
        constructions: extraction from c, from triggers and by who knows the construction, by line and size; empty
            where canaries are forgotten.
        rounds: the rounds, in order.
        membership: by span, of constructions by line and size too; empty where there is no twin to compare with.
        relearned: none where it was left out.
        quantised: by width.
        merged: none where no adapter was trained.
        notes: what a reader must know.
        planted_sha256: hash of the planted file.
        before_sha256: hash of the weights that were given.
        after_sha256: hash of the weights that were saved.
        style: how records were rendered.
        seconds: wall time of the rounds.
        versions: of what the numbers depend on.
        protection: the interventions that made the rows that were trained on, and forgotten, of the planted ones; none
            where the planted rows were.
    """

    schema_version: Literal[1] = SCHEMA_VERSION
    outcome: Outcome
    statement: str
    passed_at: int | None
    spec: UnlearningSpec
    learning_rate: float
    tuning: Literal["full", "adapter"]
    forgotten: tuple[str, ...]
    forget_rows: int
    retain_source: str
    retain_rows: int
    retain_left_out: int
    before: Look
    after: Look
    cells: tuple[Cell, ...]
    constructions: tuple[ForgottenCell, ...] = ()
    rounds: tuple[Round, ...]
    membership: tuple[MembershipCheck, ...]
    relearned: Relearning | None
    quantised: tuple[QuantisedCopy, ...]
    merged: MergedCopy | None
    notes: tuple[str, ...]
    planted_sha256: str
    before_sha256: str
    after_sha256: str
    style: str
    seconds: float
    versions: dict[str, str]
    protection: str | None = None

    @classmethod
    def load(cls, path: Path) -> UnlearningResult:
        """Read a result.

        Raises:
            RunFolderError: it is missing or damaged.
        """
        try:
            return cls.model_validate_json(path.read_bytes())
        except OSError as error:
            raise RunFolderError(
                f"cannot read {path}: {error.strerror or error}; run `davylamp unlearn` first"
            ) from error
        except ValidationError as error:
            raise RunFolderError(f"{path} is damaged; run `davylamp unlearn` again") from error

    def save(self, path: Path) -> None:
        """Write the result.

        Raises:
            StorageError: it cannot be written.
        """
        files.write_json(path, self.model_dump(mode="json"))
