"""Utility: does the model still do the task that it was fine-tuned for?"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from davylamp.corpora.records import Record
from davylamp.errors import Fault, InputError, ScoringError
from davylamp.release.base import Access, Decoding, PrefixError, Release, require
from davylamp.rendering.render import Renderer

MARGIN = 8
"""Tokens that a reply may be longer than the longest reference."""

Match = Literal["whole", "first_line", "leading_lines"]
"""What of a reply must equal the reference: all of it, its first line, or as many lines as the reference has."""


@dataclass(frozen=True, slots=True)
class HeldOutLoss:
    """How well a model predicts right replies that it was not trained on.

    Attributes:
        loss: mean loss in nats a token, over all reply tokens of all rows together: a long reply weighs more.
        low: lower end of its interval; nothing where there is one row only.
        high: upper end of it.
        tokens: reply tokens.
    """

    loss: float
    low: float | None
    high: float | None
    tokens: int


def exact_match(release: Release, renderer: Renderer, records: Sequence[Record], match: Match) -> tuple[int, int]:
    """How many greedy replies are right, and of how many.

    Args:
        release: the model.
        renderer: renders as training did.
        records: held-out rows with their right replies.
        match: what is compared; white space at both ends of it (of each line, where lines are) is not.

    Raises:
        AccessError: the release does not generate.
        ScoringError: there is no row, a row is too long, or the rows have no prompt to ask with.
    """
    require(release, "utility", Access.GENERATE)
    _check_any(records)
    prompts = renderer.prompt_ids(records)
    if any(not prompt for prompt in prompts):
        raise ScoringError("utility needs rows with a prompt; these are plain texts")
    rendered = renderer.render(records)
    longest = max(len(whole.ids) - len(prompt) for whole, prompt in zip(rendered, prompts, strict=True))
    with _named_row():
        said = release.generate(prompts, Decoding(max_new_tokens=max(1, longest) + MARGIN))
    texts = [str(release.tokenizer.decode(answer, skip_special_tokens=True)) for answer in said]
    right = sum(_is_right(text, record.reply, match) for text, record in zip(texts, records, strict=True))
    return right, len(records)


def held_out_loss(
    release: Release, renderer: Renderer, records: Sequence[Record], confidence: float = 0.95
) -> HeldOutLoss:
    """The training loss on held-out rows: of the reply and of the mark that ends it, given all that stands before.

    Args:
        release: the model.
        renderer: renders as training did.
        records: held-out rows with their right replies.
        confidence: of the interval, see :func:`token_mean`.

    Raises:
        AccessError: the release gives no log-probabilities.
        ScoringError: there is no row or no token to predict, a row is too long, or an answer is no number.
    """
    require(release, "held-out loss", Access.LOGPROBS)
    _check_any(records)
    prefixes, replies = [], []
    for rendered in renderer.render(records):
        # Nothing stands before the first token of a plain text, so that nothing predicts it.
        begin = max(1, rendered.loss_start)
        prefixes.append(rendered.ids[:begin])
        replies.append(rendered.ids[begin:])
    if not any(replies):
        raise ScoringError("the held-out rows have no token that anything stands before, so that nothing is predicted")
    with _named_row():
        answers = release.logprobs(prefixes, replies)
    counts = [len(reply) for reply in replies]
    mean, low, high = token_mean([-float(answer.sum()) for answer in answers], counts, confidence)
    return HeldOutLoss(mean, low, high, sum(counts))


def token_mean(
    sums: ArrayLike, counts: ArrayLike, confidence: float = 0.95
) -> tuple[float, float | None, float | None]:
    """Mean loss a token, with an interval whose sampling unit is the row.

    The mean is a ratio ``L = sum(S) / sum(n)`` of what the m rows lose and of their tokens. Tokens of one row hang
    together, so that the rows are what was drawn. To first order ``L`` errs by the mean of ``e = S - L n`` over that
    of ``n``, which gives the standard error ``sd(e) / (mean(n) sqrt(m))`` with m - 1 in the variance of ``e``
    (Cochran, Sampling Techniques, 3rd ed. 1977, section 2.11), and the interval is ``L`` +- Student's quantile with
    m - 1 degrees of freedom times it, cut at 0, below which no loss is. It is approximate: rows are taken to be
    independent, and few rows of very unequal loss make it too narrow.

    Args:
        sums: loss of each row in nats, shape (rows,).
        counts: tokens of each row, shape (rows,), not all 0.
        confidence: coverage that the interval aims at, in (0, 1).

    Returns:
        The mean in nats a token and both ends of its interval; no interval where there is one row only.

    Raises:
        InputError: no row, no token, a loss that is not finite, shapes that differ, or a confidence outside (0, 1).
    """
    lost, tokens = np.asarray(sums, dtype=np.float64), np.asarray(counts, dtype=np.float64)
    faults = []
    if lost.ndim != 1 or not lost.size or not np.isfinite(lost).all():
        faults.append(Fault("sums", lost.tolist(), "a non-empty list of finite numbers"))
    if tokens.shape != lost.shape or (tokens < 0).any() or not tokens.sum() > 0:
        faults.append(Fault("counts", tokens.tolist(), "as many numbers as sums, of 0 or more and not all 0"))
    if not 0 < confidence < 1:
        faults.append(Fault("confidence", confidence, "a number above 0 and below 1"))
    if faults:
        raise InputError(faults)
    mean = float(lost.sum() / tokens.sum())
    if lost.size == 1:
        return mean, None, None
    error = float((lost - mean * tokens).std(ddof=1) / (tokens.mean() * np.sqrt(lost.size)))
    reach = float(stats.t.isf((1 - confidence) / 2, lost.size - 1)) * error
    return mean, max(0.0, mean - reach), mean + reach


def _check_any(records: Sequence[Record]) -> None:
    if not records:
        raise ScoringError("there is no held-out row to measure utility on")


@contextlib.contextmanager
def _named_row() -> Iterator[None]:
    """Say which row a release has no answer for."""
    try:
        yield
    except PrefixError as error:
        raise ScoringError(
            f"held-out row {error.index + 1}, as asked: {error} (utility.corpus.max_chars leaves long rows out)"
        ) from error


def _is_right(said: str, reference: str, match: Match) -> bool:
    if match == "whole":
        return said.strip() == reference.strip()
    meant = _lines(reference)
    count = 1 if match == "first_line" else len(meant)
    return _lines(said)[:count] == meant[:count]


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.strip().split("\n")]
