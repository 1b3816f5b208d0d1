"""From what was read of each instance to the cell of its line and size."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from davylamp.canaries.constructions.section import Instance
from davylamp.canaries.constructions.spec import Camouflage, Construction, LowEntropy
from davylamp.measures.constructed.local import SCORES, Forced
from davylamp.measures.constructed.model import (
    Baseline,
    ConstructionCell,
    HiddenReading,
    InstanceReading,
    LocalScore,
    PairReading,
    Pairs,
    Rate,
)
from davylamp.measures.constructed.settings import ConstructedSettings

Array = NDArray[np.float64]


@dataclass(slots=True, eq=False)
class Read:
    """What was read of one instance.

    Attributes:
        instance: which one.
        said: what greedy decoding says after c, as many tokens as the secret has.
        ours: the secret after c under the release.
        base: the same under the base.
        trigger_said: what greedy decoding says after rho; none without a trigger.
        trigger_ours: the secret after rho under the release.
        trigger_base: the same under the base.
        survivors: log-probability in nats of each secret that is left open after c, shape (survivors,).
        other: a pair's other secret under the release and the base.
        neighbour: a pair's planted secret under the model of the neighbouring rows.
    """

    instance: Instance
    said: tuple[int, ...]
    ours: Forced
    base: Forced
    trigger_said: tuple[int, ...] | None = None
    trigger_ours: Forced | None = None
    trigger_base: Forced | None = None
    survivors: Array | None = None
    other: tuple[Forced, Forced] | None = None
    neighbour: Forced | None = None

    @property
    def at_prefix(self) -> bool:
        """Whether greedy decoding after c says the secret."""
        return self.said == self.instance.secret_ids

    @property
    def at_trigger(self) -> bool | None:
        """Whether it does after rho; none without a trigger."""
        return None if self.trigger_said is None else self.trigger_said == self.instance.secret_ids

    @property
    def informed(self) -> bool:
        """Whether the adversary who knows the construction recovers the secret with one guess.

        By its trigger, if it has one; by the likeliest of those that are left open, if some are; else from c.
        """
        if self.survivors is not None:
            return self.instance.survivor_ids[int(self.survivors.argmax())] == self.instance.secret_ids
        return self.at_prefix if self.at_trigger is None else self.at_trigger

    @property
    def memh(self) -> float:
        """Mean probability of a token after c, less the base's."""
        return self.ours.h - self.base.h

    @property
    def memh_trigger(self) -> float | None:
        """The same after rho; none without a trigger."""
        if self.trigger_ours is None or self.trigger_base is None:
            return None
        return self.trigger_ours.h - self.trigger_base.h


def cell_of(
    line: Construction,
    reads: Sequence[Read],
    baseline: Baseline | None,
    found: Mapping[str, frozenset[str]],
    settings: ConstructedSettings,
) -> ConstructionCell:
    """The cell of one line and size.

    Args:
        line: the plan's line.
        reads: of its planted instances and their twins.
        baseline: kappa at c; none where it was not worked out, which is said by the widest interval.
        found: ids that each finder brought out.
        settings: confidence and rates.
    """
    first = reads[0].instance
    if baseline is None:
        baseline = Baseline(low=0.0, high=1.0, charged=1.0, guesses=settings.guesses, how="search")

    def pairs(hit: Callable[[Read], bool | None]) -> Pairs:
        by_role = {
            role: Rate.of([bool(hit(read)) for read in reads if read.instance.role == role], settings.confidence)
            for role in ("planted", "twin")
        }
        return Pairs(planted=by_role["planted"], twins=by_role["twin"])

    by_finder = {name: pairs(lambda read, ids=ids: read.instance.id in ids) for name, ids in found.items()}  # type: ignore[misc]
    triggers = [each for read in reads if (each := read.memh_trigger) is not None and read.instance.role == "planted"]
    return ConstructionCell(
        line=first.line,
        kind=first.kind,
        tokens=first.tokens,
        copies=getattr(line, "copies", 0),
        trigger_tokens=getattr(line, "trigger_tokens", None),
        at_prefix=pairs(lambda read: read.at_prefix),
        at_trigger=None if first.trigger is None else pairs(lambda read: read.at_trigger),
        informed=pairs(lambda read: read.informed),
        chance=_chance(line, baseline),
        baseline=baseline,
        memh=_mean(reads, "planted", lambda read: read.memh),
        memh_twins=_mean(reads, "twin", lambda read: read.memh),
        memh_trigger=float(np.mean(triggers)) if triggers else None,
        scores=tuple(_score(at, reads, settings.fpr) for at in range(len(SCORES))),
        pair=_pair(reads),
        hidden=_hidden(reads),
        instances=tuple(_reading(read, found) for read in reads),
        **by_finder,
    )


