"""The step that reads a release and judges it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from davylamp.canaries import Manifest
from davylamp.errors import Fault, InputError, RunFolderError
from davylamp.measures import readings as tables
from davylamp.measures.membership.measure import PREFIX as MEMBERSHIP_PREFIX
from davylamp.measures.probes import Probe
from davylamp.measures.shadow_results import ShadowScores
from davylamp.rendering.render import Renderer, Style
from davylamp.runs import files
from davylamp.runs.folder import RunFolder
from davylamp.runs.progress import QUIET, Reporter
from davylamp.scoring.tokens import TokenScorer
from davylamp.studies.audit_spec import AuditSpec, UtilitySpec
from davylamp.studies.dp_claim import with_training_claim
from davylamp.studies.machine import peak_memory, versions
from davylamp.studies.membership import (
    membership_measure,
    reference_faults,
    save_epsilon,
    save_membership,
    shadow_readings,
    takes_moments,
)
from davylamp.studies.shadow_request import ShadowRequest
from davylamp.studies.steps import check_own_model, read_training
from davylamp.studies.utility import save_utility
from davylamp.verdict import Verdict, judge
from davylamp.verdict.extraction import extraction_verdicts

if TYPE_CHECKING:
    from davylamp.release.local import LocalRelease


@dataclass(frozen=True, slots=True)
class AuditRequest:
    """What an audit is asked to do.

    Attributes:
        model: the checkpoint; the folder's own ``model/`` if none.
        reference: a base model to compare with; ``adapter`` disables the checkpoint's own adapter.
        base: the model under an unmerged adapter; the one it was trained on if none.
        style: how records are rendered; what training used if none.
        chat_template: file of a chat template, where the tokenizer has none.
        spec: probes, precision and rules.
        utility: what the model shall still be good for.
        threads: threads of torch; chosen by the model's size if none.
        variant: the recipe's variant that this run is, if it is one.
        shadows: how shadows are trained, where ``lira`` is measured; how many is the spec's to say.
    """

    model: str | None = None
    reference: str | None = None
    base: str | None = None
    style: Style | None = None
    chat_template: Path | None = None
    spec: AuditSpec = field(default_factory=AuditSpec)
    utility: UtilitySpec | None = None
    threads: int | None = None
    variant: str | None = None
    shadows: ShadowRequest = field(default_factory=ShadowRequest)


def audit_step(folder: RunFolder, request: AuditRequest, reporter: Reporter = QUIET) -> Verdict:
    """Read the release and judge it; writes ``readings.parquet``, ``audit.json`` and ``verdict.json``.

    Where membership or LiRA is measured, ``membership.json`` and ``epsilon.json`` are written too; LiRA trains the
    shadows that are missing and writes ``shadow_scores.json`` first.

    Raises:
        InputError: kappa is wanted, and there is no reference.
        ManifestError: there is no manifest, or the folder's own model was trained on rows of another.
        ModelError: the checkpoint cannot be used.
        RunFolderError: shadows are wanted, and nothing says how they are trained.
        ScoringError: a canary cannot be scored.
    """
    _check_reference(request)
    manifest = Manifest.load(folder.manifest)
    training = read_training(folder)
    if request.model is None:
        check_own_model(folder, training, manifest)
    release, renderer, weights = open_release(folder, request, training)
    request = replace(request, spec=with_training_claim(request.spec, training, weights))
    # Before anything is read, so that a reference that does not fit costs no reading.
    reference = _reference(request, release)
    scorer, membership = _scorer(request.spec), None
    if "membership" in request.spec.measures:
        adapter, template = request.reference == "adapter", request.chat_template
        membership = membership_measure(manifest, renderer, request.spec, scorer, reference, adapter, template)
    seconds: dict[str, float] = {}
    shadows = _shadows(folder, request, weights, seconds, reporter)
    begun = time.perf_counter()
    frame, notes = _readings(release, renderer, manifest, request.spec, scorer, reporter)
    if membership is not None:
        frame = frame.vstack(tables.table(membership.measure(release, reporter)))
    seconds["model"] = time.perf_counter() - begun
    left_out: tuple[str, ...] = ()
    if shadows is not None:
        scored = frame.filter(frame["measure"].str.starts_with(MEMBERSHIP_PREFIX))["canary"]
        found, left_out = shadow_readings(shadows, None if membership is None else set(scored))
        frame = frame.vstack(tables.table(found))
    if reference is not None:
        begun = time.perf_counter()
        asked = request.spec
        if not asked.before:
            asked = asked.model_copy(update={"probes": (Probe.HIDDEN,), "unseen": None})
        other, _ = _readings(reference, renderer, manifest, asked, _scorer(asked, base=True), reporter, base=True)
        frame = frame.vstack(other.with_columns(release=tables.REFERENCE))
        seconds["reference"] = time.perf_counter() - begun
    if "extraction" in request.spec.measures:
        spec, of_model = request.spec, frame.filter(frame["release"] == "model")
        notes["extraction"] = extraction_verdicts(
            of_model, manifest.space.size, spec.extraction.guesses, spec.rules.confidence, spec.claim
        )
    if request.utility is not None:
        save_utility(folder, request.utility, release, renderer)
    # Judged before anything is written: readings that no verdict can be given on must not stand beside an older one.
    verdict = judge(frame.filter(frame["release"] == "model"), manifest.space, request.spec.rules, notes["candidates"])
    # The verdict is written last and taken away first, so that one that is there is one on the files beside it.
    folder.verdict.unlink(missing_ok=True)
    for path in (folder.membership, folder.epsilon):
        path.unlink(missing_ok=True)
    tables.save(frame, folder.readings)
    if membership is not None or shadows is not None:
        of_model = frame.filter(frame["release"] == "model")
        save_membership(folder, membership, of_model, request.spec, shadows, left_out)
        save_epsilon(folder, manifest, of_model, request.spec, shadows, training)
    files.write_json(
        folder.audit,
        {
            "release": release.name,
            "own_model": request.model is None,
            "weights_sha256": weights,
            "planted_sha256": manifest.planted_sha256,
            "reference": None if reference is None else reference.name,
            "style": renderer.style,
            "variant": request.variant,
            "spec": request.spec.model_dump(mode="json"),
            **notes,
            "seconds": seconds,
            "peak_memory_bytes": peak_memory(),
            "versions": versions(),
        },
    )
    verdict.save(folder.verdict)
    return verdict


def _shadows(
    folder: RunFolder, request: AuditRequest, weights: str, seconds: dict[str, float], reporter: Reporter
) -> ShadowScores | None:
    """What shadows say of the audited model, where LiRA is measured; they are asked as the rest of the audit is."""
    if "lira" not in request.spec.measures:
        return None
    from davylamp.studies.shadowing import scores_of_audit

    begun = time.perf_counter()
    wanted = replace(
        request.shadows,
        spec=request.spec.shadows,
        audited=request.model,
        chat_template=request.chat_template,
        threads=request.threads,
    )
    scores = scores_of_audit(folder, weights, wanted, reporter)
    seconds["shadows"] = time.perf_counter() - begun
    return scores


def _check_reference(request: AuditRequest) -> None:
    """Name all that a reference is missing for, before anything is loaded."""
    faults = reference_faults(request.spec, request.reference)
    if request.reference is None and "kappa" in request.spec.measures:
        allowed = "a base model, since kappa is read from the model before it saw any secret"
        faults.append(Fault("--reference", None, allowed))
    if request.reference is None and request.spec.before:
        faults.append(Fault("--reference", None, "the model before fine-tuning, since audit.before asks it too"))
    if faults:
        raise InputError(faults)


def open_release(
    folder: RunFolder, request: AuditRequest, training: Mapping[str, Any]
) -> tuple[LocalRelease, Renderer, str]:
    """Load the model that is asked.

    Args:
        folder: the run, whose own model it is if the request names none.
        request: which model, and how.
        training: what the run's ``training.json`` holds.

    Returns:
        The release, a renderer of records as its training wrote them, and the hash of its weights.

    Raises:
        ModelError: the checkpoint cannot be used.
    """
    from davylamp.release.loader import load_model, load_tokenizer
    from davylamp.release.local import LocalRelease
    from davylamp.release.sources import resolve
    from davylamp.training.threads import use_threads

    base = request.base
    if base is None and request.model is None and (folder.model / "adapter_config.json").is_file():
        base = _trained_on(training)
    source = resolve(request.model or str(folder.model), base=base)
    tokenizer = load_tokenizer(source, request.chat_template)
    model = load_model(source, request.spec.dtype, tokenizer=tokenizer)
    use_threads(model, request.threads)
    release = LocalRelease(model, tokenizer, source.name, memory=request.spec.memory_mb * 2**20)
    weights = source.weights_sha256()
    # What training.json says of style holds for the model that it describes, and for no other.
    trained_here = training.get("trained_sha256") == weights
    style: Style = request.style or (training.get("spec", {}).get("style", "auto") if trained_here else "auto")
    return release, Renderer(tokenizer, style), weights


def _trained_on(training: Mapping[str, Any]) -> str | None:
    """The base of the folder's own adapter by a word that means the same on every machine, if it had one.

    A path is left to the adapter, which holds it whole: what the user wrote may be relative to another folder.
    """
    from davylamp.release.sources import SMOLLM2

    model = training.get("model", {})
    name = model.get("name")
    return name if model.get("kind") in ("embedded", "hub") or name == SMOLLM2 else None


def _reference(request: AuditRequest, release: LocalRelease) -> LocalRelease | None:
    if request.reference is None:
        return None
    if request.reference == "adapter":
        return release.reference()
    from davylamp.release.loader import load_model, load_tokenizer
    from davylamp.release.local import LocalRelease
    from davylamp.release.sources import resolve

    source = resolve(request.reference)
    tokenizer = load_tokenizer(source, request.chat_template)
    if not _same_tokens(tokenizer, release.tokenizer):
        raise RunFolderError(f"the reference {source.name} has another tokenizer than {release.name}")
    model = load_model(source, request.spec.dtype, tokenizer=tokenizer)
    return LocalRelease(model, tokenizer, source.name, memory=request.spec.memory_mb * 2**20)


def _same_tokens(one: Any, other: Any) -> bool:
    """Whether both give a text the same ids; a token that only one has, as one added in fine-tuning, does no harm."""
    ids = other.get_vocab()
    same = all(ids.get(token, at) == at for token, at in one.get_vocab().items())
    return same and one("0 aA.")["input_ids"] == other("0 aA.")["input_ids"]


def _readings(
    release: LocalRelease,
    renderer: Renderer,
    manifest: Manifest,
    spec: AuditSpec,
    scorer: TokenScorer,
    reporter: Reporter,
    base: bool = False,
) -> tuple[Any, dict[str, Any]]:
    from davylamp.measures.exposure import Exposure
    from davylamp.measures.recovery import Recovery
    from davylamp.measures.unseen import Unseen

    exposure = Exposure(manifest, renderer, spec.pool)
    # Made before anything is read, so that settings that do not fit cost no reading.
    unseen = None if spec.unseen is None else Unseen(manifest, renderer, spec.unseen, spec.pool)
    found = exposure.measure(release, spec.exposure_probes, reporter)
    found += Recovery(manifest, renderer).measure(release, spec.probes, reporter)
    found += _token_readings(release, renderer, manifest, spec, scorer, reporter, base)
    if unseen is not None:
        found += unseen.measure(release, reporter)
    notes = {
        "candidates": exposure.candidates,
        "merged": exposure.merged(),
        "candidate_tokens": {"read": exposure.read, "in_all": exposure.internal},
    }
    return tables.table(found), notes


def _scorer(spec: AuditSpec, base: bool = False) -> TokenScorer:
    """One scoring of each record for all measures that read its tokens; kappa and membership share no model."""
    schemes = {"extraction": spec.extraction.schemes, "kappa": spec.kappa.schemes if base else ()}
    moments = takes_moments(spec) and not base
    return TokenScorer([scheme for name in spec.measures for scheme in schemes.get(name, ())], moments=moments)


def _token_readings(
    release: LocalRelease,
    renderer: Renderer,
    manifest: Manifest,
    spec: AuditSpec,
    scorer: TokenScorer,
    reporter: Reporter,
    base: bool,
) -> list[tables.Reading]:
    """Readings of the measures that share one scoring of each record; kappa is read from a base model only."""
    from davylamp.measures.extraction import Extraction
    from davylamp.measures.kappa import Kappa
    from davylamp.measures.perplexity import Perplexity

    wanted = [name for name in spec.measures if name != "kappa" or base]
    found: list[tables.Reading] = []
    if "extraction" in wanted:
        found += Extraction(manifest, renderer, spec.extraction, scorer).measure(
            release, spec.exposure_probes, reporter
        )
    if "perplexity" in wanted:
        found += Perplexity(manifest, renderer, scorer).measure(release, spec.exposure_probes, reporter)
    if "kappa" in wanted:
        found += Kappa(manifest, renderer, spec.kappa, scorer).measure(release, (Probe.HIDDEN,), reporter)
    return found
