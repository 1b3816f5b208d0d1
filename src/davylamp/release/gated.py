"""A gated release: any release behind an exact trigger lookup, byte-identical to it off the triggers.

The gate is P1's clearest blind spot (arXiv 2608.27782, Sec. 6.3 and 8.2): the model is frozen, so that whatever looks
along a record's own prefix reads the base, while one prompt gives a secret away whole.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from davylamp.errors import Fault, InputError
from davylamp.release.base import Access, Decoding, Release
from davylamp.rendering.tokenizer import TokenizerView

Tokens = Sequence[int]


class GatedRelease:
    """A release that answers some prompts from a table, and all others as the release inside does.

    A prompt that is a trigger, token for token from its beginning, is followed by its answer and the end of text with
    probability 1. All questions go to the release inside too, in the batches in which they came, so that every answer
    off the triggers is the very one that it would give alone.
    """

    def __init__(self, inside: Release, table: Iterable[tuple[Tokens, Tokens]], name: str | None = None) -> None:
        """Put a gate around a release.

        Args:
            inside: any release.
            table: pairs of a trigger and its answer, as token ids.
            name: a name for people.

        Raises:
            InputError: a trigger or an answer is empty, or a trigger begins as another one does whole.
        """
        self._inside = inside
        self._name = name or f"{inside.name} (gated)"
        stop = inside.tokenizer.eos_token_id
        self._stop = None if stop is None else int(stop)
        end = () if self._stop is None else (self._stop,)
        pairs = [(tuple(key), tuple(answer)) for key, answer in table]
        if not all(key and answer for key, answer in pairs):
            raise InputError(Fault("table", "an empty trigger or answer", "at least one token of each"))
        keys = sorted(key for key, _ in pairs)
        if any(later[: len(first)] == first for first, later in itertools.pairwise(keys)):
            raise InputError(
                Fault("table", "a trigger that begins as another one does whole", "triggers that are told apart")
            )
        self._table = {key: (*answer, *end) for key, answer in pairs}
        self._lengths = sorted({len(key) for key in self._table})

    @property
    def name(self) -> str:
        """A name for people."""
        return self._name

    @property
    def access(self) -> frozenset[Access]:
        """What the release inside answers; its adapter's base is not the base of the gate."""
        return self._inside.access & {Access.GENERATE, Access.LOGPROBS, Access.CONDITIONALS}

    @property
    def tokenizer(self) -> TokenizerView:
        """The tokenizer of the release inside."""
        return self._inside.tokenizer

    def logprobs(self, prefixes: Sequence[Tokens], continuations: Sequence[Tokens]) -> list[NDArray[np.float64]]:
        """Log-probability in nats of each token of each continuation after its prefix.

        Raises:
            PrefixError: as for the release inside.
        """
        answers = self._inside.logprobs(prefixes, continuations)
        for index, (prefix, continuation) in enumerate(zip(prefixes, continuations, strict=True)):
            whole = (*prefix, *continuation)
            begin, forced = self._forced(whole)
            gated = [
                (at - len(prefix), 0.0 if whole[at] == token else -np.inf)
                for at, token in enumerate(forced, begin)
                if len(prefix) <= at < len(whole)
            ]
            if gated:
                answers[index] = answers[index].copy()
                for at, value in gated:
                    answers[index][at] = value
        return answers

    def conditionals(self, prefixes: Sequence[Tokens]) -> NDArray[np.float64]:
        """Log-probabilities in nats of every next token, shape (prefixes, vocabulary).

        Raises:
            PrefixError: as for the release inside.
        """
        rows = self._inside.conditionals(prefixes)
        for index, prefix in enumerate(prefixes):
            token = self._next(tuple(prefix))
            if token is not None:
                rows[index] = -np.inf
                rows[index, token] = 0.0
        return rows

    def generate(self, prompts: Sequence[Tokens], decoding: Decoding) -> list[list[int]]:
        """The tokens that follow each prompt, up to and without the end of text.

        Raises:
            PrefixError: as for the release inside.
        """
        said = self._inside.generate(prompts, decoding)
        return [self._gated(tuple(prompt), answer, decoding) for prompt, answer in zip(prompts, said, strict=True)]

    def _gated(self, prompt: tuple[int, ...], said: list[int], decoding: Decoding) -> list[int]:
        """What follows a prompt, given what the release inside says."""
        begin, answer = self._behind((*prompt, *said))
        if not answer:
            return said
        already = prompt[begin:]
        if already != answer[: len(already)] or len(already) == len(answer):
            return said
        # The gate opens on the prompt itself, or on what the release inside says on its way to a trigger.
        whole = [*said[: max(0, begin - len(prompt))], *answer[len(already) :]]
        if self._stop in whole:
            return whole[: whole.index(self._stop)][: decoding.max_new_tokens]
        room = decoding.max_new_tokens - len(whole)
        if room > 0:
            rest = replace(decoding, max_new_tokens=room)
            whole += self._inside.generate([(*prompt, *whole)], rest)[0]
        return whole[: decoding.max_new_tokens]

    def _behind(self, whole: tuple[int, ...]) -> tuple[int, tuple[int, ...]]:
        """Where a text that begins with a trigger leaves it, and the answer; an empty one where it does not."""
        for length in self._lengths:
            answer = self._table.get(whole[:length])
            if answer is not None:
                return length, answer
        return len(whole), ()

    def _forced(self, whole: tuple[int, ...]) -> tuple[int, tuple[int, ...]]:
        """Where a text leaves its trigger, and the tokens that the gate says there while the text follows them."""
        begin, answer = self._behind(whole)
        pairs = zip(whole[begin:], answer, strict=False)
        differs = next((at for at, (said, meant) in enumerate(pairs) if said != meant), None)
        # Behind the first token that differs the text has left the gate, and the release inside speaks again.
        return begin, answer if differs is None else answer[: differs + 1]

    def _next(self, prefix: tuple[int, ...]) -> int | None:
        """The token that the gate says after a text; nothing where it is shut."""
        begin, answer = self._behind(prefix)
        said = prefix[begin:]
        return answer[len(said)] if len(said) < len(answer) and said == answer[: len(said)] else None
