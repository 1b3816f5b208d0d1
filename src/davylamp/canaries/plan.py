"""The plan: which canaries are planted, in which context, how often, and from which seed."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from davylamp.secrets import AlphabetSpace

Context = Literal["visible", "redacted"]
"""What the input shows of the secret in training: the secret itself, or a mask in its place."""

SLOT = re.compile(r"\{(\w+)\}")
ARM_NAME = re.compile(r"\w[\w-]*")
HOST_SLOTS = ("prompt", "completion")
"""Slots that are filled from a background row that the canary takes as its host."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Template(_Strict):
    """How a canary is written, with slots in braces.

    ``{secret}`` is the secret; ``{prompt}`` and ``{completion}`` are the texts of a background row; every
    other slot is filled from the plan's ``slots``.

    Attributes:
        prompt: the input; the mask takes the secret's place where the context is redacted.
        completion: the reply that is trained on; it always holds the secret.
        system: a system turn before the prompt, for chat records.
    """

    prompt: str = ""
    completion: str
    system: str | None = None

    @model_validator(mode="after")
    def _keeps_its_secret(self) -> Template:
        if "secret" not in SLOT.findall(self.completion):
            raise ValueError("completion loses its secret: it must hold {secret}")
        if "secret" in SLOT.findall(self.system or ""):
            raise ValueError("system must not hold {secret}: contexts are shown and masked in the prompt only")
        return self

    def slots(self) -> set[str]:
        """Names of the slots, without the secret."""
        found: set[str] = set()
        for text in (self.prompt, self.completion, self.system or ""):
            found |= set(SLOT.findall(text))
        return found - {"secret"}


class Arm(_Strict):
    """Canaries that share a training context.

    Attributes:
        context: ``visible`` or ``redacted``.
    """

    context: Context


class Positive(_Strict):
    """The positive control: one canary that must leak, or the audit is not believed.

    Attributes:
        dose: how often it is planted; default four times the largest dose of the plan.
    """

    dose: Annotated[int, Field(ge=1)] | None = None


class Plan(_Strict):
    """Everything that planting needs besides the corpus.

    Attributes:
        version: version of this schema.
        seed: the one seed; every draw has its own named stream of it.
        rows: how many rows of the corpus to take; default all.
        shuffle: put the corpus in a seeded random order first (files are often sorted by class).
        space: what secrets are drawn from.
        templates: how canaries are written; a canary takes one at random.
        slots: values for each slot; ``names`` draws full names, none twice.
        mask: what takes the secret's place in a redacted prompt, and in every prompt at evaluation.
        arms: the canaries' contexts, by name.
        doses: how often a focus canary occurs in the planted file.
        per_dose: focus canaries for each arm and dose.
        twins: canaries of each arm that are drawn the same way and never planted (the null control).
        positive: the positive control.
    """

    version: Literal[1] = 1
    seed: int = Field(0, ge=0)
    rows: int | None = Field(None, ge=1)
    shuffle: bool = True
    space: AlphabetSpace = Field(default_factory=AlphabetSpace)
    templates: tuple[Template, ...] = Field(min_length=1)
    slots: dict[str, Literal["names"] | tuple[str, ...]] = Field(default_factory=dict)
    mask: str = Field("[redacted]", min_length=1)
    arms: dict[str, Arm] = Field(min_length=1)
    doses: tuple[Annotated[int, Field(ge=1)], ...] = Field((1, 4, 16), min_length=1)
    per_dose: int = Field(16, ge=1)
    twins: int = Field(16, ge=1)
    positive: Positive = Field(default_factory=Positive)

    @model_validator(mode="after")
    def _consistent(self) -> Plan:
        faults = self._template_faults()
        if len(set(self.doses)) != len(self.doses):
            faults.append(f"doses {list(self.doses)} name a dose twice")
        faults += [
            f"arms: {name!r} names a folder, so that it may hold letters, digits, '_' and '-' only"
            for name in self.arms
            if not ARM_NAME.fullmatch(name)
        ]
        if "control" in self.arms:
            faults.append("arms: the name 'control' is taken by the positive control")
        if self.mask in self.space:
            faults.append("mask is itself a possible secret")
        for name, values in self.slots.items():
            if name in (*HOST_SLOTS, "secret"):
                faults.append(f"slots.{name}: {{{name}}} is filled by davylamp; give the slot another name")
            if not re.fullmatch(r"\w+", name):
                faults.append(f"slots: {name!r} can stand in no template; names hold letters, digits and '_' only")
            if not values:
                faults.append(f"slots.{name} is empty")
        if faults:
            raise ValueError("; ".join(faults))
        return self

    def _template_faults(self) -> list[str]:
        faults = []
        known = {*self.slots, *HOST_SLOTS}
        visible = [name for name, arm in self.arms.items() if arm.context == "visible"]
        for position, template in enumerate(self.templates):
            unknown = sorted(template.slots() - known)
            if unknown:
                faults.append(
                    f"templates[{position}] has the slots {unknown}, which are not in slots; known: {sorted(known)}"
                )
            if visible and "secret" not in SLOT.findall(template.prompt):
                faults.append(
                    f"templates[{position}].prompt has no {{secret}}, so that arm {visible[0]!r} could not show it"
                )
        return faults

    @property
    def positive_dose(self) -> int:
        """Occurrences of the positive control."""
        return self.positive.dose or 4 * max(self.doses)

    @property
    def planted_rows(self) -> int:
        """Rows that canaries take, all occurrences counted."""
        return len(self.arms) * self.per_dose * sum(self.doses) + self.positive_dose

    def only(self, arm: str) -> Plan:
        """The same plan with one arm; its canaries are those that any other single arm would get."""
        return self.model_copy(update={"arms": {arm: self.arms[arm]}})
