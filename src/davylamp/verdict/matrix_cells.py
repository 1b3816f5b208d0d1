"""From counts and scores to the cells of the matrix."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy import stats

from davylamp.bounds.intervals import clopper_pearson
from davylamp.verdict.matrix_model import MatrixCell, MatrixWord

ALPHA = 0.05
"""Level of the one-sided tests that decide between a signal and none, in each cell by itself."""


def empty(reason: str) -> MatrixCell:
    """A cell that was not measured, and why."""
    return MatrixCell(signal=None, word=None, detail=reason)


def share_cell(successes: int, trials: int, confidence: float, seen: bool, word: MatrixWord, detail: str) -> MatrixCell:
    """A share of secrets.

    Args:
        successes: secrets that came out.
        trials: secrets.
        confidence: of the interval.
        seen: whether that is more than chance.
        word: if it is.
        detail: what stands behind it.
    """
    interval = clopper_pearson(successes, trials, confidence)
    return MatrixCell(
        signal=successes / trials,
        low=interval.low,
        high=interval.high,
        word=word if seen else "not seen",
        detail=detail,
    )


def corrected_cell(
    successes: int,
    trials: int,
    kappa: float,
    confidence: float,
    words: tuple[MatrixWord, MatrixWord],
    detail: str,
    level: float = ALPHA,
) -> MatrixCell:
    """A share of secrets above what guessing gets: ``(rate - kappa) / (1 - kappa)``, at least 0.

    Args:
        successes: secrets that came out.
        trials: secrets.
        kappa: chance without the release, in [0, 1].
        confidence: of the interval.
        words: where the rate is above kappa (exact binomial test), and where it is not although secrets came out.
        detail: what stands behind it.
        level: of the test.
    """
    interval = clopper_pearson(successes, trials, confidence)
    above = kappa < 1 and bool(stats.binom.sf(successes - 1, trials, kappa) <= level)
    word: MatrixWord = words[0] if above else words[1] if successes else "not seen"
    return MatrixCell(
        signal=_above(successes / trials, kappa),
        low=_above(interval.low, kappa),
        high=_above(interval.high, kappa),
        word=word,
        detail=detail,
    )


def _above(rate: float, kappa: float) -> float:
    return 0.0 if kappa >= 1 else min(1.0, max(0.0, (rate - kappa) / (1 - kappa)))


def auc_cell(value: float, low: float, high: float, detail: str, seen: bool | None = None) -> MatrixCell:
    """An AUC as a signal: ``2 AUC - 1``, at least 0.

    Args:
        value: the AUC.
        low: lower end of its interval.
        high: upper end.
        detail: what stands behind it.
        seen: whether it is above 1/2 by a test; whether its interval lies above 1/2 if there was none.
    """
    signal, least, most = (min(1.0, max(0.0, 2 * each - 1)) for each in (value, low, high))
    above = low > 0.5 if seen is None else seen
    return MatrixCell(signal=signal, low=least, high=most, word="leak" if above else "not seen", detail=detail)


def scores_apart(planted: Sequence[float], twins: Sequence[float], level: float) -> bool:
    """Whether planted ones score above twins (Mann and Whitney's test, one-sided, exact where few have no ties)."""
    return bool(stats.mannwhitneyu(planted, twins, alternative="greater").pvalue <= level)


def more_than_twins(planted: tuple[int, int], twins: tuple[int, int], level: float = ALPHA) -> bool:
    """Whether more of the planted secrets come out than of those never planted (Fisher's exact test, one-sided).

    Args:
        planted: successes and trials.
        twins: the same of the twins.
        level: of the test.
    """
    table = np.array([[planted[0], planted[1] - planted[0]], [twins[0], twins[1] - twins[0]]])
    return bool(stats.fisher_exact(table, alternative="greater").pvalue <= level)


def verifier_word(
    planted: tuple[int, int],
    twins: tuple[int, int],
    kappa: float,
    threshold: float,
    guessed: MatrixWord = "guessed",
) -> MatrixWord:
    """What a verifier's share of secrets is called, which goes by its threshold and knows no null.

    Short secrets come out of a model that never saw them: a share above the threshold is a leak only if it is more
    than twins or guessing give, each tested at half of the error.

    Args:
        planted: successes and trials.
        twins: the same of the twins; no trials where there are none.
        kappa: chance of a guess without the release, in [0, 1].
        threshold: below it content is called forgotten, in (0, 1).
        guessed: the word for no more than guessing.
    """
    if planted[0] / planted[1] < threshold:
        return "not seen"
    above = kappa < 1 and bool(stats.binom.sf(planted[0] - 1, planted[1], kappa) <= ALPHA / 2)
    return "leak" if above or (twins[1] and more_than_twins(planted, twins, ALPHA / 2)) else guessed


def with_blindness(cells: dict[str, MatrixCell]) -> dict[str, MatrixCell]:
    """A cell that saw nothing is ``blind`` where another cell of its row did."""
    found = any(cell.word in ("leak", "recovered") for cell in cells.values())
    if not found:
        return cells
    return {
        key: cell.model_copy(update={"word": "blind"}) if cell.word == "not seen" else cell
        for key, cell in cells.items()
    }
