"""Templates: how a canary is written, with slots in braces."""

from __future__ import annotations

import re
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, SerializerFunctionWrapHandler, model_serializer, model_validator

SLOT = re.compile(r"\{(\w+)\}")
HOST_SLOTS = ("prompt", "completion")
"""Slots that are filled from a background row that the canary takes as its host."""
TEXT_SLOT = "text"
"""The slot of a plain text's carrier: the text of a row that is left out of the background."""


class Template(BaseModel):
    """How a canary is written, with slots in braces.

    ``{secret}`` is the secret; ``{prompt}`` and ``{completion}`` are the texts of a background row; ``{text}`` is a
    plain text that is planted nowhere else (see :mod:`davylamp.canaries.hosting`); every other slot is filled from
    the plan's ``slots``.

    Attributes:
        prompt: the input; the mask takes the secret's place where the context is redacted.
        completion: the reply that is trained on; it always holds the secret.
        system: a system turn before the prompt, for chat records.
        cut: endings of ``{text}``, each with what stands in its place; the longest that fits is cut off. A row that
            has none of them carries no canary. Nothing is cut off where none is given.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    prompt: str = ""
    completion: str
    system: str | None = None
    cut: dict[str, str] = Field(default_factory=dict)

    @model_serializer(mode="wrap")
    def _without_what_is_not_cut(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Templates that cut nothing are written as before there were any that do."""
        data: dict[str, Any] = write(self)
        if not self.cut:
            data.pop("cut", None)
        return data

    @model_validator(mode="after")
    def _keeps_its_secret(self) -> Template:
        if "secret" not in SLOT.findall(self.completion):
            raise ValueError("completion loses its secret: it must hold {secret}")
        if "secret" in SLOT.findall(self.system or ""):
            raise ValueError("system must not hold {secret}: contexts are shown and masked in the prompt only")
        if self.cut and TEXT_SLOT not in SLOT.findall(self.prompt):
            raise ValueError("cut cuts off endings of {text}, which the prompt does not hold")
        if "" in self.cut:
            raise ValueError("cut holds an empty ending, which every text has: name what is cut off")
        return self

    def slots(self) -> set[str]:
        """Names of the slots, without the secret."""
        found: set[str] = set()
        for text in (self.prompt, self.completion, self.system or ""):
            found |= set(SLOT.findall(text))
        return found - {"secret"}

    def trimmed(self, text: str) -> str | None:
        """A host's text with its ending replaced as :attr:`cut` says; nothing where it has none of the endings."""
        if not self.cut:
            return text
        ending = max((end for end in self.cut if text.endswith(end)), key=len, default=None)
        return None if ending is None else text[: -len(ending)] + self.cut[ending]

    def text_faults(self, carried: bool) -> list[str]:
        """What is wrong with how ``{text}`` is used, to be put behind the template's name.

        Args:
            carried: whether the plan's canaries stand in plain texts.
        """
        if not carried:
            return [".cut cuts off endings of a host, but slots.text says what {text} is"] if self.cut else []
        faults = []
        elsewhere = SLOT.findall(self.completion + (self.system or ""))
        if SLOT.findall(self.prompt).count(TEXT_SLOT) != 1 or TEXT_SLOT in elsewhere:
            faults.append(": {text} must stand once in the prompt, of every template or of none, and nowhere else")
        if found := sorted(self.slots() & set(HOST_SLOTS)):
            faults.append(f": {{text}} is the slot of plain texts, which have no {found}")
        return faults
