"""Where each canary of a plan falls in training, known before anything is trained; no secret is needed for it."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from davylamp.canaries.drafts import drafts, places
from davylamp.canaries.manifest import Role
from davylamp.canaries.plan import Plan
from davylamp.canaries.schedule import NAMED, Schedule, window_rows
from davylamp.errors import PlantingError

ROLES: dict[Role, str] = {"focus": "focus canaries", "positive": "positive control", "auxiliary": "auxiliary canaries"}
"""Roles that stand in a planted file, in the order in which they are shown."""


@dataclass(frozen=True, slots=True)
class Strip:
    """One canary.

    Attributes:
        id: its id, as the manifest will have it.
        rows: rows of the planted file that hold it, from 0, ascending.
    """

    id: str
    rows: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Group:
    """Canaries of one role, arm and dose.

    Attributes:
        role: what they are for.
        arm: their arm; nothing for the positive control.
        alone: whether the file has no other arm, so that it goes without saying.
        dose: occurrences of each.
        schedule: where they may fall, in words.
        window: the rows [first, end) in which they may fall.
        strips: the canaries.
    """

    role: Role
    arm: str | None
    alone: bool
    dose: int
    schedule: str
    window: tuple[int, int]
    strips: tuple[Strip, ...]

    @property
    def label(self) -> str:
        """The group in words."""
        arm = "" if self.arm is None or self.alone else f", arm {self.arm}"
        return f"{ROLES[self.role]}{arm}, dose {self.dose}"

    @property
    def count(self) -> str:
        """How many canaries it has, in words."""
        return f"{len(self.strips)} canar{'y' if len(self.strips) == 1 else 'ies'}"


@dataclass(frozen=True, slots=True)
class Layout:
    """A planted file: which canary stands in which rows, and in which optimiser updates they are trained on.

    Attributes:
        name: what it is a file of.
        arms: its arms by name, each with its context in words; several names where a recipe plants each arm into a
            file of its own and all of them get the same rows.
        apart: whether each arm has a file (and a model) of its own.
        seed: seed of the plan.
        rows: rows of the planted file.
        repeat: how often each background row stands in it.
        rows_per_update: rows of an optimiser update, if that is known.
        epochs: how often training reads the file, if that is known.
        twins: canaries of each arm that are planted nowhere.
        nonmembers: further ones of each arm, which membership alone reads.
        constructed: rows that constructions take, which are not drawn.
        groups: the canaries.
    """

    name: str
    arms: tuple[tuple[str, str], ...]
    apart: bool
    seed: int
    rows: int
    repeat: int
    rows_per_update: int | None
    epochs: int | None
    twins: int
    nonmembers: int
    constructed: int
    groups: tuple[Group, ...]

    @property
    def updates(self) -> int | None:
        """Optimiser updates of one epoch; the last may hold fewer rows."""
        return None if self.rows_per_update is None else -(-self.rows // self.rows_per_update)

    @property
    def unit(self) -> str:
        """What places are counted in."""
        return "row of the planted file" if self.rows_per_update is None else "optimiser update"

    def place(self, row: int) -> int:
        """The optimiser update of a row (or the row, where updates are not known), counted from 1."""
        return row // (self.rows_per_update or 1) + 1

    def gaps(self, *strips: Strip) -> tuple[int, float, int] | None:
        """Least, median and most of the steps from one occurrence of a canary to its next, in updates (or rows)."""
        steps = [self.place(after) - self.place(before) for strip in strips for before, after in pairwise(strip.rows)]
        return (min(steps), statistics.median(steps), max(steps)) if steps else None

    @property
    def replaced(self) -> dict[Role, int]:
        """Background rows that each role takes the place of."""
        found: dict[Role, int] = {}
        for group in self.groups:
            found[group.role] = found.get(group.role, 0) + sum(len(strip.rows) for strip in group.strips)
        return found

    def as_dict(self) -> dict[str, Any]:
        """The same as data; places are counted from 1, rows of the file from 0."""
        return {
            "name": self.name,
            "arms": dict(self.arms),
            "seed": self.seed,
            "rows": self.rows,
            "repeat": self.repeat,
            "rows_per_update": self.rows_per_update,
            "updates": self.updates,
            "epochs": self.epochs,
            "twins_per_arm": self.twins,
            "nonmembers_per_arm": self.nonmembers,
            "replaced": self.replaced,
            "constructed": self.constructed,
            "background_left": self.rows - sum(self.replaced.values()) - self.constructed,
            "canaries": [self._canary(group, strip) for group in self.groups for strip in group.strips],
        }

    def _canary(self, group: Group, strip: Strip) -> dict[str, Any]:
        known = self.rows_per_update is not None
        return {
            "id": strip.id,
            "role": group.role,
            "arm": group.arm,
            "dose": group.dose,
            "schedule": group.schedule,
            "window_rows": group.window,
            "rows": strip.rows,
            "updates": [self.place(row) for row in strip.rows] if known else None,
            "gaps": self.gaps(strip),
        }


def rows_planted(plan: Plan, corpus: int | None, source: str = "the corpus") -> int:
    """Rows of the planted file.

    Args:
        plan: the plan.
        corpus: rows of the corpus, if they are known.
        source: what the corpus is called in messages.

    Raises:
        PlantingError: the plan asks for more rows than there are, or nobody says how many there are.
    """
    if corpus is None and plan.rows is None:
        raise PlantingError(
            f"nothing says how many rows {source} has: give --rows N, or --data FILE to count its rows, or plan.rows"
        )
    left = None if corpus is None else max(0, corpus - plan.hosts)
    if left is not None and plan.rows is not None and plan.rows > left:
        beside = "" if not plan.carried else f" beside the {plan.hosts:,} that carry canaries"
        raise PlantingError(f"plan.rows is {plan.rows}, but {source} has only {left} rows{beside}")
    return (plan.rows or left or 0) * plan.repeat


def lay_out(plan: Plan, rows: int, name: str, *, apart: bool = False, epochs: int | None = None) -> Layout:
    """Draw where a plan's canaries fall.

    Args:
        plan: the plan; its ``rows_per_update`` says how rows become updates.
        rows: rows of the planted file.
        name: what the file is called.
        apart: whether each arm has a file of its own.
        epochs: how often training reads the file, if that is known.

    Raises:
        PlantingError: the plan cannot be satisfied; the arithmetic is shown.
    """
    found: dict[tuple[Role, str, int], list[Strip]] = {}
    for draft, positions in zip(drafts(plan), places(plan, rows), strict=True):
        if positions:
            found.setdefault((draft.role, draft.arm, draft.dose), []).append(Strip(draft.id, positions))
    groups = []
    for (role, arm, dose), strips in found.items():
        words, window = _where(plan, role, arm)
        groups.append(
            Group(
                role=role,
                arm=None if role == "positive" else arm,
                alone=len(plan.arms) == 1,
                dose=dose,
                schedule=words,
                window=window_rows(window, rows),
                strips=tuple(strips),
            )
        )
    return Layout(
        name=name,
        arms=tuple((each, _context(plan, each)) for each in plan.arms),
        apart=apart,
        seed=plan.seed,
        rows=rows,
        repeat=plan.repeat,
        rows_per_update=plan.rows_per_update,
        epochs=epochs,
        twins=plan.twins,
        nonmembers=plan.nonmembers,
        constructed=plan.constructed_rows,
        groups=tuple(sorted(groups, key=lambda group: list(ROLES).index(group.role))),
    )


def merged(layouts: Sequence[Layout]) -> Iterator[Layout]:
    """Layouts with those joined that differ by their arms' names and contexts alone, so that each is shown once."""
    found: list[Layout] = []
    for layout in layouts:
        for at, other in enumerate(found):
            if layout.apart and _nameless(layout) == _nameless(other):
                found[at] = replace(other, arms=(*other.arms, *layout.arms))
                break
        else:
            found.append(layout)
    yield from found


