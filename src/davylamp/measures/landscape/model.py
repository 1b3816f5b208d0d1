"""The schema of ``landscape.json``: a value of every canary and record, so that comparisons have intervals."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from davylamp.runs import files

FILE = "landscape.json"
"""The result, in the run folder."""
_OTHERS = "landscape-"
Role = Literal["focus", "twin", "positive"]
Nats = Annotated[float, Field(ge=0, le=1e9)]
"""Of a text; so many that no model reads them are no reading, and would overflow in sums."""
Tokens = Annotated[int, Field(ge=1)]


def named_file(name: str) -> str:
    """The file of a landscape that is not of the run's own model, such as ``landscape-none.json``.

    Args:
        name: what was done to that model.
    """
    plain = re.sub(r"[^A-Za-z0-9_.+-]+", "-", name)
    # Names that are written alike stay apart.
    mark = "" if plain == name else f"-{files.sha256_bytes(name.encode('utf-8'))[:6]}"
    return f"{_OTHERS}{plain}{mark}.json"


def is_file_of(path: Path) -> bool:
    """Whether a file is one in a run folder that :func:`named_file` or :data:`FILE` names."""
    return path.name == FILE or (path.name.startswith(_OTHERS) and path.suffix == ".json")


def is_one(path: Path) -> bool:
    """Whether a file looks like a landscape, also like one of another version."""
    try:
        return {"intervention", "held_out", "medication"} <= files.read_json(path).keys()
    except (OSError, ValueError):
        return False


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Leak(_Strict):
    """What a model says of one canary's secret.

    Attributes:
        id: the canary.
        role: ``focus`` (compared), ``twin`` (planted nowhere: what a model says that never saw it) or ``positive``.
        dose: occurrences in the planted file; 0 for twins.
        verbatim: minus the log-probability in nats of the tokens that cover the secret, after the record cut before it.
        tokens: how many tokens those are.
        semantic: the same in nats, after a question.
        semantic_tokens: how many tokens cover it there.
        exposure: in bits, after the record cut before the secret.
        rank: mid-rank of the secret among the candidates, from 1.
        candidates: the secret itself and the alternatives that it is ranked among.
        greedy: whether greedy decoding after the cut record says exactly the secret's tokens.
    """

    id: str
    role: Role
    dose: int = Field(ge=0)
    verbatim: Nats
    tokens: Tokens
    semantic: Nats
    semantic_tokens: Tokens
    exposure: float = Field(ge=0)
    rank: float = Field(ge=1)
    candidates: int = Field(ge=2)
    greedy: bool

    @model_validator(mode="after")
    def _consistent(self) -> Leak:
        if (self.role == "twin") != (self.dose == 0):
            raise ValueError(f"canary {self.id} is a {self.role} of dose {self.dose}")
        if self.rank > self.candidates:
            raise ValueError(f"canary {self.id} has rank {self.rank:g} of {self.candidates}")
        if not math.isclose(self.exposure, math.log2(self.candidates / self.rank), abs_tol=1e-6):
            raise ValueError(f"canary {self.id} has exposure {self.exposure:g} at rank {self.rank:g}")
        return self


class Text(_Strict):
    """A text that was predicted, or the part of it that counts.

    Attributes:
        tokens: predicted tokens.
        nats: minus their log-probability in nats.
    """

    tokens: Tokens
    nats: Nats


class Source(_Strict):
    """A file that records came from.

    Attributes:
        name: as the user named it.
        sha256: hash of its bytes.
    """

    name: str
    sha256: str


class Base(_Strict):
    """The model that training began from.

    Attributes:
        name: as the user named it.
        weights_sha256: hash of its weights.
    """

    name: str
    weights_sha256: str


class Landscape(_Strict):
    """Everything that was read of one model, as ``landscape.json`` holds it.

    Attributes:
        schema_version: version of this schema.
        davylamp_version: version that wrote it.
        planted_sha256: hash of the planted rows, before any intervention.
        release: name of the model.
        weights_sha256: hash of its weights.
        base: what training began from; nothing where nobody knows.
        intervention: short name of what was done to protect the secrets, such as ``direct`` (nothing) or
            ``scrub+goldfish``; ``none`` for a model that was not trained.
        steps: what was done, in order, with its settings in words.
        seed: seed of the plan.
        question: what is asked before the secret is read off, as a template.
        item: the pattern that finds the last item of a test record.
        held_out_source: where the held-out records came from.
        test_source: where the test records came from.
        canaries: every canary that is asked for.
        held_out: every held-out record, all its tokens but the first.
        medication: the last item of every test record that has one.
        notes: what a reader must know, a sentence each.
    """

    schema_version: Literal[1] = 1
    davylamp_version: str
    planted_sha256: str
    release: str
    weights_sha256: str
    base: Base | None
    intervention: str = Field(min_length=1)
    steps: tuple[str, ...] = ()
    seed: int
    question: str
    item: str
    held_out_source: Source
    test_source: Source
    canaries: tuple[Leak, ...] = Field(min_length=1)
    held_out: tuple[Text, ...] = Field(min_length=1)
    medication: tuple[Text, ...] = Field(min_length=1)
    notes: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _names_are_distinct(self) -> Landscape:
        if len({canary.id for canary in self.canaries}) < len(self.canaries):
            raise ValueError("two canaries have one id")
        return self

    def save(self, path: Path) -> None:
        """Write it.

        Raises:
            StorageError: it cannot be written.
        """
        files.write_json(path, self.model_dump(mode="json"))

    @classmethod
    def load(cls, path: Path) -> Landscape:
        """Read it.

        Raises:
            RunFolderError: it is missing, damaged, or of another schema.
        """
        return files.read_result(cls, path, "landscape", "`davylamp landscape` first", "`davylamp landscape`")
