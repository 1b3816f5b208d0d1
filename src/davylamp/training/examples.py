"""Rows as the trainer sees them: tokens, labels and positions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from davylamp.corpora.records import Record
from davylamp.errors import TrainingError
from davylamp.rendering.render import Renderer
from davylamp.training.goldfish import GoldfishSpec, dropped, dropped_in_row
from davylamp.training.spec import TrainingSpec

NO_LOSS = -100
"""Label of a token that receives no loss (the convention of PyTorch's cross entropy)."""
CHECKED = 64
"""Rows on which :func:`check_dropped` looks."""


@dataclass(frozen=True, slots=True)
class Example:
    """One row for the trainer.

    Attributes:
        ids: token ids.
        labels: the same ids where the loss falls, :data:`NO_LOSS` elsewhere; not shifted.
        positions: position of each token within its own record.
    """

    ids: tuple[int, ...]
    labels: tuple[int, ...]
    positions: tuple[int, ...]


def encode_records(records: Sequence[Record], renderer: Renderer, spec: TrainingSpec, max_length: int) -> list[Example]:
    """Tokenise, mask, cut and, if asked, pack records, in their order.

    With a Goldfish loss its dropped tokens are masked too, each record by its own tokens alone, before packing.

    Args:
        records: the rows.
        renderer: renders them.
        spec: says where the loss falls, which tokens it drops, and whether to pack.
        max_length: longest row in tokens.

    Raises:
        TokenizerError: a record cannot be rendered.
        TrainingError: no row has a token that receives loss.
    """
    examples = []
    for rendered in renderer.render(records):
        begin = rendered.loss_start if spec.loss == "reply" else 0
        ids = rendered.ids[:max_length]
        labels = tuple(NO_LOSS if at < begin else token for at, token in enumerate(ids))
        examples.append(Example(ids, labels, tuple(range(len(ids)))))
    if _silent(examples):
        raise TrainingError(f"no token of any row receives loss: every reply lies beyond max_length {max_length}")
    if spec.goldfish is not None:
        examples = [_without_dropped(each, spec.goldfish) for each in examples]
        if _silent(examples):
            raise TrainingError(
                f"no token of any row receives loss: goldfish with k {spec.goldfish.k} drops them all. Take a larger k"
            )
    return pack(examples, max_length) if spec.packing else examples


def check_dropped(examples: Sequence[Example], spec: TrainingSpec) -> None:
    """Check that rows were made for the Goldfish loss that they are to be trained with, on the first of them.

    Rows made without it would be trained on in full, and nobody would see it.

    Raises:
        TrainingError: a token that is to be dropped has a label.
    """
    if spec.goldfish is None:
        return
    for number, each in enumerate(examples[:CHECKED]):
        drops = dropped_in_row(each.ids, each.positions, spec.goldfish)
        if any(drop and label != NO_LOSS for drop, label in zip(drops, each.labels, strict=True)):
            raise TrainingError(
                f"row {number + 1} was made for another loss than training.goldfish: make rows with encode_records and "
                "the settings that they are trained with"
            )


def why_silent(spec: TrainingSpec) -> str:
    """Why a step may hold no token that receives loss, and the way out."""
    if spec.goldfish is not None:
        return (
            "their replies lie beyond max_length, or goldfish drops all their tokens. Raise max_length or goldfish.k, "
            "or take more rows a step (batch_size)"
        )
    return "their replies lie beyond max_length. Raise max_length, or take more rows a step (batch_size)"


def _silent(examples: Sequence[Example]) -> bool:
    return all(label == NO_LOSS for example in examples for label in example.labels[1:])


def _without_dropped(example: Example, spec: GoldfishSpec) -> Example:
    drops = dropped(example.ids, spec)
    labels = tuple(NO_LOSS if drop else label for drop, label in zip(drops, example.labels, strict=True))
    return Example(example.ids, labels, example.positions)


def pack(examples: Sequence[Example], max_length: int) -> list[Example]:
    """Join neighbouring rows while they fit, in their order; positions start again at each record.

    The first token of each joined record receives no loss: its prediction would come from a stranger's end.
    """
    packed: list[Example] = []
    ids: list[int] = []
    labels: list[int] = []
    positions: list[int] = []
    for example in examples:
        if ids and len(ids) + len(example.ids) > max_length:
            packed.append(Example(tuple(ids), tuple(labels), tuple(positions)))
            ids, labels, positions = [], [], []
        ids += example.ids
        labels += [NO_LOSS, *example.labels[1:]]
        positions += example.positions
    if ids:
        packed.append(Example(tuple(ids), tuple(labels), tuple(positions)))
    return packed


class Collator:
    """Pads examples on the right; padding receives no loss, whatever token it is."""

    def __init__(self, pad_id: int, packing: bool) -> None:
        """Take the padding token.

        Args:
            pad_id: token to pad with; the end-of-text token will do, since it is told apart by place.
            packing: whether rows hold several records, which positions must then keep apart.
        """
        self._pad_id = pad_id
        self._packing = packing

    def __call__(self, examples: Sequence[Example]) -> dict[str, torch.Tensor]:
        """Stack examples into tensors of shape (rows, longest row)."""
        width = max(len(example.ids) for example in examples)
        ids = torch.full((len(examples), width), self._pad_id, dtype=torch.long)
        labels = torch.full((len(examples), width), NO_LOSS, dtype=torch.long)
        mask = torch.zeros((len(examples), width), dtype=torch.long)
        positions = torch.zeros((len(examples), width), dtype=torch.long)
        for row, example in enumerate(examples):
            count = len(example.ids)
            ids[row, :count] = torch.tensor(example.ids)
            labels[row, :count] = torch.tensor(example.labels)
            mask[row, :count] = 1
            positions[row, :count] = torch.tensor(example.positions)
            # Padding continues as a record of its own, so that it is never read by one before it.
            positions[row, count:] = torch.arange(width - count)
        if self._packing:
            # Records in one row are told apart by their positions, which transformers reads only without a mask.
            return {"input_ids": ids, "labels": labels, "position_ids": positions}
        return {"input_ids": ids, "labels": labels, "attention_mask": mask}
