"""What a membership score may read of one span of one record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from davylamp.errors import ScoringError

Array = NDArray[np.float64]
Need = Literal["logprobs", "moments", "reference", "text", "lowercase", "shots", "neighbours", "gradients"]
Span = Literal["record", "secret"]
"""All tokens of a record that have a token before them, or those that cover its secret."""


@dataclass(frozen=True, slots=True, eq=False)
class Evidence:
    """What is known of one span of one record; a score reads what its ``needs`` name, and log-probabilities always.

    Attributes:
        canary: name of the record, for messages.
        span: ``record`` or ``secret``.
        k: share of the tokens that Min-K% scores take, in (0, 1].
        gathered: what each property below returns.
    """

    canary: str
    span: Span
    k: float
    gathered: Mapping[str, Any]

    @property
    def logprobs(self) -> Array:
        """Log-probability in nats of each token of the span after all before it, shape (tokens,), at least one.

        A token that is certain has exactly 0 and is there like any other.
        """
        return cast(Array, self._get("logprobs"))

    @property
    def means(self) -> Array:
        """Mean log-probability in nats over the whole vocabulary, weighted by the model's own probabilities.

        Shape (tokens,); minus the entropy of each place.
        """
        return cast("tuple[Array, Array]", self._get("moments"))[0]

    @property
    def deviations(self) -> Array:
        """Standard deviation of the same in nats, shape (tokens,)."""
        return cast("tuple[Array, Array]", self._get("moments"))[1]

    @property
    def reference(self) -> Array:
        """Log-probabilities in nats that the reference gives the same text, a number for each of its *own* tokens."""
        return cast(Array, self._get("reference"))

    @property
    def text(self) -> str:
        """The span's characters."""
        return cast(str, self._get("text"))

    @property
    def lowercase(self) -> Array:
        """Log-probabilities in nats of the span where the whole record is in lower case."""
        return cast(Array, self._get("lowercase"))

    @property
    def conditional(self) -> Array:
        """Log-probabilities in nats of the span's tokens after records that were never trained on, shape (tokens,)."""
        return cast(Array, self._get("shots"))

    @property
    def neighbours(self) -> tuple[Array, ...]:
        """Log-probabilities in nats of the span in each copy of the record that has some words replaced."""
        return cast("tuple[Array, ...]", self._get("neighbours"))

    @property
    def gradient_norm(self) -> float:
        """Euclidean norm of the gradient of the span's mean loss in nats by the parameters."""
        return cast(float, self._get("gradients"))

    def only(self, needs: frozenset[Need]) -> Evidence:
        """The same without what a score does not name, so that none works only beside another that does."""
        kept: dict[str, Any] = {need: self.gathered[need] for need in (*needs, "logprobs") if need in self.gathered}
        return Evidence(self.canary, self.span, self.k, kept)

    def _get(self, need: str) -> object:
        if need not in self.gathered:
            there = ", ".join(sorted(self.gathered))
            raise ScoringError(f"canary {self.canary}: a score reads {need!r}, but its needs name only {there}")
        return self.gathered[need]
