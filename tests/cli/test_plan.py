"""``davylamp plan``: the schedule as text, as data and as a page, from plans and recipes."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

from davylamp.canaries import Plan, plant
from davylamp.errors import PlantingError
from davylamp.report.layout import lay_out, rows_planted
from davylamp.report.layout_page import page
from davylamp.runs.config import load_yaml, validate
from davylamp.studies.recipe import BUILT_IN
from support.corpora import small_corpus, small_plan
from support.pages import read
from support.recipes import tiny_plan, tiny_recipe, write_corpus, write_yaml


@pytest.fixture(autouse=True)
def _columns(monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")


@pytest.fixture
def plan_file(tmp_path):
    """A plan of two arms with schedules of their own and auxiliary canaries; 240 rows are 60 updates of 4."""
    arms = {
        "early": {"context": "redacted", "schedule": {"window": "1/4", "spread": "concentrated"}},
        "bits": {"context": "encoded", "encoding": "binary", "schedule": {"window": "late", "spacing": 2}},
    }
    auxiliary = {"doses": [3], "per_dose": 2, "schedule": {"window": [0.3, 0.7]}}
    plan = tiny_plan(
        arms=arms,
        doses=[1, 4],
        per_dose=3,
        auxiliary=auxiliary,
        rows_per_update=4,
        space={"alphabet": "0123456789", "length": 6},
    )
    return write_yaml(tmp_path / "plan.yaml", plan)


def said(answer):
    code, out, err = answer
    assert code == 0, err
    assert err == ""
    return out


def assert_refused(answer, *words):
    code, out, err = answer
    assert code == 2, err
    assert out == ""
    assert "Traceback" not in err
    message = " ".join(err.split())
    assert message.startswith("error: ")
    assert all(word in message for word in words), message


# --- as data


def test_what_is_shown_is_what_is_planted(davylamp, plan_file, tmp_path):
    data = write_corpus(tmp_path / "data.jsonl", 240)
    (layout,) = json.loads(said(davylamp("plan", "show", plan_file, "--data", data, "--json")))["layouts"]
    plan = validate(Plan, load_yaml(plan_file), "plan")
    planted = plant(small_corpus(240), plan).manifest
    canaries = {canary.id: canary for canary in planted.planted()}
    assert {each["id"] for each in layout["canaries"]} == set(canaries)
    for each in layout["canaries"]:
        canary = canaries[each["id"]]
        assert tuple(each["rows"]) == canary.positions
        assert each["updates"] == [row // 4 + 1 for row in canary.positions]
        assert (each["role"], each["dose"]) == (canary.role, canary.dose)
        assert each["arm"] == (None if canary.role == "positive" else canary.arm)
        assert all(each["window_rows"][0] <= row < each["window_rows"][1] for row in each["rows"])
    counts = Counter()
    for canary in planted.planted():
        counts[canary.role] += canary.dose
    assert layout["replaced"] == counts
    assert layout["background_left"] == 240 - plan.planted_rows
    assert (layout["rows"], layout["updates"], layout["rows_per_update"], layout["epochs"]) == (240, 60, 4, None)
    assert layout["arms"] == {"early": "redacted", "bits": "encoded: binary"}


def test_rows_of_constructions_and_further_non_members_are_counted(davylamp, tmp_path):
    lines = [{"kind": "naive", "groups": 2, "copies": 3, "secret_tokens": [1, 2]}, {"kind": "gated", "groups": 2}]
    plan = write_yaml(tmp_path / "plan.yaml", tiny_plan(constructions=lines, nonmembers=10))
    (layout,) = json.loads(said(davylamp("plan", "show", plan, "--rows", 240, "--json")))["layouts"]
    # Two sizes, two instances, three rows each; a gate takes none.
    assert (layout["constructed"], layout["nonmembers_per_arm"]) == (12, 10)
    assert layout["background_left"] == 240 - sum(layout["replaced"].values()) - 12
    text = said(davylamp("plan", "show", plan, "--rows", 240))
    assert "constructions, which are not drawn, 12 more" in " ".join(text.split())
    assert "10 further non-members of each arm" in " ".join(text.split())


def test_no_secret_and_no_carrier_is_drawn_or_shown(davylamp, plan_file, tmp_path):
    html = tmp_path / "plan.html"
    texts = [said(davylamp("plan", "show", plan_file, "--rows", 240, *how)) for how in (("--json",), ("--all",))]
    said(davylamp("plan", "show", plan_file, "--rows", 240, "--out", html))
    texts.append(html.read_text("utf-8"))
    for canary in plant(small_corpus(240), validate(Plan, load_yaml(plan_file), "plan")).manifest.canaries:
        name = canary.carrier.completion[0]
        assert not [text for text in texts if canary.secret in text or name in text]


def test_gaps_are_between_occurrences_that_follow_each_other():
    layout = lay_out(small_plan(arms={"a": {"context": "visible"}}, rows_per_update=3), 90, "small")
    for group in layout.groups:
        for strip in group.strips:
            updates = [row // 3 for row in strip.rows]
            gaps = sorted(after - before for before, after in pairwise(updates))
            if not gaps:
                assert layout.gaps(strip) is None
            else:
                middle = gaps[len(gaps) // 2] if len(gaps) % 2 else sum(gaps[len(gaps) // 2 - 1 :][:2]) / 2
                assert layout.gaps(strip) == (gaps[0], middle, gaps[-1])


# --- as text


@pytest.mark.parametrize("width", [24, 60, 78, 100, 200])
def test_a_bar_has_a_mark_where_occurrences_fall_at_every_width(davylamp, plan_file, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    out = said(davylamp("plan", "show", plan_file, "--rows", 240, "--all"))
    (layout,) = json.loads(said(davylamp("plan", "show", plan_file, "--rows", 240, "--json")))["layouts"]
    lines = out.splitlines()
    table = lines[: next(at for at, line in enumerate(lines) if line.startswith("A dot is"))]
    assert max(map(len, table)) <= width
    assert out.isascii()
    ruler = next(line for line in lines if line.strip().startswith("0%"))
    columns = ruler.index("100%") + 4 - ruler.index("0%")
    for canary in layout["canaries"]:
        bar = next(line for line in lines if line.startswith(f"  {canary['id']} "))[8 : 8 + columns].ljust(columns)
        held = Counter(int((row + 0.5) * columns / 240) for row in canary["rows"])
        window = range(canary["window_rows"][0] * columns // 240, -(-canary["window_rows"][1] * columns // 240))
        for at, sign in enumerate(bar):
            if held[at]:
                assert sign == ("|" if held[at] == 1 else str(held[at]) if held[at] < 10 else "+")
            else:
                assert sign == ("." if at in window else " ")


def test_first_and_last_place_and_gaps_stand_beside_the_bar_or_below_it(davylamp, plan_file, monkeypatch):
    (layout,) = json.loads(said(davylamp("plan", "show", plan_file, "--rows", 240, "--json")))["layouts"]
    for width in (50, 120):
        monkeypatch.setenv("COLUMNS", str(width))
        lines = said(davylamp("plan", "show", plan_file, "--rows", 240, "--all")).splitlines()
        for canary in layout["canaries"]:
            at = next(at for at, line in enumerate(lines) if line.startswith(f"  {canary['id']} "))
            figures = lines[at] if width > 78 else lines[at + 1]
            first, last = canary["updates"][0], canary["updates"][-1]
            assert re.search(rf"\b{first}\b" if first == last else rf"\b{first}-{last}\b", figures)
            if canary["gaps"]:
                assert figures.endswith(f"{canary['gaps'][0]} / {canary['gaps'][1]:g} / {canary['gaps'][2]}")


def test_the_head_says_rows_updates_budget_and_twins(davylamp, plan_file):
    out = " ".join(said(davylamp("plan", "show", plan_file, "repeat=2", "--rows", 120)).split())
    assert "plan.yaml, seed 0: arms early (redacted), bits (encoded: binary)" in out
    assert "240 rows (120 of the corpus x 2) = 60 optimiser updates of 4 rows." in out
    # 2 arms x 3 canaries x (1 + 4), 2 arms x 2 canaries x 3, and the positive control.
    assert "replace 47 background rows (19.6%): focus canaries 30, positive control 5, auxiliary canaries 12;" in out
    assert "193 are left" in out
    assert "2 twins of each arm are planted nowhere (dose 0)" in out
    assert "focus canaries, arm bits, dose 4: 3 canaries, window late [0.8, 1], 2 updates apart" in out
    assert "auxiliary canaries, arm early, dose 3: 2 canaries, window [0.3, 0.7], uniform" in out


def test_few_of_many_canaries_are_drawn_unless_all_are_asked_for(davylamp, plan_file):
    few = said(davylamp("plan", "show", plan_file, "per_dose=7", "--rows", 240))
    every = said(davylamp("plan", "show", plan_file, "per_dose=7", "--rows", 240, "--all"))
    assert few.count("3 more (--all draws them)") == 4
    assert "--all" not in every
    assert len(re.findall(r"^  c\d{4} ", every, re.M)) == 4 * 7 + 4 + 1
    assert len(re.findall(r"^  c\d{4} ", few, re.M)) == 4 * 4 + 4 + 1


def test_without_rows_per_update_places_are_rows(davylamp, tmp_path):
    path = write_yaml(tmp_path / "p.yaml", tiny_plan())
    out = said(davylamp("plan", "show", path, "--rows", 30))
    assert "row of the planted file" in out
    assert "rows_per_update is not known" in out
    assert "Give rows_per_update=N" in out
    assert "optimiser update " not in out
    (layout,) = json.loads(said(davylamp("plan", "show", path, "--rows", 30, "--json")))["layouts"]
    assert layout["updates"] is None
    assert all(each["updates"] is None for each in layout["canaries"])


def test_one_arm_is_drawn_as_it_is_planted_alone(davylamp, plan_file):
    (layout,) = json.loads(said(davylamp("plan", "show", plan_file, "--rows", 240, "--arm", "bits", "--json")))[
        "layouts"
    ]
    alone = validate(Plan, load_yaml(plan_file), "plan").only("bits")
    canaries = {canary.id: canary.positions for canary in plant(small_corpus(240), alone).manifest.planted()}
    assert {each["id"]: tuple(each["rows"]) for each in layout["canaries"]} == canaries
    assert {each["arm"] for each in layout["canaries"]} == {"bits", None}


# --- recipes


@pytest.fixture
def recipe_file(tmp_path):
    """A recipe that trains each arm apart, in updates of 8 rows, on a corpus of 96 rows."""
    corpus = write_corpus(tmp_path / "data.jsonl", 96)

    def write(**changes):
        training = {"batch_size": 4, "gradient_accumulation": 2}
        data = {**tiny_recipe(corpus, tmp_path, training=training, utility=None, seeds=[3, 4]), **changes}
        return write_yaml(tmp_path / "recipe.yaml", data)

    return write


def test_a_recipe_gives_rows_updates_seed_and_arms(davylamp, recipe_file):
    path = recipe_file()
    layouts = json.loads(said(davylamp("plan", "show", path, "--json")))["layouts"]
    assert [(each["arms"], each["seed"], each["rows"], each["updates"]) for each in layouts] == [
        ({"visible": "visible"}, 3, 96, 12),
        ({"redacted": "redacted"}, 3, 96, 12),
    ]
    rows = [[each["rows"] for each in layout["canaries"]] for layout in layouts]
    assert rows[0] == rows[1]
    out = said(davylamp("plan", "show", path))
    assert out.count("optimiser updates of 8 rows") == 1
    assert "tiny, seed 3: arms visible, redacted, a model each, the same rows in all" in out
    assert "Seed 4 draws other rows: seeds=[4] shows them." in out
    assert "in each of 2 epochs" in said(davylamp("plan", "show", path, "training.epochs=2"))
    together = said(davylamp("plan", "show", path, "arms=together"))
    assert "focus canaries, arm redacted, dose 2" in together


def test_arms_that_stand_elsewhere_are_drawn_apart(davylamp, recipe_file):
    arms = {"a": {"context": "visible"}, "b": {"context": "visible", "schedule": {"window": "late"}}}
    out = said(davylamp("plan", "show", recipe_file(plan=tiny_plan(arms=arms))))
    assert out.count("optimiser updates of 8 rows") == 2
    assert "tiny, seed 3: arm a (visible)" in out
    assert "tiny, seed 3: arm b (visible)" in out


def test_variants_are_drawn_one_after_the_other_or_one_alone(davylamp, recipe_file):
    variants = {"early": {"plan.schedule.window": "early"}, "slow": {"training.batch_size": 12, "plan.repeat": 2}}
    path = recipe_file(variants=variants)
    layouts = json.loads(said(davylamp("plan", "show", path, "--json")))["layouts"]
    assert [(each["name"], each["rows"], each["rows_per_update"], each["updates"]) for each in layouts] == [
        ("tiny, variant early", 96, 8, 12),
        ("tiny, variant early", 96, 8, 12),
        ("tiny, variant slow", 192, 24, 8),
        ("tiny, variant slow", 192, 24, 8),
    ]
    focus = [each for each in layouts[0]["canaries"] if each["role"] == "focus"]
    assert all(row < 19 for each in focus for row in each["rows"])
    (slow,) = json.loads(said(davylamp("plan", "show", path, "--variant", "slow", "--arm", "visible", "--json")))[
        "layouts"
    ]
    assert slow == layouts[2]
    out = said(davylamp("plan", "show", path))
    assert "variant early, seed 3" in out
    assert "variant slow, seed 3" in out
    assert_refused(davylamp("plan", "show", path, "--variant", "fast"), "--variant is 'fast'", "one of early, slow")
    assert_refused(
        davylamp("plan", "show", recipe_file(variants={"tight": {"plan.schedule.window": [0.98, 1]}})),
        "variant tight: focus canaries of arm 'visible': 6 occurrences need 6 rows",
    )


@pytest.mark.parametrize("name", BUILT_IN)
def test_built_in_recipes_are_shown_without_their_data(davylamp, name):
    out = said(davylamp("plan", "show", name))
    arms = "arm clinical" if name == "clinical" else "arms visible, redacted"
    assert f"{arms}" in out
    assert "optimiser updates of" in out


def test_rows_of_the_hub_are_asked_for_and_not_fetched(davylamp, tmp_path):
    assert_refused(
        davylamp("plan", "show", "banking77", "plan.rows=null"), "PolyAI/banking77", "--rows N, or --data FILE"
    )
    assert "9,003 rows = 1,126 optimiser" in said(
        davylamp("plan", "show", "banking77", "plan.rows=null", "--rows", 9003)
    )


# --- what is refused


def test_a_plan_that_cannot_be_laid_out_is_refused_with_the_arithmetic(davylamp, plan_file):
    assert_refused(
        davylamp("plan", "show", plan_file, "arms.bits.schedule.spacing=5", "--rows", 240),
        "focus canaries of arm 'bits': dose 4 at a spacing of 5 updates spans (4 - 1) x 5 + 1 = 16 updates",
        "holds 12 updates of 4 rows",
    )
    assert_refused(davylamp("plan", "show", plan_file, "--rows", 40), "need 47 rows", "only 40 rows")
    assert_refused(
        davylamp("plan", "show", plan_file, "--rows", 48), "15 occurrences need 15 rows", "holds 12", "holds 10"
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("{plan}",), ("nothing says how many rows the corpus has", "--rows N")),
        (("{plan}", "rows=50", "--rows", "49"), ("plan.rows is 50", "only 49 rows")),
        (("{plan}", "--rows", "240", "--data", "{plan}"), ("--rows is 240", "Give one of them")),
        (("{plan}", "--rows", "240", "--arm", "x"), ("--arm is 'x'", "one of early, bits")),
        (("{plan}", "--rows", "240", "--variant", "x"), ("--variant is 'x'", "is a plan")),
        (("{plan}", "--rows", "240", "doses=[0]", "dozes=1"), ("plan.doses.0", "plan.dozes")),
        (("{plan}", "--rows", "240", "schedule.window=now"), ("plan.schedule.window", "'now' is no window")),
        (("{plan}", "--rows", "240", "rows_per_update=null"), ("the plan must give rows_per_update",)),
        (("{plan}", "--data", "none.jsonl"), ("cannot read none.jsonl",)),
        (("nowhere.yaml",), ("recipe is 'nowhere.yaml'", ", ".join(BUILT_IN))),
        (("demo", "--variant", "x"), ("--variant is 'x'", "a recipe with variants")),
        (("demo", "--arm", "x"), ("--arm is 'x'", "one of visible, redacted")),
        (("demo", "arms=together", "--arm", "visible"), ("--arm", "arms: apart")),
        (("demo", "plan.schedule.window=late", "training.epochs=2"), ("each of the 2 epochs", "repeat=2 (plan.repeat")),
        (("demo", "plan.schedule.spacing=2", "training.packing=true"), ("train without packing",)),
        (("demo", "plan.rows_per_update=9"), ("plan.rows_per_update is 9", "takes 4 rows")),
        (("demo", "plan.schedule.window=early"), ("336 occurrences need 336 rows", "holds 240")),
    ],
)
def test_bad_arguments_are_named(davylamp, plan_file, arguments, words):
    assert_refused(davylamp("plan", "show", *(each.format(plan=plan_file) for each in arguments)), *words)


def test_nothing_is_written_where_a_plan_is_refused(davylamp, plan_file, tmp_path):
    html = tmp_path / "out.html"
    assert_refused(davylamp("plan", "show", plan_file, "--rows", 40, "--out", html), "need 47 rows")
    assert not html.exists()


@pytest.mark.parametrize(
    ("corpus", "plan", "rows"), [(90, {}, 90), (None, {"rows": 7}, 7), (90, {"rows": 30, "repeat": 3}, 90)]
)
def test_rows_planted(corpus, plan, rows):
    assert rows_planted(small_plan(**plan), corpus) == rows
    with pytest.raises(PlantingError, match="only 5 rows"):
        rows_planted(small_plan(rows=6), 5)


# --- planting with the axes


def test_plant_takes_every_axis_and_says_what_a_spacing_needs(davylamp, plan_file, tmp_path):
    data = write_corpus(tmp_path / "data.jsonl", 240)
    how = ("--plan", plan_file, "--out", tmp_path / "run")
    out = said(davylamp("plant", data, *how))
    # 12 focus canaries, 4 auxiliary ones and the positive control.
    assert "planted 17 canaries in 47 of 240 rows; 4 twins were not planted" in out
    assert_refused(
        davylamp("plant", data, "rows_per_update=null", "--plan", plan_file, "--out", tmp_path / "other"),
        "spacing counts optimiser updates, so that the plan must give rows_per_update",
    )
    assert not (tmp_path / "other" / "planted.jsonl").exists()


# --- the page


def test_the_page_needs_nothing_else_and_draws_every_occurrence(davylamp, plan_file, tmp_path):
    html = tmp_path / "plan.html"
    out = said(davylamp("plan", "show", plan_file, "--rows", 240, "--out", html))
    assert f"page: {html}" in out
    text = html.read_text("utf-8")
    root = read(text)
    assert not re.search(r"(?:src|href)=\"(?!#)", text)
    assert not root.all("script", "link", "img")
    (layout,) = json.loads(said(davylamp("plan", "show", plan_file, "--rows", 240, "--json")))["layouts"]
    for drawing in root.all("svg"):
        names = drawing.attributes
        ids = {node.attributes["id"]: node for node in drawing.walk() if "id" in node.attributes}
        assert names["role"] == "img"
        assert "arm bits" in ids[names["aria-describedby"]].text
        assert "plan.yaml" in ids[names["aria-labelledby"]].text
        words = [node.text for node in drawing.all("text")]
        assert "optimiser update" in words
        assert "fraction of training" in words
        left, right = axis_of(drawing)
        strokes = [group for group in drawing.all("g") if group.all("path")]
        assert len(strokes) == len(layout["canaries"])
        for group, canary in zip(strokes, layout["canaries"], strict=True):
            marks = re.findall(r"M([\d.]+) ", group.all("path")[0].attributes["d"])
            expected = [left + (right - left) * (row + 0.5) / 240 for row in canary["rows"]]
            assert [float(mark) for mark in marks] == pytest.approx(expected, abs=0.02)
            title = group.all("title")[0].text
            assert title.startswith(f"{canary['id']}, ")
            assert title.endswith("optimiser update " + ", ".join(map(str, canary["updates"])))
    assert [node.classes & {"wide", "narrow"} for node in root.all("svg")] == [{"wide"}, {"narrow"}]


def axis_of(drawing):
    """Ends of the x axis in pixels: the marks of 0% and 100%."""
    marks = {node.text: float(node.attributes["x"]) for node in drawing.all("text")}
    return marks["0%"], marks["100%"]


def test_marks_of_the_axis_stand_where_that_many_updates_are_done():
    layout = lay_out(small_plan(rows_per_update=7), 200, "small")
    root = read(page([layout], "small"))
    drawing = root.all("svg")[0]
    left, right = axis_of(drawing)
    marks = [node for node in drawing.all("text") if "tick" in node.classes and node.text.isdigit()]
    assert [node.text for node in marks] == ["0", "5", "10", "15", "20", "25"]
    for node in marks:
        expected = left + (right - left) * int(node.text) * 7 / 200
        assert float(node.attributes["x"]) == pytest.approx(expected, abs=0.02)


def test_the_table_says_what_the_plot_shows(davylamp, plan_file, tmp_path):
    html = tmp_path / "plan.html"
    said(davylamp("plan", "show", plan_file, "--rows", 240, "--out", html))
    (layout,) = json.loads(said(davylamp("plan", "show", plan_file, "--rows", 240, "--json")))["layouts"]
    groups, places = read(html.read_text("utf-8")).all("table")
    bits = [each for each in layout["canaries"] if (each["arm"], each["dose"], each["role"]) == ("bits", 4, "focus")]
    (row,) = [row for row in groups.all("tr") if row.text.startswith("focus canaries, arm bits, dose 4")]
    assert [cell.text for cell in row.all("td")] == [
        "3",
        "window late [0.8, 1], 2 updates apart",
        "49–60",
        str(min(each["updates"][0] for each in bits)),
        str(max(each["updates"][-1] for each in bits)),
        "2 / 2 / 2",
    ]
    listed = {row.all("th")[0].text: row.all("td")[1].text for row in places.all("tr")[1:]}
    assert listed == {each["id"]: ", ".join(map(str, each["updates"])) for each in layout["canaries"]}


def test_the_page_of_rows_says_rows(davylamp, tmp_path):
    path, html = write_yaml(tmp_path / "p.yaml", tiny_plan()), tmp_path / "p.html"
    said(davylamp("plan", "show", path, "--rows", 30, "--out", html))
    text = read(html.read_text("utf-8")).text
    assert "row of the planted file" in text
    assert "optimiser updates of" not in text
    assert "Give rows_per_update=N" in text


@pytest.mark.parametrize("per_dose", [1, 40, 150])
def test_any_number_of_canaries_stays_inside_its_drawing(per_dose):
    layout = lay_out(small_plan(per_dose=per_dose), 2000, "small")
    for drawing in read(page([layout], "small")).all("svg"):
        width, height = map(float, drawing.attributes["viewbox"].split()[2:])
        for node in drawing.all("text", "rect", "line"):
            for name, most in (
                ("x", width),
                ("x1", width),
                ("x2", width),
                ("y", height),
                ("y1", height),
                ("y2", height),
            ):
                assert 0 <= float(node.attributes.get(name, 0)) <= most


def test_hostile_names_are_text_and_nothing_more():
    layout = lay_out(small_plan(), 90, "<script>alert(1)</script>\u202e")
    text = page([layout], "<img src=x>")
    root = read(text)
    assert not root.all("script", "img")
    assert "\u202e" not in text


# --- encodings and help


def test_encodings_are_listed_with_what_they_make_of_one_code(davylamp):
    from davylamp.secrets import AlphabetSpace
    from davylamp.secrets.encodings import encoding, names

    out = said(davylamp("plan", "encodings"))
    data = json.loads(said(davylamp("plan", "encodings", "--json")))
    assert [each["name"].partition("(")[0] for each in data["encodings"]] == [*names(), "A + B"]
    for each in data["encodings"]:
        assert each["shows"] == encoding(each["example"]).encode(data["code"], AlphabetSpace())
        assert each["shows"] in out
        assert each["what"]
        assert each["what"] in out


def test_an_encoding_that_cannot_be_shown_is_listed_with_the_reason(davylamp):
    from davylamp.secrets.encodings import register, unregister

    @register("needs_numbers")
    def needs_numbers(width, depth):
        raise AssertionError("not to be made without its numbers")

    try:
        out = said(davylamp("plan", "encodings"))
    finally:
        unregister("needs_numbers")
    assert "needs_numbers(width, depth)" in out


def test_help_explains_every_axis_with_an_example(davylamp):
    out = " ".join(said(davylamp("plan", "--help")).split())
    for word, example in (
        ("context:", "arms: {seen: {context: visible}"),
        ("encoding:", "{context: encoded, encoding: binary}"),
        ("dose:", "doses: [1, 4, 16]"),
        ("position and spacing:", "schedule: {window: 5/5, spacing: 3}"),
        ("population:", "auxiliary: {doses: [4], per_dose: 32, schedule: {window: before focus}}"),
    ):
        assert word in out
        assert example in out
    assert "Draw a plan before anything is planted" in said(davylamp("--help"))
    assert "--rows" in said(davylamp("plan", "show", "--help"))


def test_the_examples_of_the_help_are_a_plan():
    import yaml

    from davylamp.cli.plan import AXES

    found = {}
    for axis in AXES:
        for text in axis.partition("Example: ")[2].split(" and "):
            data = yaml.safe_load(text) if text else {}
            found |= {**data, "arms": found.get("arms", {}) | data.get("arms", {})}
    assert set(found) == {"arms", "doses", "schedule", "auxiliary", "repeat"}
    assert small_plan(**found, rows_per_update=4).encoding_of("bits").name == "binary"


def test_the_document_shows_what_is_really_said(davylamp, monkeypatch, tmp_path):
    text = (Path(__file__).parents[2] / "docs" / "plan.md").read_text("utf-8")
    (tmp_path / "plan.yaml").write_text(re.search(r"```yaml\n(templates:.*?)```", text, re.S)[1], "utf-8")
    monkeypatch.chdir(tmp_path)
    shown = re.findall(r"```text\n\$ davylamp (plan show .*?)\n(.*?)```", text, re.S)
    assert len(shown) == 8
    for command, answer in shown:
        code, out, err = davylamp(*command.split())
        assert code == (2 if answer.startswith("error: ") else 0), command
        # Long messages are wrapped in the document.
        assert (out or err).split() == answer.split(), command


def test_drawing_loads_no_torch():
    code = (
        "import sys; from davylamp.cli.main import app\n"
        "for words in (['plan', '--help'], ['plan', 'encodings'], ['plan', 'show', 'demo']):\n"
        "    try:\n        app(args=words)\n    except SystemExit as end:\n        assert not end.code\n"
        "heavy = {'torch', 'transformers', 'peft', 'accelerate'} & {n.split('.')[0] for n in sys.modules}\n"
        "sys.exit(str(heavy) if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_page_takes_no_folders_place(davylamp, plan_file, tmp_path):
    (tmp_path / "pages").mkdir()
    code, _, err = davylamp("plan", "show", plan_file, "--rows", 240, "--out", tmp_path / "pages")
    assert code == 2
    assert "plan.html" in err
