"""The report of a study: variants told apart, what was found, plots that are true, schedules, utility and leakage."""

from __future__ import annotations

import json
import math
import re
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from davylamp.errors import RunFolderError
from davylamp.measures.paired import paired
from davylamp.report import svg
from davylamp.report.data import collect
from davylamp.report.html import render
from davylamp.report.model import ReportData
from davylamp.report.study import Checked, Compared, SeedPart, ShapeFound, StudyResult
from support.pages import Node, check_structure, read
from support.reports import Case, write_run, write_utility

RANKS = {"first": {0: 5000, 8: 700}, "last": {0: 5000, 8: 3}}
WINDOWS = {"first": (0.0, 0.2), "last": (0.8, 1.0)}
PAIRS = tuple(
    (seed, round(1.0 + place / 3 + seed, 3), round(12.5 - place / 2, 3)) for seed in range(3) for place in range(4)
)


def compared(name: str = "late over early", unit: str = "bits", pairs: Any = PAIRS) -> Compared:
    found = paired([p[1] for p in pairs], [p[2] for p in pairs], groups=[p[0] for p in pairs], unit=unit)
    return Compared(
        name=name,
        statement=found.statement,
        unit=unit,
        n=found.n,
        rises=found.rises,
        falls=found.falls,
        ties=found.ties,
        median=found.median,
        low=found.low,
        high=found.high,
        exact_low=found.exact_low,
        exact_high=found.exact_high,
        p=found.p,
        seeds=tuple(
            SeedPart(seed=int(each.name), n=each.n, rises=each.rises, falls=each.falls, median=each.median)
            for each in found.groups
        ),
        first_median=8.5,
        second_median=3.25,
        sides=("first", "last"),
        pairs=pairs,
    )


def result(*compared_: Compared) -> StudyResult:
    checks = (Checked(statement="late over early rises", held=True), Checked(statement="never said", held=False))
    return StudyResult(
        name="position",
        title="Early against late",
        figures="Figs. 4 and 8",
        question="Is late better?",
        task="email",
        size="cpu",
        confidence=0.95,
        compared=compared_,
        shapes=(
            ShapeFound(statement="Late is remembered.", paper="3.26, 6.80", word="held in part", checks=checks),
            ShapeFound(statement="Never said.", paper=None, word="not held", checks=checks[1:]),
            ShapeFound(statement="Late wins.", paper=None, word="held", checks=checks[:1]),
        ),
        seconds=754.0,
    )


