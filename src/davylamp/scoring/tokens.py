"""Per-token scores of a record: taken once, read by every measure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from davylamp.errors import ScoringError
from davylamp.release.base import Access, PrefixError, Release, TokenRelease, require
from davylamp.scoring.tokens_decoding import Scheme

Array = NDArray[np.float64]
ROWS_AT_ONCE = 32
"""Rows that are asked for together, where a release reduces none itself."""


@dataclass(frozen=True, slots=True)
class SecretTokens:
    """A record as tokens, and where its secret stands.

    Attributes:
        name: the canary's name, for messages.
        ids: tokens of the whole record, special tokens included.
        secret: tokens [first, last) that cover the secret.
    """

    name: str
    ids: tuple[int, ...]
    secret: tuple[int, int]

    @property
    def prefix(self) -> tuple[int, ...]:
        """Tokens before the secret."""
        return self.ids[: self.secret[0]]

    @property
    def secret_ids(self) -> tuple[int, ...]:
        """Tokens that cover the secret."""
        return self.ids[slice(*self.secret)]


@dataclass(frozen=True, slots=True, eq=False)
class TokenScores:
    """What a release says of a record, token by token.

    Attributes:
        ids: tokens of the record, shape (n,).
        logprobs: entry i is the log-probability in nats of token ``i + 1`` after all before it, in float64,
            shape (n - 1,): the first token has nothing before it.
        secret: tokens [first, last) that cover the secret.
        record: tokens [first, last) that have a log-probability: all but the first.
        means: mean over the vocabulary of the log-probability under the release's own distribution (minus its
            entropy) where each token of ``record`` was drawn, in nats, shape (n - 1,); none if not asked for.
        deviations: standard deviation of the same, in nats, shape (n - 1,); none if not asked for.
        emission: log-probability in nats that decoding by each scheme says the secret's tokens after the prefix;
            minus infinity where the scheme never does.
    """

    ids: tuple[int, ...]
    logprobs: Array
    secret: tuple[int, int]
    record: tuple[int, int]
    means: Array | None = None
    deviations: Array | None = None
    emission: Mapping[Scheme, float] = field(default_factory=lambda: MappingProxyType({}))

    def __post_init__(self) -> None:
        """Make the arrays read-only, since all measures share them."""
        for array in (self.logprobs, self.means, self.deviations):
            if array is not None:
                array.setflags(write=False)

    def of(self, span: tuple[int, int]) -> Array:
        """Log-probabilities in nats of the tokens [first, last), shape (last - first,)."""
        return self.logprobs[span[0] - 1 : span[1] - 1]

    def log_likelihood(self, span: tuple[int, int]) -> float:
        """Log-probability in nats of a span after all before it."""
        return math.fsum(self.of(span))

    def perplexity(self, span: tuple[int, int]) -> float:
        """Perplexity of a span: ``exp`` of minus the mean log-probability of its tokens; 1 if it is certain."""
        mean = -self.log_likelihood(span) / (span[1] - span[0])
        return math.exp(mean) if mean < 709 else math.inf


class TokenScorer:
    """Scores each record once for each release, whatever the number of measures that read it."""

    def __init__(self, schemes: Sequence[Scheme] = (), *, moments: bool = False) -> None:
        """Say what shall be read in the one pass.

        Args:
            schemes: decoding schemes whose emission of the secret is wanted; needs whole rows.
            moments: also keep mean and deviation of the log-probability at each token; needs whole rows.
        """
        self._schemes = tuple(dict.fromkeys(schemes))
        self._moments = moments
        self._kept: dict[tuple[int, tuple[int, ...], tuple[int, int]], TokenScores] = {}
        self._releases: list[Release] = []

    def score(self, release: Release, records: Sequence[SecretTokens]) -> list[TokenScores]:
        """Score records, or hand out what was scored before.

        Raises:
            AccessError: the release gives too little.
            ScoringError: a record has no token before its secret, or cannot be scored; names the canary.
        """
        if not any(known is release for known in self._releases):
            # Held, so that no other object takes its identity.
            self._releases.append(release)
        keys = [(id(release), record.ids, record.secret) for record in records]
        new = {key: record for key, record in zip(keys, records, strict=True) if key not in self._kept}
        for record in new.values():
            _check(record)
        rows = bool(self._schemes) or self._moments
        require(release, "scoring tokens", Access.CONDITIONALS if rows else Access.LOGPROBS)
        if rows and isinstance(release, TokenRelease):
            made = self._by_answers(release, list(new.values()))
        elif rows:
            made = [self._by_rows(release, record) for record in new.values()]
        else:
            made = _by_logprobs(release, list(new.values()))
        self._kept |= zip(new, made, strict=True)
        return [self._kept[key] for key in keys]

    def _by_answers(self, release: TokenRelease, records: Sequence[SecretTokens]) -> list[TokenScores]:
        # A record's first token is its prefix, so that places in the continuation are one less.
        places = [range(record.secret[0] - 1, record.secret[1] - 1) for record in records] if self._schemes else None
        made: dict[int, TokenScores] = {}
        try:
            for at, answer in release.token_answers(
                [record.ids[:1] for record in records],
                [record.ids[1:] for record in records],
                moments=self._moments,
                rows=places,
            ):
                rows = np.empty((0, 0)) if answer.rows is None else answer.rows
                moments = (answer.means, answer.deviations)
                made[at] = self._scores(records[at], answer.logprobs, moments, rows)
        except PrefixError as error:
            raise ScoringError(f"canary {records[error.index].name}: {error}") from error
        return [made[at] for at in range(len(records))]

    def _by_rows(self, release: Release, record: SecretTokens) -> TokenScores:
        """From the rows that a release gives one by one."""
        ids = np.asarray(record.ids)
        logprobs, means, deviations = (np.empty(len(ids) - 1) for _ in range(3))
        first, last = (edge - 1 for edge in record.secret)
        kept = []
        try:
            for begin in range(0, len(ids) - 1, ROWS_AT_ONCE):
                end = min(begin + ROWS_AT_ONCE, len(ids) - 1)
                rows = release.conditionals([record.ids[: at + 1] for at in range(begin, end)])
                logprobs[begin:end] = rows[np.arange(len(rows)), ids[begin + 1 : end + 1]]
                if self._moments:
                    means[begin:end], deviations[begin:end] = _moments(rows)
                kept.append(rows[max(0, first - begin) : max(0, last - begin)])
        except PrefixError as error:
            raise ScoringError(f"canary {record.name}: {error}") from error
        moments = (means, deviations) if self._moments else (None, None)
        return self._scores(record, logprobs, moments, np.concatenate(kept))

    def _scores(
        self, record: SecretTokens, logprobs: Array, moments: tuple[Array | None, Array | None], rows: Array
    ) -> TokenScores:
        """Scores of a record.

        Args:
            record: the record.
            logprobs: of all its tokens but the first.
            moments: means and deviations at the same places, if they are kept.
            rows: whole rows at the secret's places, if there are schemes.
        """
        targets = list(record.secret_ids)
        # A scheme at a time: its filtered rows are as large as the rows themselves.
        emission = {each: float(each.apply(rows)[np.arange(len(rows)), targets].sum()) for each in self._schemes}
        span = (1, len(record.ids))
        return TokenScores(
            record.ids, np.minimum(logprobs, 0.0), record.secret, span, *moments, MappingProxyType(emission)
        )


def _check(record: SecretTokens) -> None:
    first, last = record.secret
    if not 0 <= first < last <= len(record.ids):
        raise ScoringError(f"canary {record.name}: the secret covers the tokens {first} to {last} of {len(record.ids)}")
    if first == 0:
        raise ScoringError(
            f"canary {record.name}: no token stands before its secret, so that its first token has no probability: "
            "let the text begin with something else, or use a tokenizer that adds a BOS token"
        )


def _by_logprobs(release: Release, records: Sequence[SecretTokens]) -> list[TokenScores]:
    try:
        scored = release.logprobs([record.ids[:1] for record in records], [record.ids[1:] for record in records])
    except PrefixError as error:
        raise ScoringError(f"canary {records[error.index].name}: {error}") from error
    return [
        TokenScores(record.ids, np.minimum(values, 0.0), record.secret, (1, len(record.ids)))
        for record, values in zip(records, scored, strict=True)
    ]


def _moments(rows: Array) -> tuple[Array, Array]:
    """Mean and standard deviation over the vocabulary of the log-probability under the row itself, in nats."""
    probabilities = np.exp(rows)
    finite = np.where(probabilities > 0, rows, 0.0)
    means = (probabilities * finite).sum(axis=1)
    # About the mean and not as a difference of squares, which loses all digits where the row is nearly certain.
    spread = (probabilities * (finite - means[:, None]) ** 2).sum(axis=1)
    return means, np.sqrt(spread)
