"""Canaries before they have a secret: which there are, and in which rows they stand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from davylamp.canaries.manifest import Role
from davylamp.canaries.placing import Request, place
from davylamp.canaries.plan import Plan
from davylamp.canaries.schedule import Schedule
from davylamp.corpora.names import full_names
from davylamp.errors import PlantingError

MOST_ROWS = 100_000_000
"""Rows of the largest file that is planted. Placing holds some 20 bytes a row, and rows are held as they are read."""


@dataclass(frozen=True, slots=True)
class Draft:
    """A canary before it has a carrier and a secret.

    Attributes:
        id: its id in the manifest.
        role: what it is for.
        arm: its arm; ``control`` for the positive control.
        dose: occurrences in the planted file.
    """

    id: str
    role: Role
    arm: str
    dose: int


def drafts(plan: Plan) -> list[Draft]:
    """The canaries of a plan: focus canaries and twins of each arm, the positive control, auxiliary ones, others.

    Whatever an axis adds stands behind the rest, so that it changes no other id.
    """
    kinds: list[tuple[Role, str, int]] = []
    for arm in plan.arms:
        kinds += [("focus", arm, dose) for dose in plan.doses for _ in range(plan.per_dose)]
        kinds += [("twin", arm, 0)] * plan.twins
    kinds.append(("positive", "control", plan.positive_dose))
    if plan.auxiliary is not None:
        for arm in plan.arms:
            kinds += [("auxiliary", arm, dose) for dose in plan.auxiliary.doses for _ in range(plan.auxiliary.per_dose)]
    for arm in plan.arms:
        kinds += [("nonmember", arm, 0)] * plan.nonmembers
    return [Draft(f"c{number:04d}", *kind) for number, kind in enumerate(kinds)]


def check_counts(plan: Plan, rows: int) -> None:
    """Hold what a plan asks for against the file and the space, before one canary or row of it is made.

    Args:
        plan: the plan.
        rows: rows of the planted file.

    Raises:
        PlantingError: there are too many canaries or rows; the arithmetic is shown, of every fault.
    """
    faults = []
    if plan.planted_rows + plan.constructed_rows > rows:
        faults.append(_short_of_rows(plan, rows))
    if rows > MOST_ROWS:
        faults.append(
            f"the planted file would have {rows:,} rows, but at most {MOST_ROWS:,} are planted: lower rows or repeat"
        )
    if 2 * plan.canaries > plan.space.size:
        faults.append(
            f"{plan.canaries} canaries ({_kinds(plan)}) need {2 * plan.canaries} distinct secrets (each has a "
            f"replacement), but the space holds {plan.space.size}: take a longer secret or fewer canaries"
        )
    elif plan.space.alternatives is not None and 2 * plan.canaries + plan.space.alternatives > plan.space.size:
        faults.append(
            f"{plan.canaries} canaries ({_kinds(plan)}) hold {2 * plan.canaries} names (each has a replacement), which "
            f"leaves {plan.space.size - 2 * plan.canaries:,} of the space's {plan.space.size:,}, fewer than its "
            f"{plan.space.alternatives:,} alternatives: set space.size to "
            f"{2 * plan.canaries + plan.space.alternatives} or more"
        )
    named = [slot for slot, values in plan.slots.items() if values == "names"]
    if named and plan.canaries > len(full_names()):
        faults.append(
            f"{plan.canaries} canaries ({_kinds(plan)}) need as many names in slots.{named[0]}, but there are "
            f"{len(full_names())}: take fewer canaries"
        )
    if faults:
        raise PlantingError("; ".join(faults))


def places(plan: Plan, rows: int) -> list[tuple[int, ...]]:
    """The rows of each draft of :func:`drafts`, ascending, in a file of so many rows.

    Raises:
        PlantingError: the plan cannot be satisfied; the arithmetic is shown.
    """
    check_counts(plan, rows)
    made = drafts(plan)
    requests = []
    for arm in plan.arms:
        requests.append(_request(f"focus canaries of arm {arm!r}", made, "focus", arm, plan.schedule_of(arm)))
        requests.append(_request(f"twins of arm {arm!r}", made, "twin", arm, Schedule()))
    requests.append(_request("the positive control", made, "positive", "control", Schedule()))
    if plan.auxiliary is not None:
        for arm in plan.arms:
            window = plan.schedule_of(arm).fractions()
            who = f"auxiliary canaries of arm {arm!r}"
            requests.append(_request(who, made, "auxiliary", arm, plan.auxiliary.schedule, window))
    placed = place(requests, rows, plan.seed, plan.rows_per_update)
    return placed + [()] * (len(made) - len(placed))


def _request(
    who: str,
    made: Sequence[Draft],
    role: Role,
    arm: str,
    schedule: Schedule,
    focus: tuple[float, float] = (0.0, 1.0),
) -> Request:
    doses = tuple(draft.dose for draft in made if (draft.role, draft.arm) == (role, arm))
    return Request(who, doses, schedule, focus, auxiliary=role == "auxiliary")


def _kinds(plan: Plan) -> str:
    """What canaries a plan counts, in words."""
    each = [f"{len(plan.doses)} doses x {plan.per_dose}", f"{plan.twins} twins"]
    if plan.auxiliary is not None:
        each.append(f"{len(plan.auxiliary.doses)} auxiliary doses x {plan.auxiliary.per_dose}")
    if plan.nonmembers:
        each.append(f"{plan.nonmembers} nonmembers")
    return f"{len(plan.arms)} arms x ({' + '.join(each)}) + 1 positive control"


def _short_of_rows(plan: Plan, rows: int) -> str:
    parts = [f"{len(plan.arms)} arms x {plan.per_dose} canaries x doses {list(plan.doses)}"]
    if plan.auxiliary is not None:
        parts.append(
            f"{len(plan.arms)} arms x {plan.auxiliary.per_dose} auxiliary canaries x doses {list(plan.auxiliary.doses)}"
        )
    parts.append(f"{plan.positive_dose} of the positive control")
    if plan.constructions:
        parts.append(f"{plan.constructed_rows} of constructions")
    return (
        f"the canaries need {plan.planted_rows + plan.constructed_rows} rows ({' + '.join(parts)}), but only {rows} "
        "rows can be replaced: lower the doses or per_dose, or take a larger corpus"
    )
