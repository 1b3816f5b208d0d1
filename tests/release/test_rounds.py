"""What is read of a token tree, and in which pieces: everything once, with all that it must see, or dropped rightly."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from davylamp.release.rounds import Rounds
from davylamp.release.tree import TokenTree

SEQUENCES = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=5), min_size=1, max_size=14)


def ancestors(tree: TokenTree, node: int) -> set[int]:
    """A node and all above it, by walking up."""
    found = set()
    while node >= 0:
        found.add(node)
        node = int(tree.parents[node])
    return found


def answer(rounds: Rounds, nodes: Sequence[int], truth: NDArray[np.float64]) -> None:
    """Play the model: give the edges to the children of the nodes that were read."""
    children, _ = rounds.children(np.asarray(nodes, dtype=np.int64))
    rounds.edges[children] = truth[children]


def read_all(rounds: Rounds, truth: NDArray[np.float64], size: int) -> list[int]:
    """Read a tree as a model would, checking every piece; the nodes read, in order."""
    tree, own, stored = rounds.tree, list[int](), set[int]()
    answer(rounds, [-1], truth)
    # Before anything is read, what hangs on the prefix alone is known.
    rounds.mark_read(np.empty(0, dtype=np.int64))
    while pieces := list(rounds.pieces(size)):
        keeping = set[int]()
        for piece in pieces:
            nodes = piece.nodes.tolist()
            assert nodes == sorted(set(nodes))
            assert piece.own.sum() <= size
            assert set(piece.stored.tolist()) <= stored
            assert not set(piece.stored.tolist()) & set(nodes)
            above, beside = piece.sees(tree)
            for row, node in enumerate(nodes):
                seen = {int(each) for each in piece.stored[above[row]]} | {
                    int(each) for each in piece.nodes[beside[row]]
                }
                assert seen == ancestors(tree, node)
            own += piece.nodes[piece.own].tolist()
            keeping |= set(piece.nodes[piece.kept].tolist())
            answer(rounds, piece.nodes[piece.own].tolist(), truth)
        stored |= keeping
        rounds.close()
    return own


@given(SEQUENCES, st.integers(1, 12), st.integers(0, 2**32 - 1))
def test_without_a_target_every_internal_node_is_read_once(sequences: list[list[int]], size: int, seed: int) -> None:
    tree = TokenTree.of(sequences)
    truth = -np.random.default_rng(seed).exponential(size=len(tree))
    rounds = Rounds(tree, None, 0.0)
    assert sorted(read_all(rounds, truth, size)) == tree.internal.tolist()
    scores = rounds.scores()
    expected = [truth[sorted(ancestors(tree, node))].sum() for node in range(len(tree))]
    np.testing.assert_allclose(scores.totals, expected, atol=1e-12)
    assert (scores.read, scores.internal) == (len(tree.internal), len(tree.internal))


@given(SEQUENCES, st.integers(1, 12), st.integers(0, 2**32 - 1), st.data())
def test_nothing_that_could_outrank_the_target_is_dropped(
    sequences: list[list[int]], size: int, seed: int, data: st.DataObject
) -> None:
    tree = TokenTree.of(sequences)
    target = data.draw(st.integers(0, len(sequences) - 1))
    margin = data.draw(st.sampled_from([0.0, 1e-4, 0.25, 0.5]))
    # Quarters, nothing among them: totals at the very floor come up all the time.
    truth = -np.random.default_rng(seed).choice([0.0, 0.25, 0.5, 1.0], len(tree))
    rounds = Rounds(tree, target, margin)
    path = tree.path(int(tree.leaves[target]))[:-1]
    answer(rounds, [-1, *path], truth)
    rounds.mark_read(np.asarray(path, dtype=np.int64))
    _read_pruned(rounds, truth, size)
    totals = np.asarray([truth[sorted(ancestors(tree, node))].sum() for node in range(len(tree))])
    found = rounds.scores().totals
    floor = totals[tree.leaves[target]] - margin
    above = totals >= floor + 1e-9
    np.testing.assert_allclose(found[above], totals[above], atol=1e-12)
    # What was dropped is below the floor, whichever number stands for it.
    assert (found[totals < floor - 1e-9] < floor).all()


def _read_pruned(rounds: Rounds, truth: NDArray[np.float64], size: int) -> None:
    while pieces := list(rounds.pieces(size)):
        for piece in pieces:
            answer(rounds, piece.nodes[piece.own].tolist(), truth)
        rounds.close()


@pytest.mark.parametrize("size", [1, 3, 222])
def test_a_flat_tree_has_nothing_to_read(size: int) -> None:
    rounds = Rounds(TokenTree.of([[1], [2], [3]]), None, 0.0)
    assert list(rounds.pieces(size)) == []
