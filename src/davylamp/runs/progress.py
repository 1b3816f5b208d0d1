"""Progress with time left: a bar for people at a terminal, now and then a line where output goes to a file."""

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
EVERY = 60.0
"""Seconds between two lines where there is no terminal."""


class Reporter:
    """Shows what is being done; made once for each command."""

    def __init__(self, quiet: bool = False) -> None:
        """Choose whether to speak.

        Args:
            quiet: say nothing, whatever the terminal.
        """
        self._console = Console(stderr=True)
        self.speaks = not quiet and sys.stderr.isatty()
        self._logs = not quiet and not self.speaks

    def say(self, text: str) -> None:
        """One line on standard error, at a terminal only."""
        if self.speaks:
            self._console.print(text, markup=False, highlight=False)

    @contextlib.contextmanager
    def task(self, description: str, total: int) -> Iterator[Advance]:
        """A task of ``total`` units; a bar with the time left appears once it has taken two seconds.

        Where there is no terminal, a line says how far it is, at most once a minute.
        """
        if not self.speaks:
            yield _Log(description, total) if self._logs else lambda _: None
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


class _Log:
    """Lines on standard error about a task that takes long."""

    def __init__(self, description: str, total: int) -> None:
        self._description, self._total, self._done = description, total, 0
        self._begun = self._said = time.monotonic()

    def __call__(self, units: int) -> None:
        self._done += units
        now = time.monotonic()
        if now - self._said < EVERY or not self._done:
            return
        self._said = now
        gone = now - self._begun
        left = gone / self._done * (self._total - self._done)
        text = f"{self._description}: {self._done} of {self._total} in {gone:,.0f} s, about {left:,.0f} s left"
        print(text, file=sys.stderr, flush=True)


QUIET = Reporter(quiet=True)
"""Says nothing; the default of every library function."""
