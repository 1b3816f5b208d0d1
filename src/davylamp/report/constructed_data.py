"""Reading what was measured of a run's constructions, shown only where it is of the same planting and model."""

from __future__ import annotations

from pathlib import Path

from davylamp.errors import RunFolderError
from davylamp.measures.constructed.model import FILE, ConstructionsResult


def constructions_of(folder: Path, planted_sha256: str, audited_sha256: object | None) -> ConstructionsResult | None:
    """What was read of a run's constructions, where it was.

    Args:
        folder: the run folder.
        planted_sha256: hash of its planted file.
        audited_sha256: hash of the weights that the verdict is on; none where there is no verdict.

    Raises:
        RunFolderError: the file is damaged, of another planting, or on another model than the verdict.
    """
    path = folder / FILE
    if not path.is_file():
        return None
    found = ConstructionsResult.load(path)
    if found.planted_sha256 != planted_sha256:
        raise RunFolderError(
            f"{path} is of another planting than {folder / 'manifest.json'}: run `davylamp constructions {folder}` "
            "again"
        )
    if audited_sha256 is not None and found.model_sha256 != audited_sha256:
        raise RunFolderError(
            f"{path} and the verdict are on different models: run `davylamp audit` and `davylamp constructions` with "
            "the same --model, then `davylamp matrix`"
        )
    return found
