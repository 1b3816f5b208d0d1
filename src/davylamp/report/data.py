"""A report's data, collected from run folders; its schema is in :mod:`davylamp.report.model`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
from pydantic import ValidationError

from davylamp import __version__
from davylamp.canaries.manifest import Manifest
from davylamp.canaries.plan import HOST_SLOTS
from davylamp.errors import RunFolderError
from davylamp.measures import readings as tables
from davylamp.measures.constructed.result import FILE as CONSTRUCTIONS
from davylamp.measures.landscape.model import is_file_of
from davylamp.report import constructed_view
from davylamp.report.constructed_data import constructions_of, plan_of, told, unaudited_of
from davylamp.report.cues import cues
from davylamp.report.frontier_data import compared
from davylamp.report.matrix_data import matrix_of_run
from davylamp.report.membership_data import epsilon_of, membership_of, shadows_of
from davylamp.report.model import CanaryRow, ReportData, Run, Utility
from davylamp.report.study import StudyResult
from davylamp.report.words import headlines, overall
from davylamp.runs import files
from davylamp.runs.folder import RunFolder
from davylamp.verdict import Verdict
from davylamp.verdict.matrix_model import FILE as MATRIX

__all__ = ["CanaryRow", "ReportData", "Run", "Utility", "collect", "utilities_of"]

_MORE = (
    *(
        ("model", measure)
        for measure in (
            "emission_probability",
            "samples_needed",
            "greedy_emission",
            "list_extraction_low",
            "list_extraction_high",
            "secret_perplexity",
            "record_perplexity",
        )
    ),
    *(("reference", measure) for measure in ("prior_surprisal", "kappa_low", "kappa_high")),
)
"""Readings that a report shows for each canary where an audit took them, and of which release."""


def collect(folder: Path, show_secrets: bool = False) -> ReportData:
    """Collect every judged run in a folder or below it, and every other one whose constructions were read.

    Args:
        folder: a run folder, or a folder that holds several.
        show_secrets: leave the secrets in clear.

    Raises:
        RunFolderError: nothing was measured there, or a file of a run is damaged.
        ManifestError: a run's manifest is missing or damaged.
    """
    places = [path.parent for path in _found(folder, "verdict.json")]
    landscapes = [(_name(path.parent, folder), path) for path in _found(folder, "landscape*.json") if is_file_of(path)]
    others = sorted({path.parent for name in (CONSTRUCTIONS, MATRIX) for path in _found(folder, name)} - {*places})
    if not places and not others:
        other = "; what was read by `davylamp landscape` is compared by `davylamp compare`" if landscapes else ""
        raise RunFolderError(
            f"no verdict in {folder} or below it: run `davylamp audit` first, or `davylamp "
            f"constructions` where the plan has some{other}"
        )
    recipe = _json(folder / "recipe.json") if (folder / "recipe.json").is_file() else {}
    runs = tuple(_in_order([_run(RunFolder(place), _name(place, folder), show_secrets) for place in places], recipe))
    unaudited = tuple(unaudited_of(RunFolder(place), _name(place, folder), show_secrets) for place in others)
    utilities = tuple(utilities_of(folder))
    frontier, faults = compared(landscapes)
    return ReportData(
        davylamp_version=__version__,
        title=str(recipe.get("name") or folder.resolve().name),
        verdict=overall([run.verdict for run in runs]),
        headlines=(*headlines(runs), *constructed_view.headlines(runs, unaudited)),
        shows_secrets=show_secrets,
        runs=runs,
        unaudited=unaudited,
        utilities=utilities,
        study=_study(folder),
        frontier=frontier,
        frontier_faults=faults,
    )


def _in_order(runs: list[Run], recipe: dict[str, Any]) -> list[Run]:
    """Runs as their recipe has them: by variant, by arm, by seed; those that it does not name come last."""
    plan = recipe.get("plan")
    named = [recipe.get("variants"), plan.get("arms") if isinstance(plan, dict) else None]
    variants, arms = ([*each] if isinstance(each, dict) else [] for each in named)
    if not arms:
        return runs

    def place(run: Run) -> tuple[int, int, int]:
        arm = next(iter(run.plan["arms"]))
        return (
            variants.index(run.variant) if run.variant in variants else len(variants),
            arms.index(arm) if arm in arms else len(arms),
            run.verdict.seed,
        )

    return sorted(runs, key=place)


def _study(folder: Path) -> StudyResult | None:
    path = folder / "study.json"
    if not path.is_file():
        return None
    try:
        return StudyResult.model_validate(_json(path))
    except ValidationError as error:
        raise RunFolderError(f"{path} is damaged: run the study again") from error


def _found(folder: Path, name: str) -> list[Path]:
    """Files of that name in a folder or below it, but for hidden folders, which hold stamps and unfinished work."""
    paths = (path for path in folder.rglob(name) if path.is_file())
    return sorted(path for path in paths if not any(part.startswith(".") for part in path.relative_to(folder).parts))


def _name(place: Path, folder: Path) -> str:
    inside = place.relative_to(folder).as_posix().removeprefix("runs/")
    return folder.resolve().name if inside == "." else inside


def _run(folder: RunFolder, name: str, show_secrets: bool) -> Run:
    manifest = Manifest.load(folder.manifest)
    frame = tables.load(folder.readings)
    audit = _json(folder.audit)
    verdict = Verdict.load(folder.verdict)
    variant = audit.get("variant")
    built = constructions_of(folder.path, manifest.planted_sha256, audit.get("weights_sha256"))
    return Run(
        name=name,
        variant=variant if isinstance(variant, str) else None,
        verdict=verdict,
        plan=plan_of(manifest, show_secrets),
        corpus=manifest.corpus.model_dump(mode="json"),
        rows=manifest.rows,
        planted_sha256=manifest.planted_sha256,
        training=_training(folder, manifest, audit),
        audit=audit,
        merged=tuple(audit.get("merged") or ()),
        extraction=tuple(_extraction(row) for row in audit.get("extraction") or ()),
        canaries=tuple(_rows(manifest, frame, show_secrets)),
        cues=cues(manifest, verdict, frame),
        membership=membership_of(folder.path, manifest),
        shadows=shadows_of(folder.path, manifest, audit.get("weights_sha256")),
        epsilon=epsilon_of(folder.path, manifest),
        constructions=None if built is None else told(built),
        matrix=matrix_of_run(folder.path, manifest.planted_sha256, audit.get("weights_sha256"), verdict, built),
        examples=tuple(_examples(manifest, show_secrets)),
    )


def _training(folder: RunFolder, manifest: Manifest, audit: dict[str, Any]) -> dict[str, Any] | None:
    """How the audited model was trained, if the folder's training made that very model.

    Raises:
        RunFolderError: the folder was planted or trained anew after it was audited.
    """
    again = f"run `davylamp audit {folder.path}` again"
    if audit.get("planted_sha256") != manifest.planted_sha256:
        raise RunFolderError(f"the verdict in {folder.path} is on canaries that were planted before: {again}")
    training = _json(folder.training) if folder.training.is_file() else {}
    if training.get("trained_sha256") == audit.get("weights_sha256"):
        return training or None
    if audit.get("own_model") and training:
        raise RunFolderError(f"the model in {folder.path} was trained anew after its verdict was given: {again}")
    return None


def _extraction(row: dict[str, Any]) -> dict[str, Any]:
    """One verdict on extraction, a claim's answer put in its own word."""
    claim = row.get("claim")
    return {**row, "claim": claim.get("verdict") if isinstance(claim, dict) else None}


