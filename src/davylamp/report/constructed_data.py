"""Reading what was measured of a run's constructions, shown only where it is of the same planting and model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from davylamp.canaries.manifest import Manifest
from davylamp.errors import RunFolderError
from davylamp.measures.constructed.model import ConstructionCell, LocalScore
from davylamp.measures.constructed.result import FILE, ConstructionsResult
from davylamp.report.constructed_model import ConstructionLine, Constructions, TwinScore, Unaudited
from davylamp.report.matrix_data import matrix_of_run
from davylamp.runs import files
from davylamp.runs.folder import RunFolder
from davylamp.verdict.matrix import KINDS


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


def told(result: ConstructionsResult) -> Constructions:
    """What a report says of a result: counts and rates, no instance by itself."""
    named = Counter((cell.kind, cell.tokens) for cell in result.cells)
    return Constructions(
        **{
            name: getattr(result, name)
            for name in Constructions.model_fields
            if name != "lines"  # the rest has the result's own names
        },
        lines=tuple(_line(cell, named[cell.kind, cell.tokens] > 1) for cell in result.cells),
    )


def _line(cell: ConstructionCell, twice: bool) -> ConstructionLine:
    name = f"{KINDS.get(cell.kind, cell.kind.replace('_', ' '))} ({cell.tokens} token{'s' if cell.tokens > 1 else ''})"
    same = {
        name: getattr(cell, name)
        for name in ConstructionLine.model_fields
        if name in ConstructionCell.model_fields and name != "lira"
    }
    read = [score for score in cell.scores if score.auc is not None]
    best = max(read, key=lambda score: score.auc or 0.0, default=None)
    return ConstructionLine(
        name=f"{name}, line {cell.line + 1}" if twice else name,
        guessing=cell.baseline.charged,
        guesses=cell.baseline.guesses,
        best=_told(best, len(read)),
        lira=_told(cell.lira, 1),
        **same,
    )


def _told(score: LocalScore | None, of: int) -> TwinScore | None:
    """A score against twins; nothing where it was not read or has none to stand against."""
    if score is None or score.auc is None:
        return None
    if score.auc_low is None or score.auc_high is None or score.needed is None:
        return None
    return TwinScore(
        name=score.name,
        of=of,
        auc=score.auc,
        low=score.auc_low,
        high=score.auc_high,
        fpr=score.fpr,
        found=score.tpr,
        twins=len(score.twins),
        needed=score.needed,
    )


def plan_of(manifest: Manifest, show_secrets: bool) -> dict[str, Any]:
    """The plan, in full; triggers of the user's own give secrets away, and are counted only unless asked for."""
    plan = manifest.plan.model_dump(mode="json")
    for line in plan.get("constructions") or ():
        if line.get("triggers") and not show_secrets:
            line["triggers"] = f"{len(line['triggers'])} of your own, not shown"
    return plan


def unaudited_of(folder: RunFolder, name: str, show_secrets: bool) -> Unaudited:
    """A run that holds constructions and no verdict.

    Raises:
        RunFolderError: a file is damaged, of another planting, or on a model that was trained anew since.
        ManifestError: the manifest is missing or damaged.
    """
    manifest = Manifest.load(folder.manifest)
    result = constructions_of(folder.path, manifest.planted_sha256, None)
    if result is None:
        raise RunFolderError(
            f"{folder.path} holds a matrix, and neither a verdict nor constructions that it was read from: run "
            "`davylamp audit` or `davylamp constructions`, then `davylamp matrix`"
        )
    training = _training(folder, result)
    matrix = matrix_of_run(folder.path, manifest.planted_sha256, result.model_sha256, None, result)
    return Unaudited(
        name=name,
        plan=plan_of(manifest, show_secrets),
        corpus=manifest.corpus.model_dump(mode="json"),
        rows=manifest.rows,
        planted_sha256=manifest.planted_sha256,
        training=training,
        constructions=told(result),
        matrix=matrix,
        missing=tuple(_missing(matrix is not None)),
    )


def _training(folder: RunFolder, result: ConstructionsResult) -> dict[str, Any] | None:
    """How the release was trained, if the folder's training made that very model."""
    if not folder.training.is_file():
        return None
    try:
        training = files.read_json(folder.training)
    except (OSError, ValueError) as error:
        raise RunFolderError(f"cannot read {folder.training}: {error}") from error
    if training.get("trained_sha256") == result.model_sha256:
        return training
    if result.own_model:
        raise RunFolderError(
            f"the model in {folder.path} was trained anew after its constructions were read: run `davylamp "
            f"constructions {folder.path}` again"
        )
    return None


def _missing(matrix: bool) -> Iterator[tuple[str, str]]:
    yield "a verdict on the canaries: exposure, exact recovery, copying, with both controls", "davylamp audit RUN"
    yield "membership, and bounds on epsilon", "davylamp audit RUN --measures membership"
    if not matrix:
        yield "the matrix: what each audit sees of each leak, and where nobody looked", "davylamp matrix RUN"
