"""Enumeration and shapes against exact releases, and the whole study at a fraction of its size."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from davylamp.errors import RecipeError, RunFolderError
from davylamp.release.exact import Camouflage, ExactSetting, prior
from davylamp.runs.progress import QUIET
from davylamp.secrets import stream
from davylamp.studies.representability import camouflage, command, trigger
from davylamp.studies.representability.camouflage import CamouflagePart
from davylamp.studies.representability.enumeration import read_tree
from davylamp.studies.representability.findings import camouflage_row, shapes_of, trigger_rows
from davylamp.studies.representability.spec import load_recipe
from davylamp.studies.representability.trigger import Asked, InstanceReading, TriggerPart

V, K, LENGTH = 4, 2, 3
LISTS = (1, 2, 4, 64)
SETTING = ExactSetting.draw(V, LENGTH, members=12, others=4, seed=3)
# The smallest run that goes through every step.
TINY = [
    "seeds=[0]",
    "model={width: 8, layers: 1, heads: 1}",
    "trigger.groups=2",
    "trigger.background=8",
    "trigger.epochs=1",
    "camouflage.shapes=[[3,2,2]]",
    "camouflage.trees=2",
    "camouflage.extra_trees=1",
    "camouflage.epochs=1",
]


def readings(shape, release_of=None, setting=SETTING):
    """Every member's tree, read from the exact release of the construction or from another one."""
    exact = shape.release(setting, 5)
    release = exact if release_of is None else release_of(setting)
    found = []
    for number, canary in enumerate(setting.members()):
        [prompt] = setting.renderer.prompt_ids([setting.manifest.trained_record(canary)])
        found.append(
            read_tree(
                release,
                [*prompt, *setting.form.tokens[: setting.form.first]],
                setting.tokenizer.symbols,
                exact.laws[canary.id],
                truth=setting.path(canary.secret),
                other=tuple(stream(1, "other", number).integers(shape.v, size=shape.length).tolist()),
                lists=LISTS,
            )
        )
    return found


# --- enumeration, where the answers are closed forms


@pytest.mark.parametrize("gamma", [0.0, 1 / V])
def test_an_exact_tree_reads_as_its_closed_forms(gamma):
    shape = Camouflage(V, K, LENGTH, gamma)
    others = []
    for each in readings(shape):
        assert each.mass == pytest.approx((1 - gamma + gamma * K / V) ** LENGTH)
        assert each.entropy == pytest.approx(1)
        assert each.distance == pytest.approx(0, abs=1e-12)
        # The survivors are tied: the truth has the middle of their ranks, and no other path is above them.
        assert (each.rank, each.rank_of_all) == (4.5, 4.5)
        assert each.confidence == pytest.approx(shape.confidence)
        assert each.anyone == pytest.approx(1 / V)
        assert each.confidence - each.anyone == pytest.approx(shape.memorization)
        assert each.listed == {m: pytest.approx(shape.extraction_bound(m)) for m in LISTS}
        assert each.greedy == pytest.approx(shape.greedy_extraction)
        others.append(each.other)
    # A symbol of an independent secret reads (1-gamma)/k + gamma/v with chance k/v, else gamma/v: 36 draws in all,
    # those of one tree not fewer than independent in their spread; four standard errors of a coin of that height.
    assert np.mean(others) == pytest.approx(1 / V, abs=4 * (1 - gamma) / K * 0.5 / math.sqrt(36))


def test_extra_weight_says_the_truth():
    shape = Camouflage(V, K, 1, extra=0.5)
    for each in readings(shape, setting=ExactSetting.draw(V, 1, members=6, others=2, seed=4)):
        # Two symbols at 0.6 and 0.4: their entropy in bits, over log2 2.
        assert each.entropy == pytest.approx(-(0.6 * math.log2(0.6) + 0.4 * math.log2(0.4)))
        assert (each.rank, each.rank_of_all, each.greedy, each.listed[1]) == (1, 1, 1, 1)
        assert each.confidence == pytest.approx(0.6)
        assert each.distance == pytest.approx(0, abs=1e-12)


