"""Utility in the report: accuracy and held-out loss side by side, older files without a loss included."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from davylamp.errors import RunFolderError
from davylamp.report.data import Utility, collect
from davylamp.report.html import render
from support.pages import Node, read
from support.reports import Case, write_run, write_utility

LOSS = {"loss": 1.234567, "loss_low": 1.1, "loss_high": 1.3691, "reply_tokens": 2048}


def add(folder: Path, values: dict[str, Any]) -> None:
    path = folder / "utility.json"
    path.write_text(json.dumps({**json.loads(path.read_text("utf-8")), **values}), "utf-8")


def utility_table(folder: Path) -> list[list[str]]:
    root = read(render(collect(folder)))
    [table] = [node for node in root.all("table") if node.all("caption")[0].text.startswith("letters without")]
    return [[cell.text for cell in row.all("td", "th")] for row in table.all("tr")]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_run(tmp_path / "runs" / "masked-s0", Case(utility=(50, 64)))
    write_utility(tmp_path / "runs" / "base", 3, 64)
    return tmp_path


def test_the_loss_stands_beside_the_accuracy_with_its_unit(folder: Path) -> None:
    add(folder / "runs" / "masked-s0", LOSS)
    add(folder / "runs" / "base", {**LOSS, "loss": 3.5, "loss_low": 3.0, "loss_high": 4.0})
    head, base, masked = utility_table(folder)
    assert head[4:7] == ["held-out lossnats a token", "interval", "replytokens"]
    assert base[4:7] == ["3.50", "[3.00, 4.00]", "2,048"]
    assert masked[1:3] == ["50 of 64", "78%"]
    assert masked[4:7] == ["1.23", "[1.10, 1.37]", "2,048"]


def test_files_without_a_loss_are_read_and_say_nothing_of_it(folder: Path) -> None:
    assert all(utility.loss is None for utility in collect(folder).utilities)
    assert {len(row) for row in utility_table(folder)} == {4 + 3}
    add(folder / "runs" / "masked-s0", LOSS)
    head, base, masked = utility_table(folder)
    assert base[4:7] == ["not read", "", ""]
    assert len(head) == len(base) == len(masked) == 7 + 3


def test_a_single_row_has_a_loss_and_no_interval(folder: Path) -> None:
    add(folder / "runs" / "base", {**LOSS, "loss_low": None, "loss_high": None})
    assert utility_table(folder)[1][4:7] == ["1.23", "", "2,048"]


@pytest.mark.parametrize("missing", ["loss", "reply_tokens", "loss_low"])
def test_half_a_loss_is_a_damaged_file(folder: Path, missing: str) -> None:
    add(folder / "runs" / "base", {key: value for key, value in LOSS.items() if key != missing})
    with pytest.raises(RunFolderError, match=r"utility\.json is damaged"):
        collect(folder)


def test_the_loss_is_in_the_data(folder: Path) -> None:
    add(folder / "runs" / "base", LOSS)
    base: Utility = collect(folder).utilities[0]
    assert (base.who, base.loss, base.loss_low, base.loss_high, base.reply_tokens) == ("base", *LOSS.values())


def test_the_page_stays_sound(folder: Path) -> None:
    add(folder / "runs" / "base", LOSS)
    root: Node = read(render(collect(folder)))
    for table in root.all("table"):
        widths = {
            sum(int(cell.attributes.get("colspan", 1)) for cell in row.children if isinstance(cell, Node))
            for row in table.all("tr")
        }
        assert len(widths) == 1


# Where the rows came from

GENERATED = "generated emails (rows=64, seed=2000, redacted_share=0)"


def utility_text(folder: Path) -> str:
    root = read(render(collect(folder)))
    return next(each for each in root.all("section") if each.attributes["aria-labelledby"] == "utility").text


def test_the_plot_says_where_both_kinds_of_rows_came_from(folder: Path) -> None:
    text = utility_text(folder)
    assert "Held-out rows: held-out.jsonl. Training rows: letters.jsonl." in text
    assert "Not the task trained on" not in text
    assert "same hash" not in text


@pytest.mark.parametrize(
    ("trained", "held_out", "says"),
    [
        (
            "letters.jsonl",
            GENERATED,
            "the held-out rows are emails that davylamp generated, the training rows came from letters.jsonl.",
        ),
        (
            "generated emails (rows=1600, seed=1000, redacted_share=0)",
            "held-out.jsonl",
            "the training rows are emails that davylamp generated, the held-out rows came from held-out.jsonl.",
        ),
        ("generated emails (rows=1600, seed=1000, redacted_share=0)", GENERATED, None),
    ],
)
def test_rows_of_another_kind_than_those_of_training_are_told(
    tmp_path: Path, trained: str, held_out: str, says: str | None
) -> None:
    write_run(tmp_path, Case(utility=(50, 64), source=trained))
    add(tmp_path, {"source": held_out})
    text = utility_text(tmp_path)
    assert ("Not the task trained on, as far as the sources tell:" in text) == (says is not None)
    assert says is None or says in text


def test_held_out_rows_of_the_trained_corpus_are_told(folder: Path) -> None:
    for name in ("masked-s0", "base"):
        add(folder / "runs" / name, {"sha256": "a" * 64})
    assert "Both sources have the same hash, so that a held-out row may have been trained on." in utility_text(folder)
