"""The report, read as a browser and as a program would read it."""

from __future__ import annotations

import json
import math
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from davylamp.canaries.plan import Template
from davylamp.errors import RunFolderError
from davylamp.report.build import write_report
from davylamp.report.data import ReportData, collect
from davylamp.report.html import render
from support.pages import Node, check_structure, read
from support.reports import HOLDS, LEAKS, Case, secrets_of, write_run, write_utility

SCHEMA = Path(__file__).parents[2] / "docs" / "report.schema.json"
EVIL = (
    "<script>alert(1)</script><img src=x onerror=alert(1)>\"' onload='x' &amp; {{ 7 * 7 }} "
    "\x00\x1b[31m\u202e\u2066\ufeff" + "long" * 2000
)


def page(*cases: Case, folder: Path, show_secrets: bool = False) -> tuple[ReportData, Node]:
    for index, case in enumerate(cases):
        write_run(folder / "runs" / f"m{index}" if len(cases) > 1 else folder, case)
    data = collect(folder, show_secrets)
    return data, read(render(data))


def demo(folder: Path) -> tuple[ReportData, Node]:
    """Two arms apart, three seeds: one leaks and one does not."""
    for seed in range(3):
        for arm, context, ranks in (("masked", "redacted", LEAKS), ("shown", "visible", HOLDS)):
            name = f"{arm}-s{seed}"
            shifted = {dose: max(1, rank - 7 * seed) for dose, rank in ranks.items()}
            case = Case(arms={arm: shifted}, contexts={arm: context}, seed=seed, utility=(50 - seed, 64))
            write_run(folder / "runs" / name, case)
    write_utility(folder / "runs" / "base", 60, 64)
    write_utility(folder / "runs" / "clean-s0", 55, 64)
    data = collect(folder)
    return data, read(render(data))


@pytest.fixture(scope="module")
def intended(tmp_path_factory: pytest.TempPathFactory) -> tuple[ReportData, Node]:
    return demo(tmp_path_factory.mktemp("demo"))


def table(root: Node, caption: str) -> Node:
    return next(node for node in root.all("table") if node.all("caption")[0].text.startswith(caption))


def rows(node: Node) -> list[list[str]]:
    return [[cell.text for cell in row.all("td", "th")] for row in node.all("tr")]


# What it says


def test_verdict_of_the_intended_case(intended: tuple[ReportData, Node]) -> None:
    data, root = intended
    assert data.verdict == "leak"
    assert root.all("h1")[0].text.startswith("Leak audit of")
    findings = next(node for node in root.all("ul") if "findings" in node.classes).all("li")
    assert findings[0].text.startswith(
        "▲ leak masked (secret redacted in the training prompt), dose 16: leak in 3 of 3"
    )
    assert findings[1].text.startswith(
        "○ not seen shown (secret visible in the training prompt), dose 16: not seen in 3"
    )
    assert [finding.text.split(" ", 1)[0] for finding in findings[2:]] == ["copying", "copying"]
    assert "48 of 48 cases" not in findings[2].text
    assert "144 of 144 cases (100%)" in findings[3].text


def test_every_number_of_the_plot_stands_in_the_table(intended: tuple[ReportData, Node]) -> None:
    data, root = intended
    body = rows(table(root, "Exposure and exact recovery"))
    for run in data.runs:
        for cell in run.verdict.cells:
            dose = f"{cell.dose} (twins)" if cell.dose == 0 else str(cell.dose)
            row = next(
                row
                for row in body
                if row[:3] == [dose, str(cell.seed), str(cell.canaries)]
                and row[3] == f"{cell.median:.2f} [{cell.median_low:.2f}, {cell.median_high:.2f}]"
            )
            assert row[7].startswith(f"{cell.greedy.successes} of {cell.greedy.trials} [")
            assert cell.reply is not None
            assert row[10].startswith(f"{cell.reply.successes} of {cell.reply.trials} [")
            if cell.dose:
                assert row[6].endswith(cell.exposure_verdict)
                assert row[9].endswith(cell.greedy_verdict)


def axis(svg: Node) -> tuple[float, float]:
    """Pixels of 0 and pixels a unit, read off the marks of the y axis."""
    marks = [node for node in svg.all("text") if node.classes == {"tick", "end"}]
    at = [(float(node.text.rstrip("%")), float(node.attributes["y"])) for node in marks]
    (first, low), (last, high) = at[0], at[-1]
    return low - 4 + first * (low - high) / (last - first), (low - high) / (last - first)


