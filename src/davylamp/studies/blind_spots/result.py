"""What the study leaves behind, as ``blind_spots.json`` holds it; no secret is in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from davylamp.measures.constructed.model import ConstructionCell
from davylamp.measures.constructed.result import ConstructionsResult
from davylamp.protect.afterwards.spec import Method
from davylamp.report.study import ShapeFound
from davylamp.runs import files
from davylamp.studies.unlearning_result import UnlearningResult
from davylamp.verdict.matrix_model import Matrix

FILE = "blind_spots.json"


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class SeedResult(_Strict):
    """One planting and its model.

    Attributes:
        seed: of the plan and the training.
        read: what every audit saw of the constructions.
        unlearned: what each method left of them.
        matrix: both as a table, with the first method's unlearning.
    """

    seed: int
    read: ConstructionsResult
    unlearned: dict[Method, UnlearningResult]
    matrix: Matrix

    def cell(self, kind: str, tokens: int | None = None) -> ConstructionCell:
        """The cell of a construction, of one length where it has several."""
        return next(each for each in self.read.cells if each.kind == kind and tokens in (None, each.tokens))


class BlindSpotsResult(_Strict):
    """The study.

    Attributes:
        schema_version: version of this schema.
        recipe: what was run.
        corpus: where the background came from.
        seeds: seed by seed.
        dp: what ``dp_calibration.json`` holds; none where that part was left out.
        shapes: what the paper saw, and whether it was seen here.
        cpu_seconds: processor time by step, those of earlier calls included.
        versions: of what the numbers depend on.
    """

    schema_version: Literal[1] = 1
    recipe: dict[str, Any]
    corpus: str
    seeds: tuple[SeedResult, ...]
    dp: dict[str, Any] | None
    shapes: tuple[ShapeFound, ...]
    cpu_seconds: dict[str, float]
    versions: dict[str, str]

    def save(self, path: Path) -> None:
        """Write it.

        Raises:
            StorageError: it cannot be written.
        """
        files.write_json(path, self.model_dump(mode="json"))
