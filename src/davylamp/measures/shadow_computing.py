"""From what shadows say of the target records to membership scores and counterfactual memorization."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from davylamp.errors import Fault, InputError
from davylamp.measures.counterfactual import TRUNCATION, Memorization, memorization, truncated_loss
from davylamp.measures.shadow_results import UNITS, Cell, Series, Span, TargetRecord, Trials
from davylamp.measures.shadow_scores import (
    OFFLINE_A,
    leave_pairs_out,
    lira_offline,
    lira_online,
    rmia,
    scaled_confidence,
)
from davylamp.secrets import stream

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]
Ints = NDArray[np.int64]
Score = Callable[[Array, Flags, Flags], Array]
"""From the attacked model's log-confidences, the shadows to use and the non-members, to a score for each record."""

LEAST_TRIALS = 6
"""Shadows below which none is attacked in turn: with a pair left out, 2 are left in each world."""


def check_settings(truncation: float, a: float) -> None:
    """Check what scores are computed with, before the training that they need.

    Raises:
        InputError: the truncation is not a finite number above 0, or ``a`` is not between 0 and 1.
    """
    faults = []
    if not 0 < truncation < np.inf:
        faults.append(Fault("--truncation", truncation, "a finite number of nats above 0"))
    if not 0 <= a <= 1:
        faults.append(Fault("a", a, "a number from 0 to 1"))
    if faults:
        raise InputError(faults)


@dataclass(frozen=True, slots=True, eq=False)
class Sight:
    """What the shadows and the audited model say over one span under one probe.

    Attributes:
        probe: what the prompt showed.
        span: ``secret`` or ``reply``.
        records: numbers of the records that the probe applies to, ascending, shape (n,).
        tokens: tokens of the span of each, shape (n,).
        shadows: log-probability of the span in nats, shape (shadows, n).
        audited: the same of the audited model, shape (n,), or none.
    """

    probe: str
    span: Span
    records: Ints
    tokens: Ints
    shadows: Array
    audited: Array | None = None


