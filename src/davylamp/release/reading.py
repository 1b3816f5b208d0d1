"""Whole token trees after their prefixes: read together, or sequence by sequence where that cannot be."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import DynamicCache

from davylamp.release.answers import Scorer
from davylamp.release.base import PrefixError
from davylamp.release.cascade import Cascade, Stem, edges
from davylamp.release.rounds import Rounds
from davylamp.release.tree import TokenTree, TreeScores

Pad = Callable[[Sequence[Sequence[int]]], tuple[torch.Tensor, torch.Tensor]]
"""Stacks rows of token ids, padded on the right, and their mask."""


def read_trees(
    model: Any,
    cascade: Cascade,
    pad: Pad,
    prefixes: Sequence[Sequence[int]],
    trees: Sequence[TokenTree],
    targets: Sequence[int | None],
    margin: float,
) -> list[TreeScores]:
    """Read trees, the path of each target together with its prefix, so that its total is known first.

    Args:
        model: the model, called without gradient.
        cascade: reads trees with it.
        pad: stacks rows.
        prefixes: token ids, none empty.
        trees: one a prefix.
        targets: the sequence whose rank is wanted, or nothing to read the whole tree.
        margin: nats below the target's total from which a node is not read on.
    """
    paths = [
        [] if target is None else tree.path(int(tree.leaves[target]))[:-1]
        for tree, target in zip(trees, targets, strict=True)
    ]
    lengths = [len(prefix) + len(path) for prefix, path in zip(prefixes, paths, strict=True)]
    spread = max(lengths) - min(len(prefix) for prefix in prefixes) + 1
    step = cascade.prefixes_at_once(lengths, spread)
    results: list[TreeScores] = []
    for start in range(0, len(prefixes), step):
        some = range(start, min(start + step, len(prefixes)))
        ids, mask = pad([[*prefixes[i], *trees[i].tokens[paths[i]].tolist()] for i in some])
        first = min(len(prefixes[i]) for i in some) - 1
        # Without a configuration the cache keeps every key, also where a layer's window is short.
        answer = model(
            ids, attention_mask=mask, logits_to_keep=ids.shape[1] - first, cache=DynamicCache(), use_cache=True
        )
        stems = []
        for row, i in enumerate(some):
            rounds, begin = Rounds(trees[i], targets[i], margin), len(prefixes[i]) - 1 - first
            path = np.asarray([-1, *paths[i]], dtype=np.int64)
            nodes, parents = rounds.children(path)
            logits = answer.logits[row, begin : begin + len(path)]
            rounds.edges[nodes] = edges(logits, parents, trees[i].tokens[nodes])
            stem = Stem(row, len(prefixes[i]), rounds)
            stem.adopt(path[1:], answer.cache)
            stems.append(stem)
        cascade.run(model, answer.cache, stems)
        results += [stem.rounds.scores() for stem in stems]
    return results


def by_sequences(logprobs: Scorer, index: int, prefix: Sequence[int], tree: TokenTree) -> NDArray[np.float64]:
    """The totals of a tree from scoring its sequences one by one.

    Raises:
        PrefixError: with ``index``, if the prefix cannot be read.
    """
    totals = np.full(len(tree), np.nan)
    ends = np.unique(np.concatenate([tree.leaves, np.flatnonzero(tree.ends == np.arange(len(tree)) + 1)]))
    paths = [tree.path(int(end)) for end in ends]
    try:
        scored = logprobs([prefix] * len(paths), [tree.tokens[path].tolist() for path in paths])
    except PrefixError as error:
        raise PrefixError(index, str(error)) from error
    for path, values in zip(paths, scored, strict=True):
        totals[path] = np.cumsum(values)
    return totals