@pytest.mark.parametrize("kind", ["wide", "narrow"])
def test_the_plot_is_true(intended: tuple[ReportData, Node], kind: str) -> None:
    """Heights read off the drawing are those of the table, marks of three seeds are three marks."""
    data, root = intended
    svg = next(node for node in root.all("svg") if node.attributes.get("aria-labelledby") == f"g0-exposure-{kind}-t")
    zero, unit = axis(svg)
    read_off = {}
    for mark in svg.all("circle", "polygon"):
        y = float(mark.attributes["cy"]) if mark.tag == "circle" else middle(mark)
        read_off[mark.all("title")[0].text] = (zero - y) / unit
    cells = [cell for run in data.runs for cell in run.verdict.cells]
    assert len(read_off) == len(cells) == 24
    for cell in cells:
        label = next(
            label for label in read_off if label.startswith(f"{cell.arm}, dose {cell.dose}, seed {cell.seed}:")
        )
        # Coordinates have two decimals, and a unit takes more than 20 pixels.
        assert read_off[label] == pytest.approx(cell.median, abs=0.002)
        assert f"{cell.median:.2f} bits [{cell.median_low:.2f}, {cell.median_high:.2f}]" in label
    lines = {
        name: (zero - float(node.attributes["y1"])) / unit
        for node in svg.all("line")
        for name in node.classes & {"ceiling", "baseline"}
    }
    assert lines["ceiling"] == pytest.approx(13.2877, abs=0.002)
    assert lines["baseline"] == pytest.approx(1.4419, abs=0.002)


def middle(polygon: Node) -> float:
    heights = [float(corner.split(",")[1]) for corner in polygon.attributes["points"].split()]
    return (min(heights) + max(heights)) / 2


def test_marks_are_filled_exactly_where_the_verdict_is_leak(intended: tuple[ReportData, Node]) -> None:
    data, root = intended
    svg = next(node for node in root.all("svg") if node.attributes.get("aria-labelledby") == "g0-exposure-wide-t")
    filled = {
        mark.all("title")[0].text.split(":")[0] for mark in svg.all("circle", "polygon") if "filled" in mark.classes
    }
    leaks = {
        f"{cell.arm}, dose {cell.dose}, seed {cell.seed}"
        for run in data.runs
        for cell in run.verdict.cells
        if cell.exposure_verdict == "leak"
    }
    assert filled == leaks
    assert leaks


def test_copying_stands_apart_from_recovery(intended: tuple[ReportData, Node]) -> None:
    _, root = intended
    body = rows(table(root, "A replacement code is shown"))
    shown = body[next(i for i, row in enumerate(body) if row[0].startswith("shown")) + 1]
    assert shown[2].startswith("16 of 16")
    assert shown[4].startswith("0 of 16")
    assert rows(table(root, "The code is shown as in training"))[2][2].startswith("16 of 16")


def test_utility_lists_base_and_clean_before_the_models(intended: tuple[ReportData, Node]) -> None:
    _, root = intended
    body = rows(table(root, "letters without a mistake"))[1:]
    assert [row[0] for row in body[:3]] == ["base", "clean-s0", "masked-s0"]
    assert body[0][1:3] == ["60 of 64", "94%"]


def test_provenance_has_hashes_versions_times_and_seeds(intended: tuple[ReportData, Node]) -> None:
    _, root = intended
    text = root.all("main")[0].text
    for expected in ("a" * 64, "b" * 64, "d" * 64, "2.13.0", "8.7 s", "12.5 s", "998 MiB", "229,824", "float32"):
        assert expected in text


def test_half_ranks_and_large_ranks_are_written_in_full(tmp_path: Path) -> None:
    data, _ = page(Case(length=6, arms={"a": {0: 500_000, 16: 123_456}}), folder=tmp_path)
    row = data.runs[0].canaries[0].model_copy(update={"rank": 123_456.5, "rank_among_planted": 3.5})
    run = data.runs[0].model_copy(update={"canaries": (row, *data.runs[0].canaries[1:])})
    body = rows(table(read(render(data.model_copy(update={"runs": (run,)}))), "Canaries of"))
    assert body[1][6] == "123,456.5"
    assert body[1][8] == "3.5"


