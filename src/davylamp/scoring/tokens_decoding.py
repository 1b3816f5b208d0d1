"""Decoding schemes as distributions: what temperature, top-k and top-p make of a row of log-probabilities.

The same filters in the same order as in ``transformers``' ``generate``: temperature, then top-k (every token as likely
as the k-th is kept), then top-p (the likeliest tokens until their mass is at least p; at least one is kept). All is
computed in float64, where ``generate`` sums in float32: a token that stands on the boundary, within that rounding, may
fall to the other side there. Which of several exactly tied tokens are cut at the boundary of top-p is left open by
``generate`` (its sort is not stable); here the later ones are kept.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from davylamp.release.base import Decoding
from davylamp.scoring.guessing_rows import log_totals


@dataclass(frozen=True, slots=True)
class Scheme:
    """How the next token is drawn.

    Attributes:
        temperature: divides the logits; 0 is greedy decoding.
        top_k: keep the k likeliest tokens; 0 keeps all.
        top_p: keep the smallest set of tokens of at least this mass; 1 keeps all.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0

    def __post_init__(self) -> None:
        """Check the ranges.

        Raises:
            InputError: a field is outside its range; all are named.
        """
        self.decoding(1)

    def decoding(self, max_new_tokens: int, seed: int = 0) -> Decoding:
        """The same scheme as a request to a release."""
        return Decoding(max_new_tokens, self.temperature, self.top_k, self.top_p, seed)

    def apply(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        """Log-probabilities in nats under the scheme; minus infinity for a token that it never draws.

        Args:
            rows: log-probabilities (or logits) in nats, shape (rows, vocabulary).
        """
        if self.temperature == 0:
            result = np.full(rows.shape, -np.inf)
            # Of tokens that are equally likely the first is taken, as argmax does.
            result[np.arange(len(rows)), rows.argmax(axis=1)] = 0.0
            return result
        scores = rows / self.temperature
        if 0 < self.top_k < scores.shape[1]:
            kth = np.partition(scores, -self.top_k, axis=1)[:, -self.top_k, None]
            scores = np.where(scores < kth, -np.inf, scores)
        if self.top_p < 1:
            scores = _nucleus(scores, self.top_p)
        return np.minimum(scores - log_totals(scores)[:, None], 0.0)


GREEDY = Scheme(temperature=0.0)
"""The likeliest token each time."""


def _nucleus(scores: NDArray[np.float64], top_p: float) -> NDArray[np.float64]:
    order = np.argsort(scores, axis=1, kind="stable")
    ascending = np.take_along_axis(scores, order, axis=1)
    mass = np.cumsum(np.exp(ascending - log_totals(ascending)[:, None]), axis=1)
    removed = mass <= 1 - top_p
    removed[:, -1] = False
    gone = np.empty_like(removed)
    np.put_along_axis(gone, order, removed, axis=1)
    return np.where(gone, -np.inf, scores)
