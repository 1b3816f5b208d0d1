"""What a new training may take the place of: a model that the same command makes again, and no other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from davylamp.errors import ModelError, RunFolderError
from davylamp.runs.folder import RunFolder
from davylamp.studies.steps import read_training


def check_model_replaceable(folder: RunFolder) -> None:
    """Refuse to train over a model that could not be made again.

    Raises:
        RunFolderError: the folder's model is not of davylamp's training, or its noise was drawn without a seed.
    """
    if not folder.model.is_dir() or not any(folder.model.iterdir()):
        return
    try:
        training = read_training(folder)
    except RunFolderError:
        training = {}
    private = training.get("spec", {}).get("dp") or {}
    own = bool(training) and _is_of(folder, training)
    if own and private.get("seeded", True):
        return
    why = "whose noise has no seed" if own else f"that {folder.training.name} does not tell of"
    raise RunFolderError(
        f"{folder.model} holds a model {why}, so that nothing could make it again: move it away, or give --force to "
        f"lose it. `davylamp audit {folder.path} --model {folder.model}` reads it where it is"
    )


def _is_of(folder: RunFolder, training: Mapping[str, Any]) -> bool:
    """Whether a folder's model is the one that its training made."""
    from davylamp.release.sources import resolve

    base = training["model"].get("name") if training.get("spec", {}).get("method") == "lora" else None
    try:
        return resolve(str(folder.model), base=base).weights_sha256() == training.get("trained_sha256")
    except ModelError:
        return False