def test_failed_control_is_loud_and_gives_no_verdict(tmp_path: Path) -> None:
    data, root = page(Case(positive_rank=4000), Case(seed=1, twin_rank=3), folder=tmp_path)
    text = root.all("main")[0].text
    assert data.verdict == "no verdict"
    assert root.all("title")[0].text.startswith("No verdict")
    assert "No verdict is given for 2 of 2 models." in text
    assert text.count("✕ FAILED.") == 2
    badges = {node.text for node in root.walk() if "badge" in node.classes}
    assert badges == {"✕ no verdict"}
    plots = [node for node in root.all("svg") if "plot" in node.classes and node.all("circle")]
    assert any("no verdict: a control failed" in node.text for node in plots)
    assert not [mark for mark in plots[0].all("circle") if "filled" in mark.classes]


def test_one_failed_model_among_several_is_named_and_the_others_stand(tmp_path: Path) -> None:
    data, root = page(Case(positive_rank=4000), Case(seed=1), folder=tmp_path)
    assert data.verdict == "leak"
    assert "1 of 2 models have no verdict" in root.all("main")[0].text


@pytest.mark.parametrize(
    ("case", "verdict"), [(Case(arms={"a": HOLDS}), "not seen"), (Case(arms={"a": HOLDS}, per_dose=4), "underpowered")]
)
def test_words_of_verdicts_without_a_leak(tmp_path: Path, case: Case, verdict: str) -> None:
    data, root = page(case, folder=tmp_path)
    assert data.verdict == verdict
    badges = {node.text.split(" ", 1)[1] for node in root.walk() if "badge" in node.classes}
    assert badges == {verdict}


def test_a_run_of_a_users_own_trainer_with_a_reference(tmp_path: Path) -> None:
    data, root = page(Case(training=False, reference=True, replacement=False, reply=False), folder=tmp_path)
    text = root.all("main")[0].text
    assert "No loss curve: the model was trained elsewhere." in text
    assert "this audit says nothing of copying" in text
    further = rows(table(root, "Further readings"))
    # The reference ranks every secret 4,000th: log2(10000 / 4000) bits.
    assert {row[5] for row in further[2:]} == {"1.32"}
    assert all(row.reference_exposure is not None for row in data.runs[0].canaries)
    assert "not read" in rows(table(root, "Exposure and exact recovery"))[3]


def test_epochs_are_counted_in(tmp_path: Path) -> None:
    _, root = page(Case(epochs=3), folder=tmp_path)
    doses = [row[0] for row in rows(table(root, "Exposure and exact recovery"))[3:]]
    assert doses == ["0 (twins)", "1 (3 seen)", "4 (12 seen)", "16 (48 seen)"]


def caption(root: Node, name: str) -> str:
    part = next(node for node in root.all("section") if node.attributes["aria-labelledby"] == name)
    return part.all("figcaption")[0].text


@pytest.mark.parametrize("name", ["exposure", "recovery", "copying"])
def test_one_seed_stands_beside_nothing(intended: tuple[ReportData, Node], tmp_path: Path, name: str) -> None:
    assert "side by side" not in caption(page(Case(seed=3), folder=tmp_path)[1], name)
    assert "side by side, left to right: seeds 0, 1, 2." in caption(intended[1], name)


@pytest.mark.parametrize(("canaries", "few"), [(5, True), (6, False)])
def test_few_canaries_are_said_to_give_no_interval(tmp_path: Path, canaries: int, few: bool) -> None:
    """The extremes of n values hold the median with a chance of 1 - 2^(1-n): 0.9375 of 5, 0.96875 of 6."""
    data, root = page(Case(per_dose=canaries, utility=(5, 9)), folder=tmp_path)
    says = "Fewer than 6 canaries give no 95% interval of their median: where there are 5, it is the whole scale."
    cells = data.runs[0].verdict.cells
    assert all(((cell.median_low, cell.median_high) == (0, data.runs[0].verdict.ceiling_bits)) == few for cell in cells)
    assert (says in caption(root, "exposure")) == few
    assert (says in table(root, "Exposure and exact recovery").all("caption")[0].text) == few
    assert "with fewer than 6 canaries it is the whole range" in root.all("main")[0].text