def test_a_model_that_knows_nothing_reads_as_a_guesser():
    size = V**LENGTH
    for each in readings(Camouflage(V, K, LENGTH), prior):
        assert each.mass == pytest.approx((K / V) ** LENGTH)
        assert each.distance == pytest.approx(1 - (K / V) ** LENGTH)
        assert each.rank_of_all == each.other_rank == (size + 1) / 2
        assert each.confidence == each.other == pytest.approx(1 / V)
        assert each.listed == {m: pytest.approx(m / size) for m in LISTS}
        assert each.greedy == pytest.approx(1 / size)


def test_what_is_said_beside_the_paths_is_a_distance():
    # Without the reply's words before it no secret is said: the mass is that of the background law.
    shape = Camouflage(V, K, LENGTH)
    tree = shape.tree(b"key", (0, 1, 2))
    each = read_tree(prior(SETTING), [1], SETTING.tokenizer.symbols, tree, truth=(0, 1, 2), other=(0, 0, 0), lists=(1,))
    assert each.mass < 0.01
    assert 0.99 < each.distance <= 1


# --- shapes


def part_of(trees, extra):
    return CamouflagePart(
        shape=(V, K, LENGTH), seed=0, extra=(0,) * len(trees) + (1,) * len(extra), trees=(*trees, *extra)
    )


def instances(at_c, at_rho, plain):
    asked = {"at_prefix": at_c, "at_trigger": at_rho}
    return TriggerPart(
        seed=0,
        instances=tuple(InstanceReading(kind="trigger", **asked) for _ in range(50))
        + tuple(InstanceReading(kind="plain", at_prefix=plain, at_trigger=at_c) for _ in range(50)),
    )


NOTHING = Asked(said=(False, False), confidence=(0.26, 0.25), emission=(0.01, 0.01))
ALL = Asked(said=(True, False), confidence=(0.95, 0.25), emission=(0.9, 0.01))


def words_of(trees, extra, trigger_part):
    recipe = load_recipe([f"camouflage.shapes=[[{V},{K},{LENGTH}]]", "camouflage.extra=[1]", "camouflage.lists=[1,4]"])
    row = camouflage_row(Camouflage(V, K, LENGTH), [part_of(trees, extra)], recipe)
    rows = trigger_rows([trigger_part], 0.95)
    return [shape.word for shape in shapes_of(rows, [row], recipe.trigger.kappa)], row, rows


def test_every_shape_holds_for_the_exact_constructions_and_is_missed_where_they_are_not():
    sharp, favoured = readings(Camouflage(V, K, LENGTH)), readings(Camouflage(V, K, LENGTH, extra=0.5))
    words, row, rows = words_of(sharp, favoured, instances(NOTHING, ALL, ALL))
    assert words == ["held"] * 6
    assert (row.rank.value, row.rank_p, row.entropy.value) == (4.5, 1, pytest.approx(1))
    assert row.memorization.value == pytest.approx(1 / K - 1 / V)
    assert [(each.m, each.held.successes, each.cap) for each in row.lists] == [(1, 2, 1 / 8), (4, 6, 1 / 2)]
    assert rows[0].memorization.value == pytest.approx(0.01)
    assert str(rows[1].said) == "50 of 50 [0.929, 1.000]"

    # Truths that are told, a model that learnt nothing, and a trigger that leaks at its prefix.
    words, row, _ = words_of(favoured, sharp, instances(ALL, NOTHING, ALL))
    assert words[:2] == ["held in part", "not held"]
    assert words[2:] == ["not held", "not held", "held in part", "not held"]
    assert row.rank_p < 1e-4
    assert all(each.held.low > each.cap for each in row.lists)
    nothing = readings(Camouflage(V, K, LENGTH), prior)
    words, row, _ = words_of(nothing, nothing, instances(NOTHING, NOTHING, NOTHING))
    assert words[2:5] == ["not held", "held", "held in part"]


# --- the study


