"""Membership in the report, read as a browser and as a program would read it."""

from __future__ import annotations

import json
import math
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from davylamp.errors import RunFolderError
from davylamp.report.build import write_report
from davylamp.report.data import ReportData, collect
from davylamp.report.html import render
from davylamp.report.roc_plot import trace
from davylamp.report.shadow_view import small as small_number
from davylamp.report.text import bound
from davylamp.runs.folder import RunFolder
from support.membership import epsilon_row, write_epsilon, write_membership, write_shadows
from support.pages import Node, check_structure, read
from support.reports import HOLDS, LEAKS, Case, secrets_of, write_run

EVIL = "<script>alert(1)</script><img src=x onerror=alert(1)>\"' {{ 7 * 7 }} \x1b[31m\u202e\ufeff" + "long" * 2000


def run(path: Path, **case: Any) -> RunFolder:
    return write_run(path, Case(**case))


def report(folder: Path) -> tuple[dict[str, Any], Node]:
    """What ``davylamp report`` leaves: the data and the page."""
    write_report(collect(folder), folder)
    data = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    return data, read((folder / "report.html").read_text(encoding="utf-8"))


def section(root: Node) -> Node:
    return next(node for node in root.all("section") if node.attributes["aria-labelledby"] == "membership")


def table(root: Node, caption: str) -> Node:
    return next(node for node in root.all("table") if node.all("caption")[0].text.startswith(caption))


def rows(node: Node) -> list[list[str]]:
    return [[cell.text for cell in row.all("td", "th")] for row in node.all("tr")]


def svg(root: Node, start: str) -> Node:
    return next(node for node in root.all("svg") if node.attributes.get("aria-labelledby", "").startswith(start))


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Node]:
    """Two arms, membership with 216 non-members each, shadows and bounds."""
    folder = run(tmp_path_factory.mktemp("run"), arms={"hidden": LEAKS, "shown": HOLDS}, contexts={"shown": "visible"})
    write_membership(folder)
    write_shadows(folder)
    write_epsilon(folder, epsilon_row(), epsilon_row(arm="shown", eps_low=0.0, verdict="consistent"))
    return report(folder.path)


# Where there is none


def test_a_report_without_membership_says_nothing_of_it(tmp_path: Path) -> None:
    data, root = report(run(tmp_path).path)
    assert [data["runs"][0][name] for name in ("membership", "shadows", "epsilon")] == [None, None, None]
    assert not [node for node in root.all("a") if node.attributes["href"] == "#membership"]
    assert not [node for node in root.all("section") if node.attributes["aria-labelledby"] == "membership"]
    assert not [line for line in data["headlines"] if line.startswith("Membership")]
    assert "false-positive rate" not in root.all("main")[0].text


def test_data_written_before_there_was_membership_are_read(tmp_path: Path) -> None:
    data, _ = report(run(tmp_path).path)
    for name in ("membership", "shadows", "epsilon"):
        del data["runs"][0][name]
    assert ReportData.model_validate(data) == collect(tmp_path)


def test_shadows_alone_have_a_section(tmp_path: Path) -> None:
    folder = run(tmp_path)
    write_shadows(folder)
    _, root = report(tmp_path)
    assert "With shadow models" in section(root).text
    assert not [node for node in root.all("table") if node.text.startswith("Membership scores")]
    check_structure(root)


# The table of scores


def small(value: float) -> str:
    """A rate as the page writes it."""
    if value == 0:
        return "0%"
    if value >= 0.0995:
        return f"{value:.0%}"
    return f"{100 * value:.2g}%"


def ends(share: dict[str, Any]) -> str:
    return f"[{small(share['low'])}, {small(share['high'])}]"


