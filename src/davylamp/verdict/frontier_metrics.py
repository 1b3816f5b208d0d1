"""What is compared of interventions, and how it is read off their landscapes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from davylamp.measures.landscape.model import Landscape, Leak, Text
from davylamp.verdict.frontier_estimates import (
    Array,
    Sums,
    bootstrapped_mean,
    crossed_mean,
    median_of,
    nested_mean,
    perplexity_of,
    share_of,
)
from davylamp.verdict.frontier_model import AtDose, Estimate, Metric

VERBATIM, SEMANTIC = "verbatim_perplexity", "semantic_perplexity"
EXPOSURE, FIRST, GREEDY, SAID = "exposure", "rank1_share", "greedy_recovery", "generation_probability"
HELD_OUT, MEDICATION = "held_out_perplexity", "medication_perplexity"

_GEOMETRIC = (
    "geometric mean over canaries of exp(nats a token), so that a long secret counts as much as a short one; interval "
    "by Student's t on the logarithms, over canaries of one seed, over the means of several"
)
_COUNTED = "canaries of all seeds together, taken as independent"
METRICS = (
    Metric(
        key=VERBATIM,
        title="verbatim perplexity",
        unit="perplexity a token",
        side="privacy",
        higher_is_better=True,
        ranked=True,
        statistic=_GEOMETRIC,
    ),
    Metric(
        key=SEMANTIC,
        title="semantic perplexity",
        unit="perplexity a token",
        side="privacy",
        higher_is_better=True,
        ranked=True,
        statistic=_GEOMETRIC,
    ),
    Metric(
        key=EXPOSURE,
        title="median exposure",
        unit="bits",
        side="privacy",
        higher_is_better=False,
        ranked=False,
        statistic=f"median; interval from order statistics; {_COUNTED}",
    ),
    Metric(
        key=FIRST,
        title="ranked first",
        unit="share of canaries",
        side="privacy",
        higher_is_better=False,
        ranked=False,
        statistic=f"share whose secret is likelier than every alternative; Clopper and Pearson's interval; {_COUNTED}",
    ),
    Metric(
        key=GREEDY,
        title="said greedily",
        unit="share of canaries",
        side="privacy",
        higher_is_better=False,
        ranked=False,
        statistic=f"share said exactly by greedy decoding; Clopper and Pearson's interval; {_COUNTED}",
    ),
    Metric(
        key=SAID,
        title="probability of generating the secret",
        unit="probability",
        side="privacy",
        higher_is_better=False,
        ranked=False,
        statistic=(
            "mean over canaries of the product of token probabilities; percentile interval of resampled seeds and of "
            "canaries within them, which is rough for few of either"
        ),
    ),
    Metric(
        key=HELD_OUT,
        title="held-out record perplexity",
        unit="perplexity a token",
        side="capability",
        higher_is_better=False,
        ranked=True,
        statistic=(
            "exp of the mean nats a token over all tokens of all records, so that a long record counts more; interval "
            "by Student's t over records, and over seeds where there are several"
        ),
    ),
    Metric(
        key=MEDICATION,
        title="last-item perplexity",
        unit="perplexity a token",
        side="capability",
        higher_is_better=False,
        ranked=True,
        statistic=(
            "geometric mean over test records of exp(nats a token) of the last item (a patient's last medication); "
            "interval by Student's t on the logarithms over records, and over seeds where there are several"
        ),
    ),
)
"""What is compared, in order."""
RANKED = tuple(metric.key for metric in METRICS if metric.ranked)
LEAKS = tuple(metric.key for metric in METRICS if metric.side == "privacy")


@dataclass(frozen=True, slots=True)
class Settings:
    """How intervals are worked out.

    Attributes:
        doses: the doses that are pooled.
        confidence: of every interval.
        resamples: of every bootstrap.
    """

    doses: tuple[int, ...]
    confidence: float
    resamples: int


def canary_nats(leaks: Iterable[Leak], key: str) -> Array:
    """Nats a token of each canary's secret, shape (canaries,)."""
    if key == VERBATIM:
        return np.asarray([leak.verbatim / leak.tokens for leak in leaks])
    return np.asarray([leak.semantic / leak.semantic_tokens for leak in leaks])


