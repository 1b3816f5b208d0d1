"""The paired comparison: counts, the sign test, the two intervals, and what it refuses to compare."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from davylamp.bounds.intervals import bootstrap_median_interval, median_interval, sign_test
from davylamp.errors import InputError
from davylamp.measures.paired import TIE, Paired, PairedGroup, paired, paired_readings
from davylamp.measures.readings import Reading, table

FINITE = st.floats(-50, 50)
# Halves: differences are exact, and ties are common.
COARSE = st.integers(-8, 8).map(lambda half: half / 2)


def faults_of(*args: object, **settings: object) -> list[str]:
    with pytest.raises(InputError) as caught:
        paired(*args, **settings)  # type: ignore[arg-type]
    return [fault.field for fault in caught.value.faults]


# By hand


def test_eight_pairs_by_hand() -> None:
    found = paired([0, 0, 0, 0, 0, 0, 0, 5], [1, 2, 3, 4, 5, 6, 7, 4])
    assert (found.n, found.rises, found.falls, found.ties) == (8, 7, 1, 0)
    # Differences -1, 1, 2, 3, 4, 5, 6, 7.
    assert found.median == 3.5
    # 2 * (1 + 8) / 2^8.
    assert found.p == pytest.approx(18 / 256)
    # One value beyond either end: 2 * 1 / 2^8 is below 0.05, and 2 * 9 / 2^8 is not.
    assert (found.exact_low, found.exact_high) == (-1, 7)
    assert found.low <= found.median <= found.high
    assert (found.confidence, found.unit, found.what, found.groups) == (0.95, "bits", "exposures", ())


def test_ties_are_dropped_from_the_test_and_kept_in_the_median() -> None:
    found = paired([1.0] * 9, [1.0, 1.0, 1.0, 1.0, 2.0, 3.0, 4.0, 5.0, 0.5])
    assert (found.rises, found.falls, found.ties) == (4, 1, 4)
    # 2 * (1 + 5) / 2^5.
    assert found.p == pytest.approx(12 / 32)
    assert found.median == 0


def test_what_rounding_leaves_is_a_tie_and_half_a_rank_is_none() -> None:
    # The same exposure by two routes, and two mid-ranks next to each other at the end of the largest candidate set.
    routes = math.log2(1_000_000) - math.log2(26), math.log2(1_000_000 / 26)
    assert routes[0] != routes[1]
    found = paired([routes[0], math.log2(1_000_000)], [routes[1], math.log2(999_999.5)])
    assert (found.rises, found.falls, found.ties) == (0, 1, 1)
    assert paired([routes[0]], [routes[1]]).median == 0
    assert paired([0.0, 0.0], [TIE, -2 * TIE]).falls == 1
    assert paired([0.0, 0.0], [TIE, -2 * TIE], tolerance=0).ties == 0
    assert paired([0.0, 0.0, 0.0], [0.1, -0.1, 0.2], tolerance=0.1).ties == 2


def test_groups_are_broken_down_in_the_order_of_their_first_pair() -> None:
    found = paired([0, 0, 0, 0, 0], [1, -2, 3, 0, 8], groups=[7, 3, 7, 3, 3])
    assert found.groups == (PairedGroup(7, 2, 2, 0, 0, 2.0), PairedGroup(3, 3, 1, 1, 1, 0.0))
    assert replace(found, groups=()) == paired([0, 0, 0, 0, 0], [1, -2, 3, 0, 8])


# The statement


def state(**changes: object) -> str:
    whole = Paired(96, 87, 9, 0, 3.12, 2.5, 3.8, 2.4, 3.9, sign_test(87, 9), 0.95, "bits")
    return replace(whole, **changes).statement  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "87 of 96 exposures rise (sign test p = 3.6e-17), paired median +3.12 bits [95%: +2.40, +3.90]"),
        (
            {"rises": 9, "falls": 87, "median": -3.12, "exact_low": -3.9, "exact_high": -2.4},
            "87 of 96 exposures fall (sign test p = 3.6e-17), paired median -3.12 bits [95%: -3.90, -2.40]",
        ),
        (
            {"rises": 80, "falls": 9, "ties": 7, "p": 0.5},
            "80 of 96 exposures rise, 9 fall, 7 are tied (sign test p = 0.5), "
            "paired median +3.12 bits [95%: +2.40, +3.90]",
        ),
        (
            {"rises": 1, "falls": 94, "ties": 1, "p": 0.5, "what": "ranks", "unit": ""},
            "94 of 96 ranks fall, 1 rises, 1 is tied (sign test p = 0.5), paired median +3.12 [95%: +2.40, +3.90]",
        ),
        (
            {"rises": 48, "falls": 48, "p": 1.0, "median": 0.001, "exact_low": -0.5, "exact_high": 0.5},
            "48 of 96 exposures rise, 48 fall (sign test p = 1), paired median +0.001 bits [95%: -0.50, +0.50]",
        ),
        (
            {"rises": 95, "falls": 0, "ties": 1, "p": 0.0, "confidence": 0.999},
            "95 of 96 exposures rise, 1 is tied (sign test p < 1e-300), paired median +3.12 bits [99.9%: +2.40, +3.90]",
        ),
    ],
)
def test_the_statement_says_what_was_counted(changes: dict[str, object], said: str) -> None:
    assert state(**changes) == said


def test_the_statement_of_ties_and_of_few_pairs() -> None:
    tied = "6 of 6 exposures are tied, paired median 0.00 bits [95%: 0.00, 0.00]"
    assert paired([13.29] * 6, [13.29] * 6).statement == tied
    few = "3 of 3 exposures rise (sign test p = 0.25), paired median +2.00 bits"
    assert paired([0, 0, 0], [1, 2, 3]).statement == f"{few} [no 95% interval from 3 pairs, it takes 6]"
    one = "1 of 1 exposures rises (sign test p = 1), paired median +1.00 bits"
    assert paired([0], [1]).statement == f"{one} [no 95% interval from 1 pair, it takes 6]"


@pytest.mark.parametrize("confidence", [0.5, 0.8, 0.9, 0.9375, 0.95, 0.99, 0.999])
def test_the_number_of_pairs_that_an_interval_takes_is_true(confidence: float) -> None:
    said = paired([0], [1], confidence=confidence, resamples=4000).statement
    needed = int(said.split("it takes ")[1].rstrip("]")) if "it takes" in said else 1
    ramp = np.arange(1.0, needed + 1)
    assert math.isfinite(median_interval(ramp, confidence).low)
    assert needed == 1 or math.isinf(median_interval(ramp[1:], confidence).low)


# The sign test


@given(st.integers(0, 400), st.integers(0, 400))
def test_sign_test_agrees_with_scipy(rises: int, falls: int) -> None:
    expected = stats.binomtest(rises, rises + falls).pvalue if rises + falls else 1.0
    assert sign_test(rises, falls) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("signs", [1, 2, 5, 6, 16, 31, 96])
def test_the_chance_of_a_p_value_under_no_difference_is_at_most_itself(signs: int) -> None:
    chances = stats.binom.pmf(np.arange(signs + 1), signs, 0.5)
    p = np.asarray([sign_test(rises, signs - rises) for rises in range(signs + 1)])
    for level in np.unique(p):
        # An attained level is kept with equality: the test is exact, not merely cautious.
        assert chances[p <= level + 1e-12].sum() == pytest.approx(level)


def test_null_comparisons_are_rejected_no_more_often_than_stated() -> None:
    # Signs are fair whatever the scale, with or without ties: a third of the pairs is tied, the others differ by a
    # heavy-tailed amount of a scale of their own. Of 4,000 at 5% at most 0.05 + 3 * 0.0034 may be rejected.
    rng = np.random.default_rng(5)
    first = rng.normal(size=(4000, 24))
    step = rng.standard_cauchy(size=first.shape) * rng.exponential(size=first.shape)
    second = np.where(rng.random(first.shape) < 1 / 3, first, first + step)
    p = np.asarray([paired(a, b, resamples=40).p for a, b in zip(first, second, strict=True)])
    for level in (0.01, 0.05, 0.2):
        error = math.sqrt(level * (1 - level) / len(p))
        assert (p <= level).mean() <= level + 3 * error
    # And it can see: half a step more in one direction.
    assert paired(first[0], first[0] + np.abs(step[0]), resamples=40).p == pytest.approx(2 * 0.5**24)


@pytest.mark.parametrize(("rises", "falls", "names"), [(-1, 2, ["rises"]), (0.5, -2, ["rises", "falls"])])
def test_sign_test_refuses_what_is_no_count(rises: int, falls: int, names: list[str]) -> None:
    with pytest.raises(InputError) as caught:
        sign_test(rises, falls)
    assert [fault.field for fault in caught.value.faults] == names


# The exact interval


@settings(deadline=None)
@given(st.lists(FINITE.filter(lambda x: abs(x) > 1e-6), min_size=1, max_size=40), st.sampled_from([0.8, 0.95, 0.99]))
def test_the_exact_interval_inverts_the_sign_test(differences: list[float], confidence: float) -> None:
    found = paired([0.0] * len(differences), differences, confidence=confidence, resamples=400)
    assert (found.exact_low > 0 or found.exact_high < 0) == (found.p <= 1 - confidence)


@pytest.mark.parametrize(("size", "confidence"), [(6, 0.95), (8, 0.9), (16, 0.95), (31, 0.99)])
def test_the_exact_interval_covers_at_least_what_it_states(size: int, confidence: float) -> None:
    # Three differences with median 0: skewed, heavy-tailed, and of whole numbers with many ties. The share of 2,000
    # errs by sqrt(c (1 - c) / 2000) where it covers c; three of those are allowed.
    rng = np.random.default_rng(size)
    samples = {
        "skewed": rng.exponential(size=(2000, size)) - math.log(2),
        "heavy": rng.standard_cauchy(size=(2000, size)),
        "tied": rng.integers(-2, 3, size=(2000, size)).astype(float),
    }
    error = math.sqrt(confidence * (1 - confidence) / 2000)
    for name, rows in samples.items():
        intervals = [median_interval(row, confidence) for row in rows]
        share = sum(each.low <= 0 <= each.high for each in intervals) / len(rows)
        assert share >= confidence - 3 * error, name


# The bootstrap


def stream_of(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.mark.parametrize("size", [2, 4, 5, 8, 16, 33, 96])
def test_bootstrap_agrees_with_scipy(size: int) -> None:
    # Ends are compared by the share of resampled medians below them, as many values lie far from their neighbours. A
    # share s errs by sqrt(s (1 - s) / draws), with 20,000 draws on either side; four of those together are allowed.
    values = np.random.default_rng(size).exponential(size=size)
    oracle = stats.bootstrap((values,), np.median, n_resamples=20_000, method="percentile", rng=stream_of(1))
    medians = np.sort(oracle.bootstrap_distribution)
    for confidence in (0.95, 0.8, 0.6, 0.4, 0.2):
        found = bootstrap_median_interval(values, stream_of(2), confidence, 20_000)
        tail = (1 - confidence) / 2
        allowed = 4 * math.sqrt(tail * (1 - tail) * 2 / 20_000)
        for end, share in ((found.low, tail), (found.high, 1 - tail)):
            low, high = np.quantile(medians, [share - allowed, share + allowed], method="inverted_cdf")
            assert low - 1e-12 <= end <= high + 1e-12, confidence


def test_bootstrap_of_four_values_by_hand() -> None:
    # Both middle values are 0 or 1 just if three or four of the resample are: 5 in 16. Next comes their mean of 0 and
    # 10: two of each kind, both small ones 0, not both large ones 100: 6/16 * 1/4 * 3/4. So 5/16 divides 1 from 5.
    values = [0.0, 1.0, 10.0, 100.0]
    assert bootstrap_median_interval(values, stream_of(1), 1 - 2 * 0.30).low == 1.0
    assert bootstrap_median_interval(values, stream_of(1), 1 - 2 * 0.33).low == 5.0


@pytest.mark.parametrize("size", [1, 3, 7, 31, 95])
def test_bootstrap_of_an_odd_number_follows_its_exact_law(size: int) -> None:
    # The median of a resample is at most the j-th smallest value with chance P(binomial(n, j / n) > n / 2) (Efron
    # 1979, section 3). In all of these j has a law that is 3 standard errors (0.0016 each) from the tail, or j is free
    # to be one of the two that are nearer.
    values = np.arange(1.0, size + 1)
    law = stats.binom.sf(size // 2, size, values / size)
    found = bootstrap_median_interval(values, stream_of(3))
    possible = {1 + int((law < 0.025 + shift).sum()) for shift in (-0.0048, 0.0048)}
    assert min(possible) <= found.low <= max(possible)
    assert found.high == size + 1 - found.low


def test_bootstrap_of_tied_values_has_an_answer_where_the_corrected_one_has_none() -> None:
    values = [0.0] * 13 + [1.0, 2.0, 3.0]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        corrected = stats.bootstrap((values,), np.median, method="BCa", rng=stream_of(1)).confidence_interval
    assert math.isnan(corrected.low)
    found = bootstrap_median_interval(values, stream_of(1))
    assert (found.low, found.high) == (0.0, 0.0)


def test_bootstrap_takes_many_values_in_little_memory() -> None:
    # A table of its resamples would take 16 GB. The interval of a median is 1.96 * 1.2533 / sqrt(n) wide either way.
    values = np.random.default_rng(8).normal(size=200_000)
    found = bootstrap_median_interval(values, stream_of(1))
    assert found.high - found.low == pytest.approx(2 * 1.96 * 1.2533 / math.sqrt(200_000), rel=0.05)


@pytest.mark.parametrize(
    ("values", "confidence", "resamples", "names"),
    [
        ([], 0.95, 1000, ["values"]),
        ([1.0, math.inf], 1.0, 1000, ["values", "confidence"]),
        ([1.0], 0.95, 39, ["resamples"]),
        ([1.0], 2.0, 10.5, ["confidence", "resamples"]),
        ([1.0], 0.9, True, ["resamples"]),
    ],
)
def test_bootstrap_names_all_faults(values: list[float], confidence: float, resamples: int, names: list[str]) -> None:
    with pytest.raises(InputError) as caught:
        bootstrap_median_interval(values, stream_of(1), confidence, resamples)
    assert [fault.field for fault in caught.value.faults] == names


def test_the_fewest_resamples_reach_one_beyond_either_end() -> None:
    assert bootstrap_median_interval([1.0, 2.0, 3.0], stream_of(1), 0.95, 40).low >= 1.0


# Laws


PAIRS = st.lists(st.tuples(COARSE, COARSE), min_size=1, max_size=30) | st.lists(
    st.tuples(FINITE, FINITE), min_size=1, max_size=30
)


@settings(deadline=None)
@given(PAIRS, st.integers(0, 5))
def test_swapping_the_sides_negates(pairs: list[tuple[float, float]], seed: int) -> None:
    first, second = zip(*pairs, strict=True)
    found, back = (paired(*sides, seed=seed, resamples=400) for sides in ((first, second), (second, first)))
    assert (back.rises, back.falls, back.ties, back.p) == (found.falls, found.rises, found.ties, found.p)
    assert (back.low, back.median, back.high) == (-found.high, -found.median, -found.low)
    assert (back.exact_low, back.exact_high) == (-found.exact_high, -found.exact_low)


@settings(deadline=None)
@given(PAIRS, st.randoms(use_true_random=False))
def test_the_order_of_the_pairs_does_not_matter(pairs: list[tuple[float, float]], shuffler) -> None:
    mixed = shuffler.sample(pairs, len(pairs))
    assert paired(*zip(*pairs, strict=True), resamples=400) == paired(*zip(*mixed, strict=True), resamples=400)


@settings(deadline=None)
@given(PAIRS)
def test_counts_add_up_and_intervals_hold_the_median(pairs: list[tuple[float, float]]) -> None:
    found = paired(*zip(*pairs, strict=True), groups=[index % 3 for index in range(len(pairs))])
    assert found.rises + found.falls + found.ties == found.n == len(pairs)
    assert found.exact_low <= found.median <= found.exact_high
    assert found.low <= found.median <= found.high
    for count in ("n", "rises", "falls", "ties"):
        assert sum(getattr(group, count) for group in found.groups) == getattr(found, count)
    assert "nan" not in found.statement
    assert "inf" not in found.statement


def test_the_seed_alone_decides_the_draws() -> None:
    # Ends average two of 40 distinct values, so that another seed may move them.
    first, second = np.zeros(40), np.random.default_rng(4).normal(size=40)
    assert paired(first, second, seed=3, resamples=100) == paired(first, second, seed=3, resamples=100)
    ends = {paired(first, second, seed=seed, resamples=100).low for seed in range(10)}
    assert len(ends) > 1


# What is refused


@pytest.mark.parametrize(
    ("first", "second", "names"),
    [
        ([], [], ["first", "second"]),
        ([1.0], [1.0, 2.0], ["second"]),
        ([1.0, math.nan, math.inf], [1.0, 2.0, -math.inf], ["first[1]", "second[2]"]),
        ([1.0, None], [1.0, 2.0], ["first"]),
        (["1", "2"], [True, False], ["first", "second"]),
        ([[1.0], [2.0]], [[1.0], [2.0, 3.0]], ["first", "second"]),
        (1.0, [1.0], ["first"]),
        ([1e308], [-1e308], ["pair 0"]),
        ([0.0], [1e308], ["pair 0"]),
    ],
)
def test_what_are_no_pairs_of_numbers_is_refused(first: object, second: object, names: list[str]) -> None:
    assert faults_of(first, second) == names


def test_all_faults_are_named_at_once() -> None:
    wrong = {"groups": [0], "confidence": 1.0, "seed": -1, "resamples": 0, "tolerance": math.nan}
    expected = ["confidence", "resamples", "seed", "tolerance", "first[0]", "second", "groups"]
    assert faults_of([math.nan, 1.0], [1.0], **wrong) == expected
    with pytest.raises(InputError, match="1 of 2 are not"):
        paired([math.nan, 1.0], [1.0, 1.0])
    with pytest.raises(InputError, match="seed"):
        paired([1.0], [1.0], seed=0.5)  # type: ignore[arg-type]


# Tables of readings


def readings(values: dict[tuple[int, str], float], **changes: object) -> pl.DataFrame:
    whole = Reading("visible", 4, 0, "", "focus", "visible", "hidden", "trained", "exposure", 0.0, "bits")
    return table(
        replace(whole, seed=seed, canary=canary, value=value, **changes)  # type: ignore[arg-type]
        for (seed, canary), value in values.items()
    )


FIRST = readings({(0, "c0"): 1.0, (0, "c1"): 2.0, (1, "c0"): 3.0, (1, "c1"): 4.0, (2, "c0"): 5.0})
SECOND = readings(
    {(2, "c0"): 5.0, (1, "c1"): 14.0, (0, "c1"): 1.0, (0, "c0"): 4.0, (1, "c0"): 3.5},
    arm="redacted",
    context="redacted",
)


def table_faults_of(first: pl.DataFrame, second: pl.DataFrame, **settings: object) -> dict[str, str]:
    with pytest.raises(InputError) as caught:
        paired_readings(first, second, **settings)  # type: ignore[arg-type]
    assert len({fault.field for fault in caught.value.faults}) == len(caught.value.faults)
    return {fault.field: str(fault) for fault in caught.value.faults}


def test_readings_are_matched_by_key_and_told_seed_by_seed() -> None:
    found = paired_readings(FIRST, SECOND)
    assert found == paired([1, 2, 3, 4, 5], [4, 1, 3.5, 14, 5], groups=[0, 0, 1, 1, 2])
    assert found.groups == (
        PairedGroup(0, 2, 1, 1, 0, 1.0),
        PairedGroup(1, 2, 2, 0, 0, 5.25),
        PairedGroup(2, 1, 0, 0, 1, 0.0),
    )
    assert paired_readings(FIRST.reverse(), SECOND) == found
    assert paired_readings(FIRST, SECOND, by=None).groups == ()
    ranks = [frame.with_columns(unit=pl.lit("rank")) for frame in (FIRST, SECOND)]
    assert paired_readings(*ranks, what="ranks").statement.startswith("3 of 5 ranks rise, 1 falls, 1 is tied")


def test_other_keys_may_name_the_rows() -> None:
    one, other = FIRST.filter(pl.col("seed") == 0), SECOND.filter(pl.col("seed") == 1)
    assert paired_readings(one, other, on=["canary"], by=None).median == pytest.approx(7.25)
    probes = [pl.concat([one, one.with_columns(probe=pl.lit("as_trained"))]) for _ in range(2)]
    found = paired_readings(*probes, on=["seed", "probe", "canary"], by="probe")
    assert [(group.name, group.n) for group in found.groups] == [("as_trained", 2), ("hidden", 2)]
    assert (
        paired_readings(
            *(frame.rename({"dose": "times"}).with_columns(dose=pl.col("times")) for frame in (one, one)),
            on=["times", "canary"],
            by="times",
        ).n
        == 2
    )


def test_rows_without_a_partner_are_counted_and_named_on_both_sides() -> None:
    first = pl.concat([FIRST, readings({(5, f"c{index}"): 0.0 for index in range(6)})])
    found = table_faults_of(first, SECOND.filter(pl.col("seed") > 0))
    assert list(found) == ["frame_first[seed, canary]"]
    assert "[(0, 'c0'), (0, 'c1'), (5, 'c0')]" in found["frame_first[seed, canary]"]
    assert "without a partner: 8 of 11" in found["frame_first[seed, canary]"]
    assert list(table_faults_of(FIRST.head(3), SECOND.filter(pl.col("seed") > 0))) == [
        "frame_first[seed, canary]",
        "frame_second[seed, canary]",
    ]


def test_keys_that_stand_twice_are_counted_and_named() -> None:
    found = table_faults_of(pl.concat([FIRST, FIRST.head(2)]), SECOND)
    assert list(found) == ["frame_first[seed, canary]"]
    assert "[(0, 'c0'), (0, 'c1')]" in found["frame_first[seed, canary]"]
    assert "more than once: 4 of 7" in found["frame_first[seed, canary]"]
    # Several seeds on the canary alone.
    assert list(table_faults_of(FIRST, SECOND, on=["canary"], by=None)) == [
        "frame_first[canary]",
        "frame_second[canary]",
    ]


def test_values_and_keys_that_are_missing_or_no_numbers_are_named() -> None:
    broken = FIRST.with_columns(value=pl.Series([1.0, None, math.nan, math.inf, 1.0]))
    found = table_faults_of(broken, SECOND)["frame_first[seed, canary]"]
    assert "[(0, 'c1'), (1, 'c0'), (1, 'c1')]" in found
    assert "3 of 5" in found
    nameless = FIRST.with_columns(canary=pl.Series([None, "c1", "c0", "c1", "c0"]))
    with pytest.raises(InputError, match="keys without nulls; rows with one: 1 of 5"):
        paired_readings(nameless, SECOND)
    assert list(table_faults_of(nameless, nameless)) == ["frame_first[seed, canary]", "frame_second[seed, canary]"]


def test_tables_that_were_not_filtered_to_one_question_are_refused() -> None:
    mixed = pl.concat([FIRST.head(3), FIRST.tail(2).with_columns(measure=pl.lit("rank"), unit=pl.lit("rank"))])
    assert list(table_faults_of(mixed, SECOND)) == ["frame_first[measure]", "frame_first[unit]"]
    keyed = {"on": ["seed", "canary", "unit", "measure"]}
    assert list(table_faults_of(mixed, mixed, **keyed)) == ["frame_first[unit]", "frame_second[unit]"]
    nats = SECOND.with_columns(unit=pl.lit("nats"))
    assert "'bits', the unit of frame_first" in table_faults_of(FIRST, nats)["frame_second[unit]"]
    assert list(table_faults_of(FIRST, SECOND.with_columns(unit=pl.lit(None, pl.String)))) == ["frame_second[unit]"]


def test_tables_of_other_columns_and_empty_tables_are_refused() -> None:
    found = table_faults_of(FIRST.drop("unit"), SECOND.with_columns(seed=pl.col("seed").cast(pl.String)))
    assert list(found) == ["frame_first.columns", "frame_second[seed]"]
    assert "missing: ['unit']" in found["frame_first.columns"]
    assert list(table_faults_of(FIRST, SECOND, on=["seed", "origin"])) == [
        "frame_first.columns",
        "frame_second.columns",
    ]
    one = (FIRST.with_columns(origin=pl.lit(1)), SECOND.with_columns(origin=pl.lit("1")))
    assert list(table_faults_of(*one, on=["origin", "seed", "canary"])) == ["frame_second[origin]"]
    assert "frame_first" in table_faults_of(FIRST.clear(), SECOND)
    assert set(table_faults_of(FIRST.clear(), SECOND.clear())) == {"frame_first", "frame_second"}


def test_keys_and_settings_are_checked_with_the_tables() -> None:
    assert list(table_faults_of(FIRST, SECOND, on=[], by=None)) == ["on"]
    assert list(table_faults_of(FIRST, SECOND, on=["seed", "seed"])) == ["on"]
    assert list(table_faults_of(FIRST, SECOND, on=["seed", "canary", "value"])) == ["on"]
    found = table_faults_of(FIRST, SECOND.head(4), by="arm", confidence=0, seed=-1, resamples=1, tolerance=-1)
    assert list(found) == ["frame_first[seed, canary]", "by", "confidence", "resamples", "seed", "tolerance"]


# Studies behind the figures of docs/paired.md; -s prints them

CASES = {
    "normal": lambda rng, shape: rng.normal(size=shape),
    "exponential": lambda rng, shape: rng.exponential(size=shape) - math.log(2),
    "exposures": lambda rng, shape: (rng.exponential(size=shape) - rng.exponential(size=shape)) / math.log(2),
}
"""Differences with median 0; ``exposures``: of the exposures of two random ranks, in bits."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("size", "documented"),
    [(6, 0.93), (7, 0.88), (8, 0.93), (15, 0.94), (16, 0.94), (31, 0.94), (32, 0.94), (95, 0.95), (96, 0.95)],
)
def test_measured_coverage(size: int, documented: float) -> None:
    # A share of 4,000 near 0.93 errs by 0.004: three of those, and 0.005 for the rounding of the documented figure.
    rng = np.random.default_rng(size)
    misses = 2 * stats.binom.cdf(np.arange(size), size, 0.5)
    truth = 1 - misses[misses <= 0.05].max()
    for name, draw in CASES.items():
        rows = draw(rng, (4000, size))
        drawn = [bootstrap_median_interval(row, rng) for row in rows]
        exact = [median_interval(row) for row in rows]
        shares = [np.mean([each.low <= 0 <= each.high for each in found]) for found in (drawn, exact)]
        print(f"n = {size:2d} {name:12s} bootstrap {shares[0]:.3f} exact {shares[1]:.3f}, by its law {truth:.3f}")
        assert shares[0] == pytest.approx(documented, abs=3 * 0.004 + 0.005)
        assert shares[1] == pytest.approx(truth, abs=3 * math.sqrt(truth * (1 - truth) / 4000))


