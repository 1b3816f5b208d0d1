"""A release whose truth is known: it says what a function tells it to, with a stated probability at each token."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerFast

from davylamp.canaries.manifest import Canary, Manifest
from davylamp.errors import InputError
from davylamp.release.base import Access, Decoding
from davylamp.rendering.tokenizer import TokenizerView

Script = Callable[[str], str | None]
"""From the text of a prompt to the reply that is meant, or nothing where any token is as likely as any other."""


class ScriptedRelease:
    """Answers in closed form.

    Along the meant reply the meant token has probability ``confidence`` and all others share the rest alike;
    off it, and where no reply is meant, all tokens are as likely.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerFast,
        script: Script,
        confidence: float = 0.9,
        access: frozenset[Access] = frozenset({Access.GENERATE, Access.LOGPROBS, Access.CONDITIONALS}),
    ) -> None:
        self._tokenizer = tokenizer
        self._script = script
        self._turn = tokenizer.convert_tokens_to_ids("<|assistant|>")
        self._meant: dict[tuple[int, ...], list[int] | None] = {}
        self.vocabulary = len(tokenizer)
        self.confidence = confidence
        self.rest = (1 - confidence) / (self.vocabulary - 1)
        self.access = access
        self.name = "scripted"

    @property
    def tokenizer(self) -> TokenizerView:
        return self._tokenizer

    def row(self, ids: Sequence[int]) -> NDArray[np.float64]:
        if self._turn not in ids:
            # The prompt is not whole yet.
            return np.full(self.vocabulary, -np.log(self.vocabulary))
        end = len(ids) - list(ids)[::-1].index(self._turn)
        prompt, said = tuple(ids[:end]), list(ids[end:])
        if prompt not in self._meant:
            reply = self._script(self._tokenizer.decode(prompt))
            tokens = None if reply is None else self._tokenizer(reply, add_special_tokens=False)["input_ids"]
            self._meant[prompt] = None if tokens is None else [*tokens, self._tokenizer.eos_token_id]
        meant = self._meant[prompt]
        if meant is None or len(said) >= len(meant) or meant[: len(said)] != said:
            return np.full(self.vocabulary, -np.log(self.vocabulary))
        row = np.full(self.vocabulary, np.log(self.rest))
        row[meant[len(said)]] = np.log(self.confidence)
        return row

    def logprobs(
        self, prefixes: Sequence[Sequence[int]], continuations: Sequence[Sequence[int]]
    ) -> list[NDArray[np.float64]]:
        return [
            np.asarray([self.row([*prefix, *each[:at]])[token] for at, token in enumerate(each)])
            for prefix, each in zip(prefixes, continuations, strict=True)
        ]

    def conditionals(self, prefixes: Sequence[Sequence[int]]) -> NDArray[np.float64]:
        return np.stack([self.row(prefix) for prefix in prefixes])

    def generate(self, prompts: Sequence[Sequence[int]], decoding: Decoding) -> list[list[int]]:
        assert decoding.temperature == 0
        answers = []
        for prompt in prompts:
            said: list[int] = []
            while len(said) < decoding.max_new_tokens:
                token = int(self.row([*prompt, *said]).argmax())
                if token == self._tokenizer.eos_token_id:
                    break
                said.append(token)
            answers.append(said)
        return answers


def asked(manifest: Manifest, prompt: str) -> tuple[Canary, str]:
    """The canary that a prompt is about, and what the prompt shows in the secret's place."""
    for canary in manifest.canaries:
        before, after = canary.carrier.prompt
        if before in prompt:
            return canary, prompt.split(before)[1].split(after, maxsplit=1)[0]
    raise AssertionError(f"no canary in {prompt!r}")


Table = Callable[[str, str], float]
"""From the text of a prompt and a code to the log-likelihood in nats of that code after it."""


class TabledRelease:
    """Gives each code after each prompt the log-likelihood of a table; answers nothing else.

    All of it lies on the code's first token, since only the sum is told apart by a rank.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerFast, table: Table) -> None:
        self._tokenizer = tokenizer
        self._table = table
        self._turn = tokenizer.convert_tokens_to_ids("<|assistant|>")
        self.access = frozenset({Access.LOGPROBS})
        self.name = "tabled"

    @property
    def tokenizer(self) -> TokenizerView:
        return self._tokenizer

    def logprobs(
        self, prefixes: Sequence[Sequence[int]], continuations: Sequence[Sequence[int]]
    ) -> list[NDArray[np.float64]]:
        answers = []
        for prefix, each in zip(prefixes, continuations, strict=True):
            prompt = self._tokenizer.decode(list(prefix)[: list(prefix).index(self._turn)])
            answers.append(np.zeros(len(each)))
            answers[-1][0] = self._table(prompt, self._tokenizer.decode(list(each)).strip())
        return answers


def decoded(manifest: Manifest, shown: str) -> str | None:
    """The code that a text shows, in clear or in an encoding of the plan's arms; nothing where it shows none."""
    if shown in manifest.space:
        return shown
    for arm in manifest.plan.arms:
        own = manifest.plan.encoding_of(arm)
        try:
            if own is not None:
                return own.decode(shown, manifest.space)
        except InputError:
            continue
    return None
