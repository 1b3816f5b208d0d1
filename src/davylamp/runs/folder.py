"""The layout of a run folder, its lock, and the stamps by which a killed run resumes."""

from __future__ import annotations

import contextlib
import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from davylamp import __version__
from davylamp.errors import RunFolderError, StorageError
from davylamp.runs import files


class RunFolder:
    """One planted corpus, one model, one verdict.

    Every step writes its files first and its stamp last. A stamp holds a key of all that the step depends on,
    so that a step is done again exactly if something before it changed.
    """

    def __init__(self, path: Path) -> None:
        """Take a folder, which need not exist yet."""
        self.path = path

    @property
    def planted(self) -> Path:
        """The planted rows, a plain SFT file."""
        return self.path / "planted.jsonl"

    @property
    def manifest(self) -> Path:
        """The sealed record of what was planted."""
        return self.path / "manifest.json"

    @property
    def model(self) -> Path:
        """The trained checkpoint, or its adapter."""
        return self.path / "model"

    @property
    def training(self) -> Path:
        """How the model was trained, with the loss of each step."""
        return self.path / "training.json"

    @property
    def readings(self) -> Path:
        """The readings, a row for each canary, probe and measure."""
        return self.path / "readings.parquet"

    @property
    def utility(self) -> Path:
        """What the model is still good for."""
        return self.path / "utility.json"

    @property
    def audit(self) -> Path:
        """What was audited: the release, its reference, times and memory."""
        return self.path / "audit.json"

    @property
    def membership(self) -> Path:
        """What membership scores tell, where they were taken."""
        return self.path / "membership.json"

    @property
    def shadow_scores(self) -> Path:
        """What shadow models say, where there are any."""
        return self.path / "shadow_scores.json"

    @property
    def epsilon(self) -> Path:
        """Lower bounds on epsilon, where membership was measured."""
        return self.path / "epsilon.json"

    @property
    def verdict(self) -> Path:
        """The verdict."""
        return self.path / "verdict.json"

    def is_done(self, step: str, key: Mapping[str, Any], outputs: Sequence[Path]) -> bool:
        """Whether a step was finished with the same key and its files are still there."""
        try:
            stamp = files.read_json(self._stamp(step))
        except (OSError, ValueError):
            return False
        return stamp.get("key") == digest(key) and all(output.exists() for output in outputs)

    def finish(self, step: str, key: Mapping[str, Any]) -> None:
        """Stamp a step as finished.

        Raises:
            StorageError: the stamp cannot be written.
        """
        files.write_json(self._stamp(step), {"step": step, "key": digest(key), "davylamp": __version__})

    def _stamp(self, step: str) -> Path:
        return self.path / ".steps" / f"{step}.json"


def digest(key: Mapping[str, Any]) -> str:
    """A hash of JSON-like data, with the version of davylamp in it."""
    text = json.dumps({"davylamp": __version__, **key}, sort_keys=True, ensure_ascii=False)
    return files.sha256_bytes(text.encode("utf-8", "backslashreplace"))


@contextlib.contextmanager
def locked(folder: Path, *, make: bool = True) -> Iterator[None]:
    """Hold a folder; the lock falls with the process, so that a killed run leaves none behind.

    Args:
        folder: the folder.
        make: make it if it is missing, as the first step does; the later ones must not, or a misspelt name would
            leave an empty folder.

    Raises:
        RunFolderError: another process holds it, it is missing and shall not be made, or its name is not UTF-8.
        StorageError: the folder cannot be made.
    """
    try:
        str(folder).encode("utf-8")
    except UnicodeEncodeError as error:
        # The libraries that save and load models take no other names, and would say so after hours of training.
        raise RunFolderError(f"the name of the folder {folder} is not UTF-8: give another one") from error
    if not make and not folder.is_dir():
        raise RunFolderError(f"there is no run folder {folder}: run `davylamp plant` first")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / ".lock")
        lock.acquire(timeout=0)
    except Timeout as error:
        raise RunFolderError(f"{folder} is in use by another davylamp: wait for it, or give another --out") from error
    except OSError as error:
        raise StorageError(f"cannot use the folder {folder}: {error.strerror or error}") from error
    try:
        yield
    finally:
        lock.release()


@contextlib.contextmanager
def replaced_folder(target: Path) -> Iterator[Path]:
    """A folder to fill, which takes the place of ``target`` when all went well, and vanishes when not.

    Raises:
        StorageError: a file in it cannot be written.
    """
    temporary: Path | None = None
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=f".{target.name}.", suffix=".tmp", dir=target.parent))
        yield temporary
        temporary.chmod(0o777 & ~files.umask())
        _swap(temporary, target)
    except OSError as error:
        raise StorageError(
            f"cannot write {target}: {error.strerror or error}; nothing was left half-written"
        ) from error
    finally:
        if temporary is not None and temporary.exists():
            shutil.rmtree(temporary, ignore_errors=True)


def _swap(new: Path, target: Path) -> None:
    # Moved aside at once and not deleted file by file: a killed process leaves a whole folder or none.
    old = new.with_suffix(".old")
    if target.exists():
        target.replace(old)
    try:
        new.replace(target)
    except OSError:
        if old.exists():
            old.replace(target)
        raise
    shutil.rmtree(old, ignore_errors=True)
