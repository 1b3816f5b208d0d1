"""A checkpoint of this machine as a writer of texts, asked through its release as an audit asks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from davylamp.corpora.records import Message, Record
from davylamp.errors import Fault, InputError
from davylamp.protect.corpus.base import Answer, Chat, Writing
from davylamp.release.base import Decoding, PrefixError
from davylamp.rendering.render import Renderer


class LocalWriter:
    """A causal language model that answers chats.

    Chats are answered one at a time where text is sampled, so that what is drawn depends on the chat's own seed and not
    on its neighbours.
    """

    def __init__(self, release: Any, name: str, sha256: str) -> None:
        """Take an opened release, a name for people, and the hash of its weights."""
        self._release = release
        self._renderer = Renderer(release.tokenizer, "chat" if release.tokenizer.chat_template else "plain")
        self.name = name
        self.sha256 = sha256

    @classmethod
    def load(cls, name: str, threads: int | None = None) -> LocalWriter:
        """Load a checkpoint: ``smollm2``, a folder, a GGUF file or a hub id.

        Raises:
            ModelError: the model cannot be used.
            TokenizerError: its tokenizer cannot.
        """
        from davylamp.release.loader import load_model, load_tokenizer
        from davylamp.release.local import LocalRelease
        from davylamp.release.sources import resolve
        from davylamp.training.threads import use_threads

        source = resolve(name)
        tokenizer = load_tokenizer(source)
        model = load_model(source, "auto", tokenizer=tokenizer)
        use_threads(model, threads)
        return cls(LocalRelease(model, tokenizer, source.name), source.name, source.weights_sha256())

    def write(self, chats: Sequence[Chat], seeds: Sequence[int], decoding: Writing) -> Iterator[tuple[int, Answer]]:
        """Answer chats; see :class:`davylamp.protect.corpus.base.Writer`.

        Raises:
            InputError: a chat leaves no room in the model's context for an answer.
        """
        prompts = self._renderer.prompt_ids([_record(chat, self._renderer) for chat in chats])
        for at, (prompt, seed) in enumerate(zip(prompts, seeds, strict=True)):
            how = Decoding(
                max_new_tokens=decoding.max_tokens, temperature=decoding.temperature, top_p=decoding.top_p, seed=seed
            )
            try:
                (tokens,) = self._release.generate([prompt], how)
            except PrefixError as error:
                raise InputError(
                    Fault("max_tokens", decoding.max_tokens, "what the model's context has room for", str(error))
                ) from error
            text = self._release.tokenizer.decode(tokens, skip_special_tokens=True)
            cut = len(tokens) >= decoding.max_tokens
            yield at, Answer(text, "length" if cut else "stop", len(prompt), len(tokens))


def _record(chat: Chat, renderer: Renderer) -> Record:
    """A chat as a record whose reply is not read; a model without a template is given the turns one after the other."""
    if renderer.tokenizer.chat_template:
        return Record.of_messages((*(Message(role, text) for role, text in chat), Message("assistant", ".")))
    return Record.of_pair("\n\n".join(text for _, text in chat) + "\n\n", ".")