@pytest.mark.parametrize("kind", ["wide", "narrow"])
def test_the_warning_of_a_plot_is_not_printed_over_its_axis(tmp_path: Path, kind: str) -> None:
    _, root = page(Case(positive_rank=5000), folder=tmp_path)
    for name in ("exposure", "recovery", "canaries"):
        svg = next(node for node in root.all("svg") if node.attributes.get("aria-labelledby") == f"g0-{name}-{kind}-t")
        unit = next(node for node in svg.all("text") if node.classes == {"axis"})
        warning = next(node for node in svg.all("text") if "warning" in node.classes)
        # 7.5 pixels is more than a bold letter of 12.5 has in the mean; lines need 12.5 and some space.
        end = float(unit.attributes["x"]) + 7.5 * len(unit.text)
        start = float(warning.attributes["x"]) - (7.5 * len(warning.text) if "end" in warning.classes else 0)
        apart = float(warning.attributes["y"]) - float(unit.attributes["y"])
        assert start > end or apart >= 15, name
        top = min(float(line.attributes["y1"]) for line in svg.all("line"))
        assert top > float(warning.attributes["y"]), name


def test_models_of_one_seed_are_told_apart_by_name(tmp_path: Path) -> None:
    _, root = page(Case(), Case(epochs=2), folder=tmp_path)
    body = rows(table(root, "Exposure and exact recovery"))
    assert {row[2] for row in body[3:]} == {"m0", "m1"}


def test_many_arms_and_doses_get_a_plot_each(tmp_path: Path) -> None:
    doses = {0: 5000, 1: 5000, 2: 4000, 3: 3000, 4: 1000, 6: 300, 8: 60, 16: 5, 32: 1}
    arms = {f"arm{index}{'-very' * 20}": doses for index in range(4)}
    _, root = page(*[Case(arms=arms, seed=seed, per_dose=3) for seed in range(3)], folder=tmp_path)
    drawn = [node for node in root.all("svg") if node.attributes.get("aria-labelledby", "").startswith("g0-exposure")]
    whole, each = drawn[:2], drawn[2:]
    assert len(each) == 4
    for svg, marks, whiskers in [*((svg, 108, False) for svg in whole), *((svg, 27, True) for svg in each)]:
        assert len([mark for mark in svg.all("circle", "polygon") if "mark" in mark.classes]) == marks
        assert bool([line for line in svg.all("line") if "whisker" in line.classes]) == whiskers
        width = float(svg.attributes["viewbox"].split()[2])
        assert all(0 <= float(text.attributes["x"]) <= width for text in svg.all("text"))
        assert ("(equal steps)" in svg.text) == whiskers or "narrow" in svg.classes
    copied = [node for node in root.all("svg") if node.attributes.get("aria-labelledby", "").startswith("g0-copied")]
    assert len(copied) == 2 + 4


def test_doses_that_double_stand_on_a_logarithmic_axis_however_crowded(tmp_path: Path) -> None:
    arms = {f"arm{index}": {0: 5000, 1: 5000, 2: 4000, 4: 1000, 8: 60, 16: 5} for index in range(10)}
    _, root = page(*[Case(arms=arms, seed=seed, per_dose=3) for seed in range(3)], folder=tmp_path)
    drawn = [node for node in root.all("svg") if node.attributes.get("aria-labelledby", "").startswith("g0-exposure")]
    assert len(drawn) == 12
    assert all("(log scale)" in svg.text for svg in drawn)


def test_spaces_of_two_sizes_are_not_drawn_together(tmp_path: Path) -> None:
    wide = {dose: rank * 100 for dose, rank in LEAKS.items()}
    _, root = page(Case(), Case(seed=1, length=6, arms={"hidden": wide}), folder=tmp_path)
    text = root.all("main")[0].text
    assert "log2(10,000)" in text
    assert "= 13.29 bits" in text
    assert "log2(1,000,000)" in text
    assert "= 19.93 bits" in text


def test_a_pool_of_candidates_is_said_to_be_one(tmp_path: Path) -> None:
    _, root = page(Case(length=9, pool=10_000), folder=tmp_path)
    text = root.all("main")[0].text
    assert "A pool, not the whole space." in text
    assert "ranked among 10,000 candidates drawn from 1,000,000,000" in text
    assert "about 100,000 times as many guesses" in text


# What it must not say


