"""Which membership scores are taken, and how."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, field_validator

from davylamp.errors import InputError
from davylamp.measures.membership import registry
from davylamp.measures.membership.evidence import Span


class MembershipSettings(BaseModel):
    """Which membership scores are taken, and how.

    Attributes:
        scores: names of scores; all but the costly ones if none are given, and ``reference`` if there is one.
        spans: ``record`` scores all tokens of a record that have a prefix, ``secret`` those that cover its secret.
        k: share of the tokens that Min-K% scores take, rounded up.
        fprs: false-positive rates at which members are counted.
        shots: records of ``recall``'s prefix; fewer where they do not fit the model's context.
        neighbours: copies of each record with replaced words, for ``neighbourhood``.
        replaced: share of a record's words that each copy replaces, at least one.
        masked_lm: folder of a masked language model that proposes the words; the release itself if none.
        reference: a model for the score ``reference`` alone, read with its own tokenizer; that of the audit if none.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    scores: tuple[str, ...] | None = None
    spans: tuple[Span, ...] = Field(("record", "secret"), min_length=1)
    k: float = Field(0.2, gt=0, le=1)
    fprs: tuple[Annotated[float, Field(gt=0, lt=1)], ...] = Field((0.001, 0.01, 0.05), min_length=1)
    shots: int = Field(4, ge=1)
    neighbours: int = Field(16, ge=1)
    replaced: float = Field(0.1, gt=0, le=1)
    masked_lm: str | None = None
    reference: str | None = None

    @field_validator("scores")
    @classmethod
    def _known(cls, names: tuple[str, ...] | None) -> tuple[str, ...] | None:
        if names is None:
            return None
        if not names:
            raise ValueError(f"name at least one of {', '.join(registry.names())}")
        try:
            return tuple(registry.find(name).name for name in dict.fromkeys(names))
        except InputError as error:
            raise ValueError(str(error)) from error

    @field_validator("spans", "fprs")
    @classmethod
    def _once(cls, values: tuple[object, ...]) -> tuple[object, ...]:
        if len(set(values)) < len(values):
            raise ValueError("one stands twice")
        return values

    def chosen(self, reference: bool) -> tuple[registry.Score, ...]:
        """The scores to take.

        Args:
            reference: whether there is a reference model.
        """
        if self.scores is not None:
            return tuple(registry.find(name) for name in self.scores)
        known = (registry.find(name) for name in registry.names())
        return tuple(each for each in known if not each.costly and (reference or "reference" not in each.needs))

    @property
    def wants_reference(self) -> bool:
        """Whether a score that was asked for by name needs a reference model."""
        return any("reference" in registry.find(name).needs for name in self.scores or ())
