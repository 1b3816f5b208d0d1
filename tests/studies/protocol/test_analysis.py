"""From runs to comparisons: which readings are paired, and with what result, on runs whose ranks are chosen."""

from __future__ import annotations

import math
import statistics

import polars as pl
import pytest

from davylamp.canaries import Manifest
from davylamp.errors import InputError, ManifestError, RecipeError, RunFolderError
from davylamp.measures import readings as tables
from davylamp.measures.readings import SCHEMA, reading_of
from davylamp.runs.folder import RunFolder
from davylamp.studies.protocol.analysis import compare, readings_of, said, select
from davylamp.studies.protocol.spec import Comparison, Select
from support.recipes import tiny_plan
from support.studies import CODES, made_recipe, write_runs

EARLY_LATE = {"early": {"plan.schedule.window": "1/2"}, "late": {"plan.schedule.window": "2/2"}}


def comparison(of, over, name="late over early"):
    return Comparison(name=name, of=Select(**of), over=Select(**over))


LATE = comparison({"variant": "late"}, {"variant": "early"})


def place_of(canary):
    return int(canary.id[1:])


# --- readings


def test_readings_carry_their_run_and_variant_and_one_key_a_canary(tmp_path):
    recipe = made_recipe(variants=EARLY_LATE, seeds=[0, 1])
    frame = readings_of(write_runs(recipe, tmp_path, lambda _, canary: 1 + place_of(canary)))
    assert set(frame.columns) == {*SCHEMA, "run", "variant", "key"}
    runs = frame.select("run", "variant", "seed").unique()
    expected = {
        (f"{variant}-{arm}-s{seed}", variant, seed)
        for variant in EARLY_LATE
        for arm in ("visible", "redacted")
        for seed in (0, 1)
    }
    assert set(runs.rows()) == expected
    # The same canary in both variants and both arms, another one in each seed: 4 focus, 2 twins, the positive control.
    by_key = frame.group_by("key").agg(pl.col("seed").n_unique(), pl.col("run").n_unique(), pl.col("canary").n_unique())
    assert len(by_key) == 7 * 2
    assert set(by_key.select("seed", "run", "canary").rows()) == {(1, 4, 1)}


def test_without_variants_there_is_none(tmp_path):
    frame = readings_of(write_runs(made_recipe(), tmp_path, lambda *_: 1))
    assert frame["variant"].unique().to_list() == [None]


def test_top_is_rank_one_and_a_tie_at_the_top_is_not(tmp_path):
    ranks = {0: 1.0, 1: 1.5, 2: 2.0, 3: 1.0}
    frame = readings_of(write_runs(made_recipe(), tmp_path, lambda _, canary: ranks.get(place_of(canary), 9.0)))
    top = frame.filter(pl.col("measure") == "top", pl.col("role") == "focus", pl.col("arm") == "redacted").sort(
        "canary"
    )
    assert top["value"].to_list() == [1.0, 0.0, 0.0, 1.0]
    assert set(top["unit"]) == {"success"}
    assert len(frame.filter(pl.col("measure") == "top")) == len(frame.filter(pl.col("measure") == "rank"))


def test_missing_and_foreign_readings_are_named(tmp_path):
    tasks = write_runs(made_recipe(), tmp_path, lambda *_: 1)
    folder = RunFolder(tasks[0].folder)
    frame = tables.load(folder.readings)
    for stranger in ("c9999", "c0000.u0000"):
        tables.save(frame.with_columns(canary=pl.lit(stranger)), folder.readings)
        with pytest.raises(RunFolderError, match=f"visible-s0 holds readings of '{stranger}'"):
            readings_of(tasks)
    folder.readings.unlink()
    with pytest.raises(RunFolderError, match=r"no readings at .*visible-s0"):
        readings_of(tasks)
    folder.manifest.write_text("{}")
    tables.save(frame, folder.readings)
    with pytest.raises(ManifestError, match="visible-s0"):
        readings_of(tasks)


# --- selections


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ({}, "exposure of all"),
        ({"variant": "late", "arm": "redacted", "dose": 4}, "exposure of late, redacted, dose 4"),
        (
            {"role": "unseen", "probe": "unseen:binary", "target": "replacement", "measure": "greedy_recovery"},
            "greedy_recovery of unseen, probe unseen:binary, replacement code",
        ),
        ({"release": "reference"}, "exposure of before fine-tuning"),
    ],
)
def test_a_selection_in_words(what, words):
    assert said(Select(**what)) == words


