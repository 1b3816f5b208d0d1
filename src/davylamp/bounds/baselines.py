"""What a guesser achieves who never saw the release: the mass of the best list under the secret's prior.

Source: P1 (*Memorization Is Not Extraction*, arXiv 2608.27782), Sec. 5 and Prop. C.2.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from davylamp.bounds import checks
from davylamp.errors import Fault

Array = NDArray[np.float64]
LARGEST_SUPPORT = 20_000_000  # values of an explicit prior; a uniform one is never written out


@dataclass(frozen=True, slots=True)
class Envelope:
    """The entropy's bound on the baseline.

    Attributes:
        value: ``min(1, m 2^-Hinf)``, never below kappa.
        looseness: the envelope over kappa, at least 1 (1 = as tight as can be).
    """

    value: float
    looseness: float


@dataclass(frozen=True, slots=True, eq=False)
class Prior:
    """Distribution of a secret before anything is released; build it with one of the functions below.

    Attributes:
        size: number of values.
        name: what it is.
        masses: probabilities, falling; None for a uniform prior.
    """

    size: int
    name: str
    masses: Array | None = field(default=None, repr=False)

    def kappa(self, budget: int = 1) -> float:
        """Mass of the ``budget`` likeliest values: the success of the best list made without the release.

        Raises:
            InputError: ``budget`` is not a whole number of at least 1.
        """
        checks.raise_faults(checks.whole("budget", budget))
        if budget >= self.size:
            return 1.0
        if self.masses is None:
            return budget / self.size
        return min(1.0, math.fsum(self.masses[:budget]))

    def min_entropy(self) -> float:
        """``Hinf = -log2`` of the largest probability, in bits."""
        return math.log2(self.size) if self.masses is None else -math.log2(float(self.masses[0]))

    def envelope(self, budget: int = 1) -> Envelope:
        """``m 2^-Hinf`` and how far above kappa it lies.

        Raises:
            InputError: ``budget`` is not a whole number of at least 1.
        """
        kappa = self.kappa(budget)
        top = 1 / self.size if self.masses is None else float(self.masses[0])
        value = max(min(1.0, budget * top), kappa)
        return Envelope(value, value / kappa)


def explicit_prior(probabilities: ArrayLike, name: str = "explicit") -> Prior:
    """A prior by its probabilities.

    Args:
        probabilities: shape (n,), each in [0, 1], summing to 1 within 1e-9 (they are then scaled to sum to 1).
        name: what it is.

    Raises:
        InputError: a probability is outside [0, 1] or NaN, or they do not sum to 1.
    """
    array, faults = checks.unit_array("probabilities", probabilities)
    if not faults:
        faults = _support_faults("probabilities", array)
    if not faults and abs(math.fsum(array) - 1) > 1e-9:
        faults = [
            Fault("probabilities", f"a list with sum {math.fsum(array):.12g}", "a list that sums to 1 within 1e-9")
        ]
    checks.raise_faults(faults)
    return _scaled(array, name)


def uniform_prior(size: int) -> Prior:
    """All of ``size`` values alike.

    Raises:
        InputError: ``size`` is not a whole number of at least 1.
    """
    checks.raise_faults(checks.whole("size", size))
    return Prior(int(size), f"uniform over {size}")


def uniform_bits(bits: float) -> Prior:
    """Uniform over ``2**bits`` values, for bits from 0 to 53 that give a whole number of them.

    Raises:
        InputError: ``bits`` is outside its range.
    """
    size = 2**bits if checks.nonnegative("bits", bits) == [] and bits <= 53 else 0.5
    if size != int(size):
        checks.raise_faults([Fault("bits", bits, "a whole number from 0 to 53")])
    return uniform_prior(int(size))


def zipf_prior(exponent: float, size: int) -> Prior:
    """Probabilities proportional to ``rank^-exponent`` over ranks 1 to ``size``.

    Raises:
        InputError: ``exponent`` is negative or not finite, or ``size`` is not a whole number from 1 to 20 million.
    """
    faults = checks.whole("size", size)
    if not faults and size > LARGEST_SUPPORT:
        faults = [Fault("size", size, f"a whole number from 1 to {LARGEST_SUPPORT}")]
    checks.raise_faults(checks.nonnegative("exponent", exponent), faults)
    weights = np.arange(1, size + 1, dtype=np.float64) ** -float(exponent)
    return _scaled(weights, f"Zipf with exponent {exponent:g} over {size}")


def counts_prior(counts: ArrayLike, name: str = "counts") -> Prior:
    """The empirical prior of counts.

    Args:
        counts: shape (n,), each finite and at least 0, not all 0.
        name: what it is.

    Raises:
        InputError: a count is negative or not finite, or all are 0.
    """
    array, faults = checks.checked_array(
        "counts", counts, "a finite number of at least 0", lambda a: np.isfinite(a) & (a >= 0)
    )
    if not faults:
        faults = _support_faults("counts", array)
    if not faults and not array.any():
        faults = [Fault("counts", array.tolist(), "counts that are not all 0")]
    checks.raise_faults(faults)
    return _scaled(array, name)


def average_kappa(priors: Sequence[Prior], budget: int = 1, weights: ArrayLike | None = None) -> float:
    """kappa-bar: the baseline of a secret whose prior depends on the corpus (P1, Prop. C.2b).

    Each corpus has its own best list, so the baselines are averaged, not the priors.

    Args:
        priors: the secret's prior under each corpus, at least one.
        budget: m.
        weights: probability of each corpus, shape (n,); all alike when left out.

    Raises:
        InputError: no prior is given, or the weights do not fit or do not sum to 1.
    """
    faults = [] if priors else [Fault("priors", [], "at least one prior")]
    share = np.full(len(priors), 1 / max(len(priors), 1))
    if weights is not None:
        share, more = checks.unit_array("weights", weights)
        if not more and share.shape != (len(priors),):
            more = [Fault("weights", share.tolist(), f"one weight a prior ({len(priors)})")]
        if not more and abs(math.fsum(share) - 1) > 1e-9:
            more = [Fault("weights", share.tolist(), "weights that sum to 1 within 1e-9")]
        faults += more
    checks.raise_faults(faults, checks.whole("budget", budget))
    return min(1.0, math.fsum(w * prior.kappa(budget) for w, prior in zip(share, priors, strict=True)))


def _support_faults(name: str, array: Array) -> list[Fault]:
    if array.ndim != 1 or not 1 <= array.size <= LARGEST_SUPPORT:
        return [Fault(name, f"shape {array.shape}", f"a list of 1 to {LARGEST_SUPPORT} numbers")]
    return []


def _scaled(weights: Array, name: str) -> Prior:
    masses = np.sort(weights)[::-1] / math.fsum(weights)
    masses.setflags(write=False)
    return Prior(len(masses), name, masses)
