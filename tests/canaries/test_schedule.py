"""Where occurrences fall: windows, spreads, spacings, and what cannot be laid out."""

from __future__ import annotations

import re
from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from davylamp.canaries.placing import Request, place
from davylamp.canaries.schedule import Schedule, window_rows
from davylamp.errors import PlantingError


def positions(doses, rows=200, seed=0, size=None, **schedule):
    return place([Request("canaries", tuple(doses), Schedule(**schedule))], rows, seed, size)


# --- windows


@pytest.mark.parametrize(
    ("window", "ends"),
    [
        ("whole", (0, 1)),
        ("early", (0, 0.2)),
        ("late", (0.8, 1)),
        ("1/1", (0, 1)),
        ("2/5", (0.2, 0.4)),
        ("5/5", (0.8, 1)),
        ("3/3", (2 / 3, 1)),
        ([0.25, 0.5], (0.25, 0.5)),
    ],
)
def test_a_window_has_two_ends_and_every_occurrence_lies_between_them(window, ends):
    assert Schedule(window=window).fractions() == pytest.approx(ends, abs=1e-12)
    first, stop = window_rows(ends, 200)
    assert (first, stop) == (round(200 * ends[0]), round(200 * ends[1]))
    for spread in ("uniform", "concentrated"):
        found = positions([1, 3, 8], window=window, spread=spread)
        assert [len(rows) for rows in found] == [1, 3, 8]
        assert all(first <= row < stop for rows in found for row in rows)


@pytest.mark.parametrize("rows", [1, 7, 100, 1001])
@pytest.mark.parametrize("parts", [1, 2, 3, 7, 12])
def test_parts_tile_the_file(rows, parts):
    windows = [window_rows(Schedule(window=f"{part}/{parts}").fractions(), rows) for part in range(1, parts + 1)]
    assert [row for first, stop in windows for row in range(first, stop)] == list(range(rows))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"window": "latest"}, "is no window: give two fractions of training such as [0.8, 1], a part such as 5/5"),
        ({"window": "0/5"}, "is no window"),
        ({"window": "6/5"}, "is no window"),
        ({"window": "1/0"}, "is no window"),
        ({"window": [0.5, 0.5]}, "window [0.5, 0.5] is empty"),
        ({"window": [0.8, 0.2]}, "window [0.8, 0.2] is empty"),
        ({"window": [0, 1.5]}, "less than or equal to 1"),
        ({"window": [float("nan"), 1]}, "finite number"),
        ({"window": [0, 0.5, 1]}, "at most 2 items"),
        ({"window": 0.5}, "valid tuple"),
        ({"window": "early", "last": 0.5}, "last 0.5 lies outside the window [0, 0.2]"),
        ({"window": "late", "last": 0.8}, "last 0.8 lies outside the window [0.8, 1]"),
        ({"window": "before focus", "last": 0.5}, "last needs a window of two fractions"),
        ({"spread": "concentrated", "spacing": 2}, "exclude one another"),
        ({"spacing": 0}, "greater than or equal to 1"),
        ({"last": 0}, "greater than 0"),
        ({"spread": "even"}, "'uniform' or 'concentrated'"),
        ({"windows": "late"}, "Extra inputs"),
    ],
)
def test_a_schedule_that_says_nothing_sensible_is_refused(given, said):
    with pytest.raises(ValueError, match=re.escape(said)):
        Schedule.model_validate(given)


def test_anywhere_is_the_whole_file_however_it_is_said():
    assert all(Schedule(window=window).anywhere for window in ("whole", "1/1", [0, 1]))
    assert not any(
        Schedule(**given).anywhere
        for given in ({"window": "early"}, {"spacing": 1}, {"spread": "concentrated"}, {"last": 1})
    )