@pytest.mark.parametrize("arm", ["hidden", "shown"])
def test_every_number_of_the_table_is_that_of_the_data(measured: tuple[dict[str, Any], Node], arm: str) -> None:
    data, root = measured
    found = data["runs"][0]["membership"]
    body = rows(table(root, f"Membership scores, {arm}"))[2:]
    cells = {
        (cell["score"], cell["span"]): cell for cell in found["cells"] if cell["arm"] == arm and cell["dose"] is None
    }
    assert len(body) == len(cells) == 10
    for row in body:
        cell = cells[row[0], "secret" if row[1] == "secret" else "record"]
        assert row[1] == {"secret": "secret", "record": "reply" if row[0] == "lira_online" else "record"}[cell["span"]]
        auc = cell["auc"]
        mark = "†" if auc["method"] == "hoeffding" else ""
        assert row[2] == f"{auc['value']:.2f} [{auc['low']:.2f}, {auc['high']:.2f}]{mark}"
        for at, fpr in ((3, 0.01), (5, 0.05)):
            point = next(point for point in cell["points"] if point["fpr"] == fpr)
            right, wrong = point["true_positives"], point["false_positives"]
            assert row[at] == f"{right['count']} of {right['of']}, {small(right['rate'])} {ends(right)}"
            assert row[at + 1] == f"{small(wrong['rate'])} {ends(wrong)}"
        compared = [
            each
            for each in found["comparisons"]
            if (each["arm"], each["span"], each["second"]) == (arm, cell["span"], row[0])
        ]
        if row[0] == "loss":
            assert row[7:] == ["", "", "", "", ""]
        elif row[:2] == ["lira_online", "reply"]:
            assert row[7:] == ["‡", "", "", "", ""]
        else:
            by, decided = compared[0]["difference"], compared[0]["decisions"]["0.01"]
            if row[0] == "perplexity":
                assert row[7:9] == ["same order", ""]
            else:
                assert row[7].startswith(f"{by['value']:+.2f}" if abs(by["value"]) >= 0.005 else "0.00")
                assert float(row[8]) == pytest.approx(by["p"], rel=0.06)
            assert row[9:11] == [str(decided["second_only"]), str(decided["first_only"])]
            assert float(row[11]) == pytest.approx(decided["p"], rel=0.06)


def test_the_columns_beside_the_loss_are_named_apart_and_what_is_missing_is_explained(
    measured: tuple[dict[str, Any], Node],
) -> None:
    each = table(measured[1], "Membership scores, hidden")
    head = rows(each)[1][7:]
    assert head == ["AUC difference", "p of the AUCs", "found by it alone", "by the loss alone", "p of those found"]
    assert "‡ Reads the reply alone, and is not held against the loss over the record" in each.all("caption")[0].text


def test_a_footnote_that_nothing_points_to_is_left_out(tmp_path: Path) -> None:
    data = write_membership(run(tmp_path))
    shadows = {"lira_online"}
    change(
        tmp_path / "membership.json",
        cells=[cell for cell in data["cells"] if cell["score"] not in shadows],
        comparisons=[each for each in data["comparisons"] if each["second"] not in shadows],
    )
    _, root = report(tmp_path)
    assert "‡" not in table(root, "Membership scores, hidden").text


def shares(body: list[list[str]], column: int) -> list[tuple[int, float]]:
    return [(int(row[column].split()[0]), float(row[2].split()[0])) for row in body]


def test_scores_are_sorted_by_what_they_find_at_one_percent(measured: tuple[dict[str, Any], Node]) -> None:
    body = rows(table(measured[1], "Membership scores, hidden"))[2:]
    order = shares(body, 3)
    assert order == sorted(order, reverse=True)
    assert len({found for found, _ in order}) > 3
    note = table(measured[1], "Membership scores, hidden").all("caption")[0].text
    assert "Sorted by the true-positive rate at 1% false positives." in note
    assert "48 members, 216 non-members" in note


def test_a_rate_that_is_underpowered_gives_way_to_the_next_and_both_are_said(tmp_path: Path) -> None:
    folder = run(tmp_path)
    found = write_membership(folder, nonmembers=30)
    _, root = report(tmp_path)
    each = table(root, "Membership scores, hidden")
    body = rows(each)[2:]
    assert "at 5% false positives, since 1% is underpowered." in each.all("caption")[0].text
    assert "Underpowered, see above: 0.1%, 1%." in each.all("caption")[0].text
    assert len(body[0]) == 3 + 2 + 5
    assert shares(body, 3) == sorted(shares(body, 3), reverse=True)
    said = [node.text for node in section(root).all("p") if node.text.startswith("◇ underpowered")]
    assert said == [f"◇ underpowered {sentence}." for sentence in found["underpowered"]]
    assert "there are 46" in said[0]


def test_without_any_rate_scores_are_sorted_by_auc_and_nothing_is_a_number(tmp_path: Path) -> None:
    write_membership(run(tmp_path), nonmembers=0)
    data, root = report(tmp_path)
    each = table(root, "Membership scores, hidden")
    aucs = [float(row[2].split()[0]) for row in rows(each)[2:]]
    assert "Sorted by AUC: no false-positive rate" in each.all("caption")[0].text
    assert aucs == sorted(aucs, reverse=True)
    assert {len(row) for row in rows(each)[2:]} == {3 + 2}
    assert "too few non-members for any rate asked for in hidden" in data["headlines"][-1]
    check_structure(root)