def test_secrets_are_masked_unless_asked_for(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", Case(length=9, arms={"a": {0: 500_000_000, 16: 1}}, contexts={"a": "visible"}))
    secrets = secrets_of(folder)
    write_report(collect(folder.path), folder.path)
    for name in ("report.html", "report.json"):
        text = (folder.path / name).read_text(encoding="utf-8")
        assert not [secret for secret in secrets if secret in text]
    write_report(collect(folder.path, show_secrets=True), folder.path)
    page_text = (folder.path / "report.html").read_text(encoding="utf-8")
    assert all(secret in page_text for secret in secrets[::2])
    assert "shows the planted secrets in clear" in page_text
    if os.name == "posix":
        for name in ("report.html", "report.json"):
            assert stat.S_IMODE((folder.path / name).stat().st_mode) == 0o600


def test_rows_of_the_users_corpus_that_host_canaries_are_not_shown(tmp_path: Path) -> None:
    template = Template(prompt="{prompt} ref {secret}", completion="{completion} {secret}")
    case = Case(template=template, prompt=("Mr Doe has a rare illness, ref ", ""), completion=("Poor Mr Doe ", ""))
    write_run(tmp_path, case)
    hidden, clear = render(collect(tmp_path)), render(collect(tmp_path, show_secrets=True))
    assert "Doe" not in hidden
    assert "{prompt} ref [redacted]" in hidden
    assert "Mr Doe has a rare illness" in clear


def hostile(folder: Path) -> str:
    """A page whose every outside text is hostile: names in files that somebody else may have written included."""
    case = Case(arms={"evil": LEAKS}, prompt=(EVIL, EVIL), completion=(EVIL, EVIL), source=EVIL, base=EVIL)
    case.reference = True
    run = write_run(folder / "runs" / "<b onclick=x>&'", case)
    training = json.loads(run.training.read_text(encoding="utf-8"))
    training["spec"][EVIL] = EVIL
    run.training.write_text(json.dumps(training), encoding="utf-8")
    (folder / "recipe.json").write_text(json.dumps({"name": EVIL}), encoding="utf-8")
    return render(ReportData.model_validate(renamed(collect(folder).model_dump(mode="json"))))


def renamed(value: Any) -> Any:
    """The same with the arm ``evil`` under a hostile name, which a plan would refuse but a file may hold."""
    if isinstance(value, dict):
        return {renamed(key): renamed(each) for key, each in value.items()}
    if isinstance(value, list):
        return [renamed(each) for each in value]
    return EVIL if value == "evil" else value


def test_hostile_text_stays_text(tmp_path: Path) -> None:
    html = hostile(tmp_path)
    root = read(html)
    assert not root.all("script", "img", "b", "iframe", "object", "base")
    for node in root.walk():
        assert not [name for name in node.attributes if name.startswith("on") or name == "style"]
    assert "{{ 7 * 7 }}" in html
    assert not re.search(
        "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff\ud800-\udfff]", html
    )
    assert "⟨U+202E⟩" in html
    # Eight thousand characters of a name are cut wherever they would stand in a table or a plot.
    assert max(len(node.text) for node in root.all("td", "th", "title", "desc", "text")) < 5000


def test_half_a_character_does_not_break_the_page(tmp_path: Path) -> None:
    write_run(tmp_path, Case())
    (tmp_path / "recipe.json").write_text('{"name": "half \\ud83d"}', encoding="utf-8")
    data = collect(tmp_path).model_copy(update={"title": "half \ud83d"})
    assert "half ⟨U+D83D⟩" in render(data)


def test_nothing_is_loaded_from_elsewhere(intended: tuple[ReportData, Node]) -> None:
    data, root = intended
    html = render(data)
    assert not re.search(r"https?:|//[a-z]|url\(|@import|@font-face", html)
    for node in root.walk():
        assert "src" not in node.attributes
        assert node.attributes.get("href", "#").startswith("#")
    assert not root.all("script", "link", "img", "iframe", "use", "image")
    policy = next(node.attributes["content"] for node in root.all("meta") if "http-equiv" in node.attributes)
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in policy


def test_the_policy_allows_the_pages_own_style(intended: tuple[ReportData, Node]) -> None:
    import base64
    import hashlib

    _, root = intended
    style = "".join(child for child in root.all("style")[0].children if isinstance(child, str))
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert f"'sha256-{digest}'" in next(
        n.attributes["content"] for n in root.all("meta") if "http-equiv" in n.attributes
    )


# Who can read it


def test_tables_that_go_on_beyond_the_edge_show_it(intended: tuple[ReportData, Node]) -> None:
    css = "".join(str(child) for child in intended[1].all("style")[0].children)
    screen, paper = re.findall(r"\.scroll \{(.*?)\}", css, re.S)
    assert screen.count("no-repeat local") == screen.count("no-repeat scroll") == 2
    assert "background: none" in paper
    scrolled = [node for node in intended[1].walk() if "scroll" in node.classes]
    assert all(node.parent is not None and node.parent in scrolled for node in intended[1].all("table"))


def test_structure_is_accessible(intended: tuple[ReportData, Node]) -> None:
    check_structure(intended[1])


def test_structure_is_accessible_in_awkward_cases(tmp_path: Path) -> None:
    check_structure(read(hostile(tmp_path / "hostile")))
    check_structure(page(Case(training=False, reply=False, replacement=False), folder=tmp_path / "bare")[1])
    check_structure(
        page(Case(positive_rank=9000), Case(seed=1, length=3, arms={"b": {0: 500, 1: 1}}), folder=tmp_path / "two")[1]
    )


def test_tables_have_rows_of_one_width(intended: tuple[ReportData, Node]) -> None:
    for node in intended[1].all("table"):
        widths = {
            sum(int(cell.attributes.get("colspan", 1)) for cell in row.children if isinstance(cell, Node))
            for row in node.all("tr")
        }
        assert len(widths) == 1, node.all("caption")[0].text


@pytest.mark.parametrize(("seeds", "words"), [((0,), "on."), ((0, 1), "on, in at least one model.")])
def test_the_least_dose_of_a_leak_names_models_only_where_there_are_several(
    tmp_path: Path, seeds: tuple[int, ...], words: str
) -> None:
    for seed in seeds:
        write_run(tmp_path / "runs" / f"hidden-s{seed}", Case(seed=seed))
    [line] = [line for line in collect(tmp_path).headlines if "A leak is seen from dose" in line]
    assert line.endswith(words)


def colours(css: str) -> list[dict[str, str]]:
    blocks = re.findall(r":root \{(.*?)\}", css, re.S)
    light = dict(re.findall(r"--(\w+): (#\w{6})", blocks[0]))
    return [light, light | dict(re.findall(r"--(\w+): (#\w{6})", blocks[1]))]


def contrast(one: str, other: str) -> float:
    """Contrast ratio of WCAG 2.2, success criterion 1.4.3."""

    def luminance(colour: str) -> float:
        parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_every_colour_of_text_has_contrast(intended: tuple[ReportData, Node], scheme: int) -> None:
    css = "".join(str(child) for child in intended[1].all("style")[0].children)
    palette = colours(css)[scheme]
    for name, colour in palette.items():
        if name in ("page", "raised", "rule"):
            continue
        # 4.5 is what level AA asks of text; series are drawn and written in the same colours.
        assert contrast(colour, palette["page"]) >= 4.5, name
        if name in ("text", "muted"):
            assert contrast(colour, palette["raised"]) >= 4.5, name


# The same as data


def test_report_json_validates_against_the_schema(tmp_path: Path) -> None:
    data, _ = demo(tmp_path)
    write_report(data, tmp_path)
    made = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    assert list(faults(made, schema, schema, "report")) == []
    assert ReportData.model_validate(made) == data
    del made["runs"][0]["verdict"]["rules"]
    made["surprise"] = 1
    assert len(list(faults(made, schema, schema, "report"))) == 2


def test_the_schema_in_the_docs_is_the_one_in_force() -> None:
    assert json.loads(SCHEMA.read_text(encoding="utf-8")) == ReportData.model_json_schema()


_TYPES: dict[str, type | tuple[type, ...]] = {
    "object": dict,
    "array": list,
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "null": type(None),
}


def faults(value: Any, schema: dict[str, Any], root: dict[str, Any], place: str) -> Iterator[str]:
    """The parts of JSON Schema that the report's schema uses."""
    if "$ref" in schema:
        schema = root["$defs"][schema["$ref"].rsplit("/", 1)[1]]
    if "anyOf" in schema and all(list(faults(value, option, root, place)) for option in schema["anyOf"]):
        yield f"{place}: fits no option"
    if value not in schema.get("enum", [value]) or value != schema.get("const", value):
        yield f"{place}: {value!r}"
    if "type" in schema and not isinstance(value, _TYPES[schema["type"]]):
        yield f"{place}: not {schema['type']}"
    elif isinstance(value, dict):
        yield from members(value, schema, root, place)
    elif isinstance(value, list) and isinstance(schema.get("items"), dict):
        for index, each in enumerate(value):
            yield from faults(each, schema["items"], root, f"{place}[{index}]")


def members(value: dict[str, Any], schema: dict[str, Any], root: dict[str, Any], place: str) -> Iterator[str]:
    known, extra = schema.get("properties", {}), schema.get("additionalProperties", True)
    yield from (f"{place}.{name}: missing" for name in schema.get("required", ()) if name not in value)
    for name, each in value.items():
        inner = known.get(name, extra)
        if inner is False:
            yield f"{place}.{name}: unknown"
        elif isinstance(inner, dict):
            yield from faults(each, inner, root, f"{place}.{name}")


def test_the_same_data_gives_the_same_page(intended: tuple[ReportData, Node]) -> None:
    assert render(intended[0]) == render(ReportData.model_validate_json(intended[0].model_dump_json()))


def test_no_verdict_to_report_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match="davylamp audit"):
        collect(tmp_path)


