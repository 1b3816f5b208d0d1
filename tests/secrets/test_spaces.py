from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from scipy import stats

from davylamp.errors import InputError
from davylamp.secrets import AlphabetSpace, stream

SYMBOLS = "0123456789abcäß漢🙂"


def spaces(limit: int = 2000) -> st.SearchStrategy[AlphabetSpace]:
    alphabets = st.lists(st.sampled_from(SYMBOLS), min_size=2, max_size=6, unique=True).map("".join)
    made = st.builds(
        lambda alphabet, length, separator, prefix: AlphabetSpace(
            alphabet=alphabet, length=length, separator=separator, prefix=prefix
        ),
        alphabets,
        st.integers(1, 4),
        st.sampled_from(["", ",", ", ", "-", "→"]),
        st.sampled_from(["", "REF ", "0", "ä,"]),
    )
    return made.filter(lambda space: space.size <= limit)


@given(spaces())
def test_index_and_secret_undo_each_other_over_the_whole_space(space):
    candidates = list(space.candidates())
    assert len(candidates) == space.size == len(set(candidates))
    assert [space.index(secret) for secret in candidates] == list(range(space.size))
    assert all(secret in space for secret in candidates)
    assert 2**space.bits == pytest.approx(space.size)


def test_the_default_is_every_four_digit_code_in_order():
    space = AlphabetSpace()
    candidates = list(space.candidates())
    assert (candidates[0], candidates[4719], candidates[-1]) == ("0,0,0,0", "4,7,1,9", "9,9,9,9")
    assert candidates == sorted(candidates)
    assert (space.size, round(space.bits, 2)) == (10_000, 13.29)


@given(st.integers(0, 62**40 - 1))
def test_a_space_too_large_to_list_still_counts_exactly(index):
    alphabet = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
    space = AlphabetSpace(alphabet=alphabet, length=40, separator="")
    assert space.index(space.secret(index)) == index


@pytest.mark.parametrize("bad", ["4,7,1", "4,7,1,9,2", "4719", "4,7,1,x", "", ",,,", "4,7,1,9 ", "44,7,1,9", 4719])
def test_what_is_not_in_the_space_is_said_not_to_be(bad):
    assert bad not in AlphabetSpace()


def test_the_prefix_belongs_to_the_secret():
    space = AlphabetSpace(length=2, prefix="0,")
    assert space.secret(12) == "0,1,2"
    assert "1,2" not in space
    assert "1,1,2" not in space


@pytest.mark.parametrize("index", [-1, 10_000, 10**30])
def test_an_index_outside_is_refused_with_its_limits(index):
    with pytest.raises(InputError, match=r"from 0 to 9999"):
        AlphabetSpace().secret(index)


def test_a_message_about_a_foreign_secret_does_not_repeat_it():
    with pytest.raises(InputError) as caught:
        AlphabetSpace().index("8,6,4,x")
    assert "8,6,4" not in str(caught.value)


@pytest.mark.parametrize(
    ("field", "value"),
    [("alphabet", "0120"), ("alphabet", "7"), ("length", 0), ("length", 65), ("separator", "3"), ("unknown", 1)],
)
def test_a_space_that_cannot_be_is_refused(field, value):
    with pytest.raises(ValidationError, match=field):
        AlphabetSpace(**{field: value})


@given(spaces(200), st.integers(0, 2**32), st.data())
def test_draws_are_distinct_in_the_space_and_without_the_excluded(space, seed, data):
    exclude = data.draw(st.sets(st.sampled_from([*space.candidates(), "not a secret"]), max_size=space.size - 1))
    left = space.size - len({secret for secret in exclude if secret in space})
    count = data.draw(st.integers(0, left))
    drawn = space.draw(np.random.default_rng(seed), count, exclude)
    assert len(drawn) == len(set(drawn)) == count
    assert all(secret in space for secret in drawn)
    assert not set(drawn) & set(exclude)


def test_the_whole_space_can_be_drawn_and_no_more():
    space = AlphabetSpace(alphabet="ab", length=3, separator="")
    assert sorted(space.draw(stream(0, "x"), 8)) == sorted(space.candidates())
    with pytest.raises(InputError, match=r"at most 7 \(the space holds 8, 1 are taken\)"):
        space.draw(stream(0, "x"), 8, exclude=["aaa", "foreign"])


def chi_square_p(counts: list[int]) -> float:
    return float(stats.chisquare(counts).pvalue)


def test_single_draws_are_uniform_over_the_space():
    # 27 secrets, 5,400 draws, 200 expected in each: the chi-square approximation is good, and p > 0.001 leaves one
    # chance in a thousand of a false alarm over seeds; this seed is fixed.
    space = AlphabetSpace(alphabet="xyz", length=3, separator="")
    counts = [0] * space.size
    for number in range(5_400):
        counts[space.index(space.draw(stream(11, number), 1)[0])] += 1
    assert chi_square_p(counts) > 0.001


def test_every_place_of_a_joint_draw_is_uniform_over_what_is_not_excluded():
    # Three of 8 are drawn at once, one is excluded: each of the 7 left is as likely in the first place as in the
    # last. 3,500 draws, 500 expected in each cell; the same tolerance as above.
    space = AlphabetSpace(alphabet="ab", length=3, separator="")
    counts = np.zeros((3, space.size), dtype=int)
    for number in range(3_500):
        for place, secret in enumerate(space.draw(stream(5, number), 3, exclude=["bab"])):
            counts[place, space.index(secret)] += 1
    assert (counts[:, space.index("bab")] == 0).all()
    left = np.delete(counts, space.index("bab"), axis=1)
    assert all(chi_square_p(list(row)) > 0.001 for row in left)


def test_each_symbol_of_a_long_secret_is_uniform():
    # A space of 10**40 does not fit the generator's integers. 10 symbols at 40 places in 600 draws: 2,400 expected.
    drawn = AlphabetSpace(length=40).draw(stream(3, "long"), 600)
    symbols = "".join(drawn).replace(",", "")
    assert chi_square_p([symbols.count(digit) for digit in "0123456789"]) > 0.001


def test_a_masked_secret_shows_what_is_public_and_nothing_else() -> None:
    assert AlphabetSpace().masked("4,7,1,9") == "•,•,•,•"
    assert AlphabetSpace(alphabet="AB-", length=3, separator="", prefix="ID ").masked("ID A-B") == "ID •••"
    with pytest.raises(InputError):
        AlphabetSpace().masked("4719")
