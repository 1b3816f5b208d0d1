"""Texts read by a transformers model in batches of like length; a beginning that many share is read once."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import DynamicCache

from davylamp.release.answers import FLOAT32_MARGIN, HALF_MARGIN, check_finite
from davylamp.release.base import TokenAnswer
from davylamp.release.batches import batches
from davylamp.release.reductions import reduce_rows

LOG = logging.getLogger(__name__)
SHORTEST = 16
"""Tokens of the shortest beginning that is read once for all who share it."""
FEWEST = 4
"""Texts that must share it: fewer do not pay for the comparison with a plain reading."""
PASS = {"cpu": 2048}
"""Most tokens of a pass, by kind of device: a processor gains nothing from more, and loses its cache."""

Array = NDArray[np.float64]
Pad = Callable[[Sequence[Sequence[int]]], tuple[torch.Tensor, torch.Tensor]]
"""Stacks rows of token ids, padded on the right, and their mask."""


@dataclass(frozen=True, slots=True)
class _Text:
    """What is fed of a text, and what is asked of it.

    Attributes:
        index: its place among what was asked.
        fed: tokens from the end of the shared beginning up to the last but one.
        first: place in ``fed`` of the token before the continuation.
        targets: the continuation.
        rows: places in the continuation whose whole rows are wanted.
    """

    index: int
    fed: Sequence[int]
    first: int
    targets: Sequence[int]
    rows: Sequence[int]


class Sequences:
    """Reads continuations of prefixes with one model."""

    def __init__(
        self,
        model: Any,
        base: Any,
        pad: Pad,
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
            pad: stacks rows.
            answering: the context in which the model is called.
            name: the release's name, for messages.
            memory: bytes that a pass may take beyond the model.
            shares: whether the architecture keeps keys and values that a caller may hand on.
        """
        self._model, self._pad, self._answering = model, pad, answering
        self._name, self._memory, self._shares = name, memory, shares
        self._proven = 0
        self._vocabulary = int(base.config.get_text_config().vocab_size)
        self._device = next(base.parameters()).device
        self._tokens = PASS.get(self._device.type)
        self._margin = FLOAT32_MARGIN if base.dtype in (torch.float32, torch.float64) else HALF_MARGIN
        plain = "use_cache" in inspect.signature(base.forward).parameters
        self._plain: dict[str, Any] = {"use_cache": False} if plain else {}

    def read(
        self,
        prefixes: Sequence[Sequence[int]],
        continuations: Sequence[Sequence[int]],
        *,
        moments: bool = False,
        rows: Sequence[Sequence[int]] | None = None,
        share: bool = True,
    ) -> Iterator[tuple[int, TokenAnswer]]:
        """See :meth:`davylamp.release.base.TokenRelease.token_answers`.

        Args:
            prefixes: token ids, none empty.
            continuations: token ids, as many as prefixes.
            moments: also give means and deviations.
            rows: places in each continuation at which whole rows are wanted.
            share: read once what many prefixes have in common: all of each but its last token.

        Raises:
            PrefixError: an answer is not finite.
        """
        wanted: Sequence[Sequence[int]] = [()] * len(prefixes) if rows is None else rows
        alike: dict[tuple[int, ...], list[int]] = {}
        for i, prefix in enumerate(prefixes):
            alike.setdefault(tuple(prefix[:-1]) if share else (), []).append(i)
        alone: list[_Text] = []
        for beginning, members in alike.items():
            texts = [_text(i, prefixes[i], continuations[i], wanted[i], len(beginning)) for i in members]
            shared = self._shared(beginning, texts)
            if shared is None:
                alone += [_text(i, prefixes[i], continuations[i], wanted[i], 0) for i in members]
            else:
                yield from self._read(texts, moments, shared)
        yield from self._read(alone, moments)

    def _shared(self, beginning: Sequence[int], texts: Sequence[_Text]) -> _Beginning | None:
        """A beginning read once, if that pays and gives what plain reading does."""
        if not self._shares or len(beginning) < SHORTEST or len(texts) < FEWEST:
            return None
        with self._answering():
            ids = torch.tensor([list(beginning)], device=self._device)
            answer = self._model(ids, logits_to_keep=1, cache=DynamicCache(), use_cache=True)
        shared = _Beginning(answer.cache)
        if len(beginning) > self._proven:
            # A longer beginning may reach beyond a window that no configuration tells.
            longest = max(texts, key=lambda text: len(text.targets))
            whole = replace(longest, fed=[*beginning, *longest.fed], first=len(beginning) + longest.first, rows=())
            plain = next(self._read([whole], False))[1].logprobs
            quick = next(self._read([replace(longest, rows=())], False, shared, checked=False))[1].logprobs
            away = np.abs(quick - plain)[quick != plain].sum()
            if not away <= self._margin * len(plain):
                self._shares = False
                LOG.warning(
                    "%s reads on from a beginning otherwise than it reads whole texts: reading whole texts", self._name
                )
                return None
            self._proven = len(beginning)
        return shared

    def _read(
        self, texts: Sequence[_Text], moments: bool, shared: _Beginning | None = None, checked: bool = True
    ) -> Iterator[tuple[int, TokenAnswer]]:
        order = sorted(range(len(texts)), key=lambda i: len(texts[i].fed))
        lengths = [len(text.fed) for text in texts]
        # Logits and their copy in float32; whole rows in float64 as tensor and as array; one layer's keys and values.
        costs = [
            8 * self._vocabulary * (length + 2 * len(text.rows)) + (shared.layer_bytes(length) if shared else 0)
            for text, length in zip(texts, lengths, strict=True)
        ]
        for batch in batches(order, lengths, costs, self._memory, tokens=self._tokens):
            for index, answer in self._pass([texts[i] for i in batch], moments, shared):
                if checked:
                    for values in (answer.logprobs, answer.means, answer.deviations, answer.rows):
                        if values is not None:
                            check_finite(values, index, self._name)
                yield index, answer

    def _pass(
        self, texts: Sequence[_Text], moments: bool, shared: _Beginning | None
    ) -> Iterator[tuple[int, TokenAnswer]]:
        ids, mask = self._pad([text.fed for text in texts])
        first = min(text.first for text in texts)
        own = self._plain
        if shared is not None:
            mask = torch.cat([mask.new_ones((len(texts), shared.get_seq_length())), mask], dim=1)
            own = {"cache": shared, "use_cache": True}
        with self._answering():
            logits = self._model(ids, attention_mask=mask, logits_to_keep=ids.shape[1] - first, **own).logits
            targets = np.zeros(logits.shape[:2], dtype=np.int64)
            places = [slice(text.first - first, text.first - first + len(text.targets)) for text in texts]
            for row, (text, place) in enumerate(zip(texts, places, strict=True)):
                targets[row, place] = text.targets
            asked = torch.from_numpy(targets).to(logits.device)
            reduced = reduce_rows(logits.flatten(0, 1), asked.flatten(), moments)
            logprobs, means, deviations = (
                each.reshape(targets.shape if each.numel() else (len(texts), 0)).cpu().numpy()
                for each in (reduced.logprobs, reduced.means, reduced.deviations)
            )
            whole = [
                _rows(logits[row, place][list(text.rows)]) if text.rows else None
                for row, (text, place) in enumerate(zip(texts, places, strict=True))
            ]
        for row, (text, place, rows) in enumerate(zip(texts, places, whole, strict=True)):
            chosen = logprobs[row, place].copy()
            if rows is not None:
                # The same number whichever of the two is read.
                chosen[list(text.rows)] = rows[np.arange(len(rows)), [text.targets[at] for at in text.rows]]
            mean, deviation = (each[row, place].copy() if moments else None for each in (means, deviations))
            yield text.index, TokenAnswer(chosen, mean, deviation, rows)


