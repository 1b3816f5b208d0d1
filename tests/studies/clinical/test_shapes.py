"""Shapes on landscapes of which it is known what they show."""

from __future__ import annotations

import math

import pytest

from davylamp.studies.clinical.reading import exposures, found_of
from davylamp.studies.clinical.result import Survival
from davylamp.studies.clinical.shapes import paired, shapes_of, uniform
from davylamp.verdict.frontier import frontier
from support.landscapes import CANDIDATES, WAYS, Way, landscape

KEPT = Survival(copies=100, exact=96, near=97, rows=80, ended={"ok": 80})
GONE = Survival(copies=100, exact=0, near=0, rows=80, ended={"ok": 80})


def judged(ways, survivals, each=20):
    own = {name: [landscape(name, seed, way, each=each) for seed in (0, 1)] for name, way in ways.items()}
    compared = frontier([(f"{name}{at}", each) for name, seeds in own.items() for at, each in enumerate(seeds)])
    found = [
        each.model_copy(update={"survival": survivals.get(each.name)}) for each in found_of([], own, compared, {}, {})
    ]
    return {shape.statement: shape for shape in shapes_of(found, own, compared)}, found, own


def word(shapes, begins):
    (found,) = (shape.word for statement, shape in shapes.items() if statement.startswith(begins))
    return found


def test_what_was_built_in_is_found():
    ways = {**WAYS, "dp_sgd": Way(0.0, 0.6), "surrogate": Way(0.0, 0.1)}
    shapes, found, own = judged(ways, {"scrub": KEPT, "surrogate": GONE})
    assert word(shapes, "Direct") == "held"
    assert word(shapes, "Scrubbing") == "held"
    assert word(shapes, "Goldfish") == "held"
    assert word(shapes, "DP-SGD") == "held"
    assert word(shapes, "Surrogates") == "held"
    assert {"privacy_rewrite beats rewrite on both axes.", "privacy_summary beats summary on both axes."} < set(shapes)
    assert "Qwen3.5-4B-Base / gpt-oss-20b: goldfish 10.38 (53%) / 8.90 (37%)" in next(
        shape.paper for statement, shape in shapes.items() if statement.startswith("Goldfish")
    )
    direct = next(each for each in found if each.name == "direct")
    bits = exposures(own["direct"])
    assert direct.mean_exposure.value == pytest.approx(sum(bits) / len(bits))
    assert (direct.canaries, direct.seeds) == (200, (0, 1))


def test_what_is_not_so_is_not_held():
    ways = {
        "none": Way(0.0, 0.9),
        "direct": Way(0.4, 0.0),
        "goldfish": Way(0.9, 0.0),
        "dp_sgd": Way(0.9, 0.0),
        "scrub": Way(0.0, 0.0),
        "surrogate": Way(0.5, 0.1),
    }
    shapes, _, _ = judged(ways, {"scrub": GONE, "surrogate": KEPT})
    for begins in ("Direct", "Goldfish"):
        assert word(shapes, begins) == "held in part"
    for begins in ("Scrubbing", "Surrogates"):
        assert word(shapes, begins) == "not held"
    assert not next(shape for name, shape in shapes.items() if name.startswith("DP-SGD")).checks[0].held


def test_what_few_canaries_cannot_tell_is_neither_held_nor_denied():
    # One that differs of six either way: p = 0.22; 5 of 6 may be 0.9959 in truth, 1 of 6 0.64, by Clopper and Pearson.
    assert paired([2, 2, 2, 2, 2, 1], [1, 1, 1, 1, 1, 2]).few
    against = paired([1, 1, 1, 1, 1, 2], [2, 2, 2, 2, 2, 1])
    assert not against.few
    assert not against.above
    # Half of forty: a share of 0.66 at most, which is no clear difference.
    assert not paired([1, 2] * 20, [2, 1] * 20).few


def baseline(ways, each=20):
    """The check of DP-SGD's exposure, and the word of its shape."""
    shapes, _, _ = judged({"none": Way(0.0, 0.9), **ways, "dp_sgd": Way(0.0, 0.6)}, {}, each)
    (shape,) = (shape for statement, shape in shapes.items() if statement.startswith("DP-SGD"))
    return shape.checks[0]


def test_at_the_baseline_takes_canaries_enough():
    # 1.96 standard errors of 1.44 bits are 0.2 with 200 canaries, and 0.9 with 10: a bit more is not excluded.
    assert baseline({"direct": Way(1.0, 0.0)}).held
    few = baseline({"direct": Way(1.0, 0.0)}, each=1)
    assert (few.held, few.few) == (False, True)
    assert "2.44 must be" in few.statement


def test_at_the_baseline_says_nothing_where_direct_training_leaks_nothing():
    harmless = baseline({"direct": Way(0.0, 0.0)})
    assert (harmless.held, harmless.few) == (False, True)
    assert "there was nothing to protect from" in harmless.statement


def test_an_interval_of_exposure_holds_nothing_that_no_exposure_is():
    _, found, _ = judged({"none": Way(0.0, 0.9), "direct": Way(5.0, 0.0)}, {}, each=2)
    for own in found:
        for bits in (own.mean_exposure, own.twins):
            assert 0 <= bits.low <= bits.value <= bits.high <= math.log2(CANDIDATES)
    assert {own.twins.n for own in found} == {4}


def test_what_was_not_run_is_not_judged():
    shapes, _, _ = judged({name: WAYS[name] for name in ("none", "direct")}, {})
    assert list(shapes) == ["Direct fine-tuning leaks most."]
    shapes, _, _ = judged({"direct": WAYS["direct"]}, {})
    assert not shapes


def test_pairs_by_hand():
    pairs = paired([3, 2, 5, 1, 9, 9, 9, 9], [1, 2, 1, 2, 1, 1, 1, 1])
    # Six of seven that differ: p = 2 (1 + 7) / 2^7.
    assert (pairs.more, pairs.fewer, pairs.p) == (6, 1, pytest.approx(16 / 128))
    assert not pairs.above
    assert paired([1.0], [2.0]).few


def test_the_baseline_is_that_of_a_uniform_rank():
    mean, spread = uniform(4)
    # Ranks 1 to 4: 2, 1, log2(4/3) and 0 bits.
    bits = [2, 1, math.log2(4 / 3), 0]
    assert mean == pytest.approx(sum(bits) / 4)
    assert spread == pytest.approx(math.sqrt(sum((bit - mean) ** 2 for bit in bits) / 4))
    # As candidates grow, exposure is exponential with mean and standard deviation log2(e).
    limit = pytest.approx(math.log2(math.e), abs=1e-2)
    assert uniform(CANDIDATES) == (limit, limit)
