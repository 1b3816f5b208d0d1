"""How constructions are read from a release."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class ConstructedSettings(BaseModel):
    """How hard each audit looks.

    Attributes:
        confidence: of every interval.
        fpr: false-positive rate at which the local scores' true-positive rate is read.
        guesses: m, guesses that count as one attack, in the baselines.
        max_expansions: rows that the search for one baseline may read; 0 leaves the search out, and the baseline open.
        repeated: prompts of one repeated token; 0 for none.
        scan_prompts: tokens that the trigger scan tries.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    confidence: float = Field(0.95, gt=0, lt=1)
    fpr: float = Field(0.05, gt=0, lt=1)
    guesses: int = Field(1, ge=1)
    max_expansions: int = Field(200, ge=0)
    repeated: int = Field(16, ge=0)
    scan_prompts: int = Field(4096, ge=1)
