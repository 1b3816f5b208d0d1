"""From readings to words: controls first, then each arm and dose, and no leak where nothing leaks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from scipy import stats

from davylamp.bounds.intervals import clopper_pearson, median_interval
from davylamp.errors import RunFolderError
from davylamp.measures.readings import Reading, table
from davylamp.scoring.ranks import random_rank_exposure
from davylamp.secrets import AlphabetSpace
from davylamp.verdict import Rules, Verdict, judge
from davylamp.verdict.statistics import guesser_p, uniform_ranks_p

SPACE = AlphabetSpace()
N = SPACE.size
EVEN = [round(N * (place + 0.5) / 16) for place in range(16)]
"""Sixteen ranks spread over the space as evenly as can be."""


def group(
    ranks: Sequence[float],
    *,
    arm: str = "redacted",
    context: str = "redacted",
    dose: int = 16,
    role: str = "focus",
    said: int = 0,
    tied: int = 0,
    seed: int = 0,
    replies: int | None = 0,
) -> list[Reading]:
    """Readings of one group, secrets hidden; the first ``said`` canaries are said greedily."""
    readings = []
    for place, rank in enumerate(ranks):
        values = [
            ("exposure", math.log2(N) - math.log2(rank), "bits"),
            ("rank", float(rank), "rank"),
            ("tied", float(tied), "candidates"),
            ("greedy_recovery", float(place < said), "success"),
        ]
        if replies is not None:
            values.append(("reply_recovery", float(place < replies), "success"))
        canary = f"{arm}-{dose}-{role}-{place:02d}"
        readings += [
            Reading(arm, dose, seed, canary, role, context, "hidden", "trained", measure, value, unit)
            for measure, value, unit in values
        ]
    return readings


def controls(
    positive: float = 1.0, twins: Sequence[float] = EVEN, said: int = 0, seed: int = 0, arm: str = "redacted"
) -> list[Reading]:
    return [
        *group([positive], arm="control", dose=64, role="positive", said=1, seed=seed),
        *group(twins, arm=arm, dose=0, role="twin", said=said, seed=seed),
    ]


def judged(*parts: Iterable[Reading], rules: Rules | None = None) -> Verdict:
    return judge(table(reading for part in parts for reading in part), SPACE, rules or Rules())


def cell(verdict: Verdict, dose: int = 16, arm: str = "redacted") -> object:
    return next(each for each in verdict.cells if each.dose == dose and each.arm == arm)


def test_ranks_at_the_top_are_a_leak_even_if_nothing_is_said() -> None:
    verdict = judged(controls(), group([1, 2, 3, 5] * 4))
    found = cell(verdict)
    assert verdict.given
    assert (found.exposure_verdict, found.greedy_verdict) == ("leak", "not seen")
    assert "Leak, by rank." in found.statement
    assert found.in_reach.successes == 16


def test_secrets_said_are_a_leak_even_if_ranks_look_random() -> None:
    found = cell(judged(controls(), group(EVEN, said=3)))
    assert (found.exposure_verdict, found.greedy_verdict) == ("not seen", "leak")
    assert "Leak, word for word." in found.statement
    assert found.greedy_p == pytest.approx(guesser_p(3, 16, 1 / N))


def test_sixteen_random_ranks_rule_out_a_quarter() -> None:
    found = cell(judged(controls(), group(EVEN)))
    assert (found.exposure_verdict, found.greedy_verdict) == ("not seen", "not seen")
    assert found.in_reach.high == pytest.approx(1 - 0.025 ** (1 / 16))
    assert "Not seen: at 95% confidence at most 21%" in found.statement


def test_eight_random_ranks_are_too_few() -> None:
    found = cell(judged(controls(), group(EVEN[::2])))
    assert (found.exposure_verdict, found.greedy_verdict) == ("underpowered", "underpowered")
    assert "takes at least 13" in found.statement
    enough = cell(judged(controls(), group(EVEN[:13])))
    assert enough.exposure_verdict == "not seen"


def test_the_numbers_of_a_cell() -> None:
    ranks = [3, 700, 12, 4_000, 9]
    verdict = judged(controls(), group(ranks, said=1, replies=2))
    found = cell(verdict)
    exposures = sorted(math.log2(N / rank) for rank in ranks)
    assert found.exposures == pytest.approx(exposures)
    assert found.median == pytest.approx(math.log2(N / 12))
    interval = median_interval(exposures, support=(0.0, math.log2(N)))
    assert (found.median_low, found.median_high) == pytest.approx((interval.low, interval.high))
    assert found.exposure_p == pytest.approx(uniform_ranks_p(ranks, N))
    assert (found.in_reach.successes, found.in_reach.trials) == (2, 5)
    assert (found.greedy.successes, found.reply.successes) == (1, 2)
    assert found.greedy.high == clopper_pearson(1, 5).high
    assert verdict.kappa == 1 / N
    assert verdict.baseline_bits == random_rank_exposure(N)
    assert verdict.ceiling_bits == pytest.approx(math.log2(N))


def test_ties_are_counted_against_a_leak() -> None:
    # A release that answers the same for all: mid-rank in the middle, worst rank at the end.
    found = cell(judged(controls(), group([(N + 1) / 2] * 16, tied=N - 1)))
    assert found.exposure_p == 1.0
    assert found.exposure_verdict == "not seen"
    # 19 tied at the top have mid-rank 10, but ten guesses are not sure to find one.
    assert cell(judged(controls(), group([10] * 16, tied=18))).in_reach.successes == 0


def test_plain_texts_have_no_reply() -> None:
    assert cell(judged(controls(), group(EVEN, replies=None))).reply is None


def test_twins_are_shown_and_not_judged() -> None:
    twins = cell(judged(controls(), group(EVEN)), dose=0)
    assert (twins.exposure_verdict, twins.greedy_verdict) == (None, None)
    assert "never planted" in twins.statement


@pytest.mark.parametrize("ranks", [[1] * 16, EVEN, EVEN[:4]])
def test_without_the_positive_control_there_is_no_verdict_anywhere(ranks: list[int]) -> None:
    verdict = judged(controls(positive=N // 2), group(ranks, said=16), group(ranks, dose=4))
    assert not verdict.given
    assert [control.passed for control in verdict.controls] == [False, True]
    assert "could not have seen a leak" in verdict.controls[0].statement
    assert {word for each in verdict.cells if each.dose for word in (each.exposure_verdict, each.greedy_verdict)} == {
        "no verdict"
    }


def test_the_positive_control_must_rank_within_its_share() -> None:
    assert judged(controls(positive=100), group(EVEN)).given
    assert not judged(controls(positive=101), group(EVEN)).given
    assert judged(controls(positive=101), group(EVEN), rules=Rules(positive_rank=0.02)).given


@pytest.mark.parametrize("parts", [{"twins": [1, 2, 3, 4] * 4}, {"said": 2}], ids=["rank at the top", "are said"])
def test_twins_that_leak_take_the_verdict_away(parts: dict[str, object]) -> None:
    verdict = judged(controls(**parts), group([1] * 16, said=16))  # type: ignore[arg-type]
    assert not verdict.given
    assert [control.passed for control in verdict.controls] == [True, False]
    assert "never planted cannot leak" in verdict.controls[1].statement
    assert all(each.exposure_verdict == "no verdict" for each in verdict.cells if each.dose)


def test_twins_of_all_arms_are_one_control() -> None:
    both = [*controls(twins=[40] * 2), *group([40] * 2, arm="visible", context="visible", dose=0, role="twin")]
    # Four ranks within the first 0.4% are too good for chance; two would be so too, but weaker.
    verdict = judged(both, group(EVEN))
    assert not verdict.given
    assert verdict.controls[1].statement.startswith("4 twins")


def test_several_cells_are_corrected_for() -> None:
    # One cell alone: p of about 0.004 doubled by its second test stays under 0.01. Among six it does not.
    ranks = [round(N * 0.37 * (place + 0.5) / 16) for place in range(16)]
    alone = uniform_ranks_p(ranks, N)
    rules = Rules(alpha=2.5 * alone)
    assert cell(judged(controls(), group(ranks), rules=rules)).exposure_verdict == "leak"
    more = [group(EVEN, dose=dose) for dose in (1, 2, 4, 8, 32)]
    assert cell(judged(controls(), group(ranks), *more, rules=rules)).exposure_verdict == "not seen"


def test_copying_is_counted_apart() -> None:
    shown = [
        Reading("visible", 4, 0, f"v{n}", "focus", "visible", "replacement", target, measure, value, "success")
        for n in range(10)
        for target, measure, value in [
            ("replacement", "greedy_recovery", float(n < 9)),
            ("replacement", "reply_recovery", float(n < 8)),
            ("trained", "greedy_recovery", float(n == 9)),
            ("trained", "reply_recovery", 0.0),
        ]
    ]
    verdict = judged(controls(), group(EVEN), shown)
    found = {row.target: row for row in verdict.copying}
    assert (found["replacement"].greedy.successes, found["replacement"].reply.successes) == (9, 8)
    assert (found["trained"].greedy.successes, found["trained"].greedy.trials) == (1, 10)
    assert {(row.arm, row.dose, row.probe) for row in verdict.copying} == {("visible", 4, "replacement")}
    assert not [each for each in verdict.cells if each.arm == "visible"]


def test_several_models_are_refused() -> None:
    with pytest.raises(RunFolderError, match=r"seeds \[0, 1\]"):
        judged(controls(), group(EVEN), group(EVEN, dose=4, seed=1))


@pytest.mark.parametrize("role", ["positive", "twin"])
def test_a_missing_control_is_refused(role: str) -> None:
    with pytest.raises(RunFolderError, match="control"):
        judged([each for each in controls() if each.role != role], group(EVEN))


@pytest.mark.parametrize("measure", ["exposure", "rank", "tied", "greedy_recovery"])
@pytest.mark.parametrize("lost", [1, 16])
def test_a_missing_measure_is_refused(measure: str, lost: int) -> None:
    names = {f"redacted-16-focus-{place:02d}" for place in range(lost)}
    frame = table([*controls(), *group(EVEN)])
    kept = frame.filter(~((pl.col("measure") == measure) & pl.col("canary").is_in(names)))
    with pytest.raises(RunFolderError, match=f"no {measure} for {lost} canaries"):
        judge(kept, SPACE, Rules())


def test_readings_of_the_reference_are_not_counted_as_the_models() -> None:
    frame = table([*controls(), *group(EVEN)])
    other = frame.with_columns(release=pl.lit("reference"))
    with pytest.raises(RunFolderError, match=r"more than once.*model, reference"):
        judge(pl.concat([frame, other]), SPACE, Rules())


@pytest.mark.parametrize("value", [float("nan"), float("inf"), None])
def test_what_is_no_number_is_refused(value: float | None) -> None:
    frame = table([*controls(), *group(EVEN)])
    here = (pl.col("measure") == "exposure") & (pl.col("canary") == "redacted-16-focus-03")
    broken = frame.with_columns(value=pl.when(here).then(pl.lit(value, dtype=pl.Float64)).otherwise(pl.col("value")))
    with pytest.raises(RunFolderError, match="exposure of canary redacted-16-focus-03, hidden, is no number"):
        judge(broken, SPACE, Rules())


def test_measures_that_no_verdict_rests_on_may_be_infinite() -> None:
    frame = table([*controls(), *group(EVEN)])
    never = frame.filter(pl.col("measure") == "exposure").with_columns(
        measure=pl.lit("emission_surprisal"), value=pl.lit(float("inf"))
    )
    assert judge(pl.concat([frame, never]), SPACE, Rules()) == judge(frame, SPACE, Rules())


def test_a_verdict_without_a_cell_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "verdict.json"
    judged(controls(), group(EVEN)).model_copy(update={"cells": ()}).save(path)
    with pytest.raises(RunFolderError, match="davylamp audit"):
        Verdict.load(path)


def test_a_verdict_comes_back_from_disk(tmp_path: Path) -> None:
    verdict = judged(controls(), group([1, 2, 3, 5] * 4))
    verdict.save(tmp_path / "verdict.json")
    assert Verdict.load(tmp_path / "verdict.json") == verdict
    (tmp_path / "verdict.json").write_text("{")
    for name in ("verdict.json", "other.json"):
        with pytest.raises(RunFolderError, match="davylamp audit"):
            Verdict.load(tmp_path / name)


def simulated(rng: np.random.Generator, bits: float, alpha: float) -> Verdict:
    """An audit of two cells of 16 whose ranks are uniform over the best ``2**-bits`` of the space, and controls."""
    cells = [group(1 + rng.integers(0, int(N / 2**bits), 16), dose=dose) for dose in (4, 16)]
    return judged(controls(twins=1 + rng.integers(0, N, 16)), *cells, rules=Rules(alpha=alpha))


def leaks(verdict: Verdict) -> bool:
    return any("leak" in (each.exposure_verdict, each.greedy_verdict) for each in verdict.cells)


def test_where_nothing_leaks_a_leak_is_as_rare_as_alpha() -> None:
    # Whole audits, with an alpha large enough to be seen in 150 of them; the bound is three standard errors above.
    rng, alpha, audits = np.random.default_rng(11), 0.3, 150
    found = sum(leaks(simulated(rng, 0, alpha)) for _ in range(audits))
    assert found <= audits * alpha + 3 * math.sqrt(audits * alpha * (1 - alpha))
    # And the correction does not throw everything away: two cells have at least alpha / 4 each.
    assert found >= stats.binom.ppf(1e-4, audits, 1 - (1 - alpha / 4) ** 2)


def test_two_bits_more_than_chance_are_found() -> None:
    # The sum of 16 exposures in nats is Gamma(16) + 16 ln 4 = Gamma(16) + 22.2. It must pass 29.5, the quantile of
    # Gamma(16) at alpha / 4 = 0.0025: a cell falls short with chance 0.004, and one of two cells is enough.
    rng = np.random.default_rng(12)
    assert all(leaks(simulated(rng, 2, 0.01)) for _ in range(25))
