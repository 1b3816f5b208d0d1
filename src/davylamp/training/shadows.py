"""Shadow models: which records each of them is trained on, where they stand, and what stands there otherwise.

A shadow is trained as the audited model was, on the same rows in the same order, except that every target record is
in or out by a fair coin. Nothing here trains: see :mod:`davylamp.training.shadow_runs`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from davylamp.canaries import Manifest
from davylamp.canaries.manifest import Canary, Role
from davylamp.canaries.schedule import window_rows
from davylamp.corpora.records import Record
from davylamp.errors import Fault, InputError
from davylamp.secrets import stream

Flags = NDArray[np.bool_]
MOST_SHADOWS = 10_000
"""Shadows up to which a run is begun."""
UNPLANTED: tuple[Role, ...] = ("twin", "nonmember")
"""Roles of canaries that no row of the planted file holds."""


class ShadowSpec(BaseModel):
    """How many shadows there are, and how often a twin occurs in one that holds it.

    Attributes:
        shadows: how many, an even number: they come in pairs.
        twin_dose: occurrences of a twin or further non-member in a shadow that it is in; by default the doses of the
            plan in turn, so that each dose has non-members of its own; 0 keeps them out of every shadow.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    shadows: int = Field(16, ge=4, le=MOST_SHADOWS, multiple_of=2)
    twin_dose: int | None = Field(None, ge=0)


@dataclass(frozen=True, slots=True)
class Target:
    """A record that shadows are trained with or without.

    Attributes:
        canary: the canary.
        positions: rows that hold it in a shadow that it is in, from 0, ascending.
    """

    canary: Canary
    positions: tuple[int, ...]

    @property
    def dose(self) -> int:
        """How often it occurs in a shadow that it is in."""
        return len(self.positions)


@dataclass(frozen=True, slots=True, eq=False)
class ShadowDesign:
    """What each shadow is trained on.

    Attributes:
        targets: the records that are in or out.
        records: the record of each target, as it is trained on.
        rows: the rows of a shadow that no target is in.
        inside: whether each shadow holds each target, shape (shadows, targets); one of dose 0 is in none.
        seeds: seed of each shadow, for adapters and dropout.
        given_background: whether the rows that canaries had taken are the corpus's own, or others of the file.
    """

    targets: tuple[Target, ...]
    records: tuple[Record, ...]
    rows: tuple[Record, ...]
    inside: Flags
    seeds: tuple[int, ...]
    given_background: bool

    def rows_of(self, members: Sequence[bool]) -> list[Record]:
        """The rows of a shadow that holds some targets, in training order."""
        rows = list(self.rows)
        for target, record, is_in in zip(self.targets, self.records, members, strict=True):
            for position in target.positions if is_in else ():
                rows[position] = record
        return rows

    def taken_rows(self) -> tuple[int, float]:
        """Rows that target records take: in the planted file, and in a shadow on average."""
        planted = sum(target.canary.dose for target in self.targets)
        return planted, float((self.inside * [target.dose for target in self.targets]).sum(axis=1).mean())


def design(
    manifest: Manifest, planted: Sequence[Record], spec: ShadowSpec, background: Sequence[Record] | None = None
) -> ShadowDesign:
    """Decide what each shadow is trained on.

    Targets are the focus canaries, the twins and the further non-members; the positive control and auxiliary
    canaries stay where they are in every shadow. A focus canary keeps its own rows. Twins, which have none, take
    rows of the background inside the window of their arm's focus, drawn at random. The manifest does not hold the
    rows that canaries took the place of: without ``background`` they are filled with other background rows of the
    file, drawn without replacement as far as they go, the same in every shadow.

    **Coins.** For each record and each pair of shadows (2k and 2k + 1) a fair coin says which of the two holds it.
    So each record is in exactly half of them, as in the code of LiRA's authors, where single coins would leave some
    records with few shadows in one world; the other half of a pair can be left out together with a shadow that is
    attacked in turn, so that the counts of the rest betray nothing; and more shadows leave the coins of the earlier
    ones, and of all other records, as they are.

    Args:
        manifest: what was planted.
        planted: the rows of the planted file.
        spec: how many shadows.
        background: the rows of the file before canaries took their places, in order.

    Raises:
        InputError: the file has no background row, or too few for the twins; or ``background`` is not that of the
            planted file.
    """
    free = free_rows(manifest, len(planted))
    if background is not None:
        check_background(planted, background, free)
    targets = [Target(canary, canary.positions) for canary in manifest.canaries if canary.role == "focus"]
    targets += _unplanted(manifest, free, spec)
    rows = list(planted)
    focus = sorted(position for target in targets for position in target.canary.positions)
    for position, record in replacements(manifest.plan.seed, planted, free, focus, background).items():
        rows[position] = record
    return ShadowDesign(
        targets=tuple(targets),
        records=tuple(manifest.trained_record(target.canary) for target in targets),
        rows=tuple(rows),
        # Without an occurrence a record is in no shadow, whatever its coins say.
        inside=coins(manifest.plan.seed, [target.canary.id for target in targets], spec.shadows)
        & [target.dose > 0 for target in targets],
        seeds=seeds_of(manifest.plan.seed, spec.shadows),
        given_background=background is not None,
    )


