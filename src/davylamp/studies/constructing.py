"""Constructions in a run folder: planted with the base model at hand, and read from a release."""

from __future__ import annotations

from pathlib import Path

from davylamp.measures.constructed.making import ModelMaker
from davylamp.rendering.render import Style


def maker_of(
    base: str, style: Style = "auto", chat_template: Path | None = None, threads: int | None = None
) -> ModelMaker:
    """Load the base model that constructions are drawn from.

    Args:
        base: what ``--model`` takes; the model that training will begin from.
        style: how training will render records.
        chat_template: file of a chat template, where the tokenizer has none.
        threads: threads of torch; chosen by the model's size if none.

    Raises:
        ModelError: it cannot be used.
        TokenizerError: its tokenizer cannot.
    """
    from davylamp.release.loader import load_model, load_tokenizer
    from davylamp.release.local import LocalRelease
    from davylamp.release.sources import resolve
    from davylamp.training.threads import use_threads

    source = resolve(base)
    tokenizer = load_tokenizer(source, chat_template)
    model = load_model(source, "float32", tokenizer=tokenizer)
    use_threads(model, threads)
    return ModelMaker(LocalRelease(model, tokenizer, source.name), source.weights_sha256(), style)
