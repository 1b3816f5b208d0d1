"""Batches of prompts continued by a transformers model, with every setting sent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from transformers import GenerationConfig, LogitsProcessorList

from davylamp.release.answers import FiniteLogits
from davylamp.release.base import Decoding


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
