"""Probes: what the prompt shows when the release is asked, the carrier held fixed."""

from __future__ import annotations

import enum

from davylamp.canaries.manifest import Canary, Manifest
from davylamp.corpora.records import Record


class Probe(enum.Enum):
    """What stands in the secret's place in the prompt at evaluation."""

    HIDDEN = "hidden"
    """The mask: what comes out then is remembered (or guessed), not copied."""
    AS_TRAINED = "as_trained"
    """What training showed: the secret itself in a visible arm."""
    REPLACEMENT = "replacement"
    """Another secret of the space, in clear: what comes out tells copying from remembering."""

    def shown(self, manifest: Manifest, canary: Canary) -> str:
        """The text in the secret's place."""
        if self is Probe.HIDDEN:
            return manifest.mask
        if self is Probe.AS_TRAINED:
            return manifest.shown_in_training(canary)
        return canary.replacement

    def targets(self, canary: Canary) -> dict[str, str]:
        """The codes that are looked for under this probe, by the name of the target."""
        if self is Probe.REPLACEMENT:
            return {"trained": canary.secret, "replacement": canary.replacement}
        return {"trained": canary.secret}

    def applies(self, canary: Canary) -> bool:
        """Whether the probe differs from every probe before it, for this canary."""
        return self is not Probe.AS_TRAINED or canary.context == "visible"


def probe_record(manifest: Manifest, canary: Canary, shown: str, secret: str) -> Record:
    """The record in which the prompt shows one code and the reply holds another."""
    return canary.carrier.record(manifest.shape, shown, secret)


def first_span(manifest: Manifest, canary: Canary, shown: str, secret: str) -> tuple[int, int]:
    """Characters [start, end) of the secret's first occurrence in the reply."""
    return canary.carrier.secret_spans(manifest.shape, shown, secret)[0]
