"""The audit-disagreement matrix: leaks down, audits across, in each cell how much of the leak the audit saw."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from davylamp.runs import files

FILE = "matrix.json"
"""The result, in the run folder."""
MatrixWord = Literal["leak", "blind", "guessed", "capped", "recovered", "not seen"]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class MatrixColumn(_Strict):
    """One audit, and what it can never see.

    Attributes:
        key: its name in the cells.
        title: its name for people.
        signal: what 0 and 1 of a signal are.
        access: what it asks of the release (and ``reference``, ``retrain``).
        channel: where it looks for the secret.
        local: whether it reads nothing but a record's own prefix and secret.
        knows: whether it takes knowing how the leak was made.
        blind: one sentence on what stays outside of its sight.
    """

    key: str
    title: str
    signal: str
    access: tuple[str, ...]
    channel: str
    local: bool
    knows: bool
    blind: str


class MatrixCell(_Strict):
    """What one audit saw of one leak.

    Attributes:
        signal: from 0 (chance) to 1 (all of it); none where nothing was measured.
        low: lower end of its interval.
        high: upper end.
        word: ``leak``: more than chance; ``recovered``: the same by who knows the construction; ``guessed``: no more
            than a guesser has; ``capped``: no more than the construction lets anybody have; ``blind``: nothing, though
            the secret is there (who knows how gets it out, or another audit sees it); ``not seen``: nothing, and
            nobody else saw anything.
        detail: the counts or the statistic behind the signal; of an empty cell, why it is empty.
    """

    signal: float | None = Field(ge=0, le=1)
    low: float | None = Field(None, ge=0, le=1)
    high: float | None = Field(None, ge=0, le=1)
    word: MatrixWord | None
    detail: str


class MatrixRow(_Strict):
    """One leak: a construction of one size, or the canaries of one arm and dose.

    Attributes:
        name: for people.
        kind: the construction, or ``canaries``.
        tokens: of a secret; none where secrets have no one length.
        copies: rows that held each secret.
        instances: how many were planted.
        cells: by column key.
    """

    name: str
    kind: str
    tokens: int | None
    copies: int
    instances: int
    cells: dict[str, MatrixCell]


class MatrixSource(_Strict):
    """A file of the run folder that a part of the matrix was read from.

    Attributes:
        file: its name.
        planted_sha256: hash of the planted file that it is on.
        weights_sha256: hash of the weights that it is on.
    """

    file: str
    planted_sha256: str
    weights_sha256: str


class Matrix(_Strict):
    """All of it, as ``matrix.json`` holds it.

    Attributes:
        schema_version: version of this schema.
        model: name of the release.
        confidence: of every interval.
        threshold: the unlearning verifier's, of the release as it was audited.
        sources: the files that it was put together from; all are on one planting, and all but those of unlearning,
            which name the weights before, on the same weights.
        columns: the audits, in order.
        rows: the leaks, in order.
        unlooked: the channels that no column looked through, one sentence each. There is always one.
        notes: what a reader must know.
        unlearned_sha256: hash of the weights that were made to forget the constructions, where the verifier's column
            is on those; the other columns are on the model before.
    """

    schema_version: Literal[1] = 1
    model: str
    confidence: float = Field(gt=0, lt=1)
    threshold: float = Field(gt=0, lt=1)
    sources: tuple[MatrixSource, ...]
    columns: tuple[MatrixColumn, ...]
    rows: tuple[MatrixRow, ...]
    unlooked: tuple[str, ...]
    notes: tuple[str, ...] = ()
    unlearned_sha256: str | None = None

    def save(self, path: Path) -> None:
        """Write it.

        Raises:
            StorageError: it cannot be written.
        """
        files.write_json(path, self.model_dump(mode="json"))

    @classmethod
    def load(cls, path: Path) -> Matrix:
        """Read it.

        Raises:
            RunFolderError: it is missing, damaged, or of another schema.
        """
        return files.read_result(cls, path, "matrix", "`davylamp matrix` first", "`davylamp matrix`")
