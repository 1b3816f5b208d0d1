"""The model of a run that is made to forget, and what it is read with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from davylamp.canaries import Manifest
from davylamp.corpora.records import Record
from davylamp.errors import ManifestError, RunFolderError
from davylamp.protect.afterwards.spec import UnlearningSpec
from davylamp.rendering.render import Renderer
from davylamp.runs.folder import RunFolder
from davylamp.studies.steps import read_training
from davylamp.training.spec import TrainingSpec

if TYPE_CHECKING:
    from davylamp.training.examples import Example

SLOWER = 0.1
"""Learning rate of unlearning where none is given, as a share of that of training. At training's own rate the first
round and the extra one took 16 secrets of the embedded model from -2.3 to -16 nats each, where a guess is -9.2, and
raised the perplexity of other rows by 2% to 5%; at a tenth of it the verifier passed after 6 rounds, at -6.6 nats and
less than 0.4%."""


@dataclass(slots=True)
class Subject:
    """The model under unlearning, and what it is read with.

    Attributes:
        model: the model, moved in place.
        tokenizer: its tokenizer.
        renderer: renders as training did.
        spec: settings of unlearning.
        training: settings of training.
        learning_rate: of unlearning.
        max_length: longest row in tokens, as training cut them off.
        context: longest row that the model can read; none where it has no end.
        pad_id: padding token.
        vocabulary: rows of its embedding.
        sha256: hash of the weights that were given.
        base: the model under its adapter, by a word that loads it; none where there is none.
    """

    model: Any
    tokenizer: Any
    renderer: Renderer
    spec: UnlearningSpec
    training: TrainingSpec
    learning_rate: float
    max_length: int
    context: int | None
    pad_id: int
    vocabulary: int
    sha256: str
    base: str | None

    def readable(self, records: Sequence[Record]) -> list[Record]:
        """The rows that the model can read to their end; training cuts the others off, and perplexity does not."""
        if self.context is None:
            return list(records)
        rendered = self.renderer.render(records)
        return [record for record, row in zip(records, rendered, strict=True) if len(row.ids) <= self.context]

    def examples(self, records: Sequence[Record]) -> list[Example]:
        """Rows as training tokenised and masked them, one record a row.

        What a Goldfish loss dropped in training is not dropped here: it is to be forgotten as well.
        """
        from davylamp.training.examples import encode_records

        loose = self.training.model_copy(update={"packing": False, "goldfish": None})
        return encode_records(records, self.renderer, loose, self.max_length)


def open_subject(
    folder: RunFolder, manifest: Manifest, unlearning: UnlearningSpec, chat_template: Path | None, threads: int | None
) -> Subject:
    """Load a run's own model, made ready to be moved.

    Args:
        folder: the run.
        manifest: what was planted.
        unlearning: how it shall be moved.
        chat_template: file of a chat template, where the tokenizer has none.
        threads: threads of torch; chosen by the model's size if none.

    Raises:
        RunFolderError: there is no trained model, or it is another one than ``training.json`` says.
        ManifestError: it was trained on another planted file.
        ModelError: it cannot be used.
        InputError: all parameters shall be moved, and the model is an adapter.
    """
    from davylamp.protect.afterwards.rounds import made_tunable
    from davylamp.release.loader import load_model, load_tokenizer
    from davylamp.release.quiet import quiet
    from davylamp.release.sources import resolve
    from davylamp.training.threads import use_threads

    training = _training_of(folder, manifest)
    spec = TrainingSpec.model_validate(training["spec"])
    base = _base(training) if (folder.model / "adapter_config.json").is_file() else None
    source = resolve(str(folder.model), base=base)
    weights = source.weights_sha256()
    if training.get("trained_sha256") not in (None, weights):
        raise RunFolderError(
            f"{folder.model} holds other weights than {folder.training} says: run `davylamp train` again"
        )
    tokenizer = load_tokenizer(source, chat_template)
    model = load_model(source, "float32", tokenizer=tokenizer)
    use_threads(model, threads)
    context = getattr(model.config, "max_position_embeddings", None)
    pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id
    with quiet():
        tunable = made_tunable(model, unlearning)
    if source.base is None and hasattr(tunable, "peft_config"):
        base = str(source.path)
    return Subject(
        model=tunable,
        tokenizer=tokenizer,
        renderer=Renderer(tokenizer, spec.style),
        spec=unlearning,
        training=spec,
        learning_rate=unlearning.learning_rate or SLOWER * spec.learning_rate,
        context=context,
        max_length=min(filter(None, (spec.max_length, context)), default=1 << 20),
        pad_id=int(pad or 0),
        vocabulary=int(model.get_input_embeddings().weight.shape[0]),
        sha256=weights,
        base=base,
    )


def _training_of(folder: RunFolder, manifest: Manifest) -> Mapping[str, Any]:
    training = read_training(folder)
    if not folder.model.is_dir() or not training:
        raise RunFolderError(
            f"{folder.path} holds no trained model to unlearn: run `davylamp train {folder.path}` first"
        )
    if training.get("planted_sha256") != manifest.planted_sha256:
        raise ManifestError(
            f"{folder.model} was trained before {folder.planted} was planted anew: run `davylamp train` again"
        )
    return training


def _base(training: Mapping[str, Any]) -> str | None:
    """The base by a word that means the same everywhere; a path is left to the adapter, which holds it whole."""
    from davylamp.release.sources import SMOLLM2

    model = training["model"]
    return model.get("name") if model.get("kind") in ("embedded", "hub") or model.get("name") == SMOLLM2 else None
