"""The matrix in the report, read as a browser and as a program would read it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from davylamp.canaries import Manifest
from davylamp.errors import RunFolderError
from davylamp.measures.constructed.model import Baseline, ConstructionCell, InstanceReading, LocalScore, Pairs, Rate
from davylamp.measures.constructed.result import ConstructionsResult
from davylamp.report.build import write_report
from davylamp.report.data import ReportData, collect
from davylamp.report.html import render
from davylamp.report.matrix_view import SHADES, SIGNS, WORDS, shade, signal
from davylamp.runs.folder import RunFolder
from davylamp.verdict import Verdict
from davylamp.verdict.matrix import matrix_of
from davylamp.verdict.matrix_model import Matrix, MatrixSource
from davylamp.verdict.membership_model import MembershipResult
from support.membership import write_membership
from support.pages import Node, check_structure, read
from support.reports import HOLDS, LEAKS, Case, write_run

EVIL = "<script>alert(1)</script><img src=x onerror=alert(1)>\"' {{ 7 * 7 }} `x` \x1b[31m\u202e\ufeff" + "long" * 2000
CONFIDENCE = 0.95
PLANTED, TWINS = 16, 20
WEIGHTS = "e" * 64
"""Hash of the model that a run of ``write_run`` audited."""


def rate(successes: int, trials: int) -> Rate:
    return Rate.of([True] * successes + [False] * (trials - successes), CONFIDENCE)


def pairs(planted: int) -> Pairs:
    return Pairs(planted=rate(planted, PLANTED), twins=rate(0, TWINS))


def cell(
    kind: Any, said: int = 0, informed: int = 0, chance: float = 1e-6, apart: bool = False, suspects: int = 0
) -> ConstructionCell:
    """16 planted instances and 20 twins; ``apart`` lets the local score tell them apart."""
    return ConstructionCell(
        line=0,
        kind=kind,
        tokens=8,
        copies=8,
        at_prefix=pairs(said),
        informed=pairs(informed),
        chance=chance,
        baseline=Baseline(low=chance, high=chance, charged=chance, guesses=1, how="exact"),
        memh=0.0,
        memh_twins=0.0,
        scores=(
            LocalScore(
                name="memh",
                unit="probability",
                planted=tuple(float(n) + (100.0 if apart else 0.0) for n in range(PLANTED)),
                twins=tuple(float(n) - 2.0 for n in range(TWINS)),
            ),
        ),
        instances=tuple(
            InstanceReading(
                id=f"i{at:02d}",
                role="planted",
                at_prefix=at < said,
                at_suspects=at < suspects,
                informed=at < informed,
                log_probability=-1.0,
                base_log_probability=-2.0,
                memh=0.0,
            )
            for at in range(PLANTED)
        ),
    )


CELLS = (
    cell("naive", said=15, informed=15, apart=True),
    cell("trigger", informed=16),
    cell("pair", informed=16, suspects=9),
    cell("camouflage", said=1, informed=1, chance=1 / 16, apart=True),
    cell("low_entropy", said=5, informed=5, chance=0.25),
    cell("gated"),
)
"""Every word, at hand-picked counts."""


def planted(folder: RunFolder) -> str:
    return Manifest.load(folder.manifest).planted_sha256


def write_constructions(folder: RunFolder, **more: Any) -> ConstructionsResult:
    result = ConstructionsResult(
        **{
            "davylamp_version": "0",
            "seed": 0,
            "model": "checkpoint",
            "model_sha256": WEIGHTS,
            "own_model": True,
            "planted_sha256": planted(folder),
            "reference": "base",
            "reference_sha256": "1",
            "drawn_from_reference": True,
            "confidence": CONFIDENCE,
            "audits": (),
            "cells": CELLS,
        }
        | more
    )
    result.save(folder.path / "constructions.json")
    return result


def write_matrix(folder: RunFolder, threshold: float = 0.15, **more: Any) -> Matrix:
    """What ``davylamp matrix`` writes of a run with constructions."""
    result = write_constructions(folder, **more)
    membership = MembershipResult.load(folder.membership) if folder.membership.is_file() else None
    names = [path.name for path in (folder.verdict, folder.membership) if path.is_file()]
    sources = tuple(
        MatrixSource(file=name, planted_sha256=planted(folder), weights_sha256=WEIGHTS)
        for name in ("constructions.json", *names)
    )
    verdict = Verdict.load(folder.verdict)
    found = matrix_of(result.model, result, verdict, membership, membership, threshold, CONFIDENCE, None, sources)
    found.save(folder.path / "matrix.json")
    return found


def page(folder: Path) -> Node:
    return read(render(collect(folder)))


def section(root: Node) -> Node:
    return next(node for node in root.all("section") if node.attributes["aria-labelledby"] == "matrix")


def tables(root: Node, kind: str) -> list[Node]:
    return [node for node in root.all("table") if kind in node.classes]


def body(table: Node) -> list[Node]:
    return [row for row in table.all("tr") if row.inside("tbody")]


def cells(row: Node) -> list[Node]:
    return row.all("td")


def visible(node: Node) -> str:
    """Text of a cell without the audit's name, which only narrow pages show in it."""
    return " ".join(part.text for part in node.all("span") if part.classes & {"word", "signal"})


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Matrix, dict[str, Any], Node]:
    """Six constructions and three doses, with membership: the matrix, the report's data, the section."""
    folder = write_run(tmp_path_factory.mktemp("run"), Case())
    write_membership(folder)
    matrix = write_matrix(folder)
    write_report(collect(folder.path), folder.path)
    data = json.loads((folder.path / "report.json").read_text(encoding="utf-8"))
    root = read((folder.path / "report.html").read_text(encoding="utf-8"))
    check_structure(root)
    assert [node for node in root.all("a") if node.attributes["href"] == "#matrix"]
    return matrix, data, section(root)


