"""Counterfactual memorization from pairs of shadow models, and the noise that the estimate has by itself.

Sources: Feldman 1906.05271; Zhang et al. 2112.12938; P1 (*Memorization Is Not Extraction*, 2608.27782), which bounds
it for scores in [0, 1], such as a loss truncated at M and divided by M.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from davylamp.errors import Fault, InputError

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]
Ints = NDArray[np.int64]

TRUNCATION = 20.0
"""Nats at which the log-loss of a span is cut off, unless the user says otherwise."""
SPLITS = 500
"""Random splits from which the noise floor is read."""


@dataclass(frozen=True, slots=True, eq=False)
class Memorization:
    """Counterfactual memorization of each record.

    Attributes:
        value: mean score of the shadows with the record minus that of those without, shape (records,).
        error: standard error of ``value``, from the spread over the pairs of shadows, shape (records,).
        noise: one draw of the noise for each record, shape (records,): what the same estimate gives where the coins
            of half of the pairs, the same for all records, are turned over, so that nothing but chance is left.
        splits: such draws of all records together, shape (splits, records); ``noise`` is the first.
        differences: score with the record minus score without it in each pair of shadows, shape (pairs, records).
    """

    value: Array
    error: Array
    noise: Array
    splits: Array
    differences: Array

    def floor(self, chosen: Flags | Ints) -> Floor:
        """The noise of some records together."""
        draws = self.splits[:, chosen]
        return Floor(
            rms=float(np.sqrt((draws**2).mean())),
            q95=float(np.quantile(np.abs(draws), 0.95)),
            mean_q95=float(np.quantile(np.abs(draws.mean(axis=1)), 0.95)),
        )


@dataclass(frozen=True, slots=True)
class Floor:
    """What memorization of a group of records comes out as where there is none.

    Attributes:
        rms: root of the mean square of one record's estimate.
        q95: value that 95% of single records stay below, signs aside.
        mean_q95: value that the mean of the group stays below in 95% of splits, sign aside.
    """

    rms: float
    q95: float
    mean_q95: float


def memorization(scores: Array, inside: Flags, rng: np.random.Generator, splits: int = SPLITS) -> Memorization:
    """Counterfactual memorization from shadows in complementary pairs.

    Shadows 2k and 2k + 1 are a pair: each record is in exactly one of them, so that each pair gives a difference.
    The mean of the differences is the estimate, and their spread gives its error, also where the two shadows of a
    pair depend on each other.

    **Noise floor.** The coins of a random half of the pairs are turned over: in with out. The new labels agree with
    membership in half of the pairs and contradict it in the other, so that what a record's presence does cancels,
    while everything that differs from one training run to the next (the coins of the other records, the seed of
    adapters and dropout) stays. The mean square of such draws over all splits is the squared standard error, exactly.
    With an odd number of pairs one of them, drawn anew in each split, is left out, and the draw is scaled to the
    same variance.

    Args:
        scores: score of each shadow for each record, higher where it knows the record better, shape (shadows, records).
        inside: whether each shadow was trained on each record, shape (shadows, records).
        rng: draws the splits.
        splits: how many.

    Raises:
        InputError: shapes disagree, there are fewer than 2 pairs, a value is not finite, or a record is in both or
            in neither of a pair.
    """
    values, flags = np.asarray(scores, dtype=np.float64), np.asarray(inside, dtype=bool)
    _check(values, flags, splits)
    signs = np.where(flags, 1.0, -1.0)
    differences = (values * signs).reshape(len(values) // 2, 2, -1).sum(axis=1)
    pairs = len(differences)
    error = differences.std(axis=0, ddof=1) / np.sqrt(pairs)
    draws = _balanced_signs(pairs, splits, rng) @ differences
    return Memorization(differences.mean(axis=0), error, draws[0], draws, differences)


def truncated_loss(logprobs: Array, level: float = TRUNCATION) -> Array:
    """Log-loss cut off at a level and divided by it: between 0 (certain) and 1 (``level`` nats or more).

    Args:
        logprobs: log-probabilities of whole spans in nats, any shape.
        level: nats at which the loss is cut off.

    Raises:
        InputError: the level is not a finite number above 0.
    """
    if not 0 < level < np.inf:
        raise InputError(Fault("truncation", level, "a finite number of nats above 0"))
    return np.minimum(-np.asarray(logprobs, dtype=np.float64), level) / level


def _balanced_signs(pairs: int, splits: int, rng: np.random.Generator) -> Array:
    """Weights of the pairs in each split, shape (splits, pairs): as many positive as negative ones."""
    half = pairs // 2
    row = np.concatenate([np.ones(half), -np.ones(half), np.zeros(pairs - 2 * half)])
    # Over the pairs that take part, and scaled to the variance of a mean over all.
    scale = 1 / np.sqrt(2 * half * pairs)
    return rng.permuted(np.tile(row * scale, (splits, 1)), axis=1)


def _check(values: Array, flags: Flags, splits: int) -> None:
    faults = []
    if values.ndim != 2 or flags.shape != values.shape:
        shapes = f"scores {values.shape}, inside {flags.shape}"
        raise InputError(Fault("shapes", shapes, "(shadows, records) for both"))
    if len(values) < 4 or len(values) % 2:
        faults.append(Fault("shadows", len(values), "an even number of at least 4"))
    elif not (flags[::2] ^ flags[1::2]).all():
        faults.append(Fault("inside", "a record in both or in neither of a pair", "each record in one of each pair"))
    if not np.isfinite(values).all():
        faults.append(Fault("scores", "not finite", "finite numbers"))
    if splits < 1:
        faults.append(Fault("splits", splits, "at least 1"))
    if faults:
        raise InputError(faults)
