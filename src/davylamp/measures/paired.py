"""The paired comparison: the same canaries under two treatments, canary by canary."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from davylamp.bounds.intervals import bootstrap_median_interval, median_interval, resampling_faults, sign_test
from davylamp.errors import Fault, InputError
from davylamp.measures.pairing import table_faults
from davylamp.secrets import stream

TIE = 1e-9
"""Differences of at most this count as ties. Two exposures of one candidate set that differ at all differ by at least
``log2(1 + 1 / (2 N))`` (mid-ranks move by halves): 7e-7 bits for the largest set, a million. Rounding stays below 1e-14
bits. Anything between tells the two apart."""


@dataclass(frozen=True, slots=True)
class PairedGroup:
    """The pairs of one group, such as the canaries of one seed.

    Attributes:
        name: of the group.
        n: pairs.
        rises: pairs whose second value is larger.
        falls: pairs whose second value is smaller.
        ties: pairs that are neither.
        median: of the differences.
    """

    name: str | int
    n: int
    rises: int
    falls: int
    ties: int
    median: float


@dataclass(frozen=True, slots=True)
class Paired:
    """What became of the same things under a second treatment.

    Attributes:
        n: pairs.
        rises: pairs whose second value is larger.
        falls: pairs whose second value is smaller.
        ties: pairs that are neither.
        median: of the differences, second less first; ties count as 0.
        low: lower end of the percentile bootstrap interval of the median, which covers less than ``confidence`` for
            few pairs (see :func:`davylamp.bounds.intervals.bootstrap_median_interval`).
        high: its upper end.
        exact_low: lower end of the interval of order statistics, which covers at least ``confidence``; minus infinity
            where there are too few pairs for one.
        exact_high: its upper end; plus infinity with too few pairs.
        p: of the two-sided exact sign test, ties dropped.
        confidence: of both intervals.
        unit: of the median and the intervals.
        what: plural name of what was compared.
        groups: the same counts and the median group by group, in the order in which the groups first occur.
    """

    n: int
    rises: int
    falls: int
    ties: int
    median: float
    low: float
    high: float
    exact_low: float
    exact_high: float
    p: float
    confidence: float
    unit: str
    what: str = "exposures"
    groups: tuple[PairedGroup, ...] = ()

    @property
    def statement(self) -> str:
        """One sentence, with the exact interval: that one keeps the confidence it is given with.

        ``87 of 96 exposures rise (sign test p = 3.6e-17), paired median +3.12 bits [95%: +2.40, +3.90]``
        """
        unit = f" {self.unit}" if self.unit else ""
        share = f"{100 * self.confidence:g}%"
        if math.isfinite(self.exact_low):
            interval = f"{share}: {_signed(self.exact_low)}, {_signed(self.exact_high)}"
        else:
            pairs = f"{self.n} {'pair' if self.n == 1 else 'pairs'}"
            interval = f"no {share} interval from {pairs}, it takes {math.ceil(1 - math.log2(1 - self.confidence))}"
        return f"{self._counts()}, paired median {_signed(self.median)}{unit} [{interval}]"

    def _counts(self) -> str:
        if not self.rises and not self.falls:
            return f"{self.ties} of {self.n} {self.what} {_are(self.ties)} tied"
        rise, fall = _verb(self.rises, "rise"), _verb(self.falls, "fall")
        lead, verb = (self.falls, fall) if self.falls > self.rises else (self.rises, rise)
        said = f"{lead} of {self.n} {self.what} {verb}"
        # Without ties the other side is what is left, unless both are the same.
        if self.rises == self.falls:
            said += f", {self.falls} {fall}"
        elif self.ties and self.n > lead + self.ties:
            said += f", {self.falls} {fall}" if lead == self.rises else f", {self.rises} {rise}"
        if self.ties:
            said += f", {self.ties} {_are(self.ties)} tied"
        chance = f"p = {self.p:.2g}" if self.p >= 1e-300 else "p < 1e-300"
        return f"{said} (sign test {chance})"


def paired(
    first: Sequence[float] | NDArray[np.float64],
    second: Sequence[float] | NDArray[np.float64],
    *,
    groups: Sequence[str | int] | None = None,
    unit: str = "bits",
    what: str = "exposures",
    confidence: float = 0.95,
    seed: int = 0,
    resamples: int = 10_000,
    tolerance: float = TIE,
) -> Paired:
    """Compare two values of the same things, pair by pair.

    The p-value and the intervals take the pairs as independent. Canaries of one model share that model: they speak of
    other canaries under these models, and nothing of a training with another seed. Give ``groups``, such as the seed
    of each pair, and look whether the groups agree.

    Args:
        first: values under the first treatment, shape (n,), n at least 1, finite.
        second: values of the same things under the second, shape (n,).
        groups: the group of each pair, shape (n,), for a breakdown; none without.
        unit: of the values.
        what: plural name of the things, for the statement.
        confidence: of the intervals, in (0, 1).
        seed: of the bootstrap's draws, at least 0.
        resamples: of the bootstrap.
        tolerance: the largest difference that counts as a tie, at least 0, in the unit of the values: 1e-9 tells
            exposures apart. For log-likelihoods take what their computation leaves uncertain.

    Raises:
        InputError: a value is not finite, lengths differ, there is no pair, or a setting is outside its range.
    """
    faults = _setting_faults(confidence, seed, resamples, tolerance)
    before, after = _numbers("first", first, faults), _numbers("second", second, faults)
    labels = None if groups is None else list(groups)
    for name, others in (("second", after), ("groups", labels)):
        if before is not None and others is not None and len(others) != len(before):
            faults.append(Fault(name, f"{len(others)} values", f"{len(before)} values, one for each of first"))
    if faults or before is None or after is None:
        raise InputError(faults)
    differences = _differences(before, after, tolerance)
    drawn = bootstrap_median_interval(differences, stream(seed, "paired", "bootstrap"), confidence, resamples)
    exact = median_interval(differences, confidence)
    rises, falls, ties = _signs(differences)
    return Paired(
        n=len(differences),
        rises=rises,
        falls=falls,
        ties=ties,
        median=float(np.median(differences)),
        low=drawn.low,
        high=drawn.high,
        exact_low=exact.low,
        exact_high=exact.high,
        p=sign_test(rises, falls),
        confidence=confidence,
        unit=unit,
        what=what,
        groups=() if labels is None else _groups(labels, differences),
    )


def paired_readings(
    frame_first: pl.DataFrame,
    frame_second: pl.DataFrame,
    on: Sequence[str] = ("seed", "canary"),
    *,
    by: str | None = "seed",
    what: str = "exposures",
    confidence: float = 0.95,
    seed: int = 0,
    resamples: int = 10_000,
    tolerance: float = TIE,
) -> Paired:
    """Compare two tables of readings, row by row of the same key; no row is left out.

    Args:
        frame_first: readings under the first treatment, with the columns of
            :data:`davylamp.measures.readings.SCHEMA`, filtered to one measure, probe, target and release.
        frame_second: readings of the same keys under the second.
        on: columns that together name a row.
        by: one of them, for the breakdown by group; none without.
        what: plural name of the things, for the statement.
        confidence: of the intervals, in (0, 1).
        seed: of the bootstrap's draws, at least 0.
        resamples: of the bootstrap.
        tolerance: the largest difference that counts as a tie; see :func:`paired`.

    Returns:
        The comparison in the unit of the tables. Pairs are in the order of their keys, whatever that of the rows.

    Raises:
        InputError: a column is missing, a table is empty, holds several measures, probes, targets, releases or units,
            a key twice, a key that the other has not, a key or a value that is missing or no finite number, or a
            setting is outside its range. All faults are named, keys by their number and the first few.
    """
    keys = list(on)
    faults = table_faults({"frame_first": frame_first, "frame_second": frame_second}, keys)
    if by is not None and by not in keys:
        faults.append(Fault("by", by, f"one of the keys {tuple(keys)}, or None"))
    faults += _setting_faults(confidence, seed, resamples, tolerance)
    if faults:
        raise InputError(faults)
    # The keys of both are the same and stand once, so that sorting alone puts partners side by side.
    before, after = frame_first.sort(keys), frame_second.sort(keys)
    return paired(
        before["value"].to_numpy(),
        after["value"].to_numpy(),
        groups=None if by is None else before[by].to_list(),
        unit=before["unit"][0],
        what=what,
        confidence=confidence,
        seed=seed,
        resamples=resamples,
        tolerance=tolerance,
    )


def _setting_faults(confidence: float, seed: int, resamples: int, tolerance: float) -> list[Fault]:
    faults = resampling_faults(confidence, resamples)
    try:
        stream(seed)
    except InputError as error:
        faults += error.faults
    if not (math.isfinite(tolerance) and tolerance >= 0):
        faults.append(Fault("tolerance", tolerance, "a finite number of at least 0"))
    return faults


def _numbers(
    name: str, values: Sequence[float] | NDArray[np.float64], faults: list[Fault]
) -> NDArray[np.float64] | None:
    """Values as an array, or none where they are no list of numbers; what is wrong goes to ``faults``."""
    try:
        data = np.asarray(values)
    except ValueError:  # Lists of unequal lengths.
        data = np.empty(0)
    if data.ndim != 1 or data.size == 0 or data.dtype.kind not in "iuf":
        faults.append(Fault(name, values, "a non-empty list of finite numbers"))
        return None
    found = data.astype(np.float64)
    bad = np.flatnonzero(~np.isfinite(found))
    if bad.size:
        allowed = f"a finite number; {bad.size} of {found.size} are not"
        faults.append(Fault(f"{name}[{bad[0]}]", float(found[bad[0]]), allowed))
    return found


def _differences(before: NDArray[np.float64], after: NDArray[np.float64], tolerance: float) -> NDArray[np.float64]:
    with np.errstate(over="ignore"):
        differences = after - before
        # Twice, since a median may add two of them.
        wide = np.flatnonzero(~np.isfinite(2 * differences))
    if wide.size:
        where = int(wide[0])
        shown = (float(before[where]), float(after[where]))
        raise InputError(Fault(f"pair {where}", shown, "values whose difference is a float64"))
    # A tie is 0 in the median and the intervals too, so that they agree with the signs.
    return np.where(np.abs(differences) <= tolerance, 0.0, differences)


def _signs(differences: NDArray[np.float64]) -> tuple[int, int, int]:
    rises, falls = int((differences > 0).sum()), int((differences < 0).sum())
    return rises, falls, len(differences) - rises - falls


def _groups(labels: list[str | int], differences: NDArray[np.float64]) -> tuple[PairedGroup, ...]:
    members: dict[str | int, list[int]] = {}
    for place, label in enumerate(labels):
        members.setdefault(label, []).append(place)
    return tuple(
        PairedGroup(label, len(places), *_signs(differences[places]), float(np.median(differences[places])))
        for label, places in members.items()
    )


def _signed(value: float) -> str:
    """Two decimals with the sign, or two digits where two decimals would show a difference as none."""
    if value == 0:
        return "0.00"
    return f"{value:+.2f}" if abs(value) >= 0.005 else f"{value:+.2g}"


def _verb(count: int, verb: str) -> str:
    return f"{verb}s" if count == 1 else verb


def _are(count: int) -> str:
    return "is" if count == 1 else "are"
