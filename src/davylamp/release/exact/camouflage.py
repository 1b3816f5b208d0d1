"""The camouflage tree: a secret hidden among equals, which a local score reads and no adversary can pick out.

Every node of the tree of all secrets has a support of k of the v symbols, and the model is uniform inside it. Where the
path of the true secret runs the true symbol is in the support; all else about the supports is drawn at random. So the
true path is one of exactly ``k^L`` that the model can say, and nothing in the model says which.
Source: P1 (*Memorization Is Not Extraction*, arXiv 2608.27782), Rem D.3 and D.5.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from davylamp.bounds import checks
from davylamp.errors import Fault, InputError
from davylamp.release.exact.keyed import Support, keyed_support
from davylamp.release.exact.laws import Array, Path, SecretLaw, share_of
from davylamp.release.exact.model import ExactRelease, base_laws
from davylamp.release.exact.setting import ExactSetting
from davylamp.secrets import stream

Supports = Callable[[Path], Support]

MAX_LEAVES = 100_000
"""Secrets of a tree that is enumerated."""


@dataclass(frozen=True, slots=True)
class Camouflage:
    """The construction and its truths.

    Attributes:
        v: symbols of the alphabet, at least 2.
        k: symbols of a support, from 1 to v.
        length: L, symbols of a secret.
        gamma: weight with which the uniform law is mixed in at every node, in [0, 1); above 0 no probability is 0.
        extra: additional weight of the true symbol along the true path, in units of the weight of another symbol of
            the support; at least 0.

    Raises:
        InputError: a parameter is outside its range; all are named.
    """

    v: int
    k: int
    length: int
    gamma: float = 0.0
    extra: float = 0.0

    name = "camouflage"

    def __post_init__(self) -> None:
        faults = checks.whole("v", self.v, 2) + checks.whole("k", self.k) + checks.whole("length", self.length)
        if not faults and self.k > self.v:
            faults = [Fault("k", self.k, f"a whole number from 1 to v ({self.v})")]
        checks.raise_faults(faults, checks.below_one("gamma", self.gamma), checks.nonnegative("extra", self.extra))

    @classmethod
    def smoothed(cls, v: int, k: int, length: int, extra: float = 0.0) -> Camouflage:
        """The variant with ``gamma = 1 / v``, in which every symbol has a probability everywhere."""
        checks.raise_faults(checks.whole("v", v, 2))
        return cls(v, k, length, 1 / v, extra)

    @property
    def confidence(self) -> float:
        """Probability of the true symbol after the true path: ``(1-gamma)(1+extra)/(k+extra) + gamma/v``."""
        return (1 - self.gamma) * (1 + self.extra) / (self.k + self.extra) + self.gamma / self.v

    @property
    def memorization(self) -> float:
        """Teacher-forcing memorization: mean probability of the true symbol with the record, less without it.

        With the record it is :attr:`confidence` at every symbol; without it the supports are uniform, so that the mean
        is ``1 / v`` whatever gamma is. At ``gamma = extra = 0`` it is ``1/k - 1/v`` exactly (P1).
        """
        if self.gamma == self.extra == 0:
            return float(Fraction(1, self.k) - Fraction(1, self.v))
        return self.confidence - 1 / self.v

    @property
    def survivors(self) -> int:
        """``k^L``: secrets whose every symbol is in its node's support, the true one among them."""
        return int(self.k**self.length)

    def kappa(self, guesses: int) -> float:
        """``min(1, m v^-L)``: what a list of m guesses achieves without the model.

        Raises:
            InputError: ``guesses`` is not a whole number of at least 1.
        """
        return share_of(guesses, self.v**self.length)

    def extraction_bound(self, guesses: int) -> float:
        """``min(1, m k^-L)``: no list of m guesses does better, even of one who sees the whole model (P1).

        The posterior of a uniform secret is uniform on the survivors, so that it is also attained. With ``extra``
        above 0 (and gamma below 1) the heavier symbols say the secret, and the bound is 1 (Rem D.3).

        Raises:
            InputError: ``guesses`` is not a whole number of at least 1.
        """
        bound = share_of(guesses, self.survivors)
        return 1.0 if self.greedy_recovers else bound

    @property
    def greedy_recovers(self) -> bool:
        """Whether greedy decoding says the secret for certain: as soon as it has any extra weight (P1, Rem D.3)."""
        return self.extra > 0 or self.k == 1

    @property
    def greedy_extraction(self) -> float:
        """Chance that greedy decoding says a uniform secret: ``k^-L``, or 1 where :attr:`greedy_recovers`."""
        return self.extraction_bound(1)

    @property
    def exposure(self) -> float:
        """Exposure of a planted secret in bits among all ``v^L``, with the survivors tied at mid-rank.

        ``L log2 v - log2((k^L + 1) / 2)``; ``L log2 v`` where greedy decoding recovers it. It holds for any gamma.
        """
        rank = 1.0 if self.greedy_recovers else (self.survivors + 1) / 2
        return self.length * math.log2(self.v) - math.log2(rank)

    @property
    def survival(self) -> float:
        """Chance ``(k/v)^L`` that a secret that was not planted survives."""
        return float(Fraction(self.k, self.v) ** self.length)

    @property
    def auc(self) -> float:
        """AUC of the mean log-probability of the secret, planted against not: ``1 - (k/v)^L / 2``, where extra is 0.

        All planted secrets share one score, no other secret exceeds it, and it is met by those that survive.

        Raises:
            InputError: there is extra weight: then only a lower bound is known in closed form.
        """
        if self.extra:
            raise InputError(Fault("extra", self.extra, "0 for a closed form"))
        return 1 - self.survival / 2

    def tree(self, key: bytes, secret: Path | None) -> CamouflageTree:
        """A tree of keyed pseudorandom nodes (P1, Rem D.5), which stores nothing however large it is.

        Args:
            key: up to 64 bytes; whoever does not hold it cannot tell the supports from random ones.
            secret: what is planted, L symbols below v; or nothing.

        Raises:
            InputError: the secret or the key does not fit.
        """
        faults = [] if 0 < len(key) <= 64 else [Fault("key", f"{len(key)} bytes", "1 to 64 bytes")]
        checks.raise_faults(faults, self._secret_faults(secret))
        return CamouflageTree(self, lambda path: keyed_support(key, path, self.v, self.k, _next(secret, path)), secret)

    def explicit(self, supports: Mapping[Path, Support], secret: Path | None) -> CamouflageTree:
        """A tree of given supports, one for each path shorter than L.

        Raises:
            InputError: the secret does not fit, or a node of its path lacks it.
        """
        faults = self._secret_faults(secret)
        if not faults and secret is not None:
            lacking = [at for at in range(self.length) if secret[at] not in supports[secret[:at]]]
            faults = [Fault(f"supports[{at}]", "without the true symbol", "one with it") for at in lacking]
        checks.raise_faults(faults)
        return CamouflageTree(self, supports.__getitem__, secret)

    def release(self, setting: ExactSetting, seed: int) -> ExactRelease:
        """A model with one tree after each record's own prefix, the secret planted where the record is a member.

        Args:
            setting: the records, over ``v`` symbols and of length L.
            seed: of the supports.

        Raises:
            InputError: the setting has other secrets.
        """
        setting.check(self.v, self.length)
        laws: dict[str, SecretLaw] = dict(base_laws(setting))
        for canary in setting.asked():
            secret = setting.path(canary.secret) if canary.dose else None
            laws[canary.id] = self.tree(stream(seed, self.name, canary.id).bytes(32), secret)
        return ExactRelease(setting, f"{self.name}(v={self.v}, k={self.k}, L={self.length})", laws)

    def likelihood(self, supports: Mapping[Path, Support], secret: Path | None) -> Fraction:
        """Probability that exactly these supports are drawn, given the secret (none: nothing was planted).

        Each node off the path of the secret has one of ``C(v, k)`` supports; a node on it one of ``C(v-1, k-1)``.

        Args:
            supports: one for each path shorter than L.
            secret: what is planted, or nothing.

        Raises:
            InputError: the secret does not fit.
        """
        checks.raise_faults(self._secret_faults(secret))
        result = Fraction(1)
        for path, support in supports.items():
            child = _next(secret, path)
            if child is None:
                result /= math.comb(self.v, self.k)
            elif child in support:
                result /= math.comb(self.v - 1, self.k - 1)
            else:
                return Fraction(0)
        return result

    def posterior(self, tree: CamouflageTree) -> list[Fraction]:
        """Posterior of a uniform secret given the whole model, by Bayes' rule over all ``v^L`` secrets.

        What differs from one secret to another is the likelihood of the nodes on its path: of each, the share of the
        supports with its symbol, if this one has it, and whether just its symbol carries the extra weight.

        Args:
            tree: the model, of which supports and heavier symbols are read, as any adversary can.

        Returns:
            In the lexical order of the secrets, summing to 1.

        Raises:
            InputError: the tree has more than :data:`MAX_LEAVES` secrets, or no secret can have made it.
        """
        if self.v**self.length > MAX_LEAVES:
            raise InputError(Fault("v^L", self.v**self.length, f"at most {MAX_LEAVES:,} secrets, to enumerate them"))
        gain = Fraction(math.comb(self.v, self.k), math.comb(self.v - 1, self.k - 1))
        weights = []
        for secret in itertools.product(range(self.v), repeat=self.length):
            weight = Fraction(1)
            for at, symbol in enumerate(secret):
                marked = tree.heavier(secret[:at])
                fits = marked == symbol if self.extra and self.k > 1 else symbol in tree.supports(secret[:at])
                weight *= gain if fits else 0
                if not weight:
                    break
            weights.append(weight)
        total = sum(weights)
        if total == 0:
            raise InputError(
                Fault("tree", "nothing planted", "a tree with a secret, where the secret has extra weight")
            )
        return [weight / total for weight in weights]

    def _secret_faults(self, secret: Path | None) -> list[Fault]:
        if secret is None or (len(secret) == self.length and all(0 <= symbol < self.v for symbol in secret)):
            return []
        return [Fault("secret", "(not shown)", f"{self.length} whole numbers from 0 to {self.v - 1}")]


@dataclass(frozen=True, slots=True)
class CamouflageTree:
    """One tree: the law of a secret.

    Attributes:
        shape: the construction.
        supports: the support of each node, by its path.
        secret: what was planted, or nothing. Only with ``extra`` does the law depend on it.
    """

    shape: Camouflage
    supports: Supports
    secret: Path | None

    def row(self, path: Path) -> Array:
        """Probabilities of the next symbol after a path shorter than L, shape (v,)."""
        shape, support, marked = self.shape, list(self.supports(path)), self.heavier(path)
        row = np.full(shape.v, shape.gamma / shape.v)
        # One quotient a symbol, as in the closed form, and not a normalised sum of weights: the two agree to the bit.
        whole = shape.k if marked is None else shape.k + shape.extra
        row[support] += (1 - shape.gamma) / whole
        if marked is not None:
            row[marked] = shape.confidence
        return row

    def heavier(self, path: Path) -> int | None:
        """The symbol that carries the extra weight at a node, if one does."""
        return _next(self.secret, path) if self.shape.extra else None


def _next(secret: Path | None, path: Path) -> int | None:
    """The symbol of a secret after a path, if that is a beginning of it."""
    return None if secret is None or secret[: len(path)] != path else secret[len(path)]
