"""Releases that are nothing but a finite law: what every measure of one reads is a sum that is written out here."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy import stats

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Finite:
    """A secret of one symbol, a mechanism that may have seen it, and what the released model says.

    Attributes:
        prior: of the secret, shape (secrets,).
        inside: law of the released model given the secret, the record in, shape (secrets, models).
        outside: the same without the record, which tells of the secret only where it is known from elsewhere.
        at_c: law of the secret that each model says at the record's own prefix, shape (models, secrets).
        at_rho: the same at a trigger that is known.
    """

    prior: Array
    inside: Array
    outside: Array
    at_c: Array
    at_rho: Array

    @classmethod
    def draw(cls, seed: int, secrets: int, models: int, *, uniform: bool = False) -> Finite:
        """A random one whose secret is fresh: without the record the model has one law whatever the secret is."""
        rng = np.random.default_rng(seed)
        prior = np.full(secrets, 1 / secrets) if uniform else laws(rng, 1, secrets)[0]
        outside = np.repeat(laws(rng, 1, models), secrets, axis=0)
        return cls(prior, laws(rng, secrets, models), outside, laws(rng, models, secrets), laws(rng, models, secrets))

    def unread(self) -> Finite:
        """The same whose model does not depend on the secret at all."""
        return replace(self, inside=self.outside)

    def known(self) -> Finite:
        """The same whose model knows as much of the secret without the record."""
        return replace(self, outside=self.inside)

    def processed(self, kernel: Array, at_c: Array, at_rho: Array) -> Finite:
        """Every model is replaced by another one, at random and without a look at the secret.

        Args:
            kernel: law of the new model given the old one, shape (models, new models).
            at_c: what the new ones say, shape (new models, secrets).
            at_rho: at the trigger.
        """
        return Finite(self.prior, self.inside @ kernel, self.outside @ kernel, at_c, at_rho)

    def _joint(self, side: Array) -> Array:
        return np.asarray(self.prior[:, None] * side)

    @property
    def kappa(self) -> float:
        """The best guess without a model."""
        return float(self.prior.max())

    @property
    def memorization(self) -> float:
        return float((self._joint(self.inside - self.outside) * self.at_c.T).sum())

    @property
    def emission(self) -> float:
        return float((self._joint(self.inside) * self.at_c.T).sum())

    @property
    def greedy(self) -> float:
        return self._greedy(self.at_c)

    @property
    def greedy_at_rho(self) -> float:
        return self._greedy(self.at_rho)

    def _greedy(self, law: Array) -> float:
        first = law == law.max(axis=1, keepdims=True)
        return float((self._joint(self.inside) * (first / first.sum(axis=1, keepdims=True)).T).sum())

    @property
    def exposure(self) -> float:
        """In bits, ties at mid-rank."""
        ranks = len(self.prior) + 1 - stats.rankdata(self.at_c, axis=1)
        return float((self._joint(self.inside) * (np.log2(len(self.prior)) - np.log2(ranks)).T).sum())

    @property
    def exposure_of_no_leak(self) -> float:
        """Mean exposure of a rank that is uniform: what it reads where nothing is known."""
        size = len(self.prior)
        return float(np.log2(size) - np.log2(np.arange(1, size + 1)).mean())

    @property
    def auc(self) -> float:
        """Of the likelihood at c: records that were in against others with secrets of their own."""
        scores = self.at_c.T.ravel()
        ours, theirs = self._joint(self.inside).ravel(), self._joint(self.outside).ravel()
        above = (scores[:, None] > scores) + (scores[:, None] == scores) / 2
        return float(ours @ above @ theirs)

    @property
    def advantage(self) -> float:
        """Of the best membership test, which holds the secret and sees the whole model: total variation."""
        return float((self._joint(abs(self.inside - self.outside))).sum() / 2)

    @property
    def extraction(self) -> float:
        """Of the best guess of an adversary who sees the whole model."""
        return float(self._joint(self.inside).max(axis=0).sum())

    @property
    def extraction_without(self) -> float:
        """The same from the model without the record."""
        return float(self._joint(self.outside).max(axis=0).sum())


def laws(rng: np.random.Generator, rows: int, columns: int) -> Array:
    """Random laws, some of them near certainty."""
    return np.asarray(rng.dirichlet(np.full(columns, rng.choice([0.1, 1.0, 10.0])), size=rows))