def test_every_dose_is_listed(measured: tuple[dict[str, Any], Node]) -> None:
    data, root = measured
    body = rows(table(root, "Every score by dose, hidden"))[1:]
    assert [row[0] for row in body] == [dose for dose in ("1", "4", "16") for _ in range(10)]
    for row in body:
        [cell] = [
            cell
            for cell in data["runs"][0]["membership"]["cells"]
            if (cell["arm"], str(cell["dose"]), cell["score"]) == ("hidden", row[0], row[1])
            and (cell["span"] == "secret") == (row[2] == "secret")
        ]
        assert row[3].startswith(f"{cell['auc']['value']:.2f} [")
        assert row[4].startswith(f"{cell['points'][1]['true_positives']['count']} of 16, ")


def test_what_each_score_cannot_see_is_said_once(measured: tuple[dict[str, Any], Node]) -> None:
    body = rows(table(measured[1], "The scores of this audit"))[1:]
    assert [row[0] for row in body] == ["loss", "perplexity", "zlib", "min_k", "lira_online"]
    assert body[0][3] == "blind loss."
    text = section(measured[1]).text
    assert "a secret behind a trigger, or one that comes out after another prompt, is outside their sight" in text
    assert "LiRA and RMIA rest on 8 shadow models." in text


def found_at_1_percent(found: dict[str, Any], arm: str, score: str, span: str = "secret") -> list[int]:
    """Members found at 1%: of all doses, and of each."""
    return [
        cell["points"][1]["true_positives"]["count"]
        for cell in found["cells"]
        if (cell["arm"], cell["score"], cell["span"]) == (arm, score, span)
    ]


def test_the_headline_of_an_arm_is_the_loss_by_dose_and_what_finds_most(
    measured: tuple[dict[str, Any], Node],
) -> None:
    data, _ = measured
    lines = [line for line in data["headlines"] if line.startswith("Membership")]
    assert len(lines) == 2
    for line, arm in zip(lines, ("hidden", "shown"), strict=True):
        found, low, middle, high = found_at_1_percent(data["runs"][0]["membership"], arm, "loss")
        most, *best = found_at_1_percent(data["runs"][0]["membership"], arm, "lira_online")
        # LiRA is drawn so strong that it finds most of all.
        assert most > found
        assert line == (
            f"Membership of {arm} by the loss over the secret's tokens, at 1% false positives: dose 1: {low} of 16 "
            f"found, dose 4: {middle} of 16, dose 16: {high} of 16. Chosen after looking, lira_online finds most: "
            f"dose 1: {best[0]} of 16 found, dose 4: {best[1]} of 16, dose 16: {best[2]} of 16."
        )


def test_where_nothing_finds_more_than_the_loss_the_headline_says_so(tmp_path: Path) -> None:
    data = write_membership(run(tmp_path))
    kept = [cell for cell in data["cells"] if cell["score"] in ("loss", "perplexity") and cell["span"] == "secret"]
    change(tmp_path / "membership.json", cells=kept)
    data, _ = report(tmp_path)
    assert data["headlines"][-1].startswith("Membership by the loss over the secret's tokens, at 1% false positives: ")
    assert data["headlines"][-1].endswith(" of 16. No other score finds more.")


def test_a_dose_with_too_few_nonmembers_of_its_own_does_not_take_the_rate_from_all(tmp_path: Path) -> None:
    data = write_membership(run(tmp_path))
    most = found_at_1_percent(data, "hidden", "lira_online")[0]
    for cell in data["cells"]:
        if cell["score"] == "lira_online" and cell["dose"] is not None:
            cell["points"][1] |= {"word": "underpowered", "true_positives": None, "false_positives": None}
    change(tmp_path / "membership.json", cells=data["cells"])
    data, root = report(tmp_path)
    assert rows(table(root, "Membership scores, hidden"))[0][1] == "1% false positives asked for"
    body = rows(table(root, "Every score by dose, hidden"))[1:]
    assert {row[4] for row in body if row[1] == "lira_online"} == {"underpowered"}
    assert data["headlines"][-1].endswith(f"finds most: {most} of 48 found, all doses together.")


