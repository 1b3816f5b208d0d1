"""Memorization experiments: the advantage curves, repeated canaries, and records with parameters of their own."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from davylamp.bounds import ApproxDP, GaussianDP, k_copies, pure_dp
from davylamp.bounds.figures import Axis, Chart, Mark, Series
from davylamp.bounds.mechanisms import BernoulliStaircase, GeometricCount, RandomisedResponse
from davylamp.studies.mechanisms.result import Experiment, Row, four_errors
from davylamp.studies.mechanisms.spec import Curves, Instances, Staircase

Array = NDArray[np.float64]


def advantage_curves(spec: Curves, trials: int, rng: np.random.Generator) -> Experiment:
    """The largest advantage of pure, approximate and Gaussian claims, and tests that attain it (Thm 4.1)."""
    rows, measured = [], []
    for eps in spec.epsilons:
        bits = RandomisedResponse(eps)
        # Approximate DP: with probability delta the release tells everything, else it is the pure one.
        told = rng.random(trials) < spec.delta
        hit = float((bits.sample(1, rng, trials) | told).mean())
        false = float((bits.sample(0, rng, trials).astype(bool) & ~(rng.random(trials) < spec.delta)).mean())
        pairs = (
            (f"pure, eps = {eps:g}", pure_dp(eps).advantage().value, *_bit_rates(bits, trials, rng)),
            (f"delta = {spec.delta:g}, eps = {eps:g}", ApproxDP(eps, spec.delta).advantage().value, hit, false),
            (f"Gaussian, mu = {eps:g}", GaussianDP(eps).advantage().value, *_gaussian_rates(eps, trials, rng)),
        )
        for name, exact, up, down in pairs:
            rows.append(Row(f"advantage, {name}", exact, False, up - down, four_errors((up, trials), (down, trials))))
        measured.append([up - down for _, _, up, down in pairs])
    grid = np.linspace(0, max(spec.epsilons), 200)
    claims = (
        ("pure eps-DP: tanh(eps/2)", [pure_dp(float(e)).advantage().value for e in grid]),
        (f"(eps, {spec.delta:g})-DP", [ApproxDP(float(e), spec.delta).advantage().value for e in grid]),
        ("mu-GDP: 2 Phi(mu/2) - 1", [GaussianDP(float(e)).advantage().value for e in grid]),
    )
    series = [Series(name, grid, values, colour=i) for i, (name, values) in enumerate(claims)]
    series += [
        Series(f"measured, {('pure', 'approximate', 'Gaussian')[i]}", spec.epsilons, values, "points", i)
        for i, values in enumerate(np.array(measured).T)
    ]
    chart = Chart(
        "Largest memorization that a claim allows",
        Axis("eps (nats), or mu", 0.0, max(spec.epsilons)),
        Axis("advantage (probability)", 0.0, 1.0),
        series,
        caption=f"Points: the release that attains each curve, {trials} runs with and without the record.",
    )
    return Experiment("curves", "Advantage curves", tuple(rows), chart)


def staircase(spec: Staircase, trials: int, rng: np.random.Generator) -> Experiment:
    """A canary planted k times in a Zipf corpus that is released as noisy counts (Lemma 4.4)."""
    corpus = rng.choice(spec.corpus.values, spec.corpus.records, p=_zipf(spec.corpus.exponent, spec.corpus.values))
    counts = np.bincount(corpus, minlength=spec.corpus.values)
    canary = int(np.argmin(counts))
    base = int(counts[canary])
    release = GeometricCount(spec.epsilon)
    ks = np.arange(1, spec.copies + 1)
    rows, counted, stepped, group = [], [], [], []
    for k in ks.tolist():
        answer = k_copies(pure_dp(spec.epsilon), k)
        middle = base + k // 2 + k % 2
        # Noise is drawn a cell, and only the canary's own cell depends on k: the others need no drawing.
        up = float((release.sample(base + k, rng, trials) >= middle).mean())
        down = float((release.sample(base, rng, trials) >= middle).mean())
        bit = BernoulliStaircase(spec.epsilon, k)
        high, low = float(bit.sample(k, rng, trials).mean()), float(bit.sample(0, rng, trials).mean())
        printed = k == 2 and spec.epsilon == 1
        constant, bound = answer.advantage, answer.group_advantage or 1.0
        if printed:
            rows.append(Row("k = 2, constant", 0.632, True, constant, tolerance=5e-4))
            rows.append(Row("k = 2, group bound tanh(k eps/2)", 0.762, True, bound, tolerance=5e-4))
        rows.append(
            Row(f"k = {k}, noisy counts", constant, False, up - down, four_errors((up, trials), (down, trials)))
        )
        error = four_errors((high, trials), (low, trials))
        rows.append(Row(f"k = {k}, one-bit staircase", constant, False, high - low, error))
        counted.append(up - down)
        stepped.append(high - low)
        group.append(bound)
    exact = [k_copies(pure_dp(spec.epsilon), k).advantage for k in ks.tolist()]
    chart = Chart(
        f"Memorization of a record that occurs k times, eps = {spec.epsilon:g}",
        Axis("copies k", 0.0, float(spec.copies)),
        Axis("advantage (probability)", 0.0, 1.0),
        [
            Series("exact constant (Lemma 4.4)", ks, exact),
            Series("group bound tanh(k eps/2), not attained", ks, group, colour=3, dashed=True),
            Series("measured, noisy counts", ks, counted, "points", 0),
            Series("measured, one-bit staircase", ks, stepped, "points", 2),
        ],
        caption=f"A Zipf corpus of {spec.corpus.records} records over {spec.corpus.values} values, "
        f"{trials} releases a point.",
    )
    return Experiment("staircase", "Repeated canaries", tuple(rows), chart)


def instances(spec: Instances, rng: np.random.Generator) -> Experiment:
    """Records with privacy parameters of their own (Rem 4.5): one family attains its caps, one stays below."""
    eps = np.exp(rng.uniform(math.log(spec.low), math.log(spec.high), spec.number))
    cap = np.tanh(eps / 2)
    best, best_sigma = _measured_advantage(cap, spec.trials, rng)
    weak, weak_sigma = _measured_advantage((1 - 2 * spec.flip) * cap, spec.trials, rng)
    # Family-wise at 4 sigma: the chance that any of the estimates strays is that of one normal beyond 4 sigma, which
    # takes a wider margin for each (5.4 sigma for a thousand). At 4 sigma each, one in 30 studies would stray by luck.
    margin = float(stats.norm.isf(stats.norm.sf(4) / (2 * spec.number)))
    best_error, weak_error = margin * best_sigma, margin * weak_sigma
    over = int((best > cap + best_error).sum() + (weak > cap + weak_error).sum())
    off = int((np.abs(best - cap) > best_error).sum())
    off_weak = int((np.abs(weak - (1 - 2 * spec.flip) * cap) > weak_error).sum())
    rank = float(stats.spearmanr(eps, best).statistic)
    rows = (
        Row("estimates above their cap, family-wise at 4 sigma", 0, True, over),
        Row("extremal family off tanh(eps/2)", 0, False, off),
        Row(f"BSC({spec.flip:g}) family off its own curve", 0, False, off_weak),
        Row("Spearman of memorization and eps", 0.998, True, rank, tolerance=1e-3),
    )
    grid = np.linspace(0, spec.high, 200)
    chart = Chart(
        f"{spec.number} records, each with its own eps",
        Axis("eps of the record (nats)", 0.0, spec.high),
        Axis("counterfactual memorization (probability)", -0.05, 1.0),
        [
            Series("cap tanh(eps/2)", grid, np.tanh(grid / 2)),
            Series(f"{1 - 2 * spec.flip:g} tanh(eps/2)", grid, (1 - 2 * spec.flip) * np.tanh(grid / 2), colour=1),
            Series("measured, extremal", eps, best, "points", 0),
            Series(f"measured, BSC({spec.flip:g})", eps, weak, "points", 1),
        ],
        [Mark("", y=0.0, colour=4)],
        caption=f"{spec.trials} runs with and without each record.",
    )
    return Experiment("instances", "Per-instance parameters", rows, chart)


def _measured_advantage(advantage: Array, trials: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Measured gaps of randomised responses with given advantages, and the standard error of each."""
    truth = (1 + advantage) / 2
    up = rng.binomial(trials, truth) / trials
    down = rng.binomial(trials, 1 - truth) / trials
    return up - down, np.sqrt(2 * truth * (1 - truth) / trials)


def _bit_rates(bits: RandomisedResponse, trials: int, rng: np.random.Generator) -> tuple[float, float]:
    return float(bits.sample(1, rng, trials).mean()), float(bits.sample(0, rng, trials).mean())


def _gaussian_rates(mu: float, trials: int, rng: np.random.Generator) -> tuple[float, float]:
    threshold = mu / 2
    return float((rng.standard_normal(trials) + mu > threshold).mean()), float(
        (rng.standard_normal(trials) > threshold).mean()
    )


def _zipf(exponent: float, values: int) -> Array:
    weights = np.arange(1, values + 1, dtype=np.float64) ** -exponent
    return np.asarray(weights / weights.sum())
