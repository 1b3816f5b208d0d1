"""Shapes: when one is held, held in part, or not held, on runs whose ranks and utilities are chosen."""

from __future__ import annotations

import re

import pytest
from scipy import stats

from davylamp.errors import RecipeError, RunFolderError
from davylamp.studies.protocol.analysis import compare, readings_of
from davylamp.studies.protocol.shapes import find, utilities_by_model
from support.recipes import tiny_plan
from support.studies import made_recipe, study_of, write_runs, write_utilities

ARMS = {"hidden": {"context": "redacted"}, "shown": {"context": "visible"}}
HIDDEN_OVER_SHOWN = {"name": "hidden over shown", "of": {"arm": "hidden"}, "over": {"arm": "shown"}}


def recipe_of(**changes):
    return made_recipe(**{"plan": tiny_plan(arms=ARMS, per_dose=4), "seeds": [0, 1], **changes})


def found_in(tmp_path, study, ranks, recipe=None, right=lambda _: (5, 10), **more):
    recipe = recipe or recipe_of()
    tasks = write_runs(recipe, tmp_path, ranks, **more)
    write_utilities(tasks, right)
    frame = readings_of(tasks)
    compared = tuple(compare(frame, each, study.confidence) for each in study.comparisons)
    return find(study, frame, compared, utilities_by_model(tasks, tmp_path))


def one_shape(tmp_path, *checks, ranks=lambda *_: 9, comparisons=(), **more):
    study = study_of(comparisons=comparisons, shapes=[{"statement": "S", "paper": "P", "checks": list(checks)}])
    (shape,) = found_in(tmp_path, study, ranks, **more)
    assert (shape.statement, shape.paper) == ("S", "P")
    return shape


def held(tmp_path, check, **more):
    (checked,) = one_shape(tmp_path, check, **more).checks
    return checked.held, checked.statement


def arm_of(task):
    (arm,) = task.plan.arms
    return arm


# --- words


@pytest.mark.parametrize(
    ("bounds", "word"), [((3, 3), "held"), ((3, 4), "held in part"), ((4, 3), "held in part"), ((4, 4), "not held")]
)
def test_a_shape_is_held_with_all_its_checks_in_part_with_some_and_not_with_none(tmp_path, bounds, word):
    # Rank 15 of 125 codes is 3.06 bits.
    checks = [{"level": {}, "at_least": bound} for bound in bounds]
    shape = one_shape(tmp_path, *checks, ranks=lambda *_: 15)
    assert shape.word == word
    assert [check.held for check in shape.checks] == [bound == 3 for bound in bounds]


def test_every_shape_of_a_study_is_looked_for_in_order(tmp_path):
    shapes = [{"statement": name, "checks": [{"level": {}, "at_most": bound}]} for name, bound in (("a", 9), ("b", 0))]
    found = found_in(tmp_path, study_of(shapes=shapes), lambda *_: 15)
    assert [(shape.statement, shape.word, shape.paper) for shape in found] == [
        ("a", "held", None),
        ("b", "not held", None),
    ]


# --- comparisons


@pytest.mark.parametrize(
    ("ranks", "goes", "expected"),
    [
        # Of 16 pairs all rise: p = 2^-15.
        ({"hidden": 10, "shown": 20}, "up", True),
        ({"hidden": 10, "shown": 20}, "down", False),
        ({"hidden": 20, "shown": 10}, "down", True),
        ({"hidden": 20, "shown": 10}, "up", False),
        # Nothing rises and nothing falls.
        ({"hidden": 20, "shown": 20}, "up", False),
        ({"hidden": 20, "shown": 20}, "down", False),
    ],
)
def test_a_comparison_must_go_as_expected(tmp_path, ranks, goes, expected):
    check = {"comparison": "hidden over shown", "goes": goes}
    found, statement = held(tmp_path, check, ranks=lambda task, _: ranks[arm_of(task)], comparisons=[HIDDEN_OVER_SHOWN])
    assert found is expected
    word = "rise" if goes == "up" else "fall"
    assert statement.startswith(f"hidden over shown, expected to {word}: ")
    assert "of 16 exposures" in statement


