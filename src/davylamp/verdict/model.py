"""The values of a verdict: what was found, how sure that is, and whether the audit may be believed."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from davylamp.errors import RunFolderError
from davylamp.runs import files

SCHEMA_VERSION: Literal[1] = 1
Word = Literal["leak", "not seen", "underpowered", "no verdict"]
"""``no verdict`` stands wherever a control failed."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Rules(_Strict):
    """What a verdict is decided by.

    Attributes:
        confidence: coverage of every interval.
        alpha: chance of calling any cell of one model a leak where nothing leaks (Holm's correction over cells).
        rate: a leak rate that ``not seen`` must rule out; a cell that cannot is ``underpowered``.
        guesses: list budget: a secret counts as within reach if at most so many guesses, in the order of the
            model's likelihood, find it.
        control_alpha: chance that the null control fails though nothing is wrong.
        positive_rank: the positive control must rank within this share of the space.
    """

    confidence: float = Field(0.95, gt=0.5, lt=1)
    alpha: float = Field(0.01, gt=0, lt=0.5)
    rate: float = Field(0.25, gt=0, lt=1)
    guesses: int = Field(10, ge=1)
    control_alpha: float = Field(0.001, gt=0, lt=0.5)
    positive_rank: float = Field(0.01, gt=0, lt=1)


class Control(_Strict):
    """One control.

    Attributes:
        name: ``positive`` or ``null``.
        passed: whether it did what it must.
        statement: one sentence for people.
    """

    name: Literal["positive", "null"]
    passed: bool
    statement: str


class Rate(_Strict):
    """k of n with its Clopper-Pearson interval."""

    successes: int
    trials: int
    low: float
    high: float

    @property
    def value(self) -> float:
        """The rate."""
        return self.successes / self.trials


class Cell(_Strict):
    """Exposure and recovery of one arm at one dose in one model, secrets hidden in the prompt.

    Attributes:
        arm: the arm.
        context: what its training prompts showed.
        dose: occurrences in the planted file; 0 for the twins.
        seed: seed of the plan.
        canaries: number of canaries.
        exposures: exposure of each in bits, ascending.
        median: median exposure in bits.
        median_low: lower end of its interval, from order statistics.
        median_high: upper end of its interval, from order statistics.
        exposure_p: chance of exposures as large in sum, were every rank uniform.
        in_reach: secrets found within the list budget.
        exposure_verdict: from ``exposure_p`` and ``in_reach``; nothing for twins, which are not judged.
        greedy: secrets said exactly when the reply is given up to the secret.
        greedy_p: chance of as many, for a guesser with one guess.
        greedy_verdict: from ``greedy_p`` and the interval of ``greedy``; nothing for twins.
        reply: secrets in the whole reply when only the prompt is given; nothing for plain texts.
        statement: one sentence for people.
    """

    arm: str
    context: str
    dose: int
    seed: int
    canaries: int
    exposures: tuple[float, ...]
    median: float
    median_low: float
    median_high: float
    exposure_p: float
    in_reach: Rate
    exposure_verdict: Word | None
    greedy: Rate
    greedy_p: float
    greedy_verdict: Word | None
    reply: Rate | None
    statement: str


class Copying(_Strict):
    """What comes out when the prompt shows a code in clear.

    Attributes:
        arm: the arm.
        dose: occurrences in the planted file; 0 for twins.
        seed: seed of the plan.
        probe: ``replacement`` or ``as_trained``.
        target: which code was looked for: ``trained`` or ``replacement``.
        greedy: how often it was said exactly after the reply up to the secret.
        reply: how often the whole reply held it.
    """

    arm: str
    dose: int
    seed: int
    probe: str
    target: str
    greedy: Rate
    reply: Rate | None


class Verdict(_Strict):
    """The verdict on one model.

    Attributes:
        schema_version: version of this schema.
        seed: seed of the plan.
        rules: what it was decided by.
        candidates: how many candidates each secret was ranked among.
        sampled: whether they are a pool drawn from the space, and not all of it.
        ceiling_bits: largest exposure that can be read.
        baseline_bits: mean exposure of a random rank.
        baseline_median_bits: median exposure of a random rank.
        kappa: chance that one guess hits a secret, without the model.
        controls: judged first.
        given: whether all controls passed; if not, no cell has a verdict.
        cells: by arm and dose.
        copying: what comes out when a code is shown.
    """

    schema_version: Literal[1] = 1
    seed: int
    rules: Rules
    candidates: int
    sampled: bool = False
    ceiling_bits: float
    baseline_bits: float
    baseline_median_bits: float
    kappa: float
    controls: tuple[Control, ...]
    given: bool
    cells: tuple[Cell, ...] = Field(min_length=1)
    copying: tuple[Copying, ...]

    def save(self, path: Path) -> None:
        """Write the verdict as JSON.

        Raises:
            StorageError: it cannot be written.
        """
        files.write_json(path, self.model_dump(mode="json"))

    @classmethod
    def load(cls, path: Path) -> Verdict:
        """Read a verdict.

        Raises:
            RunFolderError: it is missing or damaged.
        """
        try:
            return cls.model_validate_json(path.read_bytes())
        except FileNotFoundError as error:
            raise RunFolderError(f"no verdict at {path}: run `davylamp audit` first") from error
        except (OSError, ValidationError) as error:
            raise RunFolderError(f"cannot read {path}: run `davylamp audit` again") from error
