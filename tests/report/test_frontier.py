"""The frontier on a page: everything compared is there, escaped, told without colour, and free of secrets."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from itertools import combinations
from pathlib import Path

import pytest

from davylamp.report.data import collect
from davylamp.report.html import render, render_comparison
from davylamp.verdict.frontier import frontier
from davylamp.verdict.frontier_model import Frontier
from support.landscapes import WAYS, Way, landscape, many, study
from support.reports import Case, write_run

QUICK = 100


def page(found: Frontier) -> str:
    return render_comparison(found, "runs", "frontier.json")


def plots(html: str) -> list[ET.Element]:
    return [ET.fromstring(each) for each in re.findall(r"<svg[^>]*class=\"plot.*?</svg>", html, re.S)]  # noqa: S314


@pytest.fixture(scope="module")
def nine() -> Frontier:
    return frontier(study(seeds=(0, 1)), resamples=QUICK)


@pytest.fixture(scope="module")
def thirty() -> str:
    ways = many(30)
    return page(frontier(study([*ways], (0,), ways), resamples=QUICK))


@pytest.mark.parametrize("count", [1, 2, 3, 30])
def test_any_number_of_interventions_has_a_page(count: int, thirty: str) -> None:
    names = [*many(30)] if count > 9 else list(WAYS)[:count]
    html = thirty if count > 9 else page(frontier(study(names, (0,)), resamples=QUICK))
    for name in names:
        assert name in html
    for drawing in plots(html):
        for text in drawing.iter("text"):
            assert "nan" not in (text.text or "").lower()
    assert ("Pareto set of the mean ranks" in html) == (count > 1)
    assert ("Spearman" in html) == (count > 3)


def test_labels_of_thirty_names_do_not_meet(thirty: str) -> None:
    drawing = plots(thirty)[0]
    boxes = []
    for text in drawing.iter("text"):
        if "halo" in (text.get("class") or ""):
            x, y = float(text.get("x") or 0), float(text.get("y") or 0)
            wide = 6.5 * len(text.text or "")
            left = x - wide if "end" in (text.get("class") or "").split() else x
            boxes.append((left, y - 11, left + wide, y + 3))
    assert len(boxes) == 30
    for one, other in combinations(boxes, 2):
        assert one[2] <= other[0] or other[2] <= one[0] or one[3] <= other[1] or other[3] <= one[1]


def test_the_pareto_set_is_told_by_fill_and_by_words(nine: Frontier) -> None:
    html = page(nine)
    wide = plots(html)[0]
    marks = {
        (mark.findtext("title") or "").split(":")[0]: mark
        for mark in wide.iter()
        if "mark" in (mark.get("class") or "").split()
    }
    front = nine.front("capability", "privacy")
    assert front is not None
    for row in nine.rows:
        member = row.intervention in front.members
        look = marks[row.intervention].get("class") or ""
        assert ("filled" in look) == member
        assert ("hollow" in look) != member
        assert ("in the Pareto set" in (marks[row.intervention].findtext("title") or "")) == member
    assert len([each for each in wide.iter("polygon") if each.get("class") == "arrowhead"]) == len(nine.arrows)


def test_every_value_of_every_intervention_is_in_the_tables(nine: Frontier) -> None:
    html = page(nine)
    direct = nine.rows[1]
    assert f"{direct.values['verbatim_perplexity'].value:#.3g}".rstrip(".") in html
    assert f"{direct.values['exposure'].value:.2f}" in html
    assert "Every intervention and seed" in html
    assert html.count("not told apart") + html.count(">better<") + html.count(">worse<") >= 8


def test_hostile_names_are_escaped() -> None:
    name = "<script>alert(1)</script>\u202e"
    html = page(
        frontier([("a", landscape("direct").model_copy(update={"intervention": name})), *study(("none",), (0,))])
    )
    assert "<script" not in html
    assert "\u202e" not in html


def test_better_is_up_and_to_the_right_on_every_axis(nine: Frontier) -> None:
    found = frontier(study(seeds=(0,)), "held_out_perplexity", "exposure", resamples=QUICK)
    wide = plots(page(found))[0]
    marks = {
        (mark.findtext("title") or "").split(":")[0]: (float(mark.get("cx") or 0), float(mark.get("cy") or 0))
        for mark in wide.iter("circle")
    }
    assert "none" in marks
    none, direct = _place(wide, "none"), _place(wide, "direct")
    # Less exposure is better, so higher up; a lower held-out perplexity is better, so farther to the right.
    assert none[1] < direct[1]
    assert none[0] < direct[0]


def _place(drawing: ET.Element, name: str) -> tuple[float, float]:
    for mark in drawing.iter():
        if (mark.findtext("title") or "").startswith(f"{name}:"):
            if mark.get("cx"):
                return float(mark.get("cx") or 0), float(mark.get("cy") or 0)
            corners = [tuple(map(float, each.split(","))) for each in (mark.get("points") or "").split()]
            return sum(x for x, _ in corners) / len(corners), sum(y for _, y in corners) / len(corners)
    raise AssertionError(name)


def test_a_report_of_runs_with_landscapes_has_the_section(tmp_path: Path) -> None:
    for seed in (0, 1):
        write_run(tmp_path / f"run{seed}", Case(seed=seed))
        landscape("direct", seed).save(tmp_path / f"run{seed}" / "landscape.json")
    data = collect(tmp_path)
    assert data.frontier is not None
    assert data.frontier.seeds == (0, 1)
    assert 'id="frontier"' in render(data)


def test_runs_that_are_not_alike_are_said_not_to_be_compared(tmp_path: Path) -> None:
    for seed, question in ((0, "Well?"), (1, "And?")):
        write_run(tmp_path / f"run{seed}", Case(seed=seed))
        landscape("direct", seed, question=question).save(tmp_path / f"run{seed}" / "landscape.json")
    data = collect(tmp_path)
    assert data.frontier is None
    assert any("question" in fault for fault in data.frontier_faults)
    assert "not compared" in render(data)


def test_a_report_of_one_run_has_none(tmp_path: Path) -> None:
    write_run(tmp_path / "run", Case())
    landscape("direct").save(tmp_path / "run" / "landscape.json")
    assert collect(tmp_path).frontier is None


def test_ways_that_do_the_same_have_marks_of_two_sizes_in_one_place() -> None:
    ways = {name: Way(0.5, 0.1) for name in ("a", "b")}
    same = [(name, landscape("a", 0, ways["a"]).model_copy(update={"intervention": name})) for name in ways]
    wide = plots(page(frontier(same, resamples=QUICK)))[0]
    assert _place(wide, "a") == pytest.approx(_place(wide, "b"), abs=0.5)
    sizes = [max(_reach(wide, name, at) for at in (0, 1)) for name in ways]
    assert sizes[0] > 1.2 * sizes[1]


def _reach(drawing: ET.Element, name: str, axis: int) -> float:
    mark = next(each for each in drawing.iter() if (each.findtext("title") or "").startswith(f"{name}:"))
    if mark.get("r"):
        return 2 * float(mark.get("r") or 0)
    corners = [float(each.split(",")[axis]) for each in (mark.get("points") or "").split()]
    return max(corners) - min(corners)