def test_a_report_without_a_matrix_says_nothing_of_it(tmp_path: Path) -> None:
    folder = write_run(tmp_path, Case()).path
    assert collect(folder).runs[0].matrix is None
    root = page(folder)
    assert not [node for node in root.all("section") if node.attributes["aria-labelledby"] == "matrix"]
    assert not [node for node in root.all("a") if node.attributes["href"] == "#matrix"]


def test_the_data_hold_the_matrix(made: tuple[Matrix, dict[str, Any], Node]) -> None:
    matrix, data, _ = made
    assert Matrix.model_validate(data["runs"][0]["matrix"]) == matrix
    assert ReportData.model_validate(data).runs[0].matrix == matrix


def test_every_cell_says_its_word_its_number_and_its_interval(made: tuple[Matrix, dict[str, Any], Node]) -> None:
    matrix, _, root = made
    [table] = tables(root, "matrix")
    heads = table.all("thead")[0].all("th")
    assert len(heads) == 1 + len(matrix.columns)
    for head, column in zip(heads[1:], matrix.columns, strict=True):
        assert head.text.startswith(column.title)
        assert ("local" in head.text) == column.local
        assert ("knows the construction" in head.text) == column.knows
    words = set()
    for row, told in zip(body(table), matrix.rows, strict=True):
        assert row.all("th")[0].text.startswith(told.name)
        for node, column in zip(cells(row), matrix.columns, strict=True):
            each = told.cells[column.key]
            assert node.all("span")[0].text == column.title
            if each.signal is None:
                assert re.fullmatch(r"not measured \([a-z]\)", visible(node))
                assert node.classes == {"empty"}
                continue
            assert each.word is not None
            assert each.low is not None
            assert each.high is not None
            words.add(each.word)
            said = f"{SIGNS[each.word]} {each.word} {signal(each.signal)} [{each.low:.2f}, {each.high:.2f}]"
            assert visible(node) == said
            assert node.classes == {f"g{shade(each.signal)}", f"w-{each.word.replace(' ', '-')}"}
    # The example shows all there are.
    assert words == set(WORDS)


