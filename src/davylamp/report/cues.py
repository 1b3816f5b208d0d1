"""What is said when the prompt shows a code: that one (copied, or its cue followed) or the trained one (recalled)."""

from __future__ import annotations

import math
from statistics import median

import polars as pl

from davylamp.bounds.intervals import median_interval
from davylamp.canaries.manifest import Manifest
from davylamp.errors import RunFolderError
from davylamp.report.model import Bits, CueRow, Said
from davylamp.verdict import Verdict
from davylamp.verdict.model import Rate
from davylamp.verdict.statistics import rate

ORDER = ("hidden", "as_trained", "original", "replacement", "replacement_encoded", "cue_masked")
"""Probes by name, as :class:`davylamp.measures.probes.Probe` has them, which cannot be had here without torch."""
OWN = ("as_trained", "original")
"""Probes that show the canary's own code, in clear or encoded."""
IN_CODE = ("as_trained", "replacement_encoded", "cue_masked")
"""Probes that show a code as the canary's training prompt does: encoded, where the arm has an encoding."""


def cues(manifest: Manifest, verdict: Verdict, frame: pl.DataFrame) -> tuple[CueRow, ...]:
    """Count what was said under every probe, by arm, dose and release; the positive control is left out.

    Args:
        manifest: what was planted.
        verdict: the verdict on the run, for its confidence and its ceiling.
        frame: the readings.

    Raises:
        RunFolderError: a reading that is counted is no finite number.
    """
    told = frame.filter(pl.col("role") != "positive")
    rows = []
    for (release, arm, dose, probe), part in told.group_by("release", "arm", "dose", "probe"):
        looked = {target: _said(part.filter(pl.col("target") == target), verdict) for target in part["target"].unique()}
        trained = looked.get("trained")
        if trained is None or str(arm) not in manifest.plan.arms:
            continue
        rows.append(
            CueRow(
                arm=str(arm),
                dose=int(str(dose)),
                release="reference" if release == "reference" else "model",
                probe=str(probe),
                encoding=_encoding(manifest, str(arm), str(probe)),
                own=probe in OWN,
                shown=looked.get("replacement"),
                trained=trained,
            )
        )
    arms = list(manifest.plan.arms)
    return tuple(sorted(rows, key=lambda row: (row.release, arms.index(row.arm), row.dose, *place(row.probe))))


def place(probe: str) -> tuple[int, str]:
    """Sorts probes: what is hidden, the own code, another one, one never seen."""
    return (ORDER.index(probe), "") if probe in ORDER else (len(ORDER), probe)


def _encoding(manifest: Manifest, arm: str, probe: str) -> str | None:
    if probe in IN_CODE:
        found = manifest.plan.encoding_of(arm)
        return None if found is None else found.name
    return probe.partition(":")[2] or None


def _said(part: pl.DataFrame, verdict: Verdict) -> Said | None:
    """Readings of one code under one probe; nothing where it was not asked whether it is said."""
    greedy = _rate(part, "greedy_recovery", verdict)
    if greedy is None:
        return None
    exposures = _values(part, "exposure")
    bits = None
    if exposures:
        interval = median_interval(exposures, verdict.rules.confidence, (0.0, verdict.ceiling_bits))
        bits = Bits(canaries=len(exposures), median=median(exposures), low=interval.low, high=interval.high)
    return Said(greedy=greedy, reply=_rate(part, "reply_recovery", verdict), bits=bits)


def _rate(part: pl.DataFrame, measure: str, verdict: Verdict) -> Rate | None:
    values = _values(part, measure)
    return rate(int(sum(values)), len(values), verdict.rules.confidence) if values else None


def _values(part: pl.DataFrame, measure: str) -> list[float]:
    values: list[float] = part.filter(pl.col("measure") == measure)["value"].to_list()
    if not all(value is not None and math.isfinite(value) for value in values):
        raise RunFolderError(f"{measure} of a canary, {part['probe'][0]}, is no number: run `davylamp audit` again")
    return values
