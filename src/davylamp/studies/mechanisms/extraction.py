"""Extraction experiments: secrets of growing entropy, and a low-entropy canary beside a uniform one."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from davylamp.bounds import Prior, extraction_bound, min_entropy_threshold, pure_dp, uniform_bits, zipf_prior
from davylamp.bounds.figures import Axis, Chart, Mark, Series
from davylamp.bounds.mechanisms import GeometricCount, SubsetRelease, top_list
from davylamp.studies.mechanisms.result import Experiment, Row, four_errors
from davylamp.studies.mechanisms.spec import Canaries, Sweep

Array = NDArray[np.float64]
CELLS = 4_000_000  # noisy counts held at once


def entropy_sweep(spec: Sweep, trials: int, rng: np.random.Generator) -> Experiment:
    """Extraction of uniform secrets by lists, from the gadget and from noisy counts, against the bound (Thm 5.1)."""
    claim = pure_dp(spec.epsilon)
    rows, gadget_rates, count_rates = [], [], []
    bits = [b for b in sorted(spec.bits) if 2**b > spec.budget]
    for b in bits:
        size = 2**b
        gadget = SubsetRelease(claim, size, spec.budget)
        # The gadget is symmetric in the secret's value, so it may be 0.
        forced = float((gadget.sample(0, rng, trials) == 0).any(axis=1).mean())
        counted = list_rate_from_counts(spec.epsilon, size, spec.budget, trials, rng)
        bound = extraction_bound(claim, spec.budget / size)
        rows.append(Row(f"{b} bits, gadget", bound, False, forced, four_errors((forced, trials))))
        error = four_errors((counted, trials))
        rows.append(
            Row(f"{b} bits, top-{spec.budget} of noisy counts (at most)", bound, False, counted, error, below=True)
        )
        gadget_rates.append(forced)
        count_rates.append(counted)
    need = min_entropy_threshold(claim, spec.risk, spec.budget) or math.inf
    if (spec.epsilon, spec.budget, spec.risk) == (1.0, 4, 0.1):
        # 1/ln 2 + log2 40 = 6.7646, which the paper rounds up to the safe side.
        rows.append(Row("H*, bits (the paper rounds up)", 6.77, True, need, tolerance=0.01))
    crossing = _crossing(bits, gadget_rates, spec.risk)
    if crossing is not None:
        # Where the curve falls by half a bit, an error e in its height moves the crossing by e / (risk ln 2) bits; the
        # interpolation is exact because the gadget's rate is proportional to 2^-bits there.
        error = four_errors((spec.risk, trials)) / (spec.risk * math.log(2))
        rows.append(Row("entropy at which the gadget crosses the risk, bits", need, False, crossing, error))
    low = min(*(c for c in count_rates if c > 0), spec.risk) / 2
    fine = np.linspace(bits[0], bits[-1], 200)
    chart = Chart(
        f"Extraction by lists of {spec.budget}, eps = {spec.epsilon:g}",
        Axis("entropy of the secret (bits)", bits[0], bits[-1]),
        Axis("extraction (probability)", low, 1.0, log=True),
        [
            Series("bound 1 - f(kappa)", fine, extraction_bound(claim, spec.budget * 2.0**-fine)),
            Series("guessing without the release", fine, spec.budget * 2.0**-fine, colour=4, dashed=True),
            Series("measured, gadget", bits, gadget_rates, "points", 0),
            Series(f"measured, top-{spec.budget} of noisy counts", bits, count_rates, "points", 2),
        ],
        [
            Mark(f"risk {spec.risk:g}", y=spec.risk, colour=1),
            Mark(f"H* = {need:.2f} bits", x=need, colour=3),
        ],
        caption=f"{trials} releases a point.",
    )
    return Experiment("sweep", "Entropy sweep", tuple(rows), chart)


def canaries(spec: Canaries, rng: np.random.Generator) -> Experiment:
    """A canary that is easy to guess and one that is not, from noisy counts, by the best list."""
    claim = pure_dp(spec.epsilon)
    zipf, uniform = zipf_prior(spec.zipf.exponent, spec.zipf.values), uniform_bits(spec.uniform_bits)
    rows: list[Row] = []
    points = []
    for name, prior, printed in (("Zipf", zipf, (2.5, 0.355, 0.707, 0.76, 0.41)), ("uniform", uniform, None)):
        rate = best_list_rate(prior, spec.epsilon, spec.budget, spec.trials, rng)
        error = four_errors((rate, spec.trials))
        kappa = prior.kappa(spec.budget)
        bound = extraction_bound(claim, kappa)
        points.append((kappa, rate))
        if printed is not None:
            entropy, paper_kappa, paper_envelope, paper_bound, extracted = printed
            envelope = prior.envelope(spec.budget).value
            rows += [
                Row("Zipf canary: min-entropy, bits", entropy, True, prior.min_entropy(), tolerance=0.05),
                Row("Zipf canary: kappa", paper_kappa, True, kappa, tolerance=5e-4),
                Row("Zipf canary: envelope m 2^-Hinf", paper_envelope, True, envelope, tolerance=5e-4),
                Row("Zipf canary: bound", paper_bound, True, bound, tolerance=5e-3),
                Row("Zipf canary: extracted (about)", extracted, True, rate, error, 0.01),
            ]
        else:
            rows.append(Row("uniform canary: extracted (about)", 0.01, True, rate, error, 0.002))
        rows.append(Row(f"{name} canary: extracted, at most the bound", bound, False, rate, error, below=True))
    grid = np.geomspace(1e-3, 1, 200)
    chart = Chart(
        f"Two canaries, lists of {spec.budget}, eps = {spec.epsilon:g}",
        Axis("guessing baseline kappa (probability)", 1e-3, 1.0, log=True),
        Axis("extraction (probability)", 1e-3, 1.0, log=True),
        [
            Series("bound 1 - f(kappa)", grid, extraction_bound(claim, grid)),
            Series("guessing without the release", grid, grid, colour=4, dashed=True),
            Series(f"measured, {zipf.name}", [points[0][0]], [points[0][1]], "points", 3),
            Series(f"measured, {uniform.name}", [points[1][0]], [points[1][1]], "points", 2),
        ],
        caption=f"{spec.trials} releases each. The easy canary comes out often mostly because it is easy to guess.",
    )
    return Experiment("canaries", "A low-entropy canary and a uniform one", tuple(rows), chart)


def list_rate_from_counts(epsilon: float, size: int, budget: int, trials: int, rng: np.random.Generator) -> float:
    """How often the ``budget`` largest noisy counts hold a uniform secret planted once.

    All other cells are alike, so only how many exceed and how many equal the secret's noisy count matters: two
    binomial draws in place of ``size`` noises. Ties are broken at random. The largest counts are a best list, since
    every noisy count of at least 1 has the same likelihood ratio.
    """
    release = GeometricCount(epsilon)
    own = release.sample(1, rng, trials)
    above, equal = release.at_least(own + 1), release.mass(own)
    over = rng.binomial(size - 1, np.clip(above, 0, 1))
    tied = rng.binomial(size - 1 - over, np.clip(equal / (1 - above), 0, 1))
    chance = np.clip((budget - over) / (tied + 1), 0, 1)
    return float((rng.random(trials) < chance).mean())


def best_list_rate(prior: Prior, epsilon: float, budget: int, trials: int, rng: np.random.Generator) -> float:
    """How often the best list holds the secret: whole histograms are drawn, and the posterior's top values listed.

    The adversary knows everything but the secret: the prior, and every count without it.
    """
    size = prior.size
    masses = np.full(size, 1 / size) if prior.masses is None else prior.masses
    release, log_prior = GeometricCount(epsilon), np.log(masses)
    hits, left = 0, trials
    while left:
        now = min(left, max(1, CELLS // size))
        secret = rng.choice(size, now, p=masses)
        planted = np.zeros((now, size), dtype=np.int64)
        planted[np.arange(now), secret] = 1
        noisy = release.sample(planted, rng)
        # P(noisy | planted)/P(noisy | not) is e^eps for a noisy excess of at least 1, else e^-eps.
        posterior = log_prior + np.where(noisy >= 1, epsilon, -epsilon)
        # A uniform prior ties: an independent jitter far below any gap of the posterior breaks ties at random.
        listed = top_list(posterior + 1e-9 * rng.random(posterior.shape), budget)
        hits += int((listed == secret[:, None]).any(axis=1).sum())
        left -= now
    return hits / trials


def _crossing(bits: list[int], rates: list[float], risk: float) -> float | None:
    """Entropy at which the rates fall through the risk, log-linear between the two points around it."""
    for i in range(len(bits) - 1):
        upper, lower = rates[i], rates[i + 1]
        if upper >= risk > lower > 0:
            share = (math.log(upper) - math.log(risk)) / (math.log(upper) - math.log(lower))
            return bits[i] + share * (bits[i + 1] - bits[i])
    return None
