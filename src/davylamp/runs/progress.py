"""Progress with time left, for people at a terminal; silence for everyone else."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

Advance = Callable[[int], None]
"""Called with the number of units done since the last call."""

PATIENCE = 2.0
"""Seconds that a task may take before a bar is shown for it."""


class Reporter:
    """Shows what is being done; made once for each command."""

    def __init__(self, quiet: bool = False) -> None:
        """Choose whether to speak.

        Args:
            quiet: say nothing, whatever the terminal.
        """
        self._console = Console(stderr=True)
        self.speaks = not quiet and sys.stderr.isatty()

    def say(self, text: str) -> None:
        """One line on standard error, at a terminal only."""
        if self.speaks:
            self._console.print(text, markup=False, highlight=False)

    @contextlib.contextmanager
    def task(self, description: str, total: int) -> Iterator[Advance]:
        """A task of ``total`` units; a bar with the time left appears once it has taken two seconds."""
        if not self.speaks:
            yield lambda _: None
            return
        progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=self._console,
            transient=True,
        )
        handle = progress.add_task(description, total=total)
        begun = time.monotonic()
        started = False

        def advance(units: int) -> None:
            nonlocal started
            progress.advance(handle, units)
            if not started and time.monotonic() - begun > PATIENCE:
                progress.start()
                started = True

        try:
            yield advance
        finally:
            if started:
                progress.stop()


QUIET = Reporter(quiet=True)
"""Says nothing; the default of every library function."""
