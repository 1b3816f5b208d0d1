"""The result of a membership audit, from readings whose truth is known."""

import json
import math
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from davylamp.errors import InputError, RunFolderError
from davylamp.measures.readings import Reading, table
from davylamp.verdict.membership import compare_releases, membership_result
from davylamp.verdict.membership_model import MembershipResult
from davylamp.verdict.roc import auc


def frame(scores, *, members=(8, 8), nonmembers=60, seed=0, arms=("a",), shifts=(0.0, 9.0)):
    """Readings of scores by name, members of dose 1 and 4 shifted, each score with draws of its own."""
    readings = []
    for arm in arms:
        kinds = [
            ("focus", dose, shift)
            for count, dose, shift in zip(members, (1, 4), shifts, strict=True)
            for _ in range(count)
        ]
        kinds += [("twin" if at % 4 == 0 else "nonmember", 0, 0.0) for at in range(nonmembers)]
        for number, name in enumerate(scores):
            drawn = np.random.default_rng([seed, number]).normal(size=len(kinds))
            for at, (role, dose, shift) in enumerate(kinds):
                row = (arm, dose, 0, f"{arm}{at:03d}", role, "redacted", "as_trained", "trained", f"membership_{name}")
                readings.append(Reading(*row, float(drawn[at] + shift), "nats"))
    return table(readings)


def test_members_are_counted_by_dose_and_together():
    readings = frame(["loss", "loss_secret", "zlib"])
    result = membership_result(readings, (0.01, 0.1))
    assert {(cell.score, cell.span, cell.dose, cell.members, cell.nonmembers) for cell in result.cells} == {
        (score, span, dose, count, 60)
        for score, span in (("loss", "record"), ("loss", "secret"), ("zlib", "record"))
        for dose, count in ((None, 16), (1, 8), (4, 8))
    }
    largest = next(cell for cell in result.cells if (cell.score, cell.span, cell.dose) == ("loss", "record", 4))
    # Nine standard deviations above: all found, at the price of Clopper-Pearson's room for 8 of 8.
    assert largest.auc.value == 1.0
    assert largest.point(0.1).true_positives.rate == 1.0
    assert largest.point(0.1).true_positives.low == pytest.approx(0.025 ** (1 / 8))
    values = {
        dose: readings.filter((pl.col("dose") == dose) & (pl.col("measure") == "membership_zlib"))["value"]
        for dose in (0, 1)
    }
    once = next(cell for cell in result.cells if (cell.score, cell.dose) == ("zlib", 1))
    assert once.auc == auc(values[1].to_numpy(), values[0].to_numpy())


def test_thresholds_are_chosen_on_one_half_and_held_against_the_other():
    result = membership_result(frame(["loss"]), (0.1,))
    halves = result.nonmembers["a"]
    assert len(halves.choosing) == len(halves.realising) == 30
    assert len({*halves.choosing, *halves.realising}) == 60
    point = result.cells[0].points[0]
    assert (point.chosen_on, point.false_positives.of) == (30, 30)
    # The same halves, whatever the order of the rows and whatever else was measured.
    other = frame(["zlib", "loss"], seed=5).sample(fraction=1, shuffle=True, seed=1)
    assert membership_result(other, (0.1,)).nonmembers == result.nonmembers


def test_null_data_tell_nothing():
    # 20 models; members are drawn as non-members are.
    inside, hits = [], 0
    for seed in range(20):
        result = membership_result(frame(["loss"], shifts=(0.0, 0.0), seed=seed, nonmembers=200), (0.05,))
        cell = result.cells[0]
        inside.append(cell.auc.low <= 0.5 <= cell.auc.high)
        hits += cell.points[0].true_positives.count
    # 320 members at 5 of 101; the thresholds of 20 models vary too: four standard errors of both.
    p = 5 / 101
    assert abs(hits - 320 * p) <= 4 * math.sqrt(320 * p * (1 - p) + 20 * 16**2 * p * (1 - p) / 102)
    # 95% of 20: 15 or fewer fall with a chance of 0.3%.
    assert sum(inside) >= 16


def test_what_cannot_be_resolved_is_said_with_what_would_resolve_it():
    result = membership_result(frame(["loss", "zlib"], arms=("a", "b")), (0.001, 0.05))
    assert [cell.point(0.001).word for cell in result.cells] == ["underpowered"] * len(result.cells)
    assert [sentence for sentence in result.underpowered if "'a'" in sentence] == [
        "0.1% false positives cannot be resolved in arm 'a': a threshold for them is chosen on at least 1,000 "
        "non-members, which takes 2,000 in all, half of them to see the rate that it really has; there are 60 (see "
        "plan.nonmembers)"
    ]
    assert len(result.underpowered) == 2
    assert list(result.comparisons[0].decisions) == [0.05]


