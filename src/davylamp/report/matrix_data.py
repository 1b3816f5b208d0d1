"""Reading the matrix of a run, which is shown only while it is what the folder's own files say."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path

from davylamp.errors import RunFolderError
from davylamp.measures.constructed.result import ConstructionsResult
from davylamp.verdict import Verdict
from davylamp.verdict.matrix import matrix_of
from davylamp.verdict.matrix_columns import LOSS, VERIFIER
from davylamp.verdict.matrix_model import FILE, Matrix, MatrixCell, MatrixRow
from davylamp.verdict.membership_model import MembershipResult

CANARIES = "canaries"
"""The kind of rows that no construction hides."""
NEAR = 1e-6
"""How far signals may lie apart that are the same but for the rounding of another machine."""


def matrix_of_run(
    folder: Path,
    planted_sha256: str,
    audited_sha256: object,
    verdict: Verdict | None,
    constructions: ConstructionsResult | None,
) -> Matrix | None:
    """The matrix of a run's model, where it was put together.

    The file names the planting and the weights that each part is on, and they must be those of the folder. It is then
    put together again from what the folder holds now, at its own threshold and confidence, and refused if that is
    something else. Left out is what the charge for the strongest score does to its interval; and the verifier's cells
    of constructions where they are on a model that was made to forget, whose folder may lie anywhere. Sentences on the
    audits and on where nobody looked are those of now.

    Args:
        folder: the run folder.
        planted_sha256: hash of its planted file.
        audited_sha256: hash of the weights that the verdict, or else the constructions, are on.
        verdict: on its canaries; none where it was not audited.
        constructions: what was read of them; none where there are none.

    Raises:
        RunFolderError: the file is damaged, or older than what the folder holds now.
    """
    if not (folder / FILE).is_file():
        return None
    found = Matrix.load(folder / FILE)
    for each in found.sources:
        if (each.planted_sha256, each.weights_sha256) != (planted_sha256, audited_sha256):
            other = "another planting" if each.planted_sha256 != planted_sha256 else "another model"
            raise RunFolderError(
                f"{folder / FILE} was read from a {each.file} on {other} than the folder now holds: run `davylamp "
                "matrix` again, or remove it"
            )
    path = folder / "membership.json"
    membership = MembershipResult.load(path) if path.is_file() else None
    name = found.model if constructions is None else constructions.model
    # The strongest score's intervals are wider in the file: they are charged for the choice.
    now = matrix_of(name, constructions, verdict, membership, membership, found.threshold, found.confidence)
    keys = [[column.key for column in each.columns] for each in (found, now)]
    if (
        found.model != name
        or not found.sources
        or keys[0] != keys[1]
        or not _same_rows(found.rows, now.rows, found.unlearned_sha256 is not None)
    ):
        raise RunFolderError(
            f"{folder / FILE} is not what the folder's other files say now (another planting, another model, audits "
            "that were run after it, or another davylamp): run `davylamp matrix` again, or remove it"
        )
    return found.model_copy(update={"columns": now.columns, "unlooked": now.unlooked, "notes": now.notes})


def _same_rows(found: Iterable[MatrixRow], now: Iterable[MatrixRow], unlearned: bool) -> bool:
    one, other = list(found), list(now)
    return len(one) == len(other) and all(_same_row(*both, unlearned) for both in zip(one, other, strict=True))


def _same_row(found: MatrixRow, now: MatrixRow, unlearned: bool) -> bool:
    return (
        found.model_dump(exclude={"cells"}) == now.model_dump(exclude={"cells"})
        and found.cells.keys() == now.cells.keys()
        and all(
            (unlearned and found.kind != CANARIES and key == VERIFIER.key)
            or _same_cell(found.kind, key, cell, now.cells[key])
            for key, cell in found.cells.items()
        )
    )


def _same_cell(kind: str, key: str, found: MatrixCell, now: MatrixCell) -> bool:
    free_interval = (kind, key) == (CANARIES, LOSS.key)
    if found.signal is None or now.signal is None or found.low is None or found.high is None or found.word is None:
        return found.model_copy(update={"detail": now.detail}) == now
    ends = free_interval or (_near(found.low, now.low) and _near(found.high, now.high))
    words = free_interval or _word(found) == _word(now)
    return _near(found.signal, now.signal) and ends and words


def _word(cell: MatrixCell) -> str | None:
    # Which of the two it is may hang on what is left out.
    return "not seen" if cell.word == "blind" else cell.word


def _near(one: float, other: float | None) -> bool:
    return other is not None and math.isclose(one, other, abs_tol=NEAR)
