"""The frontier's plots hold true values: every mark and interval is read back off the drawing, by its own axes."""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ET
from collections.abc import Mapping
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from davylamp.report import svg
from davylamp.report.frontier_looks import KNOWN, LOOKS, looks
from davylamp.report.frontier_plot import axis_of, scatter
from davylamp.report.html import render_comparison
from davylamp.verdict.frontier import frontier
from davylamp.verdict.frontier_model import Estimate, Frontier, Row
from support.landscapes import WAYS, study

PERPLEXITIES = ("verbatim_perplexity", "semantic_perplexity", "held_out_perplexity", "medication_perplexity")
AXES = (
    ("capability", "privacy"),
    ("held_out_perplexity", "exposure"),
    ("medication_perplexity", "semantic_perplexity"),
)
NEAR = 0.05
"""Pixels: the drawing has two decimals."""


@cache
def six() -> Frontier:
    return frontier(study(list(WAYS)[:6], (0,)), resamples=100)


def drawn(found: Frontier, x: str, y: str, kind: str = svg.WIDE) -> ET.Element:
    return ET.fromstring(str(scatter(found, "t", x, y, kind, "")))  # noqa: S314 - made here


def ticks(drawing: ET.Element, side: str) -> list[tuple[float, float]]:
    """Pixels and values of the marks of an axis, as they are written."""
    found = []
    for text in drawing.iter("text"):
        if (text.get("class") or "") == f"tick {side}":
            at = float(text.get("x") or 0) if side == "middle" else float(text.get("y") or 0) - 4
            found.append((at, float((text.text or "").replace(",", ""))))
    return found


def pixel(drawing: ET.Element, side: str, log: bool, value: float) -> float:
    """Where a value stands by the axis' own marks, straight between them or in their logarithms."""
    marks = ticks(drawing, side)
    places, values = (np.asarray(each) for each in zip(*marks, strict=True))
    slope, start = np.polyfit(np.log(values) if log else values, places, 1)
    return float(start + slope * (math.log(value) if log else value))


def centres(drawing: ET.Element) -> dict[str, tuple[float, float, str]]:
    """The middle and the colour of each intervention's mark."""
    found = {}
    for mark in drawing.iter():
        classes = (mark.get("class") or "").split()
        if "mark" not in classes:
            continue
        name, hue = (mark.findtext("title") or "").split(":")[0], classes[-1]
        if mark.get("cx"):
            found[name] = float(mark.get("cx") or 0), float(mark.get("cy") or 0), hue
        else:
            corners = [[float(each) for each in pair.split(",")] for pair in (mark.get("points") or "").split()]
            x, y = (sum(each) / len(corners) for each in zip(*corners, strict=True))
            found[name] = x, y, hue
    return found


def changed(row: Row, values: Mapping[str, float]) -> Row:
    """A row with other values, each with an interval around it."""

    def made(key: str, old: Estimate) -> Estimate:
        if key not in values:
            return old
        wide = (0.9, 1.1) if key in PERPLEXITIES else (0.97, 1.02)
        least, most = (1.0, math.inf) if key in PERPLEXITIES else (0.0, 12.6)
        ends = [min(max(values[key] * each, least), most) for each in wide]
        return old.model_copy(update={"value": values[key], "low": ends[0], "high": ends[1]})

    return row.model_copy(
        update={
            "values": {key: made(key, old) for key, old in row.values.items()},
            "ranks": {key: made(key, old) for key, old in row.ranks.items()},
        }
    )


@st.composite
def crowded(draw: st.DrawFn) -> list[dict[str, float]]:
    """Values of six interventions, many of them close together or the same."""
    rows = []
    for _ in range(6):
        row = {
            "privacy": draw(st.sampled_from([1.0, 2.5, 3.0, 6.0])),
            "capability": draw(st.sampled_from([1.0, 3.5, 4.0, 6.0])),
            "exposure": draw(st.floats(0.0, 12.6)),
        }
        for key in PERPLEXITIES:
            row[key] = draw(st.one_of(st.sampled_from([1.2, 5.1, 5.48, 6000.0]), st.floats(1.0, 20_000.0)))
        rows.append(row)
    return rows


