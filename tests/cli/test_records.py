from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from davylamp.cli.main import app
from davylamp.errors import CorpusError, DavylampError

PARTS = ("train", "held_out", "test")


def run(*arguments):
    found = CliRunner().invoke(app, ["records", *map(str, arguments)])
    if found.exception is not None and not isinstance(found.exception, SystemExit):
        raise found.exception
    return found.stdout


def rows_of(folder):
    return {part: [json.loads(line) for line in (folder / f"{part}.jsonl").read_text().splitlines()] for part in PARTS}


def test_generated_records_are_split_by_patient(tmp_path):
    said = json.loads(run("clinical", "--rows", 200, "--out", tmp_path, "--json"))
    parts = rows_of(tmp_path)
    assert {part: said[part]["rows"] for part in PARTS} == {part: len(rows) for part, rows in parts.items()}
    ids = [row["id"] for rows in parts.values() for row in rows]
    assert len(ids) == len(set(ids)) == 200
    assert {"text", "ssn", "medications"} <= set(parts["test"][0])


def test_a_file_of_anything_is_split_with_all_its_fields(tmp_path):
    path = tmp_path / "notes.jsonl"
    rows = [{"note": f"n{at}", "who": at // 3, "more": [at]} for at in range(90)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    run(path, "--patient", "who", "--out", tmp_path / "out", "--shares", 0.6, 0.2, 0.2)
    parts = rows_of(tmp_path / "out")
    assert sorted((row for found in parts.values() for row in found), key=lambda row: row["more"]) == rows
    who = {part: {row["who"] for row in found} for part, found in parts.items()}
    assert not who["train"] & who["test"]
    assert not who["train"] & who["held_out"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"id": 1}\n{"it": 2}\n', "line 2: 'id' says of nobody"),
        ("", "is empty"),
        ("[]\n", "line 1: not a JSON object"),
    ],
)
def test_files_that_cannot_be_split_are_refused(tmp_path, text, said):
    path = tmp_path / "rows.jsonl"
    path.write_text(text)
    with pytest.raises(CorpusError, match=said):
        run(path, "--out", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_too_few_patients_and_strange_shares_are_refused(tmp_path):
    with pytest.raises(CorpusError, match="none of the 2 rows falls into"):
        run("clinical", "--rows", 2, "--out", tmp_path)
    with pytest.raises(DavylampError, match="sum to 1"):
        run("clinical", "--rows", 20, "--out", tmp_path, "--shares", 0.6, 0.6, 0.2)
    with pytest.raises(CorpusError, match="unknown kind of file"):
        run(tmp_path / "rows.parquet", "--out", tmp_path)
