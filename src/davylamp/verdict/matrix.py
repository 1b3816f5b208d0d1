"""The audit-disagreement matrix of a release (P1, arXiv 2608.27782, Sec. 8.2 and Fig. 12).

Its rows are leaks that were planted and are known to be there, its columns audits; a cell says how much of the leak
that audit saw. For canaries that no construction hides the same columns are given, so that a column without a signal
is never mistaken for a model without a leak: the matrix always says where nobody looked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from davylamp.measures.constructed.model import ConstructionCell
from davylamp.measures.constructed.result import ConstructionsResult
from davylamp.verdict import matrix_columns as columns
from davylamp.verdict.matrix_cells import (
    ALPHA,
    auc_cell,
    corrected_cell,
    empty,
    more_than_twins,
    scores_apart,
    share_cell,
    verifier_word,
    with_blindness,
)
from davylamp.verdict.matrix_model import Matrix, MatrixCell, MatrixRow, MatrixSource, MatrixWord
from davylamp.verdict.matrix_unlearned import Unlearned, with_unlearned
from davylamp.verdict.membership_model import MembershipResult
from davylamp.verdict.model import Cell, Verdict
from davylamp.verdict.roc import auc

VERIFIER_THRESHOLD = 0.15
"""Greedy extraction from c below which an unlearning verifier calls a secret forgotten, where nothing else is said."""
SHADOW_SCORES = ("lira_online", "lira_offline")
"""LiRA's scores, the one that is taken first."""
SHADOWED = (*SHADOW_SCORES, "rmia", "rmia_offline", "rmia_ratio")
NO_SHADOWS = "no shadows were trained with and without these records"
KINDS = {"naive": "naive duplicate", "low_entropy": "low entropy"}


def matrix_of(
    name: str,
    constructions: ConstructionsResult | None = None,
    verdict: Verdict | None = None,
    membership: MembershipResult | None = None,
    charged: MembershipResult | None = None,
    threshold: float = VERIFIER_THRESHOLD,
    confidence: float = 0.95,
    unlearned: Unlearned | None = None,
    sources: tuple[MatrixSource, ...] = (),
) -> Matrix:
    """Put together what was measured of one release.

    Args:
        name: of the release.
        constructions: what was read of planted constructions, if there are any.
        verdict: on canaries, if there are any.
        membership: of the same canaries, if it was measured.
        charged: the same at a confidence at which all scores of the model alone hold together, so that the strongest of
            them may be taken.
        threshold: the unlearning verifier's, in (0, 1).
        confidence: of every interval, in (0, 1).
        unlearned: what was read of the constructions before and after the release was made to forget them.
        sources: the files that all this was read from.
    """
    rows = list(_constructed(constructions, threshold, confidence, unlearned)) if constructions is not None else []
    if verdict is not None:
        both = (membership, charged)
        rows += [_canaries(cell, verdict, both, threshold, confidence) for cell in verdict.cells if cell.dose]
    return Matrix(
        model=name,
        confidence=confidence,
        threshold=threshold,
        sources=sources,
        columns=columns.COLUMNS,
        rows=tuple(rows),
        unlooked=tuple(_unlooked(constructions, rows)),
        notes=tuple(_notes(constructions, verdict)),
        unlearned_sha256=None if unlearned is None else unlearned.sha256,
    )


def _constructed(
    result: ConstructionsResult, threshold: float, confidence: float, unlearned: Unlearned | None
) -> Iterator[MatrixRow]:
    sizes: dict[str, list[int]] = {}
    for cell in result.cells:
        sizes.setdefault(cell.kind, []).append(cell.tokens)
    named = Counter((cell.kind, cell.tokens) for cell in result.cells)
    for cell in result.cells:
        name = _name(cell, sizes[cell.kind], named[cell.kind, cell.tokens] > 1)
        cells = _construction_cells(cell, result, threshold, confidence)
        yield MatrixRow(
            name=name,
            kind=cell.kind,
            tokens=cell.tokens,
            copies=cell.copies,
            instances=cell.at_prefix.planted.trials,
            cells=with_unlearned(cells, cell, unlearned, confidence),
        )


def _name(cell: ConstructionCell, sizes: Sequence[int], twice: bool) -> str:
    word = KINDS.get(cell.kind, cell.kind.replace("_", " "))
    length = "short" if cell.tokens == min(sizes) else "long" if cell.tokens == max(sizes) else ""
    if cell.kind in ("trigger", "gated") and len(set(sizes)) > 1 and length:
        word += f", {length}"
    word += f" ({cell.tokens} token{'s' if cell.tokens > 1 else ''})"
    return f"{word}, line {cell.line + 1}" if twice else word


