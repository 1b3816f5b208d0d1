"""What the frontier's page says and how it writes numbers: plainly, in one notation, and no more than was measured."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from davylamp.bounds.intervals import least_for_median
from davylamp.measures.landscape.model import Landscape
from davylamp.report.frontier_numbers import written
from davylamp.report.frontier_words import disagreement
from davylamp.report.html import render_comparison
from davylamp.report.text import digits
from davylamp.verdict.frontier import frontier
from davylamp.verdict.frontier_metrics import METRICS
from davylamp.verdict.frontier_model import Estimate, Frontier
from support.landscapes import Way, landscape, study

QUICK = 100
BY_KEY = {metric.key: metric for metric in METRICS}


def words(found: Frontier) -> str:
    """The page's text without its tags, with single spaces."""
    page = render_comparison(found, "runs", "frontier.json")
    text = re.sub(r"<(style|svg).*?</\1>", " ", page, flags=re.S)
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", text)).split())


def small(each: int, names: Sequence[str] = ("none", "direct", "scrub")) -> Frontier:
    """A frontier of so many canaries of each of two doses, and as many twins."""
    runs = [(name, landscape(name, 0, doses=(1, 16), each=each)) for name in names]
    return frontier(runs, resamples=QUICK)


@pytest.fixture(scope="module")
def three() -> Frontier:
    return small(7)


def test_what_is_beaten_is_said_plainly() -> None:
    found = frontier(study(("none", "direct", "goldfish", "dp_sgd", "scrub"), (0,)), resamples=QUICK)
    front = found.front("capability", "privacy")
    assert front is not None
    beaten = [row.intervention for row in found.rows if row.intervention not in front.members]
    assert beaten
    said = words(found)
    assert f"Beaten by another: {', '.join(beaten)}." in said
    each = "Some" if len(beaten) == 1 else "For each of them some"
    assert f"{each} other intervention has mean ranks at least as good on both sides, and better on one." in said


@pytest.mark.parametrize("count", [1, 2, 3])
def test_why_there_is_no_correlation_is_readable(count: int) -> None:
    said = words(small(7, ("none", "direct", "scrub")[:count]))
    assert f"No correlation is given: a rank correlation takes at least 4, not {count}." in said
    assert "of the at least" not in said
    assert "Where nothing stands" not in said


def test_a_single_thing_is_said_as_one() -> None:
    runs = [(name, landscape(name, 0, doses=(16,), each=1)) for name in ("none", "direct")]
    said = words(frontier(runs, resamples=QUICK))
    assert "; seed 0; canaries of dose 16 together" in said
    assert "dose 0 (1 twin), dose 16 (1 canary)" in said
    assert not re.search(r"\b1 (canaries|twins|seeds|secrets|interventions|pairs|records|occurrences)\b", said)


@pytest.mark.parametrize(("each", "confidence"), [(5, 0.95), (6, 0.95), (4, 0.9), (5, 0.9)])
def test_medians_of_few_canaries_have_no_interval_and_say_why(each: int, confidence: float) -> None:
    runs = [(name, landscape(name, 0, doses=(1, 16), each=each)) for name in ("none", "direct")]
    found = frontier(runs, confidence=confidence, resamples=QUICK)
    least = least_for_median(confidence)
    said = f"Fewer than {least} canaries have no {confidence:.0%} interval of a median."
    assert (said in words(found)) == (each < least)
    for row in found.rows:
        for dose in row.doses:
            assert (dose.values["exposure"].low is None) == (each < least)
            assert dose.values["rank1_share"].low is not None
    page = render_comparison(found, "runs", "frontier.json")
    drawing = next(each for each in re.findall(r"<svg.*?</svg>", page, re.S) if 'id="dose-exposure-wide-t"' in each)
    assert ("whisker" in drawing) == (each >= least)


def test_numbers_of_canaries_stand_above_their_doses(three: Frontier) -> None:
    assert "0 (twins) n 7" in words(three)


