"""Probabilistic extraction of each canary's secret: by samples, greedily, and by the list of the likeliest."""

from __future__ import annotations

import math
from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict, Field

from davylamp.canaries.manifest import Canary, Manifest
from davylamp.errors import ScoringError
from davylamp.measures.probes import Probe, probed, secret_tokens
from davylamp.measures.readings import Reading, reading_of
from davylamp.release.base import Access, PrefixError, Release, require
from davylamp.rendering.render import Renderer
from davylamp.runs.progress import QUIET, Reporter
from davylamp.scoring.extraction import Listing, at_least_once, list_extraction, samples_needed
from davylamp.scoring.guessing_rows import open_rows
from davylamp.scoring.guessing_search import Effort
from davylamp.scoring.tokens import SecretTokens, TokenScorer, TokenScores
from davylamp.scoring.tokens_decoding import GREEDY, Scheme


class ExtractionSettings(BaseModel):
    """How a secret is drawn from a release, and how often.

    Attributes:
        temperature: of one sample; 0 is greedy decoding.
        top_k: of one sample; 0 keeps all tokens.
        top_p: of one sample; 1 keeps all tokens.
        samples: n, how many samples an adversary draws.
        probability: p; a secret is (n, p)-discoverable if n samples hold it with at least this probability.
        guesses: m, length of the list of the likeliest continuations.
        max_expansions: rows that a search for one list may read.
        batch: rows that a search asks for at once.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    temperature: float = Field(1.0, ge=0, allow_inf_nan=False)
    top_k: int = Field(0, ge=0)
    top_p: float = Field(1.0, gt=0, le=1)
    samples: int = Field(100, ge=1)
    probability: float = Field(0.5, gt=0, lt=1)
    guesses: int = Field(10, ge=1)
    max_expansions: int = Field(1000, ge=1)
    batch: int = Field(64, ge=1)

    @property
    def scheme(self) -> Scheme:
        """How one sample is drawn."""
        return Scheme(self.temperature, self.top_k, self.top_p)

    @property
    def schemes(self) -> tuple[Scheme, ...]:
        """All that the one pass over a record must answer for."""
        return (self.scheme, GREEDY)


class Extraction:
    """(n, p)-discoverable extraction (Hayes et al., 2410.19482, Sec. 3), greedy decoding, and the list of m guesses.

    For each canary and probe:

    - ``emission_probability``: chance that one sample after the prefix begins with the secret's tokens, from one pass;
      ``emission_surprisal`` is the same in bits (infinite where the scheme never says them).
    - ``extraction_probability``: chance that at least one of n samples does.
    - ``samples_needed``: fewest samples that hold it with probability p; infinite for never.
    - ``discoverable``: 1 if ``extraction_probability`` is at least p.
    - ``greedy_emission``: 1 if greedy decoding says it: the special case of temperature 0.
    - ``list_extraction_low`` and ``_high``: 1 if the m likeliest continuations of its length certainly (may) hold it;
      they differ only where the search was cut off, or on a tie with the last place.
    - ``kappa_of_space``: ``min(1, m / size)``, what a list of m guesses achieves without the release against a secret
      that was drawn uniformly from its space, as davylamp's are.

    All look through the record's own prefix only.
    """

    name = "extraction"
    channel = "the record's own prefix"
    access = (Access.CONDITIONALS,)

    def __init__(
        self,
        manifest: Manifest,
        renderer: Renderer,
        settings: ExtractionSettings | None = None,
        scorer: TokenScorer | None = None,
    ) -> None:
        """Take the manifest.

        Args:
            manifest: what was planted.
            renderer: renders as training did.
            settings: how a secret is drawn.
            scorer: shared with other measures; it must hold the settings' schemes.
        """
        self._manifest = manifest
        self._renderer = renderer
        self._settings = settings or ExtractionSettings()
        self._scorer = scorer or TokenScorer(self._settings.schemes)

    def measure(self, release: Release, probes: Sequence[Probe], reporter: Reporter = QUIET) -> list[Reading]:
        """Read every canary under every probe that applies to it.

        Raises:
            AccessError: the release gives no conditionals.
            ScoringError: a canary cannot be scored; names it.
        """
        require(release, self.name, *self.access)
        pairs = probed(self._manifest, probes)
        records = secret_tokens(self._manifest, self._renderer, pairs)
        readings: list[Reading] = []
        with reporter.task(self.name, len(pairs)) as advance:
            for (canary, probe), record in zip(pairs, records, strict=True):
                scores = self._scorer.score(release, [record])[0]
                readings += self._read(canary, probe, scores, self._list(release, record, scores))
                advance(1)
        return readings

    def _list(self, release: Release, record: SecretTokens, scores: TokenScores) -> Listing:
        settings = self._settings
        try:
            return list_extraction(
                open_rows(release, record.prefix),
                record.secret_ids,
                scores.log_likelihood(record.secret),
                settings.guesses,
                effort=Effort(expansions=settings.max_expansions),
                batch=settings.batch,
            )
        except PrefixError as error:
            raise ScoringError(f"canary {record.name}: {error}") from error

    def _read(self, canary: Canary, probe: Probe, scores: TokenScores, listing: Listing) -> list[Reading]:
        settings = self._settings
        log_p = scores.emission[settings.scheme]
        chance = at_least_once(log_p, settings.samples)
        values = [
            ("emission_probability", math.exp(log_p), "probability"),
            ("emission_surprisal", -log_p / math.log(2) + 0.0, "bits"),
            ("extraction_probability", chance, "probability"),
            ("samples_needed", samples_needed(log_p, settings.probability), "samples"),
            ("discoverable", float(chance >= settings.probability), "success"),
            ("greedy_emission", float(scores.emission[GREEDY] == 0), "success"),
            ("list_extraction_low", float(listing.low), "success"),
            ("list_extraction_high", float(listing.high), "success"),
            ("kappa_of_space", min(1.0, settings.guesses / self._manifest.space.size), "probability"),
        ]
        seed = self._manifest.plan.seed
        return [
            reading_of(canary, seed, probe.value, "trained", measure, value, unit) for measure, value, unit in values
        ]
