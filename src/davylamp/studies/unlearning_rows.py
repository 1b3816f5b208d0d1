"""The rows that a run's model was trained on: which of them are forgotten, and which are background."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from davylamp.canaries import Manifest
from davylamp.canaries.manifest import Canary
from davylamp.corpora.readers import read_corpus
from davylamp.corpora.records import Record
from davylamp.errors import Fault, InputError, RunFolderError
from davylamp.protect.afterwards.sets import background_rows
from davylamp.protect.corpus.result import PROTECTED, protected_rows
from davylamp.runs.folder import RunFolder
from davylamp.studies.steps import read_training


@dataclass(frozen=True, slots=True)
class TrainedRows:
    """What a model was trained on.

    Attributes:
        records: its rows, at the positions of the planted file.
        file: the name of their file.
        protection: the interventions that made them of the planted rows, in a few words; nothing where none did.
    """

    records: tuple[Record, ...]
    file: str
    protection: str | None = None

    def background(self, manifest: Manifest) -> list[Record]:
        """Rows in whose place no canary and no construction was planted."""
        return background_rows(manifest, self.records)

    def of_canaries(self, manifest: Manifest, canaries: Sequence[Canary]) -> list[Record]:
        """The rows in the places of canaries, copies and all.

        Rows that a background row equals are left out: one stands where a canary's row was dropped, and is not to be
        forgotten while it is kept.

        Raises:
            InputError: none is left.
        """
        others = {*self.background(manifest)}
        own = [self.records[at] for canary in canaries for at in canary.positions]
        found = [record for record in own if record not in others]
        if not found:
            allowed = "at least one row of the chosen canaries that no background row equals"
            fix = "Nothing of them was trained on: there is nothing to forget."
            raise InputError(Fault("forget set", f"0 of {len(own)} rows of {self.file}", allowed, fix))
        return found


def trained_rows(folder: RunFolder, manifest: Manifest) -> TrainedRows:
    """The rows that the folder's own model was trained on, by its ``training.json``.

    Raises:
        RunFolderError: it was trained on protected rows that are not there any more.
    """
    note = read_training(folder).get("protection")
    if note is None:
        return TrainedRows(read_corpus(folder.planted).records, folder.planted.name)
    found = protected_rows(folder, manifest)
    if found is None or found[0].protected_sha256 != note["protected_sha256"]:
        raise RunFolderError(
            f"{folder.model} was trained on protected rows ({note['title']}) that are not those of "
            f"{folder.path / PROTECTED}: run `davylamp train` again"
        )
    return TrainedRows(found[1], PROTECTED, str(note["title"]))