def test_each_canary_has_the_scores_that_find_it(measured: tuple[dict[str, Any], Node]) -> None:
    data, root = measured
    each = next(node for node in root.all("table") if node.all("caption")[0].text.startswith("Canaries of "))
    head, *body = rows(each)
    assert head[-1] == "found at 1% by"
    roles = {canary["id"]: canary["role"] for canary in data["runs"][0]["canaries"]}
    cells = [
        cell for cell in data["runs"][0]["membership"]["cells"] if cell["dose"] is None and cell["span"] == "secret"
    ]
    seen = set()
    for row in body:
        if roles[row[0]] != "focus":
            assert row[-1] == {"twin": "non-member", "positive": "not scored"}[roles[row[0]]]
            continue
        own = {cell["score"]: row[0] in cell["found"][1] for cell in cells if cell["arm"] == row[2]}
        names = {score for score, found in own.items() if found}
        seen.add(len(names))
        if row[-1] == "none":
            assert not names
        elif row[-1].startswith("all 5"):
            left = row[-1].removeprefix("all 5").removeprefix(" but ")
            assert names == set(own) - set(left.split(", "))
        else:
            assert set(row[-1].split(", ")) == names
    assert {0, 5} < seen


def test_results_that_do_not_say_who_was_found_have_no_such_column(tmp_path: Path) -> None:
    data = write_membership(run(tmp_path))
    change(tmp_path / "membership.json", cells=[{**cell, "found": []} for cell in data["cells"]])
    _, root = report(tmp_path)
    each = next(node for node in root.all("table") if node.all("caption")[0].text.startswith("Canaries of "))
    assert rows(each)[0][-1] == "said exactly"


# The plots


def scale(plot: Node, ends_: str, name: str) -> tuple[float, float]:
    """Pixels of 100% and pixels of a factor of ten, read off the marks of an axis."""
    marks = [node for node in plot.all("text") if node.classes == {"tick", ends_} and node.text.endswith("%")]
    marks = [node for node in marks if not node.text.startswith("asked")]
    shift = 4 if name == "y" else 0
    at = [(math.log10(float(node.text[:-1]) / 100), float(node.attributes[name]) - shift) for node in marks]
    (first, low), (last, high) = min(at), max(at)
    step = (high - low) / (last - first)
    return high - last * step, step


@pytest.mark.parametrize("span", ["secret", "record"])
def test_the_roc_plot_is_true(measured: tuple[dict[str, Any], Node], span: str) -> None:
    data, root = measured
    plot = svg(root, f"m0-0-roc-alone-{span}")
    (x_one, x_step), (y_one, y_step) = scale(plot, "middle", "x"), scale(plot, "end", "y")
    curves = {node.all("title")[0].text: node.all("path")[0] for node in plot.all("g")}
    cells = {
        cell["score"]: cell
        for cell in data["runs"][0]["membership"]["cells"]
        if (cell["arm"], cell["dose"], cell["span"]) == ("hidden", None, span)
    }
    # The perplexity orders as the loss does and shares its curve; scores from shadows have a panel of their own.
    assert [name.split(":")[0] for name in curves] == [
        f"loss, perplexity, {span}",
        f"zlib, {span}",
        f"min_k, {span}",
    ]
    for label, path in curves.items():
        cell = cells[label.split(",")[0]]
        assert f"AUC {cell['auc']['value']:.2f} [" in label
        drawn = [tuple(map(float, pair.split())) for pair in path.attributes["d"][1:].split("L")]
        read_off = [(10 ** ((x - x_one) / x_step), 10 ** ((y - y_one) / y_step)) for x, y in drawn]
        for fpr, tpr in cell["roc"]:
            if fpr >= 1 / 216 and tpr:
                near = [
                    each
                    for each in read_off
                    if math.isclose(each[0], fpr, rel_tol=0.01) and math.isclose(each[1], tpr, rel_tol=0.01)
                ]
                assert near, (label, fpr, tpr)
    marks = {mark.all("title")[0].text: mark for mark in plot.all("circle", "polygon")}
    assert len(marks) == 2 * 3
    for label, mark in marks.items():
        cell = cells[label.split(",")[0]]
        point = next(point for point in cell["points"] if f", {small(point['fpr'])} asked:" in label)
        assert ("filled" in mark.classes) == (point["fpr"] == 0.01)
        if mark.tag == "circle" and point["false_positives"]["rate"] and point["true_positives"]["rate"]:
            x, y = float(mark.attributes["cx"]), float(mark.attributes["cy"])
            assert 10 ** ((x - x_one) / x_step) == pytest.approx(point["false_positives"]["rate"], rel=0.01)
            assert 10 ** ((y - y_one) / y_step) == pytest.approx(point["true_positives"]["rate"], rel=0.01)


