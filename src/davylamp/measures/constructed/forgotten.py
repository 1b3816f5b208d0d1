"""What unlearning did to constructions, as its result and the matrix hold it."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from davylamp.canaries.constructions.spec import Kind
from davylamp.measures.constructed.model import Rate


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Shift(_Strict):
    """A rate before unlearning and after it, of the same instances."""

    before: Rate
    after: Rate


class ForgottenCell(_Strict):
    """The planted instances of one line and size.

    Attributes:
        line: of the plan, from 0.
        kind: the construction.
        tokens: of a secret.
        c: greedy extraction from the instances' own prefixes: what the verifier reads.
        trigger: the same from their triggers; none without a trigger.
        informed: recovery by the adversary who knows the construction.
    """

    line: int
    kind: Kind
    tokens: int
    c: Shift
    trigger: Shift | None = None
    informed: Shift

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.kind.replace('_', ' ')}, {self.tokens} token{'s' if self.tokens > 1 else ''}"