@pytest.mark.parametrize(("rising", "expected"), [(13, True), (12, False), (11, False)])
def test_a_comparison_must_be_more_than_chance(tmp_path, rising, expected):
    """Of 16 pairs: 2 P(B <= 3) = 0.021 with 13 that rise, 2 P(B <= 4) = 0.077 with 12."""

    def rank(task, canary):
        number = int(canary.id[1:]) + 8 * task.plan.seed
        return 60 if arm_of(task) == "shown" else (30 if number < rising else 90)

    check = {"comparison": "hidden over shown"}
    assert held(tmp_path, check, ranks=rank, comparisons=[HIDDEN_OVER_SHOWN])[0] is expected


# --- levels and orders


def test_a_level_is_held_against_the_median_of_each_seed(tmp_path):
    # 3.06 bits in seed 0 and 2.06 in seed 1.
    ranks = {0: 15, 1: 30}
    for bounds, expected in (
        ({"at_least": 2.05}, True),
        ({"at_least": 2.06}, False),
        ({"at_most": 3.06}, True),
        ({"at_most": 3.05}, False),
        ({"at_least": 2, "at_most": 3.1}, True),
        ({"at_least": 2, "at_most": 3}, False),
    ):
        found, statement = held(
            tmp_path, {"level": {"arm": "hidden"}, **bounds}, ranks=lambda task, _: ranks[task.plan.seed]
        )
        assert found is expected
        words = " and ".join(f"{key.replace('_', ' ')} {bound:g}" for key, bound in bounds.items())
        assert statement == f"median exposure of hidden, expected {words} in every seed: 3.06, 2.06 bits"


def test_the_level_of_successes_is_a_rate(tmp_path):
    # 6 of 8 canaries are said in seed 0, 7 of 8 in seed 1.
    check = {"level": {"arm": "hidden", "measure": "greedy_recovery"}, "at_least": 0.75}

    def said(task, canary):
        return int(canary.id[1:]) < 6 + task.plan.seed

    found, statement = held(tmp_path, check, said=said)
    assert found
    assert statement == "rate greedy_recovery of hidden, expected at least 75% in every seed: 75.0%, 87.5%"
    assert not held(tmp_path, {**check, "at_least": 0.751}, said=said)[0]


def test_the_top_is_the_rate_of_rank_one(tmp_path):
    check = {"level": {"arm": "hidden", "measure": "top"}, "at_most": 0.5}

    def rank(_, canary):
        return 1 if int(canary.id[1:]) < 4 else 1.5

    assert held(tmp_path, check, ranks=rank) == (
        True,
        "rate top of hidden, expected at most 50% in every seed: 50.0%, 50.0%",
    )


def test_an_order_must_not_fall_in_any_seed(tmp_path):
    order = {"order": [{"dose": 1, "arm": "hidden"}, {"dose": 2, "arm": "hidden"}, {"arm": "shown"}]}
    rising = {("hidden", 1): 60, ("hidden", 2): 30, ("shown", 1): 15, ("shown", 2): 15}

    def ranks(**changed):
        def rank(task, canary):
            value = rising[arm_of(task), canary.dose] if canary.role == "focus" else 60
            return changed.get("last", value) if (arm_of(task), task.plan.seed) == ("shown", 1) else value

        return rank

    assert held(tmp_path, order, ranks=ranks()) == (
        True,
        "medians that do not fall, exposure of hidden, dose 1 to exposure of shown, in every seed: "
        "1.06 -> 2.06 -> 3.06; 1.06 -> 2.06 -> 3.06",
    )
    # What stays does not fall; in one seed it does.
    assert held(tmp_path, order, ranks=ranks(last=30))[0]
    found, statement = held(tmp_path, order, ranks=ranks(last=31))
    assert not found
    assert statement.endswith("1.06 -> 2.06 -> 3.06; 1.06 -> 2.06 -> 2.01")
    rates = {"order": [{"arm": "hidden", "measure": "top"}, {"arm": "shown", "measure": "top"}]}
    assert held(tmp_path, rates)[1].startswith("rates that do not fall, top of hidden to top of shown")


@pytest.mark.parametrize("check", [{"level": {"dose": 7}, "at_most": 1}, {"order": [{}, {"arm": "nobody"}]}])
def test_a_check_of_readings_that_there_are_not_is_an_error_and_no_answer(tmp_path, check):
    with pytest.raises(RecipeError, match=r"dose 7|nobody"):
        one_shape(tmp_path, check)


# --- utility


def utility_check(worse, better):
    return {"utility": [worse, better]}