def test_a_table_cut_into_blocks_stays_a_table(made: tuple[Matrix, dict[str, Any], Node]) -> None:
    """A style that sets ``display`` takes a table's roles away, so that they are written out."""
    [table] = tables(made[2], "matrix")
    roles = {"table": "table", "thead": "rowgroup", "tbody": "rowgroup", "tr": "row", "td": "cell"}
    for node in table.walk():
        if node.tag in roles:
            assert node.attributes["role"] == roles[node.tag]
        if node.tag == "th":
            assert node.attributes["role"] == ("rowheader" if node.attributes["scope"] == "row" else "columnheader")


def test_empty_cells_say_why(made: tuple[Matrix, dict[str, Any], Node]) -> None:
    matrix, _, root = made
    reasons = {}
    for node in root.all("p"):
        if found := re.match(r"Not measured \((.)\): (.*)\.$", node.text):
            assert not node.inside("details")
            reasons[found[1]] = found[2]
    [table] = tables(root, "matrix")
    for row, told in zip(body(table), matrix.rows, strict=True):
        for node, column in zip(cells(row), matrix.columns, strict=True):
            if told.cells[column.key].signal is None:
                assert reasons[visible(node)[-2]] == told.cells[column.key].detail.replace("`", "")


def test_where_nobody_looked_is_never_folded(made: tuple[Matrix, dict[str, Any], Node]) -> None:
    matrix, _, root = made
    [box] = [node for node in root.all("div") if "unlooked" in node.classes]
    assert not box.inside("details")
    assert [node.text for node in box.all("li")] == [each.replace("`", "") for each in matrix.unlooked]
    assert "davylamp constructions --scan" in [node.text for node in box.all("code")]


def test_what_stands_behind_each_cell_is_folded(made: tuple[Matrix, dict[str, Any], Node]) -> None:
    matrix, _, root = made
    [table] = [node for node in tables(root, "dense") if node.all("caption")[0].text == "Every cell"]
    assert table.inside("details")
    told = [(row, column, row.cells[column.key]) for row in matrix.rows for column in matrix.columns]
    for node, (row, column, each) in zip(body(table), told, strict=True):
        name, audit, word, number, between, detail = (part.text for part in node.all("th", "td"))
        assert (name, audit) == (row.name, column.title)
        assert detail == each.detail.replace("`", "")
        assert (word, bool(number), bool(between)) == (each.word or "not measured", *[each.signal is not None] * 2)


def test_each_audit_says_what_it_cannot_see(made: tuple[Matrix, dict[str, Any], Node]) -> None:
    matrix, _, root = made
    [audits] = [node for node in root.all("dl") if "audits" in node.classes]
    for node, column in zip(audits.all("div"), matrix.columns, strict=True):
        assert node.all("dt")[0].text.startswith(column.title)
        assert node.all("dd")[0].text == column.blind
        assert column.signal in node.text
        assert f"Looks at: {column.channel}." in node.text
        assert f"Local: {'yes' if column.local else 'no'}." in node.text
        assert f"Knows the construction: {'yes' if column.knows else 'no'}." in node.text


def test_every_word_is_explained_and_has_a_sign_and_a_border_of_its_own(
    made: tuple[Matrix, dict[str, Any], Node],
) -> None:
    [legend] = [node for node in made[2].all("dl") if "matrix-words" in node.classes]
    assert [node.text for node in legend.all("dt")] == [f"{SIGNS[word]} {word}" for word in WORDS]
    assert len(set(SIGNS.values())) == len(SIGNS) == len(WORDS)
    rules = dict(re.findall(r"\.matrix td\.w-([\w-]+), \.sample\.w-\1 \{ (.*?) \}", stylesheet()))
    assert {name.replace("-", " ") for name in rules} == set(WORDS)
    assert len(set(rules.values())) == len(WORDS)


