"""The open prefixes of a best-first search, in little memory."""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

BYTES = 12
"""Of an open prefix: a cost in float64 and a token in 32 bits."""
SORTED = 256
"""Children of a run that are put in order at once; the others wait until these are taken, which is seldom."""

Floats = NDArray[np.float64]
Ints = NDArray[np.int32]


class Frontier:
    """Open prefixes, the children of each expanded prefix in one run.

    A run gives out its prefixes in the order of their costs (a cost is a negative log-probability in nats); only its
    head stands in the heap, so that the heap holds one entry a run and never one a prefix. A run is named by the
    number of the expanded prefix that its prefixes extend.
    """

    def __init__(self, capacity: int) -> None:
        """Choose how many open prefixes are kept.

        Args:
            capacity: prefixes; beyond it the least likely are dropped, and :attr:`dropped` bounds them.
        """
        self._capacity = capacity
        self._runs: dict[int, _Run] = {}
        self._heap: list[tuple[float, int, int]] = []
        self._size = 0
        self.dropped = math.inf
        """Cost of the likeliest prefix that was ever dropped; infinite where none was."""

    def __len__(self) -> int:
        return self._size

    def add(self, node: int, costs: Floats, tokens: NDArray[np.int64]) -> None:
        """Open the children of a prefix.

        Args:
            node: number of the prefix.
            costs: of the children, in any order, shape (children,).
            tokens: last token of each child, shape (children,).
        """
        if len(costs) == 0:
            return
        run = self._runs[node] = _Run(costs, tokens.astype(np.int32))
        self._size += len(costs)
        heapq.heappush(self._heap, (run.head, node, run.taken))

    def best(self, limit: float) -> float:
        """Cost of the likeliest open prefix below ``limit``; infinite where there is none."""
        while self._heap:
            cost, node, taken = self._heap[0]
            if cost >= limit:
                # The heap is in order: every prefix that is left costs as much or more.
                self._runs.clear()
                self._heap.clear()
                self._size = 0
            elif node in self._runs and self._runs[node].taken == taken:
                return cost
            else:
                # An entry of a head that was taken by another way.
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
        heads = [(self._runs[node].head, node) for node in nodes if node in self._runs]
        heapq.heapify(heads)
        taken: list[tuple[float, int, int]] = []
        while heads and len(taken) < count and heads[0][0] < limit:
            _, node = heads[0]
            taken.append(self._take(node))
            if node in self._runs:
                heapq.heapreplace(heads, (self._runs[node].head, node))
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
        costs = np.concatenate([part for run in self._runs.values() for part in run.costs])
        # Half is dropped, so that this does not come again with the next batch.
        at = self._capacity // 2
        costs.partition(at)
        cost = float(costs[at])
        self.dropped = min(self.dropped, cost)
        self._cut(cost)

    def _take(self, node: int) -> tuple[float, int, int]:
        run = self._runs[node]
        cost, token = run.take()
        self._size -= 1
        if len(run):
            # The entry of the old head stays where it is and is known by its number as stale.
            heapq.heappush(self._heap, (run.head, node, run.taken))
        else:
            del self._runs[node]
        return cost, node, token

    def _cut(self, limit: float) -> None:
        for run in self._runs.values():
            run.cut(limit)
        self._runs = {node: run for node, run in self._runs.items() if len(run)}
        self._size = sum(map(len, self._runs.values()))
        self._heap = [(run.head, node, run.taken) for node, run in self._runs.items()]
        heapq.heapify(self._heap)


class _Run:
    """Children of one prefix: the likeliest in order, and the rest in any."""

    def __init__(self, costs: Floats, tokens: Ints) -> None:
        self.taken = 0
        self._costs, self._tokens, self._at = costs[:0], tokens[:0], 0
        self._rest_costs, self._rest_tokens = costs, tokens
        self._draw()

    def __len__(self) -> int:
        return len(self._costs) - self._at + len(self._rest_costs)

    @property
    def head(self) -> float:
        """Cost of the likeliest that is left."""
        return float(self._costs[self._at])

    @property
    def costs(self) -> tuple[Floats, Floats]:
        """Costs of all that are left."""
        return self._costs[self._at :], self._rest_costs

    def take(self) -> tuple[float, int]:
        """Cost and token of the likeliest that is left, which is no longer."""
        taken = float(self._costs[self._at]), int(self._tokens[self._at])
        self._at += 1
        self.taken += 1
        if self._at == len(self._costs) and len(self._rest_costs):
            self._draw()
        return taken

    def cut(self, limit: float) -> None:
        """Forget what costs ``limit`` or more."""
        end = max(self._at, int(np.searchsorted(self._costs, limit)))
        self._costs, self._tokens = self._costs[self._at : end].copy(), self._tokens[self._at : end].copy()
        self._at = 0
        kept = self._rest_costs < limit
        self._rest_costs, self._rest_tokens = self._rest_costs[kept], self._rest_tokens[kept]

    def _draw(self) -> None:
        costs, tokens = self._rest_costs, self._rest_tokens
        if len(costs) > SORTED:
            order = np.argpartition(costs, SORTED - 1)
            first, rest = order[:SORTED], order[SORTED:]
            self._rest_costs, self._rest_tokens = costs[rest], tokens[rest]
            costs, tokens = costs[first], tokens[first]
        else:
            self._rest_costs, self._rest_tokens = costs[:0], tokens[:0]
        order = np.argsort(costs, kind="stable")
        self._costs, self._tokens, self._at = costs[order], tokens[order], 0
