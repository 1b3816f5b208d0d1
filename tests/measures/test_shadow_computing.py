from __future__ import annotations

import numpy as np
import pytest

from davylamp.errors import InputError, RunFolderError
from davylamp.measures.shadow_computing import Computation, Sight, check_settings
from davylamp.measures.shadow_results import ShadowScores, TargetRecord
from davylamp.measures.shadow_scores import lira_online, rmia, scaled_confidence

TOKENS = 7


def record(number, arm, role, shadow_dose):
    dose = shadow_dose if role == "focus" else 0
    context = "visible" if arm == "v" else "redacted"
    return TargetRecord(canary=f"c{number}", role=role, arm=arm, context=context, dose=dose, shadow_dose=shadow_dose)


def world(shadows=12, each=12, gap=1.5, seed=0):
    """Two arms, two doses, twins of both; log-probabilities of spans of 7 tokens whose logits are Gaussian."""
    rng = np.random.default_rng(seed)
    records = [
        record(number, arm, role, dose)
        for number, (arm, role, dose, _) in enumerate(
            (arm, role, dose, at) for arm in "vr" for role in ("focus", "twin") for dose in (1, 4) for at in range(each)
        )
    ]
    first = rng.random((shadows // 2, len(records))) < 0.5
    inside = np.stack([first, ~first], axis=1).reshape(shadows, -1)
    level = rng.standard_normal(len(records))
    doses = np.array([r.shadow_dose for r in records])
    planted = np.array([r.dose > 0 for r in records])

    def logs(members):
        phi = level + gap * np.sqrt(doses) * members + 0.5 * rng.standard_normal(members.shape)
        return -TOKENS * np.log1p(np.exp(-phi))

    every = np.arange(len(records))
    sight = Sight("hidden", "secret", every, np.full(len(every), TOKENS), logs(inside), logs(planted))
    return records, inside, sight


def by_measure(found):
    return {each.measure: each for each in found}


def test_scores_of_the_audited_model_use_all_shadows_and_confidences_of_a_token():
    records, inside, sight = world()
    series = by_measure(Computation(records, inside, 0).series(sight))
    groups = np.array([hash((r.arm, r.shadow_dose)) for r in records])
    arms = np.array([r.arm == "v" for r in records]).astype(int)
    expected = lira_online(
        scaled_confidence(sight.audited / TOKENS), scaled_confidence(sight.shadows / TOKENS), inside, groups
    )
    np.testing.assert_allclose(series["lira_online"].values, expected)
    planted = np.array([r.dose > 0 for r in records])
    ratios = rmia(sight.audited / TOKENS, sight.shadows / TOKENS, inside, ~planted, arms)
    np.testing.assert_allclose(series["rmia"].values, ratios.online)
    np.testing.assert_allclose(series["rmia_offline"].values, ratios.offline)
    # Members score higher, by every score.
    for measure in ("lira_online", "lira_offline", "rmia", "rmia_offline", "rmia_ratio"):
        values = np.array(series[measure].values)
        assert values[planted].mean() > values[~planted].mean()


def test_trials_leave_out_the_attacked_shadow_and_its_partner():
    records, inside, sight = world()
    trials = by_measure(Computation(records, inside, 0).trials(sight))
    scores = np.array(trials["lira_online"].scores)
    assert scores.shape == inside.shape
    rest = np.delete(np.arange(12), [4, 5])
    groups = np.array([hash((r.arm, r.shadow_dose)) for r in records])
    phi = scaled_confidence(sight.shadows / TOKENS)
    np.testing.assert_allclose(scores[5], lira_online(phi[5], phi[rest], inside[rest], groups))


def test_the_auc_of_trials_grows_with_the_dose_and_is_a_half_without_a_gap():
    for gap in (0.0, 1.5):
        # 24 records a cell and 12 shadows: 144 against 144, whose standard error is at most 0.034 where scores of one
        # record are independent; they share shadows, hence the wide limits of four of them.
        records, inside, sight = world(gap=gap, seed=3)
        computation = Computation(records, inside, 0)
        trials = by_measure(computation.trials(sight))
        scores = ShadowScores(
            seed=0,
            planted_sha256="p",
            base_sha256="b",
            inside=tuple("".join("01"[int(flag)] for flag in row) for row in inside),
            taken_rows=(0, 0.0),
            records=tuple(records),
            trials=tuple(trials.values()),
        )
        np.testing.assert_array_equal(scores.members, inside)
        for measure in ("lira_online", "rmia_ratio"):
            low, high = (scores.trial_auc(trials[measure], "r", dose) for dose in (1, 4))
            if gap:
                assert 0.8 < low < high
            else:
                assert abs(low - 0.5) < 4 * 0.034
                assert abs(high - 0.5) < 4 * 0.034
        assert scores.trial_auc(trials["rmia"], "r", 2) is None


def test_cells_are_means_of_records_with_the_error_of_the_mean():
    records, inside, sight = world()
    computation = Computation(records, inside, 0)
    cells = {(c.arm, c.shadow_dose, c.measure): c for c in computation.cells(sight)}
    series = by_measure(computation.series(sight))
    chosen = [n for n, r in enumerate(records) if (r.arm, r.shadow_dose) == ("v", 4)]
    cell = cells["v", 4, "counterfactual_probability"]
    values = np.array(series["counterfactual_probability"].values)[chosen]
    assert cell.records == len(chosen) == 24
    assert cell.mean == pytest.approx(values.mean())
    p = np.exp(sight.shadows[:, chosen])
    pairs = np.where(inside[:, chosen], p, -p).reshape(6, 2, -1).sum(axis=1).mean(axis=1)
    assert cell.mean_error == pytest.approx(pairs.std(ddof=1) / np.sqrt(6))
    assert cell.mean > cell.floor_mean_q95
    assert 0 <= cell.truncated <= 1
    loss = cells["v", 4, "counterfactual_log_loss"]
    expected = np.minimum(-sight.shadows[:, chosen], 20) / 20
    signed = np.where(inside[:, chosen], -expected, expected).reshape(6, 2, -1).sum(axis=1)
    assert loss.mean == pytest.approx(signed.mean())


def test_truncation_is_told():
    records, inside, sight = world()
    far = Sight("hidden", "reply", sight.records, sight.tokens, sight.shadows - 100, None)
    computation = Computation(records, inside, 0, truncation=30.0)
    loss = next(c for c in computation.cells(far) if c.measure == "counterfactual_log_loss")
    assert loss.truncated == 1.0
    assert loss.mean == 0.0


def test_without_enough_non_members_there_is_no_rmia_and_that_is_said():
    records, inside, sight = world(each=1)
    inside[0] = True
    inside[1] = False
    computation = Computation(records, inside, 0)
    assert "rmia" not in by_measure(computation.trials(sight))
    assert any("no RMIA of each shadow: an arm has 0 non-members" in note for note in computation.notes)
    assert "rmia" in by_measure(computation.series(sight))


def test_settings_are_checked_together():
    with pytest.raises(InputError) as caught:
        check_settings(float("nan"), 2.0)
    assert len(caught.value.faults) == 2


@pytest.mark.parametrize("text", ["", "{}", '{"schema_version": 2}', "[1]"])
def test_a_result_that_is_none_is_refused(tmp_path, text):
    with pytest.raises(RunFolderError, match="davylamp shadows"):
        ShadowScores.load(tmp_path / "shadow_scores.json")
    (tmp_path / "shadow_scores.json").write_text(text, "utf-8")
    with pytest.raises(RunFolderError, match="cannot read"):
        ShadowScores.load(tmp_path / "shadow_scores.json")
