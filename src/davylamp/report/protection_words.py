"""What was done to the rows before training, in a sentence for each variant."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from davylamp.report.model import Run
from davylamp.report.text import shorten
from davylamp.runs.wording import counted

_NAME = 80
"""Characters of a model's name in a sentence."""


def headlines(runs: Sequence[Run]) -> Iterator[str]:
    """Which models were trained on protected rows, and what of the canaries was left in those."""
    found: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for run in runs:
        note = (run.training or {}).get("protection")
        if isinstance(note, Mapping):
            who = "" if len(runs) == 1 else f"{shorten(run.name if run.variant is None else run.variant, _NAME)}: "
            found.setdefault((who, str(note.get("title"))), []).append(note)
    for (who, title), notes in found.items():
        surviving, copies, control = (
            sum(int(note.get(key) or 0) for note in notes) for key in ("surviving", "copies", "control_rows")
        )
        yield (
            f"{who}{'the' if who else 'The'} rows were protected before training ({title}): {surviving:,} of "
            f"{counted(copies, 'copy', 'copies')} of canaries still held their secret word for word; "
            f"{counted(control, 'row')} of the positive control {'was' if control == 1 else 'were'} left as planted."
        )