@pytest.mark.parametrize("value", [None, float("nan"), float("inf")])
@pytest.mark.parametrize("measure", ["exposure", "tied", "greedy_recovery"])
def test_readings_that_lack_a_number_are_an_error(tmp_path: Path, measure: str, value: float | None) -> None:
    folder = write_run(tmp_path, Case())
    frame = pl.read_parquet(folder.readings)
    here = (pl.col("measure") == measure) & (pl.col("canary") == "c0003") & (pl.col("probe") == "hidden")
    if value is None:
        frame = frame.filter(~here)
    else:
        frame = frame.with_columns(value=pl.when(here).then(pl.lit(value)).otherwise(pl.col("value")))
    frame.write_parquet(folder.readings)
    with pytest.raises(RunFolderError, match=rf"canary c0003 \({measure}\).*davylamp audit"):
        collect(tmp_path)


@pytest.mark.parametrize("name", ["audit.json", "training.json"])
@pytest.mark.parametrize("content", ["", "null", "[]", "[" * 200_000])
def test_a_damaged_file_is_named(tmp_path: Path, name: str, content: str) -> None:
    write_run(tmp_path, Case())
    (tmp_path / name).write_text(content, encoding="utf-8")
    with pytest.raises(RunFolderError, match=re.escape(name)):
        collect(tmp_path)


