"""Lower bounds on epsilon that one run gives: from its pairs, from its shadows' coins, from what came out.

Each is valid on its own at its confidence. Which score guesses, which shadow is attacked and how many guesses are made
are settled before any reading is taken, so that nothing is chosen by looking.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator

import numpy as np
import polars as pl

from davylamp.bounds.epsilon import extraction_epsilon
from davylamp.bounds.membership import default_calls, guess_members, guess_pairs
from davylamp.measures.shadow_results import ShadowScores, Trials
from davylamp.verdict.epsilon_claim import MOST_PAIRS, Bounding, Held, pair_calls
from davylamp.verdict.epsilon_model import Audit, EpsilonResult, EpsilonRow, EpsilonSettings
from davylamp.verdict.extraction import ClaimSpec
from davylamp.verdict.membership import ENDING, PREFIX

__all__ = ["EpsilonResult", "EpsilonRow", "EpsilonSettings", "epsilon_result"]

SHADOW = 0
"""The shadow that is attacked for a bound from coins; its partner is left out of the attack."""
SHADOW_SCORE = "lira_online"
"""The score by which it is attacked."""
NULL = ("twin", "nonmember")


def epsilon_result(
    readings: pl.DataFrame,
    size: int,
    settings: EpsilonSettings | None = None,
    claim: ClaimSpec | None = None,
    shadows: ShadowScores | None = None,
    confidence: float = 0.95,
    same_training: bool = True,
) -> EpsilonResult:
    """Lower bounds on epsilon from what an audit read of one model.

    - *Pairs* (2305.08846 with the coin that exchangeability gives): each planted canary beside a non-member of its
      arm, both drawn by one sampler; the one with the higher score is called planted. All pairs are guessed about,
      and the half that differ most, each at half of the error.
    - *Coins*: shadow 0 is attacked by LiRA with all shadows but itself and its partner; its records were in by fair
      coins.
    - *Extraction* (P1, Cor 5.3): secrets that greedy decoding says, against a guess from the secret space.

    The first two by the binomial theorem and by the f-DP one, of which the larger bound stands: they bound the same
    chance at the same count. Where the claim is Gaussian, the Gaussian bound takes their place.

    Args:
        readings: of one model, with the columns of ``davylamp.measures.readings.SCHEMA``.
        size: of the secret space.
        settings: delta, and which score guesses.
        claim: the accountant's, for one record.
        shadows: what shadows said, if there are any.
        confidence: of each bound.
        same_training: whether the shadows were trained as the model was that the claim is made for. If not, or if that
            is not known, what their coins say is no word on the claim.

    Raises:
        InputError: an argument is outside its range.
    """
    how = settings or EpsilonSettings()
    notes: list[str] = []
    bounding = Bounding(how.delta, confidence, claim)
    coined = bounding if same_training else dataclasses.replace(bounding, claim=None)
    if shadows is not None and claim is not None and not same_training:
        notes.append(
            "Coins are those of the shadows, which are not known to have been trained as the audited model was: the "
            "claim is not held against them."
        )
    rows = [*_pairs(readings, how, bounding, notes), *_coins(shadows, coined, notes)]
    rows += _extractions(readings, size, bounding)
    if claim is None and any(row.relation == "replace" for row in rows):
        notes.append(
            "Pairs and coins replace a row by another: hold their bounds against an accountant's epsilon for replacing "
            "a record. Where records added or removed are accounted for, replacing one is two steps."
        )
    if claim is not None:
        notes += _held_against(claim, rows, bounding)
    return EpsilonResult(
        confidence=confidence,
        delta=how.delta,
        claim=None if claim is None else claim.claim.describe(),
        rows=tuple(rows),
        notes=tuple(notes),
    )


def _held_against(claim: ClaimSpec, rows: Iterable[EpsilonRow], bounding: Bounding) -> Iterator[str]:
    """What the claim means for these rows, and what refuting it would take."""
    pairs = [row for row in rows if row.audit == "pairs"]
    if claim.relation != "replace" and any(row.relation == "replace" for row in rows):
        yield (
            "The claim is for a record added or removed. Pairs and coins replace one, which is two steps: they are "
            "held against the claim for two (claim.relation says what yours is for)."
        )
    if pairs and not any(row.verdict == "refuted" for row in pairs):
        dose = min(row.dose for row in pairs)
        count = bounding.pairs_needed(dose)
        most = f"more than {MOST_PAIRS:,} pairs" if count is None else f"{count:,} pairs"
        yield f"Refuting the claim by pairs of dose {dose} takes {most}, all of them guessed right."


def _pairs(frame: pl.DataFrame, how: EpsilonSettings, bounding: Bounding, notes: list[str]) -> Iterator[EpsilonRow]:
    measure = f"{PREFIX}{how.score}{ENDING}"
    scored = frame.filter(pl.col("measure") == measure)
    if scored.is_empty():
        notes.append(f"No bound from pairs: the audit has no score {how.score!r} over the secret (see epsilon.score).")
        return
    seed = int(scored["seed"][0])
    for (arm,), part in scored.sort("canary").group_by(["arm"], maintain_order=True):
        # Twins stand before further non-members; which is paired with which depends on the ids alone.
        null = [part.filter(pl.col("role") == role) for role in NULL]
        twins = np.concatenate([each["value"].to_numpy() for each in null])
        members = part.filter(pl.col("role") == "focus")
        for (dose,), own in members.sort("dose").group_by(["dose"], maintain_order=True):
            count = min(len(own), len(twins))
            if not count:
                continue
            if count < len(own):
                notes.append(
                    f"{count} of {len(own)} canaries of {arm}, dose {dose}, have a non-member to be paired with."
                )
            planted = own["value"].to_numpy()[:count]
            seen = [guess_pairs(planted, twins[:count], called, seed=seed) for called in pair_calls(count)]
            yield _row(str(arm), int(str(dose)), "pairs", how.score, count, bounding.of(seen, int(str(dose))))


def _coins(shadows: ShadowScores | None, bounding: Bounding, notes: list[str]) -> Iterator[EpsilonRow]:
    if shadows is None:
        return
    before = len(notes)
    found = False
    for arm, dose in sorted({(each.arm, each.shadow_dose) for each in shadows.records if each.shadow_dose}):
        numbers = {at for at, each in enumerate(shadows.records) if (each.arm, each.shadow_dose) == (arm, dose)}
        attack = _attack(shadows, numbers)
        if attack is None:
            continue
        found = True
        at = [column for column, number in enumerate(attack.records) if number in numbers]
        scores = np.array(attack.scores[SHADOW], dtype=np.float64)[at]
        inside = shadows.members[SHADOW, [attack.records[column] for column in at]]
        calls = default_calls(len(at), bounding.confidence)
        seen = [
            # A background row stands where a record is out.
            dataclasses.replace(guess_members(scores, inside, top, bottom, seed=shadows.seed), relation="replace")
            for top, bottom in calls
        ]
        held = bounding.of(seen, dose)
        whose = "Of the training of the shadows: "
        held = dataclasses.replace(held, statement=whose + held.statement[0].lower() + held.statement[1:])
        yield _row(arm, dose, "coins", SHADOW_SCORE, len(at), held)
    if not found and len(notes) == before:
        notes.append("No bound from coins: no shadow was attacked in turn (see the notes of the shadows).")


def _attack(shadows: ShadowScores, numbers: set[int]) -> Trials | None:
    """The trials of some records over the secret, asked as they were trained on."""
    for probe in ("as_trained", "hidden"):
        for trials in shadows.trials:
            same = (trials.probe, trials.span, trials.measure) == (probe, "secret", SHADOW_SCORE)
            if same and numbers <= set(trials.records):
                return trials
    return None


def _extractions(frame: pl.DataFrame, size: int, bounding: Bounding) -> Iterator[EpsilonRow]:
    said = frame.filter(
        (pl.col("measure") == "greedy_recovery")
        & (pl.col("probe") == "hidden")
        & (pl.col("target") == "trained")
        & (pl.col("role") == "focus")
    )
    upper = None if bounding.claim is None else bounding.claim.claim
    for (arm, dose), part in said.sort(["arm", "dose"]).group_by(["arm", "dose"], maintain_order=True):
        copies = int(str(dose))
        bound = extraction_epsilon(
            int(part["value"].sum()),
            len(part),
            1 / size,
            bounding.delta,
            confidence=bounding.confidence,
            copies=copies,
            upper=upper,
        )
        held = Held(bound, bound.upper, bound.verdict, bound.statement)
        yield _row(str(arm), copies, "extraction", None, len(part), held)


def _row(arm: str, dose: int, audit: Audit, score: str | None, canaries: int, held: Held) -> EpsilonRow:
    bound = held.bound
    return EpsilonRow(
        arm=arm,
        dose=dose,
        audit=audit,
        score=score,
        method=bound.method,
        relation=bound.relation,
        canaries=canaries,
        guesses=bound.guesses,
        correct=bound.correct,
        eps_low=_finite(bound.eps_low),
        mu_low=bound.mu_low,
        reach=_finite(bound.reach),
        upper=None if held.upper is None else _finite(held.upper),
        verdict=held.verdict,
        statement=held.statement,
    )


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
