"""What a count of extractions says, held against the guessing baseline and, where there is one, a privacy claim."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from davylamp.bounds.audits import Audit, audit
from davylamp.bounds.claims import Claim
from davylamp.bounds.intervals import clopper_pearson
from davylamp.errors import Fault, InputError

Word = Literal["leak", "guessable", "not seen", "underpowered"]


@dataclass(frozen=True, slots=True)
class ExtractionVerdict:
    """Extractions held against what a guesser achieves who never saw the release.

    Attributes:
        word: ``leak`` where the lower confidence bound on success exceeds kappa; ``underpowered`` where it would not
            have even with every trial a success; ``not seen`` where no secret was extracted; else ``guessable``: what
            was extracted is no more than the baseline may explain.
        successes: secrets extracted.
        trials: secrets tried.
        kappa: the guessing baseline of one attack.
        success_low: one-sided Clopper-Pearson bound from below on the rate of success.
        success_high: one-sided Clopper-Pearson bound from above: the rate that is ruled out.
        confidence: of each bound.
        claim: what the successes say about a claim; none where there is no claim.
    """

    word: Word
    successes: int
    trials: int
    kappa: float
    success_low: float
    success_high: float
    confidence: float
    claim: Audit | None = None


def judge_extraction(
    successes: int,
    trials: int,
    kappa: float,
    *,
    claim: Claim | None = None,
    guesses: int = 1,
    copies: int = 1,
    confidence: float = 0.95,
) -> ExtractionVerdict:
    """Hold extractions against the baseline, and against a claim if there is one.

    Where kappa differs between the secrets, its mean may be given: at a count above the mean, independent attacks of
    unequal success have no heavier tail than as many of the mean success (Hoeffding, Ann. Math. Stat. 27, 1956).

    Args:
        successes: attacks whose list held the secret.
        trials: attacks on independent secrets.
        kappa: success of the best list of the same length made without the release, in [0, 1]; the upper end, where
            only an interval is known.
        claim: a privacy claim for one record.
        guesses: m, the length of the lists.
        copies: how many records carried each secret.
        confidence: of the one-sided bounds, in (0, 1).

    Raises:
        InputError: an argument is outside its range.
    """
    if not 0 <= kappa <= 1:
        raise InputError(Fault("kappa", kappa, "a number from 0 to 1"))
    low = clopper_pearson(successes, trials, confidence, "lower").low
    high = clopper_pearson(successes, trials, confidence, "upper").high
    reach = clopper_pearson(trials, trials, confidence, "lower").low
    word: Word
    if low > kappa:
        word = "leak"
    elif reach <= kappa:
        word = "underpowered"
    else:
        word = "guessable" if successes else "not seen"
    held = None
    if claim is not None:
        held = audit(claim, kappa, successes, trials, confidence=confidence, budget=guesses, copies=copies)
    return ExtractionVerdict(word, successes, trials, kappa, low, high, confidence, held)
