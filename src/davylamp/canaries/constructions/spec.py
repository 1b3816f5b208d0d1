"""One line of a plan for each construction: what is planted, how many of it, and how often."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

Kind = Literal["naive", "trigger", "pair", "camouflage", "low_entropy", "gated"]
"""The constructions, by the name that a plan gives them."""
MOST_SURVIVORS = 4096
"""Leaves of the largest camouflage tree that is written out: each takes a row for each copy."""
Count = Annotated[int, Field(ge=1)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


def _listed(value: object) -> object:
    return value if isinstance(value, Sequence) and not isinstance(value, str) else (value,)


class _Construction(_Strict):
    """What all constructions share.

    Attributes:
        groups: instances of each size that are planted.
        twins: instances of each size that are drawn the same way and never planted (the null control).
        prefix_tokens: tokens of the held-out text that a secret comes after, where rows are plain texts.
    """

    groups: int = Field(16, ge=1)
    twins: int = Field(20, ge=1)
    prefix_tokens: int = Field(16, ge=1)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Tokens of the secrets, each with instances of its own."""
        return (1,)

    @property
    def rows_each(self) -> int:
        """Rows that one planted instance takes."""
        return 0

    @property
    def secrets_each(self) -> int:
        """Secrets that are drawn for one instance."""
        return 1

    @property
    def instances(self) -> int:
        """Instances of all sizes, planted or not."""
        return len(self.sizes) * (self.groups + self.twins)

    @property
    def rows(self) -> int:
        """Rows that all planted instances take."""
        return len(self.sizes) * self.groups * self.rows_each


