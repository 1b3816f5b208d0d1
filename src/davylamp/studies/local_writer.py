"""A checkpoint of this machine as a writer of texts, asked through its release as an audit asks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from davylamp.corpora.records import Message, Record
from davylamp.errors import Fault, InputError
from davylamp.protect.corpus.base import Answer, Chat, Writing
from davylamp.release.base import Decoding, PrefixError
from davylamp.rendering.render import Renderer

TAIL = 16
"""Last tokens of an answer in which a stop is looked for first; an answer that was stopped in them is read whole."""


class LocalWriter:
    """A causal language model that answers chats, several in each pass.

    Every chat is drawn from a random stream of its own seed, so that its answer does not depend on its neighbours, but
    for the rounding of a pass over several rows.
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
        """Answer chats, a batch at a time; see :class:`davylamp.protect.corpus.base.Writer`.

        Raises:
            InputError: a chat leaves no room in the model's context for an answer.
        """
        prompts = self._renderer.prompt_ids([_record(chat, self._renderer) for chat in chats])
        how = Decoding(decoding.max_tokens, temperature=decoding.temperature, top_p=decoding.top_p)
        ended = self._ended(decoding.stop) if decoding.stop else None
        try:
            for at, tokens in self._release.answer_each(prompts, how, seeds, decoding.batch_size, ended):
                whole = self._said(tokens)
                text = _until(whole, decoding.stop)
                cut = len(tokens) >= decoding.max_tokens and text == whole
                yield at, Answer(text, "length" if cut else "stop", len(prompts[at]), len(tokens))
        except PrefixError as error:
            raise InputError(
                Fault("max_tokens", decoding.max_tokens, "what the model's context has room for", str(error))
            ) from error

    def _said(self, tokens: Sequence[int]) -> str:
        text: str = self._release.tokenizer.decode(tokens, skip_special_tokens=True)
        return text

    def _ended(self, stops: Sequence[str]) -> Callable[[Sequence[int]], bool]:
        def ended(tokens: Sequence[int]) -> bool:
            tail = self._said(tokens[-TAIL:])
            if not any(stop in tail for stop in stops):
                return False
            whole = self._said(tokens)
            return _until(whole, stops) != whole

        return ended


def _until(text: str, stops: Sequence[str]) -> str:
    """A text up to its first stop; none counts before anything is said, or after a colon, which announces something."""
    ends = []
    for stop in stops:
        at = text.find(stop)
        while at >= 0 and (not (before := text[:at].rstrip()) or before.endswith(":")):
            at = text.find(stop, at + 1)
        ends.append(len(text) if at < 0 else at)
    return text[: min(ends, default=len(text))]


def _record(chat: Chat, renderer: Renderer) -> Record:
    """A chat as a record whose reply is not read; a model without a template is given the turns one after the other."""
    if renderer.tokenizer.chat_template:
        return Record.of_messages((*(Message(role, text) for role, text in chat), Message("assistant", ".")))
    return Record.of_pair("\n\n".join(text for _, text in chat) + "\n\n", ".")