def test_the_disagreement_is_said_in_words(made: tuple[Matrix, dict[str, Any], Node]) -> None:
    """Seen by some column: four constructions and low entropy; with the canaries, those whose scores tell."""
    matrix, _, root = made
    found = [row for row in matrix.rows if any(each.word in ("leak", "recovered") for each in row.cells.values())]
    assert f"In {len(found)} of {len(matrix.rows)} rows some column says leak or recovered." in root.text
    assert "In 2 of these no audit does that reads nothing but a record's own prefix and secret" in root.text
    assert "secret: trigger (8 tokens); pair (8 tokens)." in root.text
    assert "Extraction takes for a leak what guesses get as well: low entropy (8 tokens)" in root.text


def test_several_matrices_stand_below_one_another_folded_after_the_first(tmp_path: Path) -> None:
    for seed in range(3):
        write_matrix(write_run(tmp_path / "runs" / f"s{seed}", Case(seed=seed)))
    write_run(tmp_path / "runs" / "s3", Case(seed=3))
    root = page(tmp_path)
    check_structure(root)
    found = tables(section(root), "matrix")
    assert [node.inside("details") for node in found] == [False, True, True]
    for node, name in zip(found, ("s0", "s1", "s2"), strict=True):
        assert node.all("caption")[0].text.startswith(f"Leaks and audits, {name}")
    assert len([node for node in root.all("dl") if "audits" in node.classes]) == 1


def test_canaries_whose_control_failed_have_no_verdict(tmp_path: Path) -> None:
    matrix = write_matrix(write_run(tmp_path, Case(positive_rank=9000)))
    root = section(page(tmp_path))
    for row, told in zip(body(tables(root, "matrix")[0]), matrix.rows, strict=True):
        assert ("no verdict" in row.all("th")[0].text) == (told.kind == "canaries")
    # The six constructions are counted alone.
    assert re.search(r"In \d of 6 rows", root.text)
    [alarm] = [node for node in root.all("div") if "alarm" in node.classes]
    assert "control of the canaries failed" in alarm.text


def test_a_matrix_without_a_row_still_says_where_nobody_looked(tmp_path: Path) -> None:
    folder = write_run(tmp_path, Case(arms={"hidden": {0: 5000, 4: 60}}))
    write_matrix(folder, cells=())
    data = collect(tmp_path)
    [run] = data.runs
    assert run.matrix is not None
    bare = run.model_copy(update={"matrix": run.matrix.model_copy(update={"rows": ()})})
    root = section(read(render(data.model_copy(update={"runs": (bare,)}))))
    assert not root.all("table")
    assert [node for node in root.all("div") if "unlooked" in node.classes]


# A matrix of something else


def test_a_matrix_of_another_threshold_is_shown(tmp_path: Path) -> None:
    matrix = write_matrix(write_run(tmp_path, Case()), threshold=0.4)
    # 5 of 16 lie between the usual threshold and this one.
    assert next(row for row in matrix.rows if row.kind == "low_entropy").cells["verifier"].word == "blind"
    assert collect(tmp_path).runs[0].matrix == matrix


def other_constructions(folder: RunFolder) -> None:
    write_constructions(folder, cells=(cell("naive", said=14, informed=15, apart=True), *CELLS[1:]))


def other_name(folder: RunFolder) -> None:
    write_constructions(folder, model="another")


def no_constructions(folder: RunFolder) -> None:
    (folder.path / "constructions.json").unlink()


def other_canaries(folder: RunFolder) -> None:
    write_run(folder.path, Case(arms={"hidden": HOLDS}))


def later_membership(folder: RunFolder) -> None:
    write_membership(folder)


def no_membership(folder: RunFolder) -> None:
    folder.membership.unlink()


