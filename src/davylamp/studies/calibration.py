"""``python -m davylamp.studies.calibration [--audits 1000] [--seed 0] [--out FILE]``: are the epsilon bounds valid?

Null audits first: scores that know nothing of the labels, of many laws and sizes. An estimator at confidence c may
report an epsilon above 0 in a share 1 - c of them, and no more. Then mechanisms whose epsilon or mu is known exactly:
the bound may exceed the truth in a share 1 - c of the audits; how far below it lies in the middle is its tightness.

Every count is held against the binomial quantile that a valid estimator exceeds in one cell of 30,000 where its error
is exactly 1 - c, and less often where it is smaller: 80 of 1,000 at 95% confidence.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from davylamp.bounds import pure_dp
from davylamp.bounds.epsilon import EpsilonBound, extraction_epsilon
from davylamp.bounds.membership import default_calls, guess_members, guess_pairs, one_run_audit
from davylamp.bounds.one_run import OneRunMethod, one_run_epsilon
from davylamp.bounds.two_run import two_run_audit
from davylamp.errors import DavylampError
from davylamp.runs.files import write_text

Array = NDArray[np.float64]
Audit = Callable[[np.random.Generator], EpsilonBound]
CONFIDENCE = 0.95
DELTA = 1e-5
UNLIKELY = 1 / 30_000  # chance of a valid estimator to fail one cell
METHODS: tuple[OneRunMethod, ...] = ("binomial", "f-dp", "gaussian")

LAWS: dict[str, Callable[[np.random.Generator, int], Array]] = {
    "normal": lambda rng, n: rng.normal(size=n),
    "all tied": lambda _, n: np.zeros(n),
    "three values": lambda rng, n: rng.integers(0, 3, n).astype(np.float64),
    "heavy tails": lambda rng, n: rng.standard_cauchy(n) ** 3,
    "one in ten infinite": lambda rng, n: np.where(rng.random(n) < 0.1, np.inf, rng.normal(size=n)),
}


@dataclass(frozen=True, slots=True)
class Cell:
    """One estimator in one situation.

    Attributes:
        estimator: which bound.
        situation: what it was given.
        audits: how many times.
        beyond: how often the bound exceeded the truth (0 for a null).
        allowed: the most of those that a valid estimator gives, but for one cell in 30,000.
        truth: the true epsilon (nats) or mu.
        middle: median of the bound.
        largest: largest bound.
    """

    estimator: str
    situation: str
    audits: int
    beyond: int
    allowed: int
    truth: float
    middle: float
    largest: float

    @property
    def valid(self) -> bool:
        """Whether the bound exceeded the truth no more often than its confidence allows."""
        return self.beyond <= self.allowed


def calibrate(audits: int, seed: int) -> Iterator[Cell]:
    """Every cell, each with a random stream of its own."""
    cases = [*null_cases(), *known_cases()]
    for (estimator, situation, truth, audit), stream in zip(
        cases, np.random.SeedSequence(seed).spawn(len(cases)), strict=True
    ):
        yield measure(estimator, situation, truth, audit, audits, np.random.default_rng(stream))


def measure(estimator: str, situation: str, truth: float, audit: Audit, audits: int, rng: np.random.Generator) -> Cell:
    """Runs one audit many times; Gaussian bounds are compared by mu."""
    found = [audit(rng) for _ in range(audits)]
    lows = np.array([bound.eps_low if bound.mu_low is None else bound.mu_low for bound in found])
    error = 1 - CONFIDENCE
    return Cell(
        estimator,
        situation,
        audits,
        int((lows > truth).sum()),
        int(stats.binom.isf(UNLIKELY, audits, error)),
        truth,
        float(np.median(lows)),
        float(lows.max()),
    )


def null_cases() -> Iterator[tuple[str, str, float, Audit]]:
    """Estimators on scores that know nothing."""
    for law, draw in LAWS.items():
        for method in METHODS:
            for canaries in (6, 60, 600):
                yield f"one-run {method}", f"{law}, {canaries} canaries", 0.0, _one_run(draw, canaries, method)
            yield f"one-run {method}", f"{law}, 1000 canaries, 6 guesses", 0.0, _one_run(draw, 1000, method, [(6, 0)])
        yield "one-run pairs", f"{law}, 100 pairs", 0.0, _pairs(draw, 100)
        for gaussian in (False, True):
            name = "two-run Gaussian" if gaussian else "two-run"
            for trials in (5, 50, 500):
                yield name, f"{law}, {trials} trials each", 0.0, _two_run(draw, draw, trials, gaussian)
    for kappa, trials in ((0.5, 20), (1e-2, 200), (1e-4, 10_000)):
        yield "extraction", f"guessing at kappa {kappa:g}, {trials} secrets", 0.0, _extraction(kappa, kappa, trials)


def known_cases() -> Iterator[tuple[str, str, float, Audit]]:
    """Estimators on mechanisms whose epsilon or mu is known exactly."""
    for epsilon in (0.5, 1.0, 2.0, 4.0):
        for canaries in (100, 1000, 10_000):
            yield (
                "one-run binomial",
                f"randomised response, eps {epsilon:g}, {canaries} canaries, all guessed",
                epsilon,
                _randomised_response(epsilon, canaries),
            )
        truth = float(pure_dp(epsilon).power(1e-2))
        yield "extraction", f"best attack at eps {epsilon:g}, 1000 secrets", epsilon, _extraction(1e-2, truth, 1000)
    for mu in (0.5, 1.0, 2.0):
        for canaries in (100, 1000, 10_000):
            situation = f"one normal a canary, mu {mu:g}, {canaries} canaries"
            yield "one-run Gaussian", situation, mu, _normal_canaries(mu, canaries)
        for trials in (100, 1000):

            def shifted(rng: np.random.Generator, n: int, by: float = mu) -> Array:
                return rng.normal(by, 1.0, n)

            situation = f"normal, mu {mu:g}, {trials} trials each"
            yield "two-run Gaussian", situation, mu, _two_run(shifted, LAWS["normal"], trials, True)
    yield "one-run binomial", "eps 1, each coin published with chance 1e-2", 1.0, _leaky(1.0, 1e-2, 1000, "binomial")
    yield "one-run f-dp", "eps 1, each coin published with chance 1e-2", 1.0, _leaky(1.0, 1e-2, 1000, "f-dp")


def _one_run(
    draw: Callable[[np.random.Generator, int], Array],
    canaries: int,
    method: OneRunMethod,
    calls: list[tuple[int, int]] | None = None,
) -> Audit:
    def audit(rng: np.random.Generator) -> EpsilonBound:
        # Members come first, as tables often have them: whatever reads the order reads the labels.
        labels = np.sort(rng.random(canaries) < 0.5)[::-1]
        scores = draw(rng, canaries)
        return one_run_audit(scores, labels, DELTA, calls=calls, method=method, seed=int(rng.integers(2**31)))

    return audit


def _pairs(draw: Callable[[np.random.Generator, int], Array], pairs: int) -> Audit:
    def audit(rng: np.random.Generator) -> EpsilonBound:
        planted, twins, seed = draw(rng, pairs), draw(rng, pairs), int(rng.integers(2**31))
        return one_run_epsilon([guess_pairs(planted, twins, k, seed=seed) for k in (pairs // 10, pairs)], DELTA)

    return audit


def _two_run(
    inside: Callable[[np.random.Generator, int], Array],
    outside: Callable[[np.random.Generator, int], Array],
    trials: int,
    gaussian: bool,
) -> Audit:
    return lambda rng: two_run_audit(inside(rng, trials), outside(rng, trials), DELTA, gaussian=gaussian)


def _extraction(kappa: float, success: float, trials: int) -> Audit:
    return lambda rng: extraction_epsilon(int(rng.binomial(trials, success)), trials, kappa)


def _randomised_response(epsilon: float, canaries: int) -> Audit:
    def audit(rng: np.random.Generator) -> EpsilonBound:
        labels = rng.random(canaries) < 0.5
        told = labels ^ (rng.random(canaries) >= 1 / (1 + math.exp(-epsilon)))
        ones = int(told.sum())
        return one_run_epsilon(guess_members(told.astype(np.float64), labels, ones, canaries - ones))

    return audit


def _normal_canaries(mu: float, canaries: int) -> Audit:
    def audit(rng: np.random.Generator) -> EpsilonBound:
        labels = rng.random(canaries) < 0.5
        scores = rng.normal(mu * labels, 1.0)
        return one_run_audit(scores, labels, DELTA, calls=default_calls(canaries), method="gaussian")

    return audit


def _leaky(epsilon: float, delta: float, canaries: int, method: OneRunMethod) -> Audit:
    """Randomised response that publishes each coin with chance delta: (eps, delta)-DP."""

    def audit(rng: np.random.Generator) -> EpsilonBound:
        labels = rng.random(canaries) < 0.5
        told = labels ^ (rng.random(canaries) >= 1 / (1 + math.exp(-epsilon)))
        published = rng.random(canaries) < delta
        scores = np.where(published, 10.0, 1.0) * np.where(np.where(published, labels, told), 1.0, -1.0)
        return one_run_audit(scores, labels, delta, calls=[(5, 5), (canaries // 2, canaries // 2)], method=method)

    return audit


def main(arguments: list[str] | None = None) -> int:
    """Runs the study and prints it; 0 where every cell is valid, 1 where one is not."""
    parser = argparse.ArgumentParser(prog="python -m davylamp.studies.calibration", description=__doc__)
    parser.add_argument("--audits", type=int, default=1000, help="audits a cell")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="file for the cells as JSON")
    options = parser.parse_args(arguments)
    cells = []
    sys.stdout.write(f"{'estimator':<20}{'situation':<58}{'truth':>6}{'median':>9}{'most':>9}{'beyond':>8}\n")
    for cell in calibrate(options.audits, options.seed):
        cells.append(cell)
        sys.stdout.write(
            f"{cell.estimator:<20}{cell.situation:<58}{cell.truth:>6.3g}{cell.middle:>9.4f}{cell.largest:>9.4f}"
            f"{cell.beyond:>8}{'' if cell.valid else '  INVALID'}\n"
        )
        sys.stdout.flush()
    try:
        if options.out is not None:
            shown = [dataclasses.asdict(cell) | {"valid": cell.valid} for cell in cells]
            write_text(options.out, json.dumps({"seed": options.seed, "cells": shown}, indent=1) + "\n")
    except DavylampError as error:
        sys.stderr.write(f"error: {error}\n")
        return error.exit_code
    invalid = sum(not cell.valid for cell in cells)
    allowed = cells[0].allowed
    sys.stdout.write(f"{len(cells)} cells of {options.audits} audits, {invalid} beyond {allowed}\n")
    return 0 if invalid == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
