"""Membership scores from shadow models: LiRA and RMIA, plain arithmetic on what the shadows say of each record.

Every score is higher for what is more likely a member. Signals are mean log-probabilities of a token in nats, so that
``exp`` of one, the geometric mean of the tokens' probabilities, is the confidence of a record however long it is.

Sources: LiRA: Carlini et al., "Membership Inference Attacks From First Principles" (2112.03570), Algorithm 1 and its
offline variant. RMIA: Zarifzadeh et al., "Low-Cost High-Power Membership Inference Attacks" (2312.03262), online and
offline.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

from davylamp.errors import Fault, InputError

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]
Ints = NDArray[np.int64]

CEILING = 2.0**-24
"""How far below a probability of 1 float32 still tells two values apart; what is nearer counts as this near."""
FEW_SHADOWS = 64
"""Shadows below which records share a variance: with fewer a global one did better in 2112.03570."""
SMALLEST_SIGMA = 1e-3
"""Smallest standard deviation of a scaled confidence: below it the differences are those of rounding."""
OFFLINE_A = 0.3
"""RMIA's ``a`` where nothing else is said, that of the authors' tool."""
GAMMA = 1.0
"""RMIA's ``gamma`` where nothing else is said: a record must be at least as much likelier as the other one is."""

Variance = Literal["auto", "record", "group"]
"""One variance for each record, one for a group of records, or by the number of shadows."""


def log1mexp(logs: Array) -> Array:
    """``log(1 - exp(x))`` for x below 0, in nats, without losing digits near either end (Mächler 2012)."""
    return np.where(logs > -math.log(2), np.log(-np.expm1(logs)), np.log1p(-np.exp(logs)))


def scaled_confidence(logprobs: Array) -> Array:
    """The logit ``log(p / (1 - p))`` of a confidence p, in nats, as LiRA scales it (2112.03570).

    Args:
        logprobs: ``log p`` in nats, at most 0, any shape. What is nearer to 0 than :data:`CEILING`, a certain record
            above all, counts as that near: its logit is 16.6, and not infinite.

    Raises:
        InputError: a value is above 0 or not a number.
    """
    values = _logs("logprobs", logprobs)
    capped = np.minimum(values, -CEILING)
    return capped - log1mexp(capped)


def lira_online(
    target: Array, shadows: Array, inside: Flags, groups: Ints | None = None, variance: Variance = "auto"
) -> Array:
    """The likelihood ratio attack of one model, with a Gaussian for each record and world (2112.03570, Algorithm 1).

    The means are those of the record's own shadows. A group's variance is pooled within its records: squared
    distances to each record's own mean over the degrees of freedom. (The paper takes the variance of all
    confidences of a world together, in which the differences between records count as noise; the authors' code also
    takes that of *in* for both worlds.)

    Args:
        target: scaled confidences of the attacked model, shape (records,).
        shadows: those of the shadow models, shape (shadows, records).
        inside: whether each shadow was trained on each record, shape (shadows, records).
        groups: a number for each record; records of one number share a variance; default all.
        variance: ``auto`` takes one for each record from :data:`FEW_SHADOWS` shadows on.

    Returns:
        Log of the likelihood ratio of *in* to *out* in nats, shape (records,).

    Raises:
        InputError: shapes disagree, a value is not finite, or a record has fewer than 2 shadows in or out.
    """
    own, others, flags = _signals(target, shadows, inside)
    means_in, sigmas_in = _gaussians(others, flags, "in", groups, variance)
    means_out, sigmas_out = _gaussians(others, ~flags, "out", groups, variance)
    return np.asarray(stats.norm.logpdf(own, means_in, sigmas_in) - stats.norm.logpdf(own, means_out, sigmas_out))