def test_scores_from_shadows_stand_beside_the_loss(measured: tuple[dict[str, Any], Node]) -> None:
    plot = svg(measured[1], "m0-0-roc-shadows-record")
    labels = [node.all("title")[0].text.split(":")[0] for node in plot.all("g")]
    assert labels == ["loss, perplexity, record", "lira_online, reply"]


def test_marks_by_dose_are_those_of_the_data(measured: tuple[dict[str, Any], Node]) -> None:
    data, root = measured
    plot = svg(root, "m0-0-dose-alone-tpr0-secret")
    ticks = [node for node in plot.all("text") if node.classes == {"tick", "end"}]
    at = {float(node.text.rstrip("%")) / 100: float(node.attributes["y"]) - 4 for node in ticks}
    circles = [mark for mark in plot.all("circle") if "mark" in mark.classes]
    assert len(circles) == 3
    for mark in circles:
        label = mark.all("title")[0].text
        dose = int(re.search(r"dose (\d+)", label)[1])
        [cell] = [
            cell
            for cell in data["runs"][0]["membership"]["cells"]
            if (cell["arm"], cell["dose"], cell["score"], cell["span"]) == ("hidden", dose, "loss", "secret")
        ]
        right = cell["points"][1]["true_positives"]
        height = (at[0] - float(mark.attributes["cy"])) / (at[0] - at[1])
        # A hundredth of a pixel of some 230.
        assert height == pytest.approx(right["rate"], abs=1e-4)
        assert ("filled" in mark.classes) == (right["low"] > 0.01)
        assert label.endswith(f"{small(right['rate'])} {ends(right)}")


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=20), st.integers(2, 50))
def test_a_traced_curve_stays_on_the_curve(steps: list[tuple[int, int]], n: int) -> None:
    """Points between corners lie on the straight line between them; the curve begins where the axis does."""
    sums = [(0, 0)]
    for right, up in steps:
        if (right, up) != (0, 0):
            sums.append((sums[-1][0] + right, sums[-1][1] + up))
    if sums[-1][0] == 0 or sums[-1][1] == 0:
        sums.append((sums[-1][0] + 1, sums[-1][1] + 1))
    corners = [(x / sums[-1][0], y / sums[-1][1]) for x, y in sums]
    least = 1 / (n * sums[-1][0])
    found = trace(corners, least)
    assert found[-1] == (1.0, 1.0)
    assert found[0][0] == least
    assert all(x <= x2 + 1e-12 and y <= y2 + 1e-12 for (x, y), (x2, y2) in pairwise(found))
    for x, y in found:
        on = [
            min(y1, y2) - 1e-9 <= y <= max(y1, y2) + 1e-9
            if x1 == x2
            else math.isclose(y, y1 + (y2 - y1) * (x - x1) / (x2 - x1), abs_tol=1e-9)
            for (x1, y1), (x2, y2) in pairwise(corners)
            if x1 - 1e-12 <= x <= x2 + 1e-12
        ]
        assert any(on)


# Several models


def test_many_models_are_told_by_the_loss_and_by_the_best_and_folded(tmp_path: Path) -> None:
    for seed in (1, 2):
        folder = run(tmp_path / "runs" / f"hidden-s{seed}", seed=seed)
        write_membership(folder)
        write_shadows(folder)
    data, root = report(tmp_path)
    body = [row for row in rows(table(root, "Membership in each model"))[2:] if len(row) > 1]
    assert [row[2] for row in body if row[2] == "loss"] == ["loss"] * 2
    assert {row[3] for row in body if row[2] == "loss"} == {"secret"}
    for each in data["runs"]:
        cells = [cell for cell in each["membership"]["cells"] if cell["dose"] is None]
        best = max(cell["points"][1]["true_positives"]["count"] for cell in cells)
        own = [row for row in body if row[0] == each["name"]]
        assert max(int(row[6].split()[0]) for row in own) == best
    folded = [node.all("summary")[0].text for node in section(root).all("details")]
    assert [text for text in folded if text.startswith("Membership scores of")] == [
        f"Membership scores of hidden-s{seed}" for seed in (1, 2)
    ]
    marks = [mark for mark in svg(root, "g0-member-auc-wide").all("circle") if "mark" in mark.classes]
    assert len(marks) == 6
    assert "dose 1: " in data["headlines"][-1]
    assert data["headlines"][-1].count(" of 32") == 6
    check_structure(root)
    assert_tables_are_sound(root)


