"""What the frontier's page says in sentences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

from davylamp.bounds.intervals import least_for_median
from davylamp.report.frontier_numbers import spoken
from davylamp.report.text import percent, shorten
from davylamp.runs.wording import counted
from davylamp.verdict.frontier_metrics import EXPOSURE, SEMANTIC, VERBATIM, goodness
from davylamp.verdict.frontier_model import CAPABILITY, PRIVACY, Arrow, Frontier, Row

ABOUT = (
    "A perplexity mixes memory with fluency: a model that writes worse, or that never learnt how such secrets are "
    "spelled, finds each of them less likely without having remembered less, and one that writes better finds them "
    "likelier without having remembered more. Exposure compares a secret with others after the same record, so that "
    "it is about memory alone: where the two disagree by more than chance, go by exposure."
)
"""Why perplexities and exposure may disagree."""
NAMED = 12
"""Interventions that a sentence names at most."""


def finding(found: Frontier) -> str:
    """The Pareto set of the mean ranks; nothing of a single intervention."""
    front = found.front(CAPABILITY, PRIVACY)
    return "" if front is None else f"In the Pareto set of the mean ranks: {few(front.members)}."


def more(found: Frontier) -> Iterator[str]:
    """What else there is to read off the frontier."""
    front = found.front(CAPABILITY, PRIVACY)
    members = () if front is None else front.members
    beaten = [row.intervention for row in found.rows if row.intervention not in members]
    if beaten and members:
        whose = "Some" if len(beaten) == 1 else "For each of them some"
        yield (
            f"Beaten by another: {few(beaten)}. {whose} other intervention has mean ranks at least as good on both "
            "sides, and better on one."
        )
    for arrow in found.arrows:
        yield _arrow_words(found, arrow)


def few(names: Sequence[str]) -> str:
    """Names in a sentence, the first of many."""
    shown = ", ".join(shorten(name, 40) for name in names[:NAMED])
    return shown if len(names) <= NAMED else f"{shown} and {len(names) - NAMED} more"


def _arrow_words(found: Frontier, arrow: Arrow) -> str:
    words: dict[str, list[str]] = {}
    for change in arrow.changes:
        metric = found.metric(change.metric)
        words.setdefault(change.word, []).append(change.metric if metric is None else metric.title)
    said = "; ".join(f"{word} in {' and '.join(titles)}" for word, titles in words.items())
    return f"From {shorten(arrow.before, 40)} to {shorten(arrow.after, 40)}: {said}."


def disagreement(found: Frontier) -> tuple[str, ...]:
    """Where perplexities and exposure order interventions differently, and which of the two is about memory.

    By the mean rank, or else by its metrics one after the other. Named is the pair of interventions that exposure holds
    farthest apart, if there are any among those whose intervals of exposure do not overlap.

    Returns:
        Sentences; none where all agree.
    """
    if len(found.rows) < 2:
        return ()
    keys = (
        (PRIVACY, "the mean rank of perplexities"),
        (SEMANTIC, "semantic perplexity"),
        (VERBATIM, "verbatim perplexity"),
    )
    for key, title in keys:
        against = [pair for pair in combinations(found.rows, 2) if _good(pair, key) * _good(pair, EXPOSURE) < 0]
        if against:
            return _opposed(found, key, title, against), ABOUT
    return ()


def _good(pair: tuple[Row, Row], key: str) -> float:
    """How much better the first of a pair is than the second."""
    if key == PRIVACY:
        return pair[0].ranks[key].value - pair[1].ranks[key].value
    return goodness(pair[0].values, key) - goodness(pair[1].values, key)


def _opposed(found: Frontier, key: str, title: str, against: Sequence[tuple[Row, Row]]) -> str:
    sure = [pair for pair in against if _apart(pair)]
    first, second = max(sure or against, key=lambda pair: abs(_good(pair, EXPOSURE)))
    if _good((first, second), EXPOSURE) > 0:
        first, second = second, first
    bits, other = ([spoken(found, row, each) for row in (first, second)] for each in (EXPOSURE, key))
    pairs = len(found.rows) * (len(found.rows) - 1) // 2
    names = [shorten(row.intervention, 40) for row in (first, second)]
    chance = "" if sure else " Their intervals of exposure overlap: the difference may be one of chance."
    return (
        f"By exposure {names[0]} gives away more than {names[1]} ({bits[0]} bits against {bits[1]}); by {title} less "
        f"({other[0]} against {other[1]}). The two disagree on {len(against)} of {counted(pairs, 'pair')}.{chance}"
    )


def _apart(pair: tuple[Row, Row]) -> bool:
    """Whether the intervals of two exposures have nothing in common."""
    one, other = sorted((row.values[EXPOSURE] for row in pair), key=lambda each: each.value)
    return one.high is not None and other.low is not None and one.high < other.low


def without_interval(found: Frontier, rows: Sequence[Row]) -> str:
    """Why medians of few canaries have no interval; nothing where all have one.

    Args:
        found: the frontier.
        rows: the rows whose values of all doses together are shown.
    """
    least = least_for_median(found.confidence)
    small = sorted({row.values[EXPOSURE].n for row in rows if row.values[EXPOSURE].n < least})
    return "" if not small else f"{_too_few(found)} Here a median is of {_either(small)}."


def doses_without_interval(found: Frontier) -> str:
    """The same of the medians of each dose."""
    least = least_for_median(found.confidence)
    small = {each.dose: each.canaries for row in found.rows for each in row.doses if each.canaries < least}
    if not small:
        return ""
    where = ", ".join(
        f"dose {dose:,} ({counted(count, *(('canary', 'canaries') if dose else ('twin', 'twins')))})"
        for dose, count in sorted(small.items())
    )
    return f"{_too_few(found)} None is given at {where}."


def _too_few(found: Frontier) -> str:
    least = least_for_median(found.confidence)
    return f"Fewer than {least} canaries have no {percent(found.confidence)} interval of a median."


def _either(counts: Sequence[int]) -> str:
    words = " or ".join(map(str, counts))
    return f"{words} {'canary' if list(counts) == [1] else 'canaries'}"
