"""Answers that may become numbers: finite ones, from a fast path that agrees with the plain one."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import LogitsProcessor

from davylamp.errors import ScoringError
from davylamp.release.base import PrefixError
from davylamp.release.tree import TokenTree

PATHS = 3
"""Paths of a tree that are also scored plainly."""
FLOAT32_MARGIN = 1e-3
"""Nats a token by which the fast and the plain path may differ in float32; a wrong mask costs whole nats."""
HALF_MARGIN = 0.25
"""The same for a model in bfloat16 or float16, whose sums depend on the shape of the batch."""

Scorer = Callable[[Sequence[Sequence[int]], Sequence[Sequence[int]]], list[NDArray[np.float64]]]


def check_finite(values: NDArray[np.float64], index: int, name: str) -> None:
    """Let log-probabilities pass if none is NaN or positive infinity; a token of probability 0 is an answer.

    Raises:
        PrefixError: one is.
    """
    if np.isnan(values).any() or np.isposinf(values).any():
        raise PrefixError(index, _complaint(name))


def _complaint(name: str) -> str:
    return (
        f"the answer of {name} is not finite (NaN or infinite logits); score in float32, or check the checkpoint: "
        "its training may have gone wrong"
    )


class FiniteLogits(LogitsProcessor):  # type: ignore[misc]
    """Stops a generation whose logits are NaN: the most likely token of NaN would be a number made of nothing."""

    def __init__(self, prompts: Sequence[int], name: str) -> None:
        """Take the index of the prompt of each row, and the release's name for messages."""
        self._prompts = prompts
        self._name = name

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:  # noqa: ARG002
        """Hand the scores on.

        Raises:
            PrefixError: a row holds NaN or positive infinity.
        """
        bad = (scores.isnan() | scores.isposinf()).any(dim=-1)
        if bool(bad.any()):
            raise PrefixError(self._prompts[int(bad.nonzero()[0, 0])], _complaint(self._name))
        return scores


def agrees(
    totals: NDArray[np.float64], prefix: Sequence[int], tree: TokenTree, plain: Scorer, dtype: torch.dtype
) -> bool:
    """Whether a tree's totals are what scoring some of its paths one by one gives.

    A model may read positions from the order of its keys, or keep a window of its own: no configuration
    tells, and the totals would be wrong by whole nats without a word.

    Args:
        totals: for each node, in nats, shape (nodes,).
        prefix: what the tree follows.
        tree: the tree.
        plain: scores continuations one by one.
        dtype: the model's own type.
    """
    if not np.isfinite(totals).all():
        return False
    # In the order of the candidates, not of the nodes: the longest way from each other that a tree offers.
    ends = tree.leaves[np.unique(np.linspace(0, len(tree.leaves) - 1, PATHS).astype(np.int64))]
    paths = [tree.path(int(end)) for end in ends]
    try:
        scored = plain([prefix] * len(paths), [tree.tokens[path].tolist() for path in paths])
    except ScoringError:
        return False
    margin = FLOAT32_MARGIN if dtype in (torch.float32, torch.float64) else HALF_MARGIN
    return all(
        abs(totals[end] - values.sum()) <= margin * len(values) for end, values in zip(ends, scored, strict=True)
    )