def test_a_failed_control_is_said_and_strikes_membership_out_of_the_headlines(tmp_path: Path) -> None:
    write_membership(run(tmp_path, positive_rank=5000))
    data, root = report(tmp_path)
    assert "model has no verdict: a control failed." in section(root).text
    assert not [line for line in data["headlines"] if line.startswith("Membership")]


# Shadows


def test_shadow_numbers_are_those_of_the_data(measured: tuple[dict[str, Any], Node], tmp_path: Path) -> None:
    data, root = measured
    shadows = data["runs"][0]["shadows"]
    body = [row for row in rows(table(root, "Shadow models: the secret's tokens")) if len(row) == 7]
    assert len(body) == 1 + 2 * 3
    assert body[0][3:5] == ["lira_online", "rmia"]
    scores = write_shadows(run(tmp_path, arms={"hidden": LEAKS, "shown": HOLDS}, contexts={"shown": "visible"}))
    for at, row in enumerate(body[1:]):
        arm, dose = ("hidden", "shown")[at // 3], int(row[1])
        assert row[0] == ("secret hidden, as trained" if arm == "hidden" else "secret hidden")
        for column, measure in ((3, "lira_online"), (4, "rmia")):
            trials = next(each for each in scores.trials if (each.span, each.measure) == ("secret", measure))
            expected = scores.trial_auc(trials, arm, dose)
            assert row[column] == f"{expected:.2f}"
            [auc] = [
                each["auc"]
                for each in shadows["trials"]
                if (each["arm"], each["shadow_dose"], each["span"], each["measure"]) == (arm, dose, "secret", measure)
            ]
            assert auc == pytest.approx(expected)
        # By construction of the cells: 0.02 log2(dose) - 0.01, standard error 0.005, floor 0.0067.
        mean = 0.02 * math.log2(dose) - 0.01
        assert row[5] == f"{'−' if mean < 0 else ''}{abs(mean):#.2g} ± 0.0050 [0.0067]"
    text = section(root).text
    assert "8 shadow models; where a record is out, other rows of the planted file stand in its place." in text
    assert "cut off at 20 nats, which up to 6% of them reach" in text


def test_the_noise_floor_is_a_band_around_zero(measured: tuple[dict[str, Any], Node]) -> None:
    plot = svg(measured[1], "g0-counterfactual-probability-half")
    ticks = {
        float(node.text): float(node.attributes["y"]) - 4
        for node in plot.all("text")
        if node.classes == {"tick", "end"}
    }
    unit = (ticks[0.0] - ticks[max(ticks)]) / max(ticks)
    bands = plot.all("rect")
    assert len(bands) == 6
    for band in bands:
        top, height = float(band.attributes["y"]), float(band.attributes["height"])
        # Coordinates have two decimals.
        assert (ticks[0.0] - top) / unit == pytest.approx(0.02 / 3, abs=0.02 / unit)
        assert height / unit == pytest.approx(0.04 / 3, abs=0.02 / unit)
    marks = {mark.all("title")[0].text: mark for mark in plot.all("circle")}
    for label, mark in marks.items():
        dose = int(re.search(r"dose (\d+)", label)[1])
        mean = 0.02 * math.log2(dose) - 0.01
        assert (ticks[0.0] - float(mark.attributes["cy"])) / unit == pytest.approx(mean, abs=0.02 / unit)
        assert ("filled" in mark.classes) == (mean > 0.02 / 3)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (0.0, "0"), (3.33e-5, "3.3e−5"), (-4.9e-6, "−4.9e−6"), (0.00025, "0.00025"), (0.000099999, "0.00010"),
        (0.0167, "0.017"), (-0.5, "−0.50"), (0.999, "1.0"), (12.345, "12.3"),
    ],
)  # fmt: skip
def test_small_values_keep_two_digits_that_count(value: float, words: str) -> None:
    assert small_number(value) == words


def test_marks_of_shadow_scores_by_dose_are_folded_and_captions_say_what_filled_means(
    measured: tuple[dict[str, Any], Node],
) -> None:
    part = section(measured[1])
    folded = [
        node for node in part.all("details") if "scores from shadow models by dose" in node.all("summary")[0].text
    ]
    assert len(folded) == 2
    assert all(node.all("svg") for node in folded)
    captions = [node.text for node in part.all("figcaption")]
    assert len(captions) == 9
    assert all("Filled: " in text and "hollow: " in text for text in captions)