def free_rows(manifest: Manifest, rows: int) -> list[int]:
    """Rows of the planted file that neither a canary nor an instance of a construction takes, ascending.

    Raises:
        InputError: there is none.
    """
    taken = {position for canary in manifest.canaries for position in canary.positions}
    if manifest.constructions is not None:
        taken |= {position for each in manifest.constructions.instances for position in each.positions}
    free = [row for row in range(rows) if row not in taken]
    if not free:
        raise InputError(Fault("planted rows", rows, "some that hold no canary: shadows without one need them"))
    return free


def replacements(
    seed: int,
    planted: Sequence[Record],
    free: Sequence[int],
    positions: Sequence[int],
    background: Sequence[Record] | None,
) -> dict[int, Record]:
    """What stands in some rows of a shadow where their own records do not.

    Args:
        seed: of the plan.
        planted: the rows of the planted file.
        free: those that are background.
        positions: the rows to fill.
        background: the rows of the file before anything was planted, or nothing: then other background rows are
            drawn without replacement as far as they go.
    """
    if background is not None:
        return {position: background[position] for position in positions}
    fills = _fill(seed, free, len(positions))
    return {position: planted[row] for position, row in zip(positions, fills, strict=True)}


def check_background(planted: Sequence[Record], background: Sequence[Record], free: Sequence[int]) -> None:
    """Check that rows are those of the file that was planted into.

    Raises:
        InputError: they are not.
    """
    if len(background) != len(planted):
        allowed = f"the {len(planted)} rows that the plan takes of the corpus"
        raise InputError(Fault("rows of --corpus", len(background), allowed))
    other = sum(planted[row] != background[row] for row in free)
    if other:
        allowed = "the file that was planted into, with the same columns"
        raise InputError(Fault("rows of --corpus that differ from the planted file's", other, allowed))


def _unplanted(manifest: Manifest, free: Sequence[int], spec: ShadowSpec) -> list[Target]:
    """Twins and further non-members, with a dose and rows of their own."""
    plan, left, found = manifest.plan, set(free), []
    faults = []
    for role in UNPLANTED:
        for arm in plan.arms:
            canaries = [canary for canary in manifest.canaries if (canary.role, canary.arm) == (role, arm)]
            doses = [
                plan.doses[number % len(plan.doses)] if spec.twin_dose is None else spec.twin_dose
                for number in range(len(canaries))
            ]
            first, end = window_rows(plan.schedule_of(arm).fractions(), manifest.rows)
            inside = [row for row in range(first, end) if row in left]
            if sum(doses) > len(inside):
                faults.append(_no_room(f"{len(canaries)} {role}s of arm {arm!r}", doses, len(inside), spec))
                continue
            order = iter([inside[at] for at in stream(plan.seed, "shadow rows", role, arm).permutation(len(inside))])
            for canary, dose in zip(canaries, doses, strict=True):
                positions = tuple(sorted(next(order) for _ in range(dose)))
                left.difference_update(positions)
                found.append(Target(canary, positions))
    if faults:
        raise InputError(faults)
    return found


def _no_room(who: str, doses: Sequence[int], rows: int, spec: ShadowSpec) -> Fault:
    given = "the plan's doses" if spec.twin_dose is None else spec.twin_dose
    allowed = f"at most {rows // len(doses)} for the {who}: {sum(doses)} occurrences need as many of {rows} free rows"
    fix = (
        "Plant into more rows, or take lower doses or fewer plan.nonmembers. Or 0 (--twin-dose 0, in an audit "
        "shadows.twin_dose=0) keeps them out of every shadow; then only offline scores know them."
    )
    return Fault("the dose of twins in shadows", given, allowed, fix)


def _fill(seed: int, free: Sequence[int], count: int) -> list[int]:
    """Background rows to stand where a canary does not, each once before any a second time."""
    rounds = -(-count // len(free))
    orders = [stream(seed, "shadow fill", number).permutation(len(free)) for number in range(rounds)]
    return [free[at] for order in orders for at in order][:count]


def seeds_of(seed: int, shadows: int) -> tuple[int, ...]:
    """Seed of each shadow, for adapters and dropout."""
    return tuple(int(stream(seed, "shadow seed", shadow).integers(2**31)) for shadow in range(shadows))


def coins(seed: int, names: Sequence[str], shadows: int) -> Flags:
    """Whether each shadow holds each record, shape (shadows, records): a fair coin for each record and pair."""
    first = [stream(seed, "shadow coins", name).random(shadows // 2) < 0.5 for name in names]
    pairs = np.asarray(first, dtype=bool).reshape(len(names), shadows // 2).T
    return np.stack([pairs, ~pairs], axis=1).reshape(shadows, len(names))
