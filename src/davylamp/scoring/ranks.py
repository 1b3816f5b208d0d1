"""Ranks and exposure: where the true secret stands among all candidates."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from davylamp.errors import Fault, InputError, ScoringError

TIE_MARGIN = 1e-4
"""Nats within which two candidates count as tied: what a different order of float32 sums can change."""


@dataclass(frozen=True, slots=True)
class Rank:
    """Where the true secret stands.

    Attributes:
        rank: mid-rank, from 1 (the most likely): 1 + those above + half of those tied with it.
        tied: other candidates tied with it, within :data:`TIE_MARGIN`.
        candidates: size of the candidate set.
        log_likelihood: of the true secret after its prefix, in nats.
    """

    rank: float
    tied: int
    candidates: int
    log_likelihood: float

    @property
    def exposure(self) -> float:
        """Exposure in bits: ``log2(candidates) - log2(rank)`` (Carlini et al. 2019, 1802.08232, section 4.2)."""
        return math.log2(self.candidates) - math.log2(self.rank)


def rank_among(log_likelihoods: NDArray[np.float64], true: int, name: str) -> Rank:
    """The exact rank of one candidate among all.

    Args:
        log_likelihoods: in nats, shape (candidates,); minus infinity for one that is below the true secret.
        true: index of the true secret.
        name: the canary's name, for messages.

    Raises:
        ScoringError: a log-likelihood is NaN or positive infinity.
    """
    broken = np.isnan(log_likelihoods) | np.isposinf(log_likelihoods)
    if broken.any():
        bad = int(broken.sum())
        raise ScoringError(
            f"canary {name}: the model's answer is not finite for {bad} of {len(log_likelihoods)} candidates "
            "(NaN or infinite logits); score in float32, or check the checkpoint"
        )
    own = float(log_likelihoods[true])
    # One difference for both, so that rounding cannot put a candidate into both groups, or into none.
    # A secret of probability 0 is tied with all others of probability 0.
    with np.errstate(invalid="ignore"):
        lead = np.where(log_likelihoods == own, 0.0, log_likelihoods - own)
    above = int((lead > TIE_MARGIN).sum())
    tied = int((np.abs(lead) <= TIE_MARGIN).sum()) - 1
    return Rank(1 + above + tied / 2, tied, len(log_likelihoods), own)


def random_rank_exposure(candidates: int) -> float:
    """Mean exposure in bits of a secret whose rank is uniform: ``log2 N - log2(N!) / N``.

    It tends to ``1 / ln 2 = 1.44`` bits for large N; the median tends to 1 bit.

    Raises:
        InputError: there is no candidate.
    """
    if candidates < 1:
        raise InputError(Fault("candidates", candidates, "a whole number of at least 1"))
    return math.log2(candidates) - float(gammaln(candidates + 1)) / math.log(2) / candidates
