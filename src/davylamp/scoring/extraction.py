"""Extraction as a probability: by samples of a stated decoding scheme, and by the list of the likeliest continuations.

(n, p)-discoverable extraction: Hayes et al., *Measuring memorization in language models via probabilistic extraction*
(arXiv 2410.19482), Sec. 3. A secret is (n, p)-discoverable if at least one of n samples after its prefix is the secret
with a probability of at least p.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from davylamp.errors import Fault, InputError
from davylamp.scoring.guessing import check_effort
from davylamp.scoring.guessing_rows import FLOAT32_MARGIN, PrefixRows, search_faults, slack
from davylamp.scoring.guessing_search import Effort, Search

ROUNDING = 1e-15
"""Relative error of a quotient of two logarithms in float64, rounded up."""


def at_least_once(log_probability: float, samples: int) -> float:
    """Chance ``1 - (1 - p)^n`` that at least one of n independent samples is the secret (2410.19482, Sec. 3).

    Computed as ``-expm1(n log1p(-p))``, which keeps all digits of a tiny p.

    Args:
        log_probability: of one sample, ``log p`` in nats, at most 0; minus infinity for never.
        samples: n, at least 1.

    Raises:
        InputError: an argument is outside its range.
    """
    _check(log_probability, samples, 0.5)
    return -math.expm1(samples * _log_miss(log_probability))


def samples_needed(log_probability: float, probability: float) -> float:
    """Fewest samples that hold the secret with a given probability: ``ceil(log(1 - p*) / log(1 - p))``.

    Args:
        log_probability: of one sample, in nats, at most 0.
        probability: p*, in (0, 1).

    Returns:
        A whole number, as a float; infinite where one sample never is the secret, or the number is beyond 1e308.

    Raises:
        InputError: an argument is outside its range.
    """
    _check(log_probability, 1, probability)
    miss = _log_miss(log_probability)
    if miss == 0:
        return math.inf
    wanted = math.log1p(-probability) / miss
    if wanted > 2**53:
        return wanted
    # A quotient that is whole may come out a rounding above: half chance twice is 0.75, not three times.
    return float(max(1, math.ceil(wanted * (1 - ROUNDING))))


@dataclass(frozen=True, slots=True)
class Listing:
    """Whether a secret is on the list of a release's m likeliest continuations.

    Attributes:
        low: it certainly is.
        high: it may be; where both are equal the search has decided.
        expansions: rows of conditionals that were read.
    """

    low: bool
    high: bool
    expansions: int


def list_extraction(
    source: PrefixRows,
    secret: Sequence[int],
    log_probability: float,
    guesses: int,
    *,
    effort: Effort | None = None,
    batch: int = 64,
    margin: float = FLOAT32_MARGIN,
) -> Listing:
    """Whether the ``guesses`` likeliest continuations of the secret's length hold it.

    It is the strongest attack there is on a fixed prefix with so many guesses, if all that is known is the release and
    each continuation is as likely as the release says. The secret's own probability cuts the search short: what is
    less likely cannot push it off the list.

    Args:
        source: rows after the secret's prefix.
        secret: its tokens.
        log_probability: of the secret after its prefix at temperature 1, in nats.
        guesses: m, the length of the list.
        effort: how much may be done; until it is decided if none.
        batch: rows that are asked for at once.
        margin: nats that an entry of a row may be off by.

    Raises:
        InputError: an argument is outside its range; all are named.
        ScoringError: a row cannot be used.
        PrefixError: the release cannot answer.
    """
    search_faults(len(secret), guesses, 1.0, batch, margin)
    effort = effort or Effort()
    check_effort(effort)
    cost, room = -log_probability, 2 * slack(len(secret), 1.0, margin)
    search = Search(source, len(secret), guesses, batch=batch, ceiling=cost + room)
    search.run(effort, enough=cost - room)
    listed = search.closed and any(guess.tokens == tuple(secret) for guess in search.best())
    return Listing(listed, listed or search.worst >= cost - room, search.expansions)


def _log_miss(log_probability: float) -> float:
    """``log(1 - p)`` in nats."""
    if log_probability >= 0:
        return -math.inf
    if log_probability > -math.log(2):
        return math.log(-math.expm1(log_probability))
    return math.log1p(-math.exp(log_probability))


def _check(log_probability: float, samples: int, probability: float) -> None:
    checks = [
        ("log_probability", log_probability, log_probability <= 0, "a number of nats of at most 0"),
        ("samples", samples, samples >= 1, "a whole number of at least 1"),
        ("probability", probability, 0 < probability < 1, "a number above 0 and below 1"),
    ]
    if faults := [Fault(name, value, allowed) for name, value, fits, allowed in checks if not fits]:
        raise InputError(faults)