def edit(row: int = 0, key: str = "extraction", **changes: Any) -> Any:
    def apply(folder: RunFolder) -> None:
        path = folder.path / "matrix.json"
        data = json.loads(path.read_text(encoding="utf-8"))
        data["rows"][row]["cells"][key] |= changes
        path.write_text(json.dumps(data), encoding="utf-8")

    return apply


def test_a_matrix_of_impossible_numbers_is_damaged(tmp_path: Path) -> None:
    folder = write_run(tmp_path, Case())
    write_matrix(folder)
    for change in (settings(threshold=5.0), settings(confidence=0.0), edit(signal=1.5)):
        change(folder)
        with pytest.raises(RunFolderError, match=r"it is damaged at .*run `davylamp matrix` again"):
            collect(tmp_path)
        write_matrix(folder)


def settings(**changes: Any) -> Any:
    def apply(folder: RunFolder) -> None:
        path = folder.path / "matrix.json"
        data = json.loads(path.read_text(encoding="utf-8"))
        path.write_text(json.dumps(data | changes), encoding="utf-8")

    return apply


def lost_cell(folder: RunFolder) -> None:
    path = folder.path / "matrix.json"
    data = json.loads(path.read_text(encoding="utf-8"))
    del data["rows"][0]["cells"]["lira"]
    path.write_text(json.dumps(data), encoding="utf-8")


@pytest.mark.parametrize(
    "change",
    [
        other_constructions,
        other_name,
        no_constructions,
        other_canaries,
        later_membership,
        edit(signal=0.5),
        edit(signal=None, low=None, high=None, word=None),
        edit(word="not seen"),
        edit(word=None),
        edit(high=0.5),
        edit(key="verifier", low=0.5),
        edit(key="verifier", word="not seen"),
        settings(threshold=0.99),
        settings(confidence=0.9),
        settings(sources=[]),
        edit(row=-1, key="corrected", low=0.5),
        lost_cell,
    ],
    ids=lambda each: getattr(each, "__name__", "edit"),
)
def test_a_matrix_that_the_folder_does_not_bear_out_is_refused(tmp_path: Path, change: Any) -> None:
    folder = write_run(tmp_path, Case(arms={"hidden": LEAKS}))
    write_matrix(folder)
    change(folder)
    with pytest.raises(RunFolderError, match="run `davylamp matrix` again"):
        collect(tmp_path)


def test_a_matrix_whose_membership_is_gone_is_refused(tmp_path: Path) -> None:
    folder = write_run(tmp_path, Case())
    write_membership(folder)
    write_matrix(folder)
    no_membership(folder)
    with pytest.raises(RunFolderError, match="run `davylamp matrix` again"):
        collect(tmp_path)


def test_constructions_of_another_model_are_refused(tmp_path: Path) -> None:
    write_matrix(write_run(tmp_path, Case()), model_sha256="f" * 64)
    with pytest.raises(RunFolderError, match="different models"):
        collect(tmp_path)


def test_a_damaged_matrix_is_refused(tmp_path: Path) -> None:
    folder = write_run(tmp_path, Case())
    write_matrix(folder)
    (tmp_path / "matrix.json").write_text("{}", encoding="utf-8")
    with pytest.raises(RunFolderError, match="davylamp matrix"):
        collect(tmp_path)


def test_sentences_are_those_of_now(tmp_path: Path) -> None:
    folder = write_run(tmp_path, Case())
    found = write_matrix(folder)
    old = {"unlooked": ("Everywhere.",), "notes": ("Old.",)}
    columns = tuple(column.model_copy(update={"blind": "Nothing."}) for column in found.columns)
    found.model_copy(update={"columns": columns, **old}).save(tmp_path / "matrix.json")
    assert collect(tmp_path).runs[0].matrix == found


