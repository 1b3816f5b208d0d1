"""Copying, following a cue and remembering: counted from the readings, shown seed by seed, no secret in any form."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

from davylamp.bounds.intervals import clopper_pearson
from davylamp.errors import RunFolderError
from davylamp.measures.probes import Probe
from davylamp.report import cues
from davylamp.report.build import write_report
from davylamp.report.data import collect
from davylamp.report.html import render
from davylamp.report.model import CueRow, ReportData
from support.pages import Node, read
from support.reports import HOLDS, LEAKS, Case, encoded_of, secrets_of, write_run

SAID = {
    ("as_trained", "trained"): 13,
    ("original", "trained"): 16,
    ("replacement", "trained"): 1,
    ("replacement", "replacement"): 15,
    ("replacement_encoded", "trained"): 6,
    ("replacement_encoded", "replacement"): 0,
    ("cue_masked", "trained"): 3,
    ("unseen", "trained"): 0,
    ("unseen", "replacement"): 19,
    ("unseen:binary", "trained"): 5,
    ("unseen:binary", "replacement"): 2,
}
BEFORE = {("replacement", "trained"): 0, ("replacement", "replacement"): 12}


def encoded(seed: int = 0, **changes: object) -> Case:
    return Case(
        arms={"key": {0: 5000, 4: 60, 16: 1}},
        encodings={"key": "binary"},
        cues=SAID,
        before=BEFORE,
        seed=seed,
        **changes,
    )


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> tuple[ReportData, Node]:
    folder = tmp_path_factory.mktemp("cues")
    for seed in range(3):
        write_run(folder / "runs" / f"key-s{seed}", encoded(seed))
    for seed in range(3):
        case = Case(arms={"plain": HOLDS}, contexts={"plain": "visible"}, seed=seed, cues=SAID, before=BEFORE)
        write_run(folder / "runs" / f"plain-s{seed}", case)
    data = collect(folder)
    return data, read(render(data))


def row(data: ReportData, probe: str, dose: int = 16, run: int = 0, release: str = "model") -> CueRow:
    [found] = [each for each in data.runs[run].cues if (each.probe, each.dose, each.release) == (probe, dose, release)]
    return found


def test_the_names_of_probes_are_those_of_the_measures() -> None:
    assert tuple(probe.value for probe in Probe) == cues.ORDER


def test_counts_are_those_of_the_readings(study: tuple[ReportData, Node]) -> None:
    data, _ = study
    other = row(data, "replacement_encoded")
    assert (other.encoding, other.own) == ("binary", False)
    assert other.shown is not None
    assert (other.shown.greedy.successes, other.trained.greedy.successes, other.trained.greedy.trials) == (0, 6, 16)
    interval = clopper_pearson(6, 16)
    assert (other.trained.greedy.low, other.trained.greedy.high) == (interval.low, interval.high)
    own = row(data, "as_trained")
    assert (own.encoding, own.own, own.shown, own.trained.greedy.successes) == ("binary", True, None, 13)
    assert row(data, "original").encoding is None
    before = row(data, "replacement", release="reference")
    assert before.shown is not None
    assert (before.shown.greedy.successes, before.trained.greedy.successes) == (12, 0)


def test_medians_are_those_of_the_readings_by_hand(study: tuple[ReportData, Node]) -> None:
    data, _ = study
    # 6 of 16 have rank 1 (13.29 bits) and 10 rank 100 (6.64 bits): the middle two are both 6.64. The order statistics
    # of a 95% interval for 16 values are the 4th and the 13th: 6.64 and 13.29.
    bits = row(data, "replacement_encoded").trained.bits
    assert bits is not None
    assert (bits.canaries, bits.median) == (16, pytest.approx(6.6439, abs=1e-4))
    assert (bits.low, bits.high) == (pytest.approx(6.6439, abs=1e-4), pytest.approx(13.2877, abs=1e-4))
    hidden = row(data, "hidden")
    cell = next(cell for cell in data.runs[0].verdict.cells if cell.dose == 16)
    assert hidden.trained.bits is not None
    assert (hidden.trained.bits.median, hidden.trained.bits.low) == (cell.median, cell.median_low)
    assert hidden.trained.greedy == cell.greedy


def test_unseen_codes_are_counted_apart_from_the_canaries(study: tuple[ReportData, Node]) -> None:
    data, _ = study
    clear, cue = row(data, "unseen", 4), row(data, "unseen:binary", 4)
    assert clear.shown is not None
    assert cue.shown is not None
    assert (clear.encoding, clear.shown.greedy.successes, clear.shown.greedy.trials) == (None, 19, 20)
    assert (cue.encoding, cue.shown.greedy.successes, cue.trained.greedy.successes) == ("binary", 2, 5)
    assert cue.shown.bits is None


def tables(root: Node) -> dict[str, list[list[str]]]:
    found = {}
    for node in root.all("table"):
        caption = node.all("caption")[0].text
        if caption.startswith("What is said when the prompt shows a code: "):
            title = caption.removeprefix("What is said when the prompt shows a code: ").split(" Secret ")[0]
            found[title] = [[cell.text for cell in line.all("td", "th")] for line in node.all("tr")]
    return found


def test_a_reference_of_other_measures_is_no_model_before_fine_tuning(tmp_path: Path) -> None:
    # Such a reference is asked with the secret hidden, and with nothing else.
    before = {("hidden", "trained"): 0}
    write_run(tmp_path, Case(arms={"plain": HOLDS}, contexts={"plain": "visible"}, cues=SAID, before=before))
    data = collect(tmp_path)
    assert {row.probe for row in data.runs[0].cues if row.release == "reference"} == {"hidden"}
    root = read(render(data))
    found = tables(root)
    assert found
    assert all(body[0][1:] == ["after fine-tuning"] for body in found.values())
    assert "Before fine-tuning" not in root.all("main")[0].text


def test_the_table_has_a_row_for_each_seed_and_what_was_read_before(study: tuple[ReportData, Node]) -> None:
    _, root = study
    body = tables(root)["key, dose 16"]
    assert body[0][1:] == ["after fine-tuning", "before fine-tuning"]
    shown = [line for line in body if line[0] == "another code encoded (binary)"]
    assert [line[1] for line in shown] == ["0", "1", "2"]
    for line in shown:
        assert line[2:6] == ["0 of 16 [0%, 21%]", "6.64 [6.64, 6.64]", "6 of 16 [15%, 65%]", "6.64 [6.64, 13.29]"]
        assert line[6] == "not read"
    [clear, *_] = [line for line in body if line[0] == "another code in clear"]
    assert clear[2].startswith("15 of 16")
    assert clear[6].startswith("12 of 16")
    [own, *_] = [line for line in body if line[0] == "its own code encoded (binary), as in training"]
    assert own[2] == "the same code"
    assert own[4].startswith("13 of 16")


def test_every_arm_and_dose_has_its_table_the_largest_dose_open(study: tuple[ReportData, Node]) -> None:
    _, root = study
    found = {}
    for node in root.all("table"):
        caption = node.all("caption")[0].text
        if caption.startswith("What is said"):
            found[caption.split(": ")[1].split(" Secret ")[0]] = node.inside("details")
    doses = {"key": ("16", "4", "0 (twins)"), "plain": ("16", "4", "1", "0 (twins)")}
    assert found == {f"{arm}, dose {dose}": dose != "16" for arm, each in doses.items() for dose in each}


def test_the_sentence_on_cues_counts_codes_that_were_planted_nowhere(study: tuple[ReportData, Node]) -> None:
    data, _ = study
    # At doses 4 and 16 of three seeds 16 canaries each show a replacement's cue, and 20 unseen codes are shown:
    # 3 * (0 + 0 + 2) of 3 * (16 + 16 + 20) say the code shown, 3 * (6 + 6 + 5) the trained one.
    [sentence] = [each for each in data.headlines if "encoded form" in each]
    assert sentence.startswith(
        "key: shown the encoded form (binary) of a code that was planted nowhere, the model says"
    )
    assert "in 6 of 156 cases and the trained one in 51." in sentence
    assert data.headlines[0].startswith("key (secret encoded with binary in the training prompt), dose 16")


def test_where_only_the_usual_was_asked_the_usual_tables_stand_open(tmp_path: Path) -> None:
    write_run(tmp_path, Case(arms={"a": LEAKS}))
    root = read(render(collect(tmp_path)))
    assert not tables(root)
    [whole] = [node for node in root.all("table") if node.all("caption")[0].text.startswith("A replacement code is")]
    assert not whole.inside("details")


def test_a_reading_that_is_no_number_is_an_error(tmp_path: Path) -> None:
    folder = write_run(tmp_path, encoded())
    frame = pl.read_parquet(folder.readings)
    here = (pl.col("probe") == "unseen:binary") & (pl.col("target") == "trained")
    frame.with_columns(value=pl.when(here).then(pl.lit(float("nan"))).otherwise(pl.col("value"))).write_parquet(
        folder.readings
    )
    with pytest.raises(RunFolderError, match=r"greedy_recovery of a canary, unseen:binary.*davylamp audit"):
        collect(tmp_path)


def test_no_secret_is_shown_in_clear_or_encoded(tmp_path: Path) -> None:
    arms = {"bits": {0: 500_000_000, 16: 1}, "words": {0: 500_000_000, 16: 1}}
    case = Case(length=9, arms=arms, encodings={"bits": "binary", "words": "chained_fruit"}, cues=SAID, before=BEFORE)
    folder = write_run(tmp_path / "run", case)
    forms = [*secrets_of(folder), *encoded_of(folder)]
    assert len(set(forms)) == 4 * len(json.loads(folder.manifest.read_text("utf-8"))["canaries"]) - 2
    write_report(collect(folder.path), folder.path)
    for name in ("report.html", "report.json"):
        text = (folder.path / name).read_text(encoding="utf-8")
        assert not [form for form in forms if form in text]
    assert "(binary of •" in (folder.path / "report.html").read_text(encoding="utf-8")
    write_report(collect(folder.path, show_secrets=True), folder.path)
    text = (folder.path / "report.html").read_text(encoding="utf-8")
    assert all(secret in text for secret in secrets_of(folder)[::2])
    assert [form for form in encoded_of(folder) if form in text]