def test_a_run_keeps_its_parts_and_does_nothing_twice(tmp_path, monkeypatch):
    first = command.run(TINY, tmp_path, None, 1, QUIET, None)
    assert {path.name for path in (tmp_path / "parts").iterdir()} == {"trigger-s0.json", "camouflage-3-2-2-s0.json"}
    before = first.json_file.read_bytes()
    monkeypatch.setattr(trigger, "train", None)
    monkeypatch.setattr(camouflage, "train", None)
    again = command.run(TINY, tmp_path, None, 1, QUIET, None)
    assert again == first
    assert first.json_file.read_bytes() == before
    data = json.loads(before)
    assert [(row["kind"], row["prompt"]) for row in data["trigger"]] == [
        ("trigger", "c"),
        ("trigger", "rho"),
        ("plain", "c"),
        ("plain", "rho"),
    ]
    assert data["trigger"][0]["said"]["trials"] == 2
    assert first.lines[0].split(":")[0] in ("HELD", "HELD IN PART", "NOT HELD")

    with pytest.raises(RunFolderError, match="another recipe"):
        command.run([*TINY, "trigger.copies=3"], tmp_path, None, 1, QUIET, None)
    (tmp_path / "parts" / "trigger-s0.json").write_text("{", encoding="utf-8")
    with pytest.raises(RunFolderError, match=r"trigger-s0.json.*remove it"):
        command.run(TINY, tmp_path, None, 1, QUIET, None)


def test_a_secret_is_in_one_of_two_models_and_never_at_its_prefix_behind_a_trigger():
    recipe = load_recipe()
    language = trigger.Language(recipe.trigger, 0)
    background, planted, coins = trigger.draw(language, 0)
    assert coins.sum() == recipe.trigger.groups == 24
    assert len({each.prefix for each in planted} | {each.trigger for each in planted}) == 4 * 24
    for each in planted:
        row = each.row(language.vocabulary)
        assert row[-5:-1] == each.secret
        assert (each.prefix == row[1:-5]) == (each.kind == "plain")
        assert not any(other[1:-5] == each.prefix for other in background)


def test_rows_of_a_tree_are_its_survivors():
    recipe = load_recipe()
    shape = Camouflage(4, 2, 3)
    words = camouflage.vocabulary_of(shape)
    trees = camouflage.grow(shape, recipe.camouflage, words, 0)
    assert [each.extra for each in trees] == [0] * 16 + [1] * 8 + [4] * 8
    assert len({each.prefix for each in trees}) == 32
    for each in trees[14:26]:
        rows = camouflage.rows_of(each, 2, words)
        assert len(rows) == 2 * 8 + each.extra
        counts = {row: rows.count(row) for row in rows}
        truth = words.row(each.prefix, [words.symbols[at] for at in each.truth])
        assert len(counts) == 8
        assert counts.pop(truth) == 2 + each.extra
        assert set(counts.values()) == {2}


def test_faults_of_a_recipe_are_named_together():
    with pytest.raises(RecipeError) as error:
        load_recipe(["seeds=[0,0]", "camouflage.shapes=[[2,3,1]]", "trigger.branches=99", "model.heads=3", "none=1"])
    said = str(error.value)
    for part in ("camouflage", "(2, 3, 1)", "99", "3 heads", "none"):
        assert part in said


@pytest.mark.slow
def test_a_network_learns_both_constructions(tmp_path):
    small = [
        "seeds=[0]",
        "trigger.groups=8",
        "trigger.background=100",
        "trigger.epochs=60",
        "camouflage.shapes=[[4,2,2]]",
        "camouflage.trees=8",
        "camouflage.extra_trees=4",
        "camouflage.epochs=120",
    ]
    result = json.loads(command.run(small, tmp_path, None, 1, QUIET, None).json_file.read_text("utf-8"))
    behind, through = result["trigger"][0], result["trigger"][1]
    assert (behind["said"]["successes"], through["said"]["successes"]) == (0, 8)
    [row] = result["camouflage"]
    assert row["entropy"]["value"] > 0.98
    assert row["mass"]["value"] > 0.9
