"""The step that puts the matrix together from what a run folder holds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import polars as pl

from davylamp.canaries import Manifest
from davylamp.errors import RunFolderError
from davylamp.measures import readings as tables
from davylamp.measures.constructed.result import FILE as CONSTRUCTIONS_FILE
from davylamp.measures.constructed.result import ConstructionsResult
from davylamp.runs import files
from davylamp.runs.folder import RunFolder
from davylamp.studies.steps import read_training
from davylamp.studies.unlearning_result import FILE as UNLEARNING_FILE
from davylamp.studies.unlearning_result import UnlearningResult
from davylamp.verdict import Verdict
from davylamp.verdict.matrix import SHADOWED, VERIFIER_THRESHOLD, alone, matrix_of
from davylamp.verdict.matrix_model import FILE, Matrix, MatrixSource
from davylamp.verdict.matrix_unlearned import Unlearned
from davylamp.verdict.membership import membership_result
from davylamp.verdict.membership_model import MembershipResult


def matrix_step(
    folder: RunFolder,
    threshold: float = VERIFIER_THRESHOLD,
    confidence: float = 0.95,
    unlearned: Path | None = None,
) -> Matrix:
    """Read what was measured of a run's model, and write ``matrix.json``.

    Args:
        folder: the run.
        threshold: the unlearning verifier's.
        confidence: of every interval.
        unlearned: what ``davylamp unlearn --constructions`` wrote; if none, ``unlearned`` in the run folder, where it
            is of this planting and this model.

    Raises:
        ManifestError: there is no manifest.
        RunFolderError: nothing was measured, a file is damaged, a file is of another planting or another model, or
            ``unlearned`` is of something else.
        StorageError: it cannot be written.
    """
    manifest = Manifest.load(folder.manifest)
    constructions = None
    if (folder.path / CONSTRUCTIONS_FILE).is_file():
        constructions = ConstructionsResult.load(folder.path / CONSTRUCTIONS_FILE)
    verdict = Verdict.load(folder.verdict) if folder.verdict.is_file() else None
    if constructions is None and verdict is None:
        raise RunFolderError(
            f"nothing was measured in {folder.path}: run `davylamp audit`, or `davylamp constructions` where the plan "
            "has some, first"
        )
    found = None if constructions is None else _of_constructions(folder, manifest, constructions)
    sources = [found] if found is not None else []
    name, membership, charged = "" if constructions is None else constructions.model, None, None
    if verdict is not None:
        audit = files.read_json(folder.audit)
        sources += _of_audit(folder, manifest, audit)
        if constructions is not None and audit.get("weights_sha256") != constructions.model_sha256:
            raise RunFolderError(
                f"{folder.audit} and {folder.path / CONSTRUCTIONS_FILE} are of different models: run `davylamp audit` "
                "and `davylamp constructions` with the same --model"
            )
        name = name or str(audit.get("release", ""))
        if folder.membership.is_file():
            membership = MembershipResult.load(folder.membership)
            charged = _charged(folder, membership, confidence)
    after = None if constructions is None else _unlearned(folder, manifest, constructions, unlearned)
    if unlearned is not None and constructions is None:
        raise RunFolderError(f"--unlearned {unlearned}: {folder.path} holds no {CONSTRUCTIONS_FILE} to hold it against")
    if after is not None and constructions is not None:
        of = MatrixSource(
            file=UNLEARNING_FILE, planted_sha256=manifest.planted_sha256, weights_sha256=constructions.model_sha256
        )
        sources.append(of)
    made = matrix_of(name, constructions, verdict, membership, charged, threshold, confidence, after, tuple(sources))
    made.save(folder.path / FILE)
    return made


def _of_constructions(folder: RunFolder, manifest: Manifest, constructions: ConstructionsResult) -> MatrixSource:
    """What the constructions were read from.

    Raises:
        RunFolderError: another planting, or the folder's own model before it was trained anew.
    """
    path, again = folder.path / CONSTRUCTIONS_FILE, f"run `davylamp constructions {folder.path}` again"
    if constructions.planted_sha256 != manifest.planted_sha256:
        raise RunFolderError(f"{path} is of another planting than {folder.manifest}: {again}")
    trained = read_training(folder).get("trained_sha256")
    if constructions.own_model and trained is not None and trained != constructions.model_sha256:
        raise RunFolderError(f"{path} is on the model that {folder.model} was before it was trained anew: {again}")
    return MatrixSource(
        file=CONSTRUCTIONS_FILE,
        planted_sha256=constructions.planted_sha256,
        weights_sha256=constructions.model_sha256,
    )


def _of_audit(folder: RunFolder, manifest: Manifest, audit: Mapping[str, Any]) -> Iterator[MatrixSource]:
    """What the verdict, and membership beside it, were read from.

    Raises:
        RunFolderError: another planting, or the folder's own model before it was trained anew.
    """
    planted, weights = audit.get("planted_sha256"), str(audit.get("weights_sha256", ""))
    again = f"run `davylamp audit {folder.path}` again"
    if planted != manifest.planted_sha256:
        raise RunFolderError(f"the verdict in {folder.path} is on canaries that were planted before: {again}")
    trained = read_training(folder).get("trained_sha256")
    if audit.get("own_model") and trained is not None and trained != weights:
        raise RunFolderError(f"the model in {folder.path} was trained anew after its verdict was given: {again}")
    for path in (folder.verdict, folder.membership):
        if path.is_file():
            yield MatrixSource(file=path.name, planted_sha256=planted, weights_sha256=weights)


def _unlearned(
    folder: RunFolder, manifest: Manifest, constructions: ConstructionsResult, given: Path | None
) -> Unlearned | None:
    """What unlearning left of the constructions; nothing where the run's own, not asked for, is of something else."""
    place = given if given is not None else folder.path / "unlearned"
    if given is None and not (place / UNLEARNING_FILE).is_file():
        return None
    found = UnlearningResult.load(place / UNLEARNING_FILE)
    other = None
    if not found.constructions:
        other = "is of canaries: run `davylamp unlearn --constructions`"
    elif found.planted_sha256 != manifest.planted_sha256:
        other = "is of another planting: run `davylamp unlearn --constructions` again"
    elif found.before_sha256 != constructions.model_sha256:
        other = f"and {CONSTRUCTIONS_FILE} are of different models: run `davylamp constructions` on the run's own model"
    if other is None:
        return Unlearned(found.spec.threshold, found.after_sha256, found.constructions)
    if given is not None:
        raise RunFolderError(f"{place / UNLEARNING_FILE} {other}")
    return None


def _charged(folder: RunFolder, membership: MembershipResult, confidence: float) -> MembershipResult | None:
    """Membership by the scores of the model alone, at a confidence at which all of them hold together."""
    count = alone(membership)
    if not count:
        return None
    frame = tables.load(folder.readings)
    of_model = frame.filter(
        (pl.col("release") == "model") & ~pl.col("measure").str.contains("|".join(f"_{each}" for each in SHADOWED))
    )
    return membership_result(of_model, membership.fprs, 1 - (1 - confidence) / count)
