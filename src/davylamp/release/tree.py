"""A token tree: many continuations of one prefix, with what they share written once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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

    def sum_over_paths(self, edges: NDArray[np.float64]) -> NDArray[np.float64]:
        """Sum a value of each edge (from a node's parent to the node) along the path to every node."""
        totals = edges.copy()
        for depth in range(2, int(self.depths.max(initial=0)) + 1):
            level = np.flatnonzero(self.depths == depth)
            totals[level] += totals[self.parents[level]]
        return totals

    def chunks(self, size: int) -> Iterator[TreeChunk]:
        """Cut the internal nodes into pieces that a model can read in one pass each.

        Every piece begins with the ancestors of its first node, so that a piece holds all ancestors of each
        of its nodes: nodes are in depth-first order, and an ancestor of a later node of the piece is either in
        it or an ancestor of its first.

        Args:
            size: nodes of a piece, ancestors not counted; at least 1.
        """
        internal = self.internal
        for start in range(0, len(internal), size):
            piece = internal[start : start + size]
            ancestors = self.path(int(self.parents[piece[0]])) if self.parents[piece[0]] >= 0 else []
            yield TreeChunk(np.asarray([*ancestors, *piece], dtype=np.int64), len(ancestors))


@dataclass(frozen=True, slots=True)
class TreeChunk:
    """Nodes of a tree that are read in one pass.

    Attributes:
        nodes: indices into the tree, ancestors of the first node before it, shape (n,).
        repeated: how many of them are such ancestors, read again for their keys and values only.
    """

    nodes: Ints
    repeated: int

    def ancestry(self, tree: TokenTree) -> NDArray[np.bool_]:
        """Whether the node of column j is that of row i or an ancestor of it, shape (n, n)."""
        row, column = self.nodes[:, None], self.nodes[None, :]
        return (column <= row) & (row < tree.ends[self.nodes][None, :])


def _ends(depths: Ints) -> Ints:
    ends = np.full(len(depths), len(depths), dtype=np.int64)
    open_nodes: list[int] = []
    for node, depth in enumerate(depths):
        while open_nodes and depths[open_nodes[-1]] >= depth:
            ends[open_nodes.pop()] = node
        open_nodes.append(node)
    return ends
