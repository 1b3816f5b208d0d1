"""Cells worked out by hand from what two worlds said, and the whole study in the slow suite."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from davylamp.bounds import GaussianDP, extraction_bound, memorization_cap, pure_dp
from davylamp.errors import RecipeError
from davylamp.studies.dp_calibration.cells import entropy_cells, memorization_cells
from davylamp.studies.dp_calibration.spec import load_recipe
from davylamp.studies.dp_calibration.trials import Pair

SMALL = ["epsilons=[1]", "copies=[1,2]", "per_copy=2", "pairs=2", "digits=[1,4]"]


def rows_of(digits, probability):
    """Log-probabilities in which each true digit has a given probability, and the other nine share the rest."""
    digits = np.asarray(digits)
    rows = np.full((*digits.shape, 10), (1 - np.asarray(probability)[..., None]) / 9 * np.ones(10))
    np.put_along_axis(rows, digits[..., None], np.asarray(probability)[..., None], axis=2)
    return np.log(rows)


def pair_of(epsilon, inside, outside, digits):
    """Two canaries of each of k = 1 and 2, with a probability for each."""
    digits = np.array(digits)
    shape = np.ones((4, 4))
    return Pair(
        epsilon,
        np.array([1, 1, 2, 2]),
        digits,
        rows_of(digits, shape * np.array(inside)[:, None]),
        rows_of(digits, shape * np.array(outside)[:, None]),
    )


DIGITS = [[1, 2, 3, 4], [5, 6, 7, 0], [0, 0, 0, 0], [9, 8, 7, 6]]


def pairs_of(epsilon, gain):
    low = [0.1, 0.1, 0.1, 0.1]
    one = [0.1 + gain, 0.1 + gain, 0.1 + 2 * gain, 0.1 + 2 * gain]
    other = [0.1, 0.1 + gain, 0.1 + 2 * gain, 0.1 + 2 * gain]
    return [pair_of(epsilon, one, low, DIGITS), pair_of(epsilon, other, low, DIGITS)]


def test_memorization_is_the_mean_gap_and_its_error_is_over_pairs():
    recipe, claims = load_recipe(SMALL), {1.0: pure_dp(1.0)}
    pairs = pairs_of(1.0, 0.1) + pairs_of(None, 0.4)
    cells = {(cell.epsilon, cell.copies): cell for cell in memorization_cells(recipe, pairs, claims)}
    assert set(cells) == {(1.0, 1), (1.0, 2), (None, 1), (None, 2)}
    # Pair means of k = 1 are 0.1 and 0.05: mean 0.075, deviation 0.0354, over the root of two pairs 0.025.
    assert cells[1.0, 1].measured == pytest.approx(0.075)
    assert cells[1.0, 1].error == pytest.approx(0.025)
    assert cells[1.0, 2].measured == pytest.approx(0.2)
    assert cells[1.0, 2].error == pytest.approx(0, abs=1e-12)
    assert cells[1.0, 1].cap == pytest.approx(math.tanh(0.5))
    assert cells[1.0, 2].cap == pytest.approx(memorization_cap(pure_dp(1.0), copies=2))
    assert cells[None, 1].cap is None
    # Without noise 0.8 at k = 2, above the cap of 0.63; at k = 1 0.3, below 0.46. No cap is at most 0.2.
    assert cells[1.0, 2].without_noise_exceeds
    assert not cells[1.0, 1].without_noise_exceeds
    assert not any(cell.telling or cell.violated for cell in cells.values())


def test_a_cell_above_a_small_cap_is_a_violation():
    recipe, claims = load_recipe(SMALL), {1.0: GaussianDP(0.1)}
    cells = memorization_cells(recipe, pairs_of(1.0, 0.1) + pairs_of(None, 0.4), claims)
    by_copies = {cell.copies: cell for cell in cells if cell.epsilon is not None}
    # mu = 0.1: cap 0.0399 at k = 1, below three errors of 0.025; 0.0797 at k = 2, where the error is 0.
    assert by_copies[1].cap == pytest.approx(0.03988, abs=1e-5)
    assert not by_copies[1].telling
    assert by_copies[2].telling
    assert by_copies[2].violated


def test_extraction_on_both_sides_of_the_floor():
    recipe, claims = load_recipe([*SMALL, "risk=0.2"]), {1.0: pure_dp(1.0)}
    pairs = pairs_of(1.0, 0.1) + pairs_of(None, 0.4)
    cells = {(c.epsilon, c.copies, round(c.bits / math.log2(10))): c for c in entropy_cells(recipe, pairs, claims)}
    one, four = cells[1.0, 1, 1], cells[1.0, 1, 4]
    # H* = eps log2 e + log2(1 / risk) = 3.76 bits: between one digit (3.32) and four (13.29).
    assert one.floor == pytest.approx(math.log2(math.e) + math.log2(5))
    assert not one.above
    assert four.above
    # A true digit at 0.2 is the likeliest, one at 0.1 is tied with the nine others, which is a miss.
    assert (one.extracted, one.trials, four.extracted) == (3, 4, 3)
    # The guesser always says 0: right for the last digit of the second canary, in both pairs.
    assert (one.guessed, four.guessed) == (2, 0)
    assert one.bound == pytest.approx(extraction_bound(pure_dp(1.0), 0.1))
    # Three of four, by Clopper-Pearson at 1 - 0.05/4, are at least 0.14: above e x 1e-4, below e x 0.1.
    assert four.violated
    assert not one.violated
    # Of four members three are likelier than every non-member, and one is tied with them all: (3 + 1/2) / 4.
    assert one.auc == pytest.approx(3.5 / 4)
    # Area under 1 - f of pure DP, piecewise linear between (0, 0), (1/(e+1), e/(e+1)) and (1, 1).
    assert one.auc_bound == pytest.approx((1 + math.tanh(0.5)) / 2, abs=1e-3)
    assert cells[None, 1, 1].bound is None


def test_faults_of_a_recipe_are_named():
    with pytest.raises(RecipeError, match="pairs"):
        load_recipe(["pairs=1"])
    with pytest.raises(RecipeError, match="epsilons"):
        load_recipe(["epsilons=[0]"])


@pytest.mark.slow
def test_no_claim_is_violated_and_without_noise_it_would_have_been(tmp_path, capsys):
    pytest.importorskip("opacus", reason="the extra 'dp' is not installed")
    from davylamp.studies.dp_calibration.__main__ import main

    small = ["epsilons=[0.25]", "copies=[1,8]", "pairs=3", "--quiet"]
    assert main(["--out", str(tmp_path), *small]) == 0
    data = json.loads((tmp_path / "dp_calibration.json").read_text("utf-8"))
    cells = {(cell["epsilon"], cell["copies"]): cell for cell in data["memorization"]}
    assert cells[None, 8]["measured"] > 0.8
    assert cells[0.25, 1]["without_noise_exceeds"]
    assert not any(cell["violated"] for cell in cells.values())
    assert "could have shown a violation" in capsys.readouterr().out


def test_a_guesser_with_few_choices_is_read_against_them():
    recipe, claims = load_recipe([*SMALL, "choices=[2,9]"]), {1.0: pure_dp(1.0)}
    cells = entropy_cells(recipe, pairs_of(1.0, 0.1) + pairs_of(None, 0.4), claims)
    rows = [cell for cell in cells if cell.epsilon == 1.0 and cell.copies == 2]
    assert [(cell.bits, cell.kappa) for cell in rows] == [
        (pytest.approx(math.log2(10)), 0.1),
        (pytest.approx(4 * math.log2(10)), pytest.approx(1e-4)),
        (1.0, 0.5),
        (pytest.approx(math.log2(9)), pytest.approx(1 / 9)),
    ]
    # Every true digit of k = 2 has 0.3 against 0.078 of each other one, whichever of them are the choices.
    assert [cell.extracted for cell in rows[2:]] == [4, 4]
    assert all(cell.bound == pytest.approx(extraction_bound(claims[1.0], cell.kappa, 2)) for cell in rows)


def test_choices_are_uniform_over_what_the_guesser_knows():
    # A model that always says the lowest digit is no better than a guesser: with the true
    # one drawn uniformly, of two choices the lower one is right half of the time. 4,000 canaries: 4 errors are 0.032.
    digits = np.random.default_rng(0).integers(10, size=(4000, 4))
    flat = np.tile(np.log(np.linspace(0.19, 0.01, 10)), (4000, 4, 1))
    pair = Pair(1.0, np.ones(4000, dtype=int), digits, flat, flat)
    recipe = load_recipe([*SMALL, "copies=[1]", "choices=[2,4]"])
    cells = entropy_cells(recipe, [pair], {1.0: pure_dp(1.0)})
    assert [cell.extracted / cell.trials for cell in cells[-2:]] == pytest.approx([1 / 2, 1 / 4], abs=0.032)
    # The likeliest digit is the lowest one here, so that the model is the guesser.
    assert [cell.extracted for cell in cells[-2:]] == [cell.guessed for cell in cells[-2:]]
