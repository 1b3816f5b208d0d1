"""The preflight: before the first step, every planted secret is shown to receive loss."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from davylamp.canaries.manifest import Canary, Manifest
from davylamp.errors import PreflightError
from davylamp.rendering.render import Rendered, Renderer
from davylamp.training.examples import NO_LOSS


@dataclass(frozen=True, slots=True)
class PreflightReport:
    """What the preflight saw.

    Attributes:
        canaries: planted canaries, all of which receive loss.
        occurrences: their occurrences in the tokenised rows.
        loss_tokens: tokens that receive loss, in all rows.
        tokens: tokens in all rows.
        merged: canaries whose secret shares a token with its neighbour.
    """

    canaries: int
    occurrences: int
    loss_tokens: int
    tokens: int
    merged: tuple[str, ...]


def preflight(
    manifest: Manifest, renderer: Renderer, rows: Iterable[tuple[Sequence[int], Sequence[int]]]
) -> PreflightReport:
    """Check that every planted secret receives loss in the rows that the trainer will really see.

    The rows are taken after tokenisation, masking, cutting and packing, so that a fault in any of them shows.

    Args:
        manifest: what was planted.
        renderer: renders as the trainer does.
        rows: token ids and labels of each row, labels not shifted and -100 where no loss falls.

    Raises:
        PreflightError: a secret is missing from the rows, or its tokens receive no loss; names the canaries.
    """
    table = _Rows(rows)
    faults: list[str] = []
    merged: list[str] = []
    occurrences = 0
    planted = manifest.planted()
    rendered = renderer.render([manifest.trained_record(canary) for canary in planted])
    for canary, record in zip(planted, rendered, strict=True):
        spans = _spans(manifest, canary, record)
        if any(_is_merged(manifest, canary, record, index, span) for index, span in enumerate(spans)):
            merged.append(canary.id)
        last = max(end for _, end in spans)
        found = table.find(record.ids[:last])
        occurrences += len(found)
        if len(found) != canary.dose:
            faults.append(
                f"canary {canary.id} was planted {canary.dose} times, but its tokens up to the secret occur "
                f"{len(found)} times in the tokenised rows (cut by max_length, or rendered another way?)"
            )
            continue
        for start in found:
            silent = [span for span in spans if not table.receives_loss(start, *span)]
            if silent:
                faults.append(f"canary {canary.id}: {len(silent)} of its {len(spans)} secrets receive no loss (masked)")
                break
    if faults:
        more = f"\n... and {len(faults) - 5} more" if len(faults) > 5 else ""
        raise PreflightError(
            "training was not started, since planted secrets would not be trained on:\n" + "\n".join(faults[:5]) + more
        )
    return PreflightReport(len(planted), occurrences, table.loss_tokens, table.tokens, tuple(merged))


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

    def receives_loss(self, start: int, first: int, last: int) -> bool:
        """Whether every token [first, last) of a match at ``start`` is its own label."""
        place = slice(start + first, start + last)
        return bool((self._labels[place] == self._ids[place]).all())
