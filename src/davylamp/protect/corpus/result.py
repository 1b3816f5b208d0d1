"""What protecting a file left behind: the typed ``protection.json``, and where its rows are."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from davylamp.canaries.manifest import Manifest
from davylamp.corpora.readers import read_corpus
from davylamp.corpora.records import Record
from davylamp.errors import RunFolderError, StorageError
from davylamp.protect.corpus.background import Background
from davylamp.protect.corpus.leaks import Leaks
from davylamp.runs import files
from davylamp.runs.folder import RunFolder

PROTECTED, PROTECTION, ROWS = "protected.jsonl", "protection.json", "protection_rows.jsonl"
"""Files of a run folder: the rows to train on, what was done, and (for its owner only) what was done to each row."""
STORE = ".protect"
"""Folder inside a run's of what was done before a kill."""
AGAIN = "davylamp protect RUN --with ..."


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Replaced(_Strict):
    """How many of the words that an intervention found it replaced.

    Attributes:
        words: words, numbers and dates of the rows that it transformed.
        replaced: those that were replaced, one by one or as a part of something longer.
        small: words in small letters among them, of which running text is made.
        small_replaced: those of them that were replaced one by one in running text, which becomes gibberish by it.
    """

    words: int = Field(ge=0)
    replaced: int = Field(ge=0)
    small: int = Field(ge=0)
    small_replaced: int = Field(ge=0)

    @property
    def share(self) -> float:
        """Share of all words that were replaced."""
        return self.replaced / self.words if self.words else 0.0

    @property
    def small_share(self) -> float:
        """Share of the words in small letters that were replaced one by one in running text."""
        return self.small_replaced / self.small if self.small else 0.0


class StepResult(_Strict):
    """One intervention.

    Attributes:
        name: which.
        version: of its rules, prompts or models.
        settings: with which settings.
        rows: different rows that it transformed; equal ones with equal draws are transformed once.
        counts: how many ended how (``ok``, ``refused``, ``truncated``, ``failed``), and how many were ``unchanged``.
        on_failure: what was done with those that did not end well.
        reasons: why they did not, and how often.
        seconds: wall time, without what an earlier attempt had done.
        resumed: rows that an earlier attempt had done.
        usage: requests sent, answers taken from the cache, retries and tokens, where a language model wrote.
        replaced: how many words were replaced, where the intervention says which.
    """

    name: str
    version: str
    settings: dict[str, Any]
    rows: int
    counts: dict[str, int]
    on_failure: str
    reasons: dict[str, int] = Field(default_factory=dict)
    seconds: float
    resumed: int = 0
    usage: dict[str, int] = Field(default_factory=dict)
    replaced: Replaced | None = None


class Protection(_Strict):
    """What was done to the rows of a run.

    Attributes:
        schema_version: version of this schema.
        davylamp_version: version that wrote it.
        planted_sha256: hash of the planted file.
        protected_sha256: hash of the protected file.
        seed: of all draws.
        steps: the interventions in their order.
        rows: rows of either file.
        changed: rows that differ from the planted ones.
        control_rows: rows of the positive control, which were left as they were.
        dropped: rows in whose place another row's text stands.
        leaks: what of the canaries survives.
        background: what of the rare names and numbers of the other rows does; nothing in files of before it was asked.
        seconds: wall time.
    """

    schema_version: Literal[1] = 1
    davylamp_version: str
    planted_sha256: str
    protected_sha256: str
    seed: int
    steps: tuple[StepResult, ...]
    rows: int
    changed: int
    control_rows: int
    dropped: int
    leaks: Leaks
    background: Background | None = None
    seconds: float

    @property
    def title(self) -> str:
        """The interventions in a few words."""
        return " + ".join(step.name + (" (once)" if step.settings.get("once") else "") for step in self.steps)

    def note(self) -> dict[str, Any]:
        """What ``training.json`` holds of it."""
        return {
            "title": self.title,
            "protected_sha256": self.protected_sha256,
            "steps": [{"name": step.name, "settings": step.settings} for step in self.steps],
            "changed": self.changed,
            "control_rows": self.control_rows,
            "dropped": self.dropped,
        }


def read_protection(folder: RunFolder) -> Protection | None:
    """What ``protection.json`` says, or nothing where the rows of a run are not protected.

    Raises:
        RunFolderError: it is damaged.
    """
    path = folder.path / PROTECTION
    return files.read_result(Protection, path, "protection", AGAIN) if path.exists() else None


def protected_rows(folder: RunFolder, manifest: Manifest) -> tuple[Protection, tuple[Record, ...]] | None:
    """The protected rows of a run, or nothing where it has none.

    Raises:
        RunFolderError: they were made of another planted file, are missing, or were changed afterwards.
    """
    protection = read_protection(folder)
    path = folder.path / PROTECTED
    if protection is None and path.exists():
        # A kill between the two files: to train on the rows as they were would be the opposite of what was asked.
        raise RunFolderError(f"{path} was left without {PROTECTION}: run {AGAIN} again, or remove it")
    if protection is None:
        return None
    if protection.planted_sha256 != manifest.planted_sha256:
        raise RunFolderError(
            f"{folder.path / PROTECTION} is of rows that were planted before these: run {AGAIN} again, or remove it to "
            "train on the rows as they are"
        )
    if not path.is_file() or files.sha256_file(path) != protection.protected_sha256:
        raise RunFolderError(f"{path} is missing or was changed after it was written: run {AGAIN} again")
    return protection, read_corpus(path).records


def refuse_protected(folder: RunFolder, what: str) -> None:
    """Refuse what reads the planted rows as if they had been trained on.

    Args:
        folder: a run.
        what: what cannot be done, as the beginning of a sentence.

    Raises:
        RunFolderError: the run's rows are protected.
    """
    if (folder.path / PROTECTION).exists():
        raise RunFolderError(
            f"{what} takes the rows as they were planted, but {folder.path} trains on protected ones: do it in a "
            f"folder without {PROTECTION}"
        )


def forget(folder: Path) -> list[str]:
    """Remove what was made of rows that another planting has replaced: they hold records and secrets of the old one.

    Args:
        folder: a run's.

    Returns:
        The names of what was there.

    Raises:
        StorageError: it cannot be removed.
    """
    made = [folder / name for name in (STORE, PROTECTED, PROTECTION, ROWS, "judged.json")]
    found = [path for path in (*made, *sorted(folder.glob("landscape*.json"))) if path.exists()]
    try:
        for path in found:
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()
    except OSError as error:
        raise StorageError(
            f"cannot remove what the old planting left in {folder}: {error.strerror or error}"
        ) from error
    return [path.name for path in found]


def remove(folder: Path) -> None:
    """Remove what says that the rows of a run are protected, before other rows are."""
    for name in (PROTECTION, PROTECTED, ROWS):
        (folder / name).unlink(missing_ok=True)
