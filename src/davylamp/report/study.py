"""What a study found, as data: the schema of ``study.json``."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

Word = Literal["held", "held in part", "not held", "too few pairs"]
"""``too few pairs`` stands where nothing was found, and nothing could be ruled out."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class SeedPart(_Strict):
    """One seed's share of a comparison.

    Attributes:
        seed: the seed.
        n: pairs.
        rises: pairs whose difference is above zero.
        falls: pairs whose difference is below zero.
        median: median difference.
    """

    seed: int
    n: int
    rises: int
    falls: int
    median: float


class Compared(_Strict):
    """A comparison of two readings of the same canaries.

    Attributes:
        name: in words.
        statement: the result in one sentence.
        unit: of the differences.
        n: pairs, over all seeds.
        rises: pairs whose difference is above zero.
        falls: pairs whose difference is below zero.
        ties: pairs that do not differ.
        median: median difference.
        low: lower end of its bootstrap interval.
        high: upper end of its bootstrap interval.
        exact_low: lower end of the interval that inverts the sign test; nothing where there are too few pairs.
        exact_high: upper end of it.
        p: of the two-sided sign test.
        seeds: the same by seed.
        first_median: median of what is compared.
        second_median: median of what it is compared with.
        sides: what differs between both, in words: what it is compared with, and what is compared.
        pairs: for each canary its seed, the value of what it is compared with and that of what is compared; sorted,
            so that no place in it tells which canary it is.
    """

    name: str
    statement: str
    unit: str
    n: int
    rises: int
    falls: int
    ties: int
    median: float
    low: float
    high: float
    exact_low: float | None
    exact_high: float | None
    p: float
    seeds: tuple[SeedPart, ...]
    first_median: float
    second_median: float
    sides: tuple[str, str] | None = None
    pairs: tuple[tuple[int, float, float], ...] = ()


class Checked(_Strict):
    """One part of a shape.

    Attributes:
        statement: what was looked for, and what was read.
        held: whether it was so.
        few: whether, not being so, it rests on too few pairs to be ruled out.
    """

    statement: str
    held: bool
    few: bool = False


class ShapeFound(_Strict):
    """A shape that the paper saw, and whether it was seen here.

    Attributes:
        statement: the shape in words.
        paper: the paper's figures.
        word: whether it held.
        checks: its parts.
    """

    statement: str
    paper: str | None
    word: Word
    checks: tuple[Checked, ...]


class StudyResult(_Strict):
    """What a study found.

    Attributes:
        schema_version: version of this schema.
        name: the study.
        title: in words.
        figures: figures of the paper that it follows, if it follows any.
        question: what it asks.
        task: what it ran on.
        size: ``cpu`` or ``paper``.
        confidence: of intervals and tests.
        compared: comparisons.
        shapes: shapes.
        seconds: wall time of the steps in all, those of earlier calls included as far as they were kept.
    """

    schema_version: Literal[1] = 1
    name: str
    title: str
    figures: str | None
    question: str
    task: str
    size: str
    confidence: float
    compared: tuple[Compared, ...]
    shapes: tuple[ShapeFound, ...]
    seconds: float
