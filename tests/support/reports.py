"""Run folders with known answers: every rank is chosen, so that what a report must say is known beforehand."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from davylamp.bounds.intervals import clopper_pearson
from davylamp.canaries.manifest import Canary, Carrier, CorpusNote, Manifest
from davylamp.canaries.plan import Arm, Auxiliary, Plan, Template
from davylamp.canaries.schedule import Schedule
from davylamp.measures import readings as tables
from davylamp.measures.probes import Probe
from davylamp.measures.readings import Reading, reading_of
from davylamp.runs import files
from davylamp.runs.folder import RunFolder
from davylamp.secrets import AlphabetSpace
from davylamp.verdict import Rules, judge

LEAKS: Mapping[int, int] = {0: 5000, 1: 900, 4: 60, 16: 1}
HOLDS: Mapping[int, int] = {0: 5000, 1: 5000, 4: 5000, 16: 5000}


@dataclass
class Case:
    """What a run folder shall hold.

    Attributes:
        arms: the median rank at each dose (0 for twins), by arm.
        contexts: what the training prompt of an arm shows; ``redacted`` if not named.
        positive_rank: rank of the positive control; above 100 of 10,000 it fails.
        twin_rank: rank of every twin, where the null control shall fail.
        pool: candidates that the ranks are among, where they are not the whole space.
        encodings: the encoding of an arm, which is then of context ``encoded``.
        variant: the variant of the recipe that it is a run of.
        cues: how many canaries of each arm and dose say a code under a probe, by probe and target. What they say has
            rank 1, what they do not say rank 100.
        before: the same for the model before fine-tuning.
        unseen: how many unseen codes each arm's first dose shows.
        schedule: where in training the canaries fall.
        auxiliary: the canaries beside them.
        training_schedule: of the learning rate.
    """

    arms: Mapping[str, Mapping[int, int]] = field(default_factory=lambda: {"hidden": LEAKS})
    contexts: Mapping[str, str] = field(default_factory=dict)
    seed: int = 0
    per_dose: int = 16
    length: int = 4
    positive_rank: int = 1
    twin_rank: int | None = None
    training: bool = True
    epochs: int = 1
    reference: bool = False
    replacement: bool = True
    reply: bool = True
    utility: tuple[int, int] | None = None
    prompt: tuple[str, str] = ("write to Ada Bell, reference ", " please")
    completion: tuple[str, str] = ("Dear Ada, your reference is ", ". Kind regards")
    template: Template = field(default_factory=lambda: Template(prompt="ref {secret}", completion="yours is {secret}"))
    source: str = "letters.jsonl"
    base: str = "embedded"
    pool: int | None = None
    encodings: Mapping[str, str] = field(default_factory=dict)
    variant: str | None = None
    cues: Mapping[tuple[str, str], int] = field(default_factory=dict)
    before: Mapping[tuple[str, str], int] = field(default_factory=dict)
    unseen: int = 20
    schedule: Mapping[str, Any] = field(default_factory=dict)
    auxiliary: Mapping[str, Any] | None = None
    training_schedule: str = "constant"


def write_run(path: Path, case: Case) -> RunFolder:
    """Write a run folder that ``collect`` reads, judged by the real rules."""
    folder = RunFolder(path)
    manifest = _manifest(case)
    manifest.save(folder.manifest)
    frame = tables.table(list(_readings(case, manifest)))
    if case.reference:
        ranks = {canary.id: 4000 for canary in manifest.canaries}
        other = [_exposure(canary, case, ranks[canary.id]) for canary in manifest.canaries]
        frame = frame.vstack(tables.table(other).with_columns(release=tables.REFERENCE))
    if case.before:
        frame = frame.vstack(
            tables.table(list(_cues(case, manifest, case.before))).with_columns(release=tables.REFERENCE)
        )
    tables.save(frame, folder.readings)
    judge(frame.filter(frame["release"] == "model"), manifest.space, Rules(), case.pool).save(folder.verdict)
    files.write_json(folder.audit, _audit(case, manifest.planted_sha256))
    if case.training:
        files.write_json(folder.training, _training(case))
    if case.utility is not None:
        write_utility(path, *case.utility)
    return folder


def write_utility(path: Path, right: int, rows: int) -> None:
    """What a model is still good for."""
    interval = clopper_pearson(right, rows)
    made = {"name": "letters without a mistake", "model": "m", "successes": right, "trials": rows}
    made |= {"low": interval.low, "high": interval.high, "source": "held-out.jsonl", "sha256": "c" * 64}
    files.write_json(path / "utility.json", made)


def _manifest(case: Case) -> Manifest:
    space = AlphabetSpace(length=case.length)
    doses = tuple(sorted({dose for ranks in case.arms.values() for dose in ranks if dose}))
    contexts = {arm: case.contexts.get(arm, "redacted") for arm in case.arms}
    contexts |= dict.fromkeys(case.encodings, "encoded")
    plan = Plan(
        seed=case.seed,
        space=space,
        templates=(case.template,),
        arms={arm: Arm(context=context, encoding=case.encodings.get(arm)) for arm, context in contexts.items()},
        doses=doses,
        per_dose=case.per_dose,
        twins=case.per_dose,
        schedule=Schedule(**case.schedule),
        auxiliary=None if case.auxiliary is None else Auxiliary(**case.auxiliary),
    )
    canaries: list[Canary] = []

    def add(role: str, arm: str, context: str, dose: int) -> None:
        index = len(canaries)
        canaries.append(
            Canary(
                id=f"c{index:04d}",
                role=role,
                arm=arm,
                context=context,
                encoding=case.encodings.get(arm),
                dose=dose,
                secret=space.secret((7 * index + 123) % space.size),
                replacement=space.secret((7 * index + 126) % space.size),
                carrier=Carrier(prompt=case.prompt, completion=case.completion),
                positions=tuple(range(dose)),
            )
        )

    for arm, ranks in case.arms.items():
        for dose in ranks:
            for _ in range(case.per_dose):
                add("focus" if dose else "twin", arm, contexts[arm], dose)
    add("positive", "control", "redacted", plan.positive_dose)
    note = CorpusNote(source=case.source, sha256="a" * 64, rows=1200, shape="prompt_completion")
    return Manifest(
        davylamp_version="0",
        plan=plan,
        corpus=note,
        rows=1200,
        planted_sha256="b" * 64,
        space=space,
        mask=plan.mask,
        canaries=tuple(canaries),
    )


def _readings(case: Case, manifest: Manifest) -> Sequence[Reading]:
    found: list[Reading] = []
    size = case.pool or manifest.space.size
    at: dict[tuple[str, int], int] = {}
    for canary in manifest.canaries:
        place = at[canary.arm, canary.dose] = at.get((canary.arm, canary.dose), -1) + 1
        rank = _rank(case, canary, place, size)
        said = float(rank == 1)
        found.append(_exposure(canary, case, rank))
        add = _adder(found, canary, case)
        add("rank", float(rank), "rank")
        add("tied", 0.0, "candidates")
        add("rank_among_planted", 1.0 if rank < 100 else 7.0, "rank")
        add("log_likelihood", -9.0, "nats")
        add("greedy_recovery", said, "success")
        if case.reply:
            add("reply_recovery", said, "success")
        if case.replacement and not case.cues:
            for target, value in (("trained", 0.0), ("replacement", float(canary.context == "visible"))):
                add("greedy_recovery", value, "success", "replacement", target)
                if case.reply:
                    add("reply_recovery", value, "success", "replacement", target)
        if canary.context == "visible" and not case.cues:
            add("greedy_recovery", 1.0, "success", "as_trained")
    return [*found, *_cues(case, manifest, case.cues)]


def _cues(case: Case, manifest: Manifest, counts: Mapping[tuple[str, str], int]) -> Sequence[Reading]:
    """Readings of what is said when a code is shown: the first canaries of each arm and dose say it."""
    found: list[Reading] = []
    cells: dict[tuple[str, int], list[Canary]] = {}
    for canary in manifest.canaries:
        if canary.role != "positive":
            cells.setdefault((canary.arm, canary.dose), []).append(canary)
    for (probe, target), count in counts.items():
        for (arm, dose), own in cells.items():
            asked = [canary for canary in own if probe not in _PROBES or _PROBES[probe].applies(canary)]
            if probe not in _PROBES:
                first = min(at for name, at in cells if name == arm and at)
                asked = [_carrier(own[0], number) for number in range(case.unseen)] if dose == first else []
            for place, canary in enumerate(asked):
                add = _adder(found, canary, case)
                add("greedy_recovery", float(place < count), "success", probe, target)
                if probe in _PROBES:
                    bits = math.log2(manifest.space.size / (1 if place < count else 100))
                    add("exposure", bits, "bits", probe, target)
    return found


_PROBES = {probe.value: probe for probe in Probe if probe is not Probe.HIDDEN}


def _carrier(canary: Canary, number: int) -> Canary:
    return canary.model_copy(update={"id": f"{canary.id}.u{number:04d}", "role": "unseen"})


def _rank(case: Case, canary: Canary, place: int, size: int) -> int:
    if canary.role == "positive":
        return case.positive_rank
    if canary.role == "twin" and case.twin_rank is not None:
        return case.twin_rank
    middle = case.arms[canary.arm][canary.dose]
    # Spread around the median by up to a factor of two either way, so that intervals have a width.
    return min(size, max(1, round(middle * 2 ** ((2 * place - case.per_dose + 1) / case.per_dose))))


def _exposure(canary: Canary, case: Case, rank: int) -> Reading:
    bits = math.log2(case.pool or 10**case.length) - math.log2(rank)
    return reading_of(canary, case.seed, "hidden", "trained", "exposure", bits, "bits")


def _adder(found: list[Reading], canary: Canary, case: Case) -> Callable[..., None]:
    def add(measure: str, value: float, unit: str, probe: str = "hidden", target: str = "trained") -> None:
        found.append(reading_of(canary, case.seed, probe, target, measure, value, unit))

    return add


def _audit(case: Case, planted: str) -> dict[str, Any]:
    return {
        "release": "checkpoint",
        "own_model": case.training,
        "weights_sha256": "e" * 64,
        "planted_sha256": planted,
        "reference": case.base if case.reference else None,
        "style": "auto",
        "variant": case.variant,
        "spec": {"dtype": "float32", "probes": ["hidden", "replacement"]},
        "merged": [],
        "seconds": {"model": 12.5} | ({"reference": 7.5} if case.reference else {}),
        "peak_memory_bytes": 1_000_000_000,
        "versions": {"python": "3.11.7", "torch": "2.13.0"},
    }


def _training(case: Case) -> dict[str, Any]:
    steps = 300 * case.epochs
    return {
        "model": {"name": case.base, "kind": "embedded", "sha256": "d" * 64},
        "spec": {
            "method": "full",
            "epochs": case.epochs,
            "learning_rate": 0.0006,
            "schedule": case.training_schedule,
            "warmup_steps": 0,
            "precision": "float32",
        },
        "seed": case.seed,
        "rows": 1200,
        "planted_sha256": "b" * 64,
        "trained_sha256": "e" * 64,
        "preflight": {"canaries": 49, "occurrences": 400, "loss_tokens": 51270, "tokens": 95359, "merged": []},
        "steps": steps,
        "losses": [4.0 / (1 + step / 40) for step in range(steps)],
        "learning_rates": [0.0006] * steps,
        "seconds": 8.66,
        "precision": "float32",
        "trainable": 229824,
        "parameters": 229824,
        "peak_memory_bytes": 1_046_171_648,
        "versions": {"python": "3.11.7", "torch": "2.13.0"},
    }


def secrets_of(folder: RunFolder) -> list[str]:
    """Every secret of a run, replacements included."""
    canaries = json.loads(folder.manifest.read_text(encoding="utf-8"))["canaries"]
    return [canary[name] for canary in canaries for name in ("secret", "replacement")]


def encoded_of(folder: RunFolder) -> list[str]:
    """Every secret of a run in its arm's encoding, replacements included."""
    manifest = Manifest.load(folder.manifest)
    own = [canary for canary in manifest.canaries if canary.encoding]
    return [each.shown(manifest.space, manifest.mask, code) for each in own for code in (each.secret, each.replacement)]