class _Beginning(DynamicCache):  # type: ignore[misc]
    """Keys and values of one beginning, for any number of texts at once; keeps nothing of what follows it."""

    def __init__(self, cache: DynamicCache) -> None:
        super().__init__()
        self.layers = cache.layers

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int, *_: Any, **__: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The beginning's keys and values before those of each row."""
        layer = self.layers[layer_idx]
        keys, values = (each.expand(len(key_states), -1, -1, -1) for each in (layer.keys, layer.values))
        return torch.cat([keys, key_states], dim=2), torch.cat([values, value_states], dim=2)

    def layer_bytes(self, more: int) -> int:
        """Bytes of one layer's keys and values for a text of ``more`` further tokens."""
        layer = self.layers[0]
        each = (layer.keys.shape[1] * layer.keys.shape[3] + layer.values.shape[1] * layer.values.shape[3]) * (
            layer.keys.element_size()
        )
        return int(each * (self.get_seq_length() + more))


def _text(index: int, prefix: Sequence[int], continuation: Sequence[int], rows: Sequence[int], shared: int) -> _Text:
    return _Text(index, [*prefix[shared:], *continuation[:-1]], len(prefix) - 1 - shared, continuation, rows)


def _rows(logits: torch.Tensor) -> Array:
    """Whole rows normalised in float64."""
    values = logits.double()
    rows: Array = (values - torch.logsumexp(values, dim=-1, keepdim=True)).cpu().numpy()
    return rows
