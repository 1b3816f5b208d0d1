from __future__ import annotations

import json
import math
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from scipy import stats

from davylamp.errors import InputError
from davylamp.secrets import AlphabetSpace, CoinedSpace, SecretSpace, stream
from davylamp.secrets.encodings import encoding
from davylamp.secrets.encodings.base import misfits, symbols_of

SMALL = CoinedSpace(size=400, alternatives=300)


def test_the_default_space_holds_7000_names_of_6300_alternatives():
    space = CoinedSpace()
    names = list(space.candidates())
    assert len(names) == len(set(names)) == space.size == 7000
    assert space.bits == math.log2(7000)
    assert (space.alternatives, round(math.log2(space.alternatives + 1), 2)) == (6300, 12.62)
    assert all(name.isalpha() and name.islower() and 9 <= len(name) <= 11 for name in names)


def test_no_name_is_part_of_another():
    names = list(CoinedSpace().candidates())
    joined = "\n".join(names)
    # Every occurrence of a name in all of them is the name itself.
    assert all(joined.count(name) == 1 for name in names)


def test_index_and_secret_undo_each_other():
    assert [SMALL.index(name) for name in SMALL.candidates()] == list(range(SMALL.size))
    assert [SMALL.secret(index) for index in range(SMALL.size)] == list(SMALL.candidates())
    for strange in ("", "aspirin", 3, SMALL.secret(0).upper(), SMALL.secret(0) + "x"):
        assert strange not in SMALL
    for index in (-1, SMALL.size):
        with pytest.raises(InputError, match="from 0 to 399"):
            SMALL.secret(index)
    with pytest.raises(InputError, match="not shown") as caught:
        SMALL.index("notaname")
    assert "notaname" not in str(caught.value)


def test_the_seed_changes_the_names_and_the_drug_list_does_not():
    assert list(SMALL.candidates()) != list(SMALL.model_copy(update={"seed": 1}).candidates())
    other = CoinedSpace(size=400, alternatives=300, drug_list="nowhere.csv")
    assert list(other.candidates()) == list(SMALL.candidates())


def test_the_names_are_the_same_in_every_process():
    code = "from davylamp.secrets import CoinedSpace; print(*CoinedSpace(size=50, alternatives=9).candidates())"
    said = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": "3"}
    )
    assert said.stdout.split() == list(CoinedSpace(size=50, alternatives=9).candidates())
    # Never to be changed within version 1: manifests hold the settings, not the names.
    assert said.stdout.split()[:4] == ["yotolenib", "grabudegib", "kraralafil", "xamudegib"]


@given(st.integers(1, 60), st.integers(1, 60))
@settings(max_examples=20, deadline=None)
def test_a_smaller_space_is_the_beginning_of_a_larger_one(small, more):
    first, second = (CoinedSpace(size=size + 4, alternatives=1) for size in (small, small + more))
    assert list(second.candidates())[: first.size] == list(first.candidates())


def test_excluded_names_make_room_for_others_and_move_nothing_else():
    gone = [SMALL.secret(3), SMALL.secret(200)]
    space = CoinedSpace(size=400, alternatives=300, exclude=(gone[0].upper(), gone[1]))
    names = list(space.candidates())
    assert len(names) == 400
    assert not set(gone) & set(names)
    kept = [name for name in SMALL.candidates() if name not in gone]
    assert names[:398] == kept


def test_draws_are_distinct_uniform_and_keep_clear_of_what_is_taken():
    taken = [SMALL.secret(index) for index in range(0, 400, 2)]
    drawn = [SMALL.draw(stream(seed, "draw"), 10, exclude=taken) for seed in range(200)]
    assert all(len(set(names)) == 10 and not set(names) & set(taken) for names in drawn)
    counts = np.bincount([SMALL.index(name) for names in drawn for name in names], minlength=400)[1::2]
    # 2,000 draws over 200 names, fixed seeds: a fair draw is refused once in a thousand.
    assert stats.chisquare(counts).pvalue > 1e-3
    assert len(SMALL.draw(stream(0, "all"), 200, exclude=taken)) == 200
    with pytest.raises(InputError, match="at most 200"):
        SMALL.draw(stream(0, "all"), 201, exclude=taken)


def test_a_masked_name_tells_not_even_its_length():
    assert len({SMALL.masked(name) for name in SMALL.candidates()}) == 1
    with pytest.raises(InputError):
        SMALL.masked("aspirin")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"size": 6300}, "leaves no name for a canary"),
        ({"size": 10**7}, "names of 9 to 11 letters can be coined"),
        ({"letters": (11, 9)}, "ascending"),
        ({"letters": (2, 9)}, "from 6 to 16"),
        ({"length": 4}, "length"),
        ({"kind": "conied"}, "coined"),
    ],
)
def test_spaces_that_cannot_be_made_are_refused(changes, said):
    with pytest.raises(ValidationError, match=said):
        CoinedSpace.model_validate({"kind": "coined", **changes})


def test_both_spaces_have_one_face_and_only_one_has_an_alphabet():
    assert isinstance(SMALL, SecretSpace)
    assert isinstance(AlphabetSpace(), SecretSpace)
    assert AlphabetSpace().alternatives is None
    assert misfits(encoding("binary"), SMALL) == [
        "binary writes symbols of an alphabet, and the names of this space have none"
    ]
    assert misfits(encoding("binary"), AlphabetSpace()) == []
    with pytest.raises(InputError, match="field is 'CoinedSpace'"):
        symbols_of(SMALL, "field")


def test_a_space_is_read_from_what_it_writes():
    assert CoinedSpace.model_validate(json.loads(SMALL.model_dump_json())) == SMALL
