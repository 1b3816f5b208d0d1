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
from scipy import fft

from davylamp.bounds import checks
from davylamp.bounds.claims import Advantage, Claim
from davylamp.bounds.composition import curve_gap
from davylamp.bounds.curves import GroupedCurve, PointsCurve, concave_hull
from davylamp.bounds.losses import SGDRun, loss_range, merged_step, step_range
from davylamp.errors import Fault

Array = NDArray[np.float64]
FFT_SLACK = 1e-11  # absolute error of probabilities after long convolutions, charged against the claim
COARSEST = 1e-4  # largest grid step of the privacy loss, nats, where the loss spans no more than LARGEST_GRID
MOST_POINTS = 2**23  # beyond, a run is refused: it would take minutes and gigabytes
LEAST_SPREAD = 1e-11  # nats; below, doubles near 1 do not resolve the losses of one step
LARGEST_GRID = 2**18  # most grid points of a loss, of one step or composed
LINES = 3000  # privacy levels at which the curve's supporting lines are taken


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
    low, high, spread = loss_range(flat)
    widest = max([high - low] + [step_range(run)[1] - step_range(run)[0] for run in flat])
    # The least loss of a step is ln(1-q); dp-accounting needs grid points above it.
    deepest = min([-float(np.log1p(-r.sampling_rate)) for r in flat if r.sampling_rate < 1], default=np.inf)
    step = interval or min(max(min(COARSEST, spread / 20), widest / LARGEST_GRID), 0.4 * deepest)
    checks.raise_faults(_grid_faults(flat, interval, widest / step, deepest, spread))
    curve = _pessimistic(flat, step, high)
    optimistic = _optimistic(flat, step, low, high)
    return DPSGD(flat, curve, optimistic, step, curve_gap(curve, optimistic))


def _grid_faults(
    runs: tuple[SGDRun, ...], interval: float | None, points: float, deepest: float, spread: float
) -> list[Fault]:
    """Faults of runs that cannot be accounted for in double precision, or on the grid asked for."""
    if interval is not None and interval > 0.5 * deepest:
        return [Fault("interval", interval, f"at most -ln(1 - sampling_rate)/2 ({0.5 * deepest:g})")]
    way_out = "The curve of a larger sampling rate is valid and more cautious."
    rate = min(r.sampling_rate for r in runs)
    if spread < LEAST_SPREAD:
        return [Fault("sampling_rate", rate, f"a rate at which one step's loss spreads {LEAST_SPREAD:g} nats", way_out)]
    if points > MOST_POINTS:
        noise = min(r.noise_multiplier for r in runs)
        allowed = f"noise and rate whose loss needs {MOST_POINTS} grid points or fewer (here {points:.2g})"
        return [Fault("noise_multiplier", noise, allowed, way_out)]
    return []


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
    x = np.concatenate([[0.0], x[::-1], [1.0]])
    y = np.concatenate([[deltas[-1]], y[::-1], [deltas[0] + 1]])
    # The mirror image takes over where power = 1 - alpha, on the line of eps = 0 unless rounding has used that up.
    total = x + y
    j = int(np.argmax(total >= 1))
    share = (1 - total[j - 1]) / (total[j] - total[j - 1]) if j else 0.0
    middle = x[j - 1] + share * (x[j] - x[j - 1]) if j else 0.0
    x, y = np.append(x[:j], middle), np.append(y[:j], 1 - middle)
    return PointsCurve(*concave_hull(np.concatenate([x, 1 - y, [1.0]]), np.concatenate([y, 1 - x, [1.0]])))


def _optimistic(runs: tuple[SGDRun, ...], step: float, low: float, high: float) -> PointsCurve:
    """Points that real tests reach, at thresholds of a composed loss that was merged and rounded down."""
    merged = [merged_step(run, step) for run in runs]
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