@pytest.mark.parametrize(("right", "expected"), [(54, False), (55, True)])
def test_a_better_model_is_one_whose_interval_over_all_seeds_lies_above(tmp_path, right, expected):
    """80 of 200 for the base; two seeds of the clean run together need 55 of 100 each to lie above."""
    base, clean = (stats.binomtest(k, 200).proportion_ci(method="exact") for k in (80, 2 * right))
    assert (clean.low > base.high) is expected
    answers = {"base": (80, 200), "clean": (right, 100), "audit": (1, 2)}
    found, statement = held(
        tmp_path,
        utility_check("base", "clean"),
        recipe=recipe_of(clean=True),
        right=lambda task: answers[task.kind],
    )
    assert found is expected
    assert statement == (
        "clean better than base at letters without a mistake, intervals apart: "
        f"{2 * right} of 200 [{clean.low:.1%}, {clean.high:.1%}] against 80 of 200 [{base.low:.1%}, {base.high:.1%}]"
    )


def test_the_answers_of_all_seeds_and_variants_are_counted_together(tmp_path):
    recipe = recipe_of(variants={"one": {}, "two": {"training.schedule": "cosine"}}, clean=True)
    tasks = write_runs(recipe, tmp_path, lambda *_: 9)
    write_utilities(tasks, lambda task: (2 if task.kind == "clean" else 1, 10))
    counted = {
        who: (sum(each.successes for each in models), sum(each.trials for each in models))
        for who, models in utilities_by_model(tasks, tmp_path).items()
    }
    assert counted == {"base": (1, 10), "clean": (8, 40), "hidden": (4, 40), "shown": (4, 40)}


@pytest.mark.parametrize("arms", [("a", "b-a"), ("b-a", "a"), ("a", "b-a", "c-b-a"), ("clean-a", "a"), ("s0", "a-s0")])
@pytest.mark.parametrize("variants", [{}, {"c": {}}])
def test_arms_whose_names_end_alike_are_told_apart(tmp_path, arms, variants):
    plan = tiny_plan(arms={arm: {"context": "redacted"} for arm in arms}, per_dose=1, doses=[1], twins=1)
    tasks = write_runs(made_recipe(plan=plan, variants=variants, seeds=[0, 10]), tmp_path, lambda *_: 9)
    write_utilities(tasks, lambda task: (1 if task.kind == "base" else 2 + arms.index(arm_of(task)), 50))
    found = utilities_by_model(tasks, tmp_path)
    assert {who: {each.successes for each in models} for who, models in found.items()} == {
        "base": {1},
        **{arm: {2 + place} for place, arm in enumerate(arms)},
    }
    assert {len(models) for who, models in found.items() if who != "base"} == {2}


def test_an_arm_that_is_called_as_the_base_is_not_counted_as_it(tmp_path):
    plan = tiny_plan(arms={"base": {"context": "redacted"}, "clean": {"context": "visible"}})
    tasks = write_runs(made_recipe(plan=plan), tmp_path, lambda *_: 9)
    write_utilities(tasks, lambda task: (1 if task.kind == "base" else 40, 50))
    found = utilities_by_model(tasks, tmp_path)
    assert [each.successes for each in found["base"]] == [1]
    assert "clean" not in found


def test_arms_together_are_one_model(tmp_path):
    tasks = write_runs(recipe_of(arms="together"), tmp_path, lambda *_: 9)
    write_utilities(tasks, lambda _: (1, 2))
    assert set(utilities_by_model(tasks, tmp_path)) == {"all", "base"}


def test_what_lies_in_the_folder_and_is_no_run_of_the_study_is_not_counted(tmp_path):
    tasks = write_runs(recipe_of(), tmp_path, lambda *_: 9)
    write_utilities(tasks, lambda _: (1, 2))
    source = (tasks[0].folder / "utility.json").read_text("utf-8")
    (tmp_path / "runs" / "hidden-s7").mkdir()
    (tmp_path / "runs" / "hidden-s7" / "utility.json").write_text(source, "utf-8")
    assert len(utilities_by_model(tasks, tmp_path)["hidden"]) == 2


def test_a_utility_that_was_not_measured_is_an_error_and_no_answer(tmp_path):
    with pytest.raises(RunFolderError, match=re.escape("no utility of 'clean' was measured")):
        one_shape(tmp_path, utility_check("base", "clean"))
