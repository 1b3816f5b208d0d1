"""Membership within an audit: the measure made ready, and its result left in the run folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from davylamp.canaries import Manifest
from davylamp.errors import Fault
from davylamp.measures.membership.gathering import Reference
from davylamp.measures.membership.measure import Membership
from davylamp.rendering.render import Renderer
from davylamp.runs.folder import RunFolder
from davylamp.scoring.tokens import TokenScorer
from davylamp.studies.recipe import AuditSpec
from davylamp.verdict.membership import membership_result
from davylamp.verdict.membership_model import MembershipResult

if TYPE_CHECKING:
    from davylamp.release.local import LocalRelease

FILE = "membership.json"
"""The result, in the run folder."""


def reference_faults(spec: AuditSpec, reference: str | None) -> list[Fault]:
    """What is missing where a score that was asked for by name needs a reference model and none is given."""
    settings = spec.membership
    if "membership" not in spec.measures or settings.reference or reference or not settings.wants_reference:
        return []
    return [Fault("--reference", None, "a base model, since a membership score calibrates by one")]


def takes_moments(spec: AuditSpec) -> bool:
    """Whether the shared scoring must keep the moments of each row."""
    return "membership" in spec.measures and "moments" in Membership.needs(spec.membership.chosen(True))


def membership_measure(
    manifest: Manifest,
    renderer: Renderer,
    spec: AuditSpec,
    scorer: TokenScorer,
    reference: LocalRelease | None,
    adapter: bool,
    chat_template: Path | None,
) -> Membership:
    """The measure, made before anything is read, so that settings that do not fit cost no reading.

    Args:
        manifest: what was planted.
        renderer: renders as training did.
        spec: how the release is asked.
        scorer: shared with other measures.
        reference: the audit's reference, if it has one.
        adapter: whether that is the audited checkpoint with its adapter disabled.
        chat_template: file of a chat template, where a tokenizer has none.

    Raises:
        InputError: the settings do not fit the manifest.
        ModelError: a model that the settings name cannot be loaded.
    """
    used = None if reference is None else Reference(reference, "adapter disabled" if adapter else "checkpoint")
    if spec.membership.reference is not None:
        used = Reference(_load(spec, spec.membership.reference, chat_template), "checkpoint")
    return Membership(manifest, renderer, spec.membership, scorer, used)


def _load(spec: AuditSpec, model: str, chat_template: Path | None) -> LocalRelease:
    from davylamp.release.loader import load_model, load_tokenizer
    from davylamp.release.local import LocalRelease
    from davylamp.release.sources import resolve

    source = resolve(model)
    tokenizer = load_tokenizer(source, chat_template)
    loaded = load_model(source, spec.dtype, tokenizer=tokenizer)
    return LocalRelease(loaded, tokenizer, source.name, memory=spec.memory_mb * 2**20)


def save_membership(
    folder: RunFolder, measure: Membership, readings: pl.DataFrame, spec: AuditSpec
) -> MembershipResult:
    """Write ``membership.json``.

    Args:
        folder: the run.
        measure: has taken the readings.
        readings: of the audited model.
        spec: how the release was asked.

    Raises:
        StorageError: it cannot be written.
    """
    result = membership_result(readings, spec.membership.fprs, spec.rules.confidence)
    result.save(folder.path / FILE, measure.notes)
    return result
