"""The claim that a private training left, as an audit holds readings against it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from davylamp.errors import RunFolderError
from davylamp.studies.audit_spec import CLAIMED, AuditSpec
from davylamp.verdict.extraction import ClaimSpec


def with_training_claim(spec: AuditSpec, training: Mapping[str, Any], weights_sha256: str) -> AuditSpec:
    """An audit's settings with the claim of the training, where they name none and measure what a claim speaks of.

    Args:
        spec: the settings; a claim of their own stays.
        training: what ``training.json`` holds, or nothing.
        weights_sha256: hash of the audited weights: a claim is for the model that the training made, and for no other.

    Raises:
        RunFolderError: the claim there is damaged.
    """
    claim = (training.get("dp") or {}).get("claim")
    if claim is None or spec.claim is not None or training.get("trained_sha256") != weights_sha256:
        return spec
    if not {*CLAIMED} & {*spec.measures}:
        return spec
    try:
        found = ClaimSpec.model_validate({key: claim[key] for key in ("epsilon", "delta")})
    except (KeyError, TypeError, ValidationError) as error:
        raise RunFolderError("training.json holds a damaged privacy claim: train again") from error
    return spec.model_copy(update={"claim": found})
