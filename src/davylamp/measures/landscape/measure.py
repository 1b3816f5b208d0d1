"""Reading the landscape of one model: every canary's secret by two prompts, and records that it never saw."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from davylamp.canaries.manifest import Manifest
from davylamp.corpora.records import Corpus
from davylamp.errors import ScoringError
from davylamp.measures.exposure import Exposure
from davylamp.measures.landscape.model import Leak, Role, Text
from davylamp.measures.landscape.spec import LandscapeSpec
from davylamp.measures.landscape.texts import questions, records_tokens
from davylamp.measures.probes import Probe, probed, secret_tokens
from davylamp.release.base import Access, Release, require
from davylamp.rendering.render import Renderer
from davylamp.runs.progress import QUIET, Reporter
from davylamp.runs.wording import counted
from davylamp.scoring.tokens import SecretTokens, TokenScorer, TokenScores
from davylamp.scoring.tokens_decoding import GREEDY

TOGETHER = 64
"""Records that are handed over at once."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What was read of one model.

    Attributes:
        canaries: every canary that is asked for.
        held_out: every held-out record.
        medication: the last item of every test record that has one.
        notes: what a reader must know, a sentence each.
    """

    canaries: tuple[Leak, ...]
    held_out: tuple[Text, ...]
    medication: tuple[Text, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Known:
    """What an audit of the same model read already.

    Attributes:
        candidates: how many candidates each secret was ranked among.
        values: exposure in bits and rank by canary and by ``exposure`` or ``rank``.
    """

    candidates: int
    values: Mapping[tuple[str, str], float]


class LandscapeMeasure:
    """What a model leaks, and what it is still good for (P3, Fig. 1, 2 and Table 3).

    Of each canary: the log-probability of its secret after the record cut before it (verbatim) and after a question
    (semantic), whether greedy decoding says it, and its exact rank among the secrets that no canary holds. Of records
    that no model was trained on: the log-probability of all their tokens, and of their last item. Sums are taken in
    float64 of the release's log-probabilities. One pass reads verbatim and greedy, and one record is read once
    whatever is asked of it.
    """

    name = "landscape"
    channel = "the record's own prefix, and a question"
    access = (Access.LOGPROBS, Access.CONDITIONALS)

    def __init__(
        self,
        manifest: Manifest,
        renderer: Renderer,
        spec: LandscapeSpec,
        held_out: Corpus,
        test: Corpus,
        known: Known | None = None,
        *,
        context: int | None = None,
    ) -> None:
        """Lay out what will be scored, so that what does not fit costs no reading.

        Args:
            manifest: what was planted.
            renderer: renders as training did.
            spec: how to read.
            held_out: records that no model was trained on.
            test: records whose last item is predicted.
            known: the ranks, where an audit has read them; they take longest.
            context: tokens that the model can read at once; longer records are left out, and counted in the notes.

        Raises:
            InputError: the pool is too large, or nobody knows whom a canary's record is about.
            ScoringError: there is no record, none is short enough, or none has a last item.
        """
        self._manifest, self._spec = manifest, spec
        self._ranked = Exposure(manifest, renderer, spec.pool) if known is None else known
        self._verbatim = secret_tokens(manifest, renderer, probed(manifest, (Probe.HIDDEN,)))
        self._questions = questions(manifest, renderer, spec)
        self._notes: list[str] = []
        whole = self._tokens(held_out, renderer, "held-out", context)
        self._held_out = [each for each, _ in whole]
        tokens = self._tokens(test, renderer, "test", context)
        self._items = [each for each, has_item in tokens if has_item]
        if not self._items:
            raise ScoringError(f"none of {counted(len(tokens), 'test record')} of {test.source} has a last item (item)")
        if left := len(tokens) - len(self._items):
            verb = "has no last item and is" if left == 1 else "have no last item and are"
            self._notes.append(f"{left:,} of {len(tokens):,} test records of {test.source} {verb} left out.")

    def _tokens(
        self, corpus: Corpus, renderer: Renderer, name: str, context: int | None
    ) -> list[tuple[SecretTokens, bool]]:
        """Records as tokens with the span of their last item, those left out that the model cannot read at once."""
        if not corpus.records:
            raise ScoringError(f"there is no {name} record in {corpus.source}")
        tokens = records_tokens(corpus.records, renderer, self._spec.item, name)
        if context is None:
            return tokens
        short = [each for each in tokens if len(each[0].ids) <= context]
        if not short:
            raise ScoringError(
                f"every {name} record of {corpus.source} is longer than the model's context of {context}"
            )
        if left := len(tokens) - len(short):
            self._notes.append(
                f"{left:,} of {len(tokens):,} {name} records of {corpus.source} {'is' if left == 1 else 'are'} longer "
                f"than the model's context of {context:,} tokens and left out."
            )
        return short

    def measure(self, release: Release, reporter: Reporter = QUIET) -> Reading:
        """Read a model.

        Args:
            release: the model.
            reporter: shows progress.

        Raises:
            AccessError: the release gives too little.
            ScoringError: a canary or a record cannot be scored; names it.
        """
        require(release, self.name, *self.access)
        ranks = self._ranks(release, reporter)
        verbatim = _scored(TokenScorer([GREEDY]), release, self._verbatim, "verbatim", reporter)
        plain = TokenScorer()
        semantic = _scored(plain, release, self._questions, "semantic", reporter)
        # A record that is asked for its item is read whole already.
        whole = {each.ids: each for each in (*self._held_out, *self._items)}
        texts = dict(zip(whole, _scored(plain, release, [*whole.values()], "records", reporter), strict=True))
        return Reading(
            tuple(self._leaks(ranks, verbatim, semantic)),
            tuple(_text(texts[each.ids], (1, len(each.ids)), each.name) for each in self._held_out),
            tuple(_text(texts[each.ids], each.secret, each.name) for each in self._items),
            tuple(self._notes),
        )

    def _ranks(self, release: Release, reporter: Reporter) -> Known:
        if isinstance(self._ranked, Known):
            return self._ranked
        found = self._ranked.measure(release, (Probe.HIDDEN,), reporter)
        return Known(self._ranked.candidates, {(each.canary, each.measure): each.value for each in found})

    def _leaks(self, ranks: Known, verbatim: Sequence[TokenScores], semantic: Sequence[TokenScores]) -> list[Leak]:
        found = []
        for canary, own, asked in zip(self._manifest.measured(), verbatim, semantic, strict=True):
            role: Role = "positive" if canary.role == "positive" else "focus" if canary.dose else "twin"
            secret, answer = _text(own, own.secret, canary.id), _text(asked, asked.secret, canary.id)
            found.append(
                Leak(
                    id=canary.id,
                    role=role,
                    dose=canary.dose,
                    verbatim=secret.nats,
                    tokens=secret.tokens,
                    semantic=answer.nats,
                    semantic_tokens=answer.tokens,
                    exposure=max(0.0, ranks.values[canary.id, "exposure"]),
                    rank=ranks.values[canary.id, "rank"],
                    candidates=ranks.candidates,
                    greedy=math.isfinite(own.emission[GREEDY]),
                )
            )
        return found


def _scored(
    scorer: TokenScorer, release: Release, records: Sequence[SecretTokens], name: str, reporter: Reporter
) -> list[TokenScores]:
    found: list[TokenScores] = []
    with reporter.task(name, len(records)) as advance:
        for start in range(0, len(records), TOGETHER):
            some = records[start : start + TOGETHER]
            found += scorer.score(release, some)
            advance(len(some))
    return found


def _text(scores: TokenScores, span: tuple[int, int], name: str) -> Text:
    nats = -scores.log_likelihood(span)
    if not math.isfinite(nats):
        raise ScoringError(f"{name}: the model gives one of its tokens no probability at all, so it has no perplexity")
    return Text(tokens=span[1] - span[0], nats=nats + 0.0)