def lira_offline(
    target: Array, shadows: Array, inside: Flags, groups: Ints | None = None, variance: Variance = "auto"
) -> Array:
    """The offline attack, which needs no shadow with the record (2112.03570).

    The arguments and errors are those of :func:`lira_online`, but for the shadows *in*, which are not read.

    Returns:
        Minus the log of the chance that a model without the record is at least as confident, in nats, shape
        (records,). The paper's ``1 - Pr[Z > confidence]`` gives the same order, but reaches 1 in double precision,
        where this does not. (The authors' code takes the density instead, by which a record that is known less well
        than others know it counts as a member too.)
    """
    own, others, flags = _signals(target, shadows, inside)
    return np.asarray(-stats.norm.logsf(own, *_gaussians(others, ~flags, "out", groups, variance)))


def _gaussians(
    values: Array, chosen: Flags, world: str, groups: Ints | None, variance: Variance
) -> tuple[Array, Array]:
    """Mean and standard deviation of each record's law over the chosen shadows, shape (records,) each."""
    counts = chosen.sum(axis=0)
    if (counts < 2).any():
        allowed = "at least 2 for every record, to have a variance"
        raise InputError(Fault(f"shadows that are {world}", int(counts.min()), allowed))
    means = np.where(chosen, values, 0.0).sum(axis=0) / counts
    squares = (np.where(chosen, values - means, 0.0) ** 2).sum(axis=0)
    free = (counts - 1).astype(np.float64)
    if variance == "group" or (variance == "auto" and len(values) < FEW_SHADOWS):
        _, index = np.unique(np.zeros(len(means)) if groups is None else groups, return_inverse=True)
        squares, free = np.bincount(index, squares)[index], np.bincount(index, free)[index]
    return means, np.maximum(np.sqrt(squares / free), SMALLEST_SIGMA)


@dataclass(frozen=True, slots=True, eq=False)
class Rmia:
    """What RMIA says of each record.

    Attributes:
        online: share of the population that the record beats, its mean confidence taken over both worlds,
            shape (records,); a step is one of the population, so that few of it make many ties.
        offline: the same with shadows without the record alone, shape (records,).
        ratio: log of the record's own ratio ``Pr(x | model) / Pr(x)``, online, in nats, shape (records,): the order
            of ``online`` within a group, without its ties.
    """

    online: Array
    offline: Array
    ratio: Array


def rmia(
    target: Array,
    shadows: Array,
    inside: Flags,
    population: Flags,
    groups: Ints | None = None,
    *,
    a: float = OFFLINE_A,
    gamma: float = GAMMA,
) -> Rmia:
    """The relative membership inference attack of one model.

    The score of x is the share of the population's z for which ``(Pr(x | model) / Pr(x)) / (Pr(z | model) / Pr(z))``
    is at least ``gamma``. Online, ``Pr`` is half the mean confidence of the shadows with the record and half that of
    those without; offline it is ``((1 + a) Pr_out + (1 - a)) / 2``, as if ``Pr_in`` were ``a Pr_out + (1 - a)``.
    The means are over the shadows that there are, and a record that no shadow holds, as one of the population may
    be, takes that of the shadows without it. (The authors' code takes the largest half of all confidences, with zeros
    for the shadows that hold the record, so that an uneven split changes the mean.)

    Args:
        target: log-confidences of the attacked model in nats, at most 0, shape (records,).
        shadows: those of the shadow models, shape (shadows, records).
        inside: whether each shadow was trained on each record, shape (shadows, records).
        population: records that are known not to be members, shape (records,); none is compared with itself.
        groups: a number for each record; records are compared with the population of their own number; default all.
        a: between 0 and 1: how much of the confidence outside carries over to inside.
        gamma: at least how much likelier the record must be, above 0.

    Raises:
        InputError: shapes disagree, a value is above 0 or not finite, a record has no shadow without it, a group has
            too small a population, or ``a`` or ``gamma`` is outside its range.
    """
    own, others, flags = _signals(_logs("target", target), _logs("shadows", shadows), inside)
    faults = []
    if not 0 <= a <= 1:
        faults.append(Fault("a", a, "a number from 0 to 1"))
    if not 0 < gamma < math.inf:
        faults.append(Fault("gamma", gamma, "a number above 0"))
    if flags.all(axis=0).any():
        faults.append(Fault("shadows that are out", 0, "at least 1 for every record"))
    if faults:
        raise InputError(faults)
    outs = _log_mean(others, ~flags)
    ins = np.where(flags.any(axis=0), _log_mean(others, flags | ~flags.any(axis=0)), outs)
    online = own - (np.logaddexp(ins, outs) - math.log(2))
    with np.errstate(divide="ignore"):
        offline = own - (np.logaddexp(math.log1p(a) + outs, np.log1p(-a)) - math.log(2))
    if groups is None:
        groups = np.zeros(len(own), dtype=np.int64)
    return Rmia(
        _beaten(online, population, groups, math.log(gamma)),
        _beaten(offline, population, groups, math.log(gamma)),
        online,
    )


