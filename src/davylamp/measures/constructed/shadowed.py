"""What shadows with and without an instance say of it: LiRA against twins, and counterfactual memorization."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from davylamp.measures.constructed.local import Forced
from davylamp.measures.constructed.model import ConstructionCell, LocalScore
from davylamp.measures.constructed.shadow_model import ShadowMemorization
from davylamp.measures.counterfactual import memorization
from davylamp.measures.shadow_scores import lira_online, scaled_confidence
from davylamp.secrets import stream

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]
SCORE = "lira_online"
"""The score's name in the result."""


@dataclass(frozen=True, slots=True, eq=False)
class InstanceSignals:
    """What shadows and the release say of each instance's secret after its own prefix.

    Attributes:
        ids: of the instances.
        inside: whether each shadow holds each instance, shape (shadows, instances).
        shadows: log-probabilities in nats of the secret's tokens, by shadow and instance.
        release: the same of the release, by instance.
        seed: of the plan, from which the splits of the noise floor are drawn.
    """

    ids: tuple[str, ...]
    inside: Flags
    shadows: Sequence[Sequence[Array]]
    release: Sequence[Array]
    seed: int


def with_shadows(cell: ConstructionCell, signals: InstanceSignals, fpr: float) -> ConstructionCell:
    """A cell with LiRA of its instances and their counterfactual memorization.

    Confidences, their scaling and the variance, pooled over the instances of a cell below 64 shadows, are those of
    LiRA of canaries. A gate's release is the frozen base, whatever it holds, and so are its shadows with an instance
    and without it: both worlds have one law, so that every log-ratio and every difference is 0, exactly.

    Args:
        cell: of one line and size.
        signals: of all instances that were trained.
        fpr: false-positive rate that the score will be read at.

    Raises:
        InputError: there are fewer than 2 shadows in each world.
    """
    ids = [each.id for each in cell.instances]
    if cell.kind == "gated":
        zero = np.zeros(len(ids))
        still = tuple(
            ShadowMemorization(score=name, instances=len(ids), mean=0.0, error=0.0, floor=0.0) for name in ("h", "loss")
        )
        return cell.model_copy(update={"lira": _score(cell, zero, fpr), "counterfactual": still})
    at = [signals.ids.index(each) for each in ids]
    inside = signals.inside[:, at]
    rows = [[shadow[each] for each in at] for shadow in signals.shadows]
    own = scaled_confidence(np.array([float(signals.release[each].mean()) for each in at]))
    scaled = scaled_confidence(np.array([[float(each.mean()) for each in row] for row in rows]))
    return cell.model_copy(
        update={
            "lira": _score(cell, lira_online(own, scaled, inside), fpr),
            "counterfactual": tuple(_memorized(rows, inside, signals.seed)),
        }
    )


def _score(cell: ConstructionCell, values: Array, fpr: float) -> LocalScore:
    pairs = list(zip(cell.instances, values.tolist(), strict=True))
    planted, twins = (tuple(value for each, value in pairs if each.role == role) for role in ("planted", "twin"))
    return LocalScore(name=SCORE, unit="nats", planted=planted, twins=twins, fpr=fpr)


def _memorized(rows: Sequence[Sequence[Array]], inside: Flags, seed: int) -> list[ShadowMemorization]:
    """Shadows with an instance less those without it, in mean over all instances: coins fall for planted and twins."""
    forced = [[Forced(np.empty(0), each) for each in row] for row in rows]
    scores = {
        "h": np.array([[each.h for each in row] for row in forced]),
        "loss": 1 - np.array([[each.loss for each in row] for row in forced]),
    }
    found = []
    for name, values in scores.items():
        # The same splits for both scores.
        read = memorization(values, inside, stream(seed, "shadow splits"))
        means = read.differences.mean(axis=1)
        found.append(
            ShadowMemorization(
                score=name,
                instances=inside.shape[1],
                mean=float(means.mean()),
                error=float(means.std(ddof=1) / math.sqrt(len(means))),
                floor=read.floor(np.arange(inside.shape[1])).mean_q95,
            )
        )
    return found
