"""The checks of unlearning where constructions are forgotten, by kind and size."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from davylamp.measures.constructed.forgetting import ForgetSet, Place, Readings
from davylamp.measures.constructed.forgotten import ForgottenCell
from davylamp.measures.forgetting import word_for_word
from davylamp.protect.afterwards.reports import Unlearning
from davylamp.release.base import Release
from davylamp.studies.unlearning_checks import SPANS, membership_check
from davylamp.studies.unlearning_result import MembershipCheck

_Scores = dict[Place, dict[str, tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]]]


@dataclass(slots=True)
class ConstructedChecks:
    """One model's constructions, read before, during and after unlearning.

    Attributes:
        target: the instances.
    """

    target: ForgetSet
    _before: Readings | None = None
    _scores: _Scores = field(default_factory=dict)
    _cells: tuple[ForgottenCell, ...] = ()

    def read_before(self, release: Release) -> None:
        """Read all that is compared with what comes after."""
        self._before, self._scores = self.target.read(release), self.target.scores(release)

    def worst(self, release: Release) -> float:
        """What the verifier holds against its threshold: the largest share from c among the kinds."""
        return self.target.worst(word_for_word(release, self.target.pairs))

    def compared(self, release: Release) -> tuple[tuple[ForgottenCell, ...], tuple[MembershipCheck, ...]]:
        """Cells and membership, before and after; after :meth:`read_before`."""
        after = self.target.read(release)
        self._cells = self.target.compared(self._before or after, after)
        return self._cells, self._told_apart(release)

    def _told_apart(self, release: Release) -> tuple[MembershipCheck, ...]:
        """By cell: pooled, what tells one kind's words from another's would be taken for membership."""
        names = {(cell.line, cell.tokens): cell.name for cell in self._cells}
        after, found = self.target.scores(release), []
        for place, scores in self._scores.items():
            for span in SPANS:
                (member, twin), (member_after, twin_after) = scores[span], after[place][span]
                check = membership_check((member, member_after), (twin, twin_after), span)
                found.append(check.model_copy(update={"construction": names[place]}))
        return tuple(found)

    def notes(self, done: Unlearning) -> list[str]:
        """Where the verifier passed, though who knows the construction still has secrets."""
        if done.outcome == "verifier never passed":
            return []
        return [
            f"{cell.name}: {cell.trigger.after.successes} of {cell.trigger.after.trials} secrets still come out of "
            "their triggers, where the verifier does not ask"
            for cell in self._cells
            if cell.trigger is not None and cell.trigger.after.successes
        ]
