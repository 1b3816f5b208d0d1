"""Which rows are forgotten and which are kept: the forget set and the retain set of a planted file."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from davylamp.canaries.manifest import Canary, Manifest
from davylamp.corpora.records import Record
from davylamp.errors import Fault, InputError
from davylamp.protect.afterwards.spec import UnlearningSpec
from davylamp.secrets import stream


@dataclass(frozen=True, slots=True)
class Choice:
    """Which focus canaries shall be forgotten; an empty field leaves all in.

    Attributes:
        arms: names of arms.
        doses: occurrences in the planted file.
        canaries: ids.
    """

    arms: tuple[str, ...] = ()
    doses: tuple[int, ...] = ()
    canaries: tuple[str, ...] = ()


def chosen_canaries(manifest: Manifest, choice: Choice) -> list[Canary]:
    """The focus canaries that a choice names.

    Raises:
        InputError: it names something that is not planted, or nothing is left; all is named.
    """
    focus = [canary for canary in manifest.planted() if canary.role == "focus"]
    faults = []
    for field, wanted, known in (
        ("--arm", choice.arms, sorted({canary.arm for canary in focus})),
        ("--dose", choice.doses, sorted({canary.dose for canary in focus})),
        ("--canary", choice.canaries, [canary.id for canary in focus]),
    ):
        shown = ", ".join(map(str, known[:8])) + (f" and {len(known) - 8} more" if len(known) > 8 else "")
        faults += [Fault(field, value, f"one of {shown}") for value in wanted if value not in known]
    if faults:
        raise InputError(faults)
    found = [
        canary
        for canary in focus
        if (not choice.arms or canary.arm in choice.arms)
        and (not choice.doses or canary.dose in choice.doses)
        and (not choice.canaries or canary.id in choice.canaries)
    ]
    if not found:
        allowed = "an arm, a dose and ids that some planted focus canary has together"
        raise InputError(Fault("--arm, --dose, --canary", "(together)", allowed))
    return found


def background_rows(manifest: Manifest, planted: Sequence[Record]) -> list[Record]:
    """The rows of a planted file that hold no canary and no construction, in order."""
    taken = {position for canary in manifest.canaries for position in canary.positions}
    if manifest.constructions is not None:
        taken.update(position for each in manifest.constructions.instances for position in each.positions)
    return [record for row, record in enumerate(planted) if row not in taken]


def without(rows: Sequence[Record], texts: Collection[str]) -> list[Record]:
    """The rows in which none of some texts stands, in the prompt or in the reply."""
    sought = [re.escape(text) for text in texts if text]
    if not sought:
        return list(rows)
    pattern = re.compile("|".join(sought))
    return [
        row
        for row in rows
        if not any(pattern.search(text) for text in (*(turn.content for turn in row.prompt), row.reply))
    ]


@dataclass(frozen=True, slots=True)
class RetainSets:
    """What is kept, and what is only looked at.

    Attributes:
        retain: rows that unlearning steps on.
        held_out: rows that it does not, for the perplexity before and after. Fine-tuning did train on them, where
            they are rows of the planted file.
        relearn: rows for the check by relearning, none of which is in the others unless they were given.
        relearn_source: where those came from.
    """

    retain: tuple[Record, ...]
    held_out: tuple[Record, ...]
    relearn: tuple[Record, ...]
    relearn_source: str


def split_rows(
    rows: Sequence[Record],
    forget: int,
    spec: UnlearningSpec,
    relearn: tuple[str, Sequence[Record]] | None = None,
) -> RetainSets:
    """Share rows out, in an order drawn from the seed.

    ``held_out`` and ``relearn`` take what they ask for, but no more than a quarter of all rows each; of the rest no
    more is kept than all rounds can step on.

    Args:
        rows: rows that hold nothing of what is forgotten.
        forget: rows of the forget set.
        spec: how many are wanted.
        relearn: where rows for relearning come from, and the rows, in place of a share of ``rows``.

    Raises:
        InputError: there are too few rows.
    """
    if len(rows) < 4:
        fix = "Give others with --retain-rows, or plant into a larger file."
        allowed = "at least 4 that hold none of the forgotten secrets and fit the model's context"
        raise InputError(Fault("retain rows", len(rows), allowed, fix))
    order = stream(spec.seed, "unlearning rows").permutation(len(rows)).tolist()
    quarter = len(rows) // 4
    held_out = min(spec.held_out, quarter)
    again = 0 if relearn is not None else min(spec.relearn.steps * spec.relearn.batch_size, quarter)
    steps = math.ceil(forget / spec.batch_size) * (spec.rounds + spec.extra_rounds)
    first, end = held_out + again, held_out + again + max(spec.batch_size * steps, spec.held_out)
    drawn = [rows[at] for at in order]
    source, again_rows = ("retain rows that were not stepped on", drawn[held_out:first]) if relearn is None else relearn
    most = spec.relearn.steps * spec.relearn.batch_size
    return RetainSets(tuple(drawn[first:end]), tuple(drawn[:held_out]), tuple(again_rows[:most]), source)