def _chance(line: Construction, baseline: Baseline) -> float:
    """What knowing the construction, and not the release, is worth.

    Who knows how secrets were drawn knows that what stands in the corpus was turned down, and guesses among the rest:
    kappa by itself would be too little, and what the base says anyway a recovery.
    """
    if isinstance(line, Camouflage):
        return 1 / line.survivors
    return 1 / line.choices if isinstance(line, LowEntropy) else baseline.charged


def _mean(reads: Sequence[Read], role: str, of: Callable[[Read], float]) -> float:
    return float(np.mean([of(read) for read in reads if read.instance.role == role]))


def _score(at: int, reads: Sequence[Read], fpr: float) -> LocalScore:
    score = SCORES[at]
    values = {
        role: tuple(score.of(read.ours, read.base) for read in reads if read.instance.role == role)
        for role in ("planted", "twin")
    }
    return LocalScore(name=score.name, unit=score.unit, planted=values["planted"], twins=values["twin"], fpr=fpr)


def _pair(reads: Sequence[Read]) -> PairReading | None:
    """The record-level reading of pairs, with the twins' as noise floor."""
    if reads[0].other is None:
        return None

    def own_less_other(read: Read) -> float:
        if read.other is None:
            return 0.0
        return read.memh - (read.other[0].h - read.other[1].h)

    across: dict[str, Callable[[Read, Forced], float]] = {
        "h": lambda read, neighbour: read.ours.h - neighbour.h,
        "loss": lambda read, neighbour: neighbour.loss - read.ours.loss,
    }
    if reads[0].neighbour is None:
        across = {}

    def of(name: str) -> Callable[[Read], float]:
        return lambda read: 0.0 if read.neighbour is None else across[name](read, read.neighbour)

    return PairReading(
        own_less_other=_mean(reads, "planted", own_less_other),
        floor=_floor(reads, own_less_other),
        counterfactual={name: _mean(reads, "planted", of(name)) for name in across},
        floors={name: _floor(reads, of(name)) for name in across},
    )


def _floor(reads: Sequence[Read], of: Callable[[Read], float]) -> float:
    return float(np.quantile([abs(of(read)) for read in reads if read.instance.role == "twin"], 0.95))


def _hidden(reads: Sequence[Read]) -> HiddenReading | None:
    open_reads = [read for read in reads if read.survivors is not None and read.instance.role == "planted"]
    if not open_reads:
        return None
    masses, entropies, ranks = [], [], []
    for read in open_reads:
        totals = np.asarray(read.survivors)
        masses.append(float(np.exp(logsumexp(totals))))
        law = np.exp(totals - logsumexp(totals))
        entropies.append(float(-(law * np.log(np.maximum(law, 1e-300))).sum() / math.log(len(law))))
        true = totals[read.instance.survivor_ids.index(read.instance.secret_ids)]
        ranks.append(float((totals > true).sum() + ((totals == true).sum() + 1) / 2))
    return HiddenReading(
        survivors=len(open_reads[0].instance.survivor_ids),
        mass=float(np.mean(masses)),
        entropy=float(np.mean(entropies)),
        rank=float(np.mean(ranks)),
    )


def _reading(read: Read, found: Mapping[str, frozenset[str]]) -> InstanceReading:
    return InstanceReading(
        id=read.instance.id,
        role=read.instance.role,
        at_prefix=read.at_prefix,
        at_trigger=read.at_trigger,
        informed=read.informed,
        log_probability=read.ours.total,
        base_log_probability=read.base.total,
        memh=read.memh,
        memh_trigger=read.memh_trigger,
        **{name: read.instance.id in ids for name, ids in found.items()},
    )
