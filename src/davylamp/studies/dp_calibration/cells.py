"""From what the models said to cells: memorization against its cap, extraction on either side of the entropy floor."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from davylamp.bounds import (
    Claim,
    clopper_pearson,
    extraction_bound,
    memorization_cap,
    min_entropy_threshold,
)
from davylamp.secrets import stream
from davylamp.studies.dp_calibration.spec import CalibrationRecipe
from davylamp.studies.dp_calibration.trials import Pair, by_epsilon
from davylamp.verdict.roc import auc

Array = NDArray[np.float64]
ERROR = 0.05
"""Chance that any of the extraction cells of sound claims is called a violation."""


@dataclass(frozen=True, slots=True)
class MemorizationCell:
    """Counterfactual memorization of the canaries of k copies at one epsilon.

    Attributes:
        epsilon: nats; None without noise.
        copies: k.
        measured: mean over canaries and pairs of the teacher-forcing probability in less out: the mean over the code's
            digits of the probability of the true digit after the true ones before it.
        error: standard error over pairs of models, whose canaries share them.
        cap: largest memorization that the claim allows, ``eta(f^(k))``; None without noise.
        telling: whether the cell could have shown a violation: the cap is small, and above three standard errors.
        without_noise_exceeds: whether a training without noise is measured above the cap by three standard errors of
            both, so that a run that forgot its noise would have been caught here.
        violated: whether the measured value exceeds the cap by three standard errors.
    """

    epsilon: float | None
    copies: int
    measured: float
    error: float
    cap: float | None
    telling: bool
    without_noise_exceeds: bool
    violated: bool


@dataclass(frozen=True, slots=True)
class EntropyCell:
    """Guessing what of a canary's code is not known, at one epsilon, k and number of unknown digits.

    Attributes:
        epsilon: nats; None without noise.
        copies: k.
        bits: certified min-entropy of what is unknown: codes are drawn uniformly, so this is ``digits log2 10``, or
            ``log2 choices`` where the guesser knows that the last digit is one of so many.
        floor: H*, bits above which the claim keeps extraction below the risk; None without noise, and infinite where
            no entropy does.
        above: whether ``bits`` is at least the floor.
        kappa: the guesser's success without a model, ``10^-digits`` or ``1 / choices``.
        guessed: how often the best guess without a model was right: always the same value.
        extracted: how often the model's own greedy digits were right (among the choices, its likeliest one).
        trials: canaries that were in.
        bound: largest success that the claim allows; None without noise.
        telling: whether success in every trial would have refuted the claim.
        violated: whether the lower confidence bound of the rate exceeds the bound: one-sided, 95% over all cells
            together (Bonferroni).
        auc: of membership by the likelihood of the whole code, in against out.
        auc_bound: largest AUC that the claim allows, the area under its power; None without noise.
    """

    epsilon: float | None
    copies: int
    bits: float
    floor: float | None
    above: bool
    kappa: float
    guessed: int
    extracted: int
    trials: int
    bound: float | None
    telling: bool
    violated: bool
    auc: float
    auc_bound: float | None


def memorization_cells(
    recipe: CalibrationRecipe, pairs: Sequence[Pair], claims: Mapping[float, Claim]
) -> list[MemorizationCell]:
    """Every cell, none left out, by epsilon and copies."""
    without = {k: _memorization([p for p in pairs if p.epsilon is None], k) for k in recipe.copies}
    cells = []
    for epsilon, group in by_epsilon(pairs):
        for k in recipe.copies:
            measured, error = _memorization(group, k)
            cap = None if epsilon is None else memorization_cap(claims[epsilon], copies=k)
            bare, bare_error = without[k]
            cells.append(
                MemorizationCell(
                    epsilon,
                    k,
                    measured,
                    error,
                    cap,
                    telling=cap is not None and cap <= recipe.largest_cap and cap > 3 * error,
                    without_noise_exceeds=cap is not None and bare - cap > 3 * math.hypot(error, bare_error),
                    violated=cap is not None and abs(measured) - cap > 3 * error,
                )
            )
    return cells


def _memorization(pairs: Sequence[Pair], copies: int) -> tuple[float, float]:
    each = []
    for pair in pairs:
        chosen = pair.copies == copies
        gap = _teacher_forced(pair.inside, pair.digits) - _teacher_forced(pair.outside, pair.digits)
        each.append(float(gap[chosen].mean()))
    return float(np.mean(each)), float(np.std(each, ddof=1) / math.sqrt(len(each)))


def _true(rows: Array, digits: NDArray[np.int64]) -> Array:
    """Log-probabilities of the true digits, shape (canaries, 4)."""
    return np.take_along_axis(rows, digits[..., None], axis=2)[..., 0]


def _teacher_forced(rows: Array, digits: NDArray[np.int64]) -> Array:
    return np.asarray(np.exp(_true(rows, digits)).mean(axis=1))


def entropy_cells(recipe: CalibrationRecipe, pairs: Sequence[Pair], claims: Mapping[float, Claim]) -> list[EntropyCell]:
    """Every cell by epsilon, copies and number of unknown digits."""
    cells = []
    rows = len(recipe.digits) + len(recipe.choices)
    confidence = 1 - ERROR / (len(recipe.epsilons) * len(recipe.copies) * rows)
    for epsilon, group in by_epsilon(pairs):
        claim = None if epsilon is None else claims[epsilon]
        for k in recipe.copies:
            members, nonmembers = (
                np.concatenate([_true(rows, pair.digits)[pair.copies == k].sum(axis=1) for pair, rows in side])
                for side in ([(p, p.inside) for p in group], [(p, p.outside) for p in group])
            )
            floor = None
            if claim is not None:
                floor = min_entropy_threshold(claim, recipe.risk, copies=k)
                floor = math.inf if floor is None else floor
            area = auc(members, nonmembers).value
            guesses = [_of_digits(group, k, digits) for digits in recipe.digits]
            guesses += [_of_choices(group, k, choices, recipe.seed) for choices in recipe.choices]
            cells += [_entropy_cell(epsilon, k, guess, claim, floor, area, confidence) for guess in guesses]
    return cells


@dataclass(frozen=True, slots=True, eq=False)
class _Guesses:
    """What a guesser does not know, and how guesses at it went, shape (canaries,) each."""

    bits: float
    kappa: float
    said: NDArray[np.bool_]
    guessed: NDArray[np.bool_]


def _of_digits(pairs: Sequence[Pair], copies: int, digits: int) -> _Guesses:
    """The guesser knows the first digits.

    Greedy digits are all right exactly if each is the likeliest after the true ones before it; a tie counts as a miss.
    """
    said = [_greedy(pair)[pair.copies == copies][:, -digits:].all(axis=1) for pair in pairs]
    guessed = [(pair.digits[pair.copies == copies][:, -digits:] == 0).all(axis=1) for pair in pairs]
    return _Guesses(digits * math.log2(10), 10.0**-digits, np.concatenate(said), np.concatenate(guessed))


def _of_choices(pairs: Sequence[Pair], copies: int, choices: int, seed: int) -> _Guesses:
    """The guesser knows all digits but the last, and that this one is among so many.

    The others are drawn uniformly from the nine wrong digits, so that to the guesser the true one is uniform over the
    choices. They are the same at every epsilon.
    """
    said, guessed = [], []
    for number, pair in enumerate(pairs):
        # In order of all canaries, so that each has its own choices whatever is asked of the others.
        orders = stream(seed, "choices", number).permuted(np.tile(np.arange(1, 10), (len(pair.digits), 1)), axis=1)
        true = pair.digits[:, -1:]
        offered = np.concatenate([true, (true + orders[:, : choices - 1]) % 10], axis=1)
        rows = np.take_along_axis(pair.inside[:, -1], offered, axis=1)
        chosen = pair.copies == copies
        said.append((rows[:, 0] > rows[:, 1:].max(axis=1))[chosen])
        guessed.append((offered[:, 0] == offered.min(axis=1))[chosen])
    return _Guesses(math.log2(choices), 1 / choices, np.concatenate(said), np.concatenate(guessed))


def _entropy_cell(
    epsilon: float | None,
    copies: int,
    guesses: _Guesses,
    claim: Claim | None,
    floor: float | None,
    area: float,
    confidence: float,
) -> EntropyCell:
    hits, trials = int(guesses.said.sum()), len(guesses.said)
    kappa, bits = guesses.kappa, guesses.bits
    bound = None if claim is None else extraction_bound(claim, kappa, copies)
    return EntropyCell(
        epsilon,
        copies,
        bits,
        floor,
        above=floor is not None and bits >= floor,
        kappa=kappa,
        guessed=int(guesses.guessed.sum()),
        extracted=hits,
        trials=trials,
        bound=bound,
        telling=bound is not None and clopper_pearson(trials, trials, confidence, "lower").low > bound,
        violated=bound is not None and clopper_pearson(hits, trials, confidence, "lower").low > bound,
        auc=area,
        auc_bound=None if claim is None else _area(claim, copies),
    )


def _greedy(pair: Pair) -> NDArray[np.bool_]:
    """Whether the true digit is the only likeliest at each place, shape (canaries, 4)."""
    top = pair.inside.max(axis=2)
    alone = (pair.inside == top[..., None]).sum(axis=2) == 1
    return np.asarray((_true(pair.inside, pair.digits) == top) & alone)


def _area(claim: Claim, copies: int) -> float:
    """Area under the power, by trapezia over a grid; a concave curve lies above them by less than 1e-4."""
    grid = np.concatenate([[0.0], np.geomspace(1e-9, 1, 4000)])
    return float(np.trapezoid(claim.group(copies).power(grid), grid))
