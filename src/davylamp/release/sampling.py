"""Prompts answered together, each from a random stream of its own: neighbours change a draw by rounding at most."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from transformers import (
    DynamicCache,
    GenerationConfig,
    LogitsProcessor,
    LogitsProcessorList,
    StoppingCriteria,
    StoppingCriteriaList,
)

from davylamp.release.answers import FiniteLogits
from davylamp.release.base import Decoding

STRIDE = 32
"""Tokens after which rows that have ended leave the batch."""
HEAD = 1024
"""Likeliest tokens that are sorted to find ``top_p``; all of them are where these do not hold that mass."""
SHORTEST = 16
"""Tokens from which on a beginning that all prompts of a batch share is read once for all of them."""

Ended = Callable[[Sequence[int]], bool]
"""Whether an answer ends with the tokens said so far, besides by the end of text."""


class RowDraws(LogitsProcessor):  # type: ignore[misc]
    """Leaves each row the one token that its own stream draws; greedy decoding then takes it.

    A row's number u in [0, 1) picks the first token, in the order of the vocabulary, at which the kept mass passes u of
    the whole: unlike an order by probability, this one does not change where a rounding makes two tokens change places.
    """

    def __init__(self, decoding: Decoding, seeds: Sequence[int]) -> None:
        """Take how to sample, and each row's seed."""
        self._decoding = decoding
        self._streams = [np.random.default_rng(seed) for seed in seeds]

    def keep(self, rows: Sequence[int]) -> None:
        """Go on with these rows only."""
        self._streams = [self._streams[row] for row in rows]

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:  # noqa: ARG002
        """Scores in which one token of each row is not impossible."""
        sums = kept_mass(scores, self._decoding).double().cumsum(dim=-1)
        drawn = torch.tensor([stream.random() for stream in self._streams], dtype=torch.float64, device=scores.device)
        whole = sums[:, -1:]
        # Below the whole even where the product is rounded up, so that no token of mass 0 behind the last is taken.
        at = torch.minimum(drawn[:, None] * whole, torch.nextafter(whole, torch.zeros_like(whole)))
        picked = torch.searchsorted(sums, at, right=True)
        return torch.full_like(scores, -torch.inf).scatter_(1, picked, 0.0)


def kept_mass(scores: torch.Tensor, decoding: Decoding) -> torch.Tensor:
    """What the tokens have of the mass that is sampled from, shape (rows, vocabulary); the rest have 0.

    Args:
        scores: logits, shape (rows, vocabulary).
        decoding: a temperature above 0; of equals at the end of ``top_k`` or ``top_p`` all are kept.
    """
    mass = torch.softmax(scores.float() / decoding.temperature, dim=-1)
    if 0 < decoding.top_k < mass.shape[-1]:
        least = mass.topk(decoding.top_k, dim=-1).values[:, -1:]
        mass = torch.where(mass >= least, mass, 0.0)
        mass = mass / mass.sum(dim=-1, keepdim=True)
    if decoding.top_p < 1:
        least, flat = _least(mass.topk(min(HEAD, mass.shape[-1]), dim=-1).values, decoding.top_p)
        if bool(flat.any()):
            least[flat] = _least(mass[flat].sort(dim=-1, descending=True).values, decoding.top_p)[0]
        mass = torch.where(mass >= least, mass, 0.0)
    return mass


