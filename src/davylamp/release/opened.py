"""One prefix read once, for whole next-token rows after any number of continuations of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import DynamicCache

from davylamp.release.answers import check_finite
from davylamp.release.base import PrefixError
from davylamp.release.cascade import Cascade
from davylamp.release.rounds import Piece
from davylamp.release.tree import Ints, TokenTree

Path = tuple[int, ...]


class OpenedPrefix:
    """Next-token rows after continuations of one prefix.

    The keys and values of every continuation that was asked for are kept while they fit the memory allowed, so that
    a search that goes one token deeper reads one token. What does not fit is read again with what hangs on it.
    """

    def __init__(
        self,
        model: Any,
        cascade: Cascade,
        prefix: Sequence[int],
        answering: Callable[[], AbstractContextManager[None]],
        name: str,
        memory: int,
    ) -> None:
        """Read the prefix.

        Args:
            model: the model.
            cascade: reads trees with it.
            prefix: token ids, not empty.
            answering: the context in which the model is called.
            name: the release's name, for messages.
            memory: bytes that the kept keys and values may take.
        """
        self._model, self._cascade, self._answering, self._name = model, cascade, answering, name
        self._length = len(prefix)
        device = next(model.parameters()).device
        with answering():
            answer = model(
                torch.tensor([list(prefix)], device=device), logits_to_keep=1, cache=DynamicCache(), use_cache=True
            )
        self._cache = answer.cache
        self._root = _rows(answer.logits[0, -1:])[0]
        self._store = _Store(self._cache, memory)
        self.limit: int | None = None
        """Tokens of the model's context; beyond it positions mean nothing, though many models would answer."""

    def rows(self, paths: Sequence[Sequence[int]]) -> NDArray[np.float64]:
        """Log-probabilities in nats of every next token after prefix and path, shape (paths, vocabulary).

        Raises:
            PrefixError: prefix and path are longer than the context, or an answer is not finite.
        """
        asked = [tuple(path) for path in paths]
        for index, path in enumerate(asked):
            if self.limit is not None and self._length + len(path) > self.limit:
                reason = f"a sequence of {self._length + len(path)} tokens is longer than the context of {self.limit}"
                raise PrefixError(index, f"{reason} of {self._name}")
        result = np.empty((len(asked), len(self._root)))
        deeper = sorted({path for path in asked if path})
        read: dict[Path, NDArray[np.float64]] = {(): self._root}
        if deeper:
            read |= self._read(deeper)
        for index, path in enumerate(asked):
            result[index] = read[path]
            check_finite(result[index], index, self._name)
        return result

    def _read(self, paths: list[Path]) -> dict[Path, NDArray[np.float64]]:
        tree = TokenTree.of(paths)
        texts = [tuple(tree.tokens[tree.path(node)].tolist()) for node in range(len(tree))]
        wanted = set(paths)
        again = np.asarray([text in wanted or text not in self._store.places for text in texts])
        nodes = np.flatnonzero(again)
        fresh = np.asarray([texts[node] not in self._store.places for node in nodes], dtype=bool)
        piece = Piece(nodes, np.ones(len(nodes), dtype=bool), np.flatnonzero(~again), fresh)
        hanging = _Hanging(tree, texts, self._length, self._store)
        with self._answering():
            logits, kept = self._cascade.forward(self._model, self._cache, [(hanging, piece)])
            self._store.add([texts[node] for node in nodes[fresh]], np.flatnonzero(fresh), kept)
            places = [row for row, node in enumerate(nodes) if texts[node] in wanted]
            values = _rows(logits[0, torch.tensor(places, device=logits.device)])
        return {texts[nodes[row]]: value for row, value in zip(places, values, strict=True)}


class _Store:
    """Kept keys and values, in tensors that double when they are full."""

    def __init__(self, cache: DynamicCache, memory: int) -> None:
        self.places: dict[Path, int] = {}
        like = [(layer.keys, layer.values) for layer in cache.layers]
        each = sum(tensor.shape[1] * tensor.shape[3] * tensor.element_size() for pair in like for tensor in pair)
        self._most = max(1, memory // each)
        self.keys = [keys.new_empty((keys.shape[1], 0, keys.shape[3])) for keys, _ in like]
        self.values = [values.new_empty((values.shape[1], 0, values.shape[3])) for _, values in like]

    def add(self, paths: Sequence[Path], rows: Ints, kept: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> None:
        """Keep as many as fit."""
        begin = len(self.places)
        count = min(len(paths), self._most - begin)
        if count <= 0:
            return
        self._grow(begin + count)
        chosen = torch.from_numpy(rows[:count]).to(kept[0][0].device)
        for index, (keys, values) in enumerate(kept):
            self.keys[index][:, begin : begin + count] = keys[0][:, chosen]
            self.values[index][:, begin : begin + count] = values[0][:, chosen]
        self.places |= {path: begin + at for at, path in enumerate(paths[:count])}

    def _grow(self, needed: int) -> None:
        size = self.keys[0].shape[1]
        if needed <= size:
            return
        larger = min(self._most, max(needed, 2 * size, 64))
        for tensors in (self.keys, self.values):
            for index, tensor in enumerate(tensors):
                room = tensor.new_empty((tensor.shape[0], larger, tensor.shape[2]))
                room[:, :size] = tensor
                tensors[index] = room


class _Hanging:
    """A tree of one request, and where the store keeps its nodes."""

    def __init__(self, tree: TokenTree, texts: Sequence[Path], length: int, store: _Store) -> None:
        self.row = 0
        self.length = length
        self.tree = tree
        self.keys, self.values = store.keys, store.values
        self._texts, self._places = texts, store.places

    def slots(self, nodes: Ints) -> Ints:
        return np.asarray([self._places[self._texts[node]] for node in nodes], dtype=np.int64)


def _rows(logits: torch.Tensor) -> NDArray[np.float64]:
    """Whole rows normalised in float64: float32 sums over a large vocabulary are biased upwards."""
    values = logits.double()
    rows: NDArray[np.float64] = (values - torch.logsumexp(values, dim=-1, keepdim=True)).cpu().numpy()
    return rows
