"""What may take the place of a word: from a masked language model, or from the release itself."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from davylamp.errors import ModelError, ScoringError
from davylamp.release.base import Access, PrefixError, Release, TokenRelease, require
from davylamp.rendering.render import Rendered

KEPT = 5
"""Words that are kept for each place."""
LOOKED_AT = 50
"""Tokens that are looked at for each place: many are no word, or the word that stands there."""
_WORD = re.compile(r"[^\W\d_]{2,}")


class Proposer(Protocol):
    """Gives words that may take the place of others."""

    def propose(self, name: str, rendered: Rendered, places: Sequence[tuple[int, int]]) -> list[list[str]]:
        """For each place, characters [start, end) of the text, other words, the likeliest first; may be none.

        Args:
            name: of the record, for messages.
            rendered: the record.
            places: where the words stand.
        """
        ...


class ReleaseProposer:
    """The release's own likeliest words after all before a place: a causal model has no mask to look both ways.

    What comes is the first token of a word, so that long words may come cut short.
    """

    def __init__(self, release: Release) -> None:
        """Take the release.

        Raises:
            AccessError: it gives no conditionals.
        """
        require(release, "neighbourhood", Access.CONDITIONALS)
        self._release = release
        self._said: dict[int, str] = {}

    def propose(self, name: str, rendered: Rendered, places: Sequence[tuple[int, int]]) -> list[list[str]]:
        """See :class:`Proposer`."""
        # The first token that holds a character of the word, with the space before it where tokens begin so.
        at = [next(i for i, (_, end) in enumerate(rendered.offsets) if end > start) for start, _ in places]
        found = []
        for (start, end), row in zip(places, self._rows(name, rendered.ids, at), strict=True):
            found.append(_others(map(self._says, _likeliest(row)), rendered.text[start:end]))
        return found

    def _says(self, token: int) -> str:
        if token not in self._said:
            self._said[token] = str(self._release.tokenizer.decode([token]))
        return self._said[token]

    def _rows(self, name: str, ids: Sequence[int], at: Sequence[int]) -> list[Any]:
        """The rows that tokens were drawn from; uniform for the record's first token, which has nothing before it."""
        inner = sorted({place for place in at if place > 0})
        try:
            if isinstance(self._release, TokenRelease):
                wanted = [[place - 1 for place in inner]]
                ((_, answer),) = self._release.token_answers([ids[:1]], [ids[1:]], rows=wanted)
                kept = {} if answer.rows is None else dict(zip(inner, answer.rows, strict=True))
            else:
                kept = dict(zip(inner, self._release.conditionals([ids[:place] for place in inner]), strict=True))
        except PrefixError as error:
            raise ScoringError(f"canary {name}: {error}") from error
        return [kept.get(place, np.zeros(1)) for place in at]


class MaskedProposer:
    """A masked language model's likeliest words for a place, which sees the text on both sides (Mattern et al.)."""

    def __init__(self, model: Any, tokenizer: Any) -> None:
        """Take a masked language model of transformers and its tokenizer.

        Raises:
            ModelError: the tokenizer has no mask.
        """
        if tokenizer.mask_token_id is None:
            raise ModelError("the masked language model's tokenizer has no mask token")
        self._model = model.eval()
        self._tokenizer = tokenizer

    @classmethod
    def load(cls, folder: str) -> MaskedProposer:
        """Load one from a folder; its weights must be safetensors, and its own code is never run.

        Raises:
            ModelError: it cannot be loaded.
        """
        from transformers import AutoModelForMaskedLM, AutoTokenizer

        if not Path(folder).is_dir():
            raise ModelError(f"membership.masked_lm: there is no folder {folder}")
        try:
            model = AutoModelForMaskedLM.from_pretrained(folder, use_safetensors=True, trust_remote_code=False)
            return cls(model, AutoTokenizer.from_pretrained(folder, trust_remote_code=False))
        except (OSError, ValueError, KeyError) as error:
            raise ModelError(f"membership.masked_lm: cannot load {folder}: {error}") from error

    def propose(self, name: str, rendered: Rendered, places: Sequence[tuple[int, int]]) -> list[list[str]]:
        """See :class:`Proposer`; ``name`` stands in the message where a text is too long for the model."""
        import torch

        mask = self._tokenizer.mask_token
        text, found = rendered.text, []
        for start, end in places:
            ids = self._tokenizer(text[:start] + mask + text[end:], return_tensors="pt", verbose=False)["input_ids"]
            limit = getattr(self._model.config, "max_position_embeddings", ids.shape[1])
            if ids.shape[1] > limit:
                raise ScoringError(f"canary {name}: {ids.shape[1]} tokens do not fit the masked model's {limit}")
            at = int((ids[0] == self._tokenizer.mask_token_id).nonzero()[0, 0])
            with torch.inference_mode():
                row = self._model(ids.to(self._model.device)).logits[0, at].float()
            likely = torch.topk(row, min(LOOKED_AT, row.numel())).indices.tolist()
            found.append(_others((str(self._tokenizer.decode([token])) for token in likely), text[start:end]))
        return found


def _likeliest(row: NDArray[np.float64]) -> list[int]:
    """The tokens that are looked at, the likeliest first and of equal ones the first."""
    count = min(LOOKED_AT, row.size)
    near = np.flatnonzero(row >= np.partition(row, -count)[-count])
    likely: list[int] = near[np.argsort(-row[near], kind="stable")][:count].tolist()
    return likely


def _others(texts: Any, word: str) -> list[str]:
    """The first words among texts that differ from a word, in its case."""
    kept: dict[str, None] = {}
    for text in texts:
        other = text.strip()
        if _WORD.fullmatch(other) and other.lower() != word.lower():
            kept[other.capitalize() if word[0].isupper() else other] = None
        if len(kept) == KEPT:
            break
    return list(kept)
