"""What is read of the instances of one line and size of a plan, typed, and without a secret in it."""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
from numpy.typing import ArrayLike
from pydantic import BaseModel, ConfigDict, Field, model_validator

from davylamp.bounds.intervals import clopper_pearson
from davylamp.canaries.constructions.section import InstanceRole
from davylamp.canaries.constructions.spec import Kind
from davylamp.measures.constructed.shadow_model import ShadowMemorization

Share = Annotated[float, Field(ge=0, le=1)]
"""A rate, a probability or an AUC; a file that holds another one was damaged."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Rate(_Strict):
    """k of n with its Clopper-Pearson interval.

    Attributes:
        successes: k.
        trials: n.
        low: lower end.
        high: upper end.
    """

    successes: int = Field(ge=0)
    trials: int = Field(ge=1)
    low: Share
    high: Share

    @model_validator(mode="after")
    def _some_of_all(self) -> Rate:
        if self.successes > self.trials:
            raise ValueError("more successes than trials")
        return self

    @property
    def value(self) -> float:
        """The rate."""
        return self.successes / self.trials

    @classmethod
    def of(cls, hits: ArrayLike, confidence: float) -> Rate:
        """The share of what is true; there is at least one."""
        flags = np.asarray(hits, dtype=bool)
        interval = clopper_pearson(int(flags.sum()), flags.size, confidence)
        return cls(successes=int(flags.sum()), trials=flags.size, low=interval.low, high=interval.high)


class Pairs(_Strict):
    """A rate of planted instances, and the same of their twins: what chance gives.

    Attributes:
        planted: of the instances that were planted.
        twins: of those that were not.
    """

    planted: Rate
    twins: Rate


class Baseline(_Strict):
    """What a guesser achieves at c who never saw the release, averaged over the planted instances.

    Attributes:
        low: lower end of kappa.
        high: upper end of kappa.
        charged: what to hold an extraction against: the upper end, raised for secrets that were turned down when they
            were drawn (each instance's kappa times its draws, an unbiased reading of kappa over the chance of being
            taken; at most 1).
        guesses: m, the length of a list.
        how: ``search`` of the base model, or ``exact`` where the secret is uniform over a known space.
    """

    low: Share
    high: Share
    charged: Share
    guesses: int
    how: Literal["search", "exact"]


class LocalScore(_Strict):
    """A membership score that reads the record's own prefix and secret only; higher = more likely planted.

    Attributes:
        name: of the score.
        unit: ``probability``, ``nats`` or ``share`` (of the truncated loss).
        planted: of each planted instance.
        twins: of each twin.
        auc: chance that a planted one scores above a twin, ties half.
        auc_low: lower end of its interval.
        auc_high: upper end.
        fpr: the false-positive rate that ``tpr`` is for.
        tpr: planted ones above the threshold that the twins give; none where there are fewer than ``needed``.
        needed: twins that resolve the rate.
    """

    name: str
    unit: str
    planted: tuple[float, ...]
    twins: tuple[float, ...]
    auc: Share | None = None
    auc_low: Share | None = None
    auc_high: Share | None = None
    fpr: float = 0.05
    tpr: Rate | None = None
    needed: int | None = None


class PairReading(_Strict):
    """The record-level reading of pairs, in mean over the planted ones.

    Attributes:
        own_less_other: memh at c of the secret that was planted, less that of the other one.
        floor: what 95% of the twins stay below, sign aside.
        counterfactual: by local score (``h``: mean probability of a token; ``loss``: share of the truncated loss), the
            release less the one trained on the neighbour, at the planted secret; empty without a neighbour.
        floors: the same of twins, as in ``floor``.
    """

    own_less_other: float
    floor: float
    counterfactual: dict[str, float] = Field(default_factory=dict)
    floors: dict[str, float] = Field(default_factory=dict)


class HiddenReading(_Strict):
    """What the release says of the secrets that a text leaves open, in mean over the planted instances.

    Attributes:
        survivors: how many are left open.
        mass: probability of all of them together after c.
        entropy: of the release's law on them, over its largest value; 1 if they are all as likely.
        rank: of the true one among them, from 1, ties at their middle.
    """

    survivors: int
    mass: float
    entropy: float
    rank: float


class InstanceReading(_Strict):
    """One instance; what of it could not be read is none.

    Attributes:
        id: as in the manifest.
        role: planted or twin.
        at_prefix: greedy decoding after c says the secret.
        at_trigger: the same after rho.
        informed: the adversary who knows the construction recovers it.
        at_suspects: a prompt of the user's list brings it out.
        by_scan: a flagged prompt of the scan does.
        by_repetition: a repeated token does.
        log_probability: of the secret after c, in nats.
        base_log_probability: the same under the base.
        memh: mean probability of a token after c, less the base's.
        memh_trigger: the same after rho.
    """

    id: str
    role: InstanceRole
    at_prefix: bool
    at_trigger: bool | None = None
    informed: bool
    at_suspects: bool | None = None
    by_scan: bool | None = None
    by_repetition: bool | None = None
    log_probability: float
    base_log_probability: float
    memh: float
    memh_trigger: float | None = None


class ConstructionCell(_Strict):
    """All instances of one line and size.

    Attributes:
        line: of the plan, from 0.
        kind: the construction.
        tokens: of a secret.
        copies: rows of one planted secret.
        trigger_tokens: of a trigger, the fewest; none without.
        at_prefix: extraction from c.
        at_trigger: extraction from rho; none without a trigger.
        at_suspects: extraction from the user's list; none without one.
        by_scan: found by the trigger scan; none where it was not run.
        by_repetition: found by repeated tokens; none where it was not run.
        informed: recovery by the adversary who knows the construction.
        chance: what that adversary has without the release.
        baseline: what a guesser has at c.
        memh: mean of the planted instances' memh at c; the twins' below.
        memh_twins: mean of the twins'.
        memh_trigger: mean of the planted instances' memh at rho.
        scores: the local scores.
        lira: that of shadows with and without each instance; none without shadows. It is not one of ``scores``: it
            takes training models, and is never the best of several.
        counterfactual: from the same shadows, by local score; empty without.
        pair: of pairs.
        hidden: of camouflage and low entropy.
        instances: one by one.
    """

    line: int
    kind: Kind
    tokens: int
    copies: int
    trigger_tokens: int | None = None
    at_prefix: Pairs
    at_trigger: Pairs | None = None
    at_suspects: Pairs | None = None
    by_scan: Pairs | None = None
    by_repetition: Pairs | None = None
    informed: Pairs
    chance: Share
    baseline: Baseline
    memh: float
    memh_twins: float
    memh_trigger: float | None = None
    scores: tuple[LocalScore, ...]
    lira: LocalScore | None = None
    counterfactual: tuple[ShadowMemorization, ...] = ()
    pair: PairReading | None = None
    hidden: HiddenReading | None = None
    instances: tuple[InstanceReading, ...]

    @property
    def place(self) -> tuple[int, Kind, int]:
        """The line of the plan, its kind, and the tokens of a secret: no two cells have one place."""
        return self.line, self.kind, self.tokens

    @model_validator(mode="after")
    def _whole(self) -> ConstructionCell:
        """A rate or a score over other instances than those that are listed would be a damaged file's."""
        planted = [each for each in self.instances if each.role == "planted"]
        own, twins = self.at_prefix.planted, self.at_prefix.twins
        said = (own.trials, own.successes, self.informed.planted.successes)
        listed = (len(planted), sum(each.at_prefix for each in planted), sum(each.informed for each in planted))
        if listed != said:
            raise ValueError("it does not list the planted instances that its rates are over")
        for score in (*self.scores, *(() if self.lira is None else (self.lira,))):
            if not score.planted or (twins.trials and not score.twins):
                raise ValueError(f"its score {score.name} lacks the instances that its rates are over")
        return self
