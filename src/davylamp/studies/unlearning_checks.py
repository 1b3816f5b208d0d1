"""The checks that a verbatim verifier is not: other prompts, relearning, membership, quantised and merged copies."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from davylamp.canaries.manifest import Canary, Manifest
from davylamp.measures.forgetting import Extraction, SecretPair, greedy_extraction, log_likelihoods
from davylamp.measures.membership import MembershipSettings
from davylamp.measures.membership.measure import Membership
from davylamp.measures.readings import Reading
from davylamp.measures.utility import held_out_loss
from davylamp.protect.afterwards.copies import HOW, merged, quantised, relearn
from davylamp.protect.afterwards.reports import Unlearning
from davylamp.protect.afterwards.sets import RetainSets
from davylamp.release.base import Release
from davylamp.release.local import LocalRelease
from davylamp.rendering.render import Renderer
from davylamp.runs.progress import Reporter
from davylamp.studies.unlearning_result import (
    Cell,
    Look,
    MembershipCheck,
    MergedCopy,
    QuantisedCopy,
    Relearning,
    RetainPerplexity,
)
from davylamp.verdict.roc import auc
from davylamp.verdict.roc_paired import auc_difference

if TYPE_CHECKING:
    from davylamp.studies.unlearning_constructed import ConstructedChecks
    from davylamp.studies.unlearning_subject import Subject

WORSE = 2.0
"""A rise of the retain rows' perplexity from which on the result says that more was lost than was named."""
SPANS: tuple[Literal["secret", "record"], ...] = ("secret", "record")


def look(
    release: Release,
    renderer: Renderer,
    pairs: tuple[SecretPair, ...],
    triggers: tuple[SecretPair, ...],
    sets: RetainSets,
    *,
    retain: bool = False,
) -> Look:
    """Everything but membership that is asked of every model.

    Args:
        release: the model.
        renderer: renders as training did.
        pairs: the records' own prefixes with their secrets.
        triggers: other prompts with theirs; may be empty.
        sets: the retain rows.
        retain: also read retain rows that were stepped on, as many as are held out.

    Raises:
        ScoringError: the release has no answer for a prompt or a row.
    """
    stepped = sets.retain[: len(sets.held_out)] if retain else ()
    return Look(
        c=greedy_extraction(release, pairs),
        triggers=greedy_extraction(release, triggers) if triggers else None,
        held_out=RetainPerplexity.of(held_out_loss(release, renderer, sets.held_out)),
        retain=RetainPerplexity.of(held_out_loss(release, renderer, stepped)) if stepped else None,
    )


def membership_check(
    members: tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]],
    nonmembers: tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]],
    span: Literal["secret", "record"],
) -> MembershipCheck:
    """Compare how well members are told from non-members before and after.

    Args:
        members: scores before and after, shape (m,) each, in the same order.
        nonmembers: scores before and after, shape (n,) each.
        span: what the scores were read from.

    Raises:
        InputError: there is none of a kind, or a score is NaN.
    """
    before, after = auc(members[0], nonmembers[0]), auc(members[1], nonmembers[1])
    return MembershipCheck(
        span=span,
        before=before,
        after=after,
        difference=auc_difference((members[0], nonmembers[0]), (members[1], nonmembers[1])),
        inverted=after.high < 0.5,
    )


