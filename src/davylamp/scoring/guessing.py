"""The certified guessing baseline: what the best list of m guesses achieves, without the release.

For a secret of fixed length that was drawn from a base model after a prefix, ``kappa(m)`` is the mass of its m
likeliest values (P1, *Memorization Is Not Extraction*, arXiv 2608.27782, Sec. 5): the success of the best guesser who
knows the base model and never saw the release. A best-first search over prefixes brackets it, at any time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import logsumexp

from davylamp.errors import Fault, InputError
from davylamp.scoring.guessing_rows import FLOAT32_MARGIN, PrefixRows, search_faults, slack
from davylamp.scoring.guessing_search import DEFAULT_MEMORY, Effort, Guess, Search


@dataclass(frozen=True, slots=True)
class GuessingBaseline:
    """An interval that holds ``kappa(budget)``.

    Attributes:
        log_kappa_low: lower end in nats; minus infinity where no sequence was found yet.
        log_kappa_high: upper end in nats.
        closed: whether the search is done: the ends then differ by floating-point slack only.
        expansions: rows of conditionals that were read.
        budget: m, the length of the list.
        length: tokens of a sequence.
        temperature: at which the secret was drawn.
        best: the likeliest sequences found, best first, at most ``budget``; once closed, the best list there is.
    """

    log_kappa_low: float
    log_kappa_high: float
    closed: bool
    expansions: int
    budget: int
    length: int
    temperature: float
    best: tuple[Guess, ...]

    @property
    def kappa_low(self) -> float:
        """Lower end of kappa: the mass of the list that was found, rounded down."""
        return math.exp(self.log_kappa_low)

    @property
    def kappa_high(self) -> float:
        """Upper end of kappa: no list of so many guesses does better, rounded up."""
        return math.exp(self.log_kappa_high)

    @property
    def min_entropy_low_bits(self) -> float:
        """``-log2`` of the upper end: against so many guesses the secret is at least that hard."""
        return max(0.0, -self.log_kappa_high / math.log(2))

    @property
    def min_entropy_high_bits(self) -> float:
        """``-log2`` of the lower end; infinite where that is 0."""
        return max(0.0, -self.log_kappa_low / math.log(2))


def guessing_baseline(
    source: PrefixRows,
    length: int,
    budget: int,
    *,
    temperature: float = 1.0,
    effort: Effort | None = None,
    batch: int = 64,
    margin: float = FLOAT32_MARGIN,
    memory: int = DEFAULT_MEMORY,
) -> GuessingBaseline:
    """Bracket ``kappa(budget)`` of a secret of ``length`` tokens.

    With beta the largest probability of an open prefix, the lower end is the sum of the m best sequences found, and
    the upper end the sum of the m largest among those found joined by m copies of beta. Both hold at any time. The end
    of text is an ordinary token. Whole rows are compared with the m-th incumbent, never a slice of the likeliest
    tokens; where memory runs out, the largest prefix that was dropped stays in beta.

    The ends allow for rows that are off by ``margin`` nats an entry (float32 logits depend on the order of sums) and
    for the rounding of the search itself: they are moved outwards by ``length`` times that, so that a closed search
    on exact rows agrees with enumeration to some 1e-12.

    Args:
        source: rows after the secret's prefix; see :func:`~davylamp.scoring.guessing_rows.open_rows`.
        length: tokens of the secret, at least 1.
        budget: m, at least 1.
        temperature: at which the secret was drawn, above 0.
        effort: how much may be done; until it closes if none.
        batch: rows that are asked for at once.
        margin: nats that an entry of a row may be off by; 0 for exact rows.
        memory: bytes that the open prefixes may take.

    Raises:
        InputError: an argument is outside its range; all are named.
        ScoringError: a row cannot be used.
        PrefixError: the release cannot answer, since prefix and secret are longer than its context, say.
    """
    search_faults(length, budget, temperature, batch, margin)
    effort = effort or Effort()
    check_effort(effort)
    search = Search(source, length, budget, temperature=temperature, batch=batch, memory=memory)
    search.run(effort)
    best = search.best()
    found = np.asarray([guess.log_probability for guess in best])
    joined = np.sort(np.append(found, np.full(budget, -search.bound)))[-budget:]
    room = slack(length, temperature, margin)
    return GuessingBaseline(
        min(_log_sum(found) - room, 0.0),
        min(_log_sum(joined) + room, 0.0),
        search.closed,
        search.expansions,
        budget,
        length,
        temperature,
        best,
    )


def check_effort(effort: Effort) -> None:
    """Check an effort.

    Raises:
        InputError: a part of it allows nothing.
    """
    faults = []
    if effort.expansions is not None and effort.expansions < 1:
        faults.append(Fault("max_expansions", effort.expansions, "a whole number of at least 1"))
    if effort.seconds is not None and not effort.seconds > 0:
        faults.append(Fault("seconds", effort.seconds, "a number above 0"))
    if faults:
        raise InputError(faults)


def _log_sum(values: np.ndarray) -> float:
    return float(logsumexp(values)) if len(values) and np.isfinite(values).any() else -math.inf
