"""A token tree: many continuations of one prefix, with what they share written once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from davylamp.errors import ScoringError

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class TokenTree:
    """Sequences merged at their common beginnings, nodes in depth-first order.

    Attributes:
        tokens: token of each node, shape (nodes,).
        parents: index of each node's parent, -1 for a child of the prefix, shape (nodes,).
        depths: 1 for a child of the prefix, shape (nodes,).
        ends: one past the last descendant of each node, shape (nodes,): node ``j`` is ``i`` or an ancestor of
            ``i`` exactly if ``j <= i < ends[j]``.
        leaves: node at which each sequence ends, shape (sequences,).
    """

    tokens: Ints
    parents: Ints
    depths: Ints
    ends: Ints
    leaves: Ints

    @classmethod
    def of(cls, sequences: Sequence[Sequence[int]]) -> TokenTree:
        """Merge sequences.

        Raises:
            ScoringError: there is no sequence, or one is empty.
        """
        if not sequences:
            raise ScoringError("there is no sequence to score")
        if any(not sequence for sequence in sequences):
            raise ScoringError("a candidate has no token")
        order = sorted(range(len(sequences)), key=lambda index: tuple(sequences[index]))
        tokens: list[int] = []
        parents: list[int] = []
        depths: list[int] = []
        leaves = np.empty(len(sequences), dtype=np.int64)
        path: list[int] = []
        previous: Sequence[int] = ()
        for index in order:
            sequence = sequences[index]
            shared = 0
            while shared < min(len(previous), len(sequence)) and previous[shared] == sequence[shared]:
                shared += 1
            del path[shared:]
            for token in sequence[shared:]:
                parents.append(path[-1] if path else -1)
                tokens.append(token)
                path.append(len(tokens) - 1)
                depths.append(len(path))
            leaves[index] = path[-1]
            previous = sequence
        return cls(
            np.asarray(tokens, dtype=np.int64),
            np.asarray(parents, dtype=np.int64),
            np.asarray(depths, dtype=np.int64),
            _ends(np.asarray(depths, dtype=np.int64)),
            leaves,
        )

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def internal(self) -> Ints:
        """Nodes that have children, in depth-first order: only these need to be read by a model."""
        has_child = np.zeros(len(self), dtype=bool)
        has_child[self.parents[self.parents >= 0]] = True
        return np.flatnonzero(has_child)

    def path(self, node: int) -> list[int]:
        """The nodes from the first below the prefix down to a node, both included."""
        nodes = []
        while node >= 0:
            nodes.append(node)
            node = int(self.parents[node])
        return nodes[::-1]

    def sample(self, count: int) -> TokenTree:
        """The tree of ``count`` of the sequences, as far from each other in their order as there are."""
        chosen = np.unique(np.linspace(0, len(self.leaves) - 1, count).astype(np.int64))
        return TokenTree.of([self.tokens[self.path(int(leaf))].tolist() for leaf in self.leaves[chosen]])

    def sum_over_paths(self, edges: NDArray[np.float64]) -> NDArray[np.float64]:
        """Sum a value of each edge (from a node's parent to the node) along the path to every node."""
        totals = edges.copy()
        for depth in range(2, int(self.depths.max(initial=0)) + 1):
            level = np.flatnonzero(self.depths == depth)
            totals[level] += totals[self.parents[level]]
        return totals


@dataclass(frozen=True, slots=True)
class TreeScores:
    """What reading a tree gave.

    Attributes:
        totals: for each node the summed log-probability in nats of the path to it, shape (nodes,); minus
            infinity below a node that was dropped.
        read: nodes that were read by the model.
        internal: nodes that a full reading would have read.
    """

    totals: NDArray[np.float64]
    read: int
    internal: int


def _ends(depths: Ints) -> Ints:
    ends = np.full(len(depths), len(depths), dtype=np.int64)
    open_nodes: list[int] = []
    for node, depth in enumerate(depths):
        while open_nodes and depths[open_nodes[-1]] >= depth:
            ends[open_nodes.pop()] = node
        open_nodes.append(node)
    return ends
