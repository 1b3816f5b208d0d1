"""Best-first search for the likeliest continuations of a fixed length."""

from __future__ import annotations

import heapq
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from davylamp.scoring.guessing_frontier import BYTES, Frontier
from davylamp.scoring.guessing_rows import PrefixRows, checked_rows

BEAM = 16
"""Prefixes that are followed to their ends together while too few whole sequences are known."""
DEEP_SHARE = 0.25
"""Share of the expansions that go on with the latest prefixes, to raise the incumbents early."""
ROUGHLY = 1e-6
"""Nats of room in a first comparison over a row, which spares a row of sums; what passes is compared exactly."""
DEFAULT_MEMORY = 256 * 2**20
"""Bytes that the open prefixes may take."""


@dataclass(frozen=True, slots=True)
class Guess:
    """A whole sequence that a search found.

    Attributes:
        tokens: its tokens.
        log_probability: in nats, at the search's temperature.
    """

    tokens: tuple[int, ...]
    log_probability: float

    @property
    def probability(self) -> float:
        """Its probability."""
        return math.exp(self.log_probability)


@dataclass(frozen=True, slots=True)
class Effort:
    """How much a search may do; whichever ends first.

    Attributes:
        expansions: rows that it may read.
        seconds: wall time after which no other batch is begun.
    """

    expansions: int | None = None
    seconds: float | None = None


