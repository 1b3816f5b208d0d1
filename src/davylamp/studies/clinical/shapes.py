"""What P3 saw, and whether it was seen here: each shape is judged on the canaries of all seeds together.

Interventions are compared canary by canary, by the sign test on exposures at 95%; exposures that are equal, as at the
ceiling, count for neither side. A secret that was not remembered has a uniform rank among its candidates, so that
exposure has mean and standard deviation log2(e) = 1.44 bits (a little less where candidates are few): "at the baseline"
is a mean that is no more than 1.96 standard errors above that, where the canaries are enough to exclude one of a bit
more. What was not found is "too few pairs" where as few canaries would not have shown it either.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from davylamp.bounds.intervals import clopper_pearson, sign_test
from davylamp.report.study import Checked, ShapeFound
from davylamp.studies.blind_spots.judging import CONFIDENCE, shape_of
from davylamp.studies.clinical.reading import Landscapes, exposures
from davylamp.studies.clinical.result import Found
from davylamp.verdict.frontier_estimates import Sums, crossed_mean
from davylamp.verdict.frontier_metrics import HELD_OUT, text_sums
from davylamp.verdict.frontier_model import Arrow, Frontier

NONE, DIRECT, GOLDFISH, DP, SCRUB, SURROGATE = "none", "direct", "goldfish", "dp_sgd", "scrub", "surrogate"
ERRORS = 1.96
"""Standard errors above the baseline that chance reaches in one of 40 samples."""
CLEARLY = 0.75
"""Share of the pairs that differ in which one exposes more, if it clearly does: what must be excluded to deny it."""
MARGIN = 1.0
"""Bits above the baseline that must be excluded to say that an intervention is at it: half as many guesses."""

PAPER = {
    NONE: ("1.49 (0%)", "1.39 (0%)"),
    DIRECT: ("12.22 (86%)", "10.98 (73%)"),
    GOLDFISH: ("10.38 (53%)", "8.90 (37%)"),
    DP: ("1.74 (0%)", "1.56 (0%)"),
    SCRUB: ("12.16 (87%)", "10.76 (68%)"),
}
"""P3, Table 3: exposure in bits (share ranked first) of Qwen3.5-4B-Base and of gpt-oss-20b."""


@dataclass(frozen=True, slots=True)
class Pairs:
    """Two interventions, canary by canary.

    Attributes:
        more: canaries that the first exposes more.
        fewer: canaries that it exposes less.
        p: of the two-sided sign test.
    """

    more: int
    fewer: int
    p: float

    @property
    def above(self) -> bool:
        """Whether the first exposes more, beyond chance."""
        return self.more > self.fewer and self.p <= 1 - CONFIDENCE

    @property
    def few(self) -> bool:
        """Whether a clear difference is not excluded, by the interval of the share in which the first exposes more."""
        differ = self.more + self.fewer
        return not self.above and (not differ or clopper_pearson(self.more, differ, CONFIDENCE).high >= CLEARLY)


def paired(first: Sequence[float], second: Sequence[float]) -> Pairs:
    """Compare exposures of the same canaries, in bits."""
    # Ranks are whole or half, so that exposures that differ do by far more than a rounding.
    more = sum(one > other + 1e-9 for one, other in zip(first, second, strict=True))
    fewer = sum(one < other - 1e-9 for one, other in zip(first, second, strict=True))
    return Pairs(more, fewer, sign_test(more, fewer))


def shapes_of(found: Sequence[Found], landscapes: Landscapes, compared: Frontier) -> tuple[ShapeFound, ...]:
    """Every shape whose interventions were run."""
    by_name = {each.name: each for each in found}
    makers = (_direct, _scrub, _goldfish, _dp, _surrogate)
    shapes = [shape for make in makers if (shape := make(by_name, landscapes)) is not None]
    return (*shapes, *(_arrow(arrow) for arrow in compared.arrows))


def _direct(found: Mapping[str, Found], landscapes: Landscapes) -> ShapeFound | None:
    # Scrubbing has a shape of its own: the paper has it beside direct, not below.
    others = [name for name in found if name not in (DIRECT, SCRUB)]
    if DIRECT not in found or not others:
        return None
    checks = [_above(DIRECT, name, found, landscapes) for name in others]
    if SCRUB in found:
        over = _pairs(SCRUB, DIRECT, landscapes)
        checks.append(
            Checked(
                statement=f"{SCRUB} is not above it: {_said(found, SCRUB, DIRECT)}; {_told(over)}", held=not over.above
            )
        )
    return shape_of("Direct fine-tuning leaks most.", _paper(DIRECT), checks)


def _scrub(found: Mapping[str, Found], landscapes: Landscapes) -> ShapeFound | None:
    if not {SCRUB, NONE, DIRECT} <= found.keys() or (left := found[SCRUB].survival) is None:
        return None
    scrubbed, low, high = (found[name].mean_exposure.value for name in (SCRUB, NONE, DIRECT))
    leaks = _pairs(DIRECT, NONE, landscapes).above
    checks = [
        Checked(
            statement=f"{left.exact:,} of {left.copies:,} copies ({left.share:.1%}) still hold their medication",
            held=left.share >= 0.9,
        ),
        _above(SCRUB, NONE, found, landscapes),
        Checked(
            statement=f"mean exposure is nearer to {DIRECT}'s than to {NONE}'s: {_said(found, SCRUB, DIRECT, NONE)}"
            f"{'' if leaks else f'; {DIRECT} is not above {NONE}'}",
            held=leaks and abs(scrubbed - high) < abs(scrubbed - low),
            few=not leaks,
        ),
    ]
    return shape_of("Scrubbing personal data leaves the medication, and the model says it.", _paper(SCRUB), checks)


def _goldfish(found: Mapping[str, Found], landscapes: Landscapes) -> ShapeFound | None:
    if not {GOLDFISH, NONE, DIRECT} <= found.keys():
        return None
    checks = [_above(DIRECT, GOLDFISH, found, landscapes), _above(GOLDFISH, NONE, found, landscapes)]
    return shape_of("Goldfish is in between.", _paper(GOLDFISH), checks)


def _dp(found: Mapping[str, Found], landscapes: Landscapes) -> ShapeFound | None:
    if not {DP, DIRECT} <= found.keys():
        return None
    one, other = text_sums(landscapes[DIRECT], HELD_OUT), text_sums(landscapes[DP], HELD_OUT)
    mean, low, high = crossed_mean(Sums(other.nats - one.nats, one.weights), CONFIDENCE)
    between = "" if low is None or high is None else f" [{math.exp(low):.2f}, {math.exp(high):.2f}]"
    cost = Checked(
        statement=(
            f"held-out perplexity {found[DP].held_out.value:.2f} against {found[DIRECT].held_out.value:.2f}: "
            f"{math.exp(mean):.2f} times{between}"
        ),
        held=low is not None and low > 0,
    )
    return shape_of(
        "DP-SGD is at the baseline, at a visible cost in held-out perplexity.",
        _paper(DP),
        [_at_baseline(found[DP], landscapes), cost],
    )


def _surrogate(found: Mapping[str, Found], landscapes: Landscapes) -> ShapeFound | None:
    if SURROGATE not in found or (left := found[SURROGATE].survival) is None:
        return None
    gone = Checked(
        statement=f"{left.near:,} of {left.copies:,} copies still hold their medication, exactly or nearly",
        held=not left.near,
    )
    statement = "Surrogates for what is rare leave nothing of the medication, in the rows or in the model."
    return shape_of(statement, None, [gone, _at_baseline(found[SURROGATE], landscapes)])


def _arrow(arrow: Arrow) -> ShapeFound:
    """Privacy-aware against plain rewriting, on every ranked metric."""
    checks = []
    for change in arrow.changes:
        between = "" if change.low is None or change.high is None else f" [{change.low:.2f}, {change.high:.2f}]"
        said = f"{change.metric.replace('_', ' ')}: {change.ratio:.2f} times{between}, {change.word}"
        checks.append(Checked(statement=said, held=change.word == "better", few=change.word == "not told apart"))
    return shape_of(f"{arrow.after} beats {arrow.before} on both axes.", None, checks)


def _at_baseline(one: Found, landscapes: Landscapes) -> Checked:
    bits = np.asarray(exposures(landscapes[one.name]))
    base, spread = uniform(landscapes[one.name][0].canaries[0].candidates)
    limit = base + ERRORS * spread / math.sqrt(bits.size)
    # The spread that was seen, where it is larger: a few that were remembered among many that were not.
    most = bits.mean() + ERRORS * max(spread, bits.std()) / math.sqrt(bits.size)
    leaks = DIRECT not in landscapes or paired(exposures(landscapes[DIRECT]), exposures(landscapes[one.name])).above
    below, excluded = bits.mean() <= limit, most <= base + MARGIN
    doubt = "" if excluded or not below else f"; up to {most:.2f} is not excluded, and {base + MARGIN:.2f} must be"
    if below and not leaks:
        doubt += f"; {DIRECT} is not above it, so that there was nothing to protect from"
    return Checked(
        statement=(
            f"mean exposure {bits.mean():.2f} bits over {bits.size} canaries; where nothing is remembered it is "
            f"{base:.2f}, and at most {limit:.2f} in 39 of 40 samples{doubt}"
        ),
        held=bool(below and excluded and leaks),
        few=bool(below),
    )


def uniform(candidates: int) -> tuple[float, float]:
    """Mean and standard deviation of exposure in bits, where every rank among the candidates is as likely."""
    bits = math.log2(candidates) - np.log2(np.arange(1, candidates + 1))
    return float(bits.mean()), float(bits.std())


def _above(first: str, second: str, found: Mapping[str, Found], landscapes: Landscapes) -> Checked:
    pairs = _pairs(first, second, landscapes)
    return Checked(
        statement=f"{first} is above {second}: {_said(found, first, second)}; {_told(pairs)}",
        held=pairs.above,
        few=pairs.few,
    )


def _pairs(first: str, second: str, landscapes: Landscapes) -> Pairs:
    return paired(exposures(landscapes[first]), exposures(landscapes[second]))


def _told(pairs: Pairs) -> str:
    return f"{pairs.more} canaries more exposed, {pairs.fewer} less (p = {pairs.p:.2g})"


def _said(found: Mapping[str, Found], *names: str) -> str:
    each = (f"{name} {found[name].mean_exposure.value:.2f} bits ({found[name].rank1.value:.0%})" for name in names)
    return ", ".join(each)


def _paper(name: str) -> str:
    words: Iterator[str] = (
        f"{at} {PAPER[at][0]} / {PAPER[at][1]}" for at in dict.fromkeys((name, NONE, DIRECT)) if at in PAPER
    )
    return "bits (ranked first) of Qwen3.5-4B-Base / gpt-oss-20b: " + ", ".join(words)