def _rows(manifest: Manifest, frame: pl.DataFrame, show_secrets: bool) -> list[CanaryRow]:
    hidden = frame.filter((pl.col("probe") == "hidden") & (pl.col("target") == "trained"))
    values = {(row["release"], row["canary"], row["measure"]): row["value"] for row in hidden.iter_rows(named=True)}
    rows = []
    for canary in manifest.measured():
        for measure in ("exposure", "rank", "tied", "rank_among_planted", "greedy_recovery"):
            if not math.isfinite(values.get(("model", canary.id, measure), math.nan)):
                raise RunFolderError(
                    f"the readings lack canary {canary.id} ({measure}), or hold no number: run `davylamp audit` again"
                )
        rows.append(
            CanaryRow(
                id=canary.id,
                role=canary.role,
                arm=canary.arm,
                dose=canary.dose,
                secret=canary.secret if show_secrets else manifest.space.masked(canary.secret),
                exposure=values["model", canary.id, "exposure"],
                rank=values["model", canary.id, "rank"],
                tied=int(values["model", canary.id, "tied"]),
                rank_among_planted=values["model", canary.id, "rank_among_planted"],
                greedy=bool(values["model", canary.id, "greedy_recovery"]),
                reference_exposure=values.get(("reference", canary.id, "exposure")),
                more={
                    measure: value if math.isfinite(value) else None
                    for release, measure in _MORE
                    if (value := values.get((release, canary.id, measure))) is not None
                },
            )
        )
    return rows


def _examples(manifest: Manifest, show_secrets: bool) -> list[dict[str, str]]:
    # A row of the user's corpus may be as private as any canary, and a report is made to be passed on.
    plan = manifest.plan
    hosted = plan.carried or any(template.slots() & set(HOST_SLOTS) for template in plan.templates)
    examples = []
    for arm in manifest.plan.arms:
        canary = next(canary for canary in manifest.canaries if canary.arm == arm and canary.role == "focus")
        secret = canary.secret if show_secrets else manifest.space.masked(canary.secret)
        prompt, completion = list(canary.carrier.prompt), list(canary.carrier.completion)
        if hosted and not show_secrets:
            template = manifest.plan.templates[0]
            prompt, completion = template.prompt.split("{secret}"), template.completion.split("{secret}")
        shown = secret if canary.context == "visible" else manifest.mask
        if canary.encoding is not None:
            # The encoded form is the secret to whoever knows the encoding.
            shown = manifest.shown_in_training(canary) if show_secrets else f"({canary.encoding} of {secret})"
        examples.append(
            {
                "arm": arm,
                "written": "template" if hosted and not show_secrets else "carrier",
                "trained_prompt": shown.join(prompt),
                "asked_prompt": manifest.mask.join(prompt),
                "reply": secret.join(completion),
            }
        )
    return examples


def utilities_of(folder: Path) -> Sequence[Utility]:
    """What was measured of every model in a folder or below it.

    Raises:
        RunFolderError: a file is damaged.
    """
    found = []
    for path in _found(folder, "utility.json"):
        try:
            found.append(Utility.model_validate({"who": _name(path.parent, folder), **_json(path)}))
        except ValidationError as error:
            raise RunFolderError(f"{path} is damaged: run `davylamp audit` again") from error
    return found


def _json(path: Path) -> dict[str, Any]:
    try:
        return files.read_json(path)
    except (OSError, ValueError) as error:
        raise RunFolderError(f"cannot read {path}: {error}") from error
