"""What is kept of a shadow: log-probabilities of the target records, in a file named by a hash of what made them."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from davylamp.runs import files

Array = NDArray[np.float64]
KEPT = ("logprobs", "lengths", "losses")
DAMAGED = (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile)
"""What numpy raises for a file that is damaged, or is none of these."""


@dataclass(frozen=True, slots=True, eq=False)
class Signals:
    """What one model says of the target records.

    Attributes:
        logprobs: for each record that was scored, the log-probability in nats of each token of its reply, in float64.
        losses: mean loss in nats a token of each training step; none for a model that was not trained here.
    """

    logprobs: tuple[Array, ...]
    losses: Array

    def to_bytes(self, note: Mapping[str, Any]) -> bytes:
        """The file's content, the same bytes for the same values, with a note of where they come from."""
        lengths = np.array([len(each) for each in self.logprobs], dtype=np.int64)
        text = json.dumps(note, sort_keys=True).encode()
        stream = io.BytesIO()
        np.savez(
            stream,
            logprobs=np.concatenate([np.empty(0), *self.logprobs]),
            lengths=lengths,
            losses=np.asarray(self.losses, dtype=np.float64),
            note=np.frombuffer(text, dtype=np.uint8),
        )
        return stream.getvalue()


class ShadowStore:
    """The folder of the signals, a file for each key.

    A key is a hash of all that the signals depend on, so that a file that is there needs no training; files of other
    settings stay, and are found again when the settings are those again.
    """

    def __init__(self, folder: Path) -> None:
        """Take a folder, which need not exist yet."""
        self.folder = folder

    def path(self, key: str) -> Path:
        """Where the signals of a key are."""
        return self.folder / f"{key[:32]}.npz"

    def model(self, key: str) -> Path:
        """Where the model of a key is, if it is kept."""
        return self.folder / "models" / key[:32]

    def save(self, key: str, data: bytes) -> None:
        """Write the signals of a key.

        Raises:
            StorageError: they cannot be written.
        """
        files.write_bytes(self.path(key), data)

    def load(self, key: str, lengths: Sequence[int]) -> Signals | None:
        """The signals of a key; nothing if the file is missing, damaged, or does not hold what it should.

        Args:
            key: the key.
            lengths: tokens of each record that was scored.
        """
        try:
            with np.load(self.path(key), allow_pickle=False) as data:
                note = json.loads(bytes(data["note"]))
                logprobs, found, losses = (data[name] for name in KEPT)
        except DAMAGED:
            return None
        whole = note.get("key") == key and found.tolist() == list(lengths) and len(logprobs) == sum(lengths)
        if not whole or not np.isfinite(logprobs).all():
            return None
        return Signals(tuple(np.split(logprobs, np.cumsum(found)[:-1])), losses)
