"""Lower bounds on epsilon from a run's own readings."""

from __future__ import annotations

import json
import math

import numpy as np
import polars as pl
import pytest
from pydantic import ValidationError
from scipy import stats

from davylamp.bounds import ApproxDP, extraction_epsilon
from davylamp.errors import RunFolderError
from davylamp.measures import readings as tables
from davylamp.measures.readings import Reading
from davylamp.measures.shadow_results import ShadowScores, TargetRecord, Trials
from davylamp.verdict.epsilon import EpsilonResult, EpsilonSettings, epsilon_result
from davylamp.verdict.extraction import ClaimSpec

PURE = EpsilonSettings(delta=0.0)


def reading(canary, role, dose, measure, value, probe="as_trained"):
    unit = "success" if measure == "greedy_recovery" else "nats"
    return Reading("arm", dose, 7, canary, role, "redacted", probe, "trained", measure, value, unit)


def frame_of(members, twins, dose=1, said=None):
    rows = [reading(f"c{n:04d}", "focus", dose, "membership_loss_secret", v) for n, v in enumerate(members)]
    rows += [reading(f"c{len(members) + n:04d}", "twin", 0, "membership_loss_secret", v) for n, v in enumerate(twins)]
    if said is not None:
        rows += [reading(f"c{n:04d}", "focus", dose, "greedy_recovery", v, "hidden") for n, v in enumerate(said)]
    return tables.table(rows)


def row_of(result, audit):
    return next(row for row in result.rows if row.audit == audit)


def test_pairs_are_bounded_as_by_hand():
    # 20 pairs, all guessed right; two ways to guess share the error, and 0.025^(1/20) is Clopper-Pearson's bound on
    # the share of right guesses, whose logit is the bound on a pure epsilon.
    found = row_of(epsilon_result(frame_of(np.arange(20) + 100.0, np.arange(20.0)), 10_000, PURE), "pairs")
    share = 0.025 ** (1 / 20)
    assert found.eps_low == pytest.approx(math.log(share / (1 - share)), rel=1e-9)
    assert (found.guesses, found.correct, found.canaries, found.relation) == (20, 20, 20, "replace")
    assert found.eps_low <= found.reach


def test_a_bound_is_for_one_of_the_copies():
    one = row_of(epsilon_result(frame_of(np.ones(20), np.zeros(20)), 10_000, PURE), "pairs")
    four = row_of(epsilon_result(frame_of(np.ones(20), np.zeros(20), dose=4), 10_000, PURE), "pairs")
    # At least a quarter, by group privacy; the exact curve of four copies gives a little more.
    assert one.eps_low / 4 <= four.eps_low < one.eps_low / 3


def test_secrets_that_came_out_are_bounded_as_bounds_does():
    frame = frame_of(np.zeros(10), np.zeros(10), dose=2, said=[1.0] * 7 + [0.0] * 3)
    result = epsilon_result(frame, 10_000, EpsilonSettings(delta=1e-5), ClaimSpec(epsilon=1.0, delta=1e-5))
    found = row_of(result, "extraction")
    same = extraction_epsilon(7, 10, 1e-4, 1e-5, copies=2, upper=ApproxDP(1.0, 1e-5))
    assert (found.eps_low, found.upper, found.verdict) == (same.eps_low, same.upper, "refuted")
    assert result.claim == ApproxDP(1.0, 1e-5).describe()


def test_null_pairs_are_above_zero_no_more_often_than_the_confidence_allows():
    rng, above = np.random.default_rng(0), 0
    for _ in range(400):
        members, twins = rng.normal(size=(2, 16))
        above += row_of(epsilon_result(frame_of(members, twins), 10_000), "pairs").eps_low > 0
    # At most 5% of 400 on average; a binomial of that mean exceeds 36 with a chance of 1 in 3,000.
    assert stats.binom.sf(36, 400, 0.05) < 3e-4
    assert above <= 36


def shadow_scores(scores, inside):
    """Six shadows, of which the first is attacked by the given scores."""
    count = len(inside)
    first = "".join(str(int(flag)) for flag in inside)
    second = "".join(str(int(not flag)) for flag in inside)
    rest = tuple(tuple(0.0 for _ in range(count)) for _ in range(5))
    return ShadowScores(
        seed=0,
        planted_sha256="0",
        base_sha256="0",
        inside=(first, second) * 3,
        taken_rows=(count, count / 2),
        records=tuple(
            TargetRecord(canary=f"c{n:04d}", role="focus", arm="arm", context="redacted", dose=1, shadow_dose=1)
            for n in range(count)
        ),
        trials=(
            Trials(
                probe="hidden",
                span="secret",
                measure="lira_online",
                unit="nats",
                records=tuple(range(count)),
                scores=(tuple(scores), *rest),
            ),
        ),
    )


def test_coins_of_the_first_shadow_are_guessed_from_its_own_scores():
    inside = [True, False] * 30
    scores = np.where(inside, 5.0, -5.0) + np.linspace(0, 1, 60)
    found = row_of(epsilon_result(frame_of([1.0], [0.0]), 10_000, PURE, shadows=shadow_scores(scores, inside)), "coins")
    assert (found.canaries, found.relation, found.score) == (60, "replace", "lira_online")
    assert found.correct == found.guesses
    assert found.eps_low == pytest.approx(found.reach)
    # All 60 right would be the most; an equal share of the error goes to each number of calls.
    assert 1.5 < found.eps_low < math.log(60 / 0.05)