def test_scores_are_ranked_by_what_they_find():
    # The second score sees members of both doses, the first those of dose 4 alone.
    both = frame(["loss"]).vstack(frame(["zlib"], shifts=(9.0, 9.0), seed=1))
    result = membership_result(both, (0.001, 0.05))
    assert [cell.score for cell in result.ranked(0.05)] == ["zlib", "loss"]
    assert [cell.score for cell in result.ranked(0.001)] == ["zlib", "loss"]
    assert result.ranked(0.05, arm="other") == []
    with pytest.raises(InputError, match=r"fpr is 0\.01; allowed: one of 0\.001, 0\.05"):
        result.ranked(0.01)
    compared = result.comparisons[0]
    assert (compared.first, compared.second, compared.span) == ("loss", "zlib", "record")
    assert compared.difference.value > 0
    assert compared.decisions[0.05].second_only >= 6


def test_it_survives_a_file(tmp_path):
    result = membership_result(frame(["loss", "zlib", "zlib_secret"]), (0.05, 0.001))
    result.save(tmp_path / "membership.json")
    assert MembershipResult.model_validate_json((tmp_path / "membership.json").read_text("utf-8")) == result
    result.save(tmp_path / "more.json", result.nonmembers["a"])
    assert len(json.loads((tmp_path / "more.json").read_text("utf-8"))["notes"]["choosing"]) == 30


def test_two_releases_are_compared_canary_by_canary():
    first, second = frame(["loss"], shifts=(0.0, 0.0)), frame(["loss"], shifts=(9.0, 9.0), seed=3)
    (found,) = compare_releases(first, second, "loss", (0.05,), ("clean", "leaky"))
    assert (found.first, found.second) == ("clean", "leaky")
    assert found.difference.low > 0
    assert found.decisions[0.05].second_only >= 14
    with pytest.raises(RunFolderError, match="different canaries in arm 'a'"):
        compare_releases(first, frame(["loss"], nonmembers=59), "loss", (0.05,))
    with pytest.raises(RunFolderError, match="zlib of the record was not taken"):
        compare_releases(first, second, "zlib", (0.05,))


def test_no_row_is_left_out_in_silence():
    whole = frame(["loss", "zlib"])
    with pytest.raises(RunFolderError, match=r"zlib \(record\) of arm 'a' lacks a003 and 0 more"):
        membership_result(
            whole.filter(~((pl.col("canary") == "a003") & (pl.col("measure") == "membership_zlib"))), (0.05,)
        )
    with pytest.raises(RunFolderError, match="holds a canary twice"):
        membership_result(whole.vstack(whole.head(1)), (0.05,))
    with pytest.raises(RunFolderError, match="0 non-members"):
        membership_result(whole.filter(pl.col("role") == "focus"), (0.05,))
    with pytest.raises(RunFolderError, match="audit with membership"):
        membership_result(whole.clear(), (0.05,))
    with pytest.raises(RunFolderError, match="one model"):
        membership_result(whole.vstack(whole.with_columns(release=pl.lit("reference"))), (0.05,))
    with pytest.raises(InputError, match="no row is left out"):
        membership_result(whole.with_columns(value=pl.lit(math.nan)), (0.05,))


def test_scores_that_read_shadows_with_the_record_are_compared_at_one_dose():
    # Nothing is given away at any dose: a score is minus the dose at which its record stood in the shadows, and noise.
    rng, doses, kinds = np.random.default_rng(5), [1, 4, 16], [("focus", 60), ("nonmember", 300)]
    rows, stood = [], {}
    for role, count in kinds:
        for number in range(count):
            name, dose = f"{role}{number:03d}", doses[number % 3]
            planted = dose if role == "focus" else 0
            row = ("arm", planted, 0, name, role, "redacted", "as_trained", "trained", "membership_lira_online_secret")
            rows.append(Reading(*row, -dose + rng.normal(scale=0.1), "nats"))
            stood[name] = dose
    made = table(rows)
    mixed = {cell.dose: cell for cell in membership_result(made, [0.05]).cells}
    like = {cell.dose: cell for cell in membership_result(made, [0.05], null_doses=stood).cells}
    # Against all doses a member of dose 1 lies above two thirds of the non-members though nothing leaks: 0.83, within
    # two standard errors of 0.07.
    assert mixed[1].auc.value > 0.7
    # 20 members and 100 non-members: an AUC's standard error is 0.07; three of them are allowed.
    assert all(abs(cell.auc.value - 0.5) < 0.21 for cell in like.values())
    assert {dose: cell.nonmembers for dose, cell in like.items()} == {None: 300, 1: 100, 4: 100, 16: 100}
    # Other scores have no dose in the shadows, and keep all non-members.
    other = table([replace(row, measure="membership_loss_secret") for row in rows])
    assert {cell.nonmembers for cell in membership_result(other, [0.05], null_doses=stood).cells} == {300}
