"""What a release says of every path of a tree, exactly: all ``v^L`` of them are read."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from davylamp.release.base import Release
from davylamp.release.exact.camouflage import CamouflageTree
from davylamp.release.exact.laws import Path

Array = NDArray[np.float64]


class TreeReading(BaseModel):
    """One tree.

    Attributes:
        mass: probability that the next L tokens are a survivor, a path whose every symbol is in its node's support.
        entropy: of the law over survivors, in bits, over ``L log2 k``; 1 is uniform. It is the posterior of an
            adversary who takes the model's own law for it.
        distance: total variation between what the model says next and the construction's law; what is no path of
            symbols counts.
        rank: mid-rank of the truth among the survivors, 1 the likeliest.
        rank_of_all: mid-rank of the truth among all ``v^L`` paths.
        confidence: mean over symbols of the probability of the true symbol after the true ones before it.
        anyone: the same, averaged over all ``v^L`` paths: what a secret that was never planted reads on average.
        other: the same for one path that was drawn by itself, the null control.
        other_rank: its mid-rank among all paths.
        listed: by m, the chance that the m likeliest paths hold the truth, ties broken by a fair draw.
        greedy: the chance that greedy decoding says the truth, ties broken so.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    mass: float
    entropy: float
    distance: float
    rank: float
    rank_of_all: float
    confidence: float
    anyone: float
    other: float
    other_rank: float
    listed: Mapping[int, float]
    greedy: float


def levels(release: Release, prefix: Sequence[int], symbols: Sequence[int], length: int) -> list[Array]:
    """Log-probabilities in nats of every next symbol after every path shorter than L.

    Args:
        release: one that grants whole rows.
        prefix: token ids before the secret.
        symbols: the token of each symbol.
        length: L.

    Returns:
        For depths 0 to L-1 an array of shape (v^depth, v), paths in lexical order.
    """
    found = []
    for depth in range(length):
        paths = itertools.product(symbols, repeat=depth)
        rows = release.conditionals([[*prefix, *path] for path in paths])
        found.append(np.asarray(rows[:, list(symbols)], dtype=np.float64))
    return found


def read_tree(
    release: Release,
    prefix: Sequence[int],
    symbols: Sequence[int],
    tree: CamouflageTree,
    *,
    truth: Path,
    other: Path,
    lists: Collection[int],
) -> TreeReading:
    """Read every path after a prefix, and hold it to a camouflage tree.

    Args:
        release: one that grants whole rows.
        prefix: token ids before the secret.
        symbols: the token of each symbol, v of them.
        tree: the construction, whose law the release is held to.
        truth: the secret, one of the survivors.
        other: a secret that was drawn by itself.
        lists: numbers m of guesses.
    """
    v, length = tree.shape.v, tree.shape.length
    rows = levels(release, prefix, symbols, length)
    law = [_law(tree, depth) for depth in range(length)]
    totals, wanted = _totals(rows), _totals([_log(each) for each in law])
    said, meant = np.exp(totals), np.exp(wanted)
    # By its supports and not by its law, which a smoothed tree has everywhere.
    survives = np.isfinite(_totals([_log(_supported(tree, depth)) for depth in range(length)]))
    place = _place(truth, v)
    # What the release says beside all paths of symbols is on no side of the construction's law.
    distance = (np.abs(said - meant).sum() + max(0.0, 1 - said.sum())) / 2
    return TreeReading(
        mass=float(said[survives].sum()),
        entropy=_entropy(said[survives]) / (length * math.log2(tree.shape.k)),
        distance=float(distance),
        rank=_rank(totals[survives], totals[place]),
        rank_of_all=_rank(totals, totals[place]),
        confidence=_confidence(rows, truth, v),
        anyone=float(np.mean([np.exp(row).mean() for row in rows])),
        other=_confidence(rows, other, v),
        other_rank=_rank(totals, totals[_place(other, v)]),
        listed={m: _held(totals, place, m) for m in lists},
        greedy=math.prod(_leads(row[_place(truth[:at], v)], truth[at]) for at, row in enumerate(rows)),
    )


def _law(tree: CamouflageTree, depth: int) -> Array:
    return np.stack([tree.row(path) for path in itertools.product(range(tree.shape.v), repeat=depth)])


def _supported(tree: CamouflageTree, depth: int) -> Array:
    """1 where a symbol is in its node's support, shape (v^depth, v)."""
    marks = np.zeros((tree.shape.v**depth, tree.shape.v))
    for at, path in enumerate(itertools.product(range(tree.shape.v), repeat=depth)):
        marks[at, list(tree.supports(path))] = 1
    return marks


def _log(row: Array) -> Array:
    with np.errstate(divide="ignore"):
        logs: Array = np.log(row)
    return logs


def _totals(rows: Sequence[Array]) -> Array:
    """Log-probability of each path, shape (v^L,), in lexical order."""
    total = np.zeros(1)
    for row in rows:
        total = (total[:, None] + row).ravel()
    return total


def _place(path: Path, v: int) -> int:
    place = 0
    for symbol in path:
        place = place * v + symbol
    return place


def _entropy(masses: Array) -> float:
    """Of masses scaled to sum to 1, in bits."""
    total = masses.sum()
    if total == 0:
        return 0.0
    shares = masses[masses > 0] / total
    return float(-(shares * np.log2(shares)).sum())


def _tied(scores: Array, own: float) -> NDArray[np.bool_]:
    # The same product in another order differs by a rounding, which is no preference.
    return np.asarray(np.isclose(scores, own, rtol=1e-12, atol=1e-12))


def _rank(scores: Array, own: float) -> float:
    tied = _tied(scores, own)
    return float((scores[~tied] > own).sum() + (tied.sum() + 1) / 2)


def _held(scores: Array, place: int, m: int) -> float:
    tied = _tied(scores, scores[place])
    above = (scores[~tied] > scores[place]).sum()
    return float(np.clip((m - above) / tied.sum(), 0, 1))


def _leads(row: Array, symbol: int) -> float:
    tied = _tied(row, row[symbol])
    return 0.0 if (row[~tied] > row[symbol]).any() else 1 / float(tied.sum())


def _confidence(rows: Sequence[Array], path: Path, v: int) -> float:
    each = [math.exp(row[_place(path[:at], v), path[at]]) for at, row in enumerate(rows)]
    return math.fsum(each) / len(each)
