"""How shapes are judged: rates over all seeds, exact tests, and the word of a shape."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy import stats

from davylamp.bounds.intervals import clopper_pearson
from davylamp.measures.constructed.model import Rate
from davylamp.report.study import Checked, ShapeFound, Word

CONFIDENCE = 0.95


def counted(successes: int, trials: int) -> Rate:
    """A rate with its Clopper-Pearson interval; there is at least one trial."""
    interval = clopper_pearson(successes, trials, CONFIDENCE)
    return Rate(successes=successes, trials=trials, low=interval.low, high=interval.high)


def pooled(rates: Sequence[Rate]) -> Rate:
    """One rate of several."""
    return counted(sum(each.successes for each in rates), sum(each.trials for each in rates))


def told(rate: Rate | None) -> str:
    """A rate with its counts and its interval."""
    if rate is None:
        return "unknown"
    return f"{rate.value:.3f} ({rate.successes} of {rate.trials}, [{rate.low:.3f}, {rate.high:.3f}])"


def fewer(one: Rate, other: Rate) -> float:
    """Fisher's exact test that the first rate is the smaller one, one-sided."""
    table = np.array([[each.successes, each.trials - each.successes] for each in (one, other)])
    return float(stats.fisher_exact(table, alternative="less").pvalue)


def shape_of(statement: str, paper: str | None, checks: Sequence[Checked]) -> ShapeFound:
    """A shape with its word: ``too few pairs`` where nothing was found and nothing could be ruled out."""
    held = sum(each.held for each in checks)
    word: Word = "held" if held == len(checks) else "held in part" if held else "not held"
    if word == "not held" and all(each.few for each in checks):
        word = "too few pairs"
    return ShapeFound(statement=statement, paper=paper, word=word, checks=tuple(checks))
