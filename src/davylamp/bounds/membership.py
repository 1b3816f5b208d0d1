"""Guesses from membership scores, for :mod:`davylamp.bounds.one_run`: top scores are called in, bottom scores out.

How many to call must be fixed before the coins are looked at, or be charged: :func:`one_run_audit` takes a list of
numbers and gives each an equal share of the error. Choosing the number that looks best without that charge reports an
epsilon above 0 for scores that know nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from davylamp.bounds import checks
from davylamp.bounds.claims import Claim
from davylamp.bounds.epsilon import EpsilonBound
from davylamp.bounds.one_run import Guesses, OneRunMethod, one_run_epsilon
from davylamp.errors import Fault

Array = NDArray[np.float64]
SHARES = ((0.01, 0.0), (0.05, 0.0), (0.2, 0.0), (0.05, 0.05), (0.2, 0.2), (0.5, 0.5))
"""Shares of the canaries called in and called out that :func:`default_calls` takes."""
UNFAIR = 1e-6  # fair coins give so uneven a number of members, or a more uneven one, less often


def guess_members(
    scores: ArrayLike, included: ArrayLike, called_in: int, called_out: int = 0, *, seed: int = 0
) -> Guesses:
    """Calls the canaries with the highest scores in, those with the lowest out, and counts what was right.

    Tied scores are ordered by a random permutation from the seed, never by their place: where members are listed first
    a stable sort would read the answer off the order of the list.

    Args:
        scores: membership scores, higher = more likely a member, shape (m,); infinite ones are allowed.
        included: whether each canary was put into the training data, by a fair coin of its own, shape (m,).
        called_in: how many to call in.
        called_out: how many to call out; with ``called_in`` from 1 to m.
        seed: of the order of tied scores.

    Raises:
        InputError: a score is NaN, the shapes differ, the numbers do not fit, or so uneven a number of members cannot
            come from fair coins.
    """
    values, faults = _scores("scores", scores)
    labels, more = _labels("included", included)
    faults += more
    if not faults and labels.shape != values.shape:
        faults.append(Fault("included", f"{labels.size} labels", f"one for each score ({values.size})"))
    if not faults:
        faults += _fairness(labels)
    checks.raise_faults(faults, _call_faults(called_in, called_out, values.size))
    order = _ranking(values, seed)
    right = int(labels[order[:called_in]].sum()) + int((~labels[order[order.size - called_out :]]).sum())
    return Guesses(values.size, called_in + called_out, right)


def guess_pairs(planted: ArrayLike, twins: ArrayLike, called: int, *, seed: int = 0) -> Guesses:
    """Guesses of every pair which of two was planted: the one with the higher score.

    The two of a pair come from the same sampler, independently, and one of them was planted: then the coin that says
    which is fair whatever the scores, without anybody having tossed it. Pairs with the largest difference are guessed
    first. Such a coin replaces a record, so that the bound is for the replace relation.

    Args:
        planted: scores of the planted ones, shape (m,).
        twins: scores of their twins, shape (m,).
        called: how many pairs to guess about.
        seed: of the order of tied differences, and of the guess where both scores are equal.

    Raises:
        InputError: a score is NaN, the shapes differ, or ``called`` is not from 1 to m.
    """
    first, faults = _scores("planted", planted)
    second, more = _scores("twins", twins)
    faults += more
    if not faults and first.shape != second.shape:
        faults.append(Fault("twins", f"{second.size} scores", f"one for each planted canary ({first.size})"))
    checks.raise_faults(faults, [] if faults else _call_faults(called, 0, first.size, "called"))
    # Equal infinities differ by nothing; a difference is only compared with others.
    gap = np.subtract(first, second, where=first != second, out=np.zeros(first.shape))
    order = _ranking(np.abs(gap), seed)[:called]
    coins = np.random.default_rng([seed, 1]).random(first.size) < 0.5
    right = np.where(gap == 0, coins, gap > 0)
    return Guesses(first.size, called, int(right[order].sum()), "replace")


def one_run_audit(
    scores: ArrayLike,
    included: ArrayLike,
    delta: float = 0.0,
    *,
    calls: Sequence[tuple[int, int]] | None = None,
    confidence: float = 0.95,
    method: OneRunMethod = "binomial",
    copies: int = 1,
    seed: int = 0,
    upper: Claim | None = None,
) -> EpsilonBound:
    """Lower bound on epsilon from the scores of one run (Steinke et al., Algorithm 1, with a charged choice).

    Args:
        scores: membership scores, higher = more likely a member, shape (m,).
        included: whether each canary was put into the training data, by a fair coin of its own, shape (m,).
        delta: at which the bound shall hold, in [0, 1).
        calls: numbers to call in and out, written down before the coins are looked at; each gets an equal share of the
            error. Those of :func:`default_calls` if none.
        confidence: of the bound, in (0, 1).
        method: see :func:`one_run_epsilon`.
        copies: in how many records each canary was.
        seed: of the order of tied scores.
        upper: what the accountant claims for one record.

    Raises:
        InputError: an argument is outside its range.
    """
    numbers = default_calls(np.size(scores), confidence) if calls is None else list(calls)
    tried = [guess_members(scores, included, top, bottom, seed=seed) for top, bottom in numbers]
    return one_run_epsilon(tried, delta, confidence=confidence, method=method, copies=copies, upper=upper)


def default_calls(canaries: int, confidence: float = 0.95) -> list[tuple[int, int]]:
    """The numbers of :data:`SHARES`, rounded up, for so many canaries, without those too few to show anything.

    Of r guesses all are right by chance with probability ``2^-r``; where that exceeds the share of the error that the
    r guesses would get, they are left out and the others share the more. Of equal ones one is kept, and at least one.
    """
    found: dict[tuple[int, int], None] = {}
    for top, bottom in SHARES:
        called_in = min(canaries, math.ceil(top * canaries))
        found[called_in, min(canaries - called_in, math.ceil(bottom * canaries))] = None
    calls = sorted(found, key=sum)
    while len(calls) > 1 and 2.0 ** -sum(calls[0]) > (1 - confidence) / len(calls):
        calls.pop(0)
    return calls


def _ranking(values: Array, seed: int) -> NDArray[np.int64]:
    """Places from the highest value to the lowest, equal ones in random order."""
    shuffled = np.random.default_rng([seed, 0]).permutation(values.size)
    return shuffled[np.argsort(-values[shuffled], kind="stable")]


def _scores(field: str, values: ArrayLike) -> tuple[Array, list[Fault]]:
    array, faults = checks.checked_array(field, values, "a number, not NaN", lambda a: ~np.isnan(a))
    if not faults and (array.ndim != 1 or array.size == 0):
        faults.append(Fault(field, f"an array of shape {array.shape}", "a list of at least one number"))
    return array, faults


def _labels(field: str, values: ArrayLike) -> tuple[NDArray[np.bool_], list[Fault]]:
    array, faults = checks.checked_array(field, values, "true or false (1 or 0)", lambda a: (a == 0) | (a == 1))
    return array == 1, faults


def _fairness(labels: NDArray[np.bool_]) -> list[Fault]:
    members = int(labels.sum())
    if stats.binomtest(members, labels.size).pvalue >= UNFAIR:
        return []
    why = "Each canary must be put in by a fair coin of its own; with another share a constant guess would look right."
    return [Fault("included", f"{members} of {labels.size}", "about half of the canaries", why)]


def _call_faults(called_in: int, called_out: int, canaries: int, name: str = "called_in") -> list[Fault]:
    faults = checks.whole(name, called_in, least=0) + checks.whole("called_out", called_out, least=0)
    if not faults and not 1 <= called_in + called_out <= canaries:
        what = name if name == "called" else "called_in + called_out"
        faults.append(Fault(what, called_in + called_out, f"a whole number from 1 to the canaries ({canaries})"))
    return faults
