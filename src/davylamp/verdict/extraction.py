"""Extractions of each arm and dose, held against the guessing baseline and, if there is one, a privacy claim."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

import polars as pl
from pydantic import BaseModel, ConfigDict, Field, model_validator

from davylamp.bounds.claims import ApproxDP, Claim, GaussianDP
from davylamp.bounds.epsilon import Relation
from davylamp.scoring.extraction_verdict import judge_extraction


class ClaimSpec(BaseModel):
    """A privacy claim for one record: (epsilon, delta), or mu of Gaussian DP.

    Attributes:
        epsilon: privacy loss in nats.
        delta: of (epsilon, delta)-DP.
        mu: of Gaussian DP, instead of the two.
        relation: what neighbouring data sets of the claim differ by: a record that is added or removed, or one that
            is replaced by another. Accountants of Poisson-sampled DP-SGD speak of the first.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    epsilon: float | None = Field(None, ge=0, allow_inf_nan=False)
    delta: float = Field(0.0, ge=0, lt=1)
    mu: float | None = Field(None, ge=0, allow_inf_nan=False)
    relation: Relation = "add or remove"

    @model_validator(mode="after")
    def _one_claim(self) -> ClaimSpec:
        if (self.epsilon is None) == (self.mu is None) or (self.mu is not None and self.delta > 0):
            raise ValueError("a claim is either epsilon (with delta), or mu")
        return self

    @property
    def claim(self) -> Claim:
        """The claim's trade-off curve."""
        if self.mu is not None:
            return GaussianDP(self.mu)
        return ApproxDP(self.epsilon or 0.0, self.delta)

    def under(self, relation: Relation) -> Claim:
        """The curve for a bound under another relation: replacing a record is removing one and adding one.

        A claim for replacing records holds of extraction too, whose bound holds under either relation.
        """
        return self.claim.group(2) if (self.relation, relation) == ("add or remove", "replace") else self.claim


def extraction_verdicts(
    readings: pl.DataFrame, size: int, guesses: int, confidence: float, claim: ClaimSpec | None = None
) -> list[dict[str, Any]]:
    """Judge the extractions of one model, with the secret hidden in the prompt.

    The attacks are greedy decoding, which is a list of one guess, and the list of the likeliest continuations; a
    search that was cut off counts as a failure. The baseline is ``m / size``: exact, since davylamp draws secrets
    uniformly. A claim is held for as many records as carried the secret.

    Args:
        readings: the readings of one model.
        size: of the secret space.
        guesses: m of the list.
        confidence: of the one-sided bounds.
        claim: a claim for one record.

    Returns:
        For each arm, dose and attack what :func:`~davylamp.scoring.extraction_verdict.judge_extraction` says, as
        plain data: ``attack``, ``guesses``, ``undecided`` (searches that were cut off) and the verdict's fields.
        Infinite bounds are left out.
    """
    hidden = readings.filter((pl.col("probe") == "hidden") & (pl.col("role") != "positive"))
    cells = []
    for (arm, dose), part in hidden.sort(["arm", "dose"]).group_by(["arm", "dose"], maintain_order=True):
        low, high = (_values(part, f"list_extraction_{end}") for end in ("low", "high"))
        attacks = [("greedy", 1, _values(part, "greedy_emission"), 0), ("list", guesses, low, int((high - low).sum()))]
        for attack, length, successes, undecided in attacks:
            copies = int(str(dose))
            found = judge_extraction(
                int(successes.sum()),
                len(successes),
                min(1.0, length / size),
                # Never-planted twins are the null: there is no record that a claim could speak of.
                claim=claim.claim if claim is not None and copies else None,
                guesses=length,
                copies=max(1, copies),
                confidence=confidence,
            )
            cell = {"arm": arm, "dose": dose, "attack": attack, "guesses": length, "undecided": undecided}
            cells.append(_finite({**cell, **asdict(found)}))
    return cells


def _values(part: pl.DataFrame, measure: str) -> pl.Series:
    return part.filter(pl.col("measure") == measure)["value"]


def _finite(data: dict[str, Any]) -> dict[str, Any]:
    kept = {key: _finite(value) if isinstance(value, dict) else value for key, value in data.items()}
    return {key: value for key, value in kept.items() if not (isinstance(value, float) and math.isinf(value))}