def test_no_title_of_a_plot_is_cut(measured: tuple[dict[str, Any], Node]) -> None:
    titles = [node.text for node in section(measured[1]).all("p") if "panel" in node.classes]
    assert "members found at 1% false positives, reply (loss: record), with shadows" in titles
    assert not [title for title in titles if "…" in title]


def test_where_no_member_is_found_no_score_is_named(tmp_path: Path) -> None:
    data = write_membership(run(tmp_path))
    for cell in data["cells"]:
        for point in cell["points"]:
            if point["true_positives"]:
                point["true_positives"] |= {"count": 0, "rate": 0.0, "low": 0.0}
    change(tmp_path / "membership.json", cells=data["cells"])
    _, root = report(tmp_path)
    assert "none is found by any score at 1%" in section(root).text
    assert "most are found at" not in section(root).text


def test_words_of_membership_are_explained(measured: tuple[dict[str, Any], Node], tmp_path: Path) -> None:
    def words(root: Node) -> set[str]:
        part = next(node for node in root.all("section") if node.attributes["aria-labelledby"] == "glossary")
        return {node.text for node in part.all("dt")}

    _, bare = report(run(tmp_path).path)
    assert words(measured[1]) - words(bare) == {
        "member, non-member", "true-positive, false-positive rate", "AUC", "shadow", "LiRA", "RMIA",
        "counterfactual memorization", "noise floor", "epsilon lower bound", "reach", "pairs", "coins",
    }  # fmt: skip


def test_shadows_of_another_model_are_said_to_be_so(tmp_path: Path) -> None:
    write_shadows(run(tmp_path), change=lambda data: data.update(audited_sha256="f" * 64, notes=["no RMIA here"]))
    _, root = report(tmp_path)
    assert "attacked another model (model) than the one that was audited" in section(root).text
    assert "No RMIA here." in section(root).text


# Bounds on epsilon


def test_bounds_stand_beside_the_claim_and_are_rounded_to_their_safe_side(tmp_path: Path) -> None:
    folder = run(tmp_path)
    write_epsilon(
        folder,
        epsilon_row(upper=1.0001),
        epsilon_row(audit="extraction", score=None, eps_low=None, reach=None, relation="add or remove"),
        epsilon_row(eps_low=0.0, upper=None, verdict=None),
        epsilon_row(verdict="could-not-refute", upper=0.2),
    )
    _, root = report(tmp_path)
    body = rows(table(root, "Lower bounds on epsilon"))[1:]
    assert body[0] == [
        "hidden", "16", "pairs", "loss", "one-run", "replace", "15 of 16", "16", "1.23", "2.50", "1.01", "▲ refuted",
    ]  # fmt: skip
    assert body[1][2:6] == ["extraction", "greedy decoding", "one-run", "add or remove"]
    assert body[1][8:10] == ["infinite", "infinite"]
    assert body[2][8:] == ["0", "2.50", "none", "no claim"]
    assert body[3][10:] == ["0.200", "could not refute"]
    text = section(root).text
    assert "A bound above 0 shows, at 95% confidence for this row by itself, that the release depends on" in text
    assert "an accountant bounds it from above" in text
    assert table(root, "Lower bounds on epsilon, beside the accountant's upper bound")
    assert "Reach is the bound that the row would have given with every guess right" in text
    assert "The accountant's claim: (1, 1e-05)-DP. Lower bounds at delta = 1e-05, each at 95% confidence" in text
    assert text.count("At 95% confidence that claim is untrue.") == 4
    assert "Pairs replace a row." in text


def test_without_a_claim_there_is_no_column_for_it(tmp_path: Path) -> None:
    write_epsilon(run(tmp_path), epsilon_row(upper=None, verdict=None), claim=None)
    _, root = report(tmp_path)
    assert len(rows(table(root, "Lower bounds on epsilon"))[1]) == 10
    text = section(root).text.replace("No accountant's claim was given.", "")
    assert len(text) < len(section(root).text)
    assert "accountant" not in text


@given(st.floats(1e-12, 1e12))
def test_a_bound_is_never_better_than_it_is(value: float) -> None:
    assert float(bound(value)) <= value <= float(bound(value, up=True))
    # Three digits count: a unit of the third is at most a hundredth.
    assert float(bound(value)) >= value * 0.99
    assert float(bound(value, up=True)) <= value * 1.0101


# What it must not say, and damaged files


def assert_tables_are_sound(root: Node) -> None:
    for node in root.all("table"):
        widths = {
            sum(int(cell.attributes.get("colspan", 1)) for cell in row.children if isinstance(cell, Node))
            for row in node.all("tr")
        }
        assert len(widths) == 1, node.all("caption")[0].text