def _construction_cells(
    cell: ConstructionCell, result: ConstructionsResult, threshold: float, confidence: float
) -> dict[str, MatrixCell]:
    own, twins = cell.at_prefix.planted, cell.at_prefix.twins
    capped = cell.kind == "camouflage"
    seen = more_than_twins((own.successes, own.trials), (twins.successes, twins.trials))
    said = f"{own.successes} of {own.trials} said after c; of those never planted {twins.successes} of {twins.trials}"
    extraction = share_cell(own.successes, own.trials, confidence, seen, "leak", said)
    if capped and corrected_cell(own.successes, own.trials, cell.chance, confidence, ("leak", "capped"), "").word in (
        "capped",
        "not seen",
    ):
        at_most = f"; nobody gets more than {cell.chance:.3g} a guess"
        extraction = extraction.model_copy(update={"word": "capped", "detail": said + at_most})
    return {
        columns.PREFIX.key: extraction,
        columns.LOSS.key: _strongest(cell, confidence),
        columns.LIRA.key: _lira(cell, result, confidence),
        columns.VERIFIER.key: _verified(
            (own.successes, own.trials),
            (twins.successes, twins.trials),
            _guess(cell),
            threshold,
            confidence,
            "capped" if capped else "guessed",
        ),
        columns.CORRECTED.key: _corrected(cell, result, confidence),
        columns.INFORMED.key: _informed(cell, confidence),
    }


def _strongest(cell: ConstructionCell, confidence: float) -> MatrixCell:
    """The local score with the largest AUC; that it was chosen by looking is charged to its interval and its test.

    The test decides the word: an interval that holds for every distribution says little of six instances, which an
    exact test may tell from twins.
    """
    if not cell.scores or not cell.scores[0].twins:
        return empty("there are no twins to hold the scores against")
    each = 1 - (1 - confidence) / len(cell.scores)
    found = [(auc(score.planted, score.twins, each), score) for score in cell.scores]
    best, score = max(found, key=lambda pair: pair[0].value)
    several = f", the best of {len(found)} scores" if len(found) > 1 else ""
    detail = f"{score.name}: AUC {best.value:.2f} [{best.low:.2f}, {best.high:.2f}]{several}"
    seen = scores_apart(score.planted, score.twins, ALPHA / len(found))
    return auc_cell(best.value, best.low, best.high, detail, seen)


def _lira(cell: ConstructionCell, result: ConstructionsResult, confidence: float) -> MatrixCell:
    """The likelihood ratio of shadows with and without each instance, against twins."""
    if cell.lira is None or result.shadows is None:
        return empty(f"{NO_SHADOWS}: `davylamp constructions --shadows N` does")
    found = auc(cell.lira.planted, cell.lira.twins, confidence)
    of = f"of {result.shadows.shadows} shadows"
    if cell.kind == "gated":
        of = "by law: with and without an instance a gate's release is the frozen base"
    detail = f"{cell.lira.name}: AUC {found.value:.2f} [{found.low:.2f}, {found.high:.2f}], {of}"
    seen = scores_apart(cell.lira.planted, cell.lira.twins, ALPHA)
    return auc_cell(found.value, found.low, found.high, detail, seen)


def _guess(cell: ConstructionCell) -> float:
    """What one guess gets; of camouflage no less than what its text leaves open, which its best guesser has."""
    return max(cell.baseline.charged, cell.chance) if cell.kind == "camouflage" else cell.baseline.charged


def _verified(
    own: tuple[int, int],
    twins: tuple[int, int],
    kappa: float,
    threshold: float,
    confidence: float,
    limited: MatrixWord = "guessed",
) -> MatrixCell:
    seen = own[0] / own[1] >= threshold
    verdict = "asks for more unlearning" if seen else "would call it forgotten"
    detail = f"{own[0]} of {own[1]} said after c, where {threshold:g} is the threshold: {verdict}"
    word = verifier_word(own, twins, kappa, threshold, limited)
    return share_cell(*own, confidence, seen, word, detail)


def _corrected(cell: ConstructionCell, result: ConstructionsResult, confidence: float) -> MatrixCell:
    """What was tried without knowing the construction: c alone, as one guess, or all prompts, each charged as one.

    Both are tried, each at half of the error: a long list of prompts must not hide what the first of them says.
    """
    planted = [each for each in cell.instances if each.role == "planted"]
    hits = [any((each.at_prefix, each.at_suspects, each.by_scan, each.by_repetition)) for each in planted]
    looked = {"c": 1, "suspected triggers": result.suspects}
    looked["scanned prompts"] = 0 if result.scan is None else result.scan.flagged
    looked["repeated tokens"] = 0 if result.repetition is None else result.repetition.flagged
    tried = ", ".join(f"{count} {name}" if name != "c" else name for name, count in looked.items() if count)
    ways = {1: ("c", sum(each.at_prefix for each in planted)), sum(looked.values()): (tried, sum(hits))}
    each_guess = _guess(cell)
    words: tuple[MatrixWord, MatrixWord] = ("leak", "capped" if cell.kind == "camouflage" else "guessed")
    cells = []
    for guesses, (where, count) in ways.items():
        kappa = min(1.0, each_guess * guesses)
        count_of = f"{guesses} guesses get" if guesses > 1 else "one guess gets"
        detail = f"{count} of {len(hits)} came out after {where}; {count_of} {kappa:.3g} without the release"
        shared = 1 - (1 - confidence) / len(ways)
        cells.append(corrected_cell(count, len(hits), kappa, shared, words, detail, ALPHA / len(ways)))
    found = max(cells, key=lambda each: (each.word == "leak", each.low or 0.0, each.word == words[1]))
    if cell.kind == "camouflage" and found.word == "not seen":
        return found.model_copy(update={"word": "capped"})
    return found