def test_null_coins_show_nothing_more_often_than_allowed():
    rng, above = np.random.default_rng(1), 0
    for _ in range(300):
        shadows = shadow_scores(rng.normal(size=40), rng.random(40) < 0.5)
        above += row_of(epsilon_result(frame_of([1.0], [0.0]), 10_000, shadows=shadows), "coins").eps_low > 0
    # 15 on average at most; above 29 with a chance of 1 in 3,000.
    assert stats.binom.sf(29, 300, 0.05) < 4e-4
    assert above <= 29


def test_gaussian_claims_are_met_by_the_gaussian_bound_and_no_other_claim_is():
    frame = frame_of(np.ones(40), np.zeros(40))
    gaussian = row_of(epsilon_result(frame, 10_000, claim=ClaimSpec(mu=0.1)), "pairs")
    assert gaussian.method == "one-run Gaussian"
    assert gaussian.mu_low > 0.1
    assert gaussian.verdict == "refuted"
    pure = row_of(epsilon_result(frame, 10_000, claim=ClaimSpec(epsilon=50.0)), "pairs")
    assert pure.method != "one-run Gaussian"
    assert (pure.mu_low, pure.verdict) == (None, "could-not-refute")


def test_a_claim_for_added_records_is_held_against_replacing_one_as_two_steps():
    # 40 pairs, all right: at least 2.34 for replacing a record, so that two steps of 1.5 are not refuted and one is.
    frame = frame_of(np.ones(40), np.zeros(40))
    claimed = {relation: ClaimSpec(epsilon=1.5, relation=relation) for relation in ("add or remove", "replace")}
    rows = {
        relation: row_of(epsilon_result(frame, 10_000, PURE, claim), "pairs") for relation, claim in claimed.items()
    }
    assert rows["replace"].upper == pytest.approx(1.5)
    assert rows["add or remove"].upper in (None, pytest.approx(3.0))
    assert rows["replace"].eps_low == rows["add or remove"].eps_low
    assert (rows["replace"].verdict, rows["add or remove"].verdict) == ("refuted", "could-not-refute")
    assert "two steps" in rows["add or remove"].statement
    assert "two steps" not in rows["replace"].statement


def test_how_many_pairs_would_refute_a_claim_is_said():
    result = epsilon_result(frame_of(np.ones(5), np.zeros(5)), 10_000, PURE, ClaimSpec(epsilon=4.0, relation="replace"))
    # 0.025^(1/n) must exceed e^4 / (1 + e^4): 204 pairs; the search stops within 1%.
    needed = next(note for note in result.notes if "Refuting the claim" in note)
    count = int(needed.split("takes ")[1].split(" ")[0])
    assert 204 <= count <= 207


def test_canaries_without_a_partner_are_named():
    result = epsilon_result(frame_of(np.ones(10), np.zeros(6)), 10_000)
    assert row_of(result, "pairs").canaries == 6
    assert any("6 of 10" in note for note in result.notes)


def test_a_score_that_was_not_taken_is_named_and_bounds_nothing():
    result = epsilon_result(frame_of([1.0], [0.0]), 10_000, EpsilonSettings(score="zlib"))
    assert not [row for row in result.rows if row.audit == "pairs"]
    assert any("'zlib'" in note for note in result.notes)


def test_the_file_is_read_back_and_a_damaged_one_is_refused(tmp_path):
    path = tmp_path / "epsilon.json"
    result = epsilon_result(frame_of(np.ones(5), np.zeros(5), said=[1.0] * 5), 10_000)
    result.save(path)
    assert EpsilonResult.load(path) == result
    data = json.loads(path.read_text("utf-8"))
    path.write_text(json.dumps({**data, "rows": 3}), "utf-8")
    with pytest.raises(RunFolderError, match="cannot read"):
        EpsilonResult.load(path)
    with pytest.raises(RunFolderError, match="davylamp audit"):
        EpsilonResult.load(tmp_path / "none.json")


def test_readings_of_no_kind_give_no_row():
    empty = pl.DataFrame(schema=tables.SCHEMA)
    assert epsilon_result(empty, 10_000).rows == ()


@pytest.mark.parametrize("score", ["lira_online", "lira_offline", "rmia_ratio"])
def test_scores_from_shadows_guess_no_pairs(score):
    # How often a record stood in the shadows would decide the guess, of a model that was never trained too.
    with pytest.raises(ValidationError, match="coins"):
        EpsilonSettings(score=score)


def test_coins_of_another_training_say_nothing_of_a_claim():
    inside = [True, False] * 30
    shadows = shadow_scores(np.where(inside, 5.0, -5.0) + np.linspace(0, 1, 60), inside)
    frame, claim = frame_of([1.0], [0.0]), ClaimSpec(epsilon=0.1, relation="replace")
    same = epsilon_result(frame, 10_000, PURE, claim, shadows)
    other = epsilon_result(frame, 10_000, PURE, claim, shadows, same_training=False)
    assert (row_of(same, "coins").verdict, row_of(other, "coins").verdict) == ("refuted", None)
    assert row_of(other, "coins").eps_low == row_of(same, "coins").eps_low
    assert row_of(other, "coins").statement.startswith("Of the training of the shadows")
    assert any("not known" in note for note in other.notes)
