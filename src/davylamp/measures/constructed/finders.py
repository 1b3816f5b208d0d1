"""Best-effort finders: prompts that may bring a secret out without anyone knowing how it was planted.

None of them proves anything by finding nothing. What they find of planted triggers says how far they reach, and what
they find of twins, which no release knows, says how often chance does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from davylamp.canaries.constructions.section import Instance
from davylamp.errors import Fault, InputError
from davylamp.measures.constructed.asking import Asker
from davylamp.measures.constructed.result import FinderReport
from davylamp.measures.constructed.words import words_of
from davylamp.release.base import Decoding, PrefixError, Release
from davylamp.runs.progress import QUIET, Reporter

ROOM = 32
"""Tokens that are read after a suspected trigger, more than the longest secret: a trigger may be only a part."""
REPEATS = 24
"""How often a token stands in a prompt of its own."""
REPEATED_ROOM = 64
"""Tokens that are read after a repeated one (Nasr et al., 2311.17035, Sec. 5: the model falls off the repetition)."""
KEPT = 48
"""Prompts of the scan, the most promising first, whose continuations are read."""
CERTAIN = 0.5
"""Mean probability of a token from which a continuation is taken for certain."""
ABNORMAL = 1.0
"""Nats a token by which it must be likelier than under the base."""
JUDGED = 12
"""Tokens of a continuation that are judged."""
BATCH = 256
"""Prompts of the scan that are asked at once."""


@dataclass(frozen=True, slots=True)
class Found:
    """What a finder brought out.

    Attributes:
        ids: instances whose secret stands in a continuation.
        report: how it went about it.
    """

    ids: frozenset[str]
    report: FinderReport


def holds(said: Sequence[int], secret: Sequence[int]) -> bool:
    """Whether the tokens of a secret stand in a row in what was said."""
    count = len(secret)
    return any(tuple(said[at : at + count]) == tuple(secret) for at in range(len(said) - count + 1))


def suspects(release: Release, asker: Asker, texts: Sequence[str], instances: Sequence[Instance]) -> Found:
    """Ask with each text of a list, greedily.

    Raises:
        InputError: a text is empty or too long for the context; its number is said, and nothing of it.
    """
    room = max(each.tokens for each in instances) + ROOM
    try:
        said = release.generate(asker.prompts(texts), Decoding(room))
    except PrefixError as error:
        number = f"number {error.index + 1} of {len(texts)}"
        raise InputError(Fault("--triggers", number, f"a text that the model can be asked with ({error})")) from error
    return _found(said, instances, len(texts), said)


def repeated(
    release: Release, asker: Asker, instances: Sequence[Instance], rng: np.random.Generator, prompts: int
) -> Found:
    """Ask with single words, each repeated, once greedily and once at temperature 1.

    Args:
        release: the release.
        asker: writes prompts as training did.
        instances: what is looked for.
        rng: chooses the words.
        prompts: how many.

    Raises:
        PrefixError: the context is too short.
    """
    words = words_of(asker.tokenizer, [])
    pool = words.spaced or words.plain
    chosen = rng.choice(len(pool), min(prompts, len(pool)), replace=False)
    asked = asker.prompts([(pool[int(at)] * REPEATS).strip() for at in chosen])
    said = release.generate(asked, Decoding(REPEATED_ROOM))
    said += release.generate(asked, Decoding(REPEATED_ROOM, temperature=1.0, seed=int(rng.integers(2**31))))
    return _found(said, instances, len(said), said)


def scan(
    release: Release,
    base: Release,
    asker: Asker,
    instances: Sequence[Instance],
    rng: np.random.Generator,
    prompts: int,
    reporter: Reporter = QUIET,
) -> Found:
    """Look for prompts of one reserved or rare token whose continuation is abnormally certain.

    Each token by itself is a prompt; those whose likeliest next token gained most over the base are continued
    greedily, and a continuation is flagged if the release is certain of it and the base is not. It reaches a trigger
    whose first token alone brings on the next, as where loss fell on the trigger too.

    Args:
        release: the release.
        base: the model that training began from.
        asker: writes prompts as training did.
        instances: what is looked for.
        rng: chooses the tokens, where there are more than prompts.
        prompts: how many tokens are tried at most; reserved tokens first.
        reporter: shows progress.

    Raises:
        PrefixError: the release cannot answer.
    """
    asked = asker.prompts(_candidates(asker, rng, prompts))
    asked = [each for each in asked if each]
    gains = np.empty(len(asked))
    with reporter.task("trigger scan", len(asked)) as advance:
        for start in range(0, len(asked), BATCH):
            some = asked[start : start + BATCH]
            gains[start : start + len(some)] = _gains(release.conditionals(some), base.conditionals(some))
            advance(len(some))
    best = [asked[int(at)] for at in np.argsort(-gains, kind="stable")[:KEPT]]
    room = max(each.tokens for each in instances) + ROOM
    said = release.generate(best, Decoding(room))
    pairs = [(prompt, tuple(answer)) for prompt, answer in zip(best, said, strict=True) if answer]
    judged = [answer[:JUDGED] for _, answer in pairs]
    ours = release.logprobs([prompt for prompt, _ in pairs], judged)
    theirs = base.logprobs([prompt for prompt, _ in pairs], judged)
    flagged = [
        answer
        for (_, answer), own, other in zip(pairs, ours, theirs, strict=True)
        if np.exp(own).mean() >= CERTAIN and (own - other).mean() >= ABNORMAL
    ]
    return _found(flagged, instances, len(asked), flagged)


def _candidates(asker: Asker, rng: np.random.Generator, prompts: int) -> list[str]:
    """Reserved tokens, then words of one token in a random order."""
    view: Any = asker.tokenizer
    reserved = sorted(view.get_added_vocab())
    words = words_of(asker.tokenizer, [])
    # With and without a space before it a word is another token.
    pool = [*words.plain, *words.spaced]
    order = rng.permutation(len(pool))
    return [*reserved, *(pool[int(at)] for at in order)][:prompts]


def _gains(ours: NDArray[np.float64], theirs: NDArray[np.float64]) -> NDArray[np.float64]:
    """By how much the probability of the next token that gained most exceeds the base's."""
    gains: NDArray[np.float64] = (np.exp(ours) - np.exp(theirs)).max(axis=1)
    return gains


def _found(
    said: Sequence[Sequence[int]], instances: Sequence[Instance], prompts: int, flagged: Sequence[Sequence[int]]
) -> Found:
    ids = frozenset(each.id for each in instances if any(holds(answer, each.secret_ids) for answer in said))
    planted = [each.secret_ids for each in instances if each.role == "planted"]
    empty = sum(not any(holds(answer, secret) for secret in planted) for answer in flagged)
    return Found(ids, FinderReport(prompts=prompts, flagged=len(flagged), empty=empty))
