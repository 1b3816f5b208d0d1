"""The schema of ``frontier.json``: interventions side by side, in privacy and in capability."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict

from davylamp.runs import files

FILE = "frontier.json"
"""The result, unless another place is named."""
Side = Literal["privacy", "capability"]
PRIVACY, CAPABILITY = "privacy", "capability"
"""Keys of the two mean ranks, beside those of the metrics."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Metric(_Strict):
    """One thing that is measured of a model.

    Attributes:
        key: its name in the values.
        title: its name for people.
        unit: what it is counted in.
        side: whether it is about privacy or capability.
        higher_is_better: its direction.
        ranked: whether it is one of the two whose ranks are averaged on its side.
        statistic: how the value and its interval are worked out of canaries or records, and of seeds.
    """

    key: str
    title: str
    unit: str
    side: Side
    higher_is_better: bool
    ranked: bool
    statistic: str


class Estimate(_Strict):
    """A value with its interval.

    Attributes:
        value: in the metric's unit.
        low: lower end; nothing where there is too little for an interval.
        high: upper end.
        n: canaries or records that it rests on, those of all its seeds together.
        seeds: how many seeds it is over.
    """

    value: float
    low: float | None
    high: float | None
    n: int
    seeds: int


class AtDose(_Strict):
    """What a model leaks of the canaries of one dose.

    Attributes:
        dose: occurrences in the planted file; 0 for twins.
        canaries: how many, those of all seeds together.
        values: by the key of a privacy metric.
    """

    dose: int
    canaries: int
    values: dict[str, Estimate]


class Row(_Strict):
    """One intervention: of one seed, or of all together.

    Attributes:
        intervention: its name.
        seed: its seed; nothing where it is all of them together.
        seeds: the seeds behind it.
        values: by the key of a metric.
        ranks: by the key of a ranked metric, and the mean ranks by ``privacy`` and ``capability``; from 1 (worst) to
            the number of interventions (best), ties sharing the middle of theirs. Empty for a single intervention.
        doses: what it leaks by dose.
    """

    intervention: str
    seed: int | None
    seeds: tuple[int, ...]
    values: dict[str, Estimate]
    ranks: dict[str, Estimate]
    doses: tuple[AtDose, ...]


class Front(_Strict):
    """The Pareto set on two axes.

    Attributes:
        x: key of a metric, or ``capability``.
        y: key of a metric, or ``privacy``.
        members: interventions that no other is at least as good as on both axes and better on one.
        shares: for each intervention, in what share of the resamples it was a member; only on the mean ranks.
    """

    x: str
    y: str
    members: tuple[str, ...]
    shares: dict[str, float] = {}


class Change(_Strict):
    """What became of one ranked metric along an arrow.

    Attributes:
        metric: its key.
        ratio: perplexity after the arrow over perplexity before, geometric mean over pairs.
        low: lower end of its interval; nothing where there is too little for one.
        high: upper end.
        word: ``better`` or ``worse`` where the interval excludes 1, else ``not told apart``.
    """

    metric: str
    ratio: float
    low: float | None
    high: float | None
    word: Literal["better", "worse", "not told apart"]


class Arrow(_Strict):
    """A way of rewriting, and the same with privacy in mind.

    Attributes:
        before: the plain one.
        after: the privacy-aware one.
        changes: of each ranked metric, canary by canary and record by record.
    """

    before: str
    after: str
    changes: tuple[Change, ...]


class Correlation(_Strict):
    """How two metrics agree over interventions.

    Attributes:
        first: key of a metric.
        second: key of another.
        n: interventions.
        rho: Spearman's rank correlation, both metrics turned so that higher is better; nothing where there is none.
        p: two-sided, against no association.
        method: ``exact`` (all permutations) or ``t`` (Student's approximation); nothing where there is none.
        reason: why there is none.
    """

    first: str
    second: str
    n: int
    rho: float | None = None
    p: float | None = None
    method: Literal["exact", "t"] | None = None
    reason: str = ""


def is_comparison(path: Path) -> bool:
    """Whether a file looks like a comparison, also like one of another version."""
    try:
        return {"x", "y", "rows", "by_seed"} <= files.read_json(path).keys()
    except (OSError, ValueError):
        return False


class Frontier(_Strict):
    """All of it, as ``frontier.json`` holds it.

    Attributes:
        schema_version: version of this schema.
        davylamp_version: version that wrote it.
        confidence: of every interval.
        resamples: of every bootstrap.
        x: key of the horizontal axis that was asked for.
        y: key of the vertical one.
        base: name of the model that all were trained from; nothing where nobody knows.
        candidates: what each secret was ranked among, itself included.
        seeds: the seeds that every intervention has, which alone are pooled.
        doses: the doses that are pooled.
        metrics: what is compared.
        rows: every intervention, all seeds together.
        by_seed: every intervention and seed.
        fronts: the Pareto set on the axes asked for, on the mean ranks, and on each privacy metric against each
            capability metric.
        arrows: from rewriting to privacy-aware rewriting.
        correlations: of each metric with each other.
        notes: what a reader must know, a sentence each.
    """

    schema_version: Literal[1] = 1
    davylamp_version: str
    confidence: float
    resamples: int
    x: str
    y: str
    base: str | None
    candidates: int
    seeds: tuple[int, ...]
    doses: tuple[int, ...]
    metrics: tuple[Metric, ...]
    rows: tuple[Row, ...]
    by_seed: tuple[Row, ...]
    fronts: tuple[Front, ...]
    arrows: tuple[Arrow, ...]
    correlations: tuple[Correlation, ...]
    notes: tuple[str, ...]

    def metric(self, key: str) -> Metric | None:
        """A metric by its key; nothing for the mean ranks."""
        return next((metric for metric in self.metrics if metric.key == key), None)

    def front(self, x: str, y: str) -> Front | None:
        """The Pareto set on two axes."""
        return next((front for front in self.fronts if (front.x, front.y) == (x, y)), None)

    def save(self, path: Path) -> None:
        """Write it.

        Raises:
            StorageError: it cannot be written.
        """
        files.write_json(path, self.model_dump(mode="json"))

    @classmethod
    def load(cls, path: Path) -> Frontier:
        """Read it.

        Raises:
            RunFolderError: it is missing, damaged, or of another schema.
        """
        return files.read_result(cls, path, "frontier", "`davylamp compare` first", "`davylamp compare`")