@pytest.mark.parametrize(("shift", "documented"), [(0.0, 0.03), (0.25, 0.15), (0.5, 0.35), (1.0, 0.54)])
def test_what_a_shift_of_whole_models_does_to_the_sign_test(shift: float, documented: float) -> None:
    # Three seeds of 32 canaries; differences have deviation 1, and each seed a shift of its own, of median 0.
    rng = np.random.default_rng(12)
    draws = 5000
    differences = rng.normal(size=(draws, 3, 32)) + shift * rng.normal(size=(draws, 3, 1))
    p = np.asarray([sign_test(count, 96 - count) for count in range(97)])
    found = (p[(differences > 0).sum(axis=(1, 2))] <= 0.05).mean()
    # The oracle: rises of a seed are a mixture of binomials over the shift; those of three seeds are a convolution.
    grid = np.linspace(-8, 8, 4001)
    weights = stats.norm.pdf(grid) / stats.norm.pdf(grid).sum()
    seed = weights @ stats.binom.pmf(np.arange(33), 32, stats.norm.cdf(shift * grid)[:, None])
    truth = np.convolve(np.convolve(seed, seed), seed)[p <= 0.05].sum()
    print(f"shift {shift}: p <= 0.05 in {truth:.4f} of null comparisons, {found:.4f} of {draws:,} simulated")
    assert found == pytest.approx(truth, abs=3 * math.sqrt(truth * (1 - truth) / draws))
    assert truth == pytest.approx(documented, abs=0.005)
