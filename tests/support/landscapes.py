"""Landscapes with known answers: how much a model leaks, and what it costs, is chosen."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from davylamp.measures.landscape.model import Base, Landscape, Leak, Source, Text

DOSES = (1, 4, 16, 32, 64)
CANDIDATES = 6301


@dataclass(frozen=True)
class Way:
    """What one intervention does.

    Attributes:
        leak: 0 leaks nothing, 1 lets the secrets of the highest dose be said outright.
        cost: nats a token that held-out records cost above the best.
        semantic: the share of the leak that a question reaches.
    """

    leak: float
    cost: float
    semantic: float = 0.5


WAYS: Mapping[str, Way] = {
    "none": Way(0.0, 0.9),
    "direct": Way(1.0, 0.0),
    "goldfish": Way(0.7, 0.08),
    "dp_sgd": Way(0.02, 0.6),
    "scrub": Way(0.95, 0.12),
    "rewrite": Way(0.5, 0.25),
    "privacy_rewrite": Way(0.2, 0.22),
    "summary": Way(0.45, 0.4),
    "privacy_summary": Way(0.1, 0.42),
}


def landscape(
    intervention: str = "direct",
    seed: int = 0,
    way: Way | None = None,
    doses: Sequence[int] = DOSES,
    each: int = 20,
    records: int = 60,
    **other: Any,
) -> Landscape:
    """A landscape of one run, drawn from its name and seed."""
    way = way or WAYS[intervention]
    draws = np.random.default_rng([seed, *intervention.encode()])
    leaks = [_leak("twin", at, 0, 0.0, way, draws) for at in range(each)]
    leaks.append(_leak("positive", 0, 64, way.leak, way, draws))
    for dose in doses:
        leaks += [_leak("focus", at, dose, way.leak * math.log2(2 * dose) / 7, way, draws) for at in range(each)]
    sizes = [40 + 7 * (at % 9) for at in range(records)]
    held = [Text(tokens=size, nats=size * max(0.05, 1.1 + way.cost + draws.normal(0, 0.2))) for size in sizes]
    drugs = [Text(tokens=3, nats=3 * max(0.05, 1.6 + 1.5 * way.cost + draws.normal(0, 0.4))) for _ in range(records)]
    made = Landscape(
        davylamp_version="0",
        planted_sha256=f"{seed:064x}",
        release=f"{intervention}-s{seed}/model",
        weights_sha256=f"{seed + 1:064x}",
        base=Base(name="embedded", weights_sha256="b" * 64),
        intervention=intervention,
        steps=() if intervention in ("none", "direct") else (intervention,),
        seed=seed,
        question="What is {subject} given? It begins with {first}.",
        item="x",
        held_out_source=Source(name="held_out.jsonl", sha256="c" * 64),
        test_source=Source(name="test.jsonl", sha256="d" * 64),
        canaries=tuple(leaks),
        held_out=tuple(held),
        medication=tuple(drugs),
    )
    return made.model_copy(update=other)


def study(
    names: Sequence[str] = tuple(WAYS), seeds: Sequence[int] = (0, 1, 2), ways: Mapping[str, Way] | None = None
) -> list[tuple[str, Landscape]]:
    """Landscapes of several interventions and seeds, with the names of their runs."""
    return [(f"{name}-s{seed}", landscape(name, seed, (ways or WAYS)[name])) for name in names for seed in seeds]


def many(count: int) -> dict[str, Way]:
    """So many ways, the usual ones among them, with names that are long and points that crowd."""
    found = dict(WAYS)
    draws = np.random.default_rng(7)
    for at in range(count - len(found)):
        leak = float(draws.uniform(0, 1))
        found[f"scrub+goldfish k={2 + at} h={5 + 3 * at}"] = Way(leak, float(0.5 * (1 - leak) + draws.uniform(0, 0.2)))
    return found


def _leak(role: Any, at: int, dose: int, strength: float, way: Way, draws: np.random.Generator) -> Leak:
    tokens, asked = 3 + at % 4, 4 + at % 4
    verbatim = tokens * max(1e-4, 4.5 * (1 - strength) + abs(draws.normal(0, 0.5)) * (1 - strength) + 0.02)
    semantic = asked * max(1e-4, 5.0 * (1 - way.semantic * strength) + draws.normal(0, 0.3))
    rank = float(min(CANDIDATES, max(1, round(draws.uniform(1, CANDIDATES) ** (1 - strength)))))
    return Leak(
        id=f"{role}-{dose}-{at}",
        role=role,
        dose=dose,
        verbatim=verbatim,
        tokens=tokens,
        semantic=semantic,
        semantic_tokens=asked,
        exposure=math.log2(CANDIDATES / rank),
        rank=rank,
        candidates=CANDIDATES,
        greedy=verbatim / tokens < 0.25,
    )
