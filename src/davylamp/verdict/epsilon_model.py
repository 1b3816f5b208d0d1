"""The lower bounds on epsilon of a run, as values and as a file."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from davylamp.bounds.epsilon import Method, Relation
from davylamp.measures.shadow_results import SCORES
from davylamp.runs import files

Audit = Literal["pairs", "coins", "extraction"]


class EpsilonSettings(BaseModel):
    """How lower bounds on epsilon are worked out.

    Attributes:
        delta: at which they shall hold.
        score: membership score that guesses which of a pair was planted, over the secret's tokens; settled before
            the audit, since the best of several would have to be charged for.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    delta: float = Field(1e-5, ge=0, lt=1)
    score: str = "loss"

    @field_validator("score")
    @classmethod
    def _knows_no_dose(cls, score: str) -> str:
        # They depend on how often a record stood in the shadows, which a canary and its partner need not share: then
        # the dose would decide the guess, of a model that was never trained too.
        if score in SCORES:
            raise ValueError("a score from shadows guesses no pairs: it has a bound of its own, from coins")
        return score


class EpsilonRow(BaseModel):
    """A lower bound on epsilon from the canaries of one arm and dose.

    Attributes:
        arm: the arm.
        dose: occurrences of each canary; the bound is for one of them.
        audit: ``pairs`` (planted canary or twin: which of two), ``coins`` (a shadow, in or out), or ``extraction``.
        score: what guessed, or nothing for an extraction.
        method: which theorem the bound comes from.
        relation: what neighbouring data sets differ by.
        canaries: pairs, records with a coin, or secrets.
        guesses: guesses that were made.
        correct: those that were right.
        eps_low: the bound in nats; none where it is infinite.
        mu_low: lower bound on mu for Gaussian claims, or none.
        reach: what ``eps_low`` would have been with every guess right; none where that is infinite.
        upper: the accountant's epsilon at this delta, or none.
        verdict: ``refuted``, ``consistent``, ``could-not-refute``; none without an upper bound.
        statement: the finding in one sentence.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    arm: str
    dose: int
    audit: Audit
    score: str | None
    method: Method
    relation: Relation
    canaries: int
    guesses: int
    correct: int
    eps_low: float | None
    mu_low: float | None
    reach: float | None
    upper: float | None
    verdict: str | None
    statement: str


class EpsilonResult(BaseModel):
    """All lower bounds of a run, as ``epsilon.json`` holds them.

    Attributes:
        schema_version: version of this schema.
        confidence: of each bound on its own.
        delta: at which they hold.
        claim: what they are held against, in words, or none.
        rows: the bounds.
        notes: what could not be bounded, and why; what the relation means.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    schema_version: Literal[1] = 1
    confidence: float
    delta: float
    claim: str | None
    rows: tuple[EpsilonRow, ...]
    notes: tuple[str, ...]

    def save(self, path: Path) -> None:
        """Write it.

        Raises:
            StorageError: it cannot be written.
        """
        files.write_json(path, self.model_dump(mode="json"))

    @classmethod
    def load(cls, path: Path) -> EpsilonResult:
        """Read it.

        Raises:
            RunFolderError: it is missing, damaged, or of another schema.
        """
        return files.read_result(cls, path, "bounds on epsilon", "`davylamp audit` with membership", "`davylamp audit`")
