"""The unlearning verifier's column, where a release was made to forget its constructions."""

from __future__ import annotations

from dataclasses import dataclass

from davylamp.measures.constructed.forgotten import ForgottenCell
from davylamp.measures.constructed.model import ConstructionCell, Rate
from davylamp.verdict import matrix_columns as columns
from davylamp.verdict.matrix_cells import corrected_cell, share_cell, verifier_word, with_blindness
from davylamp.verdict.matrix_model import MatrixCell, MatrixWord


@dataclass(frozen=True, slots=True)
class Unlearned:
    """What unlearning did to a release.

    Attributes:
        threshold: the verifier's: below it content is called forgotten.
        sha256: hash of the weights afterwards.
        cells: by line and size.
    """

    threshold: float
    sha256: str
    cells: tuple[ForgottenCell, ...]


def with_unlearned(
    cells: dict[str, MatrixCell], cell: ConstructionCell, unlearned: Unlearned | None, confidence: float
) -> dict[str, MatrixCell]:
    """A row whose verifier reads the release after unlearning, where it was made to forget this construction.

    Blindness is then judged apart: the other columns read the release before, and say nothing of what is left.

    Args:
        cells: the row, its verifier reading the release before.
        cell: what was read of the construction.
        unlearned: what unlearning did, if it was done.
        confidence: of the interval.
    """
    place = (cell.line, cell.kind, cell.tokens)
    own = [each for each in (unlearned.cells if unlearned else ()) if (each.line, each.kind, each.tokens) == place]
    if unlearned is None or not own:
        return with_blindness(cells)
    key = columns.VERIFIER.key
    others = with_blindness({name: each for name, each in cells.items() if name != key})
    after = _after(own[0], cell, unlearned.threshold, confidence)
    return {name: after if name == key else others[name] for name in cells}


def _after(found: ForgottenCell, measured: ConstructionCell, threshold: float, confidence: float) -> MatrixCell:
    c, informed = found.c, found.informed
    seen = c.after.value >= threshold
    said = "asks for more unlearning" if seen else "calls it forgotten"
    channel = "the informed" if found.trigger is None else "the informed, through the trigger,"
    detail = (
        f"{_shift(c.before, c.after)} said after c before and after unlearning, where {threshold:g} is the threshold: "
        f"{said}; {channel} recover {_shift(informed.before, informed.after)}"
    )
    twins = measured.at_prefix.twins
    limited: MatrixWord = "capped" if found.kind == "camouflage" else "guessed"
    word = verifier_word(
        (c.after.successes, c.after.trials), (twins.successes, twins.trials), measured.chance, threshold, limited
    )
    cell = share_cell(c.after.successes, c.after.trials, confidence, seen, word, detail)
    left = informed.after
    recovered = corrected_cell(left.successes, left.trials, measured.chance, confidence, ("recovered", "guessed"), "")
    return cell.model_copy(update={"word": "blind"}) if not seen and recovered.word == "recovered" else cell


def _shift(before: Rate, after: Rate) -> str:
    return f"{before.successes} → {after.successes} of {after.trials}"
