"""How values of the frontier are written: one notation in a cell, and one unit in a column."""

from __future__ import annotations

from collections.abc import Sequence

from davylamp.report.text import digits, number, percent
from davylamp.verdict.frontier_model import CAPABILITY, PRIVACY, Estimate, Frontier, Metric, Row

WRITTEN_OUT = 1e6
"""Perplexities from here on are no longer written out."""
DECIMAL = 1e-3
"""Probabilities below are written in powers of ten."""


def estimate(row: Row, key: str) -> Estimate:
    """Where an intervention stands on an axis."""
    return row.ranks[key] if key in (PRIVACY, CAPABILITY) else row.values[key]


def spoken(found: Frontier, row: Row, key: str) -> str:
    """A value of an intervention, with its interval where it has one."""
    return " ".join(each for each in written(found.metric(key), estimate(row, key)) if each)


def written(metric: Metric | None, each: Estimate) -> tuple[str, str]:
    """A value of a metric, or of a mean rank where there is none, and its interval.

    Returns:
        Both in the same notation, which the value decides; an end that it cannot show is said to lie beyond. The
        interval is empty where there is none.
    """
    ends = [end for end in (each.low, each.high) if end is not None]
    value, *between = _all(metric, [each.value, *ends])
    return value, f"[{', '.join(between)}]" if len(between) == 2 else ""


def _all(metric: Metric | None, values: list[float]) -> list[str]:
    if metric is None:
        return [f"{value:.1f}" for value in values]
    if metric.unit == "bits":
        return [number(value) for value in values]
    if metric.unit == "share of canaries":
        return [percent(value) for value in values]
    if metric.unit == "probability":
        return [_decimal(value) if values[0] >= DECIMAL else _power(value) for value in values]
    return [perplexity(value) if values[0] < WRITTEN_OUT else _power(value) for value in values]


def perplexity(value: float) -> str:
    """A perplexity: three digits that count, or the whole number; one that is too long is said to be longer."""
    return digits(value) if value < WRITTEN_OUT else f">{WRITTEN_OUT:,.0f}"


def perplexity_marks(values: Sequence[float]) -> list[str]:
    """The marks of a logarithmic axis, in one notation."""
    if any(value >= WRITTEN_OUT for value in values):
        return [_power(value) for value in values]
    return [f"{value:g}" if value < 1000 else perplexity(value) for value in values]


def probability_mark(value: float) -> str:
    """A mark on an axis of probabilities, written as in the tables."""
    return f"{value:g}" if value == 0 or value >= DECIMAL else _power(value)


def _decimal(value: float) -> str:
    """A probability that is not small: two decimals, and a digit that counts where they hold none."""
    if value in (0, 1):
        return f"{value:.0f}"
    if value < DECIMAL:
        return f"<{DECIMAL:g}"
    if value >= 0.995:
        return ">0.99"
    return f"{value:.2f}" if value >= 0.095 else f"{value:.1g}"


def _power(value: float) -> str:
    """A number as a digit and a power of ten, but for what is a digit alone."""
    if value == 0:
        return "0"
    mantissa, exponent = f"{value:.0e}".split("e")
    return f"{mantissa}e{int(exponent)}" if int(exponent) else mantissa
