"""Which nodes of a token tree are read next, and in which pieces.

Log-probabilities only fall along a path. So once the total of one sequence is known, a node whose own total is
already below it can be left unread, with all that hangs on it: none of it can outrank that sequence.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from davylamp.release.tree import Ints, TokenTree, TreeScores

CHUNK = 222
"""Nodes of a piece: a subtree of three digits with commas; larger ones spend most attention between strangers."""
FIRST_ROUND = 32
GROWTH = 8
"""A round reads at most so many times the nodes of the one before, so that little is read before it can be dropped."""
WORTHWHILE = 0.2
"""Share of the frontier that a round must drop for another such round; else the rest is read at once."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Nodes of one tree that are read in one pass.

    Attributes:
        nodes: the nodes, in depth-first order, shape (n,).
        own: which of them are read for their answer, shape (n,); the others are ancestors from another piece
            of the same round, read again for their keys and values.
        stored: ancestors whose keys and values were kept in earlier rounds, shape (s,).
        kept: which of the nodes to keep keys and values of, for later rounds, shape (n,).
    """

    nodes: Ints
    own: NDArray[np.bool_]
    stored: Ints
    kept: NDArray[np.bool_]

    def sees(self, tree: TokenTree) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Which stored nodes (n, s) and which nodes of the piece (n, n) each node sees: ancestors and itself."""
        return _is_ancestor(tree, self.stored, self.nodes), _is_ancestor(tree, self.nodes, self.nodes)


class Rounds:
    """What is known of one tree so far."""

    def __init__(self, tree: TokenTree, target: int | None, margin: float) -> None:
        """Begin with nothing read.

        Args:
            tree: the tree.
            target: the sequence whose rank is wanted; nothing is dropped if none.
            margin: nats below the target's total from which a node is dropped.
        """
        self.tree = tree
        self.internal = np.zeros(len(tree), dtype=bool)
        self.internal[tree.internal] = True
        self.read = np.zeros(len(tree), dtype=bool)
        self.edges = np.full(len(tree), np.nan)
        self.totals = np.full(len(tree), np.nan)
        self._leaf = None if target is None else int(tree.leaves[target])
        self._margin = margin
        self._budget = FIRST_ROUND
        self._pending: Ints = np.empty(0, dtype=np.int64)
        self._order = np.argsort(tree.parents, kind="stable")
        self._sorted = tree.parents[self._order]

    def children(self, nodes: Ints) -> tuple[Ints, Ints]:
        """The children of some nodes (-1 is the prefix), and for each the index of its parent in ``nodes``."""
        starts = np.searchsorted(self._sorted, nodes, side="left")
        counts = np.searchsorted(self._sorted, nodes, side="right") - starts
        rows = np.repeat(np.arange(len(nodes)), counts)
        offsets = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        return self._order[np.repeat(starts, counts) + offsets], rows

    def pieces(self, size: int = CHUNK) -> Iterator[Piece]:
        """The pieces of the next round, of at most ``size`` nodes of their own; none when all is read or dropped."""
        frontier = self._frontier()
        chosen = self._choose(frontier)
        kept = self._boundary(chosen)
        order = np.flatnonzero(chosen)
        for start in range(0, len(order), size):
            own = order[start : start + size]
            above = self._ancestors(own)
            again = above[chosen[above] & (above < own[0])]
            nodes = np.concatenate([again, own])
            is_own = np.arange(len(nodes)) >= len(again)
            yield Piece(nodes, is_own, above[self.read[above]], kept[nodes] & is_own)
        self._pending = order

    def close(self) -> None:
        """End a round: add up what was read, and decide whether dropping is worth another small round."""
        before = len(self._pending)
        self.read[self._pending] = True
        self._add_up()
        if self._leaf is None:
            return
        fresh = self.internal & ~self.read & self._parent_read()
        dropped = fresh & (self.totals < self._floor())
        worthwhile = dropped.sum() >= WORTHWHILE * max(1, fresh.sum())
        self._budget = GROWTH * max(before, FIRST_ROUND) if worthwhile or before < FIRST_ROUND else len(self.tree)

    def mark_read(self, nodes: Ints) -> None:
        """Note nodes that were read together with the prefix."""
        self.read[nodes] = True
        self._add_up()

    def scores(self) -> TreeScores:
        """What is known in the end."""
        totals = np.where(self._parent_read(), self.totals, -np.inf)
        return TreeScores(totals, int(self.read.sum()), int(self.internal.sum()))

    def _add_up(self) -> None:
        self.totals = self.tree.sum_over_paths(self.edges)

    def _floor(self) -> float:
        return -np.inf if self._leaf is None else float(self.totals[self._leaf]) - self._margin

    def _parent_read(self) -> NDArray[np.bool_]:
        parents = self.tree.parents
        return np.where(parents < 0, True, self.read[parents])

    def _frontier(self) -> NDArray[np.bool_]:
        # Written so that a total that is not a number is read on, and found by whoever looks at the result.
        return self.internal & ~self.read & self._parent_read() & ~(self.totals < self._floor())

    def _choose(self, frontier: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """The frontier and what hangs on it, down to the depth that the budget allows."""
        tree = self.tree
        opened = np.zeros(len(tree) + 1, dtype=np.int64)
        np.add.at(opened, np.flatnonzero(frontier), 1)
        np.add.at(opened, tree.ends[frontier], -1)
        below = self.internal & ~self.read & (np.cumsum(opened[:-1]) > 0)
        if self._leaf is None or not below.any():
            return below
        counts = np.cumsum(np.bincount(tree.depths[below]))
        first = int(tree.depths[frontier].min())
        deepest = max(first, int(np.searchsorted(counts, self._budget, side="right")) - 1)
        return below & (tree.depths <= deepest)

    def _boundary(self, chosen: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Chosen nodes that later rounds will look back at: parents of what is left, and their ancestors."""
        kept = np.zeros(len(self.tree), dtype=bool)
        left = np.flatnonzero(self.internal & ~self.read & ~chosen)
        nodes = np.unique(self.tree.parents[left])
        nodes = nodes[nodes >= 0]
        while len(nodes := nodes[chosen[nodes] & ~kept[nodes]]):
            kept[nodes] = True
            nodes = np.unique(self.tree.parents[nodes])
            nodes = nodes[nodes >= 0]
        return kept

    def _ancestors(self, nodes: Ints) -> Ints:
        found: list[Ints] = []
        current = np.unique(self.tree.parents[nodes])
        while len(current := current[current >= 0]):
            found.append(current)
            current = np.unique(self.tree.parents[current])
        return np.unique(np.concatenate(found)) if found else np.empty(0, dtype=np.int64)


def _is_ancestor(tree: TokenTree, above: Ints, below: Ints) -> NDArray[np.bool_]:
    row, column = below[:, None], above[None, :]
    seen: NDArray[np.bool_] = (column <= row) & (row < tree.ends[above][None, :])
    return seen
