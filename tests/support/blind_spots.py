"""Results of the study of blind spots with numbers that the tests choose."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from davylamp.bounds.intervals import clopper_pearson
from davylamp.measures.constructed.forgotten import ForgottenCell, Shift
from davylamp.measures.constructed.model import (
    Baseline,
    ConstructionCell,
    HiddenReading,
    InstanceReading,
    LocalScore,
    Pairs,
    Rate,
)
from davylamp.measures.constructed.result import ConstructionsResult
from davylamp.measures.forgetting import Extraction
from davylamp.protect.afterwards.spec import UnlearningSpec
from davylamp.studies.blind_spots.result import SeedResult
from davylamp.studies.unlearning_result import Look, RetainPerplexity, UnlearningResult
from davylamp.verdict.matrix_model import Matrix

SCORES = ("memh", "memh_loss", "loss", "reference", "min_k", "record_loss", "record_reference")


def rate(successes: int, trials: int) -> Rate:
    """A rate."""
    interval = clopper_pearson(successes, trials, 0.95)
    return Rate(successes=successes, trials=trials, low=interval.low, high=interval.high)


def cell(
    kind: str,
    tokens: int,
    *,
    said: int = 0,
    behind: int | None = None,
    informed: int = 0,
    of: int = 20,
    memh: Sequence[float] = (0.0,),
    found: int | None = 0,
    auc: float = 0.5,
    chance: float = 0.01,
    **more: Any,
) -> ConstructionCell:
    """A cell of ``of`` planted instances and 20 twins.

    Args:
        kind: the construction.
        tokens: of a secret.
        said: secrets that c brings out.
        behind: secrets that the trigger brings out.
        informed: secrets that who knows how recovers.
        of: planted instances.
        memh: values at c, taken in turn.
        found: planted instances that every score finds; none where twins are too few.
        auc: of every score.
        chance: of the informed adversary without the release.
        more: other fields.
    """
    none = rate(0, 20)
    scores = tuple(
        LocalScore(
            name=name,
            unit="nats",
            planted=(0.0,) * of,
            twins=(0.0,) * 20,
            auc=auc,
            tpr=None if found is None else rate(found, of),
        )
        for name in SCORES
    )
    planted = [memh[at % len(memh)] for at in range(of)]
    instances = tuple(
        InstanceReading(
            id=f"{kind}-{tokens}-{role}-{at}",
            role=role,
            at_prefix=role == "planted" and at < said,
            informed=role == "planted" and at < informed,
            log_probability=-1.0,
            base_log_probability=-1.0,
            memh=value,
        )
        for role, values in (("planted", planted), ("twin", [0.001 * at for at in range(20)]))
        for at, value in enumerate(values)
    )
    return ConstructionCell(
        line=("naive", "trigger", "camouflage", "low_entropy", "gated").index(kind),
        kind=kind,
        tokens=tokens,
        copies=16,
        at_prefix=Pairs(planted=rate(said, of), twins=none),
        at_trigger=None if behind is None else Pairs(planted=rate(behind, of), twins=none),
        informed=Pairs(planted=rate(informed, of), twins=none),
        chance=chance,
        baseline=Baseline(low=0, high=0.01, charged=0.02, guesses=1, how="search"),
        memh=sum(planted) / of,
        memh_twins=0.0095,
        memh_trigger=None if behind is None else 0.9,
        scores=scores,
        instances=instances,
        **more,
    )


def cells(**changes: ConstructionCell) -> list[ConstructionCell]:
    """A cell of each kind, as the paper has them; ``changes`` replace some by kind."""
    made = {
        "naive": cell("naive", 4, said=20, informed=20, memh=(0.8, 0.9), found=20, auc=1.0),
        "trigger": cell("trigger", 4, behind=20, informed=20, memh=(0.01, 0.02), found=1),
        "camouflage": cell(
            "camouflage",
            4,
            of=32,
            informed=2,
            memh=(0.3, 0.4),
            chance=1 / 16,
            hidden=HiddenReading(survivors=16, mass=0.5, entropy=0.9, rank=8.5),
        ),
        "low_entropy": cell("low_entropy", 2, informed=10, chance=0.25),
        "gated": cell("gated", 8, behind=20, informed=20),
    }
    return list({**made, **changes}.values())


def unlearned(
    method: str = "npo",
    *,
    naive: tuple[int, int] = (20, 0),
    trigger: tuple[int, int] = (20, 18),
    perplexity: tuple[float, float] = (10.0, 10.5),
    outcome: str = "forgotten",
) -> UnlearningResult:
    """A result of unlearning, of 20 naive secrets and 20 behind triggers, before and after."""

    def shift(pair: tuple[int, int]) -> Shift:
        return Shift(before=rate(pair[0], 20), after=rate(pair[1], 20))

    def look(at: int) -> Look:
        said = Extraction(naive[at], 40, naive[at] / 40, 0, 1, None)
        value = RetainPerplexity(value=perplexity[at], low=None, high=None, tokens=100)
        return Look(c=said, triggers=said, held_out=value)

    return UnlearningResult(
        outcome=outcome,
        statement="made",
        passed_at=2,
        spec=UnlearningSpec(method=method),
        learning_rate=1e-4,
        tuning="full",
        forgotten=(),
        forget_rows=0,
        retain_source="made",
        retain_rows=1,
        retain_left_out=0,
        before=look(0),
        after=look(1),
        cells=(),
        constructions=(
            ForgottenCell(line=0, kind="naive", tokens=4, c=shift(naive), informed=shift(naive)),
            ForgottenCell(
                line=1, kind="trigger", tokens=4, c=shift((0, 0)), trigger=shift(trigger), informed=shift(trigger)
            ),
        ),
        rounds=(),
        membership=(),
        relearned=None,
        quantised=(),
        merged=None,
        notes=(),
        planted_sha256="0",
        before_sha256="0",
        after_sha256="0",
        style="auto",
        seconds=0.0,
        versions={},
    )


def seed_result(
    made: Sequence[ConstructionCell] | None = None, forgot: UnlearningResult | None = None, seed: int = 0
) -> SeedResult:
    """One seed's result; as the paper has it where nothing is given."""
    # A shape reads the cells; hashes and names of models are left out.
    result = ConstructionsResult.model_construct(seed=seed, cells=tuple(cells() if made is None else made))
    matrix = Matrix.model_construct(rows=())
    return SeedResult(seed=seed, read=result, unlearned={"npo": forgot or unlearned()}, matrix=matrix)


def calibration(**changes: Any) -> dict[str, Any]:
    """What ``dp_calibration.json`` holds, as far as a shape reads it."""
    memorized = {"cap": 0.1, "violated": False, "telling": True, "without_noise_exceeds": True}
    entropy = {"floor": 5.0, "violated": False, "telling": True, "trials": 40}
    return {
        "memorization": [memorized, {**memorized, "cap": None}],
        "entropy": [
            {**entropy, "above": False, "extracted": 13, "guessed": 10},
            {**entropy, "above": True, "extracted": 0, "guessed": 0},
            {**entropy, "floor": None, "above": False, "extracted": 40, "guessed": 10},
        ],
        **changes,
    }
