"""Membership of one model: what each score tells of members and non-members, by arm and dose."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from davylamp.errors import RunFolderError
from davylamp.measures.shadow_results import ONLINE
from davylamp.measures.shadow_results import SCORES as SHADOW_SCORES
from davylamp.secrets import stream
from davylamp.verdict.membership_model import Halves, MembershipCell, MembershipComparison, MembershipResult
from davylamp.verdict.roc import OperatingPoint, auc, operating_point, roc
from davylamp.verdict.roc_paired import auc_difference, decisions

Array = NDArray[np.float64]
PREFIX = "membership_"
ENDING = "_secret"
SPANS = ("record", "secret")
BASELINE = "loss"
"""The score that every other is compared with."""


@dataclass(frozen=True, slots=True)
class _Arm:
    """Scores of one arm: by name and span, the members' and non-members' in one order of canaries."""

    name: str
    halves: Halves
    doses: NDArray[np.int64]
    values: Mapping[tuple[str, str], tuple[Array, Array]]
    members: tuple[str, ...] = ()
    null_doses: NDArray[np.int64] | None = None

    def like(self, key: tuple[str, str], dose: int | None) -> NDArray[np.bool_]:
        """Which non-members stand against members of a dose; see ``null_doses`` of :func:`membership_result`."""
        every = np.ones(len(self.halves.choosing) + len(self.halves.realising), dtype=bool)
        if dose is None or self.null_doses is None or key[0] not in ONLINE:
            return every
        return np.asarray(self.null_doses == dose)

    def split(self, outside: Array, like: NDArray[np.bool_] | None = None) -> tuple[Array, Array]:
        """Scores of the non-members that thresholds are chosen on, and of the others; of some non-members only."""
        first = np.arange(outside.size) < len(self.halves.choosing)
        kept = np.ones(outside.size, dtype=bool) if like is None else like
        return outside[first & kept], outside[~first & kept]


def membership_result(
    readings: pl.DataFrame,
    fprs: Sequence[float],
    confidence: float = 0.95,
    null_doses: Mapping[str, int] | None = None,
) -> MembershipResult:
    """What each membership score tells of one model.

    Members are the focus canaries, non-members the twins and further non-members of the same arm. A half of them, drawn
    from the plan's seed, chooses the thresholds; the other half says which false-positive rate they really have.

    Args:
        readings: readings of one model, with the columns of ``davylamp.measures.readings.SCHEMA``; those whose measure
            begins with ``membership_`` are read.
        fprs: false-positive rates, each above 0 and below 1.
        confidence: of every interval, in (0, 1).
        null_doses: occurrences of each non-member in the shadows that hold it. A score that compares with those shadows
            is the lower for a non-member the more often it stood there, whatever the audited model gives away: so a
            dose's members are held against the non-members of the same dose, and all members against all where
            non-members have the doses in the same proportions. A dose without non-members has no cell.

    Raises:
        InputError: a rate or the confidence is outside its range, or a score is NaN.
        RunFolderError: there is no membership reading, an arm lacks members or non-members, or a canary lacks a score
            that others have: none is left out silently.
    """
    seed, arms = _arms(readings, null_doses)
    cells: list[MembershipCell] = []
    compared: list[MembershipComparison] = []
    sentences: list[str] = []
    for arm in arms:
        for (score, span), (inside, outside) in arm.values.items():
            for dose in (None, *sorted({int(each) for each in arm.doses})):
                chosen = np.ones(inside.size, dtype=bool) if dose is None else arm.doses == dose
                if arm.like((score, span), dose).any():
                    names = [name for name, held in zip(arm.members, chosen, strict=True) if held]
                    cells.append(_cell(arm, dose, (score, span), (names, inside[chosen]), outside, fprs, confidence))
        compared += _comparisons(arm, fprs, confidence)
        sentences += _underpowered(arm, next(cell for cell in cells if cell.arm == arm.name).points)
    return MembershipResult(
        seed=seed,
        confidence=confidence,
        fprs=tuple(fprs),
        nonmembers={arm.name: arm.halves for arm in arms},
        cells=tuple(cells),
        comparisons=tuple(compared),
        underpowered=tuple(sentences),
    )


def compare_releases(
    first: pl.DataFrame,
    second: pl.DataFrame,
    score: str,
    fprs: Sequence[float],
    names: tuple[str, str] = ("first", "second"),
    confidence: float = 0.95,
) -> list[MembershipComparison]:
    """Compare one score between two releases that were asked about the same canaries.

    Args:
        first: readings of one model.
        second: readings of another.
        score: name of the score.
        fprs: false-positive rates at which decisions are compared.
        names: of the two releases.
        confidence: of the intervals.

    Returns:
        A comparison for each arm and span.

    Raises:
        InputError: a rate or the confidence is outside its range.
        RunFolderError: a model lacks the score, or they were asked about different canaries.
    """
    (seed, arms), (other_seed, others) = _arms(first), _arms(second)
    there = {arm.name: arm for arm in others}
    found = []
    for arm in arms:
        other = there.get(arm.name)
        same = other is not None and (arm.halves, *arm.doses) == (other.halves, *other.doses)
        if other is None or not same or seed != other_seed:
            raise RunFolderError(f"the two models were asked about different canaries in arm {arm.name!r}")
        for span in SPANS:
            key = (score, span)
            if key not in arm.values and key not in other.values and span == "secret":
                continue
            if key not in arm.values or key not in other.values:
                raise RunFolderError(f"the score {score} of the {span} was not taken of both models")
            found.append(_compared(arm, span, names, (arm.values[key], other.values[key]), fprs, confidence))
    return found


def _cell(
    arm: _Arm,
    dose: int | None,
    key: tuple[str, str],
    own: tuple[Sequence[str], Array],
    outside: Array,
    fprs: Sequence[float],
    confidence: float,
) -> MembershipCell:
    names, inside = own
    like = arm.like(key, dose)
    choosing, realising = arm.split(outside, like)
    outside = outside[like]
    points = tuple(operating_point(inside, choosing, realising, fpr, confidence) for fpr in fprs)
    return MembershipCell(
        arm=arm.name,
        dose=dose,
        score=key[0],
        span="record" if key[1] == "record" else "secret",
        members=inside.size,
        nonmembers=outside.size,
        auc=auc(inside, outside, confidence),
        points=points,
        found=tuple(_found(names, inside, point.threshold) for point in points),
        roc=tuple(roc(inside, outside)),
    )


def _found(names: Sequence[str], inside: Array, threshold: float | None) -> tuple[str, ...]:
    """The members above a threshold."""
    if threshold is None:
        return ()
    return tuple(name for name, value in zip(names, inside, strict=True) if value > threshold)


def _comparisons(arm: _Arm, fprs: Sequence[float], confidence: float) -> Iterator[MembershipComparison]:
    for (score, span), values in arm.values.items():
        # Scores from shadows read the reply where others read the whole record: another text is no comparison.
        other_text = span == "record" and score in SHADOW_SCORES
        if score != BASELINE and (BASELINE, span) in arm.values and not other_text:
            both = (arm.values[BASELINE, span], values)
            yield _compared(arm, span, (BASELINE, score), both, fprs, confidence)


def _compared(
    arm: _Arm,
    span: str,
    names: tuple[str, str],
    both: tuple[tuple[Array, Array], tuple[Array, Array]],
    fprs: Sequence[float],
    confidence: float,
) -> MembershipComparison:
    made = {}
    for fpr in fprs:
        points = [operating_point(inside, *arm.split(outside), fpr, confidence) for inside, outside in both]
        cuts = [point.threshold for point in points]
        if cuts[0] is not None and cuts[1] is not None:
            made[fpr] = decisions(both[0][0], cuts[0], both[1][0], cuts[1])
    return MembershipComparison(
        arm=arm.name,
        span="record" if span == "record" else "secret",
        first=names[0],
        second=names[1],
        difference=auc_difference(*both, confidence),
        decisions=made,
    )


def _underpowered(arm: _Arm, points: Sequence[OperatingPoint]) -> Iterator[str]:
    there = len(arm.halves.choosing) + len(arm.halves.realising)
    for point in points:
        if point.word == "underpowered":
            yield (
                f"{100 * point.fpr:g}% false positives cannot be resolved in arm {arm.name!r}: a threshold for them is "
                f"chosen on at least {point.needed:,} non-members, which takes {2 * point.needed:,} in all, half of "
                f"them to see the rate that it really has; there are {there:,} (see plan.nonmembers)"
            )


def _arms(readings: pl.DataFrame, null_doses: Mapping[str, int] | None = None) -> tuple[int, list[_Arm]]:
    frame = readings.filter(pl.col("measure").str.starts_with(PREFIX))
    if frame.is_empty():
        raise RunFolderError("there is no membership reading: audit with membership among the measures")
    seeds, models = frame["seed"].unique().to_list(), frame["release"].unique().to_list()
    if len(seeds) != 1 or len(models) != 1:
        raise RunFolderError(f"membership is judged for one model, not for the seeds {seeds} and releases {models}")
    named = frame.with_columns(
        score=pl.col("measure").str.strip_prefix(PREFIX).str.strip_suffix(ENDING),
        span=pl.when(pl.col("measure").str.ends_with(ENDING)).then(pl.lit("secret")).otherwise(pl.lit("record")),
    )
    return int(seeds[0]), [
        _arm(str(name), part, int(seeds[0]), null_doses)
        for (name,), part in named.sort("arm").group_by(["arm"], maintain_order=True)
    ]


def _arm(name: str, frame: pl.DataFrame, seed: int, null_doses: Mapping[str, int] | None) -> _Arm:
    canaries = frame.select("canary", "role", "dose").unique().sort("canary")
    members = canaries.filter(pl.col("role") == "focus")
    others = canaries.filter(pl.col("role").is_in(["twin", "nonmember"]))["canary"].to_list()
    if members.is_empty() or not others:
        raise RunFolderError(
            f"arm {name!r} has {len(members)} members and {len(others)} non-members: there must be both"
        )
    order = [others[at] for at in stream(seed, "membership halves", name).permutation(len(others))]
    middle = (len(order) + 1) // 2
    halves = Halves(choosing=tuple(sorted(order[:middle])), realising=tuple(sorted(order[middle:])))
    values = {}
    for (score, span), part in frame.group_by(["score", "span"], maintain_order=True):
        found = dict(zip(part["canary"], part["value"], strict=True))
        asked = [*members["canary"], *halves.choosing, *halves.realising]
        missing = [canary for canary in asked if canary not in found]
        if missing or len(found) < len(part):
            what = f"lacks {missing[0]} and {len(missing) - 1} more" if missing else "holds a canary twice"
            raise RunFolderError(f"membership score {score} ({span}) of arm {name!r} {what}: audit again")
        all_values = np.asarray([found[canary] for canary in asked], dtype=np.float64)
        values[str(score), str(span)] = (all_values[: len(members)], all_values[len(members) :])
    order = [*halves.choosing, *halves.realising]
    stood = None if null_doses is None else np.array([null_doses.get(canary, 0) for canary in order], dtype=np.int64)
    return _Arm(name, halves, members["dose"].to_numpy(), values, tuple(members["canary"]), stood)