def _beaten(ratios: Array, population: Flags, groups: Ints, least: float) -> Array:
    """Share of the population of a record's group, itself aside, whose log-ratio is lower by at least ``least``."""
    shares = np.empty(len(ratios))
    for group in np.unique(groups):
        members = np.flatnonzero(groups == group)
        others = np.flatnonzero((groups == group) & population)
        beaten = ratios[members, None] - ratios[others] >= least
        itself = members[:, None] == others
        counts = (~itself).sum(axis=1)
        if not counts.all():
            allowed = "at least 2 non-members in each group, since no record is compared with itself"
            raise InputError(Fault("population", len(others), allowed))
        shares[members] = (beaten & ~itself).sum(axis=1) / counts
    return shares


def leave_pairs_out(score: Callable[[int, Flags], Array], shadows: int) -> Array:
    """Scores of every shadow as the attacked model, with all others but its partner as its shadows.

    Shadows 2k and 2k + 1 are partners: each record is in exactly one of them. With the partner left in, a record
    that is in the attacked model would have one shadow less *in* than *out*, and the other way round, which tells the
    membership apart where the signals tell nothing. With both left out, every record is in as many of the rest as it
    is out of, whatever the coin of the pair was.

    Args:
        score: from the attacked shadow's number and the flags of its shadows, shape (shadows,), to a score for each
            record, shape (records,).
        shadows: how many there are, an even number.

    Returns:
        Scores of shape (shadows, records).
    """
    every = np.arange(shadows)
    return np.stack([score(each, every // 2 != each // 2) for each in range(shadows)])


def auc(scores: Array, members: Flags) -> float:
    """Chance that a member's score is above a non-member's, ties counted half (Mann-Whitney).

    Raises:
        InputError: there are no members, or no others.
    """
    values, flags = np.ravel(scores), np.ravel(members)
    count = int(flags.sum())
    if not 0 < count < len(flags):
        raise InputError(Fault("members", count, f"between 1 and {len(flags) - 1} of {len(flags)} scores"))
    ranks = stats.rankdata(values)
    return float((ranks[flags].sum() - count * (count + 1) / 2) / (count * (len(flags) - count)))


def _log_mean(logs: Array, chosen: Flags) -> Array:
    """Log of the mean of ``exp`` over the chosen rows of each column, in nats."""
    total = special.logsumexp(np.where(chosen, logs, -np.inf), axis=0)
    return np.asarray(total - np.log(chosen.sum(axis=0)))


def _logs(name: str, values: Array) -> Array:
    array = np.asarray(values, dtype=np.float64)
    if not (array <= 0).all():
        worst = float(array[~(array <= 0)].ravel()[0])
        raise InputError(Fault(name, worst, "log-probabilities, which are at most 0"))
    return array


def _signals(target: Array, shadows: Array, inside: Flags) -> tuple[Array, Array, Flags]:
    own, others, flags = (np.asarray(each) for each in (target, shadows, inside))
    if own.ndim != 1 or others.shape != (len(others), *own.shape) or flags.shape != others.shape:
        shapes = f"target {own.shape}, shadows {others.shape}, inside {flags.shape}"
        raise InputError(Fault("shapes", shapes, "(records,), (shadows, records) and (shadows, records)"))
    if not (np.isfinite(own).all() and np.isfinite(others).all()):
        raise InputError(Fault("signals", "not finite", "finite numbers"))
    return own.astype(np.float64), others.astype(np.float64), flags.astype(bool)