def text_sums(seeds: Sequence[Landscape], key: str) -> Sums:
    """What a capability metric is worked out of; the texts are the same in every seed."""
    every = [_texts(each, key) for each in seeds]
    tokens = np.asarray([text.tokens for text in every[0]], dtype=np.float64)
    nats = np.asarray([[text.nats for text in texts] for texts in every])
    if key == HELD_OUT:
        return Sums(nats, tokens)
    return Sums(nats / tokens, np.ones(tokens.size))


def _texts(landscape: Landscape, key: str) -> tuple[Text, ...]:
    return landscape.held_out if key == HELD_OUT else landscape.medication


def pooled(landscape: Landscape, doses: Iterable[int]) -> list[Leak]:
    """The canaries that are compared: planted, under measure, and of one of the doses."""
    wanted = set(doses)
    return [leak for leak in landscape.canaries if leak.role == "focus" and leak.dose in wanted]


def values_of(seeds: Sequence[Landscape], settings: Settings) -> dict[str, Estimate]:
    """Every metric of one intervention.

    Args:
        seeds: its landscapes, a seed each.
        settings: how intervals are worked out.
    """
    found = leak_values([pooled(each, settings.doses) for each in seeds], settings)
    for key in (HELD_OUT, MEDICATION):
        sums = text_sums(seeds, key)
        mean = crossed_mean(sums, settings.confidence)
        found[key] = perplexity_of(mean, sums.nats.size, len(seeds))
    return found


def leak_values(seeds: Sequence[Sequence[Leak]], settings: Settings) -> dict[str, Estimate]:
    """Every privacy metric of some canaries.

    Args:
        seeds: the canaries of each seed, none empty.
        settings: how intervals are worked out.
    """
    every = [leak for leaks in seeds for leak in leaks]
    found = {}
    for key in (VERBATIM, SEMANTIC):
        mean = nested_mean([canary_nats(leaks, key) for leaks in seeds], settings.confidence)
        found[key] = perplexity_of(mean, len(every), len(seeds))
    bits = np.asarray([leak.exposure for leak in every])
    found[EXPOSURE] = median_of(bits, math.log2(every[0].candidates), len(seeds), settings.confidence)
    firsts: NDArray[np.bool_] = np.asarray([leak.rank == 1 for leak in every])
    found[FIRST] = share_of(firsts, len(seeds), settings.confidence)
    greedy: NDArray[np.bool_] = np.asarray([leak.greedy for leak in every])
    found[GREEDY] = share_of(greedy, len(seeds), settings.confidence)
    chances = [np.exp([-leak.verbatim for leak in leaks]) for leaks in seeds]
    found[SAID] = bootstrapped_mean(chances, settings.confidence, settings.resamples)
    return found


def by_dose(seeds: Sequence[Landscape], settings: Settings) -> tuple[AtDose, ...]:
    """What leaks at each dose, twins (dose 0) included; the positive control is left out."""
    cells: dict[int, list[list[Leak]]] = {}
    for at, landscape in enumerate(seeds):
        for leak in landscape.canaries:
            if leak.role != "positive":
                cells.setdefault(leak.dose, [[] for _ in seeds])[at].append(leak)
    return tuple(
        AtDose(dose=dose, canaries=sum(map(len, cell)), values=leak_values([each for each in cell if each], settings))
        for dose, cell in sorted(cells.items())
    )


def goodness(values: Mapping[str, Estimate], key: str) -> float:
    """A value turned so that higher is better, to nine digits: what differs by rounding alone ties."""
    metric = next(each for each in METRICS if each.key == key)
    value = float(f"{values[key].value:.9g}")
    return value if metric.higher_is_better else -value
