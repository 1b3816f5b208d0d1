"""What a judge said of rewrites, and how far it goes with what is measured: a judge is a claim to be checked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from davylamp.measures.landscape.model import Landscape
from davylamp.protect.corpus.leaks import CanarySurvival
from davylamp.runs import files
from davylamp.verdict.correlation import spearman, spearman_interval

FILE = "judged.json"
"""The result, in the run folder; for its owner only, since its positions say which rows hold canaries."""
Score = Literal["privacy", "quality"]
SCORES: tuple[Score, ...] = ("privacy", "quality")
Sign = Literal["+", "-"]
OUTCOMES: Mapping[str, Sign] = {
    "secret survives": "-",
    "name survives": "-",
    "verbatim nats a token": "+",
    "semantic nats a token": "+",
    "exposure": "-",
}
"""What is measured of a canary, and the sign that its correlation with judged privacy has if the judge is right."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class JudgedRow(_Strict):
    """What was said of one row.

    Attributes:
        position: its row.
        canary: the canary that was planted there, if one was.
        quality: from 1 to 5, 5 the best; nothing where the answer could not be read.
        privacy: the same.
        reason: why it could not.
    """

    position: int
    canary: str | None = None
    quality: int | None = Field(None, ge=1, le=5)
    privacy: int | None = Field(None, ge=1, le=5)
    reason: str = ""


class JudgedCanary(_Strict):
    """The mean over a canary's rows that were judged, and what was measured of it.

    Attributes:
        id: the canary.
        dose: its rows.
        judged: rows with scores.
        quality: mean.
        privacy: mean.
        outcomes: by their names in :data:`OUTCOMES`; shares of copies, nats, bits.
    """

    id: str
    dose: int
    judged: int
    quality: float
    privacy: float
    outcomes: dict[str, float]


class Agreement(_Strict):
    """How a judged score goes with an outcome, over canaries.

    Attributes:
        score: which.
        outcome: with what.
        dose: canaries of this dose only; all where there is none. What is measured of a model depends on the dose,
            and a judge does not see it, so that the correlation of all is the weaker one.
        expected: the sign that it has if the judge is right.
        n: canaries.
        rho: Spearman's rank correlation; nothing where there is none.
        p: two-sided, against no association.
        method: ``exact`` or ``t``; see :func:`davylamp.verdict.correlation.spearman`.
        low: lower end of the 95% interval, approximate; nothing below 10 canaries.
        high: upper end.
        reason: why there is none.
    """

    score: Score
    outcome: str
    dose: int | None = None
    expected: Sign
    n: int
    rho: float | None = None
    p: float | None = None
    method: Literal["exact", "t"] | None = None
    low: float | None = None
    high: float | None = None
    reason: str = ""


class Judged(_Strict):
    """All of it, as ``judged.json`` holds it.

    Attributes:
        schema_version: version of this schema.
        davylamp_version: version that wrote it.
        planted_sha256: hash of the planted file.
        protected_sha256: hash of the protected file.
        protection: the interventions that are judged, in a few words.
        model: who judged.
        host: where; nothing on this machine.
        version: of the rubric and the model.
        settings: with which settings.
        seed: of which rows were judged.
        rows: each row that was judged; no text.
        unparsed: how many have no scores, by reason.
        quality: mean of all rows with scores; nothing where there is none.
        privacy: the same.
        canaries: by canary.
        agreements: how far the judge goes with what was measured.
        landscape_sha256: weights that the outcomes of a model are of; nothing where none was read.
        usage: requests, answers from the cache, tokens.
        seconds: wall time.
        notes: what a reader must know.
    """

    schema_version: Literal[1] = 1
    davylamp_version: str
    planted_sha256: str
    protected_sha256: str
    protection: str
    model: str
    host: str | None
    version: str
    settings: dict[str, Any]
    seed: int
    rows: tuple[JudgedRow, ...]
    unparsed: dict[str, int]
    quality: float | None
    privacy: float | None
    canaries: tuple[JudgedCanary, ...]
    agreements: tuple[Agreement, ...]
    landscape_sha256: str | None
    usage: dict[str, int]
    seconds: float
    notes: tuple[str, ...] = ()

    def save(self, path: Path) -> None:
        """Write it, for its owner only.

        Raises:
            StorageError: it cannot be written.
        """
        files.write_json(path, self.model_dump(mode="json"), private=True)

    @classmethod
    def load(cls, path: Path) -> Judged:
        """Read it.

        Raises:
            RunFolderError: it is missing, damaged, or of another schema.
        """
        return files.read_result(cls, path, "judgement", "`davylamp judge` first", "`davylamp judge`")


def by_canary(
    rows: Sequence[JudgedRow], survivals: Sequence[CanarySurvival], landscape: Landscape | None
) -> tuple[JudgedCanary, ...]:
    """Means over each canary's rows that have scores, with its outcomes; canaries without one are left out."""
    leaks = {} if landscape is None else {leak.id: leak for leak in landscape.canaries}
    found = []
    for each in survivals:
        own = [row for row in rows if row.canary == each.id]
        quality = [row.quality for row in own if row.quality is not None]
        privacy = [row.privacy for row in own if row.privacy is not None]
        if not quality or not privacy:
            continue
        outcomes = {"secret survives": each.secret.near / each.dose}
        if each.name is not None:
            outcomes["name survives"] = each.name.near / each.dose
        if (leak := leaks.get(each.id)) is not None:
            outcomes["verbatim nats a token"] = leak.verbatim / leak.tokens
            outcomes["semantic nats a token"] = leak.semantic / leak.semantic_tokens
            outcomes["exposure"] = leak.exposure
        found.append(
            JudgedCanary(
                id=each.id,
                dose=each.dose,
                judged=len(privacy),
                quality=fmean(quality),
                privacy=fmean(privacy),
                outcomes=outcomes,
            )
        )
    return tuple(found)


def agreements(canaries: Sequence[JudgedCanary], confidence: float = 0.95) -> Iterator[Agreement]:
    """Correlate judged scores with every outcome that was measured, over all canaries; privacy by dose too."""
    doses = sorted({each.dose for each in canaries})
    for score in SCORES:
        for outcome, expected in OUTCOMES.items():
            for dose in (None, *(doses if score == "privacy" and len(doses) > 1 else ())):
                own = [each for each in canaries if outcome in each.outcomes and dose in (None, each.dose)]
                if own:
                    yield _agreement(score, outcome, dose, expected, own, confidence)


def _agreement(
    score: Score, outcome: str, dose: int | None, expected: Sign, own: Sequence[JudgedCanary], confidence: float
) -> Agreement:
    found = spearman([getattr(each, score) for each in own], [each.outcomes[outcome] for each in own])
    low, high = spearman_interval(found, confidence) or (None, None)
    return Agreement(
        score=score,
        outcome=outcome,
        dose=dose,
        expected=expected,
        n=found.n,
        rho=found.rho,
        p=found.p,
        method=found.method,
        low=low,
        high=high,
        reason=found.reason,
    )
