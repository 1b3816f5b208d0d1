"""The values that a corpus is made of."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

Shape = Literal["messages", "prompt_completion", "text"]
"""How a row is written: chat messages, a prompt and its completion, or one text."""


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation.

    Attributes:
        role: ``system``, ``user`` or ``assistant``.
        content: the turn's text.
    """

    role: str
    content: str


@dataclass(frozen=True, slots=True)
class Record:
    """One training example.

    Attributes:
        shape: how the row is written on disk.
        prompt: the turns before the reply; empty for ``text``; one user turn for ``prompt_completion``.
        reply: what the model is trained to say (the last assistant turn, the completion, or the whole text).
        image: path or name of a picture that belongs to the prompt, as the source writes it (relative to the source).
            It is carried along for a trainer that reads pictures; davylamp's own trains and scores text only.
    """

    shape: Shape
    prompt: tuple[Message, ...]
    reply: str
    image: str | None = None

    @classmethod
    def of_text(cls, text: str, image: str | None = None) -> Record:
        """A record of one text, all of which is trained on."""
        return cls("text", (), text, image)

    @classmethod
    def of_pair(cls, prompt: str, completion: str, image: str | None = None) -> Record:
        """A record of a prompt and its completion."""
        return cls("prompt_completion", (Message("user", prompt),), completion, image)

    @classmethod
    def of_messages(cls, messages: tuple[Message, ...], image: str | None = None) -> Record:
        """A record of chat messages, the last of which is the assistant's."""
        return cls("messages", messages[:-1], messages[-1].content, image)

    def row(self) -> dict[str, Any]:
        """The row as it is written to a JSONL file, in the record's own shape, with the image's name last."""
        seen = {} if self.image is None else {"image": self.image}
        if self.shape == "text":
            return {"text": self.reply, **seen}
        if self.shape == "prompt_completion":
            return {"prompt": self.prompt[0].content, "completion": self.reply, **seen}
        turns = [*self.prompt, Message("assistant", self.reply)]
        return {"messages": [{"role": turn.role, "content": turn.content} for turn in turns], **seen}

    def line(self) -> str:
        """The row as one line of JSON, without the line end."""
        return json.dumps(self.row(), ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class Corpus:
    """Records in order, all of one shape, and where they came from.

    Attributes:
        records: the rows, in the order of the source.
        source: a name for people: a path, a hub id, or a generator with its arguments.
        sha256: hash of the bytes (or, for a generator, of the lines) that the records came from.
        left_out: columns or keys of the source that are not trained on and were left out.
        groups: whom each row is about, such as a patient, where the source says it; as many as records, or none.
    """

    records: tuple[Record, ...]
    source: str
    sha256: str
    left_out: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.records)

    def __iter__(self) -> Iterator[Record]:
        return iter(self.records)

    @property
    def shape(self) -> Shape:
        """The shape that all records share."""
        return self.records[0].shape