def _nameless(layout: Layout) -> Layout:
    return replace(layout, arms=(), groups=tuple(replace(group, arm=None) for group in layout.groups))


def said(gaps: tuple[int, float, int] | None) -> str:
    """Gaps in words; nothing where there are none."""
    return "" if gaps is None else f"{gaps[0]:,} / {gaps[1]:,.10g} / {gaps[2]:,}"


def heading(layout: Layout) -> str:
    """What a layout is of, in words."""
    arms = [f"{name} ({context})" if context != name else name for name, context in layout.arms]
    said = f"arm{'s' * (len(arms) > 1)} {', '.join(arms)}"
    if layout.apart and len(arms) > 1:
        said += ", a model each, the same rows in all"
    return f"{layout.name}, seed {layout.seed}: {said}"


def budget(layout: Layout) -> Iterator[str]:
    """How many rows and updates there are and what canaries take of them, a sentence each."""
    copies = f" ({layout.rows // layout.repeat:,} of the corpus x {layout.repeat})" if layout.repeat > 1 else ""
    size = f"{layout.rows:,} rows{copies}"
    if layout.updates is None:
        yield f"{size}; rows_per_update is not known, so that places are rows of the planted file."
    else:
        again = f", in each of {layout.epochs} epochs" if (layout.epochs or 1) > 1 else ""
        yield f"{size} = {layout.updates:,} optimiser updates of {layout.rows_per_update} rows{again}."
    taken = layout.replaced
    total = sum(taken.values())
    parts = ", ".join(f"{ROLES[role]} {count:,}" for role, count in taken.items())
    more = f"constructions, which are not drawn, {layout.constructed:,} more; " if layout.constructed else ""
    yield (
        f"Canaries replace {total:,} background rows ({total / layout.rows:.1%}): {parts}; {more}"
        f"{layout.rows - total - layout.constructed:,} are left."
    )
    yield f"{layout.twins} twins of each arm are planted nowhere (dose 0)."
    if layout.nonmembers:
        yield f"So are {layout.nonmembers:,} further non-members of each arm, which membership alone reads."


def _where(plan: Plan, role: Role, arm: str) -> tuple[str, tuple[float, float]]:
    """The schedule of a role in words, and its window."""
    if role == "positive":
        return _words(Schedule(), (0.0, 1.0)), (0.0, 1.0)
    focus = plan.schedule_of(arm)
    if role == "auxiliary" and plan.auxiliary is not None:
        window = plan.auxiliary.schedule.fractions(focus.fractions())
        return _words(plan.auxiliary.schedule, window), window
    return _words(focus, focus.fractions()), focus.fractions()


def _words(schedule: Schedule, window: tuple[float, float]) -> str:
    name = (
        schedule.window if isinstance(schedule.window, str) else next((n for n, w in NAMED.items() if w == window), "")
    )
    ends = f"[{window[0]:.3g}, {window[1]:.3g}]"
    parts = [f"window {name} {ends}" if name else f"window {ends}"]
    if schedule.spacing is not None:
        parts.append(f"{schedule.spacing} update{'s' * (schedule.spacing > 1)} apart")
    else:
        parts.append("in consecutive rows" if schedule.spread == "concentrated" else "uniform")
    if schedule.last is not None:
        parts.append(f"the last at {schedule.last:.3g}")
    return ", ".join(parts)


def _context(plan: Plan, arm: str) -> str:
    encoding = plan.encoding_of(arm)
    return plan.arms[arm].context if encoding is None else f"encoded: {encoding.name}"
