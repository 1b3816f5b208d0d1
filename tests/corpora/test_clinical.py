"""Clinical records: their form, files of them, and generated ones."""

from __future__ import annotations

import datetime
import json
import math
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from davylamp.canaries import Manifest, Plan, plant
from davylamp.cli.main import app
from davylamp.corpora.clinical import parse
from davylamp.corpora.clinical_words import CONDITIONS
from davylamp.corpora.patients import REFERENCE, generate, lines, patient_id, patients
from davylamp.corpora.readers import read_corpus
from davylamp.corpora.spec import CorpusSpec
from davylamp.corpora.splitting import PARTS, part_of, split_by_patient, taken
from davylamp.errors import CorpusError, InputError
from davylamp.runs.config import load_yaml

SHARED = Path("../shared/data/clinical_synthea/patients.jsonl")
DRUGS = SHARED.with_name("drug_names.csv")
PLAN = Path("src/davylamp/studies/clinical/plan.yaml")
here = pytest.mark.skipif(not SHARED.is_file(), reason="the reference data is not there")
ONE = patients(1, 0)[0]
WORDS = st.text("abc é-'", min_size=1, max_size=8).map(str.strip).filter(bool)


# --- the form


@given(st.lists(WORDS, max_size=8), st.lists(WORDS, max_size=8), WORDS)
def test_a_record_is_read_as_it_was_written(problems, medications, name):
    record = replace(ONE, name=name, problems=tuple(problems), medications=tuple(medications))
    assert parse(record.text()) == record


def test_what_is_no_record_is_not_read_as_one():
    text = ONE.text()
    assert parse(text.removesuffix(".")) is None
    assert parse("Patient of interest.") is None
    assert parse("see " + text) is None


def test_a_planted_medication_is_the_last_one_of_its_record():
    plan = load_yaml(PLAN) | {"doses": [1, 2], "per_dose": 3, "twins": 2, "positive": {"dose": 4}, "repeat": 1}
    manifest = plant(generate(150, 3), Plan.model_validate(plan)).manifest
    seen = set()
    for canary in manifest.canaries:
        record = parse(manifest.trained_record(canary).reply)
        assert record is not None
        assert record.medications[-1] == canary.secret
        seen.add((record.name, record.ssn))
    assert len(seen) == len(manifest.canaries)


@here
def test_every_shared_record_has_the_form_and_says_its_fields():
    for line in SHARED.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        found = parse(row["text"])
        assert found is not None
        assert found.text() == row["text"]
        said = (found.name, found.age, found.ssn, found.dob, found.address, found.zip)
        assert said == (
            f"{row['first_name']} {row['last_name']}",
            *(row[key] for key in ("age", "ssn", "dob", "address", "zip")),
        )
        assert list(found.problems) == row["problems"][:8]
        assert list(found.medications) == row["medications"][:8]


# --- files


@here
def test_the_shared_file_is_read_with_its_patients():
    corpus = read_corpus(SHARED, format="clinical")
    assert (len(corpus), corpus.shape) == (600, "text")
    assert corpus.groups[:2] == ("syn-0000", "syn-0001")
    assert {"ssn", "medications"} <= set(corpus.left_out)
    assert not {"id", "text"} & set(corpus.left_out)
    assert corpus.records == read_corpus(SHARED).records


def test_generated_lines_are_a_file_that_is_read_again(tmp_path):
    path = tmp_path / "records.jsonl"
    path.write_text("\n".join(lines(30, 4)) + "\n", encoding="utf-8")
    corpus, made = read_corpus(path, format="clinical"), generate(30, 4)
    assert (corpus.records, corpus.groups) == (made.records, made.groups)
    row = json.loads(path.read_text(encoding="utf-8").splitlines()[0])
    assert row["id"] == patient_id(0)
    assert row["medications"] == list(patients(1, 4)[0].medications)


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"text": "x"}, "has no 'id'"),
        ({"id": "a", "text": "Patient x."}, "does not read as 'Patient First Last"),
        ({"id": True, "text": "x"}, "no name or number"),
        ({"id": "a", "text": 3}, "not a string"),
    ],
)
def test_rows_that_are_no_clinical_records_are_named_by_line(tmp_path, row, said):
    path = tmp_path / "records.jsonl"
    path.write_text(json.dumps(row) + "\n", encoding="utf-8")
    with pytest.raises(CorpusError, match=rf"line 1: .*{said}"):
        read_corpus(path, format="clinical")


