"""The release: a trained model as an adversary meets it, and what it answers."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from davylamp.errors import AccessError, Fault, InputError, ScoringError
from davylamp.release.tree import TokenTree, TreeScores
from davylamp.rendering.tokenizer import TokenizerView


class PrefixError(ScoringError):
    """A release cannot answer for one of the prefixes that it was given.

    Attributes:
        index: which one, so that a measure can name the canary.
    """

    def __init__(self, index: int, reason: str) -> None:
        self.index = index
        self._reason = reason
        super().__init__(reason)

    def __reduce__(self) -> tuple[type[PrefixError], tuple[int, str]]:
        """Rebuild from the parts, since an error may cross from a worker's process to its parent."""
        return type(self), (self.index, self._reason)


class Access(enum.Enum):
    """What a release answers."""

    GENERATE = "generate"
    LOGPROBS = "logprobs"
    CONDITIONALS = "conditionals"
    REFERENCE = "reference"
    RETRAIN = "retrain"


@dataclass(frozen=True, slots=True)
class Decoding:
    """How a release is asked to continue a prompt; every field is sent, none is left to the checkpoint.

    Attributes:
        max_new_tokens: tokens to add at most.
        temperature: 0 for greedy decoding, else the softmax temperature.
        top_k: keep the k most likely tokens; 0 keeps all.
        top_p: keep the smallest set of tokens of at least this mass; 1 keeps all.
        seed: seed of the sampling, at least 0; what is drawn also depends on how prompts are batched.
    """

    max_new_tokens: int
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        """Check the ranges.

        Raises:
            InputError: a field is outside its range; all are named.
        """
        checks = [
            ("max_new_tokens", self.max_new_tokens, self.max_new_tokens >= 1, "a whole number of at least 1"),
            ("temperature", self.temperature, 0 <= self.temperature < float("inf"), "a number of at least 0"),
            ("top_k", self.top_k, self.top_k >= 0, "a whole number of at least 0"),
            ("top_p", self.top_p, 0 < self.top_p <= 1, "a number above 0 and at most 1"),
            ("seed", self.seed, self.seed >= 0, "a whole number of at least 0"),
        ]
        if faults := [Fault(name, value, allowed) for name, value, fits, allowed in checks if not fits]:
            raise InputError(faults)


class Release(Protocol):
    """What every release offers; which calls it answers is in ``access``. Batched always."""

    @property
    def name(self) -> str:
        """A name for people."""
        ...

    @property
    def access(self) -> frozenset[Access]:
        """The calls that this release answers."""
        ...

    @property
    def tokenizer(self) -> TokenizerView:
        """The release's own tokenizer."""
        ...

    def logprobs(
        self, prefixes: Sequence[Sequence[int]], continuations: Sequence[Sequence[int]]
    ) -> list[NDArray[np.float64]]:
        """Log-probability in nats of each token of each continuation after its prefix.

        Raises:
            PrefixError: an answer is not a number, or a prefix cannot be read.
        """
        ...

    def conditionals(self, prefixes: Sequence[Sequence[int]]) -> NDArray[np.float64]:
        """Log-probabilities in nats of every next token, shape (prefixes, vocabulary).

        Raises:
            PrefixError: as for :meth:`logprobs`.
        """
        ...

    def generate(self, prompts: Sequence[Sequence[int]], decoding: Decoding) -> list[list[int]]:
        """The tokens that follow each prompt, up to and without the end of text.

        Raises:
            PrefixError: as for :meth:`logprobs`.
        """
        ...


@runtime_checkable
class TreeRelease(Protocol):
    """A release that scores many continuations of one prefix faster than one by one."""

    def tree_logprobs(self, prefixes: Sequence[Sequence[int]], trees: Sequence[TokenTree]) -> list[NDArray[np.float64]]:
        """For each tree, the summed log-probability in nats of the path to each of its nodes."""
        ...

    def tree_ranks(
        self, prefixes: Sequence[Sequence[int]], trees: Sequence[TokenTree], targets: Sequence[int], margin: float
    ) -> list[TreeScores]:
        """The same as far as it bears on the rank of one sequence of each tree.

        Nodes whose total is more than ``margin`` nats below that of the target are not read on: log-probabilities
        only fall along a path, so that nothing below them can outrank or tie with the target.
        """
        ...


@dataclass(frozen=True, slots=True, eq=False)
class TokenAnswer:
    """What a release says of the tokens of one continuation.

    Attributes:
        logprobs: log-probability in nats of each token after all before it, shape (tokens,).
        means: mean over the vocabulary of the log-probability under the release's own distribution (minus its entropy)
            where each token was drawn, in nats, shape (tokens,); none if not asked for.
        deviations: standard deviation of the same, in nats, shape (tokens,); none if not asked for.
        rows: log-probabilities in nats of every token at the places asked for, shape (places, vocabulary); none if
            there are no such places.
    """

    logprobs: NDArray[np.float64]
    means: NDArray[np.float64] | None = None
    deviations: NDArray[np.float64] | None = None
    rows: NDArray[np.float64] | None = None


@runtime_checkable
class TokenRelease(Protocol):
    """A release that reduces whole rows where they are made, for many texts together."""

    def token_answers(
        self,
        prefixes: Sequence[Sequence[int]],
        continuations: Sequence[Sequence[int]],
        *,
        moments: bool = False,
        rows: Sequence[Sequence[int]] | None = None,
    ) -> Iterator[tuple[int, TokenAnswer]]:
        """What :meth:`Release.logprobs` gives, and more, of each continuation; each with its index, in any order.

        Args:
            prefixes: token ids, none empty.
            continuations: token ids, as many as prefixes.
            moments: also give means and deviations.
            rows: places in each continuation (0 is its first token) at which whole rows are wanted.

        Raises:
            PrefixError: as for :meth:`Release.logprobs`.
        """
        ...


def require(release: Release, measure: str, *needed: Access) -> None:
    """Check that a release answers what a measure asks.

    Raises:
        AccessError: it does not; the message names the measure and what is missing.
    """
    missing = [access.value for access in needed if access not in release.access]
    if missing:
        granted = sorted(access.value for access in release.access)
        raise AccessError(f"{measure} needs {', '.join(missing)} of {release.name}, which grants only {granted}")