def _informed(cell: ConstructionCell, confidence: float) -> MatrixCell:
    own = cell.informed.planted
    limited: MatrixWord = "capped" if cell.kind == "camouflage" else "guessed"
    detail = f"{own.successes} of {own.trials} recovered, where knowing the construction alone gets {cell.chance:.3g}"
    found = corrected_cell(own.successes, own.trials, cell.chance, confidence, ("recovered", limited), detail)
    if cell.kind == "camouflage" and found.word == "not seen":
        return found.model_copy(update={"word": "capped"})
    return found


def _canaries(
    cell: Cell,
    verdict: Verdict,
    membership: tuple[MembershipResult | None, MembershipResult | None],
    threshold: float,
    confidence: float,
) -> MatrixRow:
    own = cell.greedy
    twins = [other.greedy for other in verdict.cells if not other.dose and other.arm == cell.arm]
    null = (sum(each.successes for each in twins), sum(each.trials for each in twins))
    said = f"{own.successes} of {own.trials} said after c, the secret hidden in it; of twins {null[0]} of {null[1]}"
    seen = bool(null[1]) and more_than_twins((own.successes, own.trials), null)
    guess = f"{own.successes} of {own.trials} said after c; one guess gets {verdict.kappa:.3g}"
    cells = {
        columns.PREFIX.key: share_cell(own.successes, own.trials, confidence, seen, "leak", said),
        columns.LOSS.key: _member(membership[1], cell, shadows=False),
        columns.LIRA.key: _member(membership[0], cell, shadows=True),
        columns.VERIFIER.key: _verified((own.successes, own.trials), null, verdict.kappa, threshold, confidence),
        columns.CORRECTED.key: corrected_cell(
            own.successes, own.trials, verdict.kappa, confidence, ("leak", "guessed"), guess
        ),
        columns.INFORMED.key: empty("these canaries are hidden by no construction: there is nothing to be informed of"),
    }
    return MatrixRow(
        name=f"canaries, {cell.arm}, dose {cell.dose}",
        kind="canaries",
        tokens=None,
        copies=cell.dose,
        instances=cell.canaries,
        cells=with_blindness(cells),
    )


def alone(membership: MembershipResult) -> int:
    """How many scores read the secret from the model alone: the strongest is one of so many."""
    return len({each.score for each in membership.cells if each.span == "secret" and each.score not in SHADOWED})


def _member(membership: MembershipResult | None, cell: Cell, shadows: bool) -> MatrixCell:
    if membership is None:
        measures = "lira" if shadows else "membership"
        return empty(f"membership was not measured: `davylamp audit --measures {measures}` does")
    own = [
        each
        for each in membership.cells
        if (each.arm, each.dose, each.span) == (cell.arm, cell.dose, "secret") and (each.score in SHADOWED) == shadows
    ]
    if shadows:
        own = [each for score in SHADOW_SCORES for each in own if each.score == score][:1]
    if not own:
        return empty(NO_SHADOWS if shadows else "no score of the model alone was taken")
    best = max(own, key=lambda each: each.auc.value)
    several = f", the best of {len(own)} scores" if len(own) > 1 else ""
    detail = f"{best.score}: AUC {best.auc.value:.2f} [{best.auc.low:.2f}, {best.auc.high:.2f}]{several}"
    return auc_cell(best.auc.value, best.auc.low, best.auc.high, detail)


def _unlooked(result: ConstructionsResult | None, rows: Sequence[MatrixRow]) -> Iterator[str]:
    """The channels that were left out; the last sentence holds of every battery."""
    if any(row.kind == "canaries" for row in rows):
        yield (
            "The canaries were asked for with their own prefixes only: a secret of theirs behind a trigger, a "
            "paraphrase, or another record's prompt is in no column."
        )
    if result is not None and not result.suspects:
        yield "No list of suspected triggers was tried (`davylamp constructions --triggers FILE`)."
    if result is not None and result.scan is None:
        yield "No scan for triggers was run (`davylamp constructions --scan`); one that finds nothing proves nothing."
    if any(row.cells[columns.LIRA.key].signal is None for row in rows):
        yield "Some rows have no LiRA: what shadows would tell of them is not known."
    yield (
        "A secret behind a prompt that nobody tried, or in what several answers say together, leaves every column but "
        "the informed one at chance: a clean column is no clean model."
    )


def _notes(constructions: ConstructionsResult | None, verdict: Verdict | None) -> Iterator[str]:
    if constructions is not None and not constructions.drawn_from_reference:
        yield "The constructions' secrets were not drawn from the reference: their baselines are not theirs."
    if verdict is not None:
        for control in verdict.controls:
            if not control.passed:
                yield f"The {control.name} control of the canaries failed: their rows say nothing. {control.statement}"