def test_a_selection_holds_what_agrees_with_every_key(tmp_path):
    frame = readings_of(write_runs(made_recipe(), tmp_path, lambda _, canary: 1 + place_of(canary)))
    found = select(frame, Select(arm="redacted", dose=2))
    assert found["canary"].to_list() == ["c0002", "c0003"]
    assert set(found.select("arm", "dose", "role", "probe", "target", "measure", "release").rows()) == {
        ("redacted", 2, "focus", "hidden", "trained", "exposure", "model")
    }
    assert select(frame, Select(role="twin"))["dose"].unique().to_list() == [0]


@pytest.mark.parametrize("what", [{"arm": "nobody"}, {"dose": 3}, {"probe": "original"}, {"release": "reference"}])
def test_a_selection_of_nothing_is_named_and_no_empty_number(tmp_path, what):
    frame = readings_of(write_runs(made_recipe(), tmp_path, lambda *_: 1))
    with pytest.raises(RecipeError) as caught:
        select(frame, Select(**what))
    assert said(Select(**what)) in str(caught.value)
    with pytest.raises(RecipeError):
        compare(frame, comparison(what, {}), 0.95)
    with pytest.raises(RecipeError):
        compare(frame, comparison({}, what), 0.95)


# --- comparisons


def test_a_comparison_is_that_of_the_pairs_and_each_seed_is_a_row(tmp_path):
    """Ranks of 8 canaries in 2 seeds, by hand: late over early rises for 6, falls for 1 and is tied for 1."""
    recipe = made_recipe(variants=EARLY_LATE, seeds=[3, 5], plan=tiny_plan(arms={"hidden": {"context": "redacted"}}))
    ranks = {
        "early": {3: (50, 40, 30, 20), 5: (64, 8, 10, 125)},
        "late": {3: (25, 10, 30, 5), 5: (16, 4, 40, 1)},
    }

    def rank(task, canary):
        return ranks[task.variant][task.plan.seed][place_of(canary)] if canary.role == "focus" else 60

    found = compare(readings_of(write_runs(recipe, tmp_path, rank)), LATE, 0.95)
    assert (found.n, found.rises, found.falls, found.ties) == (8, 6, 1, 1)
    bits = {
        seed: [math.log2(e / late) for e, late in zip(ranks["early"][seed], ranks["late"][seed], strict=True)]
        for seed in (3, 5)
    }
    # log2 of 2, 4, 1, 4, 4, 2, 1/4 and 125.
    assert found.median == pytest.approx(1.5)
    assert found.median == pytest.approx(statistics.median(bits[3] + bits[5]))
    assert [(seed.seed, seed.n, seed.rises, seed.falls) for seed in found.seeds] == [(3, 4, 3, 0), (5, 4, 3, 1)]
    assert [seed.median for seed in found.seeds] == pytest.approx([1.5, 1.5])
    # The two-sided sign test of 6 against 1: 2 (1 + 7) / 2^7.
    assert found.p == pytest.approx(16 / 128)
    # 8 pairs: the extremes hold the median but for 2 / 2^8, and the next within them but for 18 / 2^8.
    assert (found.exact_low, found.exact_high) == pytest.approx((-2.0, math.log2(125)))
    assert found.low <= found.median <= found.high
    early = [math.log2(CODES / rank) for seed in (3, 5) for rank in ranks["early"][seed]]
    late = [math.log2(CODES / rank) for seed in (3, 5) for rank in ranks["late"][seed]]
    assert (found.first_median, found.second_median) == pytest.approx(
        (statistics.median(late), statistics.median(early))
    )
    assert (found.name, found.unit, found.sides) == ("late over early", "bits", ("early", "late"))
    assert found.statement == (
        "6 of 8 exposures rise, 1 falls, 1 is tied (sign test p = 0.12), paired median +1.50 bits [95%: -2.00, +6.97]"
    )


def test_arms_that_are_trained_apart_are_compared_canary_by_canary(tmp_path):
    frame = readings_of(write_runs(made_recipe(), tmp_path, lambda task, _: 100 if "visible" in task.plan.arms else 50))
    found = compare(frame, comparison({"arm": "redacted"}, {"arm": "visible"}), 0.95)
    assert (found.n, found.rises, found.median) == (4, 4, pytest.approx(1.0))
    # Too few pairs for an interval that keeps its confidence.
    assert (found.exact_low, found.exact_high) == (None, None)


