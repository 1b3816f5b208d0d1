"""What a plot draws as one line and a table lists under one head: an arm, or an arm of a variant of the recipe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from davylamp.report.model import Run


@dataclass(frozen=True, slots=True)
class Series:
    """An arm of a variant.

    Attributes:
        index: its place among all of a report, which gives it its colour and shape.
        variant: the variant of the recipe, if it has any.
        arm: the arm.
        context: what its training prompts showed.
        encoding: the encoding that they showed the secret in, if they did.
        label: what it is called: by its arm, its variant, or both where there are several of either.
    """

    index: int
    variant: str | None
    arm: str
    context: str
    encoding: str | None
    label: str

    @property
    def shows(self) -> str:
        """What its training prompts showed, in words."""
        with_ = f" with {self.encoding}" if self.encoding else ""
        return f"secret {self.context}{with_} in the training prompt"

    @property
    def detail(self) -> str:
        """The same in brief, for a legend; nothing where the label says it."""
        if self.encoding:
            return f"encoded: {self.encoding}"
        return "" if self.label == self.context else self.context


Key = tuple[str | None, str]


def series_of(runs: Sequence[Run]) -> dict[Key, Series]:
    """The series of a report's models by variant and arm, in the order of the models."""
    contexts: dict[Key, tuple[str, str | None]] = {}
    for run in runs:
        own = {cell.arm: cell.context for cell in run.verdict.cells}
        planned = [arm for arm in run.plan.get("arms") or () if arm in own]
        for arm in dict.fromkeys([*planned, *own]):
            contexts.setdefault((run.variant, arm), (own[arm], _encoding(run, arm)))
    one_arm = len({arm for _, arm in contexts}) == 1 and all(variant is not None for variant, _ in contexts)
    found = {}
    for index, ((variant, arm), (context, encoding)) in enumerate(contexts.items()):
        label = arm if variant is None else variant if one_arm else f"{variant}, {arm}"
        found[variant, arm] = Series(index, variant, arm, context, encoding, label)
    return found


def _encoding(run: Run, arm: str) -> str | None:
    planned = run.plan.get("arms")
    found = planned.get(arm) if isinstance(planned, Mapping) else None
    name = found.get("encoding") if isinstance(found, Mapping) else None
    return name if isinstance(name, str) else None
