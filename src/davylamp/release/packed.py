"""Token trees read in packed pieces: one pass scores hundreds of nodes, each seeing its own ancestors only."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import DynamicCache

from davylamp.errors import ScoringError
from davylamp.release.tree import Ints, TokenTree, TreeChunk

CHUNK = 222
"""Internal nodes of a piece at most: a subtree of three digits with commas; larger pieces waste attention."""
ATTENTION_KINDS = {"full_attention", "sliding_attention"}


@dataclass(frozen=True, slots=True)
class _Job:
    """A piece of one tree after one prefix."""

    prefix: int
    chunk: TreeChunk


class PackedTrees:
    """Scores token trees with a transformers model by custom masks and positions."""

    def __init__(self, model: Any, memory: int) -> None:
        """Read the model's shape.

        Args:
            model: a causal language model of transformers, without an adapter around it.
            memory: bytes that one pass may take beyond the model.
        """
        config = model.config.get_text_config()
        self._config = config
        self._memory = memory
        self._asked = set(inspect.signature(model.forward).parameters)
        self._stateful = bool(getattr(model, "_is_stateful", False))
        self._kinds = list(getattr(config, "layer_types", None) or [])
        window = getattr(config, "sliding_window", None)
        if self._kinds and "sliding_attention" not in self._kinds:
            window = None
        if getattr(config, "use_sliding_window", True) is False:
            window = None
        self._window: int | None = window

    @property
    def supported(self) -> bool:
        """Whether every layer is an attention whose mask and positions a caller may set, as far as one can tell."""
        steered = {"position_ids", "cache", "attention_mask"} <= self._asked and not self._stateful
        # ALiBi counts keys where they lie, so that a packed piece would be far away from its prefix.
        return steered and not getattr(self._config, "alibi", False) and set(self._kinds) <= ATTENTION_KINDS

    def prefixes_at_once(self, lengths: Sequence[int]) -> int:
        """How many prefixes' keys and values fit a quarter of the memory allowed."""
        config = self._config
        heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
        head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        each = 2 * 4 * config.num_hidden_layers * heads * head * max(lengths, default=1)
        return max(1, int(self._memory // (4 * each)))

    def score(
        self, model: Any, cache: DynamicCache, roots: torch.Tensor, lengths: Sequence[int], trees: Sequence[TokenTree]
    ) -> list[NDArray[np.float64]]:
        """Sum log-probabilities along the paths of trees.

        Args:
            model: the model, called without gradient.
            cache: keys and values of the right-padded prefixes.
            roots: logits after each prefix, shape (prefixes, vocabulary).
            lengths: tokens of each prefix.
            trees: one tree a prefix.

        Returns:
            For each tree the totals in nats, shape (nodes,).
        """
        edges = [np.full(len(tree), np.nan) for tree in trees]
        children = [_Children(tree) for tree in trees]
        for index, tree in enumerate(trees):
            top = np.flatnonzero(tree.parents == -1)
            edges[index][top] = _edges(roots[index][None], np.zeros(len(top), dtype=np.int64), tree.tokens[top])
        size = self._piece_size(cache, roots.shape[-1])
        jobs = [_Job(index, chunk) for index, tree in enumerate(trees) for chunk in tree.chunks(size)]
        for batch in self._batches(jobs, cache, roots.shape[-1]):
            logits = self._forward(model, cache, batch, lengths, trees)
            for row, job in enumerate(batch):
                nodes, rows = children[job.prefix].of(job.chunk)
                tokens = trees[job.prefix].tokens[nodes]
                edges[job.prefix][nodes] = _edges(logits[row], rows, tokens)
        return [tree.sum_over_paths(values) for tree, values in zip(trees, edges, strict=True)]

    def _cost(self, cache: DynamicCache, vocabulary: int, nodes: int) -> int:
        """Bytes of one piece: logits and their float32 copy, one layer's scores, all layers' keys and values."""
        keys = cache.layers[0].keys
        width, layers = keys.shape[2], self._config.num_hidden_layers
        kept = 8 * layers * keys.shape[1] * keys.shape[3]
        scores = 8 * self._config.num_attention_heads * (width + nodes)
        return int(nodes * (8 * vocabulary + scores + kept) + width * kept)

    def _piece_size(self, cache: DynamicCache, vocabulary: int) -> int:
        """Nodes of a piece that the memory allows, at least one.

        Raises:
            ScoringError: not even one row of logits fits.
        """
        if 8 * vocabulary > self._memory:
            raise ScoringError(
                f"the memory allowed is {self._memory} bytes, but one row of {vocabulary} logits takes "
                f"{8 * vocabulary}: allow more"
            )
        fitting = (nodes for nodes in range(CHUNK, 1, -1) if self._cost(cache, vocabulary, nodes) <= self._memory)
        return next(fitting, 1)

    def _batches(self, jobs: Sequence[_Job], cache: DynamicCache, vocabulary: int) -> Iterator[list[_Job]]:
        batch: list[_Job] = []
        longest = 0
        for job in jobs:
            most = max(longest, len(job.chunk.nodes))
            if batch and (len(batch) + 1) * self._cost(cache, vocabulary, most) > self._memory:
                yield batch
                batch, most = [], len(job.chunk.nodes)
            batch.append(job)
            longest = most
        if batch:
            yield batch

    def _forward(
        self, model: Any, cache: DynamicCache, batch: Sequence[_Job], lengths: Sequence[int], trees: Sequence[TokenTree]
    ) -> torch.Tensor:
        device = cache.layers[0].keys.device
        width = cache.layers[0].keys.shape[2]
        most = max(len(job.chunk.nodes) for job in batch)
        ids = np.zeros((len(batch), most), dtype=np.int64)
        positions = np.zeros((len(batch), most), dtype=np.int64)
        # A padded row sees itself, since a row that sees nothing would turn into NaN.
        seen = np.broadcast_to(np.eye(most, dtype=bool), (len(batch), most, most)).copy()
        for row, job in enumerate(batch):
            tree, nodes, count = trees[job.prefix], job.chunk.nodes, len(job.chunk.nodes)
            ids[row, :count] = tree.tokens[nodes]
            positions[row, :count] = lengths[job.prefix] - 1 + tree.depths[nodes]
            seen[row, :count, :count] = job.chunk.ancestry(tree)
        ends = np.asarray([lengths[job.prefix] for job in batch])
        before = np.broadcast_to((np.arange(width) < ends[:, None])[:, None], (len(batch), most, width))
        allowed = np.concatenate([before, seen], axis=2)
        keys = np.concatenate([np.broadcast_to(np.arange(width), (len(batch), width)), positions], axis=1)
        chosen = torch.tensor([job.prefix for job in batch], device=device)
        pieces = DynamicCache()
        for layer, kept in enumerate(cache.layers):
            pieces.update(kept.keys[chosen], kept.values[chosen], layer)
        answer = model(
            torch.from_numpy(ids).to(device),
            attention_mask=self._masks(allowed, positions, keys, cache.layers[0].keys),
            position_ids=torch.from_numpy(positions).to(device),
            cache=pieces,
            use_cache=True,
        )
        logits: torch.Tensor = answer.logits
        return logits

    def _masks(
        self, allowed: NDArray[np.bool_], queries: Ints, keys: Ints, like: torch.Tensor
    ) -> torch.Tensor | dict[str, torch.Tensor]:
        """Additive masks in the model's own type: other types are refused, or silently wrong."""
        full = _additive(allowed, like)
        if self._window is None:
            return full
        near = queries[:, :, None] - keys[:, None, :] < self._window
        windowed = _additive(allowed & near, like)
        if len(set(self._kinds)) > 1:
            return {"full_attention": full, "sliding_attention": windowed}
        return windowed


class _Children:
    """Children of each node of a tree, found without a loop over nodes."""

    def __init__(self, tree: TokenTree) -> None:
        self._order = np.argsort(tree.parents, kind="stable")
        self._sorted = tree.parents[self._order]

    def of(self, chunk: TreeChunk) -> tuple[Ints, Ints]:
        """The children of a piece's own nodes, and the row of the piece at which each one's parent stands."""
        own = chunk.nodes[chunk.repeated :]
        starts = np.searchsorted(self._sorted, own, side="left")
        counts = np.searchsorted(self._sorted, own, side="right") - starts
        rows = np.repeat(np.arange(chunk.repeated, len(chunk.nodes)), counts)
        offsets = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        return self._order[np.repeat(starts, counts) + offsets], rows


def _additive(allowed: NDArray[np.bool_], like: torch.Tensor) -> torch.Tensor:
    mask = torch.zeros(allowed.shape, dtype=like.dtype, device=like.device)
    mask.masked_fill_(~torch.from_numpy(allowed).to(like.device), torch.finfo(like.dtype).min)
    return mask[:, None]


def _edges(logits: torch.Tensor, rows: Ints, tokens: Ints) -> NDArray[np.float64]:
    """Log-probability in nats of a token at a row, reduced in float32 over the whole vocabulary."""
    answer = logits.float()
    total = torch.logsumexp(answer, dim=-1)
    place = torch.from_numpy(rows).to(logits.device)
    chosen = answer[place, torch.from_numpy(tokens).to(logits.device)] - total[place]
    return chosen.double().cpu().numpy()
