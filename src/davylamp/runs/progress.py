"""Progress with time left: a bar for people at a terminal, now and then a line where output goes to a file."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

Advance = Callable[[int], None]
"""Called with the number of units done since the last call."""

PATIENCE = 2.0
"""Seconds that a task may take before a bar is shown for it."""
EVERY = 60.0
"""Seconds between two lines where there is no terminal."""
SOON = 10.0
"""Seconds before the first of them."""


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

    def warn(self, text: str) -> None:
        """One line on standard error, whether or not there is a terminal; nothing where it is to be quiet."""
        if self.speaks:
            self._console.print(f"warning: {text}", markup=False, highlight=False)
        elif self._logs:
            print(f"warning: {text}", file=sys.stderr, flush=True)

    @contextlib.contextmanager
    def task(self, description: str, total: int) -> Iterator[Advance]:
        """A task of ``total`` units; a bar with the time left appears once it has taken two seconds.

        Where there is no terminal, a line says how far it is and how fast: the first after what is done first, if that
        took ten seconds, the others at most once a minute.
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
            _Speed(),
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


class _Speed(ProgressColumn):
    """How many units are done a second."""

    def render(self, task: Task) -> Text:
        return Text("" if not task.speed else f"{task.speed:.2g}/s")


class _Log:
    """Lines on standard error about a task that takes long."""

    def __init__(self, description: str, total: int) -> None:
        self._description, self._total, self._done = description, total, 0
        self._begun = time.monotonic()
        self._next = self._begun + SOON

    def __call__(self, units: int) -> None:
        self._done += units
        now = time.monotonic()
        if now < self._next or not self._done:
            return
        self._next = now + EVERY
        gone = now - self._begun
        left = gone / self._done * (self._total - self._done)
        done = f"{self._done} of {self._total} in {gone:,.0f} s ({self._done / gone:.2g} a second)"
        text = f"{self._description}: {done}, about {left:,.0f} s left"
        print(text, file=sys.stderr, flush=True)


QUIET = Reporter(quiet=True)
"""Says nothing; the default of every library function."""
