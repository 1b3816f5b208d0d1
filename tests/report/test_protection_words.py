"""That a model was trained on protected rows stands at its verdict, in a sentence."""

from __future__ import annotations

from pathlib import Path

from davylamp.report.data import collect
from davylamp.report.html import render
from davylamp.runs import files
from support.pages import read
from support.reports import Case, write_run


def protected(place: Path, case: Case, title: str, surviving: int, copies: int, control: int) -> None:
    folder = write_run(place, case)
    note = {"title": title, "surviving": surviving, "copies": copies, "control_rows": control}
    files.write_json(folder.training, {**files.read_json(folder.training), "protection": note})


def test_a_single_run_says_it_at_its_verdict(tmp_path):
    protected(tmp_path, Case(), "scrub", 1, 336, 64)
    data = collect(tmp_path)
    sentence = (
        "The rows were protected before training (scrub): 1 of 336 copies of canaries still held their secret word for "
        "word; 64 rows of the positive control were left as planted."
    )
    assert data.headlines[-1] == sentence
    (verdict,) = (part for part in read(render(data)).all("section") if part.all("h2")[0].text == "Verdict")
    assert sentence in verdict.text


def test_variants_are_told_apart_and_their_seeds_put_together(tmp_path):
    for seed in (0, 1):
        write_run(tmp_path / f"direct-s{seed}", Case(seed=seed, variant="direct"))
        protected(tmp_path / f"scrub-s{seed}", Case(seed=seed, variant="scrub"), "scrub (once)", seed, 10, 1)
    said = [each for each in collect(tmp_path).headlines if "protected before training" in each]
    assert said == [
        "scrub: the rows were protected before training (scrub (once)): 1 of 20 copies of canaries still held their "
        "secret word for word; 2 rows of the positive control were left as planted."
    ]


def test_nothing_is_said_of_rows_as_they_were_planted(tmp_path):
    write_run(tmp_path, Case())
    assert not [each for each in collect(tmp_path).headlines if "protected" in each]