def test_two_measures_of_one_unit_are_compared(tmp_path):
    recipe = made_recipe(plan=tiny_plan(arms={"hidden": {"context": "redacted"}}))
    tasks = write_runs(recipe, tmp_path, lambda *_: 1, said=lambda _, canary: place_of(canary) == 0)
    found = compare(readings_of(tasks), comparison({"measure": "top"}, {"measure": "greedy_recovery"}), 0.95)
    assert (found.n, found.rises, found.falls, found.ties, found.unit) == (4, 3, 0, 1, "success")
    # Rates, since a median of successes would say 0 or 1.
    assert (found.first_median, found.second_median) == (1.0, 0.25)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"plan.per_dose": 3}, "ids that stand for other canaries"),
        ({"plan.templates": [{"prompt": "{name} {secret}", "completion": "{name}: {secret}."}]}, "other carriers"),
        ({"plan.space.alphabet": "56789"}, "other secrets"),
    ],
)
def test_canaries_that_share_an_id_alone_are_never_paired(tmp_path, change, why):
    recipe = made_recipe(variants={"early": {}, "late": change})
    tasks = write_runs(recipe, tmp_path, lambda *_: 1)
    frame = readings_of(tasks)
    with pytest.raises(InputError, match=r"comparison 'late over early', over\[seed, key\]") as caught:
        compare(frame.filter(pl.col("arm") == "redacted"), LATE, 0.95)
    message = str(caught.value)
    assert "rows without a partner" in message, why
    assert "frame_" not in message
    # Messages name no secret.
    for task in tasks[:-1]:
        for canary in Manifest.load(RunFolder(task.folder).manifest).canaries:
            assert canary.secret not in message


def test_arms_that_are_trained_together_hold_other_canaries_and_are_not_compared(tmp_path):
    frame = readings_of(write_runs(made_recipe(arms="together"), tmp_path, lambda *_: 1))
    with pytest.raises(InputError, match="rows without a partner"):
        compare(frame, comparison({"arm": "redacted"}, {"arm": "visible"}), 0.95)


def test_unlike_readings_are_not_compared(tmp_path):
    frame = readings_of(write_runs(made_recipe(variants=EARLY_LATE), tmp_path, lambda *_: 1))
    with pytest.raises(InputError, match=r"of\[unit\]"):
        compare(
            frame,
            comparison({"variant": "late", "arm": "visible"}, {"variant": "early", "arm": "visible", "measure": "top"}),
            0.95,
        )
    # Of both variants together every canary stands twice.
    with pytest.raises(InputError, match="keys that stand once"):
        compare(frame, comparison({"arm": "visible"}, {"arm": "redacted"}), 0.95)


def unseen_rows(task, codes, value):
    """Recovery of so many unseen codes, shown in the places of the focus canaries in turn."""
    manifest = Manifest.load(RunFolder(task.folder).manifest)
    focus = [canary for canary in manifest.canaries if canary.role == "focus"]
    for number in range(codes):
        carrier = focus[number % len(focus)]
        shown = carrier.model_copy(update={"id": f"{carrier.id}.u{number:04d}", "role": "unseen"})
        yield reading_of(shown, task.plan.seed, "unseen", "replacement", "greedy_recovery", value(number), "success")


def with_unseen(tasks, codes, value):
    for task in tasks:
        if task.kind == "audit":
            folder = RunFolder(task.folder)
            made = tables.table(unseen_rows(task, codes, value(task)))
            tables.save(tables.load(folder.readings).vstack(made), folder.readings)
    return readings_of(tasks)


UNSEEN = {"role": "unseen", "probe": "unseen", "target": "replacement", "measure": "greedy_recovery"}


def test_unseen_codes_are_paired_by_the_code_and_its_carrier(tmp_path):
    recipe = made_recipe(variants=EARLY_LATE, audit={"unseen": {"codes": 6}}, arms="together")
    tasks = write_runs(recipe, tmp_path, lambda *_: 9)
    frame = with_unseen(tasks, 6, lambda task: lambda number: float(task.variant == "late" and number != 2))
    found = compare(frame, comparison({"variant": "late", **UNSEEN}, {"variant": "early", **UNSEEN}), 0.95)
    assert (found.n, found.rises, found.ties) == (6, 5, 1)


def test_other_unseen_codes_in_the_same_places_are_never_paired(tmp_path):
    # The auxiliary canaries take codes that are unseen without them.
    variants = {"early": {}, "late": {"plan.auxiliary": {"doses": [1], "per_dose": 12}}}
    recipe = made_recipe(variants=variants, audit={"unseen": {"codes": 20}}, arms="together")
    tasks = write_runs(recipe, tmp_path, lambda *_: 9)
    frame = with_unseen(tasks, 20, lambda _: lambda _: 1.0)
    with pytest.raises(InputError, match="rows without a partner"):
        compare(frame, comparison({"variant": "late", **UNSEEN}, {"variant": "early", **UNSEEN}), 0.95)
    # The canaries themselves are the same.
    assert compare(frame, LATE, 0.95).ties == 8
