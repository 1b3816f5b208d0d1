"""Shadow models of constructions: which instances each of them is trained on, and where their rows stand.

As in :mod:`davylamp.training.shadows`, with instances in place of canaries: an instance may say several things in
training (the paths of a camouflage), all of which are in or out together, and something else where it is out (a pair).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from davylamp.canaries import Manifest
from davylamp.canaries.constructions.section import Constructed, Instance, record_of
from davylamp.canaries.constructions.spec import Construction
from davylamp.corpora.records import Record, Shape
from davylamp.errors import Fault, InputError
from davylamp.secrets import stream
from davylamp.training.shadows import Flags, check_background, coins, free_rows, replacements, seeds_of


@dataclass(frozen=True, slots=True)
class Piece:
    """One record of an instance, and its rows.

    Attributes:
        owner: number of the instance.
        reply: what the record says after the instance's lead.
        record: the record.
        positions: its rows, from 0.
        world: whether it stands there where the instance is in, or where it is out.
    """

    owner: int
    reply: str
    record: Record
    positions: tuple[int, ...]
    world: bool = True


@dataclass(frozen=True, slots=True, eq=False)
class InstanceDesign:
    """What each shadow is trained on.

    Attributes:
        instances: those that are in or out; of a gate, which is not trained, none.
        pieces: their records.
        rows: the rows of a shadow that no instance is in.
        inside: whether each shadow holds each instance, shape (shadows, instances).
        seeds: seed of each shadow, for adapters and dropout.
        given_background: whether the rows that instances had taken are the corpus's own, or others of the file.
    """

    instances: tuple[Instance, ...]
    pieces: tuple[Piece, ...]
    rows: tuple[Record, ...]
    inside: Flags
    seeds: tuple[int, ...]
    given_background: bool

    @property
    def members(self) -> Flags:
        """Whether each shadow holds each piece, shape (shadows, pieces)."""
        owners: NDArray[np.int64] = np.array([piece.owner for piece in self.pieces], dtype=np.int64)
        worlds = np.array([piece.world for piece in self.pieces], dtype=bool)
        found: Flags = self.inside[:, owners] == worlds
        return found


def instance_design(
    manifest: Manifest, planted: Sequence[Record], shadows: int, background: Sequence[Record] | None = None
) -> InstanceDesign:
    """Decide what each shadow is trained on.

    Canaries stay where they are. A planted instance keeps its own rows; a twin, which has none, takes as many of the
    background as a planted one of its line, drawn at random, so that non-members stand against shadows that hold them
    as often as shadows hold members. Where an instance is out, background stands in its rows; where a pair is out,
    its other secret does. A gate is not trained, and has no shadow of its own.

    Args:
        manifest: what was planted.
        planted: the rows of the planted file.
        shadows: how many, an even number: coins are drawn for pairs of them.
        background: the rows of the file before anything took their places, in order.

    Raises:
        InputError: the file has too few background rows for the twins, with the arithmetic; or ``background`` is not
            that of the planted file.
    """
    section, plan = manifest.constructions, manifest.plan
    instances = () if section is None else tuple(each for each in section.instances if each.kind != "gated")
    free = free_rows(manifest, len(planted))
    if background is not None:
        check_background(planted, background, free)
    wanted, arithmetic = twin_rows(plan.constructions)
    if wanted > len(free):
        raise InputError(no_room(wanted, len(free), arithmetic))
    order = [free[at] for at in stream(plan.seed, "shadow rows", "constructions").permutation(len(free))]
    pieces: list[Piece] = []
    taken = 0
    for owner, each in enumerate(instances):
        count = plan.constructions[each.line].rows_each if each.role == "twin" else 0
        positions = each.positions or tuple(order[taken : taken + count])
        taken += count
        pieces += _pieces(owner, each, positions, section, manifest.shape)
    rows = list(planted)
    own = sorted(position for each in instances for position in each.positions)
    for position, record in replacements(plan.seed, planted, free, own, background).items():
        rows[position] = record
    return InstanceDesign(
        instances,
        tuple(pieces),
        tuple(rows),
        coins(plan.seed, [f"instance {each.id}" for each in instances], shadows),
        seeds_of(plan.seed, shadows),
        background is not None,
    )


def _pieces(
    owner: int, each: Instance, positions: Sequence[int], section: Constructed | None, shape: Shape
) -> list[Piece]:
    """The records of an instance: every reply in as many of its rows, and a pair's other secret in the same ones."""
    system, replies = None if section is None else section.system, each.replies()
    copies = len(positions) // len(replies)
    found = [(reply, sorted(positions[at * copies : (at + 1) * copies]), True) for at, reply in enumerate(replies)]
    if each.alternative is not None:
        found.append((each.alternative, sorted(positions), False))
    return [
        Piece(owner, reply, record_of(shape, each.lead, reply, system), tuple(rows), world)
        for reply, rows, world in found
    ]


def twin_rows(lines: Sequence[Construction]) -> tuple[int, str]:
    """Rows that the twins of all lines take in a shadow that holds every one, and the sum in words."""
    parts = [(line, line.twins * len(line.sizes) * line.rows_each) for line in lines]
    words = [
        f"line {at} ({line.kind}): {line.twins} twins"
        + (f" x {len(line.sizes)} sizes" if len(line.sizes) > 1 else "")
        + f" x {line.rows_each} rows"
        for at, (line, count) in enumerate(parts, start=1)
        if count
    ]
    return sum(count for _, count in parts), ", ".join(words)


def no_room(wanted: int, free: int, arithmetic: str) -> Fault:
    """What is said where twins do not fit into the rows of a shadow."""
    return Fault(
        "rows that twins of constructions take in shadows",
        wanted,
        f"at most {free}, the rows that neither canaries nor planted instances take ({arithmetic})",
        "Plant into more rows, or lower twins, copies or sizes in plan.constructions.",
    )
