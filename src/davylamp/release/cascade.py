"""Token trees read by a transformers model: one pass scores hundreds of nodes, each seeing its own ancestors only."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import DynamicCache

from davylamp.errors import ScoringError
from davylamp.release.rounds import CHUNK, Piece, Rounds
from davylamp.release.tree import Ints, TokenTree

ATTENTION_KINDS = {"full_attention", "sliding_attention"}


class Hanging(Protocol):
    """Where pieces of a tree hang: a prefix in a shared cache, and kept keys and values of the tree's own nodes."""

    row: int
    length: int
    keys: list[torch.Tensor]
    values: list[torch.Tensor]

    @property
    def tree(self) -> TokenTree:
        """The tree."""
        ...

    def slots(self, nodes: Ints) -> Ints:
        """Where the keys and values of some kept nodes lie."""
        ...


@dataclass(slots=True)
class Stem:
    """A prefix that a tree hangs on, and the keys and values of the tree's nodes that later rounds look back at.

    Attributes:
        row: row of the prefix in the shared cache.
        length: tokens of the prefix.
        rounds: what is known of its tree.
        nodes: nodes whose keys and values are kept.
        keys: for each layer the kept keys, each of shape (heads, nodes, width).
        values: for each layer the kept values.
    """

    row: int
    length: int
    rounds: Rounds
    nodes: Ints = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    keys: list[torch.Tensor] = field(default_factory=list)
    values: list[torch.Tensor] = field(default_factory=list)

    @property
    def tree(self) -> TokenTree:
        """The tree."""
        return self.rounds.tree

    def keep(self, nodes: Ints, keys: Sequence[torch.Tensor], values: Sequence[torch.Tensor]) -> None:
        """Keep the keys and values of more nodes."""
        self.nodes = np.concatenate([self.nodes, nodes])
        if not self.keys:
            self.keys, self.values = list(keys), list(values)
            return
        self.keys = [torch.cat(pair, dim=1) for pair in zip(self.keys, keys, strict=True)]
        self.values = [torch.cat(pair, dim=1) for pair in zip(self.values, values, strict=True)]

    def adopt(self, nodes: Ints, cache: DynamicCache) -> None:
        """Take over nodes that were read right after the prefix, one after the other."""
        self.rounds.mark_read(nodes)
        if len(nodes):
            place = slice(self.length, self.length + len(nodes))
            self.keep(
                nodes,
                [layer.keys[self.row, :, place] for layer in cache.layers],
                [layer.values[self.row, :, place] for layer in cache.layers],
            )

    def slots(self, nodes: Ints) -> Ints:
        """Where the keys and values of some kept nodes lie."""
        order = np.argsort(self.nodes)
        return order[np.searchsorted(self.nodes, nodes, sorter=order)]


