"""What is scored for a landscape: a question about each canary, and the last item of each test record."""

from __future__ import annotations

import re
from collections.abc import Sequence

from davylamp.canaries.manifest import Canary, Manifest
from davylamp.corpora.records import Record
from davylamp.errors import Fault, InputError, ScoringError
from davylamp.measures.landscape.spec import PLAIN, LandscapeSpec
from davylamp.rendering.render import Rendered, Renderer
from davylamp.scoring.tokens import SecretTokens

CHAT, BARE = "chat", "plain"
"""How a question is put: through the chat template, or as a plain text."""


def asked_as(renderer: Renderer) -> str:
    """How a model is asked: through the chat template where its tokenizer has one, unless records are plain."""
    return CHAT if renderer.is_chat(Record.of_pair("", "")) else BARE


def questions(manifest: Manifest, renderer: Renderer, spec: LandscapeSpec) -> list[SecretTokens]:
    """A question about each canary that is asked for, answered by its secret, and where the secret's tokens stand.

    Args:
        manifest: what was planted.
        renderer: renders as training did.
        spec: the question, and how to find whom a record is about.

    Raises:
        InputError: of some canary's record nobody knows whom it is about.
    """
    canaries = manifest.measured()
    subjects = _subjects(manifest, canaries, spec)
    pattern = "{question}" if asked_as(renderer) == CHAT else PLAIN
    before, after = spec.answer.split("{secret}")
    records = []
    for canary, subject in zip(canaries, subjects, strict=True):
        filled = {"subject": subject, "first": canary.secret[0]}
        # Values may hold braces, so that each slot is read once.
        question = re.sub(r"\{(\w+)\}", lambda slot, values=filled: values[slot[1]], spec.question)  # type: ignore[misc]
        records.append(Record.of_pair(pattern.replace("{question}", question), before + canary.secret + after))
    return [
        SecretTokens(canary.id, rendered.ids, rendered.span(len(before), len(before) + len(canary.secret)))
        for canary, rendered in zip(canaries, renderer.render(records), strict=True)
    ]


def _subjects(manifest: Manifest, canaries: Sequence[Canary], spec: LandscapeSpec) -> list[str]:
    """Whom each canary's record is about, found in what stands before its secret."""
    if "{subject}" not in spec.question:
        return [""] * len(canaries)
    texts = [manifest.mask.join(canary.carrier.prompt) + canary.carrier.completion[0] for canary in canaries]
    found = [re.search(spec.subject, text) for text in texts]
    if missing := [canary.id for canary, match in zip(canaries, found, strict=True) if match is None or not match[1]]:
        fix = "Or give a question without {subject}."
        named = f"{', '.join(missing[:3])}{' ...' if len(missing) > 3 else ''}"
        allowed = f"a pattern whose group finds whom each record is about; it does not in {len(missing)} ({named})"
        raise InputError(Fault("landscape.subject", spec.subject, allowed, fix))
    return [match[1].strip() for match in found if match is not None]


def item_span(record: Record, rendered: Rendered, pattern: str) -> tuple[int, int] | None:
    """Tokens [first, last) that cover the last item of a record; nothing where it has none."""
    match = re.search(pattern, record.reply, re.DOTALL)
    if match is None or not match[1]:
        return None
    return rendered.span(*match.span(1))


def records_tokens(
    records: Sequence[Record], renderer: Renderer, pattern: str, name: str
) -> list[tuple[SecretTokens, bool]]:
    """Records as tokens, each with the span of its last item, or of all but the first token where it has none.

    Args:
        records: the records.
        renderer: renders as training did.
        pattern: finds the last item.
        name: what the records are called in messages.

    Returns:
        The tokens, and whether the span is that of an item.

    Raises:
        ScoringError: a record has no token that anything stands before.
    """
    found = []
    for at, (record, rendered) in enumerate(zip(records, renderer.render(records), strict=True), start=1):
        if len(rendered.ids) < 2:
            raise ScoringError(f"{name} record {at} has no token that another stands before: nothing is predicted")
        span = item_span(record, rendered, pattern)
        if span is not None and span[0] == 0:
            raise ScoringError(f"{name} record {at}: no token stands before its last item")
        found.append(
            (SecretTokens(f"{name} record {at}", rendered.ids, span or (1, len(rendered.ids))), span is not None)
        )
    return found
