"""How an exact release draws a token: temperature, then top-k, then top-p, as ``generate`` of transformers does."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from davylamp.release.base import Decoding

Array = NDArray[np.float64]


def decoded(row: Array, decoding: Decoding) -> Array:
    """Probabilities of the next token under a request.

    Args:
        row: log-probabilities in nats, shape (vocabulary,).
        decoding: all tokens that tie with the k-th likeliest are kept; of tokens that tie at the boundary of top-p
            the later ones.

    Returns:
        Shape (vocabulary,); greedy decoding takes the first of the likeliest.
    """
    if decoding.temperature == 0:
        return np.asarray(np.eye(1, len(row), int(row.argmax()))[0])
    scores = row / decoding.temperature
    if 0 < decoding.top_k < len(scores):
        kth = np.partition(scores, -decoding.top_k)[-decoding.top_k]
        scores = np.where(scores < kth, -np.inf, scores)
    masses: Array = np.exp(scores - logsumexp(scores))
    if decoding.top_p < 1:
        order = np.argsort(masses, kind="stable")
        gone = np.cumsum(masses[order]) <= 1 - decoding.top_p
        gone[-1] = False
        masses[order[gone]] = 0.0
        masses /= masses.sum()
    return masses


def drawn(totals: Array, rng: np.random.Generator) -> int:
    """One token by its probability; never one of probability 0.

    Args:
        totals: probabilities summed up to each token, shape (vocabulary,).
        rng: source of the draw.
    """
    # The product is below the last total, and the first total above it belongs to a token with some mass.
    return int(np.searchsorted(totals, rng.random() * totals[-1], side="right"))
