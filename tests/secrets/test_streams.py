from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from davylamp.errors import InputError
from davylamp.secrets import stream


def numbers(*names, seed=0, count=64):
    return stream(seed, *names).random(count)


def test_the_same_names_give_the_same_draws_and_others_do_not():
    assert (numbers("secrets", 3) == numbers("secrets", 3)).all()
    different = [numbers(), numbers("a"), numbers("b"), numbers("a", "b"), numbers("b", "a"), numbers("a", seed=1)]
    for at, one in enumerate(different):
        for other in different[at + 1 :]:
            assert not (one == other).any()


def test_names_are_not_glued_together():
    glued = [("ab", "c"), ("a", "bc"), ("abc",), ("a|b",), ("a", "b"), ("1:a",), ("1:a|1:b",)]
    firsts = {stream(0, *names).integers(2**62) for names in glued}
    assert len(firsts) == len(glued)


def test_a_draw_in_one_stream_does_not_move_another():
    alone = numbers("positions")
    stream(0, "secrets").random(1000)
    assert (numbers("positions") == alone).all()


def test_streams_of_neighbouring_seeds_are_uncorrelated():
    # The correlation of 4,096 independent pairs has a standard deviation of 1/64; five of them leave no chance of
    # a false alarm worth naming over the 56 pairs looked at.
    rows = np.array([numbers(name, seed=seed, count=4096) for seed in range(4) for name in ("a", "b")])
    off = np.corrcoef(rows)[~np.eye(len(rows), dtype=bool)]
    assert abs(off).max() < 5 / 64


def test_every_process_draws_the_same_whatever_its_hash_seed():
    code = "from davylamp.secrets import stream; print(stream(7, 'secrets', 'ä').integers(0, 2**60, 3).tolist())"
    said = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1")
    }
    assert said == {f"{stream(7, 'secrets', 'ä').integers(0, 2**60, 3).tolist()}\n"}


def test_the_draws_never_change():
    # Written down once: a change here makes every manifest that was ever written impossible to plant again.
    assert stream(0, "secrets").integers(0, 10_000, 4).tolist() == [1322, 1631, 3282, 6923]


@pytest.mark.parametrize("seed", [-1, 1.0, True, "0", None])
def test_a_seed_that_is_no_whole_number_is_refused(seed):
    with pytest.raises(InputError, match="whole number of at least 0"):
        stream(seed, "x")
