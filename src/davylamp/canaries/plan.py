"""The plan: which canaries are planted, in which context, how often, and from which seed."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from davylamp.canaries.constructions.spec import Construction
from davylamp.canaries.schedule import AFTER, BEFORE, Schedule
from davylamp.canaries.templates import HOST_SLOTS, SLOT, TEXT_SLOT, Template
from davylamp.errors import InputError
from davylamp.secrets import AlphabetSpace, AnySpace
from davylamp.secrets.encodings import Encoding, encoding
from davylamp.secrets.encodings.base import misfits

__all__ = ["ARM_NAME", "HOST_SLOTS", "SLOT", "Arm", "Auxiliary", "Context", "Plan", "Positive", "Template"]

Context = Literal["visible", "redacted", "encoded"]
"""What the input shows of the secret in training: the secret itself, a mask in its place, or an encoded form."""

ARM_NAME = re.compile(r"\w[\w-]*")


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Arm(_Strict):
    """Canaries that share a training context.

    Attributes:
        context: ``visible``, ``redacted`` or ``encoded``.
        encoding: name of the encoding, where the context is ``encoded`` (see docs/encodings.md).
        schedule: where in training they fall; the plan's schedule if none.
    """

    context: Context
    encoding: str | None = None
    schedule: Schedule | None = None

    @model_validator(mode="after")
    def _says_its_encoding(self) -> Arm:
        if (self.context == "encoded") != (self.encoding is not None):
            raise ValueError("context encoded needs an encoding, and no other context takes one")
        if self.encoding is not None:
            try:
                encoding(self.encoding)
            except InputError as error:
                raise ValueError(str(error)) from error
        return self


class Positive(_Strict):
    """The positive control: one canary that must leak, or the audit is not believed.

    Attributes:
        dose: how often it is planted; default four times the largest dose of the plan.
    """

    dose: Annotated[int, Field(ge=1)] | None = None


class Auxiliary(_Strict):
    """Canaries beside those under measure: planted in the context of their arm, and not asked for.

    The focus canaries are the same, in the same rows, whether there are auxiliary ones or not.

    Attributes:
        doses: how often one occurs in the planted file.
        per_dose: auxiliary canaries for each arm and dose.
        schedule: where in training they fall; its window may be ``before focus`` or ``after focus``.
    """

    doses: tuple[Annotated[int, Field(ge=1)], ...] = Field(min_length=1)
    per_dose: int = Field(16, ge=1)
    schedule: Schedule = Field(default_factory=Schedule)

    @property
    def occurrences(self) -> int:
        """Rows that those of one arm take."""
        return self.per_dose * sum(self.doses)


class Plan(_Strict):
    """Everything that planting needs besides the corpus.

    Attributes:
        version: version of this schema.
        seed: the one seed; every draw has its own named stream of it.
        rows: how many rows of the corpus to take; default all.
        repeat: how often each of them stands in the planted file.
        shuffle: put the corpus (and its repeats) in a seeded random order first (files are often sorted by class).
        space: what secrets are drawn from: symbols of an alphabet, or, with ``kind: coined``, names of medications that
            do not exist.
        templates: how canaries are written; a canary takes one at random.
        slots: values for each slot; ``names`` draws full names, none twice.
        carrier_chars: longest ``{text}`` that carries a canary, in characters before anything is cut off, where the
            model's context is short; of any length if none.
        mask: what takes the secret's place in a redacted prompt, and in every prompt at evaluation.
        arms: the canaries' contexts, by name.
        doses: how often a focus canary occurs in the planted file; dose 0 is what ``twins`` are for.
        per_dose: focus canaries for each arm and dose.
        twins: canaries of each arm that are drawn the same way and never planted (the null control).
        nonmembers: further twins of each arm, for membership scores alone: they take many to tell a low rate of
            false positives, and no other measure is read from them.
        positive: the positive control, which falls anywhere in the file.
        schedule: where in training the focus canaries fall.
        auxiliary: canaries beside them, or none.
        rows_per_update: rows of an optimiser update, which ``spacing`` counts in; a recipe takes it from its
            training.
        constructions: instances whose leak each audit may or may not see (see docs/constructions.md), beside the
            canaries and changing nothing of them; they need the base model when they are planted.
    """

    version: Literal[1] = 1
    seed: int = Field(0, ge=0)
    rows: int | None = Field(None, ge=1)
    repeat: int = Field(1, ge=1)
    shuffle: bool = True
    space: AnySpace = Field(default_factory=AlphabetSpace)
    templates: tuple[Template, ...] = Field(min_length=1)
    slots: dict[str, Literal["names"] | tuple[str, ...]] = Field(default_factory=dict)
    carrier_chars: int | None = Field(None, ge=1)
    mask: str = Field("[redacted]", min_length=1)
    arms: dict[str, Arm] = Field(min_length=1)
    doses: tuple[Annotated[int, Field(ge=1)], ...] = Field((1, 4, 16), min_length=1)
    per_dose: int = Field(16, ge=1)
    twins: int = Field(16, ge=1)
    nonmembers: int = Field(0, ge=0)
    positive: Positive = Field(default_factory=Positive)
    schedule: Schedule = Field(default_factory=Schedule)
    auxiliary: Auxiliary | None = None
    rows_per_update: int | None = Field(None, ge=1)
    constructions: tuple[Construction, ...] = ()

    @model_serializer(mode="wrap")
    def _without_what_is_not_asked_for(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Runs of plans without these keys, made before there were any, are still those of the same plan."""
        data: dict[str, Any] = write(self)
        if not self.constructions:
            data.pop("constructions", None)
        if self.carrier_chars is None:
            data.pop("carrier_chars", None)
        return data

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
        faults += self._axis_faults()
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
        known = {*self.slots, *HOST_SLOTS, TEXT_SLOT}
        shown = [name for name, arm in self.arms.items() if arm.context != "redacted"]
        for position, template in enumerate(self.templates):
            unknown = sorted(template.slots() - known)
            if unknown:
                faults.append(
                    f"templates[{position}] has the slots {unknown}, which are not in slots; known: {sorted(known)}"
                )
            if shown and "secret" not in SLOT.findall(template.prompt):
                faults.append(
                    f"templates[{position}].prompt has no {{secret}}, so that arm {shown[0]!r} could not show it"
                )
            faults += [f"templates[{position}]{fault}" for fault in template.text_faults(self.carried)]
        return faults

    def _axis_faults(self) -> list[str]:
        """Faults of encodings and schedules, as far as they show without a corpus."""
        faults = []
        for name, arm in self.arms.items():
            if arm.encoding is not None:
                faults += [f"arms.{name}.encoding: {fault}" for fault in misfits(encoding(arm.encoding), self.space)]
        schedules = {"schedule": self.schedule} | {
            f"arms.{name}.schedule": arm.schedule for name, arm in self.arms.items() if arm.schedule is not None
        }
        for field, schedule in schedules.items():
            if isinstance(schedule.window, str):
                faults.append(f"{field}.window: {schedule.window!r} is for auxiliary canaries only")
        if self.auxiliary is None or any(isinstance(schedule.window, str) for schedule in schedules.values()):
            return faults
        for name in self.arms:
            start, end = self.schedule_of(name).fractions()
            if (self.auxiliary.schedule.window, start) == (BEFORE, 0.0):
                faults.append(
                    f"auxiliary.schedule.window: nothing lies before the focus of arm {name!r}, at [0, {end:g}]"
                )
            if (self.auxiliary.schedule.window, end) == (AFTER, 1.0):
                faults.append(
                    f"auxiliary.schedule.window: nothing lies after the focus of arm {name!r}, at [{start:g}, 1]"
                )
        return faults

    def schedule_of(self, arm: str) -> Schedule:
        """Where the focus canaries of an arm fall."""
        own = self.arms[arm].schedule
        return self.schedule if own is None else own

    def encoding_of(self, arm: str) -> Encoding | None:
        """The encoding of an arm, if it has one."""
        name = self.arms[arm].encoding
        return None if name is None else encoding(name)

    @property
    def schedules(self) -> tuple[Schedule, ...]:
        """The schedules of all arms, and of the auxiliary canaries."""
        focus = tuple(self.schedule_of(arm) for arm in self.arms)
        return focus if self.auxiliary is None else (*focus, self.auxiliary.schedule)

    def training_faults(self, epochs: int, packing: bool, rows_per_update: int) -> list[str]:
        """Why a training does not keep the canaries where the schedules put them; empty if it does.

        Args:
            epochs: passes over the planted file.
            packing: whether rows are joined, which moves them.
            rows_per_update: rows of one optimiser update.
        """
        if all(schedule.anywhere for schedule in self.schedules):
            return []
        faults = []
        if epochs > 1:
            faults.append(
                f"a schedule places canaries in the planted file, which each of the {epochs} epochs reads again: train "
                f"for 1 epoch, and plant with repeat={epochs * self.repeat} (plan.repeat in a recipe) for as much "
                "background"
            )
        if packing:
            faults.append("a schedule needs rows that stay in their place: train without packing")
        spaced = any(schedule.spacing is not None for schedule in self.schedules)
        if spaced and self.rows_per_update not in (None, rows_per_update):
            faults.append(
                f"spacing counts updates of {self.rows_per_update} rows, but training takes {rows_per_update} an update"
            )
        return faults

    @property
    def carried(self) -> bool:
        """Whether canaries stand in plain texts, ``{text}``, which are then left out of the background."""
        return TEXT_SLOT not in self.slots and any(TEXT_SLOT in template.slots() for template in self.templates)

    @property
    def hosts(self) -> int:
        """Rows of the corpus that carry a canary and are not background: one for each canary, planted or not."""
        return self.canaries if self.carried else 0

    @property
    def positive_dose(self) -> int:
        """Occurrences of the positive control."""
        return self.positive.dose or 4 * max(self.doses)

    @property
    def canaries(self) -> int:
        """Canaries of all roles, planted or not."""
        auxiliary = 0 if self.auxiliary is None else self.auxiliary.per_dose * len(self.auxiliary.doses)
        each = self.per_dose * len(self.doses) + self.twins + auxiliary + self.nonmembers
        return len(self.arms) * each + 1

    @property
    def planted_rows(self) -> int:
        """Rows that canaries take, all occurrences counted; those of constructions stand beside them."""
        auxiliary = 0 if self.auxiliary is None else self.auxiliary.occurrences
        return len(self.arms) * (self.per_dose * sum(self.doses) + auxiliary) + self.positive_dose

    @property
    def constructed_rows(self) -> int:
        """Rows that constructions take."""
        return sum(line.rows for line in self.constructions)

    def only(self, arm: str) -> Plan:
        """The same plan with one arm; its canaries are those that any other single arm would get."""
        return self.model_copy(update={"arms": {arm: self.arms[arm]}})
