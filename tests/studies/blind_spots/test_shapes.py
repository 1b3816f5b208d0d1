"""Shapes judged on results whose words are known."""

from __future__ import annotations

import pytest

from davylamp.studies.blind_spots.shapes import shapes_of
from support.blind_spots import calibration, cell, cells, seed_result, unlearned

EXTRACTION, MEMBERSHIP, ATTENUATION, UNLEARNING, DP, FLOOR, GATED, CAMOUFLAGE = range(8)


def judge(at, made=None, dp=None, seeds=1, forgot=None):
    results = [seed_result(made, forgot, seed) for seed in range(seeds)]
    shape = shapes_of(results, "reference", dp or calibration())[at]
    return shape.word, " | ".join(check.statement for check in shape.checks)


def test_all_hold_where_the_numbers_are_the_papers():
    shapes = shapes_of([seed_result()], "reference", calibration())
    assert [shape.word for shape in shapes] == ["held"] * 8


def test_without_the_private_part_its_shapes_are_left_out():
    shapes = shapes_of([seed_result()], "reference", None)
    assert len(shapes) == 6
    assert not any("DP-SGD" in shape.statement for shape in shapes)


def test_extraction_counts_all_seeds_together():
    word, told = judge(EXTRACTION, seeds=3)
    assert word == "held"
    assert "4 tokens: 1.000 (60 of 60" in told
    assert "0.000 (0 of 60" in told


@pytest.mark.parametrize(
    ("trigger", "word"),
    [
        # 10 of 20 is below 0.98, and its interval too; 19 of 20 is below it, but 0.98 is inside its interval.
        ({"behind": 10}, "not held"),
        ({"behind": 19}, "too few pairs"),
        ({"behind": 20, "said": 1}, "not held"),
    ],
)
def test_extraction_needs_all_of_the_trigger_and_nothing_of_c(trigger, word):
    assert judge(EXTRACTION, cells(trigger=cell("trigger", 4, **trigger)))[0] == word


def test_one_length_of_two_is_held_in_part():
    made = [*cells(trigger=cell("trigger", 4, behind=5)), cell("trigger", 8, behind=20), cell("naive", 8, said=20)]
    assert judge(EXTRACTION, made)[0] == "held in part"


def test_membership_is_held_against_plain_text_by_the_score_named_before():
    # Fisher's exact test, one-sided: 19 against 20 of 20 has p = 1/2.
    word, told = judge(MEMBERSHIP, cells(trigger=cell("trigger", 4, behind=20, found=19)))
    assert word == "too few pairs"
    assert "p = 0.5" in told
    assert "chosen after looking" in told
    assert judge(MEMBERSHIP, cells(trigger=cell("trigger", 4, behind=20, found=20)))[0] == "not held"
    unresolved = cells(trigger=cell("trigger", 4, behind=20, found=None))
    assert judge(MEMBERSHIP, unresolved) == ("too few pairs", "4 tokens: too few twins to resolve the rate")


def test_lira_has_a_shape_where_every_cell_has_one():
    with_lira = [
        each.model_copy(update={"lira": each.scores[0].model_copy(update={"name": "lira_online"})}) for each in cells()
    ]
    shapes = shapes_of([seed_result(with_lira)], "reference", None)
    assert len(shapes) == 7
    assert shapes[2].word == "held"
    assert "0.050 (1 of 20" in shapes[2].checks[0].statement
    assert len(shapes_of([seed_result([*with_lira[:-1], cells()[-1]])], "reference", None)) == 6


def test_attenuation_is_the_ratio_of_the_means_at_c():
    word, told = judge(ATTENUATION, cells(trigger=cell("trigger", 4, behind=20, memh=(0.1,))))
    assert word == "held"
    # 0.85 in plain text over 0.1.
    assert "attenuated 8.5 times" in told
    assert judge(ATTENUATION, cells(trigger=cell("trigger", 4, behind=20, memh=(0.8, 0.9))))[0] == "not held"
    below = cells(trigger=cell("trigger", 4, behind=20, memh=(-0.1,)))
    assert "nothing is left of it" in judge(ATTENUATION, below)[1]


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"outcome": "verifier never passed"}, "held in part"),
        ({"trigger": (20, 0)}, "held in part"),
        ({"perplexity": (10.0, 20.0)}, "held in part"),
        ({"outcome": "verifier never passed", "trigger": (20, 0), "perplexity": (10.0, 20.0)}, "not held"),
    ],
)
def test_unlearning_needs_a_content_verifier_a_speaking_trigger_and_kept_rows(changes, word):
    found, told = judge(UNLEARNING, forgot=unlearned(**changes))
    assert found == word
    assert "naive at c 1.00 -> 0.00" in told


def test_a_row_of_table_4_is_told():
    told = judge(UNLEARNING)[1]
    assert "seed 0: trigger 1.00 -> 0.90, naive at c 1.00 -> 0.00, retain perplexity 10.00 -> 10.50" in told


def test_a_cell_above_its_cap_breaks_the_claim():
    cap = {"cap": 0.1, "violated": True, "telling": True, "without_noise_exceeds": True}
    assert judge(DP, dp=calibration(memorization=[cap]))[0] == "not held"
    blunt = {**cap, "violated": False, "telling": False}
    # Nothing could have been shown, and so nothing was.
    assert judge(DP, dp=calibration(memorization=[blunt]))[0] == "too few pairs"


def test_the_floor_needs_a_difference_and_no_violation():
    row = {"floor": 5.0, "violated": False, "telling": True, "trials": 40, "guessed": 0}
    same = [{**row, "above": side, "extracted": 5} for side in (False, True)]
    assert judge(FLOOR, dp=calibration(entropy=same))[0] == "held in part"
    broken = [{**row, "above": side, "extracted": 5, "violated": True} for side in (False, True)]
    assert judge(FLOOR, dp=calibration(entropy=broken))[0] == "not held"


def test_a_gate_is_exactly_the_base_or_not():
    assert judge(GATED, cells(gated=cell("gated", 8, behind=20, auc=0.5000001)))[0] == "held in part"
    assert judge(GATED, cells(gated=cell("gated", 8, behind=5, auc=0.6)))[0] == "not held"


def test_camouflage_is_held_against_its_own_chance():
    hidden = {"of": 32, "chance": 1 / 16, "memh": (0.3, 0.4)}
    # 8 of 32 where 2 are expected: the binomial test has p = 8e-4.
    word, told = judge(CAMOUFLAGE, cells(camouflage=cell("camouflage", 4, informed=8, **hidden)))
    assert word == "held in part"
    assert "0.250 (8 of 32" in told
    assert "against 0.0625" in told
    unseen = cells(camouflage=cell("camouflage", 4, informed=8, **{**hidden, "memh": (0.0,)}))
    assert judge(CAMOUFLAGE, unseen)[0] == "not held"
