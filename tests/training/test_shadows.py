from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from davylamp.canaries import plant
from davylamp.canaries.plant import background
from davylamp.errors import InputError
from davylamp.training.shadows import ShadowSpec, design
from support.corpora import small_corpus, small_plan


def drawn(rows=80, background_rows=None, spec=None, **changes):
    planted = plant(small_corpus(rows), small_plan(**changes))
    return planted, design(planted.manifest, planted.records, spec or ShadowSpec(), background_rows)


def test_targets_are_focus_twins_and_further_non_members_and_the_rest_stays():
    planted, made = drawn(nonmembers=3, auxiliary={"doses": [2], "per_dose": 1})
    roles = Counter(target.canary.role for target in made.targets)
    assert roles == {"focus": 8, "twin": 4, "nonmember": 6}
    for canary in planted.manifest.canaries:
        if canary.role in ("positive", "auxiliary"):
            assert all(made.rows[row] == planted.records[row] for row in canary.positions)


def test_the_shadow_that_holds_what_the_model_was_trained_on_has_the_planted_rows():
    planted, made = drawn()
    members = [target.canary.dose > 0 for target in made.targets]
    assert made.rows_of(members) == list(planted.records)


def test_a_record_that_is_in_takes_its_rows_and_one_that_is_out_leaves_none():
    _, made = drawn()
    positions = [position for target in made.targets for position in target.positions]
    assert len(set(positions)) == len(positions)
    for flags in made.inside[:4]:
        rows = made.rows_of(flags)
        assert len(rows) == len(made.rows)
        for target, record, is_in in zip(made.targets, made.records, flags, strict=True):
            where = [row for row, other in enumerate(rows) if other == record]
            assert where == (list(target.positions) if is_in else [])


def test_rows_that_canaries_had_taken_are_other_rows_of_the_background_each_as_often():
    # 62 rows hold 21 occurrences, 16 of them of focus canaries: 41 background rows for 16 places, none twice.
    planted, made = drawn(rows=62)
    taken = {position for canary in planted.manifest.canaries for position in canary.positions}
    free = [row for row in range(62) if row not in taken]
    focus = sorted(p for target in made.targets for p in target.canary.positions)
    fills = [made.rows[row] for row in focus]
    assert len(set(fills)) == len(fills)
    assert set(fills) <= {planted.records[row] for row in free}
    assert not made.given_background
    # 27 rows: 6 background rows fill 16 places, each 2 or 3 times.
    _, made = drawn(rows=27, spec=ShadowSpec(twin_dose=1))
    counts = Counter(made.rows[p] for target in made.targets for p in target.canary.positions)
    assert set(counts.values()) == {2, 3}


def test_with_the_corpus_they_are_its_own_rows():
    corpus, plan = small_corpus(80), small_plan()
    rows = background(corpus, plan)
    _, made = drawn(background_rows=rows)
    assert made.given_background
    for target in made.targets:
        assert all(made.rows[row] == rows[row] for row in target.canary.positions)


def test_another_corpus_is_refused():
    rows = background(small_corpus(80), small_plan())
    with pytest.raises(InputError, match="rows of --corpus is 79; allowed: the 80 rows"):
        drawn(background_rows=rows[:-1])
    with pytest.raises(InputError, match="differ from the planted file's"):
        drawn(background_rows=rows[::-1])


def test_each_record_is_in_exactly_one_shadow_of_each_pair():
    _, made = drawn(spec=ShadowSpec(shadows=10))
    assert (made.inside[::2] ^ made.inside[1::2]).all()
    assert (made.inside.sum(axis=0) == 5).all()


def test_coins_are_fair_and_independent():
    # 8 focus canaries and 400 non-members: 408 records x 50 pairs. Counts of heads follow the binomial law (two-sided
    # 4 sigma), and the correlation of two shadows of different pairs has a standard error of 1 / sqrt(408) = 0.05.
    _, made = drawn(spec=ShadowSpec(shadows=100, twin_dose=0), twins=1, nonmembers=1)
    assert not made.inside[:, [target.canary.role != "focus" for target in made.targets]].any()
    planted = plant(small_corpus(900), small_plan(nonmembers=200, doses=[1]))
    made = design(planted.manifest, planted.records, ShadowSpec(shadows=100))
    heads = made.inside[::2]
    assert abs(heads.mean() - 0.5) < 4 * 0.5 / np.sqrt(heads.size)
    correlation = np.corrcoef(heads)[np.triu_indices(50, 1)]
    # Over 1,225 pairs of shadows 4.5 standard errors leave one chance in a hundred that one strays.
    assert np.abs(correlation).max() < 4.5 / np.sqrt(heads.shape[1])
    counts = heads.sum(axis=0)
    spread = ((counts - 25) ** 2 / 12.5).sum()
    assert stats.chi2(heads.shape[1]).sf(spread) > 1e-4


@settings(max_examples=20, deadline=None)
@given(st.integers(2, 6), st.integers(1, 4), st.integers(0, 3))
def test_more_shadows_and_more_records_change_nothing_that_was_there(pairs, more, nonmembers):
    _, small = drawn(spec=ShadowSpec(shadows=2 * pairs))
    _, large = drawn(spec=ShadowSpec(shadows=2 * (pairs + more)), nonmembers=nonmembers)
    count = len(small.targets)
    np.testing.assert_array_equal(large.inside[: 2 * pairs, :count], small.inside)
    assert large.targets[:count] == small.targets
    assert large.rows == small.rows
    assert large.seeds[: 2 * pairs] == small.seeds


def test_twins_take_the_doses_of_the_plan_in_turn_or_the_one_that_is_given():
    _, made = drawn(twins=5)
    for arm in ("visible", "redacted"):
        doses = [t.dose for t in made.targets if (t.canary.role, t.canary.arm) == ("twin", arm)]
        assert doses == [1, 3, 1, 3, 1]
    _, made = drawn(spec=ShadowSpec(twin_dose=2), twins=3)
    assert {t.dose for t in made.targets if t.canary.role == "twin"} == {2}
    assert [t.dose for t in made.targets if t.canary.role == "focus"] == [1, 1, 3, 3] * 2
    rows, mean = made.taken_rows()
    assert rows == 16
    assert mean == pytest.approx((16 + 12) / 2)


def test_twins_stand_in_the_window_of_their_arms_focus():
    _, made = drawn(rows=400, schedule={"window": "late"}, twins=6)
    assert all(320 <= row < 400 for target in made.targets for row in target.positions)


def test_without_room_for_the_twins_the_arithmetic_is_shown():
    with pytest.raises(InputError) as caught:
        drawn(rows=40, nonmembers=8)
    text = str(caught.value)
    assert 'the dose of twins in shadows is "the plan\'s doses"' in text
    assert "16 occurrences need as many of" in text
    assert "keeps them out of every shadow" in text
    planted, made = drawn(rows=40, nonmembers=8, spec=ShadowSpec(twin_dose=0))
    assert {t.positions for t in made.targets if t.canary.role != "focus"} == {()}
    assert made.rows_of([True] * len(made.targets)) == list(planted.records)


def test_a_file_of_canaries_alone_is_refused():
    with pytest.raises(InputError, match="hold no canary"):
        drawn(rows=21)


@pytest.mark.parametrize("shadows", [0, 2, 7])
def test_the_number_of_shadows_is_even_and_at_least_four(shadows):
    with pytest.raises(ValueError, match=r"multiple of 2|greater than or equal to 4"):
        ShadowSpec(shadows=shadows)