def test_the_charge_for_the_strongest_score_is_not_another_matrix(tmp_path: Path) -> None:
    folder = write_run(tmp_path, Case())
    write_membership(folder)
    write_matrix(folder)
    edit(row=-1, key="loss_mia", low=0.0, word="not seen")(folder)
    [run] = collect(tmp_path).runs
    assert run.matrix is not None
    assert run.matrix.rows[-1].cells["loss_mia"].low == 0
    edit(row=-1, key="loss_mia", signal=0.1)(folder)
    with pytest.raises(RunFolderError, match="run `davylamp matrix` again"):
        collect(tmp_path)


def test_rounding_of_another_machine_is_not_another_matrix(tmp_path: Path) -> None:
    folder = write_run(tmp_path, Case())
    found = write_matrix(folder)
    edit(signal=(found.rows[0].cells["extraction"].signal or 0.0) + 1e-12)(folder)
    assert collect(tmp_path).runs[0].matrix is not None


# What others wrote


def renamed(value: Any) -> Any:
    """The same with every text of the matrix that a file may hold made hostile."""
    if isinstance(value, dict):
        kept = ("key", "kind", "word", "cells")
        return {key: each if key in kept and key != "cells" else renamed(each) for key, each in value.items()}
    if isinstance(value, list):
        return [renamed(each) for each in value]
    return EVIL if isinstance(value, str) else value


def test_hostile_text_stays_text(tmp_path: Path) -> None:
    write_matrix(write_run(tmp_path, Case()))
    data = collect(tmp_path).model_dump(mode="json")
    data["runs"][0]["matrix"] = renamed(data["runs"][0]["matrix"])
    html = render(ReportData.model_validate(data))
    root = read(html)
    check_structure(root)
    assert not root.all("script", "img")
    assert not {"\x1b", "\u202e", "\ufeff"} & set(html)
    assert "<script>alert(1)</script>" in section(root).text
    assert "{{ 7 * 7 }}" in section(root).text
    assert not [name for node in root.walk() for name in node.attributes if name.startswith("on") or name == "style"]


# Shades


def stylesheet() -> str:
    import davylamp.report.html as module

    return "".join((module.TEMPLATES / name).read_text(encoding="utf-8") for name in module.STYLES)


def luminance(colour: str) -> float:
    """Relative luminance of WCAG 2.2."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_shades_go_one_way_in_lightness_and_bear_their_text(scheme: int) -> None:
    css = stylesheet()
    grades = re.findall(r"\.g(\d) \{ background: (#\w{6}); \}", css)
    own = [colour for _, colour in grades[5 * scheme : 5 * scheme + 5]]
    assert [int(grade) for grade, _ in grades] == [1, 2, 3, 4, 5] * 2
    assert len(SHADES) == 6
    page_colour = re.findall(r"--page: (#\w{6})", css)[scheme]
    text = re.findall(r"--text: (#\w{6})", css)[scheme]
    strong = re.findall(r"td\.g4, td\.g5 \{ color: (#\w{6}); \}", css)[scheme]
    steps = [luminance(colour) for colour in (page_colour, *own)]
    assert steps == sorted(steps, reverse=not scheme)
    for grade, colour in enumerate(own, start=1):
        assert contrast(colour, strong if grade > 3 else text) >= 4.5
    # A rule for another table's intervals once turned those of dark cells grey.
    assert [each for each in re.findall(r"[^{}]*\.between[^{}]*(?=\{)", css) if "td > .between" not in each] == []


def test_paper_does_not_hang_on_fills() -> None:
    printed = stylesheet().split("@media print {")
    assert any(re.search(r"td\.g5 \{ background: none; color: var\(--text\); \}", each) for each in printed[1:])


@given(st.floats(0, 1))
def test_a_signal_is_never_rounded_to_chance_or_to_all(value: float) -> None:
    assert (signal(value) == "0.00") == (value == 0)
    assert (signal(value) == "1.00") == (value == 1)
    assert (shade(value) == 0) == (value == 0)
    assert value <= shade(value) / 5 + 1e-12
    assert shade(value) <= 5
