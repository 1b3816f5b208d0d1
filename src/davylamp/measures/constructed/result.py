"""The file of what a release gives away of its constructions: its cells, and how they were come by."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from davylamp.measures.constructed.model import ConstructionCell
from davylamp.measures.constructed.shadow_model import ShadowNote
from davylamp.runs import files

FILE = "constructions.json"
"""The result, in the run folder."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class FinderReport(_Strict):
    """How a best-effort finder went about it.

    Attributes:
        prompts: how many were asked.
        flagged: how many continuations were abnormally certain, and were looked at; for repeated tokens all of them.
        empty: flagged ones that hold no planted secret.
    """

    prompts: int
    flagged: int
    empty: int


class AuditNote(_Strict):
    """An audit's metadata; see :mod:`davylamp.measures.constructed.audits`."""

    name: str
    access: tuple[str, ...]
    channel: str
    local: bool
    needs_construction: bool


class ConstructionsResult(_Strict):
    """What a release gives away of its constructions, by each audit.

    Attributes:
        schema_version: version of this schema.
        davylamp_version: version that wrote it.
        seed: seed of the plan.
        model: name of the release.
        model_sha256: hash of its weights.
        own_model: whether it is the model of the run folder, and not one that the user named.
        planted_sha256: hash of the planted file whose constructions were read.
        reference: name of the base model.
        reference_sha256: hash of its weights.
        drawn_from_reference: whether the secrets were drawn from just these weights, as the baselines assume.
        confidence: of every interval.
        suspects: prompts of the user's list.
        scan: how the trigger scan went; none where it was not run.
        repetition: how the repeated tokens went; none where they were not run.
        shadows: the shadows of LiRA; none where they were not asked for.
        audits: what each audit asks for and where it looks.
        cells: a cell for each line and size.
    """

    schema_version: Literal[1] = 1
    davylamp_version: str
    seed: int
    model: str
    model_sha256: str
    own_model: bool
    planted_sha256: str
    reference: str
    reference_sha256: str
    drawn_from_reference: bool
    confidence: float = Field(gt=0, lt=1)
    suspects: int = 0
    scan: FinderReport | None = None
    repetition: FinderReport | None = None
    shadows: ShadowNote | None = None
    audits: tuple[AuditNote, ...]
    cells: tuple[ConstructionCell, ...]

    @model_validator(mode="after")
    def _each_once(self) -> ConstructionsResult:
        if len({each.place for each in self.cells}) < len(self.cells):
            raise ValueError("two cells are of one line and size")
        return self

    def save(self, path: Path) -> None:
        """Write the result.

        Raises:
            StorageError: it cannot be written.
        """
        files.write_json(path, self.model_dump(mode="json"))

    @classmethod
    def load(cls, path: Path) -> ConstructionsResult:
        """Read a result.

        Raises:
            RunFolderError: it is missing, damaged or of another schema.
        """
        verb = "`davylamp constructions`"
        return files.read_result(cls, path, "constructions", f"{verb} first", verb)
