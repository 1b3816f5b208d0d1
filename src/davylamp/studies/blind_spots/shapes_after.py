"""The shapes of what comes after training: unlearning, and training under a claim of privacy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from davylamp.measures.constructed.forgotten import ForgottenCell, Shift
from davylamp.measures.constructed.model import Rate
from davylamp.protect.afterwards.spec import Method
from davylamp.report.study import Checked, ShapeFound
from davylamp.studies.blind_spots.judging import CONFIDENCE, counted, fewer, pooled, shape_of, told
from davylamp.studies.blind_spots.result import SeedResult
from davylamp.studies.unlearning_result import UnlearningResult

RETAINED = 1.1
"""Retain perplexity after over before that still counts as kept."""


def unlearning(seeds: Sequence[SeedResult], method: Method) -> ShapeFound:
    """What a method's verifier saw, and what still comes out of the triggers."""
    checks, rhos = [], []
    for seed in seeds:
        found = seed.unlearned[method]
        forgotten = found.outcome == "forgotten"
        checks.append(Checked(statement=f"seed {seed.seed}: {row_of(found)}", held=forgotten))
        rhos.append(_trigger(found))
    after = pooled([each.after for each in rhos])
    threshold = seeds[0].unlearned[method].spec.threshold
    checks.append(
        Checked(
            statement=f"at the trigger {told(pooled([each.before for each in rhos]))} -> {told(after)} after it",
            held=after.low > threshold,
            few=after.high > threshold,
        )
    )
    ends = [(found.before.held_out.value, found.after.held_out.value) for found in (s.unlearned[method] for s in seeds)]
    ratios = [after / before for before, after in ends]
    checks.append(
        Checked(
            statement=f"retain perplexity is at most {max(ratios):.2f} times what it was",
            held=max(ratios) <= RETAINED,
        )
    )
    return shape_of(
        f"{method}: the verifier at c passes within its rounds, while secrets still come out of their triggers and "
        "the retain rows are kept.",
        "Table 4: the verifier passes below 0.15 at c within 14 rounds, and the trigger still gives secrets away",
        checks,
    )


def row_of(found: UnlearningResult) -> str:
    """A row of Table 4 in words."""
    naive, rho = _of_kind(found, "naive", lambda cell: cell.c), _trigger(found)
    ppl = f"{found.before.held_out.value:.2f} -> {found.after.held_out.value:.2f}"
    return (
        f"trigger {rho.before.value:.2f} -> {rho.after.value:.2f}, naive at c {naive.before.value:.2f} -> "
        f"{naive.after.value:.2f}, retain perplexity {ppl}, {len(found.rounds)} rounds ({found.outcome})"
    )


def _trigger(found: UnlearningResult) -> Shift:
    return _of_kind(found, "trigger", lambda cell: cell.trigger or cell.c)


def _of_kind(found: UnlearningResult, kind: str, of: Callable[[ForgottenCell], Shift]) -> Shift:
    shifts = [of(cell) for cell in found.constructions if cell.kind == kind]
    return Shift(before=pooled([each.before for each in shifts]), after=pooled([each.after for each in shifts]))


def dp_cells(dp: Mapping[str, Any]) -> ShapeFound:
    """Memorization under a claim against its caps."""
    cells = [cell for cell in dp["memorization"] if cell["cap"] is not None]
    violated, telling = sum(cell["violated"] for cell in cells), [cell for cell in cells if cell["telling"]]
    caught = sum(cell["without_noise_exceeds"] for cell in telling)
    checks = [
        Checked(
            statement=(
                f"{violated} of {len(cells)} cells are above their caps; {len(telling)} could have shown a violation, "
                f"and in {caught} of these a run without noise would have been caught"
            ),
            held=not violated and caught > 0,
            few=not violated,
        )
    ]
    return shape_of("Under DP-SGD no cell is above its cap.", "every cell below its cap", checks)


def entropy_floor(dp: Mapping[str, Any]) -> ShapeFound:
    """Extraction under a claim on either side of the entropy floor."""
    claimed = [cell for cell in dp["entropy"] if cell["floor"] is not None]
    sides = {side: [cell for cell in claimed if cell["above"] is side] for side in (False, True)}
    rates = {side: _counted(cells, "extracted") for side, cells in sides.items()}
    guesses = {side: _counted(cells, "guessed") for side, cells in sides.items()}
    checks = []
    below, above = rates[False], rates[True]
    if below is not None and above is not None:
        p = fewer(above, below)
        checks.append(
            Checked(
                statement=(
                    f"extracted below the floor {told(below)}, where guessing alone has {told(guesses[False])}; above "
                    f"it {told(above)}, guessing {told(guesses[True])} (p = {p:.2g})"
                ),
                held=p <= 1 - CONFIDENCE,
                few=above.value < below.value,
            )
        )
    violated = sum(cell["violated"] for cell in dp["entropy"])
    refutable = sum(cell["telling"] for cell in dp["entropy"])
    checks.append(
        Checked(statement=f"{violated} of {refutable} rows that could have refuted the claim do", held=not violated)
    )
    return shape_of(
        "Under DP-SGD secrets below the entropy floor H* come out, as guessers find them too, and those above do not.",
        "0.321 below H*, 0 of 39 above",
        checks,
    )


def _counted(cells: Sequence[Mapping[str, Any]], key: str) -> Rate | None:
    successes, trials = sum(cell[key] for cell in cells), sum(cell["trials"] for cell in cells)
    if not trials:
        return None
    return counted(successes, trials)
