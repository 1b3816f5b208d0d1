"""Bounds against a Python loop, and the DP-SGD curve against riskcal's and dp-accounting's own, as ratios in one run.

    python benchmarks/bounds.py [--kappas 1000000]

The loop is the textbook formula with ``math``, one number at a time. It is timed on a share of the numbers and scaled
up, since it grows linearly. Times are process CPU seconds, the best of three.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable
from statistics import NormalDist

import numpy as np
from dp_accounting.pld import privacy_loss_distribution as pld
from riskcal.calibration import dpsgd as riskcal_dpsgd

from davylamp.bounds import (
    ApproxDP,
    Claim,
    GaussianDP,
    compose,
    dp_sgd,
    extraction_bound,
    pure_dp,
    safe_baseline,
)

LOOPED = 20_000  # numbers that the loop is timed on


def seconds(action: Callable[[], object], repeats: int = 3) -> float:
    """Least CPU time of a few runs."""
    best = math.inf
    for _ in range(repeats):
        start = time.process_time()
        action()
        best = min(best, time.process_time() - start)
    return best


def loop_approx(epsilon: float, delta: float, copies: int) -> Callable[[float], float]:
    """Textbook extraction bound of (eps, delta)-DP, iterated for copies."""
    grow, shrink = math.exp(epsilon), math.exp(-epsilon)

    def bound(kappa: float) -> float:
        for _ in range(copies):
            kappa = min(1.0, 1 - max(0.0, 1 - delta - grow * kappa, shrink * (1 - delta - kappa)))
        return kappa

    return bound


def loop_gaussian(mu: float) -> Callable[[float], float]:
    """Textbook extraction bound of mu-GDP."""
    normal = NormalDist()
    return lambda kappa: 1 - normal.cdf(normal.inv_cdf(1 - kappa) - mu)


def loop_points(claim: Claim) -> Callable[[float], float]:
    """Interpolation between the vertices of a curve, by bisection."""
    from bisect import bisect_right

    x, y = claim.alphas.tolist(), claim.powers.tolist()

    def bound(kappa: float) -> float:
        i = min(bisect_right(x, kappa), len(x) - 1)
        return y[i - 1] + (y[i] - y[i - 1]) * (kappa - x[i - 1]) / (x[i] - x[i - 1])

    return bound


def compare_loops(kappas: np.ndarray) -> None:
    """A million kappas through each bound, against the loop."""
    run = dp_sgd(1.1, 0.004, 3000)
    points = compose(pure_dp(0.5), pure_dp(0.3), GaussianDP(0.2))
    cases = [
        ("pure, eps = 1", pure_dp(1.0), 1, loop_approx(1.0, 0.0, 1)),
        ("(1, 1e-5)-DP", ApproxDP(1.0, 1e-5), 1, loop_approx(1.0, 1e-5, 1)),
        ("pure, 8 copies", pure_dp(1.0), 8, loop_approx(1.0, 0.0, 8)),
        ("(1, 1e-5)-DP, 1000 copies", ApproxDP(1e-3, 1e-8), 1000, loop_approx(1e-3, 1e-8, 1000)),
        ("Gaussian, mu = 1", GaussianDP(1.0), 1, loop_gaussian(1.0)),
        ("composed, by points", points, 1, loop_points(points)),
        ("DP-SGD, 3000 steps", run, 1, loop_points(run.curve)),
    ]
    print(f"extraction bound of {kappas.size:,} kappas            davylamp      loop     ratio   largest difference")
    for name, claim, copies, loop in cases:
        ours = seconds(lambda c=claim, k=copies: extraction_bound(c, kappas, k))
        share = kappas[:: max(1, kappas.size // (LOOPED // (20 if copies > 100 else 1)))]
        theirs = seconds(lambda f=loop, s=share: [f(k) for k in s.tolist()], 1) * kappas.size / share.size
        gap = np.abs(extraction_bound(claim, share, copies) - [loop(k) for k in share.tolist()]).max()
        print(f"  {name:<44} {ours:>8.3f} s {theirs:>8.2f} s {theirs / ours:>8.0f}x {gap:>12.1e}")
    risks = np.clip(kappas, 1e-9, 1 - 1e-9)
    print(f"  safe baseline, pure, eps = 1 {'':<15} {seconds(lambda: safe_baseline(pure_dp(1.0), risks)):>8.3f} s")


def compare_curves() -> None:
    """The DP-SGD curve at 200 levels: ours, riskcal's, and lines from dp-accounting's own profile."""
    levels = np.linspace(0.001, 0.999, 200)
    noise, rate, steps = 1.1, 0.004, 3000

    def from_profile() -> np.ndarray:
        step = pld.from_gaussian_mechanism(noise, sampling_prob=rate, value_discretization_interval=1e-4)
        epsilons = np.linspace(0, 8, 3000)
        deltas = np.asarray(step.self_compose(steps).get_delta_for_epsilon(epsilons))
        lower = (1 - deltas)[:, None] - np.exp(epsilons)[:, None] * levels
        upper = np.exp(-epsilons)[:, None] * ((1 - deltas)[:, None] - levels)
        return np.maximum(np.maximum(lower, upper).max(axis=0), 0)

    def from_riskcal() -> np.ndarray:
        return riskcal_dpsgd.get_beta_for_dpsgd(
            alpha=levels, noise_multiplier=noise, sample_rate=rate, num_steps=steps, grid_step=1e-4
        )

    ours = dp_sgd(noise, rate, steps)
    base = seconds(lambda: dp_sgd(noise, rate, steps))
    # Above the optimistic curve no correct curve may lie; below ours it is looser than ours.
    ceiling, floor = ours.optimistic.tradeoff(levels), ours.tradeoff(levels)
    print(f"\nDP-SGD curve (noise {noise}, rate {rate}, {steps} steps), 200 levels, grid 1e-4")
    print(f"  {'davylamp, both sides':<34} {base:>7.3f} s   proven gap {ours.gap:.1e}")
    for name, make in (("riskcal", from_riskcal), ("dp-accounting's profile by lines", from_profile)):
        beta, spent = make(), seconds(make)
        loose, unsafe = max((floor - beta).max(), 0), max((beta - ceiling).max(), 0)
        print(
            f"  {name:<34} {spent:>7.3f} s   {spent / base:.2f}x ours   "
            f"looser than ours by {loose:.1e}, claims more than the truth by {unsafe:.1e}"
        )


def main() -> None:
    """Runs both comparisons."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kappas", type=int, default=1_000_000)
    count = parser.parse_args().kappas
    assert count >= 1000, "--kappas must be at least 1000"
    compare_loops(np.random.default_rng(0).random(count))
    compare_curves()


if __name__ == "__main__":
    main()
