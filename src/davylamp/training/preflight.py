"""The preflight: before the first step, every planted secret is shown to receive loss."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from davylamp.canaries.constructions import Constructed, Instance
from davylamp.canaries.constructions.section import record_of
from davylamp.canaries.manifest import Canary, Manifest
from davylamp.corpora.records import Shape
from davylamp.errors import PreflightError
from davylamp.rendering.render import Rendered, Renderer
from davylamp.training.examples import NO_LOSS
from davylamp.training.goldfish import GoldfishSpec, dropped

NAMED = 5
"""Canaries, and instances of constructions, that a message names."""


@dataclass(frozen=True, slots=True)
class SecretDrops:
    """What a Goldfish loss leaves out of a canary's secret, the same in every copy.

    Attributes:
        id: the canary.
        dose: its copies.
        tokens: tokens of the secret in a row, in all places where the reply has it.
        dropped: which of them receive no loss, counted from 0.
    """

    id: str
    dose: int
    tokens: int
    dropped: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PreflightReport:
    """What the preflight saw.

    Attributes:
        canaries: planted canaries, all of which receive loss, but for what a Goldfish loss drops.
        occurrences: their occurrences in the tokenised rows.
        loss_tokens: tokens that receive loss, in all rows.
        tokens: tokens in all rows.
        merged: canaries whose secret shares a token with its neighbour.
        instances: planted instances of constructions, all of which receive loss.
        instance_rows: rows that hold them.
        dropped: with a Goldfish loss, what it drops of each secret; a canary of which it drops all tokens is never
            trained to say its secret. None without.
    """

    canaries: int
    occurrences: int
    loss_tokens: int
    tokens: int
    merged: tuple[str, ...]
    instances: int = 0
    instance_rows: int = 0
    dropped: tuple[SecretDrops, ...] | None = None


def preflight(
    manifest: Manifest,
    renderer: Renderer,
    rows: Iterable[tuple[Sequence[int], Sequence[int]]],
    goldfish: GoldfishSpec | None = None,
) -> PreflightReport:
    """Check that every planted secret receives loss in the rows that the trainer will really see.

    The rows are taken after tokenisation, masking, cutting and packing, so that a fault in any of them shows. With a
    Goldfish loss exactly the tokens that it drops must be without loss; how many of each secret they are is reported,
    and refused in no case.

    Args:
        manifest: what was planted.
        renderer: renders as the trainer does.
        rows: token ids and labels of each row, labels not shifted and -100 where no loss falls.
        goldfish: what the rows were made to drop.

    Raises:
        PreflightError: a secret is missing from the rows, or its tokens receive no loss; names the canaries and the
            instances of constructions. Of a camouflage every path is looked for.
    """
    table = _Rows(rows)
    faults: list[str] = []
    merged: list[str] = []
    drops: list[SecretDrops] = []
    occurrences = 0
    planted = manifest.planted()
    rendered = renderer.render([manifest.trained_record(canary) for canary in planted])
    for canary, record in zip(planted, rendered, strict=True):
        spans = _spans(manifest, canary, record)
        if any(_is_merged(manifest, canary, record, index, span) for index, span in enumerate(spans)):
            merged.append(canary.id)
        last = max(end for _, end in spans)
        lost = _dropped(record.ids[:last], goldfish)
        if goldfish is not None:
            drops.append(secret_drops(manifest, canary, record, goldfish))
        found = table.find(record.ids[:last])
        occurrences += len(found)
        if len(found) != canary.dose:
            faults.append(
                f"canary {canary.id} was planted {canary.dose} times, but its tokens up to the secret occur "
                f"{len(found)} times in the tokenised rows (cut by max_length, or rendered another way?)"
            )
            continue
        for start in found:
            silent = [span for span in spans if not table.receives_loss(start, *span, lost)]
            if silent:
                faults.append(f"canary {canary.id}: {len(silent)} of its {len(spans)} secrets receive no loss (masked)")
                break
    section = manifest.constructions
    placed = [] if section is None else [each for each in section.instances if each.positions]
    built: list[str] = []
    if section is not None:
        built = _instance_faults(section, placed, manifest.shape, renderer, table, goldfish)
    # A few of each, so that many canaries hide no instance.
    if named := [*faults[:NAMED], *built[:NAMED]]:
        left = len(faults) + len(built) - len(named)
        more = f"\n... and {left} more" if left else ""
        raise PreflightError(
            "training was not started, since planted secrets would not be trained on:\n" + "\n".join(named) + more
        )
    return PreflightReport(
        canaries=len(planted),
        occurrences=occurrences,
        loss_tokens=table.loss_tokens,
        tokens=table.tokens,
        merged=tuple(merged),
        instances=len(placed),
        instance_rows=sum(len(each.positions) for each in placed),
        dropped=None if goldfish is None else tuple(drops),
    )


def _instance_faults(
    section: Constructed,
    placed: Sequence[Instance],
    shape: Shape,
    renderer: Renderer,
    table: _Rows,
    goldfish: GoldfishSpec | None,
) -> list[str]:
    """What is wrong with the rows of instances, at most one sentence each; no text of theirs is named."""
    replies = [(each, reply) for each in placed for reply in each.replies()]
    records = [record_of(shape, each.lead, reply, section.system) for each, reply in replies]
    found: dict[str, str] = {}
    for (each, reply), record in zip(replies, renderer.render(records), strict=True):
        start = len(each.lead) if shape == "text" else 0
        span = record.span(start, start + len(reply))
        copies = len(each.positions) // len(each.replies())
        if fault := _reply_fault(each, reply, copies, record.ids, span, table, goldfish):
            found.setdefault(each.id, f"instance {each.id} ({each.kind}) {fault}")
    return list(found.values())


def _reply_fault(
    each: Instance,
    reply: str,
    copies: int,
    ids: Sequence[int],
    span: tuple[int, int],
    table: _Rows,
    goldfish: GoldfishSpec | None,
) -> str | None:
    drawn = dict(zip(each.survivors, each.survivor_ids, strict=True)).get(reply, each.secret_ids)
    first, last = span
    if tuple(ids[first:last]) != drawn:
        return (
            "is written as other tokens than those that were drawn: train the model that it was planted for (`davylamp "
            "plant --base`), in the same style"
        )
    places = table.find(ids[:last])
    of = f", one of {len(each.replies())} paths," if len(each.replies()) > 1 else ""
    if len(places) != copies:
        return (
            f"was planted in {copies} rows{of} but its tokens up to the end of the secret occur {len(places)} times in "
            "the tokenised rows (cut by max_length, or rendered another way?)"
        )
    lost = _dropped(ids[:last], goldfish)
    silent = sum(not table.receives_loss(start, first, last, lost) for start in places)
    return f"receives no loss on its whole secret{of} in {silent} of {copies} rows (masked)" if silent else None


def _dropped(ids: Sequence[int], goldfish: GoldfishSpec | None) -> tuple[bool, ...]:
    return (False,) * len(ids) if goldfish is None else dropped(ids, goldfish)


def secret_drops(manifest: Manifest, canary: Canary, record: Rendered, goldfish: GoldfishSpec) -> SecretDrops:
    """What a Goldfish loss drops of a canary's secret.

    Args:
        manifest: what was planted.
        canary: one of its canaries.
        record: the canary's record as it was planted, rendered.
        goldfish: which tokens are dropped.
    """
    lost = dropped(record.ids, goldfish)
    own = [lost[at] for first, last in _spans(manifest, canary, record) for at in range(first, last)]
    return SecretDrops(canary.id, canary.dose, len(own), tuple(at for at, drop in enumerate(own) if drop))


def _character_spans(manifest: Manifest, canary: Canary) -> list[tuple[int, int]]:
    shown = manifest.shown_in_training(canary)
    return canary.carrier.secret_spans(manifest.shape, shown, canary.secret)


def _spans(manifest: Manifest, canary: Canary, record: Rendered) -> list[tuple[int, int]]:
    return [record.span(start, end) for start, end in _character_spans(manifest, canary)]


def _is_merged(manifest: Manifest, canary: Canary, record: Rendered, index: int, span: tuple[int, int]) -> bool:
    start, end = (record.reply_start + at for at in _character_spans(manifest, canary)[index])
    return record.offsets[span[0]][0] < start or record.offsets[span[1] - 1][1] > end


class _Rows:
    """All rows end to end, searched as bytes."""

    _WIDTH = 4

    def __init__(self, rows: Iterable[tuple[Sequence[int], Sequence[int]]]) -> None:
        ids: list[int] = []
        labels: list[int] = []
        firsts: list[int] = []
        for row_ids, row_labels in rows:
            firsts.append(len(ids))
            # A token that does not exist keeps a match from running over the end of a row.
            ids += [*row_ids, -1]
            labels += [*row_labels, NO_LOSS]
        self._bytes = np.asarray(ids, dtype="<i4").tobytes()
        self._ids = np.asarray(ids, dtype=np.int64)
        self._labels = np.asarray(labels, dtype=np.int64)
        # The first token of a row is predicted from nothing, so that it never receives loss.
        self._labels[firsts] = NO_LOSS
        self.tokens = len(ids) - len(firsts)
        self.loss_tokens = int((self._labels != NO_LOSS).sum())

    def find(self, needle: Sequence[int]) -> list[int]:
        """Where a token sequence begins, every occurrence."""
        pattern = np.asarray(needle, dtype="<i4").tobytes()
        found, at = [], self._bytes.find(pattern)
        while at >= 0:
            if at % self._WIDTH == 0:
                found.append(at // self._WIDTH)
            at = self._bytes.find(pattern, at + 1)
        return found

    def receives_loss(self, start: int, first: int, last: int, lost: Sequence[bool]) -> bool:
        """Whether every token [first, last) of a match at ``start`` is its own label, and has none where it is lost."""
        place = slice(start + first, start + last)
        wanted = np.where(lost[first:last], NO_LOSS, self._ids[place])
        return bool((self._labels[place] == wanted).all())
