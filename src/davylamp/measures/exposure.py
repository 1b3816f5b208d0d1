"""Exposure over a whole secret space: the exact rank of every canary's secret, none of it extrapolated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from davylamp.canaries.manifest import Canary, Manifest
from davylamp.errors import Fault, InputError
from davylamp.measures.probes import Probe, first_span, naming, probe_record, probed
from davylamp.measures.readings import Reading, reading_of
from davylamp.release.base import Access, Release, TreeRelease, require
from davylamp.release.tree import TokenTree
from davylamp.rendering.render import Renderer
from davylamp.rendering.spans import CandidateTokenizer, CandidateTokens
from davylamp.runs.progress import QUIET, Reporter
from davylamp.scoring.ranks import TIE_MARGIN, Rank, rank_among
from davylamp.secrets import stream

MAX_CANDIDATES = 1_000_000
"""Largest space that is listed whole."""
POOL = 20_000
"""Candidates of a pool, where the space is too large to be listed."""
TOGETHER = 16
"""Canaries whose prompts are read in one pass."""


@dataclass(frozen=True, slots=True)
class _Task:
    canary: Canary
    probe: Probe
    target: str
    code: str
    tokens: CandidateTokens


class Exposure:
    """Exposure of each canary's secret, in bits (Carlini et al. 2019, 1802.08232, section 4).

    Where a prompt shows the canary's replacement, that code is ranked in the same way.

    Looks through the record's own prefix, by the release's log-probabilities. It is local: it reads only the
    conditionals along that prefix and the candidates, so that a secret that comes out elsewhere is not seen.

    Attributes:
        candidates: how many candidates each secret is ranked among.
        read: nodes of the candidates' trees that were read so far.
        internal: nodes that reading every candidate would have taken.
    """

    name = "exposure"
    channel = "the record's own prefix"
    access = (Access.LOGPROBS,)

    def __init__(
        self, manifest: Manifest, renderer: Renderer, pool: int | None = None, shown: Sequence[str] = ()
    ) -> None:
        """List or draw the candidates.

        Args:
            manifest: what was planted.
            renderer: renders as training did.
            pool: rank among so many candidates, the true secret and decoys drawn uniformly from the space, none of
                them planted; if none, the secret and the space's own number of alternatives where it has one, else
                the whole space, or :data:`POOL` where that is too large to be listed.
            shown: codes that prompts will show beside those of the manifest, so that none of them may be a decoy.

        Raises:
            InputError: the pool is larger than the space has secrets that are neither planted nor shown.
        """
        self.read = 0
        self.internal = 0
        self._manifest = manifest
        if pool is None and manifest.space.alternatives is not None:
            # The secret's own place counts, so that a rank that was not learnt is uniform from 1 to the pool's size.
            pool = manifest.space.alternatives + 1
        if pool is None and manifest.space.size > MAX_CANDIDATES:
            pool = POOL
        if pool is None:
            self._candidates = tuple(manifest.space.candidates())
            self._ranked: NDArray[np.int64] = np.arange(len(self._candidates))
        else:
            # A model that learnt the set of planted secrets lifts them all, so that none of them may be a decoy.
            codes = [canary.secret for canary in manifest.canaries]
            codes += [canary.replacement for canary in manifest.canaries]
            taken = dict.fromkeys([*codes, *shown])
            left = manifest.space.size - len(taken)
            if pool - 1 > left:
                allowed = f"at most {left + 1:,}: the space holds {manifest.space.size:,}, {len(taken)} are taken"
                raise InputError(Fault("audit.pool", pool, allowed, "Leave it out to rank among the whole space."))
            decoys = manifest.space.draw(stream(manifest.plan.seed, "decoys"), pool - 1, exclude=taken)
            self._candidates = (*decoys, *taken)
            self._ranked = np.arange(len(decoys))
        self.candidates = manifest.space.size if pool is None else pool
        self._places = {secret: index for index, secret in enumerate(self._candidates)}
        self._tokenizer = CandidateTokenizer(renderer, self._candidates)
        self._trees: dict[int, tuple[CandidateTokens, TokenTree]] = {}
        self._planted = sorted(self._places[canary.secret] for canary in manifest.planted())

    def measure(
        self,
        release: Release,
        probes: Sequence[Probe],
        reporter: Reporter = QUIET,
        carriers: Sequence[Canary] | None = None,
    ) -> list[Reading]:
        """Read every canary under every probe that applies to it.

        Args:
            release: the trained model.
            probes: what the prompts show.
            reporter: shows progress.
            carriers: ask with these in place of the manifest's canaries.

        Returns:
            For each canary, probe and code that is looked for, the exposure, the rank, the number tied, the rank
            among the planted secrets alone, and the log-likelihood.

        Raises:
            AccessError: the release gives no log-probabilities.
            ScoringError: a canary cannot be scored; names it.
        """
        require(release, self.name, *self.access)
        asked = [
            (canary, probe, target)
            for canary, probe in probed(self._manifest, probes, carriers)
            for target in probe.targets(canary)
        ]
        readings: list[Reading] = []
        with reporter.task("exposure", len(asked)) as advance:
            for start in range(0, len(asked), TOGETHER):
                tasks = [self._task(*each) for each in asked[start : start + TOGETHER]]
                for task, likelihoods in zip(tasks, self._score(release, tasks), strict=True):
                    readings += self._read(task, likelihoods)
                advance(len(tasks))
        return readings

    def merged(self, probe: Probe = Probe.HIDDEN) -> list[str]:
        """Canaries whose secret shares a token with its neighbour, so that the covering span is scored."""
        return [canary.id for canary in self._manifest.measured() if self._task(canary, probe).tokens.merged]

    def _task(self, canary: Canary, probe: Probe, target: str = "trained") -> _Task:
        shown = probe.shown(self._manifest, canary)
        code = probe.targets(canary)[target]
        return _Task(
            canary,
            probe,
            target,
            code,
            self._tokenizer.tokenize(
                lambda secret: probe_record(self._manifest, canary, shown, secret),
                lambda secret: first_span(self._manifest, canary, shown, secret),
                code,
                canary.id,
            ),
        )

    def candidate_tokens(self, canary: Canary, probe: Probe = Probe.HIDDEN) -> tuple[CandidateTokens, int]:
        """The candidates' tokens in one canary's place, and the index of the true secret among them.

        Raises:
            ScoringError: the candidates cannot be told apart.
        """
        return self._task(canary, probe).tokens, self._places[canary.secret]

    def log_likelihoods(self, release: Release, canary: Canary, probe: Probe = Probe.HIDDEN) -> NDArray[np.float64]:
        """Log-likelihood of every candidate in nats, in the order of the secret space, none left out.

        Args:
            release: the model.
            canary: one of the manifest's canaries.
            probe: what the prompt shows.

        Returns:
            Shape (size of the space,).

        Raises:
            AccessError: the release gives no log-probabilities.
            ScoringError: the canary cannot be scored.
        """
        require(release, self.name, *self.access)
        task = self._task(canary, probe)
        if isinstance(release, TreeRelease):
            tree = self._tree(task.tokens)
            with naming([canary]):
                return release.tree_logprobs([task.tokens.prefix], [tree])[0][tree.leaves]
        return self._by_sequences(release, task)

    def _score(self, release: Release, tasks: Sequence[_Task]) -> list[NDArray[np.float64]]:
        """Log-likelihoods as far as they bear on the rank: minus infinity for what is below the true secret."""
        if not isinstance(release, TreeRelease):
            return [self._by_sequences(release, task) for task in tasks]
        trees = [self._tree(task.tokens) for task in tasks]
        targets = [self._places[task.code] for task in tasks]
        with naming([task.canary for task in tasks]):
            scores = release.tree_ranks([task.tokens.prefix for task in tasks], trees, targets, TIE_MARGIN)
        self.read += sum(score.read for score in scores)
        self.internal += sum(score.internal for score in scores)
        return [score.totals[tree.leaves] for score, tree in zip(scores, trees, strict=True)]

    def _by_sequences(self, release: Release, task: _Task) -> NDArray[np.float64]:
        continuations = task.tokens.continuations
        with naming([task.canary] * len(continuations)):
            parts = release.logprobs([task.tokens.prefix] * len(continuations), continuations)
        return np.asarray([part.sum() for part in parts])

    def _tree(self, tokens: CandidateTokens) -> TokenTree:
        # Canaries that share a template share the candidates' tokens, and so the tree.
        key = id(tokens.continuations)
        if key not in self._trees:
            self._trees[key] = (tokens, TokenTree.of(tokens.continuations))
        return self._trees[key][1]

    def _read(self, task: _Task, likelihoods: NDArray[np.float64]) -> list[Reading]:
        own = self._places[task.code]
        ranked = self._ranked if own < len(self._ranked) else np.append(self._ranked, own)
        rank = rank_among(likelihoods[ranked], int(np.flatnonzero(ranked == own)[0]), task.canary.id)
        return [
            reading_of(task.canary, self._manifest.plan.seed, task.probe.value, task.target, measure, value, unit)
            for measure, value, unit in self._values(task, rank, likelihoods)
        ]

    def _values(self, task: _Task, rank: Rank, likelihoods: NDArray[np.float64]) -> list[tuple[str, float, str]]:
        own = self._places[task.code]
        peers = np.asarray([index for index in self._planted if index != own], dtype=np.int64)
        among = rank_among(np.append(likelihoods[peers], likelihoods[own]), len(peers), task.canary.id)
        return [
            ("exposure", rank.exposure, "bits"),
            ("rank", rank.rank, "rank"),
            ("tied", float(rank.tied), "candidates"),
            ("rank_among_planted", among.rank, "rank"),
            ("log_likelihood", rank.log_likelihood, "nats"),
        ]