@settings(max_examples=60, deadline=None)
@given(values=crowded(), axes=st.sampled_from(AXES), kind=st.sampled_from([svg.WIDE, svg.NARROW, svg.HALF]))
def test_every_mark_and_interval_stands_at_its_value(
    values: list[dict[str, float]], axes: tuple[str, str], kind: str
) -> None:
    rows = tuple(changed(row, new) for row, new in zip(six().rows, values, strict=True))
    found = six().model_copy(update={"rows": rows})
    drawing = drawn(found, *axes, kind)
    marks = centres(drawing)
    lines = [
        [float(line.get(each) or 0) for each in ("x1", "y1", "x2", "y2")] + [(line.get("class") or "").split()[-1]]
        for line in drawing.iter("line")
        if "whisker" in (line.get("class") or "")
    ]
    for row, new in zip(rows, values, strict=True):
        x, y, hue = marks[row.intervention]
        for place, key, side in ((x, axes[0], "middle"), (y, axes[1], "end")):
            if len(ticks(drawing, side)) > 1:
                # Written marks have three digits, a thousandth of an axis of some 800 pixels at most.
                assert place == pytest.approx(pixel(drawing, side, key in PERPLEXITIES, new[key]), abs=NEAR + 0.8)
        across = [each for each in lines if each[4] == hue and each[1] == each[3] and abs(float(each[1]) - y) < NEAR]
        upright = [each for each in lines if each[4] == hue and each[0] == each[2] and abs(float(each[0]) - x) < NEAR]
        assert any(min(each[0], each[2]) - NEAR <= x <= max(each[0], each[2]) + NEAR for each in across)
        assert any(min(each[1], each[3]) - NEAR <= y <= max(each[1], each[3]) + NEAR for each in upright)
        axis, end = axis_of(found, axes[0]), (row.ranks.get(axes[0]) or row.values[axes[0]]).low
        if len(ticks(drawing, "middle")) > 1 and end is not None and axis.least <= end <= axis.most:
            place = pixel(drawing, "middle", axes[0] in PERPLEXITIES, end)
            assert any(min(abs(place - each[0]), abs(place - each[2])) < NEAR + 0.8 for each in across)


def test_what_is_worse_is_never_drawn_as_better() -> None:
    # As Goldfish's 5.48 beside 5.10 without any intervention, at nearly the same height.
    new = [{"held_out_perplexity": value, "verbatim_perplexity": 46.0} for value in (7352, 5.10, 5.48, 148, 11.7, 5.91)]
    rows = tuple(changed(row, each) for row, each in zip(six().rows, new, strict=True))
    found = six().model_copy(update={"rows": rows})
    for kind in (svg.WIDE, svg.NARROW, svg.HALF):
        marks = centres(drawn(found, "held_out_perplexity", "verbatim_perplexity", kind))
        order = sorted(rows, key=lambda row: marks[row.intervention][0])
        assert [row.values["held_out_perplexity"].value for row in order] == [7352, 148, 11.7, 5.91, 5.48, 5.10]


def test_an_axis_of_large_perplexities_is_marked_in_one_notation() -> None:
    rows = tuple(
        changed(row, {"verbatim_perplexity": value})
        for row, value in zip(six().rows, (30, 300, 3e4, 3e6, 3e7, 3e8), strict=True)
    )
    drawing = drawn(six().model_copy(update={"rows": rows}), "capability", "verbatim_perplexity")
    marks = [text.text or "" for text in drawing.iter("text") if text.get("class") == "tick end"]
    assert len(marks) > 2
    assert all(re.fullmatch(r"\de\d+", mark) for mark in marks if float(mark) >= 10)


def test_well_known_interventions_look_the_same_on_every_page() -> None:
    pages = [["none", "direct", "goldfish"], ["direct", "mine", "surrogate", "scrub"], [*KNOWN]]
    for names in pages:
        own = dict(zip(names, looks(names), strict=True))
        for name in names:
            if name in KNOWN:
                assert own[name] == KNOWN.index(name)
    html = [
        render_comparison(frontier(study(names, (0,)), resamples=100), "t", "f.json")
        for names in (["direct", "scrub"], ["none", "direct", "goldfish", "scrub"])
    ]
    seen = [re.findall(r'aria-label="mark of \d\. scrub".*?class="(swatch s\d)".*?</svg>', each, re.S) for each in html]
    assert seen[0]
    assert {*seen[0]} == {*seen[1]}


@given(st.lists(st.sampled_from([*KNOWN, *(f"own{at}" for at in range(70))]), unique=True, max_size=LOOKS))
def test_looks_differ_on_a_page_and_colours_as_long_as_there_are_some(names: list[str]) -> None:
    own = looks(names)
    assert len({(svg.hue(each), svg.shape(each)) for each in own}) == len(names)
    known = {svg.hue(each) for name, each in zip(names, own, strict=True) if name in KNOWN}
    others = [svg.hue(each) for name, each in zip(names, own, strict=True) if name not in KNOWN]
    assert len({*others} - known) == min(len(others), svg.COLOURS - len(known))
