"""``davylamp studies``: the list, what a run would do, faults, and a whole study on the embedded model."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
import torch
from rich.console import Console
from rich.table import Table

from davylamp.cli.output import TABLE_WIDTH, emit_table
from davylamp.report.study import StudyResult
from davylamp.studies.catalogue import STANDALONE
from davylamp.studies.protocol.spec import CATALOGUE, load_study
from support.recipes import write_yaml

# One arm, 8 focus canaries in 64 rows; ranks among 150 codes and not among all 10,000.
TINY = (
    "corpus.rows=64",
    "plan.doses=[2, 4]",
    "plan.per_dose=4",
    "plan.twins=2",
    "plan.positive.dose=8",
    "audit.pool=150",
    "audit.probes=[hidden]",
    "utility.rows=2",
    "seeds=[0]",
    "--jobs=1",
    "--threads=1",
)


FEW = ("plan.per_dose=2", "plan.positive.dose=10")


# --- list


def test_the_list_names_every_study_its_figures_and_its_question(davylamp):
    code, out, _ = davylamp("studies", "list")
    assert code == 0
    lines = out.splitlines()
    studies = [*map(load_study, CATALOGUE), *STANDALONE.values()]
    for study, line in zip(studies, lines, strict=False):
        assert line == f"{study.name} ({study.figures}): {study.question}"
    assert lines[-1].startswith("Tasks (--task): email, banking77, tatqa. Sizes (--size): cpu, paper. Neither is for")
    assert len(lines) == len(studies) + 1


def test_the_list_as_json(davylamp):
    code, out, _ = davylamp("studies", "list", "--json")
    data = json.loads(out)
    assert (code, out.count("\n")) == (0, 1)
    assert data["tasks"] == ["email", "banking77", "tatqa"]
    assert [each["name"] for each in data["studies"]] == list(CATALOGUE)
    assert data["studies"][0]["comparisons"]
    assert [each["name"] for each in data["standalone"]] == list(STANDALONE)


@pytest.mark.parametrize(
    ("terminal", "width", "shown"), [(True, TABLE_WIDTH, True), (True, 80, False), (False, 200, False)]
)
def test_a_table_is_for_wide_terminals(monkeypatch, capsys, terminal, width, shown):
    table = Table("name", "value", title="made")
    table.add_row("one", "two")
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal, raising=False)
    assert Console().width == width
    emit_table(table, ["one: two"])
    out = capsys.readouterr().out
    assert (out == "one: two\n") is not shown
    assert ("made" in out and "name" in out) is shown
    monkeypatch.setattr(sys, "stdout", None)
    emit_table(table, ["one: two"])


# --- what a run would do


def test_a_dry_run_says_every_run_and_leaves_nothing(davylamp, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, _ = davylamp("studies", "run", "position", "--dry-run", "seeds=[0]", *FEW)
    assert code == 0
    lines = out.splitlines()
    assert "7 runs below runs/position-email-cpu" in lines[1]
    # 2 canaries of dose 8, and the positive control with 10.
    assert lines[2] == "  constant-first-redacted-s0: plant, train, audit; 26 rows of canaries, constant learning rate"
    assert lines[7] == "  cosine-last-redacted-s0: plant, train, audit; 26 rows of canaries, cosine learning rate"
    assert lines[8] == "  base: the model as it came, not trained"
    assert lines[9] == "No record leaves this machine."
    assert not list(tmp_path.iterdir())


def test_a_dry_run_as_json_holds_the_whole_recipe(davylamp, tmp_path):
    options = ("--task", "tatqa", "--size", "paper", "--dry-run", "--json", "--out", tmp_path / "out")
    code, out, _ = davylamp(
        "studies", "run", "utility", *options, "seeds=[7]", "model=nowhere/none", "plan.doses=[4, 16]", *FEW
    )
    data = json.loads(out)
    assert (code, out.count("\n"), data["study"]) == (0, 1, "utility")
    assert (data["recipe"]["model"], data["recipe"]["seeds"]) == ("nowhere/none", [7])
    assert [(run["run"], run["kind"], run["schedule"]) for run in data["runs"]] == [
        ("visible-s7", "audit", "constant"),
        ("binary-s7", "audit", "constant"),
        ("redacted-s7", "audit", "constant"),
        ("clean-s7", "clean", "constant"),
        ("base", "base", None),
    ]
    assert [run["planted_rows"] for run in data["runs"]] == [2 * 20 + 10] * 3 + [0, 0]
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", STANDALONE)
def test_a_dry_run_of_a_study_with_a_recipe_of_its_own(davylamp, tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    code, out, err = davylamp("studies", "run", name, "--dry-run")
    assert (code, err) == (0, "")
    study, lines = STANDALONE[name], out.splitlines()
    assert lines[:2] == [f"{study.title} ({study.figures}): {study.question}", f"below runs/{name}:"]
    assert len(lines) > 2
    code, out, _ = davylamp("studies", "run", name, "--dry-run", "--json")
    data = json.loads(out)
    assert (code, data["study"]) == (0, name)
    assert "  " + "\n  ".join(data["runs"]) == "\n".join(lines[2:])
    code, _, err = davylamp("studies", "run", name, "--dry-run", "nonsense=1")
    assert (code, "nonsense" in err) == (2, True)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", STANDALONE)
def test_options_that_mean_nothing_to_a_study_are_refused_together(davylamp, tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    code, out, err = davylamp(
        "studies", "run", name, "--task", "email", "--size", "cpu", "--held-out", "rows.jsonl", "--dry-run"
    )
    assert (code, out) == (2, "")
    for option in ("--task is 'email'", "--size is 'cpu'", "--held-out is 'rows.jsonl'"):
        assert f"{option}; allowed: not with {name}, which takes" in " ".join(err.split())


def test_a_study_with_a_recipe_of_its_own(davylamp, tmp_path):
    small = ("trials=20000", "canaries.trials=2000", "sweep.bits=[3,6,7,10]", "curves.epsilons=[0.5,2.0]")
    code, out, err = davylamp("studies", "run", "mechanisms", *small, "--out", tmp_path, "--json")
    data = json.loads(out)
    assert (code, out.count("\n"), err) == (0, 1, "")
    assert data["result"] == json.loads((tmp_path / "mechanisms.json").read_text("utf-8"))
    assert str(tmp_path / "mechanisms.html") in data["files"]


@pytest.mark.parametrize("file", ["manifest.json", "study.json", "blind_spots.json"])
def test_a_study_is_not_written_into_the_folder_of_something_else(davylamp, tmp_path, file):
    (tmp_path / file).write_text("{}")
    code, _, said = davylamp("studies", "run", "representability", "--out", tmp_path, "--quiet")
    assert code == 2
    assert file in said
    assert "give another --out" in said
    assert [path.name for path in tmp_path.iterdir()] == [file]


def test_a_file_that_is_called_like_a_study_comes_first(davylamp, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_yaml(tmp_path / "mechanisms", {"name": "s"})
    code, _, err = davylamp("studies", "run", "mechanisms", "--dry-run")
    assert (code, "question" in err) == (2, True)


def test_a_dry_run_needs_no_model_library():
    code = (
        "import sys\nfrom davylamp.cli.main import main\n"
        f"for name in {['cues', *STANDALONE]}:\n"
        "    sys.argv = ['davylamp', 'studies', 'run', name, '--dry-run']\n"
        "    try: main()\n    except SystemExit as end: assert not end.code, name\n"
        "print(sorted({'torch', 'transformers', 'datasets'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


# --- faults


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("rank_first",), "one of context-dose, position"),
        (("rank-first", "plan.dosses=[1]"), "plan.dosses is [1]; allowed: no such key"),
        (("rank-first", "seeds"), "key=value"),
        (("rank-first", "--task", "chess"), "chess"),
        (("rank-first", "--size", "huge"), "huge"),
        (("rank-first", "--data", "none.jsonl"), "corpus.path"),
        (("context-dose", "plan.doses=[1]"), "comparisons.0.of.dose is 16; allowed: 1."),
        (("mixed-dose", "training.epochs=2", "plan.schedule.window=early"), "each of the 2 epochs"),
        (("x" * 300,), "File name too long"),
    ],
)
def test_faults_are_one_message_and_nothing_is_made(davylamp, tmp_path, monkeypatch, arguments, said):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "300")
    code, out, err = davylamp("studies", "run", *arguments)
    assert (code, out) == (2, "")
    assert said in " ".join(err.split())
    assert "Traceback" not in err
    assert not list(tmp_path.iterdir())


def test_faults_of_a_file_and_of_its_recipe_are_named(davylamp, tmp_path):
    path = write_yaml(tmp_path / "s.yaml", {"name": "s", "titel": "T", "shapes": []})
    _, _, err = davylamp("studies", "run", path)
    for field in ("titel", "title", "question", "shapes"):
        assert f"{field} is" in err
    shape = {"statement": "S", "checks": [{"level": {"arm": "nobody"}, "at_least": 1}]}
    data = {"name": "s", "title": "T", "figures": "F", "question": "Q?", "shapes": [shape]}
    _, _, err = davylamp("studies", "run", write_yaml(path, data))
    assert "shapes.0.checks.0.level.arm is 'nobody'; allowed: visible, redacted" in " ".join(err.split())


def test_an_audit_of_the_model_before_needs_one(davylamp, tmp_path):
    code, _, err = davylamp("audit", tmp_path, "before=true")
    assert code == 2
    assert "--reference is None; allowed: the model before fine-tuning, since audit.before asks it too" in " ".join(
        err.split()
    )


# --- a whole study


def test_a_study_from_its_name_to_its_report(davylamp, tmp_path):
    torch.set_num_threads(1)
    out = tmp_path / "out"
    code, said, err = davylamp("studies", "run", "rank-first", *TINY, "--out", out)
    assert code == 0, err
    result = StudyResult.model_validate_json((out / "study.json").read_text("utf-8"))
    assert (result.name, result.task, result.size) == ("rank-first", "email", "cpu")
    assert {path.name for path in (out / "runs").iterdir()} == {"redacted-s0", "base"}
    (found,) = [each for each in result.compared if each.sides == ("said exactly", "rank 1")]
    assert found.n == 8
    assert [seed.n for seed in found.seeds] == [8]
    lines = said.splitlines()
    assert lines[0] == f"{result.title} ({result.figures}), email, size cpu"
    assert f"  {found.name}: {found.statement}" in lines
    for shape in result.shapes:
        assert f"  {shape.word.upper()}: {shape.statement}" in lines
        for check in shape.checks:
            assert f"    {'+' if check.held else '-'} {check.statement}" in lines
    assert lines[-1] == f"report: {out / 'report.html'}"
    assert result.title in (out / "report.html").read_text("utf-8")

    before = (out / "study.json").read_bytes()
    code, again, _ = davylamp("studies", "run", "rank-first", *TINY, "--out", out, "--json")
    data = json.loads(again)
    assert (code, again.count("\n")) == (0, 1)
    assert StudyResult.model_validate(data["study"]) == result
    assert data["report"] == str(out / "report.html")
    assert (out / "study.json").read_bytes() == before
