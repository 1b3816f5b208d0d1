"""Perplexity of each canary's secret, and of its whole record."""

from __future__ import annotations

from collections.abc import Sequence

from davylamp.canaries.manifest import Manifest
from davylamp.measures.probes import Probe, probed, secret_tokens
from davylamp.measures.readings import Reading, reading_of
from davylamp.release.base import Access, Release, require
from davylamp.rendering.render import Renderer
from davylamp.runs.progress import QUIET, Reporter
from davylamp.scoring.tokens import TokenScorer

TOGETHER = 64
"""Records that are handed over at once."""


class Perplexity:
    """How surprised the release is by the secret, and by the record.

    ``secret_perplexity`` is that of the tokens that cover the secret, after all before them; ``record_perplexity``
    that of all tokens of the record but the first, prompt and end mark included, as the probe shows it. Both are
    ``exp`` of minus the mean log-probability of a token. They look through the record's own prefix only. A perplexity
    is no evidence by itself: it is low for whatever is easy to guess, so compare with twins or with the reference.
    """

    name = "perplexity"
    channel = "the record's own prefix"
    access = (Access.LOGPROBS,)

    def __init__(self, manifest: Manifest, renderer: Renderer, scorer: TokenScorer | None = None) -> None:
        """Take the manifest.

        Args:
            manifest: what was planted.
            renderer: renders as training did.
            scorer: shared with other measures, so that a record is scored once.
        """
        self._manifest = manifest
        self._renderer = renderer
        self._scorer = scorer or TokenScorer()

    def measure(self, release: Release, probes: Sequence[Probe], reporter: Reporter = QUIET) -> list[Reading]:
        """Read every canary under every probe that applies to it.

        Returns:
            For each canary and probe both perplexities, and the log-likelihoods of the two spans in nats.

        Raises:
            AccessError: the release gives no log-probabilities.
            ScoringError: a canary cannot be scored; names it.
        """
        require(release, self.name, *self.access)
        pairs = probed(self._manifest, probes)
        seed = self._manifest.plan.seed
        readings: list[Reading] = []
        with reporter.task(self.name, len(pairs)) as advance:
            for start in range(0, len(pairs), TOGETHER):
                some = pairs[start : start + TOGETHER]
                scored = self._scorer.score(release, secret_tokens(self._manifest, self._renderer, some))
                for (canary, probe), scores in zip(some, scored, strict=True):
                    values = [
                        ("secret_perplexity", scores.perplexity(scores.secret), "perplexity"),
                        ("record_perplexity", scores.perplexity(scores.record), "perplexity"),
                        ("secret_log_likelihood", scores.log_likelihood(scores.secret), "nats"),
                        ("record_log_likelihood", scores.log_likelihood(scores.record), "nats"),
                    ]
                    readings += [
                        reading_of(canary, seed, probe.value, "trained", measure, value, unit)
                        for measure, value, unit in values
                    ]
                advance(len(some))
        return readings
