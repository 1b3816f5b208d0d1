"""Local scores: what the conditionals along an instance's own prefix and secret say, against the base's."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from davylamp.measures.counterfactual import TRUNCATION, truncated_loss
from davylamp.measures.membership.scores import lowest
from davylamp.release.base import Release

Array = NDArray[np.float64]
Tokens = tuple[int, ...]
SHARE = 0.2
"""Share of a secret's tokens that Min-K% takes, as in the membership measure."""


@dataclass(frozen=True, slots=True, eq=False)
class Forced:
    """A secret teacher-forced after a lead.

    Attributes:
        lead: log-probability in nats of each token of the lead but the first, shape (lead - 1,).
        secret: of each token of the secret, shape (tokens,).
    """

    lead: Array
    secret: Array

    @property
    def total(self) -> float:
        """Log-probability of the secret in nats."""
        return math.fsum(self.secret)

    @property
    def h(self) -> float:
        """Mean probability of a token of the secret: teacher-forcing memorization before the base is taken off."""
        return float(np.exp(self.secret).mean())

    @property
    def loss(self) -> float:
        """Truncated log-loss of the secret, between 0 and 1."""
        return float(truncated_loss(np.asarray(self.total), TRUNCATION))


def forced(release: Release, leads: Sequence[Tokens], secrets: Sequence[Tokens]) -> list[Forced]:
    """Teacher-force secrets after their leads, in one pass over each.

    Raises:
        PrefixError: a lead is empty, or both are longer than the context.
    """
    firsts = [lead[:1] for lead in leads]
    rests = [(*lead[1:], *secret) for lead, secret in zip(leads, secrets, strict=True)]
    return [
        Forced(values[: len(lead) - 1], np.minimum(values[len(lead) - 1 :], 0.0))
        for lead, values in zip(leads, release.logprobs(firsts, rests), strict=True)
    ]


@dataclass(frozen=True, slots=True)
class Score:
    """A local score.

    Attributes:
        name: its name in the result.
        unit: ``probability``, ``share`` or ``nats``.
        of: from what the release and the base say.
    """

    name: str
    unit: str
    of: Callable[[Forced, Forced], float]


def _gain(ours: Array, base: Array) -> float:
    return float((ours - base).mean())


def _whole(each: Forced) -> Array:
    return np.concatenate([each.lead, each.secret])


SCORES = (
    Score("memh", "probability", lambda ours, base: ours.h - base.h),
    Score("memh_loss", "share", lambda ours, base: base.loss - ours.loss),
    Score("loss", "nats", lambda ours, base: float(ours.secret.mean())),  # noqa: ARG005 - one signature for all
    Score("reference", "nats", lambda ours, base: _gain(ours.secret, base.secret)),
    Score("min_k", "nats", lambda ours, base: float(lowest(ours.secret, SHARE).mean())),  # noqa: ARG005
    Score("record_loss", "nats", lambda ours, base: float(_whole(ours).mean())),  # noqa: ARG005
    Score("record_reference", "nats", lambda ours, base: _gain(_whole(ours), _whole(base))),
)
"""All local scores; higher = more likely planted. ``memh``: mean probability of a token less the base's (P1, Sec. 3);
``memh_loss``: the same of the truncated log-loss; ``loss``, ``reference`` and ``min_k`` as in the membership measure on
the secret's tokens; ``record_`` on the prefix too."""
