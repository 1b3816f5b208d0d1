"""A local checkpoint as a release: transformers runs it, float32 sums it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import GenerationConfig

from davylamp.errors import ScoringError
from davylamp.release.answers import check_finite
from davylamp.release.base import Access, Decoding, PrefixError, TokenAnswer
from davylamp.release.batches import batches, logit_bytes, pad
from davylamp.release.cascade import Cascade
from davylamp.release.generating import TextGenerator, filler_of
from davylamp.release.opened import OpenedPrefix
from davylamp.release.plain import PlainPrefix
from davylamp.release.reading import TreeReader
from davylamp.release.sampling import Ended
from davylamp.release.sequences import Sequences
from davylamp.release.tree import TokenTree, TreeScores
from davylamp.rendering.tokenizer import TokenizerView

DEFAULT_MEMORY = 256 * 2**20
"""Bytes that one scoring pass may take beyond the model, unless the user says otherwise."""


class LocalRelease:
    """A causal language model on this machine.

    Log-probabilities are reduced in float32 whatever the model's own type, and summed in float64.
    """

    def __init__(
        self, model: Any, tokenizer: TokenizerView, name: str, *, reference: bool = False, memory: int = DEFAULT_MEMORY
    ) -> None:
        """Take a loaded model.

        Args:
            model: a causal language model of transformers, or a peft model around one.
            tokenizer: its tokenizer.
            name: a name for people.
            reference: answer as the base model, with the adapter disabled; needs a peft model.
            memory: bytes that one scoring pass may take beyond the model.

        Raises:
            ScoringError: ``reference`` is asked of a model without an adapter.
        """
        if reference and not hasattr(model, "disable_adapter"):
            raise ScoringError(f"{name} has no adapter to disable, so that it holds no reference model")
        self._model = model.eval()
        self._name = name
        self._tokenizer = tokenizer
        self._reference = reference
        self._memory = memory
        self._base = model.get_base_model() if hasattr(model, "get_base_model") else model
        self._device = next(self._base.parameters()).device
        cascade = Cascade(self._base, memory)
        self._sequences = Sequences(
            model, self._base, self._pad, self._answering, name, memory, shares=cascade.supported
        )
        self._trees = TreeReader(model, self._base, cascade, self._pad, self._answering, self._plainly, name, memory)
        # Padding may follow a beginning only where every layer sees all that stands before.
        shares = cascade.supported and not cascade.windowed
        self._texts = TextGenerator(model, self._base, tokenizer, self._answering, name, memory, shares=shares)
        # A checkpoint's own sampling defaults would silently fill whatever a request leaves open.
        self._base.generation_config = GenerationConfig()

    @property
    def name(self) -> str:
        """A name for people."""
        return self._name

    @property
    def access(self) -> frozenset[Access]:
        """The calls that this release answers."""
        granted = {Access.GENERATE, Access.LOGPROBS, Access.CONDITIONALS}
        if not self._reference and hasattr(self._model, "disable_adapter"):
            granted.add(Access.REFERENCE)
        return frozenset(granted)

    @property
    def tokenizer(self) -> TokenizerView:
        """The release's own tokenizer."""
        return self._tokenizer

    def reference(self) -> LocalRelease:
        """The base model under an unmerged adapter.

        Raises:
            ScoringError: there is no adapter.
        """
        return LocalRelease(self._model, self._tokenizer, f"{self._name} (base)", reference=True, memory=self._memory)

    def logprobs(
        self, prefixes: Sequence[Sequence[int]], continuations: Sequence[Sequence[int]]
    ) -> list[NDArray[np.float64]]:
        """Log-probability in nats of each token of each continuation after its prefix.

        Args:
            prefixes: token ids, none empty.
            continuations: token ids, as many as prefixes.

        Returns:
            For each pair an array of shape (tokens of the continuation,).

        Raises:
            PrefixError: a prefix is empty, a sequence is longer than the model's context, or an answer is not
                finite.
        """
        return self._logprobs(prefixes, continuations)

    def _logprobs(
        self, prefixes: Sequence[Sequence[int]], continuations: Sequence[Sequence[int]], share: bool = True
    ) -> list[NDArray[np.float64]]:
        self._check(prefixes, [len(p) + len(c) for p, c in zip(prefixes, continuations, strict=True)])
        answers = dict(self._sequences.read(prefixes, continuations, share=share))
        return [answers[i].logprobs for i in range(len(prefixes))]

    def _plainly(
        self, prefixes: Sequence[Sequence[int]], continuations: Sequence[Sequence[int]]
    ) -> list[NDArray[np.float64]]:
        """Log-probabilities of whole sequences, to hold other ways of reading against."""
        return self._logprobs(prefixes, continuations, share=False)

    def token_answers(
        self,
        prefixes: Sequence[Sequence[int]],
        continuations: Sequence[Sequence[int]],
        *,
        moments: bool = False,
        rows: Sequence[Sequence[int]] | None = None,
    ) -> Iterator[tuple[int, TokenAnswer]]:
        """What :meth:`logprobs` gives, and more, of each continuation, from passes over many texts at once.

        See :meth:`davylamp.release.base.TokenRelease.token_answers`.

        Raises:
            PrefixError: as for :meth:`logprobs`.
        """
        self._check(prefixes, [len(p) + len(c) for p, c in zip(prefixes, continuations, strict=True)])
        return self._sequences.read(prefixes, continuations, moments=moments, rows=rows)

    def conditionals(self, prefixes: Sequence[Sequence[int]]) -> NDArray[np.float64]:
        """Log-probabilities in nats of every next token, shape (prefixes, vocabulary).

        Raises:
            PrefixError: a prefix is empty or longer than the model's context, or an answer is not finite.
        """
        self._check(prefixes, [len(p) for p in prefixes])
        rows: list[NDArray[np.float64]] = [np.empty(0)] * len(prefixes)
        lengths = [len(p) for p in prefixes]
        order = sorted(range(len(prefixes)), key=lengths.__getitem__)
        for batch in batches(order, lengths, logit_bytes(lengths, self._vocabulary), self._memory):
            ids, mask = self._pad([prefixes[i] for i in batch])
            lasts = torch.tensor([len(prefixes[i]) - 1 for i in batch], device=self._device)
            kept, places = torch.unique(lasts, return_inverse=True)
            with self._answering():
                logits = self._model(ids, attention_mask=mask, logits_to_keep=kept).logits
                answer = logits[torch.arange(len(batch), device=self._device), places].double()
                answer = answer - torch.logsumexp(answer, dim=-1, keepdim=True)
            for row, i in enumerate(batch):
                rows[i] = answer[row].cpu().numpy()
                check_finite(rows[i], i, self._name)
        return np.stack(rows) if rows else np.empty((0, self._vocabulary))

    def tree_logprobs(self, prefixes: Sequence[Sequence[int]], trees: Sequence[TokenTree]) -> list[NDArray[np.float64]]:
        """For each tree, the summed log-probability in nats of the path to each of its nodes.

        The prefixes' keys and values are computed once; the trees' internal nodes are read in packed pieces,
        each node once, seeing the prefix and its own ancestors only. Some paths after the longest prefix are
        scored plainly too; where they differ, or the architecture gives no way to pack, all of them are.

        Raises:
            PrefixError: a prefix is empty, a sequence is longer than the model's context, or an answer is not
                finite.
            ScoringError: the memory allowed is too small.
        """
        self._check(prefixes, [len(p) + int(t.depths.max()) for p, t in zip(prefixes, trees, strict=True)])
        return self._trees.logprobs(prefixes, trees)

    def tree_ranks(
        self, prefixes: Sequence[Sequence[int]], trees: Sequence[TokenTree], targets: Sequence[int], margin: float
    ) -> list[TreeScores]:
        """The totals of :meth:`tree_logprobs` as far as they bear on the rank of one sequence of each tree.

        Args:
            prefixes: token ids, none empty.
            trees: one a prefix.
            targets: index of a sequence of each tree.
            margin: nats; nodes whose total is more than this below the target's are not read on.

        Raises:
            PrefixError: as for :meth:`tree_logprobs`.
            ScoringError: the memory allowed is too small.
        """
        self._check(prefixes, [len(p) + int(t.depths.max()) for p, t in zip(prefixes, trees, strict=True)])
        return self._trees.ranks(prefixes, trees, targets, margin)

    def open(self, prefix: Sequence[int]) -> OpenedPrefix | PlainPrefix:
        """Read a prefix once, for whole next-token rows after any number of continuations of it.

        Like trees, continuations are read fast where some of them agree with what a plain pass gives.

        Raises:
            PrefixError: the prefix is empty or longer than the context, or an answer is not finite.
        """
        self._check([prefix], [len(prefix)])
        opened = self._trees.open(prefix, self.context)
        return PlainPrefix(self, prefix) if opened is None else opened

    def generate(self, prompts: Sequence[Sequence[int]], decoding: Decoding) -> list[list[int]]:
        """The tokens that follow each prompt, up to and without the end of text.

        Raises:
            PrefixError: a prompt is empty or leaves no room in the model's context, or an answer is not finite.
        """
        self._check(prompts, [len(p) + decoding.max_new_tokens for p in prompts])
        return self._texts.generate(prompts, decoding)

    def answer_each(
        self,
        prompts: Sequence[Sequence[int]],
        decoding: Decoding,
        seeds: Sequence[int],
        batch_size: int,
        ended: Ended | None = None,
    ) -> Iterator[tuple[int, list[int]]]:
        """What :meth:`generate` gives, each prompt drawn from its own seed, with its index; a batch at a time.

        What is drawn for a prompt does not depend on its neighbours but for the rounding of a pass over several rows.

        Args:
            prompts: token ids, none empty.
            decoding: how; its own seed is not read.
            seeds: seed of each prompt, at least 0.
            batch_size: prompts that are answered at a time.
            ended: whether an answer ends with the tokens said so far, besides by the end of text.

        Raises:
            PrefixError: as for :meth:`generate`.
        """
        self._check(prompts, [len(prompt) + decoding.max_new_tokens for prompt in prompts])
        yield from self._texts.answer_each(prompts, decoding, seeds, batch_size, ended)

    @contextlib.contextmanager
    def _answering(self) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            stack.enter_context(torch.inference_mode())
            if self._reference:
                stack.enter_context(self._model.disable_adapter())
            yield

    def _check(self, prefixes: Sequence[Sequence[int]], lengths: Sequence[int]) -> None:
        limit = self.context
        for index, (prefix, length) in enumerate(zip(prefixes, lengths, strict=True)):
            if len(prefix) == 0:
                raise PrefixError(index, "a prefix is empty: there is no position whose answer gives the first token")
            if limit is not None and length > limit:
                reason = f"a sequence of {length} tokens is longer than the context of {limit} of {self._name}"
                raise PrefixError(index, reason)

    @property
    def context(self) -> int | None:
        """Tokens of the model's context, where it has a fixed one."""
        limit: int | None = getattr(self._base.config.get_text_config(), "max_position_embeddings", None)
        return limit

    @property
    def _vocabulary(self) -> int:
        return int(self._base.config.get_text_config().vocab_size)

    def _pad(self, rows: Sequence[Sequence[int]]) -> tuple[torch.Tensor, torch.Tensor]:
        return pad(rows, filler_of(self._tokenizer), self._device)