def test_rows_of_a_window_are_equally_likely():
    # 4 rows of the 12 of the early window in each of 600 seeds: 200 expected a row. The largest of 12 deviations of a
    # binomial stays within 4.5 standard deviations (p < 1e-4 in all).
    counts = Counter(row for seed in range(600) for (row,) in positions([1] * 4, 60, seed, window="early"))
    assert set(counts) == set(range(12))
    assert max(abs(count - 200) for count in counts.values()) < 4.5 * (600 * (1 / 3) * (2 / 3)) ** 0.5


@pytest.mark.parametrize("how", [{"spread": "concentrated"}, {"spacing": 2}])
def test_starts_differ_from_seed_to_seed_and_cover_the_window(how):
    # 20 rows from 40 to 59; a canary of 3 rows has 18 starts, one 2 updates apart (of one row) has 16. That a start
    # is never drawn in 400 seeds has a chance below 18 * (17/18)^400 < 1e-8.
    starts = {positions([3], 100, seed, size=1, window=[0.4, 0.6], **how)[0][0] for seed in range(400)}
    assert starts == set(range(40, 58 if "spread" in how else 56))


# --- spread, spacing, last


def test_concentrated_occurrences_stand_in_consecutive_rows():
    found = positions([1, 4, 16, 16], window=[0.2, 0.8], spread="concentrated")
    assert all(rows == tuple(range(rows[0], rows[0] + len(rows))) for rows in found)
    assert len({row for rows in found for row in rows}) == 37


