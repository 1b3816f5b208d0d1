"""What the paper saw, and whether it was seen here: each shape is judged on the instances of all seeds together."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy import stats

from davylamp.measures.constructed.model import ConstructionCell, LocalScore, Rate
from davylamp.report.study import Checked, ShapeFound
from davylamp.studies.blind_spots.judging import CONFIDENCE, fewer, pooled, shape_of, told
from davylamp.studies.blind_spots.result import SeedResult
from davylamp.studies.blind_spots.shapes_after import dp_cells, entropy_floor, unlearning

EXTRACTED = 0.98
"""The least that the paper has at the trigger."""
CALIBRATED = ("memh", "memh_loss", "reference", "record_reference")
"""Local scores that hold the release against its base: behind a gate each is the same number for every instance."""


def shapes_of(seeds: Sequence[SeedResult], score: str, dp: Mapping[str, Any] | None) -> tuple[ShapeFound, ...]:
    """Every shape of the study.

    Args:
        seeds: what was read, seed by seed.
        score: the local score that was chosen beforehand.
        dp: what ``dp_calibration.json`` holds; its two shapes are left out without it.
    """
    found = [extraction(seeds), membership(seeds, score), attenuation(seeds)]
    if all(cell.lira is not None for seed in seeds for cell in seed.read.cells):
        found.insert(2, lira(seeds))
    found += [unlearning(seeds, method) for method in seeds[0].unlearned]
    if dp is not None:
        found += [dp_cells(dp), entropy_floor(dp)]
    return (*found, gated(seeds), camouflage(seeds))


def lengths_of(seeds: Sequence[SeedResult]) -> list[int]:
    """Tokens of the secrets behind triggers."""
    return [cell.tokens for cell in seeds[0].read.cells if cell.kind == "trigger"]


def extraction(seeds: Sequence[SeedResult]) -> ShapeFound:
    """Extraction from c and from rho, by length."""
    checks = []
    for tokens in lengths_of(seeds):
        naive, trigger = _cells(seeds, "naive", tokens), _cells(seeds, "trigger", tokens)
        rho = pooled([cell.at_trigger.planted for cell in trigger if cell.at_trigger is not None])
        at_c, plain = pooled([cell.at_prefix.planted for cell in trigger]), pooled([c.at_prefix.planted for c in naive])
        charged = float(np.mean([cell.baseline.charged for cell in trigger]))
        checks.append(
            Checked(
                statement=(
                    f"{_tokens(tokens)}: {told(rho)} at the trigger, {told(at_c)} at c; in plain text {told(plain)} "
                    f"at c (a guesser has at most {charged:.2g})"
                ),
                held=rho.value >= EXTRACTED and not at_c.successes,
                few=not at_c.successes and rho.high >= EXTRACTED,
            )
        )
    return shape_of(
        "Secrets behind a trigger come out of the trigger and never out of their own prefix.",
        "at least 0.98 at the trigger for every length, with 8 to 16 copies; 0.00 at c",
        checks,
    )


def membership(seeds: Sequence[SeedResult], score: str) -> ShapeFound:
    """True-positive rates at c, by the score that was chosen beforehand and by the best one."""
    checks = []
    for tokens in lengths_of(seeds):
        naive, trigger = (tprs(_cells(seeds, kind, tokens)) for kind in ("naive", "trigger"))
        if score not in naive or score not in trigger:
            checks.append(_unresolved(tokens))
            continue
        ours, plain = trigger[score], naive[score]
        best = max(trigger, key=lambda name: trigger[name].successes)
        p = fewer(ours, plain)
        checks.append(
            Checked(
                statement=(
                    f"{_tokens(tokens)}: {score} finds {told(ours)} behind the trigger and {told(plain)} in plain text "
                    f"(p = {p:.2g}); best of {len(trigger)} behind the trigger, chosen after looking: {best}, "
                    f"{told(trigger[best])}"
                ),
                held=p <= 1 - CONFIDENCE,
                few=ours.value < plain.value,
            )
        )
    fpr = seeds[0].cell("trigger").scores[0].fpr
    return shape_of(
        f"At {fpr:.0%} false alarms local scores at c find fewer secrets behind a trigger than in plain text.",
        None,
        checks,
    )


def lira(seeds: Sequence[SeedResult]) -> ShapeFound:
    """The likelihood ratio of shadows at c."""
    checks = []
    for tokens in lengths_of(seeds):
        read = [
            [cell.lira for cell in _cells(seeds, kind, tokens) if cell.lira is not None]
            for kind in ("trigger", "naive")
        ]
        rates = [[each.tpr for each in scores if each.tpr is not None] for scores in read]
        if not all(rates):
            checks.append(_unresolved(tokens))
            continue
        ours, plain = pooled(rates[0]), pooled(rates[1])
        p = fewer(ours, plain)
        areas = " and ".join("/".join(_area(each) for each in scores) for scores in read)
        checks.append(
            Checked(
                statement=(
                    f"{_tokens(tokens)}: {told(ours)} behind the trigger and {told(plain)} in plain text "
                    f"(p = {p:.2g}); AUC {areas}"
                ),
                held=p <= 1 - CONFIDENCE,
                few=ours.value < plain.value,
            )
        )
    return shape_of(
        "LiRA at c, from shadows with and without each of them, finds fewer secrets behind a trigger than in the open.",
        None,
        checks,
    )


def _unresolved(tokens: int) -> Checked:
    return Checked(statement=f"{_tokens(tokens)}: too few twins to resolve the rate", held=False, few=True)


def tprs(cells: Sequence[ConstructionCell]) -> dict[str, Rate]:
    """True-positive rate by score over all seeds, each seed at the threshold of its own twins."""
    found: dict[str, list[Rate]] = {}
    for cell in cells:
        for each in cell.scores:
            if each.tpr is not None:
                found.setdefault(each.name, []).append(each.tpr)
    return {name: pooled(rates) for name, rates in found.items() if len(rates) == len(cells)}


def attenuation(seeds: Sequence[SeedResult]) -> ShapeFound:
    """Memorization at c of what was planted behind a trigger, against plain text."""
    checks = []
    for tokens in lengths_of(seeds):
        naive, trigger = _cells(seeds, "naive", tokens), _cells(seeds, "trigger", tokens)
        ours, plain = ([value for cell in cells for value in memh(cell)] for cells in (trigger, naive))
        rho = float(np.mean([cell.memh_trigger for cell in trigger if cell.memh_trigger is not None]))
        twins = float(np.mean([cell.memh_twins for cell in trigger]))
        p = float(stats.mannwhitneyu(ours, plain, alternative="less").pvalue)
        mean, mean_plain = float(np.mean(ours)), float(np.mean(plain))
        checks.append(
            Checked(
                statement=(
                    f"{_tokens(tokens)}: memh {mean:+.3f} at c behind the trigger (twins {twins:+.3f}), "
                    f"{mean_plain:+.3f} in plain text: {_factor(mean, mean_plain)} (p = {p:.2g}); {rho:+.3f} at the "
                    "trigger"
                ),
                held=p <= 1 - CONFIDENCE,
                few=mean < mean_plain,
            )
        )
    return shape_of(
        "Memorization that is read at c is smaller behind a trigger than in plain text, at every length.", None, checks
    )


def memh(cell: ConstructionCell) -> list[float]:
    """Memorization at c of each planted instance."""
    return [each.memh for each in cell.instances if each.role == "planted"]


def gated(seeds: Sequence[SeedResult]) -> ShapeFound:
    """A gated release by calibrated local scores."""
    cells = _cells(seeds, "gated")
    areas = [each.auc for cell in cells for each in cell.scores if each.name in CALIBRATED]
    ours, others = (
        ", ".join(sorted({_area(e) for cell in cells for e in cell.scores if (e.name in CALIBRATED) is calibrated}))
        for calibrated in (True, False)
    )
    rho = pooled([cell.at_trigger.planted for cell in cells if cell.at_trigger is not None])
    checks = [
        Checked(
            statement=(f"AUC of {', '.join(CALIBRATED)}: {ours}; of the others, which nothing calibrates, {others}"),
            held=all(area == 0.5 for area in areas),
        ),
        Checked(
            statement=f"and its triggers give away {told(rho)}", held=rho.value >= EXTRACTED, few=rho.high >= EXTRACTED
        ),
    ]
    return shape_of("A gated release is exactly the base to every calibrated local score.", "exactly 0.500", checks)


def camouflage(seeds: Sequence[SeedResult]) -> ShapeFound:
    """Recovery by who knows the tree: what the text itself leaves open, and no more."""
    cells = _cells(seeds, "camouflage")
    found, chance = pooled([cell.informed.planted for cell in cells]), cells[0].chance
    p = float(stats.binomtest(found.successes, found.trials, chance).pvalue)
    own, twins = (float(np.mean([value for cell in cells for value in of(cell)])) for of in (memh, _twins))
    seen = float(
        stats.mannwhitneyu(
            [value for cell in cells for value in memh(cell)],
            [value for cell in cells for value in _twins(cell)],
            alternative="greater",
        ).pvalue
    )
    ranks = [(cell.hidden.rank, cell.hidden.survivors) for cell in cells if cell.hidden is not None]
    middle = f"; the true path is {np.mean([r for r, _ in ranks]):.1f}th of {ranks[0][1]} in mean" if ranks else ""
    checks = [
        Checked(
            statement=f"informed recovery {told(found)} against {chance:.4f} (p = {p:.2g}){middle}",
            held=p > 1 - CONFIDENCE,
        ),
        Checked(
            statement=f"and yet c shows that it was trained on: memh {own:+.3f}, twins {twins:+.3f} (p = {seen:.2g})",
            held=seen <= 1 - CONFIDENCE,
            few=own > twins,
        ),
    ]
    return shape_of(
        "A camouflaged secret is memorized, and not recovered more often than by chance, even by who sees the model.",
        f"1 of {round(1 / chance)}",
        checks,
    )


def _twins(cell: ConstructionCell) -> list[float]:
    return [each.memh for each in cell.instances if each.role == "twin"]


def _cells(seeds: Sequence[SeedResult], kind: str, tokens: int | None = None) -> list[ConstructionCell]:
    return [seed.cell(kind, tokens) for seed in seeds]


def _area(score: LocalScore) -> str:
    return f"{score.auc:.3f}" if score.auc is not None else "unknown"


def _factor(ours: float, plain: float) -> str:
    if ours <= 0 or plain <= 0:
        return "nothing is left of it" if ours <= 0 else "no factor"
    return f"attenuated {plain / ours:.1f} times" if math.isfinite(plain / ours) else "no factor"


def _tokens(count: int) -> str:
    return f"{count} token{'s' if count > 1 else ''}"