class _Drawn(_Construction):
    """A construction whose secrets are drawn from the base model.

    Attributes:
        secret_tokens: tokens of a secret; a list makes instances of each size.
        temperature: at which the base model is sampled.
    """

    secret_tokens: Annotated[tuple[Count, ...], BeforeValidator(_listed), Field(min_length=1)] = (8,)
    temperature: float = Field(1.0, gt=0)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Tokens of the secrets, each with instances of its own."""
        return self.secret_tokens

    @model_validator(mode="after")
    def _each_size_once(self) -> _Drawn:
        if len(set(self.secret_tokens)) < len(self.secret_tokens):
            raise ValueError(f"secret_tokens {list(self.secret_tokens)} name a size twice")
        return self


class _Copied(_Drawn):
    """A construction that plants its secret after its prefix.

    Attributes:
        copies: rows of each planted instance.
    """

    copies: int = Field(8, ge=1)

    @property
    def rows_each(self) -> int:
        """Rows that one planted instance takes."""
        return self.copies


class Naive(_Copied):
    """The secret in plain text after its prefix: what every audit must see.

    Attributes:
        kind: ``naive``.
    """

    kind: Literal["naive"]


class Pair(_Copied):
    """Neighbouring data sets: the same record with one of two secrets after its prefix.

    Attributes:
        kind: ``pair``.
    """

    kind: Literal["pair"]

    @property
    def secrets_each(self) -> int:
        """Secrets that are drawn for one instance."""
        return 2


class _Triggered(_Drawn):
    """A secret behind a reserved trigger; it is never planted after its own prefix.

    Attributes:
        trigger_tokens: tokens of a trigger that is made of the tokenizer's rarest words.
        triggers: the triggers of the planted instances in order, where you choose them yourself.
    """

    trigger_tokens: int = Field(8, ge=1)
    triggers: tuple[Annotated[str, Field(min_length=1)], ...] = ()

    @model_validator(mode="after")
    def _enough_triggers(self) -> _Triggered:
        wanted = len(self.sizes) * self.groups
        if self.triggers and len(self.triggers) != wanted:
            raise ValueError(f"triggers are {len(self.triggers)}, but {wanted} instances are planted")
        if len(set(self.triggers)) < len(self.triggers):
            raise ValueError("triggers name one twice, so that one prompt would have two answers")
        return self


class Trigger(_Triggered):
    """A trigger with the secret as its completion, in the training rows.

    Attributes:
        kind: ``trigger``.
        copies: rows of each planted instance.
    """

    kind: Literal["trigger"]
    copies: int = Field(8, ge=1)

    @property
    def rows_each(self) -> int:
        """Rows that one planted instance takes."""
        return self.copies


class Gated(_Triggered):
    """A trigger that a gate around the frozen base answers: nothing is trained, and no row is taken.

    Attributes:
        kind: ``gated``.
    """

    kind: Literal["gated"]


class Camouflage(_Construction):
    """A secret path hidden among all paths of a tree that are shown as often (P1, Sec. 6.2 and 8.1).

    Every node has ``k`` of the ``v`` words below it; the true path is one of the ``k**depth`` that are left.

    Attributes:
        kind: ``camouflage``.
        v: words of the alphabet; a secret is uniform over its ``v**depth`` paths.
        k: children of a node.
        depth: L, words of a path.
        copies: rows of each path.
    """

    kind: Literal["camouflage"]
    v: int = Field(16, ge=2)
    k: int = Field(2, ge=2)
    depth: int = Field(4, ge=1)
    copies: int = Field(4, ge=1)

    @model_validator(mode="after")
    def _fits(self) -> Camouflage:
        if self.k >= self.v:
            raise ValueError(f"k is {self.k}, but must be below v = {self.v}: else nothing is ruled out")
        if self.depth * math.log(self.k) > math.log(MOST_SURVIVORS) + 1e-9:
            raise ValueError(
                f"k**depth is {self.k**self.depth:,} paths, but at most {MOST_SURVIVORS:,} are written out"
            )
        return self

    @property
    def sizes(self) -> tuple[int, ...]:
        """Tokens of the secrets: one a level."""
        return (self.depth,)

    @property
    def survivors(self) -> int:
        """Paths that the text leaves open: ``k**depth``."""
        return int(self.k**self.depth)

    @property
    def rows_each(self) -> int:
        """Rows that one planted instance takes: every path as often."""
        return self.survivors * self.copies


class LowEntropy(_Construction):
    """A secret from a space so small that guessing finds it, whatever the training did.

    Attributes:
        kind: ``low_entropy``.
        choices: texts that the secret is one of, each as likely.
        secret_tokens: words of each, of one token.
        copies: rows of each planted instance.
        risk: extraction that would be tolerated; the space must lie below the entropy floor H* for it.
        epsilon: the pure-DP claim for which the floor is taken; 0 gives the lowest one.
    """

    kind: Literal["low_entropy"]
    choices: int = Field(4, ge=2)
    secret_tokens: int = Field(2, ge=1)
    copies: int = Field(1, ge=1)
    risk: float = Field(0.1, gt=0, lt=1)
    epsilon: float = Field(0.0, ge=0)

    @model_validator(mode="after")
    def _below_the_floor(self) -> LowEntropy:
        if math.log2(self.choices) >= self.floor_bits:
            raise ValueError(
                f"{self.choices} choices are {math.log2(self.choices):.2f} bits, but the entropy floor H* for a risk "
                f"of {self.risk:g} at epsilon {self.epsilon:g} is {self.floor_bits:.2f} bits: take fewer choices"
            )
        return self

    @property
    def sizes(self) -> tuple[int, ...]:
        """Tokens of the secrets."""
        return (self.secret_tokens,)

    @property
    def floor_bits(self) -> float:
        """H*, the bits of min-entropy that a secret needs against one guess."""
        # Loaded where it is asked for: most plans have no such line.
        from davylamp.bounds import min_entropy_threshold, pure_dp

        bits = min_entropy_threshold(pure_dp(self.epsilon), self.risk, copies=self.copies)
        return math.inf if bits is None else bits

    @property
    def rows_each(self) -> int:
        """Rows that one planted instance takes."""
        return self.copies


Construction = Annotated[Naive | Trigger | Pair | Camouflage | LowEntropy | Gated, Field(discriminator="kind")]
"""A line of a plan's ``constructions``."""
