"""Batches of prompts continued by a transformers model, with every setting sent."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import torch
from transformers import GenerationConfig, LogitsProcessorList

from davylamp.release.answers import FiniteLogits
from davylamp.release.base import Decoding
from davylamp.release.batches import batches, logit_bytes, pad
from davylamp.release.sampling import STRIDE, Asked, Ended, answered, begun, shared_beginning
from davylamp.rendering.tokenizer import TokenizerView


class TextGenerator:
    """Continues prompts with one model, in batches that fit the memory allowed."""

    def __init__(
        self,
        model: Any,
        base: Any,
        tokenizer: TokenizerView,
        answering: Callable[[], AbstractContextManager[None]],
        name: str,
        memory: int,
        *,
        shares: bool,
    ) -> None:
        """Take a model.

        Args:
            model: the model, an adapter around it included.
            base: the same without the adapter.
            tokenizer: its tokenizer.
            answering: the context in which the model is called.
            name: the release's name, for messages.
            memory: bytes that the logits of a batch may take.
            shares: whether padding may follow a beginning that is read once for all prompts of a batch.
        """
        self._model, self._tokenizer, self._answering = model, tokenizer, answering
        self._name, self._memory, self._shares = name, memory, shares
        self._vocabulary = int(base.config.get_text_config().vocab_size)
        self._device = next(base.parameters()).device
        # A state runs through padding as through text, so that there only rows of one length share a batch.
        self._stateful = bool(getattr(base, "_is_stateful", False))

    def generate(self, prompts: Sequence[Sequence[int]], decoding: Decoding) -> list[list[int]]:
        """The tokens that follow each prompt, up to and without the end of text.

        Args:
            prompts: token ids, none empty, each with room for its answer in the model's context.
            decoding: how.

        Raises:
            PrefixError: an answer is not finite.
        """
        lengths = [len(p) + decoding.max_new_tokens for p in prompts]
        costs = logit_bytes(lengths, self._vocabulary)
        config = configured(decoding, filler_of(self._tokenizer), stops_of(self._tokenizer))
        results: list[list[int]] = [[]] * len(prompts)
        order = sorted(range(len(prompts)), key=lambda i: len(prompts[i]))
        for batch in batches(order, lengths, costs, self._memory, one_length=self._stateful):
            padded = self._pad([prompts[i] for i in batch])
            with self._answering():
                said = continued(self._model, padded, config, batch, decoding.seed, self._name)
            for i, tokens in zip(batch, said, strict=True):
                results[i] = tokens
        return results

    def answer_each(
        self,
        prompts: Sequence[Sequence[int]],
        decoding: Decoding,
        seeds: Sequence[int],
        batch_size: int,
        ended: Ended | None = None,
    ) -> Iterator[tuple[int, list[int]]]:
        """What :meth:`generate` gives, each prompt drawn from its own seed, with its index; a batch at a time.

        Args:
            prompts: as for :meth:`generate`.
            decoding: how; its own seed is not read.
            seeds: seed of each prompt, at least 0.
            batch_size: prompts that are answered at a time.
            ended: whether an answer ends with the tokens said so far, besides by the end of text.

        Raises:
            PrefixError: an answer is not finite.
        """
        lengths = [len(prompt) for prompt in prompts]
        order = sorted(range(len(prompts)), key=lengths.__getitem__)
        stops, filler = stops_of(self._tokenizer), filler_of(self._tokenizer)
        # A state cannot be told to leave rows out either, so that there a batch is gone through whole.
        stride = decoding.max_new_tokens if self._stateful else STRIDE
        for batch in batches(order, lengths, [1] * len(prompts), batch_size, one_length=self._stateful):
            own = [prompts[i] for i in batch]
            with self._answering():
                padded, cache = self._begun(own)
                asked = Asked(batch, [seeds[i] for i in batch], stops, filler, ended, stride, cache)
                said = answered(self._model, padded, decoding, asked, self._name)
            yield from said

    def _begun(self, prompts: Sequence[Sequence[int]]) -> tuple[tuple[torch.Tensor, torch.Tensor], Any]:
        """Rows of prompts, and keys and values of what all begin with where the architecture lets padding follow it."""
        shared = shared_beginning(prompts) if self._shares else 0
        padded = self._pad([prompt[shared:] for prompt in prompts])
        if not shared:
            return padded, None
        return begun(self._model, torch.tensor([list(prompts[0][:shared])], device=self._device), padded)

    def _pad(self, rows: Sequence[Sequence[int]]) -> tuple[torch.Tensor, torch.Tensor]:
        return pad(rows, filler_of(self._tokenizer), self._device, left=True)


def filler_of(tokenizer: TokenizerView) -> int:
    """The token of padding; a mask leaves it out, so that any one does."""
    for token in (tokenizer.pad_token_id, tokenizer.eos_token_id):
        if token is not None:
            return int(token)
    return 0


def stops_of(tokenizer: TokenizerView) -> list[int]:
    """Tokens of the end of text."""
    return [] if tokenizer.eos_token_id is None else [int(tokenizer.eos_token_id)]


def configured(decoding: Decoding, filler: int, stops: Sequence[int]) -> GenerationConfig:
    """A decoding as transformers takes it; a field that was left open would be filled by the checkpoint's own."""
    sampling = (
        {"temperature": decoding.temperature, "top_k": decoding.top_k, "top_p": decoding.top_p}
        if decoding.temperature > 0
        else {}
    )
    return GenerationConfig(
        max_new_tokens=decoding.max_new_tokens,
        do_sample=bool(sampling),
        num_beams=1,
        repetition_penalty=1.0,
        pad_token_id=filler,
        eos_token_id=list(stops) or None,
        **sampling,
    )


def continued(
    model: Any,
    padded: tuple[torch.Tensor, torch.Tensor],
    config: GenerationConfig,
    batch: Sequence[int],
    seed: int,
    name: str,
) -> list[list[int]]:
    """What follows each prompt of a batch, up to and without the end of text.

    Args:
        model: the model, called without gradient.
        padded: token ids and mask of the prompts, padded on the left.
        config: see :func:`configured`.
        batch: index of each prompt.
        seed: seed of the sampling.
        name: the release's name, for messages.

    Raises:
        PrefixError: an answer is not finite.
    """
    ids, mask = padded
    stops = config.eos_token_id or []
    with torch.random.fork_rng():
        # Mixed, not added: a neighbour's batch under the next seed must not draw the same numbers.
        mixed = np.random.SeedSequence([seed, batch[0]]).generate_state(1, np.uint64)
        torch.manual_seed(int(mixed[0]))
        made = model.generate(
            input_ids=ids,
            attention_mask=mask,
            generation_config=config,
            logits_processor=LogitsProcessorList([FiniteLogits(batch, name)]),
        )
    rows = made[:, ids.shape[1] :].tolist()
    return [row[: next((at for at, token in enumerate(row) if token in stops), len(row))] for row in rows]
