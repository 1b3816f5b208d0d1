"""Constructions in the report, audited or not, read as a browser and as a program would read them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from davylamp.canaries import Manifest
from davylamp.errors import RunFolderError
from davylamp.measures.constructed.model import (
    Baseline,
    ConstructionCell,
    HiddenReading,
    InstanceReading,
    LocalScore,
    PairReading,
    Pairs,
    Rate,
)
from davylamp.measures.constructed.result import ConstructionsResult, FinderReport
from davylamp.measures.constructed.shadow_model import ShadowMemorization, ShadowNote
from davylamp.report.build import write_report
from davylamp.report.data import ReportData, collect
from davylamp.report.html import render
from davylamp.runs.folder import RunFolder
from davylamp.studies.matrix import matrix_step
from support.pages import Node, check_structure, read
from support.reports import Case, write_run

EVIL = "<script>alert(1)</script><img src=x onerror=alert(1)>{{ 7 * 7 }} \x1b[31m\u202e"
WEIGHTS = "e" * 64
"""Hash of the model that a run of ``write_run`` audited."""


def rate(successes: int, trials: int) -> Rate:
    return Rate.of([True] * successes + [False] * (trials - successes), 0.95)


def pairs(planted: int, twins: int = 0, of: int = 16) -> Pairs:
    return Pairs(planted=rate(planted, of), twins=rate(twins, 20))


def cell(kind: Any, said: int, informed: int, **more: Any) -> ConstructionCell:
    """16 planted instances and 20 twins; the second score finds 12, and has the larger AUC."""
    common = {"unit": "nats", "planted": (1.0,) * 16, "twins": (0.0,) * 20, "auc_low": 0.5, "auc_high": 0.99}
    return ConstructionCell(
        **{
            "line": 0,
            "kind": kind,
            "tokens": 8,
            "copies": 4,
            "at_prefix": pairs(said),
            "informed": pairs(informed),
            "chance": 0.25,
            "baseline": Baseline(low=0.01, high=0.02, charged=0.03, guesses=1, how="search"),
            "memh": 0.5,
            "memh_twins": -0.0125,
            "scores": (
                LocalScore(name="memh", auc=0.6, needed=20, tpr=rate(3, 16), **common),
                LocalScore(name="reference", auc=0.9, needed=20, tpr=rate(12, 16), **common),
            ),
            "instances": tuple(
                InstanceReading(
                    id=f"i{at}",
                    role="planted",
                    at_prefix=at < said,
                    informed=at < informed,
                    log_probability=-1.0,
                    base_log_probability=-2.0,
                    memh=0.0,
                )
                for at in range(16)
            ),
        }
        | more
    )


CELLS = (
    cell("naive", 15, 15),
    cell("trigger", 0, 16, at_trigger=pairs(14), trigger_tokens=6, memh_trigger=0.875, by_scan=pairs(2, 1)),
    cell(
        "pair", 8, 8, pair=PairReading(own_less_other=0.25, floor=0.031, counterfactual={"h": 0.4}, floors={"h": 0.05})
    ),
    cell("low_entropy", 5, 7, hidden=HiddenReading(survivors=4, mass=0.125, entropy=0.5, rank=1.5)),
    cell("gated", 0, 16, copies=0, at_trigger=pairs(16, of=16), trigger_tokens=8),
)


def write_constructions(folder: RunFolder, **more: Any) -> ConstructionsResult:
    result = ConstructionsResult(
        **{
            "davylamp_version": "0",
            "seed": 0,
            "model": "checkpoint",
            "model_sha256": WEIGHTS,
            "own_model": True,
            "planted_sha256": Manifest.load(folder.manifest).planted_sha256,
            "reference": "base",
            "reference_sha256": "1",
            "drawn_from_reference": True,
            "confidence": 0.95,
            "scan": FinderReport(prompts=4096, flagged=48, empty=46),
            "audits": (),
            "cells": CELLS,
        }
        | more
    )
    result.save(folder.path / "constructions.json")
    return result


def unaudited(place: Path, matrix: bool = False, **more: Any) -> RunFolder:
    """A run that was trained and never audited, with constructions."""
    folder = write_run(place, Case())
    for path in (folder.verdict, folder.audit, folder.readings, folder.membership):
        path.unlink(missing_ok=True)
    write_constructions(folder, **more)
    if matrix:
        matrix_step(folder)
    return folder


def section(root: Node, name: str = "constructions") -> Node:
    return next(node for node in root.all("section") if node.attributes["aria-labelledby"] == name)


def rows(root: Node, caption: str) -> list[list[str]]:
    table = next(node for node in root.all("table") if node.all("caption")[0].text.startswith(caption))
    return [[part.text for part in row.all("th", "td")] for row in table.all("tr") if row.inside("tbody")]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Node]:
    """The report of a run without a verdict."""
    folder = unaudited(tmp_path_factory.mktemp("alone") / "run", matrix=True)
    write_report(collect(folder.path), folder.path)
    data = json.loads((folder.path / "report.json").read_text(encoding="utf-8"))
    return data, read((folder.path / "report.html").read_text(encoding="utf-8"))


def test_a_run_that_was_not_audited_has_a_report_that_says_what_is_missing(alone: tuple[dict[str, Any], Node]) -> None:
    data, root = alone
    check_structure(root)
    assert ReportData.model_validate(data).unaudited[0].name == "run"
    assert (data["verdict"], data["runs"]) == ("no verdict", [])
    assert [node.text for node in root.all("nav")[0].all("a")] == ["Verdict", "Constructions", "Matrix"]
    said = section(root, "verdict").text
    assert "No canary was asked for: the model was not audited." in said
    # No control failed: nobody asked.
    assert "cannot be believed" not in root.text
    assert "davylamp audit RUN" in [node.text for node in section(root, "verdict").all("code")]
    assert "davylamp matrix RUN" not in root.text
    # 15 + 0 + 8 + 5 + 0 and 15 + 16 + 8 + 7 + 16 of five times 16; behind triggers 0 and 14 + 16 of 32.
    told = (
        "Constructions: asked with their own prefixes, 28 of 80 planted secrets come out; who knows how they were "
        "planted recovers 62 of 80. Of those behind a trigger, 0 of 32 come out after their prefixes and 30 of 32 "
        "after their triggers."
    )
    assert data["headlines"][0] == told
    assert told in said
    assert data["headlines"][1].startswith("run was not audited")
    assert section(root, "matrix").all("table")


def test_the_tables_hold_what_was_read(alone: tuple[dict[str, Any], Node]) -> None:
    _, root = alone
    out = rows(root, "What comes out, by channel")
    assert [row[0] for row in out] == [
        "naive duplicate (8 tokens)16 planted, each in 4 rows",
        "trigger (8 tokens)16 planted, each in 4 rows",
        "pair (8 tokens)16 planted, each in 4 rows",
        "low entropy (8 tokens)16 planted, each in 4 rows",
        "gated (8 tokens)16 planted, in no row",
    ]
    assert out[0][1:] == ["15 of 16 [70%, 99.8%]twins 0 of 20", "0.03", "no trigger", out[0][1], "0.25"]
    assert out[1][3] == "14 of 16 [62%, 98%]twins 0 of 20"
    seen = rows(root, "What scores and finders see")
    assert seen[0][1:] == [
        "+0.500-0.013",
        "no trigger",
        "0.90 [0.50, 0.99]reference, best of 2found 12 of 16 [48%, 93%] at 5%",
        "none was run",
    ]
    assert (seen[1][2], seen[1][4]) == ("+0.875", "trigger scan: 2 of 16 (1 of 20)")
    folded = " ".join(node.text for node in section(root).all("li"))
    assert "pair (8 tokens): memh of the planted secret less that of the other one +0.250" in folded
    assert "by h, +0.400 (twins +0.050)" in folded
    assert "leaves 4 secrets open. Together they have probability 0.125" in folded
    assert "Trigger scan: 4,096 prompts, 48 continuations looked at, 46 of them without" in section(root).text
    assert "Repeated tokens: not tried." in section(root).text


def test_shadow_models_have_a_column_and_a_table_where_there_are_some(tmp_path: Path) -> None:
    common = {"unit": "nats", "planted": (1.0,) * 16, "twins": (0.0,) * 20, "auc_low": 0.75, "auc_high": 1.0}
    lira = LocalScore(name="lira", auc=0.95, needed=20, tpr=rate(11, 16), **common)
    moved = [
        ShadowMemorization(score=name, instances=36, mean=mean, error=0.007, floor=0.014)
        for name, mean in (("h", 0.097), ("loss", 0.25))
    ]
    note = ShadowNote(shadows=16, background="planted", keys=("k",), notes=("rows were `replaced`",))
    cells = (CELLS[0].model_copy(update={"lira": lira, "counterfactual": tuple(moved)}), *CELLS[1:])
    root = section(read(render(collect(unaudited(tmp_path, cells=cells, shadows=note).path))))
    seen = rows(root, "What scores and finders see")
    assert seen[0][4] == "0.95 [0.75, 1.00]found 11 of 16 [38%, 89%] at 5%".replace("38%, 89%", interval_of(lira))
    # A score that training models take is never the best of those that only read.
    assert "best of 2" in seen[0][3]
    assert seen[1][4] == "not read"
    assert rows(root, "What an instance in training changes") == [
        ["naive duplicate (8 tokens)16 planted, each in 4 rows", "36", "+0.0970.007", "0.014", "+0.2500.007", "0.014"]
    ]
    assert "LiRA: rows were replaced" in root.text


def interval_of(score: LocalScore) -> str:
    assert score.tpr is not None
    return f"{100 * score.tpr.low:.0f}%, {100 * score.tpr.high:.0f}%"


def test_without_a_matrix_the_command_is_named(tmp_path: Path) -> None:
    root = read(render(collect(unaudited(tmp_path).path)))
    check_structure(root)
    assert "davylamp matrix RUN" in [node.text for node in root.all("code")]
    assert not [node for node in root.all("section") if node.attributes["aria-labelledby"] == "matrix"]


def test_too_few_twins_and_another_base_are_said(tmp_path: Path) -> None:
    weak = CELLS[0].scores[0].model_copy(update={"tpr": None, "twins": (0.0, 0.0)})
    cells = (CELLS[0].model_copy(update={"scores": (weak,)}), *CELLS[1:])
    root = section(read(render(collect(unaudited(tmp_path, cells=cells, drawn_from_reference=False).path))))
    assert "needs 20 twins, has 2" in rows(root, "What scores")[0][3]
    assert "1 of 5 have too few twins to say how many are found at that rate: it takes 20" in root.text
    assert "were not drawn from base" in root.all("div")[0].text


def test_an_audited_run_shows_its_constructions_beside_its_verdict(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "a", Case())
    write_constructions(folder)
    unaudited(tmp_path / "b")
    data = collect(tmp_path)
    assert ([run.name for run in data.runs], [run.name for run in data.unaudited]) == (["a"], ["b"])
    root = read(render(data))
    check_structure(root)
    assert data.verdict == "leak"
    captions = [node.all("caption")[0].text for node in section(root).all("table")]
    assert any("What comes out, by channel, a" in each for each in captions)
    [other] = [node for node in section(root).all("details") if node.all("summary")[0].text == "Constructions of b"]
    assert other.all("table")
    assert "Missing for b" in section(root, "verdict").text
    assert any(line.startswith("Constructions of a: ") for line in data.headlines)


def test_what_comes_from_elsewhere_is_escaped(tmp_path: Path) -> None:
    folder = unaudited(tmp_path / "run", model=EVIL, reference=EVIL, drawn_from_reference=False)
    html = render(collect(folder.path))
    root = read(html)
    check_structure(root)
    assert not root.all("script", "img")
    assert "49" not in section(root).all("caption")[0].text
    assert "\u202e" not in html


def test_triggers_of_your_own_are_shown_only_where_secrets_are(tmp_path: Path) -> None:
    folder = unaudited(tmp_path / "run")
    data = json.loads(folder.manifest.read_text("utf-8"))
    line = {"kind": "trigger", "groups": 1, "twins": 1, "trigger_tokens": 6, "triggers": ["open sesame now please"]}
    data["plan"]["constructions"] = [line]
    instance = {"line": 0, "kind": "trigger", "tokens": 1, "secret": "z", "secret_ids": [1], "trigger": "x"}
    instances = [
        {"id": str(at), "role": role, "prefix": "c", **instance} for at, role in enumerate(["planted", "twin"])
    ]
    data["constructions"] = {"base": "b", "base_sha256": "0", "instances": instances}
    folder.manifest.write_text(json.dumps(data), "utf-8")
    hidden, shown = (collect(folder.path, show_secrets=each) for each in (False, True))
    assert "sesame" not in hidden.model_dump_json() + render(hidden)
    assert "1 of your own, not shown" in render(hidden)
    assert "sesame" in render(shown)


# Files of something else


def test_what_is_of_another_planting_or_another_model_is_refused(tmp_path: Path) -> None:
    folder = unaudited(tmp_path / "run", matrix=True)
    write_constructions(folder, planted_sha256="0" * 64)
    with pytest.raises(RunFolderError, match=r"constructions.json is of another planting than .*constructions .*again"):
        collect(folder.path)
    write_constructions(folder, model_sha256="f" * 64)
    with pytest.raises(RunFolderError, match="was trained anew after its constructions were read"):
        collect(folder.path)
    # Another trainer's model is no fault; but the matrix is on the one before.
    write_constructions(folder, model_sha256="f" * 64, own_model=False)
    with pytest.raises(RunFolderError, match=r"matrix.json was read from a constructions.json on another model"):
        collect(folder.path)
    (folder.path / "constructions.json").unlink()
    with pytest.raises(RunFolderError, match="holds a matrix, and neither a verdict nor constructions"):
        collect(folder.path)


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    folder = unaudited(tmp_path / "run")
    path = folder.path / "constructions.json"
    whole = path.read_text("utf-8")
    for text in (whole[:200], whole.replace('"memh": 0.5', '"memh": NaN', 1), "[]", "", '{"cells": {}}', "\x00"):
        path.write_text(text, "utf-8")
        with pytest.raises(
            RunFolderError, match=r"cannot read .*constructions.json: .*run `davylamp constructions` again"
        ):
            collect(folder.path)
    for text in (
        whole.replace('"trials": 16', '"trials": 0', 1),
        whole.replace('"trials": 16', '"trials": 15', 1),
        whole.replace('"chance": 0.25', '"chance": 5.0', 1),
        whole.replace('"charged": 0.03', '"charged": -3.0', 1),
        whole.replace('"auc": 0.6', '"auc": -0.6', 1),
    ):
        path.write_text(text, "utf-8")
        with pytest.raises(RunFolderError, match=r"it is damaged at cells\.0"):
            collect(folder.path)
    path.write_text(whole.replace('"memh": 0.5', '"memh": "open sesame"', 1), "utf-8")
    with pytest.raises(RunFolderError, match=r"it is damaged at cells\.0\.memh; run") as caught:
        collect(folder.path)
    assert "sesame" not in str(caught.value)


def test_a_folder_without_anything_names_both_commands(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match="run `davylamp audit` first, or `davylamp constructions` where"):
        collect(tmp_path)
    folder = unaudited(tmp_path / "run")
    shutil.copytree(folder.path, tmp_path / ".hidden")
    assert [run.name for run in collect(tmp_path).unaudited] == ["run"]
