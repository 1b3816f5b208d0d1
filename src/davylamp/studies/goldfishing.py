"""What a Goldfish loss drops of the rows of a run: seen before training, token by token."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from davylamp.canaries import Manifest
from davylamp.canaries.manifest import Canary
from davylamp.corpora.readers import read_corpus
from davylamp.corpora.records import Record
from davylamp.errors import Fault, InputError
from davylamp.protect.corpus.result import protected_rows
from davylamp.rendering.render import Rendered, Renderer
from davylamp.runs.folder import RunFolder
from davylamp.training.goldfish import GoldfishSpec, dropped
from davylamp.training.preflight import SecretDrops, secret_drops
from davylamp.training.spec import TrainingSpec

MARKS = "[-", "-]"
"""What stands around a dropped token."""


@dataclass(frozen=True, slots=True)
class GoldfishRow:
    """One row with what is dropped of it.

    Attributes:
        position: its row in the file, from 0.
        tokens: its tokens.
        loss_tokens: those that would receive loss without dropping.
        dropped: places of the dropped ones among all tokens.
        marked: the rendered row with ``[-`` and ``-]`` around each of them.
        canary: the canary that it holds, if any.
    """

    position: int
    tokens: int
    loss_tokens: int
    dropped: tuple[int, ...]
    marked: str
    canary: str | None


@dataclass(frozen=True, slots=True)
class GoldfishView:
    """What is dropped of a file.

    Attributes:
        spec: by which rule.
        rows: rows of the file.
        loss_tokens: tokens that would receive loss without dropping.
        dropped: those that are dropped.
        secrets: what is dropped of each secret that stands in the replies of rows that are trained on, with the number
            of copies that hold it. Where copies of protected rows differ, a token counts as dropped if no copy trains
            on a character of it.
        gone: planted canaries whose secret stands in none of those replies, since the rows were protected.
        row: the row that was asked for.
    """

    spec: GoldfishSpec
    rows: int
    loss_tokens: int
    dropped: int
    secrets: tuple[SecretDrops, ...]
    gone: tuple[str, ...]
    row: GoldfishRow | None


def view_goldfish(
    folder: RunFolder,
    model: str,
    training: TrainingSpec,
    *,
    position: int | None = None,
    reveal: bool = False,
    chat_template: Path | None = None,
) -> GoldfishView:
    """Say what a Goldfish loss drops of a run's rows: those that training would take, protected ones if there are any.

    Args:
        folder: a run with planted rows.
        model: whose tokenizer writes them.
        training: with ``goldfish``; style, loss and max_length are read too.
        position: a row to show.
        reveal: show the secret of a canary, which is masked otherwise.
        chat_template: file of a chat template, where the tokenizer has none.

    Raises:
        InputError: there is no such row.
        ManifestError: the planted file is not the one of the manifest.
        ModelError: the model has no tokenizer that can be used.
        TokenizerError: it cannot render the rows.
    """
    from davylamp.release.loader import load_tokenizer
    from davylamp.release.sources import resolve

    spec = training.goldfish or GoldfishSpec()
    manifest = Manifest.load(folder.manifest)
    manifest.check_planted(folder.planted)
    protected = protected_rows(folder, manifest)
    records = read_corpus(folder.planted).records if protected is None else protected[1]
    if position is not None and not 0 <= position < len(records):
        raise InputError(Fault("--record", position, f"a row from 0 to {len(records) - 1}"))
    renderer = Renderer(load_tokenizer(resolve(model), chat_template), training.style)
    return _view(manifest, records, renderer, training.model_copy(update={"goldfish": spec}), position, reveal)


def _view(
    manifest: Manifest,
    records: Sequence[Record],
    renderer: Renderer,
    training: TrainingSpec,
    position: int | None,
    reveal: bool,
) -> GoldfishView:
    spec = training.goldfish or GoldfishSpec()
    holders = {at: canary for canary in manifest.planted() for at in canary.positions}
    loss_tokens = lost = 0
    shown = None
    holding: dict[str, list[tuple[Record, Rendered]]] = {canary.id: [] for canary in manifest.planted()}
    for at, (record, rendered) in enumerate(zip(records, renderer.render(records), strict=True)):
        row = _row(at, rendered, training, holders, reveal)
        loss_tokens, lost = loss_tokens + row.loss_tokens, lost + len(row.dropped)
        shown = row if at == position else shown
        if at in holders and holders[at].secret in record.reply:
            holding[holders[at].id].append((record, rendered))
    return GoldfishView(
        spec=spec,
        rows=len(records),
        loss_tokens=loss_tokens,
        dropped=lost,
        secrets=tuple(
            _secret(manifest, canary, holding[canary.id], spec) for canary in manifest.planted() if holding[canary.id]
        ),
        gone=tuple(name for name, copies in holding.items() if not copies),
        row=shown,
    )


def _row(
    at: int, rendered: Rendered, training: TrainingSpec, holders: Mapping[int, Canary], reveal: bool
) -> GoldfishRow:
    spec, canary = training.goldfish or GoldfishSpec(), holders.get(at)
    ids = rendered.ids[: training.max_length]
    # The first token of a row is predicted from nothing.
    begin = max(1, rendered.loss_start if training.loss == "reply" else 0)
    lost = tuple(place for place, drop in enumerate(dropped(ids, spec)) if drop and place >= begin)
    text = rendered.text if canary is None or reveal else _masked(rendered.text, canary.secret)
    return GoldfishRow(
        position=at,
        tokens=len(ids),
        loss_tokens=max(0, len(ids) - begin),
        dropped=lost,
        marked=_marked(text, rendered, frozenset(lost)),
        canary=None if canary is None else canary.id,
    )


def _secret(
    manifest: Manifest, canary: Canary, copies: Sequence[tuple[Record, Rendered]], spec: GoldfishSpec
) -> SecretDrops:
    """What is dropped of a secret in all copies together, some of which may have been changed around it."""
    planted = manifest.trained_record(canary)
    if all(record == planted for record, _ in copies):
        return replace(secret_drops(manifest, canary, copies[0][1], spec), dose=len(copies))
    places = [place for record, rendered in copies for place in _places(record, rendered, canary.secret, spec)]
    trained = {at for tokens in places for own, lost in tokens if not lost for at in own}
    return SecretDrops(
        id=canary.id,
        dose=len(copies),
        tokens=len(places[0]),
        dropped=tuple(at for at, (own, _) in enumerate(places[0]) if not trained & {*own}),
    )


def _places(
    record: Record, rendered: Rendered, secret: str, spec: GoldfishSpec
) -> Iterator[list[tuple[Sequence[int], bool]]]:
    """For each place of a secret in a reply: the characters of it that each token covers, and whether it is dropped."""
    lost = dropped(rendered.ids, spec)
    at = record.reply.find(secret)
    while at >= 0:
        begin = rendered.reply_start + at
        tokens = range(*rendered.span(at, at + len(secret)))
        ends = [rendered.offsets[token] for token in tokens]
        own = [range(max(left, begin) - begin, min(right, begin + len(secret)) - begin) for left, right in ends]
        yield list(zip(own, (lost[token] for token in tokens), strict=True))
        at = record.reply.find(secret, at + 1)


def _masked(text: str, secret: str) -> str:
    """The text with a star for every letter and digit of the secret, so that each token keeps its place."""
    return text.replace(secret, re.sub(r"\w", "*", secret))


def _marked(text: str, rendered: Rendered, lost: frozenset[int]) -> str:
    pieces, at = [], 0
    for place, (first, last) in enumerate(rendered.offsets):
        # Several tokens may stand for one character of several bytes; a token of the tokenizer's own for none.
        start, end = max(first, at), max(last, at)
        piece = text[start:end]
        pieces += [text[at:start], piece.join(MARKS) if place in lost else piece]
        at = end
    return "".join([*pieces, text[at:]])
