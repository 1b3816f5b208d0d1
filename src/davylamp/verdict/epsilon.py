"""Lower bounds on epsilon that one run gives: from its pairs, from its shadows' coins, from what came out.

Each is valid on its own at its confidence. Which score guesses, which shadow is attacked and how many guesses are made
are settled before any reading is taken, so that nothing is chosen by looking.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal

import numpy as np
import polars as pl
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from davylamp.bounds.claims import GaussianDP
from davylamp.bounds.epsilon import EpsilonBound, Method, Relation, extraction_epsilon
from davylamp.bounds.membership import default_calls, guess_members, guess_pairs
from davylamp.bounds.one_run import Guesses, OneRunMethod, one_run_epsilon
from davylamp.errors import RunFolderError
from davylamp.measures.shadow_results import ShadowScores, Trials
from davylamp.runs import files
from davylamp.verdict.extraction import ClaimSpec
from davylamp.verdict.membership import ENDING, PREFIX

Audit = Literal["pairs", "coins", "extraction"]
SHADOW = 0
"""The shadow that is attacked for a bound from coins; its partner is left out of the attack."""
SHADOW_SCORE = "lira_online"
"""The score by which it is attacked."""
NULL = ("twin", "nonmember")


class EpsilonSettings(BaseModel):
    """How lower bounds on epsilon are worked out.

    Attributes:
        delta: at which they shall hold.
        score: membership score that guesses which of a pair was planted, over the secret's tokens; settled before
            the audit, since the best of several would have to be charged for.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    delta: float = Field(1e-5, ge=0, lt=1)
    score: str = "loss"


class EpsilonRow(BaseModel):
    """A lower bound on epsilon from the canaries of one arm and dose.

    Attributes:
        arm: the arm.
        dose: occurrences of each canary; the bound is for one of them.
        audit: ``pairs`` (planted canary or twin: which of two), ``coins`` (a shadow, in or out), or ``extraction``.
        score: what guessed, or nothing for an extraction.
        method: which theorem the bound comes from.
        relation: what neighbouring data sets differ by.
        canaries: pairs, records with a coin, or secrets.
        guesses: guesses that were made.
        correct: those that were right.
        eps_low: the bound in nats; none where it is infinite.
        mu_low: lower bound on mu for Gaussian claims, or none.
        reach: what ``eps_low`` would have been with every guess right; none where that is infinite.
        upper: the accountant's epsilon at this delta, or none.
        verdict: ``refuted``, ``consistent``, ``could-not-refute``; none without an upper bound.
        statement: the finding in one sentence.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    arm: str
    dose: int
    audit: Audit
    score: str | None
    method: Method
    relation: Relation
    canaries: int
    guesses: int
    correct: int
    eps_low: float | None
    mu_low: float | None
    reach: float | None
    upper: float | None
    verdict: str | None
    statement: str


class EpsilonResult(BaseModel):
    """All lower bounds of a run, as ``epsilon.json`` holds them.

    Attributes:
        schema_version: version of this schema.
        confidence: of each bound on its own.
        delta: at which they hold.
        claim: what they are held against, in words, or none.
        rows: the bounds.
        notes: what could not be bounded, and why; what the relation means.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    schema_version: Literal[1] = 1
    confidence: float
    delta: float
    claim: str | None
    rows: tuple[EpsilonRow, ...]
    notes: tuple[str, ...]

    def save(self, path: Path) -> None:
        """Write it.

        Raises:
            StorageError: it cannot be written.
        """
        files.write_json(path, self.model_dump(mode="json"))

    @classmethod
    def load(cls, path: Path) -> EpsilonResult:
        """Read it.

        Raises:
            RunFolderError: it is missing, damaged, or of another schema.
        """
        try:
            return cls.model_validate(files.read_json(path))
        except FileNotFoundError as error:
            raise RunFolderError(f"no bounds on epsilon at {path}: run `davylamp audit` with membership") from error
        except (OSError, ValueError) as error:
            said = f"{error.error_count()} faults" if isinstance(error, ValidationError) else error
            raise RunFolderError(f"cannot read {path}: {said}; run `davylamp audit` again") from error


def epsilon_result(
    readings: pl.DataFrame,
    size: int,
    settings: EpsilonSettings | None = None,
    claim: ClaimSpec | None = None,
    shadows: ShadowScores | None = None,
    confidence: float = 0.95,
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

    Raises:
        InputError: an argument is outside its range.
    """
    how = settings or EpsilonSettings()
    notes: list[str] = []
    bounding = _Bounding(how.delta, confidence, claim)
    rows = [*_pairs(readings, how, bounding, notes), *_coins(shadows, bounding, notes)]
    rows += _extractions(readings, size, bounding)
    if any(row.relation == "replace" for row in rows):
        notes.append(
            "Pairs and coins replace a row by another: hold their bounds against an accountant's epsilon for replacing "
            "a record. Where records added or removed are accounted for, replacing one is two steps."
        )
    return EpsilonResult(
        confidence=confidence,
        delta=how.delta,
        claim=None if claim is None else claim.claim.describe(),
        rows=tuple(rows),
        notes=tuple(notes),
    )


@dataclasses.dataclass(frozen=True, slots=True)
class _Bounding:
    """At which delta and confidence, and against what."""

    delta: float
    confidence: float
    claim: ClaimSpec | None

    def of(self, seen: Iterable[Guesses], copies: int) -> EpsilonBound:
        upper = None if self.claim is None else self.claim.claim
        gaussian = isinstance(upper, GaussianDP) and self.delta > 0
        methods: tuple[OneRunMethod, ...] = ("gaussian",) if gaussian else ("binomial", "f-dp")
        tried = list(seen)
        found = [
            one_run_epsilon(
                tried, self.delta, confidence=self.confidence, method=method, copies=max(1, copies), upper=upper
            )
            for method in methods
        ]
        return max(found, key=lambda bound: bound.eps_low)


def _pairs(frame: pl.DataFrame, how: EpsilonSettings, bounding: _Bounding, notes: list[str]) -> Iterator[EpsilonRow]:
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
            tries = dict.fromkeys([(count + 1) // 2, count])
            seen = [guess_pairs(planted, twins[:count], called, seed=seed) for called in tries]
            yield _row(str(arm), int(str(dose)), "pairs", how.score, count, bounding.of(seen, int(str(dose))))


def _coins(shadows: ShadowScores | None, bounding: _Bounding, notes: list[str]) -> Iterator[EpsilonRow]:
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
        yield _row(arm, dose, "coins", SHADOW_SCORE, len(at), bounding.of(seen, dose))
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


def _extractions(frame: pl.DataFrame, size: int, bounding: _Bounding) -> Iterator[EpsilonRow]:
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
        yield _row(str(arm), copies, "extraction", None, len(part), bound)


def _row(arm: str, dose: int, audit: Audit, score: str | None, canaries: int, bound: EpsilonBound) -> EpsilonRow:
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
        upper=None if bound.upper is None else _finite(bound.upper),
        verdict=bound.verdict,
        statement=bound.statement,
    )


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
