"""Records rendered as training sees them: text, tokens, the part that receives loss, the place of a secret."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from jinja2 import TemplateError

from davylamp.corpora.records import Message, Record
from davylamp.errors import TokenizerError
from davylamp.rendering.tokenizer import TokenizerView, encode

TEMPLATE_ERRORS = (
    TemplateError,
    ArithmeticError,
    AttributeError,
    LookupError,
    TypeError,
    ValueError,
    RecursionError,
)
"""What a chat template may raise: it is a small program, and its faults are those of Python."""

Style = Literal["auto", "chat", "plain"]
"""``chat`` uses the tokenizer's template, ``plain`` joins prompt and reply; ``auto`` takes the template if any."""


@dataclass(frozen=True, slots=True)
class Rendered:
    """One record as text and tokens.

    Attributes:
        text: the whole rendered record.
        ids: tokens of ``text``, special tokens included.
        offsets: for each token the characters [start, end) of ``text`` that it stands for; (0, 0) for a token
            that the tokenizer added.
        reply_start: first character of the reply in ``text``.
        reply_end: one past the last character of the reply (before the end-of-turn mark).
    """

    text: str
    ids: tuple[int, ...]
    offsets: tuple[tuple[int, int], ...]
    reply_start: int
    reply_end: int

    @property
    def loss_start(self) -> int:
        """Index of the first token that receives loss: the first that holds a character of the reply."""
        for index, (_, end) in enumerate(self.offsets):
            if end > self.reply_start:
                return index
        return len(self.ids)

    def span(self, start: int, end: int) -> tuple[int, int]:
        """Tokens [first, last) that cover the characters [start, end) of the *reply*.

        The span is the smallest that covers them, so that it also covers the neighbours that a token merged
        with the secret.

        Raises:
            TokenizerError: no token covers them.
        """
        first, last = self.reply_start + start, self.reply_start + end
        touched = [index for index, (left, right) in enumerate(self.offsets) if left < last and right > first]
        if not touched:
            raise TokenizerError(f"no token covers the characters {start} to {end} of the reply")
        return touched[0], touched[-1] + 1


class Renderer:
    """Renders records with one tokenizer, always the same way in training and at evaluation."""

    def __init__(self, tokenizer: TokenizerView, style: Style = "auto") -> None:
        """Choose the style.

        Args:
            tokenizer: a fast tokenizer.
            style: see :data:`Style`; records of shape ``text`` are always plain.
        """
        self.tokenizer = tokenizer
        self.style = style

    def is_chat(self, record: Record) -> bool:
        """Whether a record is rendered by the chat template.

        Raises:
            TokenizerError: the record or the style needs a template and the tokenizer has none.
        """
        if record.shape == "text" or (self.style == "plain" and record.shape == "prompt_completion"):
            return False
        if self.tokenizer.chat_template:
            return True
        if record.shape == "messages" or self.style == "chat":
            raise TokenizerError(
                "the tokenizer has no chat template, and these records are chat messages: give one with "
                "--chat-template FILE (a Jinja file), or choose prompt/completion records with --style plain"
            )
        return False

    def prompt_text(self, record: Record) -> tuple[str, bool]:
        """The text that stands before the reply, and whether the tokenizer adds its special tokens to it.

        Raises:
            TokenizerError: the record has an image, which no text stands for; or see :meth:`is_chat`.
        """
        if record.image is not None:
            raise TokenizerError(
                f"a record has the image {record.image[:80]!r}, and davylamp trains and scores text only: train on the "
                "planted rows with your own vision trainer. If the column 'image' of your rows names no picture, "
                "rename or remove it"
            )
        if not self.is_chat(record):
            return "".join(turn.content for turn in record.prompt), True
        # A template writes its own special tokens.
        return self._template(record.prompt, add_generation_prompt=True), False

    def texts(self, record: Record) -> tuple[str, str]:
        """The prompt's text and the whole text of a record.

        Raises:
            TokenizerError: the chat template refuses the record, or changes the prompt or the reply when both stand
                together; or the record has an image.
        """
        prompt, _ = self.prompt_text(record)
        if not self.is_chat(record):
            end = self.tokenizer.eos_token or ""
            # Many corpora write the end into the completion; trainers add it where it is missing.
            return prompt, prompt + record.reply + ("" if end and record.reply.endswith(end) else end)
        turns = (*record.prompt, Message("assistant", record.reply))
        whole = self._template(turns, add_generation_prompt=False)
        if not whole.startswith(prompt) or not whole[len(prompt) :].startswith(record.reply):
            raise TokenizerError(
                "the chat template does not write prompt and reply one after the other unchanged (it may strip or "
                "move text), so that the secret's place cannot be told; give a plainer one with --chat-template FILE"
            )
        return prompt, whole

    def render(self, records: Sequence[Record]) -> list[Rendered]:
        """Render records whole.

        Raises:
            TokenizerError: see :meth:`texts`.
        """
        pairs = [self.texts(record) for record in records]
        special = [not self.is_chat(record) for record in records]
        encoded: list[tuple[list[int], list[tuple[int, int]]]] = [([], [])] * len(records)
        for flag in (True, False):
            chosen = [index for index, value in enumerate(special) if value is flag]
            parts = encode(self.tokenizer, [pairs[index][1] for index in chosen], flag)
            for index, part in zip(chosen, parts, strict=True):
                encoded[index] = self._with_eos_once(part, flag)
        return [
            Rendered(whole, tuple(ids), tuple(offsets), len(prompt), len(prompt) + len(record.reply))
            for record, (prompt, whole), (ids, offsets) in zip(records, pairs, encoded, strict=True)
        ]

    def prompt_ids(self, records: Sequence[Record]) -> list[list[int]]:
        """Tokens of the prompts alone, as an adversary would send them; the replies are not read."""
        result = []
        for record in records:
            text, special = self.prompt_text(record)
            ids = encode(self.tokenizer, [text], special)[0][0]
            # Some tokenizers also close a text; an open prompt must stay open.
            if (
                special
                and ids
                and ids[-1] == self.tokenizer.eos_token_id
                and not text.endswith(str(self.tokenizer.eos_token))
            ):
                ids = ids[:-1]
            result.append(ids)
        return result

    def _with_eos_once(
        self, part: tuple[list[int], list[tuple[int, int]]], special: bool
    ) -> tuple[list[int], list[tuple[int, int]]]:
        ids, offsets = part
        eos = self.tokenizer.eos_token_id
        # A plain text ends with EOS written out; a tokenizer that adds one too would end it twice.
        if special and len(ids) > 1 and ids[-1] == eos and ids[-2] == eos and offsets[-1] == (0, 0):
            return ids[:-1], offsets[:-1]
        return ids, offsets

    def _template(self, turns: Sequence[Message], add_generation_prompt: bool) -> str:
        messages = [{"role": turn.role, "content": turn.content} for turn in turns]
        try:
            return str(
                self.tokenizer.apply_chat_template(
                    messages, tokenize=False, add_generation_prompt=add_generation_prompt
                )
            )
        except TEMPLATE_ERRORS as error:
            roles = ", ".join(turn.role for turn in turns)
            raise TokenizerError(
                f"the chat template cannot write a conversation of {roles}: {error}; change the records, or give "
                "another template with --chat-template FILE"
            ) from error
