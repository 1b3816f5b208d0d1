"""Rows of logits reduced in float32 tiles, against the same sums in float64."""

import numpy as np
import pytest
import torch

from davylamp.release import reductions
from davylamp.release.reductions import reduce_rows

VOCABULARY = 49_152


def exact(logits, targets):
    """Log-probabilities, the targets' distances from the mean, and deviations, in float64 throughout."""
    wide = logits.double().numpy()
    below = wide - wide.max(axis=1, keepdims=True)
    weights = np.exp(below)
    totals = weights.sum(axis=1)
    finite = np.where(weights > 0, below, 0.0)
    centres = (weights * finite).sum(axis=1) / totals
    deviations = np.sqrt((weights * (finite - centres[:, None]) ** 2).sum(axis=1) / totals)
    chosen = below[np.arange(len(wide)), targets.numpy()]
    return chosen - np.log(totals), chosen - centres, deviations


def rows(kind):
    generator = torch.Generator().manual_seed(3)
    spread = torch.randn((12, VOCABULARY), generator=generator)
    if kind == "sharp":
        return spread * 8
    if kind == "nearly certain":
        # From 1e-4 down to 1e-12 of the mass beside the likeliest token: 1 + 1e-12 is 1 in float32.
        spread[:, 7] = torch.linspace(20, 40, 12)
    if kind == "flat but for one":
        # The deviation is a hundredth of the distance to the likeliest token: a difference of squares loses here.
        spread = spread * 0.01
        spread[:, 7] = 1.0
    return spread * (3 if kind == "usual" else 1)


@pytest.mark.parametrize("kind", ["usual", "sharp", "nearly certain", "flat but for one"])
def test_float32_tiles_give_what_float64_does(kind):
    logits = rows(kind)
    targets = torch.tensor([7, 1, 2, 3, 7, 4, 5, 6, 8, 9, 7, 7])
    found = reduce_rows(logits, targets, moments=True)
    logprobs, away, deviations = exact(logits, targets)
    # Sums of 49,152 float32 terms in blocks err by a few units of 6e-8, distances in nats by as much of theirs.
    assert found.logprobs.numpy() == pytest.approx(logprobs, abs=1e-6)
    in_deviations = (found.logprobs - found.means).numpy() / found.deviations.numpy()
    assert in_deviations == pytest.approx(away / deviations, rel=2e-6, abs=1e-6)
    assert found.deviations.numpy() == pytest.approx(deviations, rel=2e-6)
    alone = reduce_rows(logits, targets, moments=False)
    assert alone.logprobs.numpy() == pytest.approx(logprobs, abs=1e-6)
    assert alone.means.numel() == alone.deviations.numel() == 0


def test_the_size_of_a_tile_changes_nothing(monkeypatch):
    logits, targets = rows("usual")[:, :700].contiguous(), torch.arange(12)
    whole = reduce_rows(logits, targets, moments=True)
    for size in (1, 1400, 3500, 10**6):
        monkeypatch.setitem(reductions.TILES, "cpu", size)
        made = reduce_rows(logits, targets, moments=True)
        for one, other in ((made.logprobs, whole.logprobs), (made.deviations, whole.deviations)):
            torch.testing.assert_close(one, other, rtol=0, atol=0)


def test_uniform_rows_have_closed_forms():
    found = reduce_rows(torch.full((3, 4096), 2.5), torch.tensor([0, 5, 4095]), moments=True)
    # log(4096) = 12 log 2; float64 holds the logarithm of an exact sum.
    assert found.logprobs.numpy() == pytest.approx([-12 * np.log(2)] * 3, rel=1e-15)
    assert found.means.numpy() == pytest.approx([-12 * np.log(2)] * 3, rel=1e-15)
    assert found.deviations.tolist() == [0, 0, 0]


def test_impossible_tokens_have_no_weight():
    logits = torch.tensor([[0.0, -torch.inf, 0.0, -torch.inf], [-torch.inf, -torch.inf, 3.0, -torch.inf]])
    found = reduce_rows(logits, torch.tensor([0, 1]), moments=True)
    assert found.logprobs.tolist() == [pytest.approx(-np.log(2)), -np.inf]
    assert found.means.tolist() == [pytest.approx(-np.log(2)), 0]
    assert found.deviations.tolist() == [0, 0]


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_what_is_no_number_stays_none(value):
    logits = torch.zeros((2, 5))
    logits[1, 3] = value
    found = reduce_rows(logits, torch.tensor([1, 1]), moments=True)
    for each in (found.logprobs, found.means, found.deviations):
        assert each.isfinite().tolist() == [True, False]


def test_halves_are_widened_and_float64_is_kept():
    wide = rows("usual")[:, :500].double()
    targets = torch.arange(12)
    half = reduce_rows(wide.bfloat16(), targets, moments=True)
    assert half.logprobs.numpy() == pytest.approx(exact(wide.bfloat16(), targets)[0], abs=1e-6)
    assert reduce_rows(wide, targets, moments=True).deviations.numpy() == pytest.approx(
        exact(wide, targets)[2], rel=1e-13
    )