@given(
    key=st.sampled_from(list(BY_KEY)),
    ends=st.tuples(*[st.floats(0, 1)] * 3).map(sorted),
    size=st.sampled_from([-30, -9, -4, -2, 0, 2, 3, 6, 9, 300]),
)
def test_a_cell_has_one_notation(key: str, ends: list[float], size: int) -> None:
    metric = BY_KEY[key]
    if metric.unit.startswith("perplexity"):
        low, value, high = (1 + each * 10.0**size for each in ends)
    else:
        low, value, high = (each * 10.0 ** min(size, 0) * (12 if metric.unit == "bits" else 1) for each in ends)
    cell = written(metric, Estimate(value=value, low=low, high=high, n=9, seeds=1))
    parts = [cell[0], *cell[1][1:-1].split(", ")]
    assert len({"%" in part for part in parts}) == 1
    powers = ["e" in part for part in parts if not re.fullmatch("[0-9]", part)]
    assert len({*powers}) <= 1
    assert not any(re.search(r"e\+|e-?0\d|nan|inf", part) for part in parts)
    # A decimal that is cut says so; nothing is written as 0 that is not.
    for part, exact in zip(parts, (value, low, high), strict=True):
        if part in ("0", "0%"):
            assert exact == 0
        elif not part.startswith((">", "<")) and metric.unit != "bits":
            number = float(part.rstrip("%").replace(",", "")) / (100 if "%" in part else 1)
            # A digit in powers of ten and of a small probability, a whole percent otherwise.
            assert number == pytest.approx(exact, rel=0.34, abs=0.0051 if "%" in part else 0)


@pytest.mark.parametrize(
    ("value", "said"),
    [(483.2, "483"), (8283.4, "8,283"), (999.7, "1,000"), (12.345, "12.3"), (1.5e9, "1.50e9"), (0.00001234, "1.23e-5")],
)
def test_large_numbers_are_written_out(value: float, said: str) -> None:
    assert digits(value) == said


def test_capability_comes_before_the_privacy_metrics(three: Frontier) -> None:
    page = render_comparison(three, "runs", "frontier.json")
    head = re.search(r"<thead>.*?</thead>", page, re.S)
    assert head is not None
    order = [head[0].index(title) for title in ("mean rank", ">capability</th><th", ">privacy</th></tr>")]
    assert order == sorted(order)
    titles = [head[0].index(f">{metric.title}<") for metric in METRICS]
    assert max(titles[6:]) < min(titles[:6])


def _leaking(name: str, bits: float, perplexity: float) -> Landscape:
    """A model all of whose canaries have the same exposure and the same nats a token."""
    one = landscape("direct", 0, Way(0.5, 0.1), doses=(16,), each=8)
    leaks = [
        leak.model_copy(
            update={
                "exposure": bits,
                "verbatim": perplexity * leak.tokens,
                "semantic": perplexity * leak.semantic_tokens,
            }
        )
        for leak in one.canaries
    ]
    return one.model_copy(update={"canaries": tuple(leaks), "intervention": name})


def test_where_exposure_and_perplexities_disagree_a_pair_is_named() -> None:
    # Direct has remembered; scrub has not, but spells secrets better.
    runs = [_leaking("none", 1, 9), _leaking("direct", 9, 6), _leaking("scrub", 4, 4)]
    found = frontier([(each.intervention, each) for each in runs], resamples=QUICK)
    first, plain = disagreement(found)
    assert first.startswith("By exposure direct gives away more than scrub (9.00 [9.00, 9.00] bits against 4.00")
    assert "by the mean rank of perplexities less (2.0 [2.0, 2.0] against 1.0 [1.0, 1.0])" in first
    assert first.endswith("The two disagree on 1 of 3 pairs.")
    assert "go by exposure" in plain
    assert "chance" not in first
    assert first in words(found)


def test_a_disagreement_that_may_be_chance_says_so(three: Frontier) -> None:
    rows = [
        row.model_copy(update={"values": {**row.values, "exposure": Estimate(value=bits, low=0, high=9, n=9, seeds=1)}})
        for row, bits in zip(three.rows, (1.2, 1.1, 1.0), strict=True)
    ]
    first, _ = disagreement(three.model_copy(update={"rows": tuple(rows)}))
    assert first.endswith("Their intervals of exposure overlap: the difference may be one of chance.")


def test_where_they_agree_nothing_is_said() -> None:
    runs = [_leaking("none", 1, 9), _leaking("direct", 9, 2), _leaking("scrub", 4, 4)]
    found = frontier([(each.intervention, each) for each in runs], resamples=QUICK)
    assert disagreement(found) == ()
    assert disagreement(frontier([("a", runs[0])], resamples=QUICK)) == ()
