"""Laws of lists against sums over all secrets."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from davylamp.errors import InputError
from davylamp.release.exact import ListLaw, SecretLaw, UniformLaw
from davylamp.release.exact.laws import share_of


def mass(law: SecretLaw, secret: tuple[int, ...]) -> float:
    return math.prod(float(law.row(secret[:at])[symbol]) for at, symbol in enumerate(secret))


@st.composite
def lists(draw: st.DrawFn) -> tuple[int, list[tuple[int, ...]], float]:
    v, length = draw(st.integers(2, 4)), draw(st.integers(1, 3))
    space = list(itertools.product(range(v), repeat=length))
    secrets = draw(st.lists(st.sampled_from(space), min_size=1, max_size=6, unique=True))
    return v, secrets, draw(st.sampled_from([0.0, 0.125, 0.5, 1e-9]))


@settings(deadline=None)
@given(lists())
def test_a_list_is_mixed_with_the_space_as_whole_secrets(case: tuple[int, list[tuple[int, ...]], float]) -> None:
    v, secrets, gamma = case
    law = ListLaw(v, secrets, gamma)
    for secret in itertools.product(range(v), repeat=len(secrets[0])):
        exact = Fraction(gamma) / v ** len(secret)
        exact += (1 - Fraction(gamma)) / len(secrets) if secret in secrets else 0
        # A few roundings a symbol, relative to the mass.
        assert mass(law, secret) == pytest.approx(float(exact), rel=1e-13, abs=0)


def test_rows_sum_to_one_everywhere_and_beyond_the_smallest_double() -> None:
    long = tuple([0, 19_999] * 32)
    law = ListLaw(20_000, [long], 0.5)
    assert law.row(long[:-1]).sum() == pytest.approx(1, abs=1e-12)
    assert law.row(long[:-1])[long[-1]] == pytest.approx(1, abs=1e-12)
    off = law.row((1, *long[1:-1]))
    np.testing.assert_allclose(off, 1 / 20_000)
    np.testing.assert_allclose(ListLaw(3, [(0, 0)]).row((1,)), 1 / 3)
    np.testing.assert_allclose(UniformLaw(3).row((0,)), 1 / 3)


def test_lists_that_are_none_are_refused() -> None:
    for secrets in ([], [(0,), (0,)], [(0,), (0, 1)]):
        with pytest.raises(InputError, match="at least one, distinct, all of one length"):
            ListLaw(2, secrets)
    with pytest.raises(InputError, match=r"gamma is 1\.0"):
        ListLaw(2, [(0,)], 1.0)
    with pytest.raises(InputError, match="at most 1e300"):
        ListLaw(10**6, [(0,) * 64])


@settings(deadline=None)
@given(st.integers(1, 10**6), st.integers(1, 10**400))
def test_a_share_is_exact_for_spaces_of_any_size(guesses: int, among: int) -> None:
    assert share_of(guesses, among) == float(min(Fraction(1), Fraction(guesses, among)))
