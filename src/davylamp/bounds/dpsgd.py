"""DP-SGD as a trade-off curve: Poisson-subsampled Gaussian steps, composed by privacy loss distributions.

The curve errs on the safe side and says by how much. Below the truth lies dp-accounting's pessimistic
discretisation ("connect the dots", Doroshenko et al., PoPETs 2022); above it a discretisation of our own that is
reached by merging outcomes, so that it can only lose information. The true curve lies between the two.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import fft, special

from davylamp.bounds import checks
from davylamp.bounds.claims import Advantage, Claim
from davylamp.bounds.composition import curve_gap
from davylamp.bounds.curves import GroupedCurve, PointsCurve, concave_hull
from davylamp.errors import Fault

Array = NDArray[np.float64]
FFT_SLACK = 1e-11  # absolute error of probabilities after long convolutions, charged against the claim
COARSEST = 1e-4  # largest grid step of the privacy loss, nats
LARGEST_GRID = 2**18  # most grid points of a loss, of one step or composed
LINES = 3000  # privacy levels at which the curve's supporting lines are taken


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


@dataclass(frozen=True, slots=True, eq=False)
class DPSGD:
    """The trade-off curve of DP-SGD for adding or removing one record; build it with :func:`dp_sgd`.

    Attributes:
        runs: the training runs that it covers.
        curve: the pessimistic curve, which every answer uses: never above the true one.
        optimistic: a curve never below the true one.
        interval: grid step of the privacy loss, nats.
        gap: largest distance in type-II error between the two, ``sup_a optimistic(a) - curve(a)``; the true curve
            is at most this far above ``curve``.
    """

    runs: tuple[SGDRun, ...]
    curve: PointsCurve = field(repr=False)
    optimistic: PointsCurve = field(repr=False)
    interval: float
    gap: float

    @property
    def symmetric(self) -> bool:
        """True: adding and removing are both covered."""
        return True

    def tradeoff(self, alpha: ArrayLike) -> Array:
        """Least type-II error at type-I level ``alpha``, at most ``gap`` too low."""
        return self.curve.tradeoff(alpha)

    def power(self, alpha: ArrayLike) -> Array:
        """Largest power at type-I level ``alpha``, at most ``gap`` too high."""
        return self.curve.power(alpha)

    def inverse(self, beta: ArrayLike) -> Array:
        """Left inverse of the pessimistic curve."""
        return self.curve.inverse(beta)

    def level(self, risk: ArrayLike) -> Array:
        """``sup {a : 1 - f(a) <= risk}``; negative where none is."""
        return self.curve.level(risk)

    def advantage(self) -> Advantage:
        """Largest gap between power and level, at most ``gap`` too high."""
        return self.curve.advantage()

    def group(self, copies: int) -> Claim:
        """The k-fold curve of the pessimistic one."""
        checks.raise_faults(checks.whole("copies", copies))
        return self if copies == 1 else GroupedCurve(self, int(copies))

    def describe(self) -> str:
        """One line for people."""
        runs = " then ".join(
            f"noise {r.noise_multiplier:g}, rate {r.sampling_rate:g}, {r.steps} steps" for r in self.runs
        )
        return f"DP-SGD ({runs}; add or remove one record; curve at most {self.gap:.1e} below the exact one)"

    def as_dict(self) -> dict[str, object]:
        """Kind, parameters and the discretisation error."""
        runs = [
            {"noise": float(r.noise_multiplier), "rate": float(r.sampling_rate), "steps": int(r.steps)}
            for r in self.runs
        ]
        shown: dict[str, object] = dict(runs[0]) if len(runs) == 1 else {"runs": runs}
        return {"kind": "dpsgd", **shown, "interval": self.interval, "discretisation_gap": self.gap}


def dp_sgd(noise_multiplier: float, sampling_rate: float, steps: int, interval: float | None = None) -> DPSGD:
    """Curve of a DP-SGD run.

    Args:
        noise_multiplier: standard deviation of the noise over the clipping norm, above 0.
        sampling_rate: chance of each record to enter a batch (Poisson sampling), in (0, 1].
        steps: number of updates, at least 1.
        interval: grid step of the privacy loss in nats; chosen from the loss's spread when left out.

    Raises:
        InputError: a parameter is outside its range.
    """
    checks.raise_faults([] if interval is None else checks.positive("interval", interval))
    return join_runs([SGDRun(noise_multiplier, sampling_rate, steps)], interval)


def join_runs(runs: Sequence[SGDRun | DPSGD], interval: float | None = None) -> DPSGD:
    """One curve for several runs on the same records, one after the other.

    Args:
        runs: runs, or curves whose runs are joined.
        interval: grid step of the privacy loss in nats; chosen when left out.
    """
    steps: dict[tuple[float, float], int] = {}
    for run in runs:
        for r in run.runs if isinstance(run, DPSGD) else (run,):
            key = (float(r.noise_multiplier), float(r.sampling_rate))
            steps[key] = steps.get(key, 0) + int(r.steps)
    flat = tuple(SGDRun(noise, rate, count) for (noise, rate), count in steps.items())
    if len(runs) == 1 and isinstance(runs[0], DPSGD) and interval is None:
        return runs[0]
    low, high, spread = _loss_range(flat)
    widest = max([high - low] + [_step_range(run)[1] - _step_range(run)[0] for run in flat])
    step = interval or max(min(COARSEST, spread / 20), widest / LARGEST_GRID)
    curve = _pessimistic(flat, step, high)
    optimistic = _optimistic(flat, step, low, high)
    return DPSGD(flat, curve, optimistic, step, curve_gap(curve, optimistic))


def _loss(x: Array, run: SGDRun) -> Array:
    """Privacy loss ``ln P/Q`` at output ``x`` of one step, P with the record and Q without."""
    exponent = (2 * x - 1) / (2 * run.noise_multiplier**2)
    left_out = np.log1p(-run.sampling_rate) if run.sampling_rate < 1 else -np.inf
    return np.asarray(np.logaddexp(left_out, np.log(run.sampling_rate) + exponent), dtype=np.float64)


def _step_range(run: SGDRun) -> tuple[float, float]:
    """Range of one step's loss, up to outcomes of probability below 1e-20."""
    ends = np.array([-9.5 * run.noise_multiplier, 1 + 9.5 * run.noise_multiplier])
    low, high = _loss(ends, run)
    return float(low), float(high)


