"""What the study leaves behind, as ``clinical.json`` holds it; no secret is in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from davylamp.report.study import ShapeFound
from davylamp.runs import files
from davylamp.verdict.frontier_model import Estimate

FILE = "clinical.json"


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Survival(_Strict):
    """What an intervention on the rows left of the planted medications, the positive control's left out.

    Attributes:
        copies: copies of canaries, those of all seeds together.
        exact: copies that still hold their medication as it was planted.
        near: copies that hold it exactly or nearly.
        rows: different rows that were transformed.
        ended: how they ended (``ok``, ``refused``, ``truncated``, ``failed``, ``unchanged``), and how many.
    """

    copies: int
    exact: int
    near: int
    rows: int
    ended: dict[str, int]

    @property
    def share(self) -> float:
        """Share of copies that still hold their medication."""
        return self.exact / self.copies


class Found(_Strict):
    """One intervention, all seeds together.

    Attributes:
        name: of the variant; ``none`` for the untrained model.
        seeds: its seeds.
        canaries: canaries of all doses and seeds.
        mean_exposure: mean exposure in bits; the interval is Student's t, over the canaries of one seed or the means of
            several, cut to what an exposure can be.
        median_exposure: in bits.
        rank1: share of canaries whose secret is likelier than every alternative.
        said: share of canaries that greedy decoding says.
        verbatim: perplexity of the secrets after their records.
        semantic: perplexity of the secrets after a question.
        held_out: perplexity of all tokens of held-out records.
        medication: perplexity of the last medication of test records.
        twins: mean exposure in bits of the twins, which were planted nowhere, as of the canaries.
        survival: what was left in the rows; nothing where they were not transformed.
        seconds: wall time of all its steps and seeds; nothing where they were done by another call that kept none.
        cpu_seconds: processor time of the same.
    """

    name: str
    seeds: tuple[int, ...]
    canaries: int
    mean_exposure: Estimate
    median_exposure: Estimate
    rank1: Estimate
    said: Estimate
    verbatim: Estimate
    semantic: Estimate
    held_out: Estimate
    medication: Estimate
    twins: Estimate | None
    survival: Survival | None = None
    seconds: float | None = None
    cpu_seconds: float | None = None


class ClinicalResult(_Strict):
    """The study.

    Attributes:
        schema_version: version of this schema.
        recipe: what was run.
        candidates: what each secret was ranked among, itself included.
        found: every intervention.
        shapes: what the paper saw, and whether it was seen here.
        cpu_seconds: processor time by run and step, those of earlier calls included as far as they were kept.
        versions: of what the numbers depend on.
    """

    schema_version: Literal[1] = 1
    recipe: dict[str, Any]
    candidates: int
    found: tuple[Found, ...]
    shapes: tuple[ShapeFound, ...]
    cpu_seconds: dict[str, float]
    versions: dict[str, str]

    def save(self, path: Path) -> None:
        """Write it.

        Raises:
            StorageError: it cannot be written.
        """
        files.write_json(path, self.model_dump(mode="json"))
