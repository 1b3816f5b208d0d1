"""What the shadows of a run say, as one typed file: scores, memorization, and the trials whose truth is known."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from davylamp.canaries.manifest import Role
from davylamp.canaries.plan import Context
from davylamp.measures.counterfactual import TRUNCATION
from davylamp.measures.probes import Probe
from davylamp.measures.readings import Reading
from davylamp.measures.shadow_scores import OFFLINE_A, auc
from davylamp.runs import files
from davylamp.training.spec import TrainingSpec

Flags = NDArray[np.bool_]
Span = Literal["secret", "reply"]
UNITS = {
    "lira_online": "nats",
    "lira_offline": "nats",
    "rmia": "share",
    "rmia_offline": "share",
    "rmia_ratio": "nats",
    "counterfactual_probability": "probability",
    "counterfactual_log_loss": "share",
}
"""Measures from shadows, and their units."""
SCORES = tuple(UNITS)[:5]
"""Those that are membership scores."""
ONLINE = ("lira_online", "rmia", "rmia_ratio")
"""Those that read shadows with the record, and so depend on how often it occurs in one."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class TargetRecord(_Strict):
    """A record that shadows were trained with and without.

    Attributes:
        canary: its id.
        role: ``focus``, ``twin`` or ``nonmember``.
        arm: its arm.
        context: what its training prompt shows.
        dose: occurrences in the planted file.
        shadow_dose: occurrences in a shadow that it is in; 0 if it is in none.
    """

    canary: str
    role: Role
    arm: str
    context: Context
    dose: int
    shadow_dose: int


class Series(_Strict):
    """One measure of some records, under one probe and over one span.

    Attributes:
        probe: what the prompt showed.
        span: ``secret``, or ``reply`` for all of the reply.
        measure: name of the measure.
        unit: its unit.
        records: numbers of the records, in :attr:`ShadowScores.records`.
        values: a value for each of them.
        errors: a standard error for each, where there is one.
    """

    probe: str
    span: Span
    measure: str
    unit: str
    records: tuple[int, ...]
    values: tuple[float, ...]
    errors: tuple[float, ...] | None = None


class Trials(_Strict):
    """Scores of each shadow as the attacked model, whose membership is known from the coins.

    Attributes:
        probe: what the prompt showed.
        span: ``secret`` or ``reply``.
        measure: name of the measure.
        unit: its unit.
        records: numbers of the records, in :attr:`ShadowScores.records`.
        scores: a score for each shadow and record, shape (shadows, records).
    """

    probe: str
    span: Span
    measure: str
    unit: str
    records: tuple[int, ...]
    scores: tuple[tuple[float, ...], ...]


class Cell(_Strict):
    """Counterfactual memorization of the records of one arm and dose, with the noise floor beside it.

    Attributes:
        probe: what the prompt showed.
        span: ``secret`` or ``reply``.
        measure: name of the measure.
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
    span: Span
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


class ShadowScores(_Strict):
    """All that the shadows of a run say, as ``shadow_scores.json`` holds it.

    Attributes:
        schema_version: version of this schema.
        seed: seed of the plan.
        planted_sha256: hash of the planted file.
        base_sha256: hash of the weights that training began from.
        audited: name of the audited model, or none.
        audited_sha256: hash of its weights.
        training: settings that the shadows were trained with.
        keys: key of each shadow's signals.
        inside: a text of 0 and 1 for each shadow: whether it holds each record.
        background: ``corpus`` where the rows that a record leaves are the corpus's own, ``planted`` where they are
            other rows of the planted file.
        taken_rows: rows that target records take: in the planted file, and in a shadow on average.
        truncation: nats at which the log-loss is cut off.
        a: RMIA's ``a``, which the offline score uses.
        notes: what could not be computed, and why.
        records: the target records.
        series: scores of the audited model, and memorization.
        trials: scores of each shadow in turn.
        cells: memorization by arm and dose.
    """

    schema_version: Literal[1] = 1
    seed: int
    planted_sha256: str
    base_sha256: str
    audited: str | None = None
    audited_sha256: str | None = None
    training: TrainingSpec = Field(default_factory=TrainingSpec)
    keys: tuple[str, ...] = ()
    inside: tuple[str, ...]
    background: Literal["corpus", "planted"] = "planted"
    taken_rows: tuple[int, float]
    truncation: float = Field(TRUNCATION, gt=0)
    a: float = Field(OFFLINE_A, ge=0, le=1)
    notes: tuple[str, ...] = ()
    records: tuple[TargetRecord, ...]
    series: tuple[Series, ...] = ()
    trials: tuple[Trials, ...] = ()
    cells: tuple[Cell, ...] = ()

    @property
    def members(self) -> Flags:
        """Whether each shadow holds each record, shape (shadows, records)."""
        return np.array([[sign == "1" for sign in row] for row in self.inside], dtype=bool)

    def readings(self) -> list[Reading]:
        """The series as readings.

        Membership scores have ``membership_`` before the measure's name, as all others have, and whatever is over the
        secret alone has ``_secret`` behind it. Where training showed a mask, the hidden probe shows what training did
        and is called so.
        """
        found = []
        for series in self.series:
            name = f"membership_{series.measure}" if series.measure in SCORES else series.measure
            name += "" if series.span == "reply" else f"_{series.span}"
            for number, value in zip(series.records, series.values, strict=True):
                of = self.records[number]
                probe = Probe.AS_TRAINED.value if of.context == "redacted" else series.probe
                row = (of.arm, of.dose, self.seed, of.canary, of.role, of.context, probe, "trained", name)
                found.append(Reading(*row, value, series.unit))
        return found

    def trial_auc(self, trials: Trials, arm: str, shadow_dose: int) -> float | None:
        """AUC of a score over all shadows and the records of one arm and dose; none where there are no such trials."""
        columns = [
            at
            for at, number in enumerate(trials.records)
            if (self.records[number].arm, self.records[number].shadow_dose) == (arm, shadow_dose)
        ]
        if not columns or not shadow_dose:
            return None
        members = self.members[:, [trials.records[at] for at in columns]]
        return auc(np.array(trials.scores)[:, columns], members)

    def save(self, path: Path) -> None:
        """Write it.

        Raises:
            StorageError: it cannot be written.
        """
        files.write_json(path, self.model_dump(mode="json"))

    @classmethod
    def load(cls, path: Path) -> ShadowScores:
        """Read it.

        Raises:
            RunFolderError: it is missing, damaged, or of another schema.
        """
        return files.read_result(cls, path, "shadow scores", "`davylamp shadows` first", "`davylamp shadows`")