class Search:
    """The state of one search, which goes on batch by batch and can be read between any two.

    Costs are negative log-probabilities in nats, so that likelier is smaller. A child is dropped only if it costs as
    much as the ``budget``-th best whole sequence (or ``ceiling``), which no completion of it can then beat.
    """

    def __init__(
        self,
        source: PrefixRows,
        length: int,
        budget: int,
        *,
        temperature: float = 1.0,
        batch: int = 64,
        memory: int = DEFAULT_MEMORY,
        ceiling: float = math.inf,
    ) -> None:
        """Begin at the prefix.

        Args:
            source: rows after the prefix.
            length: tokens of a whole sequence.
            budget: how many of the likeliest sequences are wanted.
            temperature: divides the logits.
            batch: rows that are asked for at once.
            memory: bytes that the open prefixes may take.
            ceiling: sequences of this cost or more are of no interest.
        """
        self._source = source
        self._length = length
        self._budget = budget
        self._temperature = temperature
        self._batch = batch
        self._ceiling = ceiling
        self._frontier = Frontier(max(1, memory // BYTES))
        # Expanded prefixes: the one that each extends, its last token, its depth. Number 0 is the fixed prefix.
        self._parents, self._tokens, self._depths = [-1], [-1], [0]
        # The incumbents, the costliest on top; ties are broken by the order in which they were found.
        self._found: list[tuple[float, int, int, int]] = []
        self._arrivals = 0
        self._deep: list[int] = []
        self._credit = 0.0
        self.expansions = 0
        """Rows that were read."""

    @property
    def limit(self) -> float:
        """Cost from which on a sequence is of no interest: of the ``budget``-th best found, or the ceiling."""
        return min(self._ceiling, self.worst)

    @property
    def worst(self) -> float:
        """Cost of the ``budget``-th best whole sequence found; infinite while there are fewer."""
        return -self._found[0][0] if len(self._found) == self._budget else math.inf

    @property
    def bound(self) -> float:
        """Least cost that a sequence not found yet can have; infinite where there is none of interest."""
        if self.expansions == 0:
            return 0.0
        left = min(self._frontier.best(self.limit), self._frontier.dropped)
        return left if left < self.limit else math.inf

    @property
    def closed(self) -> bool:
        """Whether nothing that is left can change the list."""
        return math.isinf(self.bound)

    def best(self) -> tuple[Guess, ...]:
        """The likeliest whole sequences found, best first, at most ``budget``."""
        ordered = sorted(self._found, key=lambda entry: (-entry[0], -entry[1]))
        return tuple(Guess((*self._path(node), token), cost) for cost, _, node, token in ordered)

    def run(self, effort: Effort, enough: float = -math.inf) -> None:
        """Go on until the search closes, the effort is spent, or ``worst`` is below ``enough``.

        Raises:
            ScoringError: a row cannot be used.
            PrefixError: the release cannot answer.
        """
        begun = time.monotonic()
        while not self.closed and self.worst >= enough:
            left = math.inf if effort.expansions is None else effort.expansions - self.expansions
            if left < 1 or (effort.seconds is not None and time.monotonic() - begun >= effort.seconds):
                return
            if not self._step(int(min(left, self._batch))):
                # What is left was dropped for want of memory; the bound says so.
                return

    def _step(self, size: int) -> bool:
        """Expand up to ``size`` prefixes; says whether there was one."""
        if self.expansions == 0:
            self._expand([(0.0, 0)], 1)
            return True
        deep, best = self._choose(size)
        opened = []
        for cost, parent, token in (*deep, *best):
            self._parents.append(parent)
            self._tokens.append(token)
            self._depths.append(self._depths[parent] + 1)
            opened.append((cost, len(self._parents) - 1))
        if opened:
            self._expand(opened, len(deep))
        return bool(opened)

    def _choose(self, size: int) -> tuple[list[tuple[float, int, int]], list[tuple[float, int, int]]]:
        """What to expand: extensions of the latest prefixes, and the likeliest of all."""
        limit = self.limit
        diving = math.isinf(limit)
        if diving:
            # Until the first list is whole nothing can be dropped: go straight down, in few steps and little memory.
            quota = min(size, BEAM)
        else:
            self._credit += size * DEEP_SHARE
            quota = int(self._credit)
            self._credit -= quota
        deep = self._frontier.take_among(self._deep, quota, limit)
        best: list[tuple[float, int, int]] = []
        while len(deep) + len(best) < size and not (diving and deep):
            taken = self._frontier.take_best(limit)
            if taken is None:
                break
            best.append(taken)
        return deep, best

    def _expand(self, opened: Sequence[tuple[float, int]], deep: int) -> None:
        rows = checked_rows(self._source.rows([self._path(node) for _, node in opened]), len(opened), self._temperature)
        self.expansions += len(opened)
        # The deepest first: the sequences that they complete may spare the children of the others.
        for at in sorted(range(len(opened)), key=lambda index: -self._depths[opened[index][1]]):
            cost, node = opened[at]
            if self._depths[node] + 1 == self._length:
                self._complete(node, *self._children(cost, rows[at]))
            else:
                self._frontier.add(node, *self._children(cost, rows[at]))
        self._frontier.tidy(self.limit)
        inner = [node for _, node in opened if self._depths[node] + 1 < self._length]
        followed = [node for _, node in opened[:deep] if self._depths[node] + 1 < self._length]
        self._deep = followed or inner

    def _children(self, cost: float, row: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Costs and last tokens of the children of a prefix that are of interest, compared over the whole row."""
        tokens = np.flatnonzero(row > cost - self.limit - ROUGHLY)
        costs = cost - row[tokens]
        kept = costs < self.limit
        return costs[kept], tokens[kept]

    def _complete(self, node: int, costs: NDArray[np.float64], tokens: NDArray[np.int64]) -> None:
        if len(costs) > self._budget:
            best = np.argpartition(costs, self._budget - 1)[: self._budget]
            costs, tokens = costs[best], tokens[best]
        for at in np.argsort(costs, kind="stable"):
            self._arrivals += 1
            entry = (-float(costs[at]), -self._arrivals, node, int(tokens[at]))
            if len(self._found) < self._budget:
                heapq.heappush(self._found, entry)
            elif entry > self._found[0]:
                heapq.heapreplace(self._found, entry)

    def _path(self, node: int) -> tuple[int, ...]:
        tokens = []
        while node > 0:
            tokens.append(self._tokens[node])
            node = self._parents[node]
        return tuple(reversed(tokens))