def test_extraction_and_kappa_stand_side_by_side_for_each_canary(tmp_path: Path) -> None:
    folder = write_run(tmp_path, Case(reference=True))
    frame = pl.read_parquet(folder.readings)
    first = frame.filter(
        (pl.col("canary") == "c0000") & (pl.col("measure") == "exposure") & (pl.col("probe") == "hidden")
    )
    found = {
        "model": {"emission_probability": 0.25, "samples_needed": math.inf, "greedy_emission": 1.0}
        | {"list_extraction_low": 0.0, "list_extraction_high": 1.0, "secret_perplexity": 12.5},
        "reference": {"prior_surprisal": 13.25, "kappa_low": 0.0021, "kappa_high": 0.0127},
    }
    rows = [
        first.filter(pl.col("release") == release).with_columns(measure=pl.lit(measure), value=pl.lit(value))
        for release, values in found.items()
        for measure, value in values.items()
    ]
    pl.concat([frame, *rows]).write_parquet(folder.readings)
    audit = json.loads(folder.audit.read_text("utf-8"))
    row = {"arm": "redacted", "dose": 16, "attack": "list", "guesses": 10, "undecided": 1, "word": "leak"}
    row |= {"successes": 15, "trials": 16, "kappa": 0.001, "success_low": 0.736, "success_high": 0.9968}
    audit["extraction"] = [{**row, "claim": {"verdict": "could-not-refute"}}, {**row, "claim": None}]
    audit["merged"] = ["c0001", "c0002"]
    folder.audit.write_text(json.dumps(audit), "utf-8")
    data = collect(tmp_path)
    json.dumps(data.model_dump(mode="json"), allow_nan=False)
    page = " ".join(re.sub("<[^>]+>", " ", render(data)).split())
    assert "15 of 16 (1 cut off) 74% to 99.7% 0.001 leak could not refute" in page
    assert "74% to 99.7% 0.001 leak none given" in page
    assert "0.25 never yes perhaps 12.50 13.25 0.0021 to 0.0127" in page
    assert "the secret of 2 of" in page
    assert "(c0001, c0002); the span that covers it was scored" in page
    assert "Extraction:" not in re.sub("<[^>]+>", " ", render(collect(write_run(tmp_path / "plain", Case()).path)))