def write_study(folder: Path, found: StudyResult | None = None, **changes: Any) -> Path:
    """Two variants of one arm, three seeds; their folders sort otherwise than the recipe has them."""
    for variant in ("last", "first"):
        for seed in range(3):
            case = Case(
                arms={"masked": RANKS[variant]},
                seed=seed,
                variant=variant,
                schedule={"window": WINDOWS[variant]},
                training_schedule="cosine" if variant == "last" else "constant",
                utility=(50 + seed, 64),
                **changes,
            )
            write_run(folder / "runs" / f"{'z' if variant == 'first' else 'a'}-{variant}-masked-s{seed}", case)
    write_utility(folder / "runs" / "base", 10, 64)
    write_utility(folder / "runs" / "clean-s0", 55, 64)
    recipe = {"name": "position (email, cpu)", "variants": {"first": {}, "last": {}}, "plan": {"arms": {"masked": {}}}}
    (folder / "recipe.json").write_text(json.dumps(recipe), encoding="utf-8")
    (folder / "study.json").write_text((found or result(compared())).model_dump_json(), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> tuple[ReportData, Node]:
    data = collect(write_study(tmp_path_factory.mktemp("study")))
    return data, read(render(data))


def table(root: Node, caption: str) -> list[list[str]]:
    [node] = [node for node in root.all("table") if node.all("caption")[0].text.startswith(caption)]
    return [[cell.text for cell in row.all("td", "th")] for row in node.all("tr")]


def section(root: Node, name: str) -> Node:
    return next(node for node in root.all("section") if node.attributes["aria-labelledby"] == name)


def plot(root: Node, key: str) -> Node:
    return next(node for node in root.all("svg") if node.attributes.get("aria-labelledby") == f"{key}-t")


# Variants


def test_variants_are_told_apart_and_stand_in_the_order_of_the_recipe(study: tuple[ReportData, Node]) -> None:
    data, root = study
    assert [run.variant for run in data.runs] == ["first"] * 3 + ["last"] * 3
    assert [run.verdict.seed for run in data.runs] == [0, 1, 2, 0, 1, 2]
    assert "Variants: first, last; seeds: 0, 1, 2" in root.all("header")[0].text
    assert data.headlines[0].startswith("first (secret redacted in the training prompt), dose 8: leak in 3 of 3")
    assert data.headlines[1].startswith("last (secret redacted in the training prompt), dose 8: leak in 3 of 3")
    heads = [row[0] for row in table(root, "Exposure and exact recovery") if len(row) == 1]
    assert heads == ["first: secret redacted in the training prompt", "last: secret redacted in the training prompt"]
    # No model has to be named: variant and seed tell all six apart.
    assert table(root, "Exposure and exact recovery")[1][:3] == ["dose", "seed", "canaries"]


def test_each_variant_is_a_line_of_its_own_with_a_mark_a_seed(study: tuple[ReportData, Node]) -> None:
    _, root = study
    labels = {
        mark.all("title")[0].text.split(":")[0]: mark.classes
        for mark in plot(root, "g0-exposure-wide").all("circle", "polygon")
    }
    expected = {f"{v}, dose {d}, seed {s}" for v in RANKS for d in (0, 8) for s in range(3)}
    assert set(labels) == expected
    assert {name.split(",")[0]: sorted(classes & {"s0", "s1"}) for name, classes in labels.items()} == {
        "first": ["s0"],
        "last": ["s1"],
    }
    legend = section(root, "exposure").all("ul")[0].all("li")
    assert [item.text for item in legend] == ["mark of firstfirst redacted", "mark of lastlast redacted"]


def test_variants_of_several_arms_are_named_by_both(tmp_path: Path) -> None:
    for variant, ranks in RANKS.items():
        for arm, context in (("a", "visible"), ("b", "redacted")):
            case = Case(arms={arm: ranks}, contexts={arm: context}, variant=variant)
            write_run(tmp_path / "runs" / f"{variant}-{arm}-s0", case)
    data = collect(tmp_path)
    labels = ["first, a", "first, b", "last, a", "last, b"]
    assert [each.split(" (")[0] for each in data.headlines[:4]] == labels
    assert f"Variants: {', '.join(labels)};" in read(render(data)).all("header")[0].text


def test_beyond_eight_series_colour_and_shape_together_stay_different() -> None:
    looks = [(svg.hue(index), svg.shape(index), svg.dash(index)) for index in range(64)]
    assert len({(hue, shape) for hue, shape, _ in looks}) == 64
    assert [hue for hue, _, _ in looks[:8]] == list(range(8))


# The section


def test_the_study_stands_between_the_verdict_and_the_controls(study: tuple[ReportData, Node]) -> None:
    _, root = study
    order = [node.attributes["aria-labelledby"] for node in root.all("section")]
    assert order[:3] == ["verdict", "study", "controls"]
    text = section(root, "study").text
    assert text.startswith("Study: Early against late Is late better? Follows Figs. 4 and 8 of")
    assert "Task: email; size: cpu" in text
    assert "12 min 34 s" in text


def test_shapes_say_what_held_with_a_sign_and_the_papers_figures(study: tuple[ReportData, Node]) -> None:
    body = table(study[1], "What the paper saw")[1:]
    assert [row[1] for row in body] == ["◐ held in part", "✕ not held", "✓ held"]
    assert body[0][2:] == ["✓ yes: late over early rises✕ no: never said", "3.26, 6.80"]
    assert body[1][3] == "none given"


def test_a_study_of_ones_own_is_not_credited_to_the_paper(tmp_path: Path) -> None:
    found = result(compared())
    own = tuple(shape.model_copy(update={"paper": None}) for shape in found.shapes)
    root = read(render(collect(write_study(tmp_path, found.model_copy(update={"figures": None, "shapes": own})))))
    text = section(root, "study").text
    assert "Uncovering secret code" not in text
    assert "paper" not in text
    head, *body = table(root, "What was expected, and what was found here")
    assert head == ["shape", "found", "here"]
    assert {len(row) for row in body} == {3}


def test_too_few_pairs_are_neither_held_nor_not_held(tmp_path: Path) -> None:
    found = result(compared())
    few = Checked(statement="5 of 6 rise", held=False, few=True)
    shape = ShapeFound(statement="Late wins.", paper=None, word="too few pairs", checks=(few,))
    root = read(render(collect(write_study(tmp_path, found.model_copy(update={"shapes": (*found.shapes, shape)})))))
    last = table(root, "What the paper saw")[-1]
    assert last[1:3] == ["? too few pairs", "? too few pairs: 5 of 6 rise"]
    badges = [node for node in section(root, "study").all("span") if "badge" in node.classes]
    assert [sorted(node.classes - {"badge"}) for node in badges][2:] == [["held"], ["too-few-pairs"]]
    assert "the shape neither held nor failed to" in section(root, "study").text


def test_comparisons_have_every_seed_below_the_whole(study: tuple[ReportData, Node]) -> None:
    data, root = study
    assert data.study is not None
    each = data.study.compared[0]
    body = table(root, "Comparisons, canary by canary")[1:]
    assert body[0] == ["late over early (first → last; medians, bits)"]
    assert body[1][:5] == ["all seeds", "12", str(each.rises), str(each.falls), str(each.ties)]
    assert body[1][5] == f"{each.median:+.2f}"
    assert [row[0] for row in body[2:]] == ["seed 0", "seed 1", "seed 2"]
    # By hand: seed 2 has 3, 3.333, 3.667 and 4 on the one side, 12.5, 12, 11.5 and 11 on the other.
    assert body[4][1:6] == ["4", "4", "0", "0", "+8.25"]
    assert body[4][8:] == ["3.50", "11.75"]


def test_failed_controls_are_said_in_the_section(tmp_path: Path) -> None:
    root = read(render(collect(write_study(tmp_path, positive_rank=4000))))
    assert "6 of 6 models have no verdict: a control failed." in section(root, "study").text


def test_a_damaged_study_is_named(tmp_path: Path) -> None:
    write_study(tmp_path)
    (tmp_path / "study.json").write_text("{}", encoding="utf-8")
    with pytest.raises(RunFolderError, match=r"study\.json is damaged"):
        collect(tmp_path)


def test_a_study_without_pairs_is_shown_without_a_plot(tmp_path: Path) -> None:
    bare = compared().model_copy(update={"pairs": (), "sides": None})
    root = read(render(collect(write_study(tmp_path, result(bare)))))
    assert "Canary by canary" not in [node.text for node in root.all("h3")]
    assert table(root, "Comparisons, canary by canary")[3][8:] == ["", ""]


def test_hostile_text_of_a_study_stays_text_and_the_page_sound(tmp_path: Path) -> None:
    evil = "<script>alert(1)</script>\"'{{ 7 * 7 }}\x00\u202e" + "long" * 1000
    data = result(compared(evil).model_copy(update={"statement": evil, "sides": (evil, evil)})).model_dump(mode="json")
    data |= dict.fromkeys(("title", "question", "figures", "task"), evil)
    data["shapes"][0] |= {"statement": evil, "paper": evil, "checks": [{"statement": evil, "held": False}]}
    html = render(collect(write_study(tmp_path, StudyResult.model_validate(data))))
    root = read(html)
    assert not root.all("script")
    assert "{{ 7 * 7 }}" in html
    assert "\x00" not in html
    assert "\u202e" not in html
    # Each text is cut, in plots as well; a part of a shape is one of several in its cell.
    assert max(len(node.text) for node in root.all("td", "th", "title", "desc", "text")) < 5000


@pytest.mark.parametrize("changes", [{}, {"positive_rank": 4000}, {"training": False, "reply": False}], ids=str)
def test_structure_is_accessible_and_rows_are_of_one_width(tmp_path: Path, changes: dict[str, Any]) -> None:
    cues = {("replacement", "trained"): 1, ("replacement", "replacement"): 9, ("original", "trained"): 16}
    root = read(render(collect(write_study(tmp_path, cues=cues, before=cues, **changes))))
    check_structure(root)
    for node in root.all("table"):
        widths = {
            sum(int(cell.attributes.get("colspan", 1)) for cell in row.children if isinstance(cell, Node))
            for row in node.all("tr")
        }
        assert len(widths) == 1, node.all("caption")[0].text


def test_the_data_hold_the_whole_report(study: tuple[ReportData, Node]) -> None:
    data, _ = study
    assert ReportData.model_validate_json(data.model_dump_json()) == data
    assert render(ReportData.model_validate_json(data.model_dump_json())) == render(data)


# Slopes


def slope_axis(drawn: Node) -> tuple[float, float]:
    marks = [node for node in drawn.all("text") if node.classes == {"tick", "end"}]
    at = [(float(node.text), float(node.attributes["y"]) - 4) for node in marks]
    (first, low), (last, high) = at[0], at[-1]
    return low + first * (low - high) / (last - first), (low - high) / (last - first)


def heights(path: Node, zero: float, unit: float) -> list[float]:
    points = path.attributes["d"][1:].split("L")
    return [(zero - float(point.split(" ")[1])) / unit for point in points]


def test_slopes_are_true(study: tuple[ReportData, Node]) -> None:
    drawn = plot(study[1], "slope0-half")
    zero, unit = slope_axis(drawn)
    threads = [path for path in drawn.all("path") if "thread" in path.classes]
    assert len(threads) == len(PAIRS)
    for path, (seed, over, of) in zip(threads, PAIRS, strict=True):
        # Coordinates have two decimals, and a bit takes more than 15 pixels.
        assert heights(path, zero, unit) == [pytest.approx(over, abs=0.002), pytest.approx(of, abs=0.002)]
        assert f"s{seed}" in path.classes
        assert path.parent is not None
        assert path.parent.all("title")[0].text == f"seed {seed}: {over:.2f} to {of:.2f} bits"
    seeds = [heights(path, zero, unit) for path in drawn.all("path") if "seed" in path.classes]
    # Medians of four: 1.5, 2.5 and 3.5 on the one side, 11.75 on the other.
    assert seeds == [[pytest.approx(m, abs=0.002), pytest.approx(11.75, abs=0.002)] for m in (1.5, 2.5, 3.5)]
    [whole] = [heights(path, zero, unit) for path in drawn.all("path") if "overall" in path.classes]
    assert whole == [pytest.approx(3.25, abs=0.002), pytest.approx(8.5, abs=0.002)]
    words = [node.text for node in drawn.all("text")]
    assert {"first", "last", "3.25", "8.50", "ceiling", "13.29", "exposure, bits"} <= set(words)


def test_each_comparison_of_exposures_has_a_panel_with_its_sentence(tmp_path: Path) -> None:
    said = compared("said", "success", ((0, 0.0, 1.0), (0, 0.0, 0.0), (1, 1.0, 1.0)))
    first, other = compared(), compared("late over middle")
    data = collect(write_study(tmp_path, result(first, said, other)))
    root = read(render(data))
    text = section(root, "study").text
    assert text.count(f"{first.statement}.") == 2
    assert plot(root, "slope1-half").all("title")[0].text == "late over middle"
    assert not [node for node in root.all("svg") if node.attributes.get("aria-labelledby") == "slope2-half-t"]
    # Successes are no medians: 1 of 3 before, 2 of 3 after, seed by seed in rates.
    body = table(root, "Comparisons, canary by canary")
    at = next(index for index, row in enumerate(body) if row[0].startswith("said"))
    assert body[at][0] == "said (first → last; rates)"
    assert body[at + 2][8:] == ["0%", "50%"]


def test_one_seed_is_told_by_nothing(tmp_path: Path) -> None:
    alone = compared(pairs=tuple(pair for pair in PAIRS if pair[0] == 1))
    root = read(render(collect(write_study(tmp_path, result(alone)))))
    drawn = plot(root, "slope0-half")
    assert not [path for path in drawn.all("path") if "seed" in path.classes]
    assert [row[0] for row in table(root, "Comparisons, canary by canary")[2:]] == ["all seeds"]


# Utility beside leakage


def test_utility_beside_leakage_is_true(study: tuple[ReportData, Node]) -> None:
    data, root = study
    drawn = plot(root, "tradeoff0-right-half")
    marks = {node.all("title")[0].text: node for node in drawn.all("circle", "polygon")}
    assert len(marks) == 8
    ticks = [node for node in drawn.all("text") if node.classes == {"tick", "middle"} and node.text.isdigit()]
    (low, left), (high, right) = [(float(t.text), float(t.attributes["x"])) for t in (ticks[0], ticks[-1])]
    ys = [node for node in drawn.all("text") if node.classes == {"tick", "end"}]
    zero, one = float(ys[0].attributes["y"]) - 4, float(ys[-1].attributes["y"]) - 4
    for run in data.runs:
        [cell] = [cell for cell in run.verdict.cells if cell.dose]
        [(label, node)] = [(label, node) for label, node in marks.items() if label.startswith(run.name)]
        x, y = place(node)
        assert low + (x - left) * (high - low) / (right - left) == pytest.approx(cell.median, abs=0.01)
        assert (zero - y) / (zero - one) == pytest.approx((50 + run.verdict.seed) / 64, abs=0.001)
        assert f"{cell.median:.2f} bits [{cell.median_low:.2f}, {cell.median_high:.2f}] at dose 8" in label
        assert f"{50 + run.verdict.seed} of 64 right" in label
        assert ("filled" in node.classes) == (cell.exposure_verdict == "leak")
    outside = {label.split(":")[0]: place(node) for label, node in marks.items() if "no canaries" in label}
    assert set(outside) == {"base", "clean-s0"}
    assert all(x < left - 8 for x, _ in outside.values())
    assert (zero - outside["base"][1]) / (zero - one) == pytest.approx(10 / 64, abs=0.001)


def place(mark: Node) -> tuple[float, float]:
    """Middle of a mark's box, which is where it stands but for a triangle's height."""
    if mark.tag == "circle":
        return float(mark.attributes["cx"]), float(mark.attributes["cy"])
    corners = [tuple(map(float, corner.split(","))) for corner in mark.attributes["points"].split()]
    xs, ys = zip(*corners, strict=True)
    return (min(xs) + max(xs)) / 2, (min(ys) + max(ys)) / 2


def test_the_table_of_utility_has_the_leakage_of_each_model(study: tuple[ReportData, Node]) -> None:
    data, root = study
    body = table(root, "letters without a mistake")[1:]
    assert [row[0] for row in body] == ["base", "clean-s0", *(run.name for run in data.runs)]
    assert body[0][4:] == ["", "no canaries", ""]
    [cell] = [cell for cell in data.runs[3].verdict.cells if cell.dose]
    median = f"{cell.median:.2f} [{cell.median_low:.2f}, {cell.median_high:.2f}]"
    assert body[5][4:6] == ["8", median]
    assert body[5][6].startswith(f"{cell.greedy.successes} of 16 [")


def test_the_held_out_loss_has_a_panel_of_its_own(tmp_path: Path) -> None:
    write_study(tmp_path)
    for path in tmp_path.glob("runs/*/utility.json"):
        loss = {"loss": 0.00412, "loss_low": 0.0031, "loss_high": 0.0057, "reply_tokens": 900}
        path.write_text(json.dumps({**json.loads(path.read_text("utf-8")), **loss}), encoding="utf-8")
    root = read(render(collect(tmp_path)))
    assert "held-out loss, nats a token" in plot(root, "tradeoff0-loss-half").text
    assert table(root, "letters without a mistake")[1][4:6] == ["0.00412", "[0.00310, 0.00570]"]


# Schedules


def test_schedules_and_learning_rates_stand_in_words(tmp_path: Path) -> None:
    auxiliary = {"doses": (8, 16), "per_dose": 4, "schedule": {"window": "before focus"}}
    cases = {
        "whole": Case(),
        "late": Case(schedule={"window": (0.8, 1.0), "spacing": 4, "last": 0.9}, training_schedule="cosine"),
        "middle": Case(schedule={"window": (1 / 3, 2 / 3), "spread": "concentrated"}, auxiliary=auxiliary),
        "elsewhere": Case(training=False),
    }
    for name, case in cases.items():
        folder = write_run(tmp_path / name, case)
        if name == "late":
            noted = json.loads(folder.training.read_text("utf-8"))
            noted |= {"peak_learning_rate": 0.0006, "cumulative_learning_rate": 0.0903}
            folder.training.write_text(json.dumps(noted), encoding="utf-8")
    root = read(render(collect(tmp_path)))
    body = {row[0]: row[1:] for row in table(root, "When canaries were trained on")[1:]}
    # Where training did not note the sum, it is that of the 300 rates of 0.0006 that it did note.
    assert body["whole"] == ["anywhere in training", "none", "constant", "0.0006", "0.18"]
    assert body["late"] == [
        "from 0.8 to 1 of training (rows 961 to 1,200 of 1,200), an occurrence every 4 updates, the last occurrence "
        "at 0.9",
        "none",
        "cosine",
        "0.0006",
        "0.0903",
    ]
    assert body["middle"][:2] == [
        "from 0.333 to 0.667 of training (rows 401 to 800 of 1,200), in consecutive rows",
        "4 of dose 8, 16 in each arm, before focus, from 0 to 0.333 of training (rows 1 to 400 of 1,200), in rows "
        "drawn at random",
    ]
    assert body["elsewhere"][2:] == ["not recorded"] * 3


# Colours

DEUTERANOPIA = ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881))
PROTANOPIA = ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998))
NORMAL = ((1, 0, 0), (0, 1, 0), (0, 0, 1))