@pytest.mark.parametrize("spacing", [1, 2, 7])
@pytest.mark.parametrize("size", [1, 4])
def test_a_spacing_is_kept_exactly_in_updates(spacing, size):
    for window in ("whole", "late", [0.33, 0.71]):
        # The largest dose that 12 updates hold, the least of the three windows.
        dose = 1 + 11 // spacing
        found = [*positions([dose], 60 * size, size=size, window=window, spacing=spacing)]
        found += positions([2, 1, 2], 60 * size, size=size, window=window, spacing=spacing)
        for rows in found:
            updates = [row // size for row in rows]
            assert {after - before for before, after in pairwise(updates)} <= {spacing}
        first, stop = window_rows(Schedule(window=window).fractions(), 60 * size)
        assert all(first <= row < stop for rows in found for row in rows)


@pytest.mark.parametrize("how", [{}, {"spread": "concentrated"}, {"spacing": 3}])
@pytest.mark.parametrize("last", [0.25, 0.5, 1.0])
def test_the_last_occurrence_falls_just_before_its_fraction(how, last):
    # Two rows an update, so that the last occurrences of two canaries fit the last update before the fraction.
    (one, other), stop = positions([6, 6], 200, size=2, last=last, **how), round(200 * last)
    assert max(one[-1], other[-1]) == stop - 1
    expected = stop - 7 if how == {"spread": "concentrated"} else stop - 2
    assert min(one[-1], other[-1]) == expected


def test_last_occurrences_of_many_canaries_take_the_rows_before_it():
    found = positions([1, 4, 16, 1], last=0.5)
    assert sorted(rows[-1] for rows in found) == [96, 97, 98, 99]


def test_dose_0_takes_no_row():
    assert positions([0, 2, 0])[0] == positions([0, 2, 0])[2] == ()


# --- several requests


def test_a_later_request_of_auxiliary_canaries_changes_nothing_of_an_earlier_one():
    for how in ({}, {"spread": "concentrated"}, {"spacing": 2}, {"window": "late"}):
        focus = Request("focus", (4, 4, 1), Schedule(**how))
        alone = place([focus], 100, 3, 4)
        for other in ({}, {"spread": "concentrated"}, {"spacing": 1}, {"window": "before focus"}):
            window = focus.schedule.fractions() if "window" in how else (0.5, 1.0)
            beside = Request("auxiliary", (2, 9), Schedule(**other), window, auxiliary=True)
            assert place([focus, beside], 100, 3, 4)[:3] == alone


def test_what_may_stand_anywhere_gives_way_to_what_may_not():
    # 100 rows at random would leave no 30 in a row, were they taken first.
    anywhere = Request("anywhere", (25,) * 4, Schedule())
    tied = Request("tied", (30, 30), Schedule(spread="concentrated"))
    narrow = Request("narrow", (1,) * 40, Schedule(window="5/5"))
    found = place([anywhere, narrow, tied], 200, 0)
    assert [len(rows) for rows in found] == [25] * 4 + [1] * 40 + [30, 30]
    assert len({row for rows in found for row in rows}) == 200


@pytest.mark.parametrize(
    ("how", "size"), [({}, 1), ({"spread": "concentrated"}, 1), ({"spacing": 1}, 2), ({"spacing": 2}, 5)]
)
def test_a_window_may_be_filled_to_its_last_row(how, size):
    # 10 canaries of dose 4 and 40 rows. At a spacing of 2 they are 8 updates of 5: five canaries in the even ones and
    # five in the odd ones.
    found = positions([4] * 10, 80, size=size, window=[0, 0.5], **how)
    assert sorted(row for rows in found for row in rows) == list(range(40))


@pytest.mark.parametrize("window", ["early", [0.1, 0.3]])
def test_where_others_have_a_window_the_rest_still_falls_everywhere(window):
    # Six canaries take 6 of the window's 12 rows, which leaves 54 of 60, 6 of them in the window. One that may fall
    # anywhere takes 4 of those in each of 900 seeds: 900 x 4 x 6/54 = 400 are expected in the window.
    # Without replacement the deviation is less than that of a binomial, 4.5 of which are allowed (p < 1e-5).
    inside = 0
    for seed in range(900):
        narrow = Request("narrow", (1,) * 6, Schedule(window=window))
        found = place([narrow, Request("anywhere", (4,), Schedule())], 60, seed)
        first, stop = window_rows(narrow.bounds, 60)
        inside += sum(first <= row < stop for row in found[6])
    assert abs(inside - 400) < 4.5 * (3600 * (6 / 54) * (48 / 54)) ** 0.5


# --- what cannot be laid out


def test_too_few_rows_are_counted():
    with pytest.raises(
        PlantingError, match=r"41 occurrences need 41 rows, but the window \[0.8, 1\] of 200 rows holds 40"
    ):
        positions([41], window="late")
    with pytest.raises(PlantingError, match=r"the last occurrence at 0.9 leaves 20, holds 20"):
        positions([21], window="late", last=0.9)
    assert sum(map(len, positions([40], window="late"))) == 40


def test_a_spacing_that_is_too_wide_is_worked_out():
    # 200 rows are 25 updates of 8, of which the last fifth holds 5.
    said = (
        r"dose 4 at a spacing of 2 updates spans \(4 - 1\) x 2 \+ 1 = 7 updates, but the window \[0.8, 1\] of 200 rows"
    )
    with pytest.raises(PlantingError, match=said + " holds 5 updates of 8 rows"):
        positions([1, 4], size=8, window="late", spacing=2)
    assert len(positions([3], size=8, window="late", spacing=2)[0]) == 3


def test_a_window_within_one_update_holds_none():
    # Rows 25 of 33 alone: updates of 3 rows begin at 24 and 27.
    narrow = Request("narrow", (1,), Schedule(window=(0.75, 0.8), spacing=1))
    with pytest.raises(PlantingError, match=r"holds 0 updates of 3 rows"):
        place([narrow], 33, 0, 3)


def test_a_spacing_counts_updates_and_needs_to_know_them():
    with pytest.raises(PlantingError, match="the plan must give rows_per_update"):
        positions([2], spacing=1)


def test_what_other_canaries_leave_is_counted():
    filled = Request("filling", (80,), Schedule(window=[0, 0.4]))
    with pytest.raises(PlantingError, match=r"^late: .*they need 130 of the 200 rows .* other canaries leave 120 free"):
        place([filled, Request("late", (130,), Schedule())], 200, 0)
    # In 40 rows of which 20 in the middle are taken, 11 in a row are nowhere.
    middle = Request("middle", (20,), Schedule(window=[0.25, 0.75], spread="concentrated"))
    sides = Request("sides", (11,), Schedule(spread="concentrated"), auxiliary=True)
    with pytest.raises(PlantingError, match=r"leave 20 free, the longest stretch of them 10"):
        place([middle, sides], 40, 0)
    # An update of one row that is taken is no place for an occurrence.
    spaced = Request("spaced", (4,), Schedule(spacing=9), auxiliary=True)
    with pytest.raises(PlantingError, match=r"9 updates apart: .* leave 20 free, in 20 updates"):
        place([middle, spaced], 40, 0, 1)


def test_all_requests_that_are_impossible_by_themselves_are_named_at_once():
    requests = [Request("one", (9,), Schedule(window="early")), Request("two", (9,), Schedule(window="late"))]
    with pytest.raises(PlantingError, match=r"one: 9 occurrences.*two: 9 occurrences"):
        place(requests, 40, 0)


WINDOWS = st.one_of(
    st.sampled_from(["whole", "early", "late", "2/3", "4/7"]),
    st.lists(st.integers(0, 20), min_size=2, max_size=2, unique=True).map(
        lambda ends: [end / 20 for end in sorted(ends)]
    ),
)


@st.composite
def schedules(draw):
    data = {"window": draw(WINDOWS)}
    kind = draw(st.sampled_from(["uniform", "concentrated", "spacing"]))
    data |= {"spacing": draw(st.integers(1, 5))} if kind == "spacing" else {"spread": kind}
    if draw(st.booleans()):
        start, end = Schedule(window=data["window"]).fractions()
        data["last"] = draw(st.floats(start, end, exclude_min=True))
    return Schedule(**data)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.tuples(st.lists(st.integers(0, 7), max_size=6), schedules(), st.booleans()), min_size=1, max_size=4),
    st.integers(20, 160),
    st.integers(1, 6),
    st.integers(0, 2**31),
)
@example([([3, 3, 3], Schedule(window="late", spacing=2), False)], 60, 3, 0)
def test_whatever_is_laid_out_keeps_its_schedule_and_whatever_is_not_is_refused_with_numbers(wanted, rows, size, seed):
    requests = [Request(f"request {n}", tuple(d), s, auxiliary=a) for n, (d, s, a) in enumerate(wanted)]
    try:
        found = place(requests, rows, seed, size)
    except PlantingError as error:
        refusal = str(error)
    else:
        refusal = None
    if refusal is not None:
        # Who, what is needed, and what there is.
        assert re.search(r"request \d: .*\d.*(holds|leave) \d", refusal)
        return
    assert place(requests, rows, seed, size) == found
    taken = [row for each in found for row in each]
    assert len(set(taken)) == len(taken)
    for request in requests:
        mine, found = found[: len(request.doses)], found[len(request.doses) :]
        schedule = request.schedule
        assert [len(each) for each in mine] == list(request.doses)
        first, stop = window_rows(schedule.fractions(), rows)
        if schedule.last is not None:
            stop = round(rows * schedule.last)
        for each in mine:
            assert list(each) == sorted(each)
            assert all(first <= row < stop for row in each)
            if schedule.spacing is not None:
                steps = {after // size - before // size for before, after in pairwise(each)}
                assert steps <= {schedule.spacing}
            elif schedule.spread == "concentrated":
                assert {after - before for before, after in pairwise(each)} <= {1}
    assert not found


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 6), min_size=1, max_size=8), st.integers(0, 30), st.integers(0, 2**31), st.booleans())
def test_one_request_that_fits_is_never_refused(doses, spare, seed, concentrated):
    rows = sum(doses) + spare
    spread = "concentrated" if concentrated else "uniform"
    found = place([Request("canaries", tuple(doses), Schedule(spread=spread))], rows, seed)
    assert [len(each) for each in found] == doses
