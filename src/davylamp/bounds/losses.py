"""Privacy losses of one Poisson-subsampled Gaussian step: their range, and a discretisation that only loses."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special

from davylamp.bounds import checks
from davylamp.errors import Fault

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class SGDRun:
    """One training run of DP-SGD.

    Attributes:
        noise_multiplier: standard deviation of the noise over the clipping norm, above 0.
        sampling_rate: chance of each record to enter a batch (Poisson sampling), in (0, 1].
        steps: number of updates, at least 1.
    """

    noise_multiplier: float
    sampling_rate: float
    steps: int

    def __post_init__(self) -> None:
        rate = self.sampling_rate
        bad_rate = bool(checks.unit("sampling_rate", rate)) or rate == 0
        faults = [Fault("sampling_rate", rate, "a number above 0 and at most 1")] if bad_rate else []
        checks.raise_faults(
            checks.positive("noise_multiplier", self.noise_multiplier), faults, checks.whole("steps", self.steps)
        )


def step_loss(x: Array, run: SGDRun) -> Array:
    """Privacy loss ``ln P/Q`` at output ``x`` of one step, P with the record and Q without."""
    exponent = (2 * x - 1) / (2 * run.noise_multiplier**2)
    left_out = np.log1p(-run.sampling_rate) if run.sampling_rate < 1 else -np.inf
    return np.asarray(np.logaddexp(left_out, np.log(run.sampling_rate) + exponent), dtype=np.float64)


def step_range(run: SGDRun) -> tuple[float, float]:
    """Range of one step's loss, up to outcomes of probability below 1e-20."""
    ends = np.array([-9.5 * run.noise_multiplier, 1 + 9.5 * run.noise_multiplier])
    low, high = step_loss(ends, run)
    return float(low), float(high)


def loss_range(runs: tuple[SGDRun, ...]) -> tuple[float, float, float]:
    """Range that holds the composed loss up to mass e^-40 (Chernoff), and the least spread of one step's loss."""
    spreads, log_moments = [], []
    for run in runs:
        sigma = run.noise_multiplier
        x = np.linspace(-10 * sigma, 1 + 10 * sigma, 20001)
        loss = step_loss(x, run)
        mass = np.exp(-x * x / (2 * sigma**2) + loss)
        mass /= mass.sum()
        mean = float(mass @ loss)
        spreads.append(float(np.sqrt(mass @ (loss - mean) ** 2)))
        log_moments.append((run.steps, loss, np.log(np.maximum(mass, 1e-300))))
    scale = max(s * np.sqrt(r.steps) for s, r in zip(spreads, runs, strict=True))
    orders = np.geomspace(1e-2, 1e2, 60) / scale

    def bound(sign: float) -> float:
        tails = [
            (sum(n * special.logsumexp(sign * t * loss + mass) for n, loss, mass in log_moments) + 40) / t
            for t in orders
        ]
        return float(min(tails))

    return -bound(-1.0), bound(1.0), min(spreads)


def merged_step(run: SGDRun, step: float) -> tuple[NDArray[np.int64], Array, Array]:
    """One step's loss with outcomes merged into bins: grid indices, masses under P, and the bins' own losses.

    Merging is post-processing: it loses information and never adds any. A bin's own loss ``ln P(bin)/Q(bin)`` is
    steered to a grid point from just above by moving the bin's ends, then rounded down to that point, which for the
    hockey-stick divergence can only lose more.
    """
    floor, top = step_range(run)
    index = np.arange(int(np.floor(floor / step)), int(np.ceil(top / step)) + 1)
    target = index * step
    ends = np.append(target - step / 2, target[-1] + step / 2)
    aim = 1e-4 * step
    for _ in range(5):
        mass, loss = _bin_loss(np.maximum.accumulate(ends), run)
        error = np.clip(np.where(mass > 1e-250, loss - target - aim, 0.0), -step / 4, step / 4)
        ends[1:-1] -= (error[1:] + error[:-1]) / 2
    # A bin left just below its point would be rounded down by a whole step: lift its ends until none is.
    for _ in range(20):
        mass, loss = _bin_loss(np.maximum.accumulate(ends), run)
        short = np.clip(np.where(mass > 1e-250, target - loss, 0.0), 0.0, step / 4)
        if not short.any():
            break
        ends[1:-1] += 1.01 * np.maximum(short[1:], short[:-1]) + np.where(short[1:] + short[:-1] > 0, aim / 10, 0)
    mass, loss = _bin_loss(np.maximum.accumulate(ends), run)
    used = (mass > 1e-250) & np.isfinite(loss)
    return np.floor(loss[used] / step).astype(np.int64), mass[used], loss[used]


def _bin_loss(ends: Array, run: SGDRun) -> tuple[Array, Array]:
    """Mass under P and loss ``ln P/Q`` of the bins between given losses."""
    q, sigma = run.sampling_rate, run.noise_multiplier
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        inner = 1 - (1 - q) * np.exp(-ends)
        x = np.where(inner > 0, sigma**2 * (ends + np.log(np.maximum(inner, 0)) - np.log(q)) + 0.5, -np.inf)
        absent, shifted = _normal_mass(x / sigma), _normal_mass((x - 1) / sigma)
        present = (1 - q) * absent + q * shifted
        # Far out Q underflows; there the bin's loss is at least that of its lower end.
        return present, np.where(absent > 0, np.log(present / absent), ends[:-1])


def _normal_mass(z: Array) -> Array:
    """Unit normal mass between neighbouring points, from the tail that is smaller so that it does not cancel."""
    upper = z[:-1] > 0
    return np.where(upper, special.ndtr(-z[:-1]) - special.ndtr(-z[1:]), special.ndtr(z[1:]) - special.ndtr(z[:-1]))
