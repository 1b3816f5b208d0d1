"""Rows of tokens put together for one pass of a model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch


def pad(
    rows: Sequence[Sequence[int]], filler: int, device: torch.device, *, left: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """Stack rows of token ids, padded on the right (or left), and their mask; both of shape (rows, longest)."""
    width = max(len(row) for row in rows)
    ids = np.full((len(rows), width), filler, dtype=np.int64)
    mask = np.zeros((len(rows), width), dtype=np.int64)
    for index, row in enumerate(rows):
        place = slice(width - len(row), width) if left else slice(0, len(row))
        ids[index, place] = row
        mask[index, place] = 1
    return torch.from_numpy(ids).to(device), torch.from_numpy(mask).to(device)


def logit_bytes(lengths: Sequence[int], vocabulary: int) -> list[int]:
    """Bytes of the logits of rows, and of their copy in float32."""
    return [8 * vocabulary * length for length in lengths]


def batches(
    order: Sequence[int],
    lengths: Sequence[int],
    costs: Sequence[int],
    memory: int,
    *,
    tokens: int | None = None,
    one_length: bool = False,
) -> Iterator[list[int]]:
    """Batches of neighbours that fit the memory allowed; what alone does not fit goes alone.

    Args:
        order: rows by ascending length.
        lengths: tokens of each row.
        costs: bytes that each row takes; in a batch all take as much as the dearest.
        memory: bytes that a batch may take.
        tokens: most tokens of a batch, padding included.
        one_length: let only rows of one length share a batch.
    """
    batch: list[int] = []
    dearest = 0
    for i in order:
        dearest = max(dearest, costs[i])
        full = (len(batch) + 1) * dearest > memory or (tokens is not None and (len(batch) + 1) * lengths[i] > tokens)
        if batch and (full or (one_length and lengths[i] != lengths[batch[0]])):
            yield batch
            batch, dearest = [], costs[i]
        batch.append(i)
    if batch:
        yield batch
