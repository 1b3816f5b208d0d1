"""The first answers of a language model: where all of them fail, the others most likely will, at the same price."""

from __future__ import annotations

from collections import Counter

from davylamp.errors import ProtectionError
from davylamp.protect.corpus.base import OnFailure, Protected
from davylamp.runs.progress import Reporter
from davylamp.runs.wording import counted

FIRST = 16
"""Rows that are looked at; by default as many as a checkpoint of this machine writes at a time."""


class Beginning:
    """Watches the first rows that come back from an intervention."""

    def __init__(self, name: str, rows: int, on_failure: OnFailure, reporter: Reporter) -> None:
        """Take the intervention's name, how many rows it was given, and what is done with those that fail."""
        self._name, self._rows, self._on_failure, self._reporter = name, rows, on_failure, reporter
        self._failed: Counter[str] = Counter()
        self._watching = rows > FIRST

    def saw(self, made: Protected) -> None:
        """Look at a row; with ``on_failure=stop`` no more than the first are asked for in vain.

        Raises:
            ProtectionError: the first rows all failed, and the settings say to stop.
        """
        if not self._watching:
            return
        if made.note == "ok":
            self._watching = False
            return
        self._failed[f"{made.note}: {made.reason}" if made.reason else made.note] += 1
        if self._failed.total() < FIRST:
            return
        self._watching = False
        told = "; ".join(f"{count} {reason}" for reason, count in self._failed.most_common())
        said = f"{self._name}: the first {FIRST} rows all failed ({told})"
        if self._on_failure != "stop":
            instead = {"surrogate": "the surrogate rewriter", "drop": "another row's text"}[self._on_failure]
            self._reporter.warn(
                f"{said}; it goes on, and takes {instead} for each that fails (on_failure={self._on_failure}), so that "
                "little of what is written may be the model's"
            )
            return
        raise ProtectionError(
            f"{said}: stopped before the other {counted(self._rows - FIRST, 'row')}; nothing was written, and what was "
            "answered is kept. Take a model that is able, or other settings (max_tokens, stop, prompts). To go on all "
            "the same, say what becomes of rows that fail: on_failure=surrogate takes the surrogate rewriter for them, "
            "on_failure=drop another row's text"
        )