def _least(likeliest: torch.Tensor, top_p: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Mass of each row's last token that belongs to ``top_p``, and whether these tokens do not hold so much."""
    sums = likeliest.double().cumsum(dim=-1)
    last = (sums - likeliest < top_p).sum(dim=-1, keepdim=True) - 1
    return likeliest.gather(1, last), sums[:, -1] < top_p


class Endings(StoppingCriteria):  # type: ignore[misc]
    """Notes where each row's answer ends; what is generated in a row afterwards is not read."""

    def __init__(self, width: int, stops: Sequence[int], ended: Ended | None, rows: int) -> None:
        """Take the padded length of the prompts, tokens of the end of text, and how many rows there are."""
        self._width = width
        self._stops = stops
        self._ended = ended
        self.lengths: list[int | None] = [None] * rows

    def keep(self, rows: Sequence[int]) -> None:
        """Go on with these rows only."""
        self.lengths = [self.lengths[row] for row in rows]

    def __call__(self, input_ids: torch.Tensor, scores: Any, **_: Any) -> torch.Tensor:  # noqa: ARG002
        """Whether each row has ended."""
        for row, said in enumerate(input_ids[:, self._width :].tolist()):
            if self.lengths[row] is None:
                if said[-1] in self._stops:
                    self.lengths[row] = len(said) - 1
                elif self._ended is not None and self._ended(said):
                    self.lengths[row] = len(said)
        return torch.tensor([length is not None for length in self.lengths], device=input_ids.device)


@dataclass(frozen=True, slots=True)
class Asked:
    """What is asked of a batch.

    Attributes:
        prompts: index of each prompt.
        seeds: seed of each.
        stops: tokens of the end of text.
        filler: the token of padding.
        ended: whether a row also ends with what it said.
        stride: tokens after which rows that have ended leave the batch.
        cache: keys and values of the beginning of every row, where that was read before.
    """

    prompts: Sequence[int]
    seeds: Sequence[int]
    stops: Sequence[int]
    filler: int
    ended: Ended | None = None
    stride: int = STRIDE
    cache: Any = None


def shared_beginning(prompts: Sequence[Sequence[int]]) -> int:
    """Tokens with which all prompts of a batch begin alike, and after which each has more; 0 where too few to pay."""
    first, last = min(map(tuple, prompts)), max(map(tuple, prompts))
    length = next((at for at, (one, other) in enumerate(zip(first, last, strict=False)) if one != other), len(first))
    length = min(length, *(len(prompt) - 1 for prompt in prompts))
    return length if len(prompts) > 1 and length >= SHORTEST else 0


def begun(
    model: Any, beginning: torch.Tensor, padded: tuple[torch.Tensor, torch.Tensor]
) -> tuple[tuple[torch.Tensor, torch.Tensor], Any]:
    """Read a beginning once for all rows of a batch.

    Args:
        model: the model, called without gradient; its layers see all tokens before, whatever padding lies between.
        beginning: its tokens, shape (1, tokens).
        padded: what follows in each row, padded on the left, and its mask.

    Returns:
        Whole rows and their mask, with the padding behind the beginning, and its keys and values for every row.
    """
    ids, mask = padded
    cache = model(beginning, logits_to_keep=1, cache=DynamicCache(), use_cache=True).cache
    cache.batch_repeat_interleave(len(ids))
    ids = torch.cat([beginning.expand(len(ids), -1), ids], dim=1)
    return (ids, torch.nn.functional.pad(mask, (beginning.shape[1], 0), value=1)), cache


def answered(
    model: Any, padded: tuple[torch.Tensor, torch.Tensor], decoding: Decoding, asked: Asked, name: str
) -> list[tuple[int, list[int]]]:
    """Index of each prompt of a batch and what follows it, up to and without the end of text, in the order they end.

    Args:
        model: the model, called without gradient.
        padded: token ids and mask of the prompts, padded on the left.
        decoding: how; its seed is not read.
        asked: the prompts.
        name: the release's name, for messages.

    Raises:
        PrefixError: an answer is not finite.
    """
    ids, mask = padded
    width, cache, prompts = ids.shape[1], asked.cache, list(asked.prompts)
    draws = RowDraws(decoding, asked.seeds)
    endings = Endings(width, asked.stops, asked.ended, len(prompts))
    results: list[tuple[int, list[int]]] = []
    while prompts:
        left = decoding.max_new_tokens - (ids.shape[1] - width)
        finite = FiniteLogits(prompts, name)
        made = model.generate(
            input_ids=ids,
            attention_mask=mask,
            cache=cache,
            generation_config=_plainly(min(asked.stride, left), asked.filler),
            logits_processor=LogitsProcessorList([finite, draws] if decoding.temperature > 0 else [finite]),
            stopping_criteria=StoppingCriteriaList([endings]),
        )
        ids, cache = made.sequences, getattr(made, "cache", None)
        mask = torch.nn.functional.pad(mask, (0, ids.shape[1] - mask.shape[1]), value=1)
        going = []
        for row, said in enumerate(ids[:, width:].tolist()):
            if endings.lengths[row] is None and len(said) < decoding.max_new_tokens:
                going.append(row)
            else:
                results.append((prompts[row], said[: endings.lengths[row]]))
        if going and len(going) < len(prompts):
            chosen = torch.tensor(going, device=ids.device)
            ids, mask = ids[chosen], mask[chosen]
            if cache is not None:
                cache.batch_select_indices(chosen)
        prompts = [prompts[row] for row in going]
        draws.keep(going)
        endings.keep(going)
    return results


def _plainly(tokens: int, filler: int) -> GenerationConfig:
    """Greedy decoding without an end: what is drawn, and where a row ends, is decided beside it."""
    return GenerationConfig(
        max_new_tokens=tokens,
        do_sample=False,
        num_beams=1,
        repetition_penalty=1.0,
        pad_token_id=filler,
        eos_token_id=None,
        return_dict_in_generate=True,
    )
