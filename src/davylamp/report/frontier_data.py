"""Interventions for a report: the landscapes in its folder, compared where they may be."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from davylamp.errors import InputError
from davylamp.measures.landscape.model import Landscape
from davylamp.verdict.frontier import frontier
from davylamp.verdict.frontier_model import Frontier


def compared(places: Sequence[tuple[str, Path]]) -> tuple[Frontier | None, tuple[str, ...]]:
    """Compare what stands in a report's folder.

    A report is of whatever runs a folder holds, so that runs that are not alike are no error of its own: why they are
    not compared is said in the comparison's place.

    Args:
        places: landscapes, with the names of their runs.

    Returns:
        The comparison, or why there is none; neither where there are fewer than two landscapes.

    Raises:
        RunFolderError: a landscape is damaged.
    """
    runs = [(name, Landscape.load(path)) for name, path in places]
    if len(runs) < 2:
        return None, ()
    try:
        return frontier(runs), ()
    except InputError as error:
        return None, tuple(map(str, error.faults))
