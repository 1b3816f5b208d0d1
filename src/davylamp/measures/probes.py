"""Probes: what the prompt shows when the release is asked, the carrier held fixed."""

from __future__ import annotations

import contextlib
import enum
import re
from collections.abc import Iterator, Sequence

from davylamp.canaries.manifest import Canary, Manifest
from davylamp.corpora.records import Record
from davylamp.errors import ScoringError
from davylamp.release.base import PrefixError
from davylamp.rendering.render import Renderer
from davylamp.scoring.tokens import SecretTokens
from davylamp.secrets import AlphabetSpace


class Probe(enum.Enum):
    """What stands in the secret's place in the prompt at evaluation."""

    HIDDEN = "hidden"
    """The mask: what comes out then is remembered (or guessed), not copied."""
    AS_TRAINED = "as_trained"
    """What training showed: the secret itself in a visible arm, its encoded form in an encoded one."""
    ORIGINAL = "original"
    """The secret in clear, whatever training showed."""
    REPLACEMENT = "replacement"
    """Another secret of the space, in clear: what comes out tells copying from remembering."""
    REPLACEMENT_ENCODED = "replacement_encoded"
    """The same one in the arm's own encoding: what comes out tells following the cue from remembering."""
    CUE_MASKED = "cue_masked"
    """What training showed, each word or number of it masked by an asterisk: its form without its content."""

    def shown(self, manifest: Manifest, canary: Canary) -> str:
        """The text in the secret's place."""
        if self is Probe.HIDDEN:
            return manifest.mask
        if self is Probe.AS_TRAINED:
            return manifest.shown_in_training(canary)
        if self is Probe.ORIGINAL:
            return canary.secret
        if self is Probe.CUE_MASKED:
            # The alphabet may hold signs that no word has; left as they are, they would show the secret.
            signs = manifest.space.alphabet if isinstance(manifest.space, AlphabetSpace) else ""
            word = rf"(?:\w|[{re.escape(signs)}])+" if signs else r"\w+"
            return re.sub(word, "*", manifest.shown_in_training(canary))
        if self is Probe.REPLACEMENT_ENCODED:
            return canary.shown(manifest.space, manifest.mask, canary.replacement)
        return canary.replacement

    def targets(self, canary: Canary) -> dict[str, str]:
        """The codes that are looked for under this probe, by the name of the target."""
        if self in (Probe.REPLACEMENT, Probe.REPLACEMENT_ENCODED):
            return {"trained": canary.secret, "replacement": canary.replacement}
        return {"trained": canary.secret}

    def applies(self, canary: Canary) -> bool:
        """Whether the probe differs from every probe before it, for this canary."""
        if len(canary.carrier.prompt) == 1:
            # Nothing is shown in a prompt without a place for the secret, such as a plain text's.
            return self is Probe.HIDDEN
        if self in (Probe.AS_TRAINED, Probe.CUE_MASKED):
            return canary.context != "redacted"
        if self is Probe.ORIGINAL:
            return canary.context != "visible"
        return self is not Probe.REPLACEMENT_ENCODED or canary.context == "encoded"


def probe_record(manifest: Manifest, canary: Canary, shown: str, secret: str) -> Record:
    """The record in which the prompt shows one code and the reply holds another."""
    return canary.carrier.record(manifest.shape, shown, secret)


@contextlib.contextmanager
def naming(canaries: Sequence[Canary]) -> Iterator[None]:
    """Name the canary of a prefix for which a release has no answer.

    Args:
        canaries: the canary of each prefix that the release is asked about.

    Raises:
        ScoringError: the release has no answer for one of them.
    """
    try:
        yield
    except PrefixError as error:
        raise ScoringError(f"canary {canaries[error.index].id}: {error}") from error


def first_span(manifest: Manifest, canary: Canary, shown: str, secret: str) -> tuple[int, int]:
    """Characters [start, end) of the secret's first occurrence in the reply."""
    return canary.carrier.secret_spans(manifest.shape, shown, secret)[0]


def probed(
    manifest: Manifest, probes: Sequence[Probe], carriers: Sequence[Canary] | None = None
) -> list[tuple[Canary, Probe]]:
    """Every canary that is asked for, under every probe that applies to it.

    Args:
        manifest: what was planted.
        probes: what the prompts show.
        carriers: ask with these in place of the manifest's canaries.
    """
    asked = manifest.measured() if carriers is None else carriers
    return [(canary, probe) for canary in asked for probe in probes if probe.applies(canary)]


def secret_tokens(manifest: Manifest, renderer: Renderer, pairs: Sequence[tuple[Canary, Probe]]) -> list[SecretTokens]:
    """The tokens of each canary's record under a probe, and the span that covers its trained secret."""
    shown = [probe.shown(manifest, canary) for canary, probe in pairs]
    records = [
        probe_record(manifest, canary, text, canary.secret) for (canary, _), text in zip(pairs, shown, strict=True)
    ]
    return [
        SecretTokens(canary.id, rendered.ids, rendered.span(*first_span(manifest, canary, text, canary.secret)))
        for (canary, _), text, rendered in zip(pairs, shown, renderer.render(records), strict=True)
    ]
