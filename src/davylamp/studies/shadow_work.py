"""What one shadow's worker does: train the model, read what it says of every target record, forget it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from davylamp.errors import ModelError
from davylamp.release.base import Release
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
        stacked: whether shadows are trained by :func:`~davylamp.training.stacked_fit.fit_stack`, any number at once,
            and not by the trainer of the audited model.
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
    stacked: bool = False

    def examples(self, members: Sequence[bool]) -> list[Example]:
        """The tokenised rows of a shadow, as the trainer sees them."""
        rows = list(self.rows)
        for record, positions, is_in in zip(self.records, self.positions, members, strict=True):
            for position in positions if is_in else ():
                rows[position] = record
        return pack(rows, self.max_length) if self.spec.packing else rows

    @property
    def widths(self) -> list[int]:
        """Tokens that each batch of an epoch is padded to in a stack: its longest row in any shadow."""
        longest = [len(row.ids) for row in self.rows]
        for record, positions in zip(self.records, self.positions, strict=True):
            for position in positions:
                longest[position] = max(longest[position], len(record.ids))
        size = self.spec.batch_size
        return [max(longest[start : start + size]) for start in range(0, len(longest), size)]

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
                "trainer": "stack" if self.stacked else "fit",
                "widths": self.widths if self.stacked else None,
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


def train_shadows(work: ShadowWork, tasks: Sequence[ShadowTask]) -> list[bytes]:
    """Train some shadows and read their signals.

    The bytes of each are the same wherever and with whichever others it is trained, with as many threads on a like
    machine.

    Returns:
        The content of the file of each.

    Raises:
        ModelError: the model is missing here, or is another one.
        TrainingError: training went wrong.
        ScoringError: a target cannot be scored.
        StorageError: a model is to be kept and cannot be written.
    """
    from davylamp.release.loader import load_model
    from davylamp.training.threads import use_threads

    source, tokenizer = _opened(work.base)
    found = []
    for part in [list(tasks)] if work.stacked else [[task] for task in tasks]:
        model = load_model(source, "float32", work.base.device, tokenizer=tokenizer)
        use_threads(model, work.base.threads)
        for task, (trained, losses) in zip(part, _trained(work, part, model, tokenizer), strict=True):
            if task.keep is not None:
                _keep(task.keep, trained, tokenizer)
            note = {"key": task.key, "shadow": task.index, "seed": task.seed, "spec": work.spec.model_dump(mode="json")}
            found.append(read_signals(work, trained, tokenizer, losses).to_bytes(note))
    return found


def _trained(
    work: ShadowWork, tasks: Sequence[ShadowTask], model: Any, tokenizer: TokenizerView
) -> Iterator[tuple[Any, np.ndarray]]:
    """Each trained model, to be read before the next one is asked for, and the losses of its steps."""
    from davylamp.release.quiet import quiet
    from davylamp.training.fit import fit
    from davylamp.training.stacked_fit import fit_stack
    from davylamp.training.stacking import unstack

    pad = pad_token(tokenizer)
    if not work.stacked:
        (task,) = tasks
        with quiet():
            trained, report = fit(model, work.examples(task.members), work.spec, pad, task.seed)
        yield trained, np.array(report.losses)
        return
    rows = [work.examples(task.members) for task in tasks]
    with quiet():
        many, losses = fit_stack(model, rows, work.widths, work.spec, pad)
    for which in range(len(tasks)):
        unstack(many, which, model)
        yield model, losses[:, which].double().numpy()


def _keep(folder: Path, model: Any, tokenizer: Any) -> None:
    from davylamp.release.quiet import quiet

    with replaced_folder(folder) as temporary, quiet():
        model.save_pretrained(temporary, safe_serialization=True)
        tokenizer.save_pretrained(temporary)


def pad_token(tokenizer: TokenizerView) -> int:
    """The padding token, which is masked whatever it is."""
    pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id
    return int(pad or 0)


def read_signals(work: ShadowWork, model: Any, tokenizer: TokenizerView, losses: np.ndarray | None = None) -> Signals:
    """What a model says of every target record.

    Raises:
        ScoringError: one cannot be scored; names it.
    """
    from davylamp.release.local import LocalRelease

    return signals_of(work, LocalRelease(model, tokenizer, "shadow"), losses)


def signals_of(work: ShadowWork, release: Release, losses: np.ndarray | None = None) -> Signals:
    """What a release says of every target record.

    Raises:
        ScoringError: one cannot be scored; names it.
    """
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
