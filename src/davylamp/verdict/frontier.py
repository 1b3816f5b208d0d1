"""Interventions side by side: what each costs in capability, and what it buys in privacy."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal

from davylamp import __version__
from davylamp.errors import Fault, InputError
from davylamp.measures.landscape.model import Landscape
from davylamp.verdict.correlation import LEAST, spearman
from davylamp.verdict.frontier_checks import Named, common_seeds, comparison_faults
from davylamp.verdict.frontier_estimates import Sums, crossed_mean, nested_mean
from davylamp.verdict.frontier_metrics import (
    EXPOSURE,
    METRICS,
    RANKED,
    VERBATIM,
    Settings,
    by_dose,
    canary_nats,
    goodness,
    pooled,
    text_sums,
    values_of,
)
from davylamp.verdict.frontier_model import (
    CAPABILITY,
    PRIVACY,
    Arrow,
    AtDose,
    Change,
    Correlation,
    Front,
    Frontier,
    Row,
)
from davylamp.verdict.frontier_ranks import Ranks, mean_ranks
from davylamp.verdict.pareto import pareto

AXES = (CAPABILITY, PRIVACY, *(metric.key for metric in METRICS))
"""What an axis may be: the mean ranks, or a metric."""
ORDER = (
    *("none", "direct", "goldfish", "dp", "dp_sgd", "scrub", "surrogate"),
    *("rewrite", "privacy_rewrite", "summary", "privacy_summary"),
)
"""Interventions that are listed first, in this order; others come after them by name."""
_PLAIN = re.compile(r"(?<![A-Za-z_])(rewrite|summary)(?![A-Za-z_])")


def frontier(
    runs: Sequence[Named],
    x: str = CAPABILITY,
    y: str = PRIVACY,
    doses: Sequence[int] | None = None,
    confidence: float = 0.95,
    resamples: int = 2000,
) -> Frontier:
    """Compare interventions on the same canaries, records and base model.

    Args:
        runs: landscapes with the names of their runs; a run is one intervention with one seed.
        x: the horizontal axis, one of :data:`AXES`.
        y: the vertical one.
        doses: pool canaries of these doses only; all doses if none.
        confidence: of every interval, in (0, 1).
        resamples: of every bootstrap, at least 100.

    Raises:
        InputError: there is no run, an argument is outside its range, or runs are not comparable: other canaries,
            another base, other held-out or test records, another question; all faults are named.
    """
    faults = [Fault(name, axis, f"one of {', '.join(AXES)}") for name, axis in (("x", x), ("y", y)) if axis not in AXES]
    if x == y:
        faults.append(Fault("y", y, "another axis than x"))
    if not 0 < confidence < 1:
        faults.append(Fault("confidence", confidence, "a number above 0 and below 1"))
    if resamples < 100:
        faults.append(Fault("resamples", resamples, "a whole number of at least 100"))
    if not runs:
        faults.append(Fault("runs", [], "at least one landscape"))
    else:
        faults += comparison_faults(runs)
    planted = sorted({leak.dose for _, each in runs for leak in each.canaries if leak.role == "focus"})
    if doses is not None and (not doses or not {*doses} <= {*planted}):
        faults.append(Fault("doses", list(doses), f"some of {', '.join(map(str, planted))}, the doses planted"))
    if faults:
        raise InputError(faults)
    settings = Settings(tuple(planted if doses is None else sorted({*doses})), confidence, resamples)
    return _compare(runs, settings, (x, y))


def _compare(runs: Sequence[Named], settings: Settings, axes: tuple[str, str]) -> Frontier:
    seeds = common_seeds(runs)
    held = _by_intervention(runs)
    together = {name: [own[seed] for seed in seeds] for name, own in held.items()}
    ranks = mean_ranks(together, settings)
    rows = tuple(_row(name, None, own, ranks, settings) for name, own in together.items())
    landscapes = [landscape for _, landscape in runs]
    return Frontier(
        davylamp_version=__version__,
        confidence=settings.confidence,
        resamples=settings.resamples,
        x=axes[0],
        y=axes[1],
        base=next((each.base.name for each in landscapes if each.base is not None), None),
        candidates=landscapes[0].canaries[0].candidates,
        seeds=seeds,
        doses=settings.doses,
        metrics=METRICS,
        rows=rows,
        by_seed=tuple(_by_seed(held, settings)),
        fronts=tuple(_fronts(rows, ranks, axes)),
        arrows=tuple(_arrows(together, settings)),
        correlations=tuple(_correlations(rows)),
        notes=tuple([*_notes(held, seeds, landscapes), *_twins(rows)]),
    )


def _by_intervention(runs: Sequence[Named]) -> dict[str, dict[int, Landscape]]:
    held: dict[str, dict[int, Landscape]] = {}
    for _, landscape in runs:
        held.setdefault(landscape.intervention, {})[landscape.seed] = landscape
    order = {name: at for at, name in enumerate(ORDER)}
    return {name: held[name] for name in sorted(held, key=lambda name: (order.get(name, len(order)), name))}


def _row(name: str, seed: int | None, own: Sequence[Landscape], ranks: Ranks, settings: Settings) -> Row:
    return Row(
        intervention=name,
        seed=seed,
        seeds=tuple(landscape.seed for landscape in own),
        values=values_of(own, settings),
        ranks=ranks.of[name],
        doses=by_dose(own, settings),
    )


def _by_seed(held: Mapping[str, Mapping[int, Landscape]], settings: Settings) -> Iterator[Row]:
    """Every intervention and seed, ranked among the interventions that have that seed."""
    every = sorted({seed for own in held.values() for seed in own})
    ranks = {
        seed: mean_ranks({name: [own[seed]] for name, own in held.items() if seed in own}, settings) for seed in every
    }
    for name, own in held.items():
        for seed in sorted(own):
            yield _row(name, seed, [own[seed]], ranks[seed], settings)


def _fronts(rows: Sequence[Row], ranks: Ranks, axes: tuple[str, str]) -> Iterator[Front]:
    sides = {side: [metric.key for metric in METRICS if metric.side == side] for side in (PRIVACY, CAPABILITY)}
    pairs = [(CAPABILITY, PRIVACY), *((x, y) for y in sides[PRIVACY] for x in sides[CAPABILITY])]
    for x, y in dict.fromkeys([*pairs, axes]):
        if len(rows) < 2:
            return
        members = pareto([good(row, x) for row in rows], [good(row, y) for row in rows])
        yield Front(
            x=x,
            y=y,
            members=tuple(row.intervention for row, member in zip(rows, members, strict=True) if member),
            shares=ranks.shares if (x, y) == (CAPABILITY, PRIVACY) else {},
        )


def good(row: Row, axis: str) -> float:
    """Where an intervention stands on an axis, turned so that higher is better."""
    return row.ranks[axis].value if axis in (CAPABILITY, PRIVACY) else goodness(row.values, axis)


def _arrows(runs: Mapping[str, Sequence[Landscape]], settings: Settings) -> Iterator[Arrow]:
    for before in runs:
        after = _PLAIN.sub(lambda found: f"privacy_{found[1]}", before)
        if after != before and after in runs:
            changes = tuple(_change(key, runs[before], runs[after], settings) for key in RANKED)
            yield Arrow(before=before, after=after, changes=changes)


def _change(key: str, before: Sequence[Landscape], after: Sequence[Landscape], settings: Settings) -> Change:
    metric = next(metric for metric in METRICS if metric.key == key)
    if metric.side == PRIVACY:
        pairs = [
            [
                canary_nats(sorted(pooled(each, settings.doses), key=lambda leak: leak.id), key)
                for each in (first, second)
            ]
            for first, second in zip(before, after, strict=True)
        ]
        mean, low, high = nested_mean([second - first for first, second in pairs], settings.confidence)
    else:
        one, other = text_sums(before, key), text_sums(after, key)
        mean, low, high = crossed_mean(Sums(other.nats - one.nats, one.weights), settings.confidence)
    word: Literal["better", "worse", "not told apart"] = "not told apart"
    if low is not None and high is not None and not low <= 0 <= high:
        word = "better" if (low > 0) == metric.higher_is_better else "worse"
    ends = [None if each is None else _exp(each) for each in (low, high)]
    return Change(metric=key, ratio=_exp(mean), low=ends[0], high=ends[1], word=word)


def _exp(nats: float) -> float:
    # The end of an interval over two seeds may be more than a float holds.
    return math.exp(min(max(nats, -700.0), 700.0))


def _correlations(rows: Sequence[Row]) -> Iterator[Correlation]:
    for place, first in enumerate(METRICS):
        for second in METRICS[place + 1 :]:
            found = spearman(*([goodness(row.values, metric.key) for row in rows] for metric in (first, second)))
            yield Correlation(
                first=first.key,
                second=second.key,
                n=found.n,
                rho=found.rho,
                p=found.p,
                method=found.method,
                reason=found.reason,
            )


def _notes(
    held: Mapping[str, Mapping[int, Landscape]], seeds: Sequence[int], landscapes: Sequence[Landscape]
) -> Iterator[str]:
    names = list(held)
    if len(names) == 1:
        yield f"There is one intervention, {names[0]}: nothing to rank it against, no Pareto set and no correlation."
    elif len(names) == 2:
        yield (
            "There are two interventions: a mean rank says only which of the two is better on how many of two metrics."
        )
    if 1 < len(names) < LEAST:
        yield f"With {len(names)} interventions no correlation of metrics is given: at least {LEAST} are needed."
    left = {name: sorted({*own} - {*seeds}) for name, own in held.items() if {*own} - {*seeds}}
    if left:
        said = "; ".join(f"{name}: {', '.join(map(str, own))}" for name, own in left.items())
        yield f"Seeds that not all interventions have are rows of their own, and are not pooled: {said}."
    if len(seeds) == 1:
        yield "There is one seed: intervals are over canaries and records, and say nothing of another training."
    elif len(seeds) < 5:
        yield (
            f"There are {len(seeds)} seeds: intervals of perplexities over so few are wide, and those of mean ranks, "
            "by the bootstrap, rough."
        )
    if "none" not in held:
        yield "No run is of the untrained model (`none`): what the canaries cost without any training is not shown."
    if any(each.base is None for each in landscapes):
        yield "Of some runs nobody knows from which model they were trained; they are taken to be of the same one."
    yield from dict.fromkeys(note for each in landscapes for note in each.notes)


def _twins(rows: Sequence[Row]) -> Iterator[str]:
    """How far perplexities differ where nothing can be remembered, and that exposure does not."""
    own = [(dose, row.intervention) for row in rows for dose in row.doses if not dose.dose]
    if len(own) < 2:
        return
    least, most = _extremes(own, VERBATIM, _digits)
    lowest, highest = _extremes(own, EXPOSURE, "{:.2f}".format)
    counts = sorted({twins.canaries for twins, _ in own})
    bare = ", too few for an interval of a median" if own[0][0].values[EXPOSURE].low is None else ""
    yield (
        f"Twins ({' or '.join(map(str, counts))} for each intervention{bare}), which were planted nowhere, have "
        f"verbatim perplexities from {least} to {most}: so much of a difference is how well a model spells such "
        f"secrets, and nothing that it remembers. Exposure is free of it: their median is from {lowest} to {highest} "
        "bits, where a random rank has 1."
    )


def _extremes(own: Sequence[tuple[AtDose, str]], key: str, form: Callable[[float], str]) -> Iterator[str]:
    """The least and the greatest value with its interval and the intervention's name."""
    for twins, name in (choose(own, key=lambda each: each[0].values[key].value) for choose in (min, max)):
        each = twins.values[key]
        between = "" if each.low is None or each.high is None else f" [{form(each.low)}, {form(each.high)}]"
        yield f"{form(each.value)}{between} ({name})"


def _digits(value: float) -> str:
    # What rounds to a thousand is written out, as what lies above.
    return f"{value:.3g}" if value < 999.5 else f"{value:,.0f}" if value < 1e6 else ">1,000,000"