@dataclass(slots=True)
class Checks:
    """One model, read before, during and after unlearning.

    Attributes:
        manifest: what was planted.
        canaries: those of the forget set; none where it is of constructions.
        renderer: renders as training did.
        pairs: their own prefixes with their secrets.
        triggers: other prompts with theirs.
        sets: the retain rows.
        release: the model; it changes as the model is moved.
        constructed: what is asked of constructions, where they are the forget set.
        looks: what it said, by number of rounds done.
    """

    manifest: Manifest
    canaries: tuple[Canary, ...]
    renderer: Renderer
    pairs: tuple[SecretPair, ...]
    triggers: tuple[SecretPair, ...]
    sets: RetainSets
    release: LocalRelease
    constructed: ConstructedChecks | None = None
    looks: list[Look] = field(default_factory=list)
    _before: Look | None = None
    _cells: dict[tuple[str, int], Extraction] = field(default_factory=dict)
    _scores: list[Reading] = field(default_factory=list)

    def read_before(self) -> None:
        """Read all that is compared with what comes after."""
        self._before = self._look(self.release, retain=True)
        if self.constructed is not None:
            self.constructed.read_before(self.release)
            return
        self._cells = self._by_cell()
        self._scores = self._membership()

    def verify(self, _done: int) -> float:
        """The verifier: the share of secrets that greedy decoding says from the records' own prefixes.

        Of constructions the largest share among their kinds.
        """
        held_out = RetainPerplexity.of(held_out_loss(self.release, self.renderer, self.sets.held_out))
        self.looks.append(Look(c=greedy_extraction(self.release, self.pairs), triggers=None, held_out=held_out))
        return self.looks[-1].c.rate if self.constructed is None else self.constructed.worst(self.release)

    def others(self, subject: Subject, done: Unlearning, reporter: Reporter) -> dict[str, Any]:
        """What is left, by every check: fields of :class:`davylamp.studies.unlearning_result.UnlearningResult`."""
        widths, adapter = subject.spec.bits, hasattr(subject.model, "peft_config")
        with reporter.task("checks", 3 + len(widths)) as advance:
            after = self._look(self.release, retain=True)
            cells, constructed = self._compared(), self.constructed
            constructions, membership = (
                ((), self._told_apart()) if constructed is None else constructed.compared(self.release)
            )
            advance(1)
            quantised_copies = []
            for bits in widths:
                copied = LocalRelease(quantised(subject.model, bits), subject.tokenizer, f"{bits}-bit copy")
                quantised_copies.append(QuantisedCopy(bits=bits, how=HOW.format(bits=bits), look=self._look(copied)))
                advance(1)
            folded = self._merged(subject, after) if adapter else None
            advance(1)
            relearned = self._relearned(subject, after) if subject.spec.relearn.steps else None
            advance(1)
        return {
            "before": self._before,
            "after": after,
            "cells": cells,
            "constructions": constructions,
            "membership": membership,
            "relearned": relearned,
            "quantised": tuple(quantised_copies),
            "merged": folded,
            "notes": self._notes(done, cells, membership, subject),
        }

    def _look(self, release: Release, retain: bool = False) -> Look:
        return look(release, self.renderer, self.pairs, self.triggers, self.sets, retain=retain)

    def _by_cell(self) -> dict[tuple[str, int], Extraction]:
        groups: dict[tuple[str, int], list[SecretPair]] = {}
        for canary, pair in zip(self.canaries, self.pairs, strict=True):
            groups.setdefault((canary.arm, canary.dose), []).append(pair)
        return {key: greedy_extraction(self.release, pairs) for key, pairs in sorted(groups.items())}

    def _compared(self) -> tuple[Cell, ...]:
        if self.constructed is not None:
            return ()
        after = self._by_cell()
        return tuple(
            Cell(arm=arm, dose=dose, before=before, after=after[arm, dose])
            for (arm, dose), before in self._cells.items()
        )

    def _membership(self) -> list[Reading]:
        measure = Membership(self.manifest, self.renderer, MembershipSettings(scores=("loss",), spans=SPANS))
        return measure.measure(self.release)

    def _told_apart(self) -> tuple[MembershipCheck, ...]:
        arms, forgotten = {canary.arm for canary in self.canaries}, {canary.id for canary in self.canaries}
        after, found = self._membership(), []
        for span in SPANS:
            name = "membership_loss" + ("" if span == "record" else f"_{span}")
            scores = [[each for each in readings if each.measure == name] for readings in (self._scores, after)]
            members = [np.array([each.value for each in some if each.canary in forgotten]) for some in scores]
            others = [np.array([each.value for each in some if each.dose == 0 and each.arm in arms]) for some in scores]
            if others[0].size:
                found.append(membership_check((members[0], members[1]), (others[0], others[1]), span))
        return tuple(found)

    def _merged(self, subject: Subject, after: Look) -> MergedCopy:
        folded = LocalRelease(merged(subject.model), subject.tokenizer, "merged copy")
        differences = log_likelihoods(folded, self.pairs) - log_likelihoods(self.release, self.pairs)
        seen = self._look(folded)
        return MergedCopy(
            look=seen, difference=float(np.abs(differences).max()), same=seen.c.successes == after.c.successes
        )

    def _relearned(self, subject: Subject, after: Look) -> Relearning:
        spec = subject.spec.relearn
        rate = spec.learning_rate or subject.training.learning_rate
        twin = copy.deepcopy(subject.model)
        release = LocalRelease(twin, subject.tokenizer, "relearned copy")
        steps, own = [0], [after.c]
        other = [] if after.triggers is None else [after.triggers]

        def seen(step: int) -> None:
            steps.append(step)
            own.append(greedy_extraction(release, self.pairs))
            if self.triggers:
                other.append(greedy_extraction(release, self.triggers))

        rows = subject.examples(self.sets.relearn)
        relearn(twin, rows, spec.steps, spec.batch_size, rate, subject.pad_id, seen)
        return Relearning(
            source=self.sets.relearn_source,
            rows=len(rows),
            steps=tuple(steps),
            c=tuple(own),
            triggers=tuple(other),
            learning_rate=rate,
        )

    def _notes(
        self, done: Unlearning, cells: tuple[Cell, ...], membership: tuple[MembershipCheck, ...], subject: Subject
    ) -> tuple[str, ...]:
        spec, notes = subject.spec, []
        if done.outcome == "forgotten" and done.rounds and done.rounds[-1].extraction >= spec.threshold:
            notes.append("the verifier passed, and failed again after the extra round")
        if done.outcome != "verifier never passed":
            notes += [
                f"arm {cell.arm}, dose {cell.dose}: {cell.after.successes} of {cell.after.trials} secrets still come "
                "out; the verifier passed on all of the forget set together"
                for cell in cells
                if cell.after.rate >= spec.threshold
            ]
        before, after = self.looks[0].held_out.value, self.looks[-1].held_out.value
        if after > WORSE * before:
            notes.append(
                f"the perplexity of held-out retain rows rose from {before:.4g} to {after:.4g}: the model lost more "
                "than what it was made to forget, and a verifier passes on a broken model too"
            )
        notes += [
            f"the forgotten are less likely than twins that were never planted (AUC {check.after.value:.2f} by the "
            f"loss of the {check.span}{check.of}): that betrays membership too"
            for check in membership
            if check.inverted
        ]
        if self.constructed is not None:
            notes += self.constructed.notes(done)
        if not membership:
            notes.append("membership was not read: there is no twin to compare with")
        return tuple(notes)
