"""How a lead and a reply become tokens, and where one ends and the other begins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from davylamp.canaries.constructions.section import record_of
from davylamp.corpora.records import Record, Shape
from davylamp.errors import TokenizerError
from davylamp.rendering.render import Renderer, Style
from davylamp.rendering.tokenizer import TokenizerView


@dataclass(frozen=True, slots=True)
class Split:
    """A lead and its reply as tokens of one rendered record.

    Attributes:
        lead: tokens before the reply.
        reply: tokens that cover it.
        merged: whether a token joins the reply with its neighbour.
    """

    lead: tuple[int, ...]
    reply: tuple[int, ...]
    merged: bool


class Asker:
    """Renders what instances say, as training does."""

    def __init__(
        self, tokenizer: TokenizerView, shape: Shape, style: Style = "auto", system: str | None = None
    ) -> None:
        """Say how rows are written.

        Args:
            tokenizer: a fast tokenizer.
            shape: of the planted rows.
            style: how records are rendered; texts are always plain.
            system: the system turn that chat records open with.
        """
        self.tokenizer = tokenizer
        self.shape: Shape = shape
        self.renderer = Renderer(tokenizer, "plain" if shape == "text" else style)
        self._system = system

    @property
    def is_chat(self) -> bool:
        """Whether the chat template writes the rows."""
        return self.renderer.is_chat(self.record("x", "x"))

    def record(self, lead: str, reply: str) -> Record:
        """The row in which a reply follows a lead."""
        return record_of(self.shape, lead, reply, self._system)

    def prompts(self, leads: Sequence[str]) -> list[tuple[int, ...]]:
        """Tokens of the leads alone, as an adversary would send them."""
        # A text is asked for by its beginning, which the plain style writes as a prompt.
        records = [Record.of_pair(lead, "") if self.shape == "text" else self.record(lead, "") for lead in leads]
        return [tuple(ids) for ids in self.renderer.prompt_ids(records)]

    def split(self, lead: str, reply: str) -> Split | None:
        """Both as tokens of the whole record; nothing where the record cannot be rendered."""
        try:
            rendered = self.renderer.render([self.record(lead, reply)])[0]
        except TokenizerError:
            return None
        start = len(lead) if self.shape == "text" else 0
        first, last = rendered.span(start, start + len(reply))
        begin, end = rendered.reply_start + start, rendered.reply_start + start + len(reply)
        merged = rendered.offsets[first][0] < begin or rendered.offsets[last - 1][1] > end
        return Split(rendered.ids[:first], rendered.ids[first:last], merged)

    def says(self, prompt: Sequence[int], ids: Sequence[int]) -> str:
        """What tokens add to the text of a prompt; some tokenizers drop the space before a text's first word."""
        before, whole = (
            str(self.tokenizer.decode(list(each), clean_up_tokenization_spaces=False))
            for each in (prompt, [*prompt, *ids])
        )
        if whole.startswith(before):
            return whole[len(before) :]
        return str(self.tokenizer.decode(list(ids), clean_up_tokenization_spaces=False))


def text_of(record: Record) -> str:
    """Everything that a row says, in one text."""
    return "\n".join([*(turn.content for turn in record.prompt), record.reply])
