"""Membership, shadow models and bounds on epsilon in a report, as data."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from davylamp.verdict.membership_model import MembershipCell, MembershipComparison


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ScoreNote(BaseModel):
    """What is known of a membership score.

    Attributes:
        name: its name.
        unit: of its values.
        summary: what it is.
        sign: why a member scores higher.
        blind: what it cannot see.
    """

    model_config = ConfigDict(extra="ignore", frozen=True)

    name: str
    unit: str
    summary: str
    sign: str
    blind: str


class Nonmembers(_Strict):
    """How many non-members an arm has.

    Attributes:
        choosing: those that thresholds are chosen on.
        realising: the others, on which realised false-positive rates are counted.
    """

    choosing: int
    realising: int


class Membership(_Strict):
    """What membership scores tell of one model.

    Attributes:
        confidence: of every interval.
        fprs: the false-positive rates asked for.
        nonmembers: how many each arm has.
        scores: what each score is, and what it cannot see.
        reference: name of the reference model, if one was used.
        reference_how: ``adapter disabled`` or ``checkpoint``.
        reference_tokens: ``same`` where the reference's tokenizer gives the same tokens, else ``own``.
        shots: non-members that stood before each record for ``recall``, by arm; no score reads them as records.
        masked_lm: what proposed the words of neighbours, if anything did.
        shadows: shadow models that LiRA and RMIA rest on; 0 where there are no such scores here.
        left_out: a sentence for each score from shadows that could not be given.
        cells: for each arm, span, score and dose, and all doses together (dose ``null``). Of LiRA and RMIA the span
            ``record`` is the reply.
        comparisons: each score with the loss.
        underpowered: a sentence for each rate that too few non-members stand by to resolve.
    """

    confidence: float
    fprs: tuple[float, ...]
    nonmembers: dict[str, Nonmembers]
    scores: tuple[ScoreNote, ...] = ()
    reference: str | None = None
    reference_how: str | None = None
    reference_tokens: str | None = None
    shots: dict[str, int] = {}
    masked_lm: str | None = None
    shadows: int = 0
    left_out: tuple[str, ...] = ()
    cells: tuple[MembershipCell, ...]
    comparisons: tuple[MembershipComparison, ...]
    underpowered: tuple[str, ...]


class ShadowAuc(_Strict):
    """How well a score tells the records that a shadow holds from those that it does not, all shadows together.

    Attributes:
        arm: the arm.
        shadow_dose: occurrences in a shadow that a record is in.
        probe: what the prompt showed.
        span: ``secret`` or ``reply``.
        measure: the score.
        records: how many; each is judged once in every shadow.
        auc: the AUC.
    """

    arm: str
    shadow_dose: int
    probe: str
    span: str
    measure: str
    records: int
    auc: float


class Memorization(_Strict):
    """Counterfactual memorization of the records of one arm and dose, with the noise floor beside it.

    Attributes:
        probe: what the prompt showed.
        span: ``secret`` or ``reply``.
        measure: ``counterfactual_probability`` or ``counterfactual_log_loss``.
        arm: the arm.
        shadow_dose: occurrences in a shadow that a record is in.
        records: how many.
        mean: mean over the records.
        mean_error: standard error of the mean, from the spread of the pairs' means.
        floor_rms: root mean square of one record's estimate where there is nothing but noise.
        floor_q95: value that 95% of such estimates stay below, signs aside.
        floor_mean_q95: the same of the mean over the records.
        truncated: share of the losses at the level of truncation or above it.
    """

    probe: str
    span: str
    measure: str
    arm: str
    shadow_dose: int
    records: int
    mean: float
    mean_error: float
    floor_rms: float
    floor_q95: float
    floor_mean_q95: float
    truncated: float


class Shadows(_Strict):
    """What the shadow models of a run say.

    Attributes:
        count: shadow models.
        audited: name of the model that was attacked, if one was.
        other_model: whether that is another model than the one that the verdict is on.
        truncation: nats at which the log-loss is cut off.
        background: ``corpus`` where the rows that a record leaves are the corpus's own, else ``planted``.
        notes: what could not be computed, and why.
        trials: each shadow attacked in turn.
        cells: counterfactual memorization by arm and dose, with the noise floor.
    """

    count: int
    audited: str | None
    other_model: bool
    truncation: float
    background: str
    notes: tuple[str, ...]
    trials: tuple[ShadowAuc, ...]
    cells: tuple[Memorization, ...]