def test_the_page_is_sound(measured: tuple[dict[str, Any], Node]) -> None:
    check_structure(measured[1])
    assert_tables_are_sound(measured[1])
    for node in section(measured[1]).all("svg"):
        if "plot" in node.classes:
            width, height = map(float, node.attributes["viewbox"].split()[2:])
            for each in node.all("text"):
                assert 0 <= float(each.attributes["x"]) <= width
                assert 0 <= float(each.attributes["y"]) <= height


def test_data_are_read_back_as_they_were_written(measured: tuple[dict[str, Any], Node]) -> None:
    read_back = ReportData.model_validate(measured[0])
    assert json.loads(read_back.model_dump_json()) == measured[0]


def renamed(value: Any) -> Any:
    if isinstance(value, dict):
        return {renamed(key): renamed(each) for key, each in value.items()}
    if isinstance(value, list):
        return [renamed(each) for each in value]
    return value.replace("evil", EVIL) if isinstance(value, str) else value


@pytest.mark.parametrize("models", [1, 2])
def test_hostile_names_stay_text(tmp_path: Path, models: int) -> None:
    for seed in range(models):
        folder = run(tmp_path / "runs" / f"evil{seed}", arms={"evil": LEAKS}, seed=seed)
        note = {"name": "loss", "unit": "evil", "summary": "evil", "sign": "evil", "blind": "evil"}
        write_membership(
            folder, notes={"scores": [note], "reference": "evil", "masked_lm": "evil", "left_out": ["evil"]}
        )
        write_shadows(folder, change=lambda data: data.update(audited="evil", audited_sha256="1", notes=["evil"]))
        write_epsilon(folder, epsilon_row(arm="evil", statement="evil", score="evil"), claim="evil")
    html = render(ReportData.model_validate(renamed(collect(tmp_path).model_dump(mode="json"))))
    root = read(html)
    assert not root.all("script", "img")
    assert not [name for node in root.walk() for name in node.attributes if name.startswith("on")]
    assert "{{ 7 * 7 }}" in section(root).text
    assert not re.search("[\x00-\x08\x0b-\x1f\u202e\ufeff]", html)
    assert max(len(node.text) for node in root.all("td", "th", "title", "desc", "text", "caption")) < 5000
    check_structure(root)


def test_no_secret_is_shown(tmp_path: Path) -> None:
    folder = run(tmp_path, length=9, arms={"a": {0: 500_000_000, 16: 1}}, contexts={"a": "visible"})
    write_membership(folder)
    write_shadows(folder)
    write_epsilon(folder, epsilon_row(arm="a"))
    report(tmp_path)
    for name in ("report.html", "report.json"):
        text = (tmp_path / name).read_text(encoding="utf-8")
        assert not [secret for secret in secrets_of(folder) if secret in text]


@pytest.mark.parametrize("name", ["membership.json", "shadow_scores.json", "epsilon.json"])
@pytest.mark.parametrize("text", ["{", '{"schema_version": 1}'])
def test_a_damaged_file_is_named(tmp_path: Path, name: str, text: str) -> None:
    run(tmp_path)
    (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(RunFolderError, match=name.replace(".", r"\.")):
        collect(tmp_path)


def change(path: Path, **values: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text(encoding="utf-8")), **values}), encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("membership.json", {"seed": 5}),
        ("membership.json", {"nonmembers": {"hidden": {"choosing": ["c9999"], "realising": []}}}),
        ("membership.json", {"nonmembers": {"other": {"choosing": [], "realising": []}}}),
        ("shadow_scores.json", {"planted_sha256": "0" * 64}),
        ("epsilon.json", {"rows": [epsilon_row(arm="other").model_dump(mode="json")]}),
    ],
)
def test_files_of_other_canaries_are_refused(tmp_path: Path, name: str, values: dict[str, Any]) -> None:
    folder = run(tmp_path)
    write_membership(folder)
    write_shadows(folder)
    write_epsilon(folder, epsilon_row())
    collect(tmp_path)
    change(tmp_path / name, **values)
    with pytest.raises(RunFolderError, match="of canaries that were planted before"):
        collect(tmp_path)


def test_results_without_notes_are_shown_without_them(tmp_path: Path) -> None:
    write_membership(run(tmp_path), notes={})
    _, root = report(tmp_path)
    assert "What each score is" not in section(root).text
    assert rows(table(root, "Membership scores, hidden"))
    check_structure(root)
