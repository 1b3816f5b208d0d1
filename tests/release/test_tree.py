"""Token trees hold what the sequences say, and their pieces hold what a model must see."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from davylamp.errors import ScoringError
from davylamp.release.tree import TokenTree

# Few symbols and short sequences: duplicates and sequences that begin others come up all the time.
SEQUENCES = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=5), min_size=1, max_size=14)


def ancestors(tree: TokenTree, node: int) -> set[int]:
    """A node and all above it, by walking up."""
    found = set()
    while node >= 0:
        found.add(node)
        node = int(tree.parents[node])
    return found


def test_a_tree_written_out_by_hand() -> None:
    tree = TokenTree.of([[7, 1], [5], [5, 2], [7, 1], [5, 2, 9]])
    assert tree.tokens.tolist() == [5, 2, 9, 7, 1]
    assert tree.parents.tolist() == [-1, 0, 1, -1, 3]
    assert tree.depths.tolist() == [1, 2, 3, 1, 2]
    assert tree.ends.tolist() == [3, 3, 3, 5, 5]
    assert tree.leaves.tolist() == [4, 0, 1, 4, 2]
    assert tree.internal.tolist() == [0, 1, 3]


@given(SEQUENCES)
def test_every_sequence_is_the_path_to_its_leaf(sequences: list[list[int]]) -> None:
    tree = TokenTree.of(sequences)
    assert [tree.tokens[tree.path(int(leaf))].tolist() for leaf in tree.leaves] == sequences
    beginnings = {tuple(each[:count]) for each in sequences for count in range(1, len(each) + 1)}
    assert len(tree) == len(beginnings)
    assert {tuple(tree.tokens[tree.path(node)].tolist()) for node in range(len(tree))} == beginnings


@given(SEQUENCES)
def test_nodes_know_their_depth_their_end_and_whether_they_have_children(sequences: list[list[int]]) -> None:
    tree = TokenTree.of(sequences)
    above = [ancestors(tree, node) for node in range(len(tree))]
    assert tree.depths.tolist() == [len(each) for each in above]
    for node in range(len(tree)):
        below = [other for other in range(len(tree)) if node in above[other]]
        assert below == list(range(node, tree.ends[node]))
    assert tree.internal.tolist() == sorted(set(tree.parents.tolist()) - {-1})


@given(SEQUENCES, st.integers(0, 2**32 - 1))
def test_sums_over_paths_are_sums_over_ancestors(sequences: list[list[int]], seed: int) -> None:
    tree = TokenTree.of(sequences)
    edges = np.random.default_rng(seed).normal(size=len(tree))
    before = edges.copy()
    expected = [edges[sorted(ancestors(tree, node))].sum() for node in range(len(tree))]
    np.testing.assert_allclose(tree.sum_over_paths(edges), expected, atol=1e-12)
    np.testing.assert_array_equal(edges, before)


@pytest.mark.parametrize(("sequences", "says"), [([], "no sequence"), ([[1], []], "no token")])
def test_nothing_to_score_is_refused(sequences: list[list[int]], says: str) -> None:
    with pytest.raises(ScoringError, match=says):
        TokenTree.of(sequences)
