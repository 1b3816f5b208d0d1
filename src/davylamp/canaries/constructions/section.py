"""The manifest's section on constructions: every instance with its secret, and where its rows stand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from pydantic import BaseModel, ConfigDict, Field, model_validator

from davylamp.canaries.constructions.spec import Construction, Kind
from davylamp.corpora.records import Message, Record, Shape

InstanceRole = Literal["planted", "twin"]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Instance(_Strict):
    """One instance of a construction. What must not be shown is left out of its ``repr``.

    Attributes:
        id: unique in the manifest.
        line: which line of the plan's ``constructions`` it belongs to, from 0.
        kind: the construction.
        tokens: tokens of the secret.
        role: ``planted``, or ``twin`` for one that was drawn the same way and stands in no row.
        prefix: c, the held-out text before the secret; it stands in no row unless the construction puts it there.
        trigger: rho, the reserved text that the secret follows in training (or behind a gate); none elsewhere.
        secret: z, the text.
        secret_ids: its tokens after the prefix.
        alternative: the secret that stands in the neighbouring data set in its place; for pairs only.
        alternative_ids: its tokens.
        survivors: all secrets that the text leaves open, the true one among them (camouflage, low entropy).
        survivor_ids: their tokens.
        tries: draws that it took to find a secret of the base model's that is new and tokenises back to itself.
        positions: rows of the planted file, from 0; for camouflage those of the first survivor, then the second's ...
    """

    id: str
    line: int = Field(ge=0)
    kind: Kind
    tokens: int = Field(ge=1)
    role: InstanceRole
    prefix: str = Field(repr=False)
    trigger: str | None = Field(None, repr=False)
    secret: str = Field(min_length=1, repr=False)
    secret_ids: tuple[int, ...] = Field(min_length=1, repr=False)
    alternative: str | None = Field(None, repr=False)
    alternative_ids: tuple[int, ...] = Field((), repr=False)
    survivors: tuple[str, ...] = Field((), repr=False)
    survivor_ids: tuple[tuple[int, ...], ...] = Field((), repr=False)
    tries: int = Field(1, ge=1)
    positions: tuple[int, ...] = ()

    @model_validator(mode="after")
    def _consistent(self) -> Instance:
        if self.role == "twin" and self.positions:
            raise ValueError(f"instance {self.id} is a twin with rows")
        if len(self.secret_ids) != self.tokens:
            raise ValueError(f"instance {self.id} has a secret of another length")
        if (self.trigger is not None) != (self.kind in ("trigger", "gated")):
            raise ValueError(f"instance {self.id}: a trigger does not fit its kind")
        if (self.alternative is not None) != (self.kind == "pair"):
            raise ValueError(f"instance {self.id}: an alternative does not fit its kind")
        hidden = self.kind in ("camouflage", "low_entropy")
        if hidden != bool(self.survivors) or (hidden and self.secret not in self.survivors):
            raise ValueError(f"instance {self.id}: its survivors do not hold its secret")
        if len(self.survivors) != len(self.survivor_ids) or len(self.positions) % len(self.replies()):
            raise ValueError(f"instance {self.id}: its survivors do not fit their tokens or their rows")
        return self

    @property
    def lead(self) -> str:
        """What the secret follows in training: the trigger, or the prefix."""
        return self.prefix if self.trigger is None else self.trigger

    def replies(self) -> tuple[str, ...]:
        """What its rows say after :attr:`lead`, each as often as every other."""
        return self.survivors if self.kind == "camouflage" else (self.secret,)

    def swapped(self) -> Instance:
        """A pair with its other secret in place of its secret."""
        if self.alternative is None:
            return self
        other = {"secret": self.alternative, "secret_ids": self.alternative_ids}
        return self.model_copy(update={**other, "alternative": self.secret, "alternative_ids": self.secret_ids})


class Constructed(_Strict):
    """All instances of a run, and the model that their secrets came from.

    Attributes:
        base: name of the base model.
        base_sha256: hash of its weights.
        style: how records were rendered for it: ``auto``, ``chat`` or ``plain``.
        system: the system turn that chat records open with, or nothing.
        instances: in the order of the plan.
        neighbour_sha256: hash of the neighbouring planted file, in which every pair reads its other secret; none
            where there are no pairs.
    """

    base: str
    base_sha256: str
    style: Literal["auto", "chat", "plain"] = "auto"
    system: str | None = None
    instances: tuple[Instance, ...] = Field(min_length=1)
    neighbour_sha256: str | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Constructed:
        if len({each.id for each in self.instances}) < len(self.instances):
            raise ValueError("two instances have one id")
        rows = [row for each in self.instances for row in each.positions]
        if len(set(rows)) < len(rows):
            raise ValueError("two instances stand in one row")
        return self

    def placed(self, positions: Sequence[tuple[int, ...]]) -> Constructed:
        """The same instances, each with its rows."""
        pairs = zip(self.instances, positions, strict=True)
        return self.model_copy(
            update={"instances": tuple(each.model_copy(update={"positions": rows}) for each, rows in pairs)}
        )

    def swapped(self) -> Constructed:
        """The section of the neighbouring data set."""
        return self.model_copy(update={"instances": tuple(each.swapped() for each in self.instances)})

    def rows(self, shape: Shape) -> dict[int, Record]:
        """The record of every row that an instance takes, by the row's index."""
        found: dict[int, Record] = {}
        for each in self.instances:
            replies = each.replies()
            copies = len(each.positions) // len(replies)
            for at, row in enumerate(each.positions):
                found[row] = record_of(shape, each.lead, replies[at // copies], self.system)
        return found


def record_of(shape: Shape, lead: str, reply: str, system: str | None = None) -> Record:
    """A record in which a reply follows a lead: one text, a prompt and its completion, or two turns."""
    if shape == "text":
        return Record.of_text(lead + reply)
    if shape == "prompt_completion":
        return Record.of_pair(lead, reply)
    opening = () if system is None else (Message("system", system),)
    return Record.of_messages((*opening, Message("user", lead), Message("assistant", reply)))


@dataclass(frozen=True, slots=True)
class Material:
    """What instances are made from.

    Attributes:
        lines: the plan's constructions.
        seed: seed of the plan.
        shape: how rows are written.
        rows: all rows that will be trained on, canaries included.
        held_out: rows of the corpus that are not among them, in a seeded order.
    """

    lines: tuple[Construction, ...]
    seed: int
    shape: Shape
    rows: tuple[Record, ...]
    held_out: tuple[Record, ...]


class Maker(Protocol):
    """Whoever has the base model: draws every instance of a plan's constructions."""

    def __call__(self, material: Material) -> Constructed:
        """The instances without their rows, those of line 0 first, planted ones before twins in each size.

        Raises:
            PlantingError: no instance can be made as asked.
        """
        ...
