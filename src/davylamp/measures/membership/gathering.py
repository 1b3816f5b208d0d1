"""What scores read, gathered for some records at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from davylamp.canaries.manifest import Canary, Manifest
from davylamp.errors import ScoringError
from davylamp.measures.membership import texts
from davylamp.measures.membership.evidence import Evidence, Need, Span
from davylamp.measures.membership.proposals import Proposer, ReleaseProposer
from davylamp.measures.membership.settings import MembershipSettings
from davylamp.measures.membership.texts import Text
from davylamp.release.base import PrefixError, Release
from davylamp.rendering.render import Renderer
from davylamp.scoring.tokens import TokenScorer, TokenScores
from davylamp.secrets import stream

Array = NDArray[np.float64]
How = Literal["adapter disabled", "checkpoint"]


@dataclass(frozen=True, slots=True)
class Reference:
    """The model that ``reference`` calibrates by.

    Attributes:
        release: the model, which reads every record with its own tokenizer.
        how: ``adapter disabled`` for the audited checkpoint without its adapter, else ``checkpoint``.
    """

    release: Release
    how: How


class Gathering:
    """Reads what the needs of some scores name, and nothing else."""

    def __init__(
        self,
        manifest: Manifest,
        renderer: Renderer,
        settings: MembershipSettings,
        needs: frozenset[Need],
        scorer: TokenScorer,
        reference: Reference | None = None,
        proposer: Proposer | None = None,
    ) -> None:
        """Take what records are read with.

        Args:
            manifest: what was planted.
            renderer: renders as training did.
            settings: see :class:`MembershipSettings`.
            needs: what is read.
            scorer: shared with other measures; keeps moments where those are needed.
            reference: the reference model, where that is needed.
            proposer: proposes words for neighbours; the release itself if none.
        """
        self._manifest = manifest
        self._renderer = renderer
        self._settings = settings
        self._needs = needs
        self._scorer = scorer
        self._reference = reference
        self._proposer = proposer
        self._prefixes: dict[str, tuple[int, ...]] = {}

    def shots(self, release: Release, arm: str, shots: Sequence[Canary], others: Sequence[Canary]) -> list[str]:
        """Set the records that stand before every record of an arm: as many of the given ones as fit.

        Args:
            release: the model.
            arm: the arm.
            shots: records that were never trained on, none of which is scored.
            others: the records that are.

        Returns:
            The ids of those that are used.

        Raises:
            ScoringError: not even one fits the model's context.
        """
        prefixes = [text.rendered.ids for text in texts.texts(self._manifest, self._renderer, shots)]
        longest = max(texts.texts(self._manifest, self._renderer, others), key=lambda text: len(text.rendered.ids))
        for count in range(len(shots), 0, -1):
            self._prefixes[arm] = tuple(token for ids in prefixes[:count] for token in ids)
            try:
                release.logprobs([self._prefixes[arm]], [longest.rendered.ids])
            except PrefixError as error:
                if count == 1:
                    raise ScoringError(f"recall: no shot fits before canary {longest.canary}: {error}") from error
            else:
                return [canary.id for canary in shots[:count]]
        raise ScoringError(f"recall: arm {arm!r} has no non-member to stand before its records")

    def gather(self, release: Release, canaries: Sequence[Canary]) -> list[dict[Span, Evidence]]:
        """What is known of each span of each canary's record.

        Raises:
            AccessError: the release gives too little.
            ScoringError: a canary cannot be scored; names it.
            TokenizerError: a record cannot be rendered.
        """
        found = texts.texts(self._manifest, self._renderer, canaries)
        scored = self._scorer.score(release, [text.tokens for text in found])
        columns: dict[Need, list[dict[Span, Any]]] = {"logprobs": self._per_span(found, scored)}
        if "moments" in self._needs:
            columns["moments"] = [self._moments(text, scores) for text, scores in zip(found, scored, strict=True)]
        if "text" in self._needs:
            columns["text"] = [{span: text.characters_of(span) for span in self._settings.spans} for text in found]
        if "lowercase" in self._needs:
            low = texts.lowercase(self._manifest, self._renderer, canaries)
            columns["lowercase"] = self._per_span(low, TokenScorer().score(release, [text.tokens for text in low]))
        if "reference" in self._needs:
            columns["reference"] = self._referred(canaries)
        if "shots" in self._needs:
            columns["shots"] = self._conditional(release, canaries, found)
        if "neighbours" in self._needs:
            columns["neighbours"] = self._neighbours(release, canaries, found)
        if "gradients" in self._needs:
            columns["gradients"] = [self._gradients(release, text) for text in found]
        return [
            {
                span: Evidence(text.canary, span, self._settings.k, {need: c[at][span] for need, c in columns.items()})
                for span in self._settings.spans
            }
            for at, text in enumerate(found)
        ]

    def _per_span(self, found: Sequence[Text], scored: Sequence[TokenScores]) -> list[dict[Span, Any]]:
        return [
            {span: scores.of(text.span(span)) for span in self._settings.spans}
            for text, scores in zip(found, scored, strict=True)
        ]

    def _moments(self, text: Text, scores: TokenScores) -> dict[Span, tuple[Array, Array]]:
        if scores.means is None or scores.deviations is None:
            raise ScoringError("the shared scorer keeps no moments: make it with TokenScorer(moments=True)")
        means, deviations = scores.means, scores.deviations
        places = {span: text.span(span) for span in self._settings.spans}
        return {
            span: (means[first - 1 : last - 1], deviations[first - 1 : last - 1])
            for span, (first, last) in places.items()
        }

    def _referred(self, canaries: Sequence[Canary]) -> list[dict[Span, Any]]:
        if self._reference is None:
            raise ScoringError("a score needs a reference model, and there is none")
        # Tokenised anew: ids of another model's tokenizer would be other text, or nothing at all.
        own = Renderer(self._reference.release.tokenizer, self._renderer.style)
        found = texts.texts(self._manifest, own, canaries)
        return self._per_span(found, TokenScorer().score(self._reference.release, [text.tokens for text in found]))

    def _conditional(
        self, release: Release, canaries: Sequence[Canary], found: Sequence[Text]
    ) -> list[dict[Span, Any]]:
        # Only tokens that have a probability without the shots too: all but the record's first.
        prefixes = [
            (*self._prefixes[canary.arm], *text.rendered.ids[:1]) for canary, text in zip(canaries, found, strict=True)
        ]
        try:
            scored = release.logprobs(prefixes, [text.rendered.ids[1:] for text in found])
        except PrefixError as error:
            raise ScoringError(f"canary {found[error.index].canary}, after the shots of recall: {error}") from error
        spans = [{span: text.span(span) for span in self._settings.spans} for text in found]
        return [
            {span: np.minimum(values[first - 1 : last - 1], 0.0) for span, (first, last) in places.items()}
            for places, values in zip(spans, scored, strict=True)
        ]

    def _neighbours(
        self, release: Release, canaries: Sequence[Canary], found: Sequence[Text]
    ) -> list[dict[Span, tuple[Array, ...]]]:
        copies = [self._copies(release, canary, text) for canary, text in zip(canaries, found, strict=True)]
        together = [copy for each in copies for copy in each]
        # Read once and kept nowhere: there are many times more copies than records.
        scored = iter(self._per_span(together, TokenScorer().score(release, [copy.tokens for copy in together])))
        each_spans = [[next(scored) for _ in each] for each in copies]
        return [{span: tuple(one[span] for one in each) for span in self._settings.spans} for each in each_spans]

    def _copies(self, release: Release, canary: Canary, text: Text) -> list[Text]:
        if self._proposer is None:
            self._proposer = ReleaseProposer(release)
        places = texts.words(self._manifest, canary, text)
        proposed = self._proposer.propose(canary.id, text.rendered, [word.place for word in places])
        usable = [(word, others) for word, others in zip(places, proposed, strict=True) if others]
        if not usable:
            raise ScoringError(f"canary {canary.id}: neighbourhood finds no word of its record to replace")
        return texts.replaced(
            self._manifest,
            self._renderer,
            canary,
            usable,
            (self._settings.neighbours, self._settings.replaced),
            stream(self._manifest.plan.seed, "membership neighbours", canary.id),
        )

    def _gradients(self, release: Release, text: Text) -> dict[Span, float]:
        from davylamp.release.gradients import gradient_norms

        try:
            norms = gradient_norms(release, text.rendered.ids, [text.span(span) for span in self._settings.spans])
        except PrefixError as error:
            raise ScoringError(f"canary {text.canary}: {error}") from error
        return dict(zip(self._settings.spans, norms, strict=True))
