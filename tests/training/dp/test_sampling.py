"""Poisson sampling, and the ways of drawing batches that are taken for it."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from davylamp.training.dp.sampling import PoissonSampler, Tally, expected_empty


def drawn(rows, rate, steps, seed=0):
    sampler = PoissonSampler(rows, rate, torch.Generator().manual_seed(seed))
    return [sampler.draw() for _ in range(steps)], sampler.tally


def failed(tally):
    return {check.name.split()[0] for check in tally.checks() if not check.passed}


@pytest.mark.parametrize(("rows", "rate", "steps"), [(300, 0.05, 75), (20, 0.02, 400), (1000, 0.5, 3), (5, 0.9, 30)])
def test_independent_coins_pass(rows, rate, steps):
    # Each of three tests fails a sound run once in a million.
    for seed in range(20):
        batches, tally = drawn(rows, rate, steps, seed)
        assert failed(tally) == set()
        assert sum(map(len, batches)) == sum(tally.sizes) == sum(tally.counts)


def test_each_row_has_its_own_coin():
    batches, _ = drawn(40, 0.3, 4000)
    inside = np.array([[row in batch for row in range(40)] for batch in map(set, batches)], dtype=float)
    # Means of 4,000 coins within five standard errors; correlations of rows within five of 1/sqrt(4000).
    assert np.abs(inside.mean(axis=0) - 0.3).max() < 5 * np.sqrt(0.21 / 4000)
    assert np.abs(np.corrcoef(inside.T) - np.eye(40)).max() < 5 / np.sqrt(4000)


def test_empty_batches_come_as_often_as_they_must():
    _, tally = drawn(20, 0.02, 4000)
    expected = expected_empty(0.02, 20, 4000)
    assert expected == pytest.approx(4000 * 0.98**20)
    assert abs(tally.empty - expected) < 5 * np.sqrt(expected)


def test_a_full_batch_is_every_row():
    batches, tally = drawn(7, 1.0, 5)
    assert batches == [list(range(7))] * 5
    assert failed(tally) == set()


@pytest.mark.parametrize("seed", range(3))
def test_what_is_not_poisson_is_seen(seed):
    rng = np.random.default_rng(seed)
    rows, size, steps = 320, 16, 100

    def tally_of(batches):
        counts = np.zeros(rows, dtype=int)
        for batch in batches:
            np.add.at(counts, batch, 1)
        return Tally(size / rows, tuple(map(len, batches)), tuple(counts.tolist()))

    shuffled = [part for _ in range(steps * size // rows) for part in np.split(rng.permutation(rows), rows // size)]
    assert failed(tally_of(shuffled)) == {"batch", "rows"}
    fixed = [rng.choice(rows, size, replace=False) for _ in range(steps)]
    assert "batch" in failed(tally_of(fixed))
    half = [np.flatnonzero(rng.random(rows) < size / rows * (np.arange(rows) % 2) * 2) for _ in range(steps)]
    assert failed(tally_of(half)) == {"rows"}
    # A rate a fifth above the one that was accounted for.
    more = [np.flatnonzero(rng.random(rows) < 1.2 * size / rows) for _ in range(steps)]
    assert "rows" in failed(tally_of(more))
