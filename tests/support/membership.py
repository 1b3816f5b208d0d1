"""Membership results for run folders, computed by the real rules from scores that are drawn from a seed."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from davylamp.canaries.manifest import Canary, Manifest
from davylamp.measures import readings as tables
from davylamp.measures.readings import reading_of
from davylamp.measures.shadow_results import Cell, ShadowScores, TargetRecord, Trials
from davylamp.runs import files
from davylamp.runs.folder import RunFolder
from davylamp.verdict.epsilon import EpsilonResult, EpsilonRow
from davylamp.verdict.membership import membership_result

FPRS = (0.001, 0.01, 0.05)
SHIFTS = {"loss": 0.6, "zlib": 0.2, "min_k": 0.7, "lira_online": 1.5}
"""How far a member's score lies above a non-member's for each doubling of its dose, in standard deviations."""
HARMLESS = ("loss", "perplexity", "zlib", "min_k", "lira_online")


def add_nonmembers(folder: RunFolder, count: int) -> Manifest:
    """Give each arm further non-members, copies of its first twin under names of their own."""
    manifest = Manifest.load(folder.manifest)
    more = []
    for arm in manifest.plan.arms:
        twin = next(each for each in manifest.canaries if each.arm == arm and each.role == "twin")
        for _ in range(count):
            more.append(twin.model_copy(update={"id": f"n{len(more):04d}", "role": "nonmember"}))
    manifest = manifest.model_copy(update={"canaries": (*manifest.canaries, *more)})
    manifest.save(folder.manifest)
    return manifest


def write_membership(
    folder: RunFolder, nonmembers: int = 200, fprs: Sequence[float] = FPRS, notes: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Write ``membership.json`` with scores of known strength; returns it as data."""
    manifest = add_nonmembers(folder, nonmembers)
    rng = np.random.default_rng(manifest.plan.seed)
    rows = []
    for canary in manifest.canaries:
        if canary.role in ("focus", "twin", "nonmember"):
            rows += _scores(manifest, canary, rng)
    result = membership_result(tables.table(rows), fprs)
    data = result.model_dump(mode="json") | {"notes": _notes() if notes is None else notes}
    files.write_json(folder.path / "membership.json", data)
    return json.loads((folder.path / "membership.json").read_text(encoding="utf-8"))


def _scores(manifest: Manifest, canary: Canary, rng: np.random.Generator) -> list[Any]:
    found = []
    for span, strength in (("", 0.5), ("_secret", 1.0)):
        values = {
            name: rng.normal() + strength * shift * np.log2(2 * canary.dose if canary.dose else 1)
            for name, shift in SHIFTS.items()
        }
        values["perplexity"] = -np.exp(-values["loss"])
        for name in HARMLESS:
            measure = f"membership_{name}{span}"
            seed = manifest.plan.seed
            found.append(reading_of(canary, seed, "as_trained", "trained", measure, float(values[name]), "nats"))
    return found


def _notes() -> dict[str, Any]:
    scores = [
        {"name": name, "unit": "nats", "summary": f"What {name} is.", "sign": "Higher.", "blind": f"``blind`` {name}."}
        for name in HARMLESS
    ]
    return {"scores": scores, "reference": "base", "reference_how": "checkpoint", "shadows": 8, "shots": {"a": ["x"]}}


def write_shadows(
    folder: RunFolder, shadows: int = 8, change: Callable[[dict[str, Any]], None] | None = None
) -> ShadowScores:
    """Write ``shadow_scores.json``: every focus canary and twin in half of the shadows."""
    manifest = Manifest.load(folder.manifest)
    rng = np.random.default_rng(7)
    focus = [each for each in manifest.canaries if each.role == "focus"]
    records = tuple(
        TargetRecord(
            canary=each.id, role=each.role, arm=each.arm, context=each.context, dose=each.dose, shadow_dose=each.dose
        )
        for each in focus
    )
    first = rng.integers(2, size=(shadows // 2, len(records)))
    inside = np.stack([first, 1 - first], axis=1).reshape(shadows, len(records))
    trials = tuple(
        Trials(
            probe="hidden",
            span=span,
            measure=measure,
            unit="nats",
            records=tuple(range(len(records))),
            scores=tuple(map(tuple, (rng.normal(size=inside.shape) + 1.2 * inside).tolist())),
        )
        for span in ("secret", "reply")
        for measure in ("lira_online", "rmia")
    )
    cells = []
    for span in ("secret", "reply"):
        for measure, size in (("counterfactual_probability", 0.02), ("counterfactual_log_loss", 0.1)):
            for arm, dose in dict.fromkeys((each.arm, each.dose) for each in focus):
                cells.append(
                    Cell(
                        probe="hidden",
                        span=span,
                        measure=measure,
                        arm=arm,
                        shadow_dose=dose,
                        records=sum((each.arm, each.dose) == (arm, dose) for each in focus),
                        mean=size * np.log2(dose) - size / 2,
                        mean_error=size / 4,
                        floor_rms=size / 2,
                        floor_q95=size,
                        floor_mean_q95=size / 3,
                        truncated=0.0625,
                    )
                )
    scores = ShadowScores(
        seed=manifest.plan.seed,
        planted_sha256=manifest.planted_sha256,
        base_sha256="d" * 64,
        audited="model",
        audited_sha256="e" * 64,
        keys=tuple(f"k{number}" for number in range(shadows)),
        inside=tuple("".join(map(str, row)) for row in inside),
        taken_rows=(10, 5.0),
        records=records,
        trials=trials,
        cells=tuple(cells),
    )
    data = scores.model_dump(mode="json")
    if change is not None:
        change(data)
    files.write_json(folder.path / "shadow_scores.json", data)
    return scores


def epsilon_row(**values: Any) -> EpsilonRow:
    """One bound."""
    usual = {"arm": "hidden", "dose": 16, "audit": "pairs", "score": "loss", "method": "one-run", "relation": "replace"}
    usual |= {"canaries": 16, "guesses": 16, "correct": 15, "eps_low": 1.2399, "mu_low": None, "reach": 2.5}
    usual |= {"upper": 1.0, "verdict": "refuted", "statement": "At 95% confidence that claim is untrue."}
    return EpsilonRow(**(usual | values))


def write_epsilon(folder: RunFolder, *rows: EpsilonRow, claim: str | None = "(1, 1e-05)-DP") -> None:
    """Write ``epsilon.json``."""
    EpsilonResult(confidence=0.95, delta=1e-5, claim=claim, rows=rows, notes=("Pairs replace a row.",)).save(
        folder.path / "epsilon.json"
    )
