"""What a report says of constructions, as data; see :mod:`davylamp.measures.constructed.model` for each reading."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict

from davylamp.measures.constructed.model import HiddenReading, PairReading, Pairs, Rate
from davylamp.measures.constructed.result import FinderReport
from davylamp.measures.constructed.shadow_model import ShadowMemorization, ShadowNote
from davylamp.verdict.matrix_model import Matrix


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class TwinScore(_Strict):
    """How well one local score tells planted instances from twins.

    Attributes:
        name: of the score.
        of: how many scores it is the best of, chosen after the fact; 1 for one that was fixed beforehand.
        auc: chance that a planted instance scores above a twin, ties half.
        low: lower end of its interval.
        high: upper end.
        fpr: the false-positive rate that ``found`` is for.
        found: planted ones above the threshold that the twins give; none where there are too few twins.
        twins: how many there are.
        needed: twins that resolve the rate.
    """

    name: str
    of: int
    auc: float
    low: float
    high: float
    fpr: float
    found: Rate | None
    twins: int
    needed: int


class ConstructionLine(_Strict):
    """One construction of one size.

    Attributes:
        name: for people.
        kind: the construction.
        tokens: of a secret.
        copies: rows of one planted secret; 0 behind a gate.
        trigger_tokens: of a trigger, the fewest; none without one.
        at_prefix: said after c, greedily.
        at_trigger: said after rho; none without a trigger.
        informed: recovered by who knows how it was planted.
        chance: what that is worth without the release.
        guessing: what a guesser has at c without the release, at most; as it is charged.
        guesses: of his.
        memh: mean probability of a token of the secret after c, less the base's, planted.
        memh_twins: the same of twins.
        memh_trigger: the same after rho, planted; none without a trigger.
        best: the local score with the largest AUC, chosen after the fact; none without twins.
        lira: LiRA, from shadow models; none without shadows.
        counterfactual: what shadows with an instance say at c more than those without; empty without shadows.
        at_suspects: brought out by the user's list; none without one.
        by_scan: by the trigger scan; none where it was not run.
        by_repetition: by repeated tokens; none where they were not run.
        pair: of pairs.
        hidden: of camouflage and low entropy.
    """

    name: str
    kind: str
    tokens: int
    copies: int
    trigger_tokens: int | None
    at_prefix: Pairs
    at_trigger: Pairs | None
    informed: Pairs
    chance: float
    guessing: float
    guesses: int
    memh: float
    memh_twins: float
    memh_trigger: float | None
    best: TwinScore | None
    lira: TwinScore | None
    counterfactual: tuple[ShadowMemorization, ...]
    at_suspects: Pairs | None
    by_scan: Pairs | None
    by_repetition: Pairs | None
    pair: PairReading | None
    hidden: HiddenReading | None


class Constructions(_Strict):
    """What was read of a run's constructions.

    Attributes:
        model: name of the release.
        model_sha256: hash of its weights.
        reference: name of the base model.
        reference_sha256: hash of its weights.
        drawn_from_reference: whether the secrets were drawn from just these weights.
        confidence: of every interval.
        suspects: prompts of the user's list.
        scan: how the trigger scan went.
        repetition: how the repeated tokens went.
        shadows: the shadow models; none where they were not asked for.
        lines: the constructions, in the order of the plan.
    """

    model: str
    model_sha256: str
    reference: str
    reference_sha256: str
    drawn_from_reference: bool
    confidence: float
    suspects: int
    scan: FinderReport | None
    repetition: FinderReport | None
    shadows: ShadowNote | None
    lines: tuple[ConstructionLine, ...]


class Unaudited(_Strict):
    """A run whose constructions were read, and whose canaries were not asked for.

    Attributes:
        name: the run's folder, relative to the report's.
        plan: the plan, in full but for triggers of the user's own.
        corpus: where the background came from.
        rows: rows of the planted file.
        planted_sha256: hash of the planted file.
        training: how the model was trained, if davylamp trained this very model.
        constructions: what was read of them.
        matrix: what each audit saw of each leak, if it was put together.
        missing: what a report would say besides, and the command that measures it.
    """

    name: str
    plan: dict[str, Any]
    corpus: dict[str, Any]
    rows: int
    planted_sha256: str
    training: dict[str, Any] | None
    constructions: Constructions
    matrix: Matrix | None
    missing: tuple[tuple[str, str], ...]