def lab(colour: str, eye: tuple[tuple[float, ...], ...]) -> tuple[float, float, float]:
    """CIELAB of an sRGB colour as an eye sees it: Machado, Oliveira and Fernandes (2009), table 1, severity 1."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    seen = [min(1.0, max(0.0, sum(f * each for f, each in zip(row, linear, strict=True)))) for row in eye]
    rows = ((0.4125, 0.3576, 0.1804), (0.2127, 0.7152, 0.0722), (0.0193, 0.1192, 0.9503))
    white = (0.9505, 1.0, 1.0888)
    xyz = [sum(f * each for f, each in zip(row, seen, strict=True)) / w for row, w in zip(rows, white, strict=True)]
    x, y, z = (t ** (1 / 3) if t > 216 / 24389 else (24389 / 27 * t + 16) / 116 for t in xyz)
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


@pytest.mark.parametrize("eye", [NORMAL, DEUTERANOPIA, PROTANOPIA], ids=["normal", "deuteranopia", "protanopia"])
@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_colours_of_series_can_be_told_apart(
    study: tuple[ReportData, Node], scheme: int, eye: tuple[tuple[float, ...], ...]
) -> None:
    css = "".join(str(child) for child in study[1].all("style")[0].children)
    block = re.findall(r":root \{(.*?)\}", css, re.S)[scheme]
    found = dict(re.findall(r"--(c\d): (#\w{6})", block))
    assert len(found) == svg.COLOURS
    # A difference of 2.3 is just noticeable (Mahy et al. 1994); marks are small, so that several times that is asked.
    for one, other in combinations(found.values(), 2):
        assert math.dist(lab(one, eye), lab(other, eye)) > 15, (one, other)
