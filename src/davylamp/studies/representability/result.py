"""What the study found, as data: the schema of ``representability.json``."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from davylamp.report.study import ShapeFound


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Share(_Strict):
    """Successes of trials, with the exact (Clopper-Pearson) interval of the rate.

    Attributes:
        successes: of the trials.
        trials: how many.
        low: lower end.
        high: upper end.
    """

    successes: int
    trials: int
    low: float
    high: float

    @property
    def rate(self) -> float:
        """Successes over trials."""
        return self.successes / self.trials

    def __str__(self) -> str:
        return f"{self.successes} of {self.trials} [{self.low:.3f}, {self.high:.3f}]"


class Mean(_Strict):
    """A mean with its standard error.

    Attributes:
        value: the mean.
        error: standard error over instances or trees; those of one seed share their models.
    """

    value: float
    error: float

    def __str__(self) -> str:
        return f"{self.value:.3g} +- {self.error:.2g}"


class TriggerRow(_Strict):
    """All instances of one kind, asked with one prompt.

    Attributes:
        kind: ``trigger`` or ``plain``: how they were planted.
        prompt: ``c`` or ``rho``.
        said: greedy decoding says the secret, by the model that was trained on it.
        null: the same by the model that was not.
        memorization: mean probability of the true symbol after the true ones before it, with less without the instance.
        emission: probability of the whole secret, with less without.
    """

    kind: Literal["trigger", "plain"]
    prompt: Literal["c", "rho"]
    said: Share
    null: Share
    memorization: Mean
    emission: Mean


class ListRow(_Strict):
    """Lists of m guesses by an adversary who sees the model.

    Attributes:
        m: guesses.
        held: lists that hold the truth; the interval holds for all lists of the study together.
        cap: ``min(1, m k^-L)``.
    """

    m: int
    held: Share
    cap: float


class ExtraRow(_Strict):
    """Trees whose true path has further rows.

    Attributes:
        extra: rows.
        greedy: greedy decoding says the truth.
        first: the truth is the likeliest of all paths.
    """

    extra: int
    greedy: Share
    first: Share


class CamouflageRow(_Strict):
    """All trees of one shape.

    Attributes:
        v: symbols.
        k: symbols of a support.
        length: L.
        survivors: ``k^L``.
        mass: on the survivors.
        entropy: normalised, 1 is uniform.
        distance: total variation from the construction's law.
        rank: mid-rank of the truth among the survivors.
        rank_expected: what it is if nothing tells the truth from the others: ``(k^L + 1) / 2``.
        rank_p: two-sided, of a rank so far from that, by the normal law of the mean of uniform ranks.
        rank_of_all: mid-rank of the truth among all ``v^L``.
        memorization: teacher-forced probability of the truth less the average over all paths.
        memorization_expected: ``1/k - 1/v``.
        other: teacher-forced probability of a secret drawn by itself, whose expectation is ``1/v`` of the mass.
        lists: by m.
        extra: by further rows of the true path.
    """

    v: int
    k: int
    length: int
    survivors: int
    mass: Mean
    entropy: Mean
    distance: Mean
    rank: Mean
    rank_expected: float
    rank_p: float
    rank_of_all: Mean
    memorization: Mean
    memorization_expected: float
    other: Mean
    lists: tuple[ListRow, ...]
    extra: tuple[ExtraRow, ...]


class RepresentabilityResult(_Strict):
    """The whole study.

    Attributes:
        schema_version: version of this schema.
        recipe: what was run.
        kappa: ``v^-L`` of the secrets behind triggers.
        trigger: four rows, by kind and prompt.
        camouflage: by shape.
        shapes: what the paper saw, and whether it was seen here.
        cpu_seconds: of all parts, those of earlier calls included.
        versions: of what the numbers depend on.
    """

    schema_version: Literal[1] = 1
    recipe: dict[str, Any]
    kappa: float
    trigger: tuple[TriggerRow, ...]
    camouflage: tuple[CamouflageRow, ...]
    shapes: tuple[ShapeFound, ...]
    cpu_seconds: float
    versions: dict[str, str]
