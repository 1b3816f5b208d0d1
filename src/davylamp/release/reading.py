"""Whole token trees after their prefixes: read together, or sequence by sequence where that cannot be."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import DynamicCache

from davylamp.release.answers import PATHS, Scorer, agrees, check_finite
from davylamp.release.base import PrefixError
from davylamp.release.cascade import Cascade, Stem, edges
from davylamp.release.opened import OpenedPrefix
from davylamp.release.rounds import Rounds
from davylamp.release.tree import TokenTree, TreeScores

LOG = logging.getLogger(__name__)

Pad = Callable[[Sequence[Sequence[int]]], tuple[torch.Tensor, torch.Tensor]]
"""Stacks rows of token ids, padded on the right, and their mask."""


class TreeReader:
    """Reads the token trees of one model together, for as long as that gives what a plain reading does."""

    def __init__(
        self,
        model: Any,
        base: Any,
        cascade: Cascade,
        pad: Pad,
        answering: Callable[[], AbstractContextManager[None]],
        plainly: Scorer,
        name: str,
        memory: int,
    ) -> None:
        """Take a model.

        Args:
            model: the model, an adapter around it included.
            base: the same without the adapter.
            cascade: reads trees with it.
            pad: stacks rows.
            answering: the context in which the model is called.
            plainly: scores whole sequences with the model, to hold other ways of reading against.
            name: the release's name, for messages.
            memory: bytes that the kept keys and values of an opened prefix may take.
        """
        self._model, self._base, self._cascade, self._pad = model, base, cascade, pad
        self._answering, self._plainly, self._name, self._memory = answering, plainly, name, memory
        self._fast = cascade.supported
        self._proven = 0

    def logprobs(self, prefixes: Sequence[Sequence[int]], trees: Sequence[TokenTree]) -> list[NDArray[np.float64]]:
        """The totals of trees after prefixes that were checked; see :meth:`LocalRelease.tree_logprobs`.

        Raises:
            PrefixError: an answer is not finite.
            ScoringError: the memory allowed is too small.
        """
        if self._fast and prefixes:
            results = [scores.totals for scores in self._read(prefixes, trees)]
            longest = max(range(len(prefixes)), key=lambda i: len(prefixes[i]))
            if agrees(results[longest], prefixes[longest], trees[longest], self._plainly, self._base.dtype):
                for i, totals in enumerate(results):
                    check_finite(totals, i, self._name)
                return results
            self._fast = False
            LOG.warning(
                "%s (%s) does not score token trees as it scores sequences: scoring sequence by sequence, slowly",
                self._name,
                self._base.config.model_type,
            )
        return [by_sequences(self._plainly, i, p, t) for i, (p, t) in enumerate(zip(prefixes, trees, strict=True))]

    def ranks(
        self, prefixes: Sequence[Sequence[int]], trees: Sequence[TokenTree], targets: Sequence[int], margin: float
    ) -> list[TreeScores]:
        """The same as far as they bear on the rank of one sequence of each; see :meth:`LocalRelease.tree_ranks`.

        Raises:
            PrefixError: an answer is not finite.
            ScoringError: the memory allowed is too small.
        """
        if not prefixes:
            return []
        # What the check costs would outweigh a pruned reading, and what it finds depends on the length alone.
        longest = max(range(len(prefixes)), key=lambda i: len(prefixes[i]))
        if self._fast and len(prefixes[longest]) > self._proven:
            self._prove(prefixes[longest], trees[longest].sample(PATHS))
        if not self._fast:
            pairs = enumerate(zip(prefixes, trees, strict=True))
            totals = [by_sequences(self._plainly, i, prefix, tree) for i, (prefix, tree) in pairs]
            counts = [len(tree.internal) for tree in trees]
            return [TreeScores(*each) for each in zip(totals, counts, counts, strict=True)]
        scores = self._read(prefixes, trees, targets, margin)
        for i, score in enumerate(scores):
            check_finite(score.totals, i, self._name)
        return scores

    def open(self, prefix: Sequence[int], limit: int | None) -> OpenedPrefix | None:
        """A prefix that is read once, or nothing where its continuations must be read whole.

        Args:
            prefix: token ids, not empty and not longer than the context.
            limit: tokens of the model's context, where it has a fixed one.

        Raises:
            PrefixError: an answer is not finite.
        """
        if self._fast and len(prefix) > self._proven:
            paths = [[prefix[0], prefix[-1]], [prefix[-1], prefix[-1]]]
            if limit is not None and len(prefix) + len(paths[0]) > limit:
                return None
            self._prove(prefix, TokenTree.of(paths))
        if not self._fast:
            return None
        opened = OpenedPrefix(self._model, self._cascade, prefix, self._answering, self._name, self._memory)
        opened.limit = limit
        return opened

    def _prove(self, prefix: Sequence[int], tree: TokenTree) -> None:
        """Read a tree for the comparison with a plain reading that comes with it."""
        self.logprobs([prefix], [tree])
        if self._fast:
            self._proven = len(prefix)

    def _read(
        self,
        prefixes: Sequence[Sequence[int]],
        trees: Sequence[TokenTree],
        targets: Sequence[int] | None = None,
        margin: float = 0.0,
    ) -> list[TreeScores]:
        wanted: list[int | None] = [None] * len(trees) if targets is None else list(targets)
        with self._answering():
            return read_trees(self._model, self._cascade, self._pad, prefixes, trees, wanted, margin)


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
