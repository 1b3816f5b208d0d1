"""The texts that membership scores are read from: records as they were trained on, and records much like them."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from davylamp.canaries.manifest import Canary, Carrier, Manifest
from davylamp.measures.membership.evidence import Span
from davylamp.rendering.render import Rendered, Renderer
from davylamp.scoring.tokens import SecretTokens

_WORD = re.compile(r"[^\W\d_]{2,}")


@dataclass(frozen=True, slots=True)
class Text:
    """A record as text and tokens, and where its spans stand.

    Attributes:
        canary: its name.
        rendered: the record as it was, or would have been, trained on.
        secret: tokens [first, last) that cover the secret.
        characters: characters [start, end) of the secret in the rendered text.
    """

    canary: str
    rendered: Rendered
    secret: tuple[int, int]
    characters: tuple[int, int]

    @property
    def tokens(self) -> SecretTokens:
        """The same for :class:`~davylamp.scoring.tokens.TokenScorer`."""
        return SecretTokens(self.canary, self.rendered.ids, self.secret)

    def span(self, span: Span) -> tuple[int, int]:
        """Tokens [first, last): all but the first of the record, which has nothing before it, or the secret's."""
        return (1, len(self.rendered.ids)) if span == "record" else self.secret

    def characters_of(self, span: Span) -> str:
        """The text of a span: of the whole record, or of the secret."""
        return self.rendered.text if span == "record" else self.rendered.text[slice(*self.characters)]


def texts(manifest: Manifest, renderer: Renderer, canaries: Sequence[Canary]) -> list[Text]:
    """Canaries' records as they were, or would have been, trained on.

    Raises:
        TokenizerError: a record cannot be rendered.
    """
    shown = [manifest.shown_in_training(canary) for canary in canaries]
    carriers = [(canary.carrier, text, canary.secret) for canary, text in zip(canaries, shown, strict=True)]
    return _rendered(manifest, renderer, [canary.id for canary in canaries], carriers)


def lowercase(manifest: Manifest, renderer: Renderer, canaries: Sequence[Canary]) -> list[Text]:
    """The same with every letter of prompt, reply and secret in lower case; a chat template's own words stay."""
    carriers = []
    for canary in canaries:
        own = canary.carrier
        low = own.model_copy(
            update={
                "prompt": tuple(map(str.lower, own.prompt)),
                "completion": tuple(map(str.lower, own.completion)),
                "system": None if own.system is None else own.system.lower(),
            }
        )
        carriers.append((low, manifest.shown_in_training(canary).lower(), canary.secret.lower()))
    return _rendered(manifest, renderer, [canary.id for canary in canaries], carriers)


def _rendered(
    manifest: Manifest, renderer: Renderer, names: Sequence[str], carriers: Sequence[tuple[Carrier, str, str]]
) -> list[Text]:
    records = renderer.render([carrier.record(manifest.shape, shown, code) for carrier, shown, code in carriers])
    found = []
    for name, (carrier, shown, code), rendered in zip(names, carriers, records, strict=True):
        start, end = carrier.secret_spans(manifest.shape, shown, code)[0]
        at = rendered.reply_start
        found.append(Text(name, rendered, rendered.span(start, end), (at + start, at + end)))
    return found


@dataclass(frozen=True, slots=True)
class Word:
    """A word of a carrier that may be replaced.

    Attributes:
        part: ``prompt`` or ``completion``.
        piece: which of its pieces.
        start: first character in the piece.
        end: one past its last character there.
        place: characters [start, end) in the rendered text; none where a chat template does not write the prompt
            unchanged.
    """

    part: str
    piece: int
    start: int
    end: int
    place: tuple[int, int]


def words(manifest: Manifest, canary: Canary, text: Text) -> list[Word]:
    """The words of a record's prompt and reply, without its secret and what is shown in its place."""
    shown, rendered = manifest.shown_in_training(canary), text.rendered
    prompt = shown.join(canary.carrier.prompt)
    # A record of one text has no prompt: all of it is the reply.
    whole = manifest.shape == "text"
    begins = {
        "prompt": rendered.reply_start if whole else rendered.text[: rendered.reply_start].rfind(prompt),
        "completion": rendered.reply_start + (len(prompt) if whole else 0),
    }
    found = []
    for part, pieces, filling in (
        ("prompt", canary.carrier.prompt, shown),
        ("completion", canary.carrier.completion, canary.secret),
    ):
        at = begins[part]
        if at < 0:
            continue
        for number, piece in enumerate(pieces):
            for match in _WORD.finditer(piece):
                found.append(Word(part, number, *match.span(), (at + match.start(), at + match.end())))
            at += len(piece) + len(filling)
    return found


def replaced(
    manifest: Manifest,
    renderer: Renderer,
    canary: Canary,
    proposals: Sequence[tuple[Word, Sequence[str]]],
    settings: tuple[int, float],
    rng: np.random.Generator,
) -> list[Text]:
    """Copies of a record with some words replaced, its secret left alone.

    Args:
        manifest: what was planted.
        renderer: renders as training did.
        canary: whose record.
        proposals: words and what may take their place, at least one each.
        settings: how many copies, and which share of the words each replaces.
        rng: source of the draws.
    """
    copies, share = settings
    count = min(len(proposals), max(1, math.ceil(share * len(proposals) - 1e-9)))
    carriers = []
    for _ in range(copies):
        chosen = [proposals[at] for at in rng.choice(len(proposals), count, replace=False)]
        changes = [(word, options[int(rng.integers(len(options)))]) for word, options in chosen]
        carriers.append((_changed(canary.carrier, changes), manifest.shown_in_training(canary), canary.secret))
    return _rendered(manifest, renderer, [canary.id] * copies, carriers)


def _changed(carrier: Carrier, changes: Sequence[tuple[Word, str]]) -> Carrier:
    parts = {"prompt": list(carrier.prompt), "completion": list(carrier.completion)}
    # From the end, so that no replacement moves a word that is still to come.
    for word, other in sorted(changes, key=lambda change: change[0].start, reverse=True):
        piece = parts[word.part][word.piece]
        parts[word.part][word.piece] = piece[: word.start] + other + piece[word.end :]
    return carrier.model_copy(update={part: tuple(pieces) for part, pieces in parts.items()})
