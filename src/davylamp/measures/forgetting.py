"""What still comes out of a release that is meant to have forgotten: greedy extraction from any list of prompts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from davylamp.bounds.intervals import clopper_pearson
from davylamp.canaries.manifest import Canary, Manifest
from davylamp.errors import Fault, InputError, ScoringError
from davylamp.measures.probes import Probe, secret_tokens
from davylamp.release.base import Access, Decoding, PrefixError, Release, require
from davylamp.rendering.render import Renderer


@dataclass(frozen=True, slots=True)
class SecretPair:
    """A prompt, and the secret that is looked for after it.

    Attributes:
        name: a name for messages that tells nothing of the secret.
        prompt: token ids, at least one.
        secret: token ids, at least one.
    """

    name: str
    prompt: tuple[int, ...]
    secret: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Extraction:
    """How many secrets greedy decoding says, word for word and at once.

    Attributes:
        successes: how many.
        trials: of how many.
        rate: ``successes / trials``.
        low: lower end of the Clopper-Pearson interval.
        high: upper end.
        log_likelihood: mean log-likelihood of a whole secret after its prompt, in nats; none where the release gives
            no log-probabilities, or calls a secret impossible.
    """

    successes: int
    trials: int
    rate: float
    low: float
    high: float
    log_likelihood: float | None


def canary_pairs(
    manifest: Manifest, renderer: Renderer, canaries: Sequence[Canary], probe: Probe = Probe.HIDDEN
) -> list[SecretPair]:
    """Each canary's own prefix ``c`` up to its secret, and the tokens that cover the secret.

    Args:
        manifest: what was planted.
        renderer: renders as training did.
        canaries: which ones.
        probe: what the prompt shows; by default the mask, since a prompt that shows the secret asks for a copy.

    Raises:
        ScoringError: no token stands before a secret.
        TokenizerError: a record cannot be rendered.
    """
    records = secret_tokens(manifest, renderer, [(canary, probe) for canary in canaries])
    if nothing := [record.name for record in records if not record.prefix]:
        raise ScoringError(f"canary {nothing[0]}: no token stands before its secret, so that nothing can ask for it")
    return [SecretPair(record.name, record.prefix, record.secret_ids) for record in records]


def greedy_extraction(release: Release, pairs: Sequence[SecretPair], confidence: float = 0.95) -> Extraction:
    """Ask greedily after each prompt, and count the answers that begin with the secret's tokens.

    Verbatim discoverable extraction (Carlini et al., 2202.07646, section 3) from any prompt: a record's own prefix,
    a trigger, or whatever an adversary suspects. Of two tokens that are equally likely the first is taken.

    Args:
        release: the model.
        pairs: what to ask, and what for.
        confidence: of the interval, in (0, 1).

    Raises:
        AccessError: the release does not generate.
        InputError: there is no pair, or one has no prompt or no secret.
        ScoringError: the release has no answer for a prompt; names the pair.
    """
    successes = sum(word_for_word(release, pairs))
    interval = clopper_pearson(successes, len(pairs), confidence)
    known = log_likelihoods(release, pairs) if Access.LOGPROBS in release.access else None
    mean = None if known is None else float(known.mean())
    return Extraction(
        successes,
        len(pairs),
        successes / len(pairs),
        interval.low,
        interval.high,
        mean if mean is not None and math.isfinite(mean) else None,
    )


def word_for_word(release: Release, pairs: Sequence[SecretPair]) -> list[bool]:
    """Whether greedy decoding after each prompt begins with the secret's tokens.

    Raises:
        AccessError: the release does not generate.
        InputError: there is no pair, or one has no prompt or no secret.
        ScoringError: the release has no answer for a prompt; names the pair.
    """
    require(release, "greedy extraction", Access.GENERATE)
    _check(pairs)
    said = [False] * len(pairs)
    for length in sorted({len(pair.secret) for pair in pairs}):
        some = [at for at, pair in enumerate(pairs) if len(pair.secret) == length]
        try:
            answers = release.generate([pairs[at].prompt for at in some], Decoding(max_new_tokens=length))
        except PrefixError as error:
            raise ScoringError(f"{pairs[some[error.index]].name}: {error}") from error
        for at, answer in zip(some, answers, strict=True):
            said[at] = tuple(answer) == pairs[at].secret
    return said


def log_likelihoods(release: Release, pairs: Sequence[SecretPair]) -> NDArray[np.float64]:
    """Log-likelihood in nats of each whole secret after its prompt, shape (pairs,).

    Raises:
        AccessError: the release gives no log-probabilities.
        InputError: there is no pair, or one has no prompt or no secret.
        ScoringError: the release has no answer for a prompt; names the pair.
    """
    require(release, "log-likelihood of secrets", Access.LOGPROBS)
    _check(pairs)
    try:
        scored = release.logprobs([pair.prompt for pair in pairs], [pair.secret for pair in pairs])
    except PrefixError as error:
        raise ScoringError(f"{pairs[error.index].name}: {error}") from error
    return np.array([math.fsum(values) for values in scored])


def _check(pairs: Sequence[SecretPair]) -> None:
    faults = [] if pairs else [Fault("pairs", 0, "at least one prompt with its secret")]
    for pair in pairs:
        if not pair.prompt or not pair.secret:
            lengths = f"{len(pair.prompt)} and {len(pair.secret)} tokens"
            faults.append(Fault(f"prompt and secret of {pair.name}", lengths, "at least one token each"))
    if faults:
        raise InputError(faults)
