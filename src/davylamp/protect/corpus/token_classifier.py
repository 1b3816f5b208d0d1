"""A token-classification model of transformers as a finder of personal data; nothing is downloaded."""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any

from davylamp.errors import Fault, InputError
from davylamp.protect.corpus.finding import Found, kind_of_label

OVERLAP = 64
"""Tokens that two windows of a token-classification model share, where a text is longer than it reads."""


class HubFinder:
    """A token-classification model of transformers, from a folder or the hub's cache on this machine.

    A text longer than the model reads is read in windows that overlap; the library's own pipeline would cut it, and
    leave the rest unscrubbed.
    """

    def __init__(self, model: str, *, entities: Sequence[str], labels: Mapping[str, str], batch_size: int = 16) -> None:
        """Load the model.

        Args:
            model: folder, or hub id of a model that is in the cache.
            entities: kinds to look for.
            labels: what the model's labels stand for, beside :data:`davylamp.protect.corpus.finding.LABELS`.
            batch_size: windows that are read at a time.

        Raises:
            InputError: the model is not on this machine, is none, or none of its labels is looked for.
        """
        transformers: Any = importlib.import_module("transformers")
        where = {"local_files_only": True, "trust_remote_code": False}
        try:
            tokenizer = transformers.AutoTokenizer.from_pretrained(model, **where)
            network = transformers.AutoModelForTokenClassification.from_pretrained(model, **where)
        except (OSError, ValueError) as error:
            raise InputError(
                Fault(
                    "scrub.model",
                    model,
                    "a token-classification model in a folder or in the hub's cache",
                    f"Nothing is downloaded here: hf download {model}. ({str(error).splitlines()[0]})",
                )
            ) from error
        # Some models count positions from 2 on, and read two tokens fewer than they have positions.
        positions = int(getattr(network.config, "max_position_embeddings", None) or 514) - 2
        reads = min(int(tokenizer.model_max_length), positions)
        if not tokenizer.is_fast or reads <= 8:
            raise InputError(Fault("scrub.model", model, "a model with a fast tokenizer that reads more than 8 tokens"))
        tokenizer.model_max_length = reads
        self._labels, self._entities = dict(labels), frozenset(entities)
        kinds = {kind_of_label(label, labels) for label in network.config.id2label.values()}
        if not self._entities & kinds:
            allowed = f"names among {', '.join(sorted(kinds - {'O'}))}"
            raise InputError(Fault("scrub.entities", list(entities), allowed, "Or name what they stand for in labels."))
        self._pipeline = transformers.pipeline(
            "token-classification",
            model=network.eval(),
            tokenizer=tokenizer,
            aggregation_strategy="first",
            stride=min(OVERLAP, reads // 4),
            batch_size=batch_size,
            device=-1,
        )
        self.version = f"transformers {version('transformers')}, {model} {_digest(network)}"

    def find(self, documents: Sequence[str]) -> list[list[Found]]:
        """What each document holds."""
        full = [at for at, text in enumerate(documents) if text.strip()]
        made = self._pipeline([documents[at] for at in full]) if full else []
        result: list[list[Found]] = [[] for _ in documents]
        for at, groups in zip(full, made, strict=True):
            for group in groups:
                kind = kind_of_label(group["entity_group"], self._labels)
                if kind in self._entities:
                    result[at].append(Found(int(group["start"]), int(group["end"]), kind, float(group["score"])))
        return result


def _digest(network: Any) -> str:
    """A hash of a model's weights: a folder's name says nothing of what is in it."""
    told = hashlib.sha256()
    for name, values in network.state_dict().items():
        told.update(name.encode())
        told.update(values.contiguous().numpy().tobytes())
    return told.hexdigest()[:16]