class Computation:
    """Scores and memorization of one set of shadows.

    Variances are shared by the records of one arm and dose where shadows are few, and records are compared with
    non-members of their own arm. A record that is in no shadow has offline scores only.
    """

    def __init__(
        self,
        records: Sequence[TargetRecord],
        inside: Flags,
        seed: int,
        truncation: float = TRUNCATION,
        a: float = OFFLINE_A,
    ) -> None:
        """Take what is known of the records.

        Args:
            records: the records.
            inside: whether each shadow holds each record, shape (shadows, records).
            seed: seed of the plan, from which the splits of the noise floor are drawn.
            truncation: nats at which the log-loss is cut off.
            a: RMIA's ``a``.
        """
        self._records, self._inside, self._seed = tuple(records), inside, seed
        self._truncation, self._a = truncation, a
        self._arms = _numbers([record.arm for record in records])
        self._groups = _numbers([(record.arm, record.shadow_dose) for record in records])
        self._coined = np.array([record.shadow_dose > 0 for record in records], dtype=bool)
        self._planted = np.array([record.dose > 0 for record in records], dtype=bool)
        self.notes: list[str] = []
        """What could not be computed, and why."""

    def series(self, sight: Sight) -> Iterator[Series]:
        """Scores of the audited model, and memorization, of every record that has them."""
        if sight.audited is not None:
            every, others = np.ones(len(self._inside), dtype=bool), ~self._planted[sight.records]
            own = sight.audited / sight.tokens
            for measure, chosen, score in self._attacks(sight, others[None], "the audited model"):
                yield _series(sight, measure, UNITS[measure], chosen, score(own, every, others))
        chosen = np.flatnonzero(self._coined[sight.records])
        for measure, found in self._memorization(sight, chosen):
            yield _series(sight, measure, UNITS[measure], chosen, found.value, found.error)
            yield _series(sight, f"{measure}_noise", UNITS[measure], chosen, found.noise)

    def trials(self, sight: Sight) -> Iterator[Trials]:
        """Scores of each shadow as the attacked model, itself and its partner left out."""
        count = len(self._inside)
        if count < LEAST_TRIALS:
            self._note(f"no shadow was attacked in turn: that takes {LEAST_TRIALS} shadows, and there are {count}")
            return
        others, own = ~self._inside[:, sight.records], sight.shadows / sight.tokens
        for measure, chosen, score in self._attacks(sight, others, "each shadow"):
            scores = leave_pairs_out(_in_turn(score, own, others), count)
            yield Trials(
                probe=sight.probe,
                span=sight.span,
                measure=measure,
                unit=UNITS[measure],
                records=tuple(sight.records[chosen].tolist()),
                scores=tuple(map(tuple, scores.tolist())),
            )

    def cells(self, sight: Sight) -> Iterator[Cell]:
        """Memorization by arm and dose, with the noise floor."""
        chosen = np.flatnonzero(self._coined[sight.records])
        groups = self._groups[sight.records[chosen]]
        for measure, found in self._memorization(sight, chosen):
            for group in np.unique(groups):
                at = np.flatnonzero(groups == group)
                of = self._records[sight.records[chosen[at[0]]]]
                means, floor = found.differences[:, at].mean(axis=1), found.floor(at)
                yield Cell(
                    probe=sight.probe,
                    span=sight.span,
                    measure=measure,
                    arm=of.arm,
                    shadow_dose=of.shadow_dose,
                    records=len(at),
                    mean=float(means.mean()),
                    mean_error=float(means.std(ddof=1) / np.sqrt(len(means))),
                    floor_rms=floor.rms,
                    floor_q95=floor.q95,
                    floor_mean_q95=floor.mean_q95,
                    truncated=float((sight.shadows[:, chosen[at]] <= -self._truncation).mean()),
                )

    def _attacks(self, sight: Sight, others: Flags, who: str) -> list[tuple[str, Ints, Score]]:
        """Each score, the columns that it is of, and its function.

        Args:
            sight: the signals.
            others: non-members of each model that will be attacked, shape (models, n).
            who: what those are, for notes.
        """
        confidences, inside = sight.shadows / sight.tokens, self._inside[:, sight.records]
        scaled, groups = scaled_confidence(confidences), self._groups[sight.records]
        every, coined = np.arange(len(sight.records)), np.flatnonzero(self._coined[sight.records])
        arms = self._arms[sight.records]

        def online(own: Array, rest: Flags, _: Flags) -> Array:
            part = np.ix_(rest, coined)
            return lira_online(scaled_confidence(own[coined]), scaled[part], inside[part], groups[coined])

        def offline(own: Array, rest: Flags, _: Flags) -> Array:
            return lira_offline(scaled_confidence(own), scaled[rest], inside[rest], groups)

        def relative(name: str, columns: Ints) -> tuple[str, Ints, Score]:
            def score(own: Array, rest: Flags, population: Flags) -> Array:
                found = rmia(own, confidences[rest], inside[rest], population, arms, a=self._a)
                values: Array = {"rmia": found.online, "rmia_offline": found.offline, "rmia_ratio": found.ratio}[name]
                return values[columns]

            return name, columns, score

        attacks: list[tuple[str, Ints, Score]] = [("lira_offline", every, offline)]
        if len(coined):
            attacks.insert(0, ("lira_online", coined, online))
        fewest = min(others[:, arms == arm].sum(axis=1).min() for arm in np.unique(arms))
        if fewest < 2:
            self._note(f"no RMIA of {who}: an arm has {fewest} non-members, and the attack compares with at least 2")
            return attacks
        names = ("rmia", "rmia_ratio") if len(coined) else ()
        return [*attacks, *(relative(name, coined) for name in names), relative("rmia_offline", every)]

    def _memorization(self, sight: Sight, chosen: Ints) -> Iterator[tuple[str, Memorization]]:
        """Memorization by each score, of the records of some columns."""
        if not len(chosen):
            return
        inside, logs = self._inside[:, sight.records[chosen]], sight.shadows[:, chosen]
        for measure, scores in (
            ("counterfactual_probability", np.exp(logs)),
            ("counterfactual_log_loss", 1 - truncated_loss(logs, self._truncation)),
        ):
            # The same splits for every measure and probe, so that their floors can be compared.
            yield measure, memorization(scores, inside, stream(self._seed, "shadow splits"))

    def _note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)


def _in_turn(score: Score, own: Array, others: Flags) -> Callable[[int, Flags], Array]:
    return lambda each, rest: score(own[each], rest, others[each])


def _numbers(labels: Sequence[Hashable]) -> Ints:
    known = {label: number for number, label in enumerate(dict.fromkeys(labels))}
    return np.array([known[label] for label in labels], dtype=np.int64)


def _series(sight: Sight, measure: str, unit: str, chosen: Ints, values: Array, errors: Array | None = None) -> Series:
    return Series(
        probe=sight.probe,
        span=sight.span,
        measure=measure,
        unit=unit,
        records=tuple(sight.records[chosen].tolist()),
        values=tuple(values.tolist()),
        errors=None if errors is None else tuple(errors.tolist()),
    )