def _loss_range(runs: tuple[SGDRun, ...]) -> tuple[float, float, float]:
    """Range that holds the composed loss up to mass e^-40 (Chernoff), and the least spread of one step's loss."""
    spreads, log_moments = [], []
    for run in runs:
        sigma = run.noise_multiplier
        x = np.linspace(-10 * sigma, 1 + 10 * sigma, 20001)
        loss = _loss(x, run)
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


def _pessimistic(runs: tuple[SGDRun, ...], step: float, high: float) -> PointsCurve:
    """Lower envelope of the lines ``power <= delta(eps) + e^eps alpha`` and their mirror images."""
    from dp_accounting.pld import privacy_loss_distribution as pld

    parts = [
        pld.from_gaussian_mechanism(
            r.noise_multiplier,
            sampling_prob=r.sampling_rate,
            value_discretization_interval=step,
            use_connect_dots=True,
            pessimistic_estimate=True,
        ).self_compose(int(r.steps))
        for r in runs
    ]
    whole = parts[0]
    for part in parts[1:]:
        whole = whole.compose(part)
    top = int(np.ceil(min(high, 700.0) / step))  # fewer lines can only lower f; e^700 still fits
    epsilons = np.unique(np.linspace(0, top, LINES).round()) * step
    deltas = np.minimum(np.asarray(whole.get_delta_for_epsilon(epsilons)) + FFT_SLACK, 1.0)
    deltas = np.maximum.accumulate(deltas[::-1])[::-1]
    # Successive lines meet at rising privacy levels from right to left; the hull drops what rounding misplaced.
    growth = np.exp(epsilons)
    x = (deltas[:-1] - deltas[1:]) / (growth[1:] - growth[:-1])
    y = np.minimum(deltas[:-1] + growth[:-1] * x, deltas[1:] + growth[1:] * x)
    middle = (1 - deltas[0]) / 2
    x = np.append(np.append(x, 0.0), middle)
    y = np.append(np.append(y, deltas[-1]), 1 - middle)
    inside = x <= middle
    x, y = x[inside], y[inside]
    return PointsCurve(*concave_hull(np.concatenate([x, 1 - y, [1.0]]), np.concatenate([y, 1 - x, [1.0]])))


def _optimistic(runs: tuple[SGDRun, ...], step: float, low: float, high: float) -> PointsCurve:
    """Points that real tests reach, at thresholds of a composed loss that was merged and rounded down."""
    merged = [_merged_step(run, step) for run in runs]
    for run, (index, mass, loss) in zip(runs, merged, strict=True):
        # Rounding down moves the composed loss below ``low``, by its mean and (Hoeffding, e^-40) 4.5 sqrt(T) steps.
        low -= run.steps * float(mass @ (loss - index * step)) + 4.5 * np.sqrt(run.steps) * step
    size = fft.next_fast_len(int(np.ceil((high - low) / step)) + 2, real=True)
    spectrum = np.ones(size // 2 + 1, dtype=np.complex128)
    for run, (index, mass, _) in zip(runs, merged, strict=True):
        ring = np.bincount(index % size, weights=mass, minlength=size)
        spectrum *= fft.rfft(ring) ** int(run.steps)
    composed = fft.irfft(spectrum, size)  # not clipped: rounding below 0 cancels rounding above
    first = int(np.floor(low / step))
    grid = np.arange(first, first + size)
    mass = composed[grid % size]
    # Thresholds at losses of at least 0 only: there e^-loss does not magnify rounding. The rest is the mirror image.
    use = grid >= 0
    power = np.cumsum(mass[use][::-1]) - FFT_SLACK
    weight = np.exp(-grid[use][::-1] * step)
    level = np.cumsum(mass[use][::-1] * weight) + FFT_SLACK * weight
    pick = np.unique(np.linspace(0, len(power) - 1, 4 * LINES).round().astype(int))
    x, y = level[pick], power[pick]
    good = (y > x) & (y <= 1)
    x, y = x[good], y[good]
    return PointsCurve(
        *concave_hull(np.concatenate([[0.0], x, 1 - y, [1.0]]), np.concatenate([[0.0], y, 1 - x, [1.0]]))
    )


def _merged_step(run: SGDRun, step: float) -> tuple[NDArray[np.int64], Array, Array]:
    """One step's loss with outcomes merged into bins: grid indices, masses under P, and the bins' own losses.

    Merging is post-processing: it loses information and never adds any. A bin's own loss ``ln P(bin)/Q(bin)`` is
    steered to a grid point from just above by moving the bin's ends, then rounded down to that point, which for the
    hockey-stick divergence can only lose more.
    """
    floor, top = _step_range(run)
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
        return present, np.log(present / absent)


def _normal_mass(z: Array) -> Array:
    """Unit normal mass between neighbouring points, from the tail that is smaller so that it does not cancel."""
    upper = z[:-1] > 0
    return np.where(upper, special.ndtr(-z[:-1]) - special.ndtr(-z[1:]), special.ndtr(z[1:]) - special.ndtr(z[:-1]))
