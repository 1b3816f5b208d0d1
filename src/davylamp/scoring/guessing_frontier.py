"""The open prefixes of a best-first search, in little memory."""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

BYTES = 12
"""Of an open prefix: a cost in float64 and a token in 32 bits."""


class Frontier:
    """Open prefixes, the children of each expanded prefix in one sorted run.

    A run is two arrays, costs ascending (a cost is a negative log-probability in nats) and tokens; only its head
    stands in the heap, so that the heap holds one entry a run and never one a prefix. A run is named by the number
    of the expanded prefix that its prefixes extend.
    """

    def __init__(self, capacity: int) -> None:
        """Choose how many open prefixes are kept.

        Args:
            capacity: prefixes; beyond it the least likely are dropped, and :attr:`dropped` bounds them.
        """
        self._capacity = capacity
        self._runs: dict[int, tuple[NDArray[np.float64], NDArray[np.int32], int]] = {}
        self._heap: list[tuple[float, int, int]] = []
        self._size = 0
        self.dropped = math.inf
        """Cost of the likeliest prefix that was ever dropped; infinite where none was."""

    def __len__(self) -> int:
        return self._size

    def add(self, node: int, costs: NDArray[np.float64], tokens: NDArray[np.int64]) -> None:
        """Open the children of a prefix.

        Args:
            node: number of the prefix.
            costs: of the children, in any order, shape (children,).
            tokens: last token of each child, shape (children,).
        """
        if len(costs) == 0:
            return
        order = np.argsort(costs, kind="stable")
        self._runs[node] = (costs[order], tokens[order].astype(np.int32), 0)
        self._size += len(order)
        heapq.heappush(self._heap, (float(costs[order[0]]), node, 0))

    def best(self, limit: float) -> float:
        """Cost of the likeliest open prefix below ``limit``; infinite where there is none."""
        while self._heap:
            cost, node, at = self._heap[0]
            if self._is_head(node, at) and cost < limit:
                return cost
            if cost >= limit:
                # The heap is in order: every prefix that is left costs as much or more.
                self._clear()
                break
            heapq.heappop(self._heap)
        return math.inf

    def take_best(self, limit: float) -> tuple[float, int, int] | None:
        """Take the likeliest open prefix below ``limit``: its cost, the prefix that it extends, its last token."""
        if math.isinf(self.best(limit)):
            return None
        _, node, _ = heapq.heappop(self._heap)
        return self._take(node)

    def take_among(self, nodes: Sequence[int], count: int, limit: float) -> list[tuple[float, int, int]]:
        """Take up to ``count`` of the likeliest open prefixes below ``limit`` that extend one of ``nodes``."""
        heads = [(self._head(node), node) for node in nodes if node in self._runs]
        heapq.heapify(heads)
        taken: list[tuple[float, int, int]] = []
        while heads and len(taken) < count and heads[0][0] < limit:
            _, node = heads[0]
            taken.append(self._take(node))
            if node in self._runs:
                heapq.heapreplace(heads, (self._head(node), node))
            else:
                heapq.heappop(heads)
        return taken

    def tidy(self, limit: float) -> None:
        """Where there is too much, forget what costs ``limit`` or more, then drop the least likely prefixes."""
        if self._size <= self._capacity:
            return
        self._cut(limit)
        if self._size <= self._capacity:
            return
        costs = np.concatenate([costs[at:] for costs, _, at in self._runs.values()])
        # Half is dropped, so that this does not come again with the next batch.
        at = self._capacity // 2
        costs.partition(at)
        cost = float(costs[at])
        self.dropped = min(self.dropped, cost)
        self._cut(cost)

    def _head(self, node: int) -> float:
        costs, _, at = self._runs[node]
        return float(costs[at])

    def _is_head(self, node: int, at: int) -> bool:
        return node in self._runs and self._runs[node][2] == at

    def _take(self, node: int) -> tuple[float, int, int]:
        costs, tokens, at = self._runs[node]
        self._size -= 1
        if at + 1 < len(costs):
            self._runs[node] = (costs, tokens, at + 1)
            # The entry of the old head stays where it is and is known by its place as stale.
            heapq.heappush(self._heap, (float(costs[at + 1]), node, at + 1))
        else:
            del self._runs[node]
        return float(costs[at]), node, int(tokens[at])

    def _cut(self, limit: float) -> None:
        kept: dict[int, tuple[NDArray[np.float64], NDArray[np.int32], int]] = {}
        for node, (costs, tokens, at) in self._runs.items():
            end = int(np.searchsorted(costs, limit))
            if end > at:
                kept[node] = (costs[at:end].copy(), tokens[at:end].copy(), 0)
        self._runs = kept
        self._size = sum(len(costs) for costs, _, _ in kept.values())
        self._heap = [(float(costs[0]), node, 0) for node, (costs, _, _) in kept.items()]
        heapq.heapify(self._heap)

    def _clear(self) -> None:
        self._runs.clear()
        self._heap.clear()
        self._size = 0
