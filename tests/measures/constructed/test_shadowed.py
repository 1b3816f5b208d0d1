"""LiRA and counterfactual memorization of constructions, from signals whose truth is known by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from davylamp.errors import InputError
from davylamp.measures.constructed.model import Baseline, ConstructionCell, InstanceReading, Pairs, Rate
from davylamp.measures.constructed.shadowed import InstanceSignals, with_shadows
from davylamp.measures.shadow_scores import auc
from davylamp.studies.constructing import judged
from davylamp.training.shadows import coins


def cell_of(kind, planted, twins):
    nothing = Pairs(planted=Rate.of([False] * planted, 0.95), twins=Rate.of([False] * twins, 0.95))
    return ConstructionCell(
        line=0,
        kind=kind,
        tokens=2,
        copies=4,
        at_prefix=nothing,
        informed=nothing,
        chance=0.0,
        baseline=Baseline(low=0, high=0, charged=0, guesses=1, how="exact"),
        memh=0.0,
        memh_twins=0.0,
        scores=(),
        instances=tuple(
            InstanceReading(
                id=f"{role}{at}",
                role=role,
                at_prefix=False,
                informed=False,
                log_probability=-3.0,
                base_log_probability=-3.0,
                memh=0.0,
            )
            for role, count in (("planted", planted), ("twin", twins))
            for at in range(count)
        ),
    )


def signals_of(cell, shift, *, planted_in=True, shadows=16, tokens=2, seed=3):
    """Tokens of log-probability -2 give or take; ``shift`` nats more in the worlds that hold an instance."""
    rng = np.random.default_rng(seed)
    ids = tuple(each.id for each in cell.instances)
    inside = coins(seed, ids, shadows)

    def said(held):
        return tuple(-2 + shift * each - 0.2 * np.abs(rng.normal(size=tokens)) for each in held)

    own = [planted_in and each.role == "planted" for each in cell.instances]
    return InstanceSignals(ids, inside, [said(row) for row in inside], said(own), seed)


def test_lira_is_the_ratio_of_two_gaussians_by_hand():
    cell = cell_of("naive", 2, 2)
    signals = signals_of(cell, 0.5, shadows=6)
    found = with_shadows(cell, signals, 0.05).lira

    def scaled(logs):
        p = math.exp(logs.mean())
        return math.log(p / (1 - p))

    worlds = [
        [[scaled(row[at]) for row, flags in zip(signals.shadows, signals.inside, strict=True) if flags[at] == world]
         for at in range(4)]
        for world in (True, False)
    ]  # fmt: skip
    # One variance for each world: three values of four instances leave eight degrees of freedom.
    sigmas = [math.sqrt(sum((value - np.mean(of)) ** 2 for of in world for value in of) / 8) for world in worlds]
    expected = [
        stats.norm.logpdf(scaled(signals.release[at]), np.mean(worlds[0][at]), sigmas[0])
        - stats.norm.logpdf(scaled(signals.release[at]), np.mean(worlds[1][at]), sigmas[1])
        for at in range(4)
    ]
    assert [*found.planted, *found.twins] == pytest.approx(expected)


def test_counterfactual_memorization_is_the_difference_of_the_worlds():
    cell = cell_of("trigger", 3, 4)
    signals = signals_of(cell, 0.7)
    by_score = {each.score: each for each in with_shadows(cell, signals, 0.05).counterfactual}
    for name, of in (
        ("h", lambda logs: float(np.exp(logs).mean())),
        ("loss", lambda logs: 1 - min(-float(logs.sum()), 20.0) / 20.0),
    ):
        values = np.array([[of(each) for each in row] for row in signals.shadows])
        worlds = [np.where(flags, values, 0).sum(axis=0) / 8 for flags in (signals.inside, ~signals.inside)]
        assert by_score[name].mean == pytest.approx((worlds[0] - worlds[1]).mean())
        assert by_score[name].instances == 7
        assert by_score[name].mean > 4 * by_score[name].floor > 0


@pytest.mark.parametrize(("shift", "planted_in"), [(0.0, True), (1.0, False)])
def test_a_model_that_learnt_none_of_them_is_at_chance_whatever_its_shadows_learn(shift, planted_in):
    cell = cell_of("naive", 60, 60)
    found = [
        with_shadows(cell, signals_of(cell, shift, planted_in=planted_in, shadows=8, seed=seed), 0.05)
        for seed in range(12)
    ]
    areas = [auc(np.array(each.lira.planted + each.lira.twins), np.arange(120) < 60) for each in found]
    # The variance of an AUC of 60 and 60 at chance is 121 / (12 * 60 * 60), so that its standard error is 0.053, and
    # that of the mean of 12 is 0.0153; four of them.
    assert np.mean(areas) == pytest.approx(0.5, abs=0.061)
    if not shift:
        # The floor is what 95% of means stay below: of 12, more than 4 lie above with a chance below 0.0002.
        assert sum(abs(each.counterfactual[0].mean) > each.counterfactual[0].floor for each in found) <= 4


def test_a_model_that_learnt_all_of_them_is_told_apart():
    cell = cell_of("naive", 60, 60)
    found = judged(with_shadows(cell, signals_of(cell, 1.0), 0.05), 0.95)
    assert found.lira.auc == 1.0
    assert found.lira.tpr.value > 0.9


def test_a_gate_has_one_law_with_and_without_and_is_at_chance_exactly():
    nothing = InstanceSignals((), np.zeros((16, 0), dtype=bool), [[]] * 16, [], 0)
    found = judged(with_shadows(cell_of("gated", 5, 20), nothing, 0.05), 0.95)
    assert set(found.lira.planted + found.lira.twins) == {0.0}
    assert found.lira.auc == 0.5
    assert found.lira.tpr.successes == 0
    assert [(each.mean, each.error, each.floor) for each in found.counterfactual] == [(0.0, 0.0, 0.0)] * 2


def test_lira_is_none_of_the_scores_of_which_the_best_is_taken():
    cell = cell_of("naive", 3, 3)
    assert with_shadows(cell, signals_of(cell, 1.0), 0.05).scores == cell.scores


def test_fewer_than_two_shadows_in_a_world_are_refused():
    cell = cell_of("naive", 2, 2)
    with pytest.raises(InputError, match="shadows that are in is 1; allowed: at least 2"):
        with_shadows(cell, signals_of(cell, 0.5, shadows=2), 0.05)