class Cascade:
    """Reads token trees with custom masks and positions, over a shared cache of their prefixes."""

    def __init__(self, model: Any, memory: int) -> None:
        """Read the model's shape.

        Args:
            model: a causal language model of transformers, without an adapter around it.
            memory: bytes that one pass may take beyond the model.
        """
        config = model.config.get_text_config()
        self._memory = memory
        self._asked = set(inspect.signature(model.forward).parameters)
        self._stateful = bool(getattr(model, "_is_stateful", False))
        self._alibi = bool(getattr(config, "alibi", False))
        self._kinds = list(getattr(config, "layer_types", None) or [])
        window = getattr(config, "sliding_window", None)
        if self._kinds and "sliding_attention" not in self._kinds:
            window = None
        if getattr(config, "use_sliding_window", True) is False:
            window = None
        self._window: int | None = window
        # What has no attention says nothing of heads, and is not packed.
        self._heads = int(getattr(config, "num_attention_heads", None) or 1)
        kv_heads = int(getattr(config, "num_key_value_heads", None) or self._heads)
        width = int(getattr(config, "head_dim", None) or config.hidden_size // self._heads)
        self._token_bytes = 8 * int(config.num_hidden_layers) * kv_heads * width
        self._vocabulary = int(config.vocab_size)

    @property
    def supported(self) -> bool:
        """Whether every layer is an attention whose mask and positions a caller may set, as far as one can tell."""
        steered = {"position_ids", "cache", "attention_mask"} <= self._asked and not self._stateful
        # ALiBi counts keys where they lie, so that a packed piece would be far away from its prefix.
        return steered and not self._alibi and set(self._kinds) <= ATTENTION_KINDS

    @property
    def windowed(self) -> bool:
        """Whether some layer sees only so many tokens back."""
        return self._window is not None

    def prefixes_at_once(self, lengths: Sequence[int], answers: int) -> int:
        """How many prefixes fit half of the memory allowed.

        Args:
            lengths: tokens of each prefix, with what is read with it.
            answers: rows of logits that each needs at most.
        """
        each = 2 * self._token_bytes * max(lengths, default=1) + 8 * self._vocabulary * answers
        return max(1, int(self._memory // (2 * each)))

    def run(self, model: Any, cache: DynamicCache, stems: Sequence[Stem]) -> None:
        """Read trees round by round until nothing is left to read; the answers lie in the stems' rounds.

        Args:
            model: the model, called without gradient.
            cache: keys and values of the right-padded prefixes.
            stems: the trees.

        Raises:
            ScoringError: the memory allowed is too small for one row.
        """
        width = cache.layers[0].keys.shape[2]
        size = self._piece_size(width)
        open_stems = list(stems)
        while open_stems:
            jobs = [(stem, piece) for stem in open_stems for piece in stem.rounds.pieces(size)]
            open_stems = list({id(stem): stem for stem, _ in jobs}.values())
            for batch in self._batches(jobs, width):
                self._read(model, cache, batch)
            for stem in open_stems:
                stem.rounds.close()

    def _cost(self, nodes: int, seen: int) -> int:
        """Bytes of one piece: logits and their float32 copy, one layer's scores, all layers' keys and values."""
        return nodes * (8 * self._vocabulary + 8 * self._heads * seen) + 2 * seen * self._token_bytes

    def _piece_size(self, width: int) -> int:
        if 8 * self._vocabulary > self._memory:
            raise ScoringError(
                f"the memory allowed is {self._memory} bytes, but one row of {self._vocabulary} logits takes "
                f"{8 * self._vocabulary}: allow more"
            )
        fitting = (nodes for nodes in range(CHUNK, 1, -1) if self._cost(nodes, width + nodes) <= self._memory)
        return next(fitting, 1)

    def _batches(self, jobs: Sequence[tuple[Stem, Piece]], width: int) -> Iterator[list[tuple[Stem, Piece]]]:
        batch: list[tuple[Stem, Piece]] = []
        nodes = stored = 0
        for stem, piece in jobs:
            most, above = max(nodes, len(piece.nodes)), max(stored, len(piece.stored))
            if batch and (len(batch) + 1) * self._cost(most, width + above + most) > self._memory:
                yield batch
                batch, most, above = [], len(piece.nodes), len(piece.stored)
            batch.append((stem, piece))
            nodes, stored = most, above
        if batch:
            yield batch

    def _read(self, model: Any, cache: DynamicCache, batch: Sequence[tuple[Stem, Piece]]) -> None:
        logits, pieces = self.forward(model, cache, batch)
        for row, (stem, piece) in enumerate(batch):
            rounds, count = stem.rounds, len(piece.nodes)
            own = np.flatnonzero(piece.own)
            nodes, parents = rounds.children(piece.nodes[own])
            rounds.edges[nodes] = edges(logits[row, :count], own[parents], rounds.tree.tokens[nodes])
            if piece.kept.any():
                place = torch.from_numpy(np.flatnonzero(piece.kept)).to(logits.device)
                stem.keep(
                    piece.nodes[piece.kept],
                    [keys[row][:, place] for keys, _ in pieces],
                    [values[row][:, place] for _, values in pieces],
                )

    def forward(
        self, model: Any, cache: DynamicCache, batch: Sequence[tuple[Hanging, Piece]]
    ) -> tuple[torch.Tensor, list[tuple[torch.Tensor, torch.Tensor]]]:
        """Read a batch of pieces.

        Args:
            model: the model, called without gradient.
            cache: keys and values of the right-padded prefixes; left as it is.
            batch: the pieces and where they hang.

        Returns:
            The logits, shape (pieces, most nodes, vocabulary), and for each layer the keys and values of the
            pieces' own nodes, each of shape (pieces, heads, most nodes, width).
        """
        device = cache.layers[0].keys.device
        frame = _Frame.of(batch, cache.layers[0].keys.shape[2])
        pieces = self._cache(cache, batch, frame)
        answer = model(
            torch.from_numpy(frame.ids).to(device),
            attention_mask=self._masks(frame, cache.layers[0].keys),
            position_ids=torch.from_numpy(frame.positions).to(device),
            cache=pieces,
            use_cache=True,
        )
        most = frame.ids.shape[1]
        return answer.logits, [(layer.keys[:, :, -most:], layer.values[:, :, -most:]) for layer in pieces.layers]

    @staticmethod
    def _cache(cache: DynamicCache, batch: Sequence[tuple[Hanging, Piece]], frame: _Frame) -> DynamicCache:
        """The prefixes' keys and values, each followed by those of the stored ancestors that its piece looks at."""
        device = cache.layers[0].keys.device
        rows = torch.tensor([stem.row for stem, _ in batch], device=device)
        slots = [torch.from_numpy(stem.slots(piece.stored)).to(device) for stem, piece in batch]
        result = DynamicCache()
        for index, layer in enumerate(cache.layers):
            keys, values = layer.keys[rows], layer.values[rows]
            if frame.stored:
                shape = (keys.shape[0], keys.shape[1], frame.stored, keys.shape[3])
                more_keys, more_values = keys.new_zeros(shape), values.new_zeros(shape)
                for row, ((stem, _), slot) in enumerate(zip(batch, slots, strict=True)):
                    if len(slot):
                        more_keys[row, :, : len(slot)] = stem.keys[index][:, slot]
                        more_values[row, :, : len(slot)] = stem.values[index][:, slot]
                keys, values = torch.cat([keys, more_keys], dim=2), torch.cat([values, more_values], dim=2)
            result.update(keys, values, index)
        return result

    def _masks(self, frame: _Frame, like: torch.Tensor) -> torch.Tensor | dict[str, torch.Tensor]:
        """Additive masks in the model's own type: other types are refused, or silently wrong."""
        full = _additive(frame.allowed, like)
        if self._window is None:
            return full
        near = frame.positions[:, :, None] - frame.key_positions[:, None, :] < self._window
        windowed = _additive(frame.allowed & near, like)
        if len(set(self._kinds)) > 1:
            return {"full_attention": full, "sliding_attention": windowed}
        return windowed


@dataclass(frozen=True, slots=True)
class _Frame:
    """A batch of pieces as arrays.

    Attributes:
        ids: tokens, shape (pieces, n).
        positions: their positions, shape (pieces, n).
        key_positions: positions of all keys, shape (pieces, width + stored + n).
        allowed: which keys each query sees, shape (pieces, n, width + stored + n).
        stored: most stored ancestors of a piece.
    """

    ids: Ints
    positions: Ints
    key_positions: Ints
    allowed: NDArray[np.bool_]
    stored: int

    @classmethod
    def of(cls, batch: Sequence[tuple[Hanging, Piece]], width: int) -> _Frame:
        most = max(len(piece.nodes) for _, piece in batch)
        stored = max(len(piece.stored) for _, piece in batch)
        ids = np.zeros((len(batch), most), dtype=np.int64)
        key_positions = np.zeros((len(batch), width + stored + most), dtype=np.int64)
        key_positions[:, :width] = np.arange(width)
        allowed = np.zeros((len(batch), most, width + stored + most), dtype=bool)
        # A padded row sees itself, since a row that sees nothing would turn into NaN.
        allowed[:, np.arange(most), width + stored + np.arange(most)] = True
        for row, (stem, piece) in enumerate(batch):
            tree, count, kept = stem.tree, len(piece.nodes), len(piece.stored)
            above, beside = piece.sees(tree)
            ids[row, :count] = tree.tokens[piece.nodes]
            allowed[row, :count, : stem.length] = True
            allowed[row, :count, width : width + kept] = above
            allowed[row, :count, width + stored : width + stored + count] = beside
            key_positions[row, width : width + kept] = stem.length - 1 + tree.depths[piece.stored]
            key_positions[row, width + stored : width + stored + count] = stem.length - 1 + tree.depths[piece.nodes]
        return cls(ids, key_positions[:, width + stored :].copy(), key_positions, allowed, stored)


def edges(logits: torch.Tensor, rows: Ints, tokens: Ints) -> NDArray[np.float64]:
    """Log-probability in nats of a token at a row, reduced in float32 over the whole vocabulary.

    Args:
        logits: shape (rows, vocabulary), of any float type.
        rows: index of a row for each token, shape (tokens,).
        tokens: shape (tokens,).
    """
    answer = logits.float()
    total = torch.logsumexp(answer, dim=-1)
    place = torch.from_numpy(rows).to(logits.device)
    chosen = answer[place, torch.from_numpy(tokens).to(logits.device)] - total[place]
    return chosen.double().cpu().numpy()


def _additive(allowed: NDArray[np.bool_], like: torch.Tensor) -> torch.Tensor:
    mask = torch.zeros(allowed.shape, dtype=like.dtype, device=like.device)
    mask.masked_fill_(~torch.from_numpy(allowed).to(like.device), torch.finfo(like.dtype).min)
    return mask[:, None]
