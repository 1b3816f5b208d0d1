"""What one shadow's worker does: train the model, read what it says of every target record, forget it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from davylamp.errors import ModelError
from davylamp.rendering.tokenizer import TokenizerView
from davylamp.runs import files
from davylamp.runs.folder import digest, replaced_folder
from davylamp.scoring.tokens import SecretTokens, TokenScorer
from davylamp.training.examples import Example, pack
from davylamp.training.shadow_runs import ShadowTask
from davylamp.training.shadow_store import Signals
from davylamp.training.spec import TrainingSpec


@dataclass(frozen=True, slots=True)
class Base:
    """The model that training begins from, as a worker finds it.

    Attributes:
        model: what the user wrote after ``--model``.
        sha256: hash of its weights.
        chat_template: file of a chat template, or none.
        device: where to train.
        threads: threads of torch.
    """

    model: str
    sha256: str
    chat_template: Path | None
    device: str
    threads: int


@dataclass(frozen=True)
class ShadowWork:
    """What all shadows of a run have in common: made once, handed to each process once.

    Attributes:
        base: the model.
        spec: how it is trained.
        max_length: longest row in tokens.
        rows: the tokenised rows of a shadow that no target is in.
        records: the tokenised row of each target.
        positions: rows that each target takes in a shadow that it is in.
        scored: records that the trained model is asked about, each with the span of its secret.
        replies: first token of the reply of each, at least 1.
        versions: versions of the libraries that training depends on.
        precision: what the forward passes compute in.
    """

    base: Base
    spec: TrainingSpec
    max_length: int
    rows: tuple[Example, ...]
    records: tuple[Example, ...]
    positions: tuple[tuple[int, ...], ...]
    scored: tuple[SecretTokens, ...]
    replies: tuple[int, ...]
    versions: dict[str, str]
    precision: str

    def examples(self, members: Sequence[bool]) -> list[Example]:
        """The tokenised rows of a shadow, as the trainer sees them."""
        rows = list(self.rows)
        for record, positions, is_in in zip(self.records, self.positions, members, strict=True):
            for position in positions if is_in else ():
                rows[position] = record
        return pack(rows, self.max_length) if self.spec.packing else rows

    @property
    def lengths(self) -> list[int]:
        """Tokens of the reply of each record that is scored."""
        return [len(each.ids) - reply for each, reply in zip(self.scored, self.replies, strict=True)]

    def key(self, members: Sequence[bool], seed: int) -> str:
        """Hash of all that a shadow's signals depend on: tokens and not texts, so that whatever changes them counts.

        Threads and the processor change the order of sums alone, and are left out.
        """
        rows = list(self._row_hashes[0])
        for own, positions, is_in in zip(self._row_hashes[1], self.positions, members, strict=True):
            for position in positions if is_in else ():
                rows[position] = own
        return digest(
            {
                "weights": self.base.sha256,
                "spec": self.spec.model_dump(mode="json"),
                "max_length": self.max_length,
                "seed": seed,
                "rows": files.sha256_bytes("".join(rows).encode()),
                "scored": self.scored_sha256,
                "precision": self.precision,
                "device": self.base.device.partition(":")[0],
                "versions": self.versions,
            }
        )

    @cached_property
    def scored_sha256(self) -> str:
        """Hash of the tokens that are asked about."""
        pairs = zip(self.scored, self.replies, strict=True)
        return files.sha256_bytes(repr([(each.ids, each.secret, reply) for each, reply in pairs]).encode())

    @cached_property
    def _row_hashes(self) -> tuple[list[str], list[str]]:
        known: dict[Example, str] = {}
        for row in (*self.rows, *self.records):
            if row not in known:
                known[row] = files.sha256_bytes(np.array([row.ids, row.labels], dtype="<i4").tobytes())
        return [known[row] for row in self.rows], [known[row] for row in self.records]


def train_shadow(work: ShadowWork, task: ShadowTask) -> bytes:
    """Train one shadow and read its signals; the same bytes wherever it is done with the same number of threads.

    Returns:
        The content of its file.

    Raises:
        ModelError: the model is missing here, or is another one.
        TrainingError: training went wrong; names the shadow.
        ScoringError: a target cannot be scored.
        StorageError: the model is to be kept and cannot be written.
    """
    from davylamp.release.loader import load_model
    from davylamp.release.quiet import quiet
    from davylamp.training.fit import fit
    from davylamp.training.threads import use_threads

    source, tokenizer = _opened(work.base)
    model = load_model(source, "float32", work.base.device, tokenizer=tokenizer)
    use_threads(model, work.base.threads)
    pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id
    with quiet():
        trained, report = fit(model, work.examples(task.members), work.spec, int(pad or 0), task.seed)
    if task.keep is not None:
        with replaced_folder(task.keep) as temporary, quiet():
            trained.save_pretrained(temporary, safe_serialization=True)
            tokenizer.save_pretrained(temporary)  # type: ignore[attr-defined]
    signals = read_signals(work, trained, tokenizer, np.array(report.losses))
    return signals.to_bytes(
        {"key": task.key, "shadow": task.index, "seed": task.seed, "spec": work.spec.model_dump(mode="json")}
    )


def read_signals(work: ShadowWork, model: Any, tokenizer: TokenizerView, losses: np.ndarray | None = None) -> Signals:
    """What a model says of every target record.

    Raises:
        ScoringError: one cannot be scored; names it.
    """
    from davylamp.release.local import LocalRelease

    release = LocalRelease(model, tokenizer, "shadow")
    scores = TokenScorer().score(release, work.scored)
    replies = [each.of((reply, len(each.ids))) for each, reply in zip(scores, work.replies, strict=True)]
    return Signals(tuple(replies), np.empty(0) if losses is None else losses)


@lru_cache(maxsize=1)
def _opened(base: Base) -> tuple[Any, TokenizerView]:
    """The model's source and tokenizer, once a process."""
    from davylamp.release.loader import load_tokenizer
    from davylamp.release.sources import resolve

    source = resolve(base.model)
    found = source.weights_sha256()
    if found != base.sha256:
        raise ModelError(f"{base.model} holds other weights here ({found[:12]}) than where the run was begun")
    return source, load_tokenizer(source, base.chat_template)