def test_any_file_of_texts_can_say_whom_a_row_is_about(tmp_path):
    path = tmp_path / "notes.jsonl"
    path.write_text("".join(json.dumps({"text": f"note {at}", "who": at // 2}) + "\n" for at in range(6)))
    assert read_corpus(path, patient="who").groups == ("0", "0", "1", "1", "2", "2")
    assert read_corpus(path).groups == ()
    with pytest.raises(CorpusError, match="line 1: 'whom' says of nobody"):
        read_corpus(path, patient="whom")
    with pytest.raises(InputError, match="format clinical has its own"):
        read_corpus(path, format="clinical", patient="who")


# --- generated records


def test_no_two_patients_share_a_name_a_number_or_an_address():
    made = patients(4000, 0)
    for key in ("name", "ssn"):
        assert len({getattr(each, key) for each in made}) == 4000
    assert len({(each.address, each.city) for each in made}) == 4000
    assert all(each.ssn.startswith("999-") for each in made)


def test_generated_records_have_the_form_and_their_fields_agree():
    given_for = {each.name: each for each in CONDITIONS}
    for each in patients(1500, 1):
        assert parse(each.text()) == each
        born = datetime.date.fromisoformat(each.dob)
        birthday = (REFERENCE.month, REFERENCE.day) >= (born.month, born.day)
        assert each.age == REFERENCE.year - born.year - (not birthday)
        assert 0 <= each.age <= 90
        for problem in each.problems:
            lowest, highest = given_for[problem].ages
            assert lowest <= each.age <= highest
            assert given_for[problem].gender in (None, each.gender)
        possible = {medicine for problem in each.problems for medicine in given_for[problem].medicines}
        assert set(each.medications) <= possible
        assert len(set(each.problems)) == len(each.problems)


def test_generated_patients_are_as_common_as_asked_for():
    made = patients(3000, 2)
    women = sum(each.gender == "F" for each in made)
    # Binomial: four standard deviations of a half of 3,000.
    assert abs(women - 1500) < 4 * math.sqrt(750)
    without = sum(not each.medications for each in made) / 3000
    assert 0.15 < without < 0.45


def test_fewer_patients_are_the_first_of_more_and_another_seed_gives_others():
    assert patients(50, 0) == patients(400, 0)[:50]
    assert patients(50, 0) != patients(50, 1)
    assert generate(20, 0) == generate(20, 0)


def test_as_many_patients_as_there_are_names_can_be_had():
    with pytest.raises(InputError, match="1 to 100,000"):
        patients(100_001, 0)
    with pytest.raises(InputError, match="rows is 0"):
        generate(0, 0)


# --- splits


def test_a_patient_is_in_one_part_and_parts_have_their_shares():
    corpus = generate(3000, 0)
    rows = [(name, record) for name, record in zip(corpus.groups, corpus.records, strict=True) for _ in range(2)]
    split = split_by_patient(rows, lambda row: row[0], 7)
    assert sorted(row[0] for part in PARTS for row in split[part]) == sorted(row[0] for row in rows)
    who = {part: {name for name, _ in split[part]} for part in PARTS}
    assert not who["train"] & who["test"]
    assert not who["train"] & who["held_out"]
    for part, share in zip(PARTS, (0.8, 0.1, 0.1), strict=True):
        # Binomial, four standard deviations.
        assert abs(len(who[part]) - 3000 * share) < 4 * math.sqrt(3000 * share * (1 - share))


def test_the_part_of_a_patient_depends_on_nobody_else():
    whole, half = generate(200, 0), generate(100, 0)
    first = set(taken(whole, "test", 1).groups)
    second = set(taken(half, "test", 1).groups)
    assert second == first & set(half.groups)
    assert part_of("a", 0) == part_of("a", 0)
    assert {part_of(str(at), 0, (0.0, 1.0, 0.0)) for at in range(99)} == {"held_out"}


@pytest.mark.parametrize("shares", [(0.5, 0.5), (0.8, 0.1, 0.2), (1.2, -0.1, -0.1)])
def test_shares_that_are_none_are_refused(shares):
    with pytest.raises(InputError, match="that sum to 1"):
        part_of("a", 0, shares)


def test_an_empty_part_is_refused():
    with pytest.raises(CorpusError, match=r"none of the 3 rows of .* falls into the part 'test'"):
        taken(generate(3, 0), "test", 0, (1.0, 0.0, 0.0))


def test_a_recipe_takes_parts_of_generated_records():
    parts = [CorpusSpec(generator="clinical", rows=300, split_by_patient={"part": part}).load() for part in PARTS]
    assert sum(map(len, parts)) == 300
    assert len({name for part in parts for name in part.groups}) == 300
    assert "held_out: " in parts[1].source
    short = CorpusSpec(generator="clinical", rows=300, max_chars=250).load()
    assert len(short.groups) == len(short) < 300


def test_a_recipe_without_parts_is_written_as_before():
    assert set(CorpusSpec(generator="emails", rows=3).model_dump()) == {
        "path",
        "hub",
        "split",
        "config",
        "generator",
        "rows",
        "seed",
        "columns",
        "hub_columns",
        "wrap",
        "format",
        "max_chars",
    }


def test_a_split_or_a_patient_that_cannot_be_is_refused():
    with pytest.raises(ValueError, match="sum to 1"):
        CorpusSpec(generator="clinical", rows=3, split_by_patient={"part": "test", "shares": (1, 1, 1)})
    with pytest.raises(ValueError, match="needs path"):
        CorpusSpec(generator="clinical", rows=3, patient="id")


# --- the plan


@here
def test_the_plan_of_the_package_plants_the_shared_records():
    plan = load_yaml(PLAN)
    plan["space"] |= {"drug_list": str(DRUGS)}
    planted = plant(read_corpus(SHARED, format="clinical"), Plan.model_validate(plan))
    manifest = planted.manifest
    doses = [canary.dose for canary in manifest.canaries if canary.role == "focus"]
    assert {dose: doses.count(dose) for dose in (1, 4, 16, 32, 64)} == dict.fromkeys((1, 4, 16, 32, 64), 20)
    assert len(planted.records) == 8 * (600 - 121)
    assert sum(doses) == 2340


def test_the_plan_is_planted_by_its_name(tmp_path):
    (tmp_path / "records.jsonl").write_text("\n".join(lines(150, 0)) + "\n", encoding="utf-8")
    small = ["doses=[1]", "per_dose=2", "twins=1", "positive.dose=3", "repeat=1"]
    out = ["--format", "clinical", "--plan", "clinical", "--out", str(tmp_path / "run")]
    found = CliRunner().invoke(app, ["plant", str(tmp_path / "records.jsonl"), *small, *out])
    assert found.exit_code == 0
    assert Manifest.load(tmp_path / "run" / "manifest.json").space.size == 7000


@here
def test_what_the_page_says_is_refused_is_refused_so(tmp_path, monkeypatch):
    page = Path("docs/clinical.md").read_text(encoding="utf-8")
    for path in (SHARED, DRUGS):
        shutil.copy(path, tmp_path / path.name)
    monkeypatch.chdir(tmp_path)
    shown = re.findall(r"```text\n\$ davylamp (plant .*?)\nerror: (.*?)```", page, re.DOTALL)
    assert len(shown) == 3
    for command, message in shown:
        found = CliRunner().invoke(app, command.split())
        # Long messages are wrapped in the document.
        assert str(found.exception).split() == message.split()
