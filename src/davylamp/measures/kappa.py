"""The certified guessing baseline at each canary's place, read from the base model, never from the release."""

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
from davylamp.scoring.guessing import GuessingBaseline, guessing_baseline
from davylamp.scoring.guessing_rows import open_rows
from davylamp.scoring.guessing_search import Effort
from davylamp.scoring.tokens import SecretTokens, TokenScorer
from davylamp.scoring.tokens_decoding import GREEDY, Scheme


class KappaSettings(BaseModel):
    """How hard the baseline is worked out.

    Attributes:
        temperature: at which a secret would have been drawn from the base model.
        guesses: m, the length of the list.
        max_expansions: rows that one search may read; what comes back then is an interval.
        batch: rows that a search asks for at once.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    temperature: float = Field(1.0, gt=0, allow_inf_nan=False)
    guesses: int = Field(10, ge=1)
    max_expansions: int = Field(500, ge=1)
    batch: int = Field(64, ge=1)

    @property
    def scheme(self) -> Scheme:
        """How a secret would have been drawn."""
        return Scheme(self.temperature)

    @property
    def schemes(self) -> tuple[Scheme, ...]:
        """All that the one pass over a record must answer for."""
        return (self.scheme, GREEDY)


class Kappa:
    """What a guesser achieves at each canary's place who knows the base model and never saw the release.

    For each canary and probe, read from the *base* model:

    - ``kappa_low``, ``kappa_high``: an interval that holds ``kappa(m)``, the mass of the m likeliest continuations of
      the secret's length: the success of the best list against a secret that was drawn from the base model there (P1,
      arXiv 2608.27782, Sec. 5). Charge ``kappa_high`` against an extraction.
    - ``prior_surprisal``: ``-log2 p(z | c)`` in bits. No secret is likelier than the likeliest, so that
      ``2**-surprisal`` is at most ``kappa(1)``: it bounds kappa from below, and may make a guessable secret look hard.
    - ``prior_greedy``, ``prior_list``: 1 if the base's greedy decoding, or the list of m that the search found, is (or
      holds) the secret. Over secrets drawn from the base their mean estimates the success of those two guessers, which
      no more than reaches kappa: bounds from below again.

    These say how guessable a secret is that *comes from the base model*. davylamp's own secrets are drawn uniformly
    from their space, and then ``m / size`` is exact: see ``kappa_of_space`` of the extraction measure.
    """

    name = "kappa"
    channel = "none: the release is not read"
    access = (Access.CONDITIONALS,)

    def __init__(
        self,
        manifest: Manifest,
        renderer: Renderer,
        settings: KappaSettings | None = None,
        scorer: TokenScorer | None = None,
    ) -> None:
        """Take the manifest.

        Args:
            manifest: what was planted.
            renderer: renders as training did.
            settings: how hard the baseline is worked out.
            scorer: shared with other measures; it must hold the settings' schemes.
        """
        self._manifest = manifest
        self._renderer = renderer
        self._settings = settings or KappaSettings()
        self._scorer = scorer or TokenScorer(self._settings.schemes)
        self._known: dict[tuple[int, tuple[int, ...], int], GuessingBaseline] = {}

    def measure(self, base: Release, probes: Sequence[Probe], reporter: Reporter = QUIET) -> list[Reading]:
        """Read every canary under every probe that applies to it.

        Args:
            base: the model before it saw any secret.
            probes: what the prompts show; one that shows the secret makes it guessable.
            reporter: shows progress.

        Raises:
            AccessError: the base model gives no conditionals.
            ScoringError: a canary cannot be scored; names it.
        """
        require(base, self.name, *self.access)
        pairs = probed(self._manifest, probes)
        records = secret_tokens(self._manifest, self._renderer, pairs)
        readings: list[Reading] = []
        with reporter.task(self.name, len(pairs)) as advance:
            for (canary, probe), record in zip(pairs, records, strict=True):
                readings += self._read(base, canary, probe, record)
                advance(1)
        return readings

    def _read(self, base: Release, canary: Canary, probe: Probe, record: SecretTokens) -> list[Reading]:
        scores = self._scorer.score(base, [record])[0]
        found = self._baseline(base, record)
        listed = any(guess.tokens == record.secret_ids for guess in found.best)
        values = [
            ("kappa_low", found.kappa_low, "probability"),
            ("kappa_high", found.kappa_high, "probability"),
            ("prior_surprisal", -scores.emission[self._settings.scheme] / math.log(2) + 0.0, "bits"),
            ("prior_greedy", float(scores.emission[GREEDY] == 0), "success"),
            ("prior_list", float(listed), "success"),
        ]
        seed = self._manifest.plan.seed
        return [
            reading_of(canary, seed, probe.value, "trained", measure, value, unit) for measure, value, unit in values
        ]

    def _baseline(self, base: Release, record: SecretTokens) -> GuessingBaseline:
        # Canaries of one carrier ask after the same prefix.
        length = len(record.secret_ids)
        key = (id(base), record.prefix, length)
        if key not in self._known:
            settings = self._settings
            try:
                self._known[key] = guessing_baseline(
                    open_rows(base, record.prefix),
                    length,
                    settings.guesses,
                    temperature=settings.temperature,
                    effort=Effort(expansions=settings.max_expansions),
                    batch=settings.batch,
                )
            except PrefixError as error:
                raise ScoringError(f"canary {record.name}: {error}") from error
        return self._known[key]
