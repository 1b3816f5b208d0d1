"""The command as a user meets it: run in a process of its own, or through typer's runner where speed matters."""

import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
from typer.testing import CliRunner

from davylamp.bounds import ApproxDP, dp_sgd, extraction_bound, safe_baseline
from davylamp.cli.main import app
from davylamp.errors import InputError


def run(*arguments):
    done = CliRunner().invoke(app, ["bounds", *arguments])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.output


def as_json(*arguments):
    return json.loads(run(*arguments, "--json"), parse_constant=pytest.fail)


def faults(*arguments):
    with pytest.raises(InputError) as error:
        run(*arguments)
    return [fault.field for fault in error.value.faults]


def test_the_threshold_in_plain_words():
    out = run("--epsilon", "4", "--budget", "1", "--risk", "0.1")
    assert "9.09271  bits" in out
    assert "A secret needs at least 9.1 bits" in out
    assert "a random 4-digit code has 13.3: this claim holds its extraction below 10%" in out


def test_json_holds_the_named_keys_as_numbers():
    out = as_json(
        *("--epsilon", "1", "--budget", "4", "--prior", "zipf:1.2,n=10000", "--risk", "0.1", "--copies", "2"),
        *("--successes", "95", "--trials", "100"),
    )
    numbers = {
        "advantage",
        "advantage_at",
        "k_copy_advantage",
        "group_advantage",
        "extraction_bound",
        "safe_baseline",
        "min_entropy_threshold_bits",
        "kappa",
        "min_entropy_bits",
        "epsilon_lower_bound",
    }
    assert numbers <= out.keys()
    assert all(isinstance(out[key], float) for key in numbers)
    assert out["claim"] == {"kind": "pure", "epsilon": 1.0}
    assert out["verdict"] == "consistent"
    assert out["extraction_bound"] == extraction_bound(ApproxDP(1.0), out["kappa"], 2)


def test_only_what_was_asked_for():
    out = as_json("--epsilon", "1", "--delta", "1e-5", "--kappa", "0.355")
    assert out.keys() == {"claim", "advantage", "advantage_at", "kappa", "extraction_bound", "budget"}
    assert out["extraction_bound"] == extraction_bound(ApproxDP(1.0, 1e-5), 0.355)


def test_dp_sgd_with_copies_states_its_gap():
    out = as_json("--dpsgd", "noise=1.1,rate=0.004,steps=300", "--risk", "0.01", "--copies", "4")
    claim = dp_sgd(1.1, 0.004, 300)
    assert out["safe_baseline"] == safe_baseline(claim, 0.01, 4)
    assert out["claim"]["discretisation_gap"] == claim.gap
    assert "group_advantage" not in out


def test_three_audit_verdicts_in_words():
    assert "it is refuted" in run("--epsilon", "1", "--kappa", "0.01", "--successes", "41", "--trials", "100")
    assert "which does not prove it" in run("--epsilon", "1", "--kappa", "0.2", "--successes", "41", "--trials", "100")
    assert "could not have refuted it" in run("--epsilon", "1", "--kappa", "0.95", "--successes", "9", "--trials", "9")


def test_nothing_is_safe_says_so():
    out = run("--epsilon", "1", "--delta", "0.01", "--risk", "0.001")
    assert "No secret is safe at a risk of 0.1%" in out
    assert as_json("--epsilon", "1", "--delta", "0.01", "--risk", "0.001")["safe_baseline"] is None


def test_infinities_are_named_not_printed():
    out = as_json("--epsilon", "1", "--kappa", "0", "--successes", "1", "--trials", "3")
    assert out["epsilon_lower_bound"] is None
    assert "epsilon_lower_bound" in out["unbounded"]


def test_plan_brackets_and_truncation():
    out = as_json(
        "--epsilon", "1", "--plan", "0.5", "--bits", "4,10", "--replace", "--kappa", "0.01", "--truncation", "3"
    )
    assert [p["bits"] for p in out["plan"]] == [4.0, 10.0]
    assert out["plan"][1]["canaries"] == 3
    low, high = out["extraction_bracket_replace"]
    assert low < high == out["extraction_bound"]
    assert out["memorization_cap"] == pytest.approx(3 * out["advantage"])
    assert "canaries" in run("--epsilon", "1", "--plan", "0.5")


def test_priors_and_points_from_files(tmp_path):
    counts = tmp_path / "counts.txt"
    counts.write_text("3\n1\n")
    assert as_json("--epsilon", "1", "--prior", f"counts:{counts}")["kappa"] == 0.75
    assert as_json("--epsilon", "1", "--prior", "digits:4")["kappa"] == 1e-4
    assert as_json("--epsilon", "1", "--prior", "bits:20")["min_entropy_bits"] == 20
    assert as_json("--epsilon", "1", "--prior", "uniform:n=64", "--budget", "4")["kappa"] == 0.0625
    assert as_json("--epsilon", "1", "--prior", "explicit:0.5,0.25,0.25")["kappa"] == 0.5
    points = tmp_path / "curve.csv"
    points.write_text("alpha,beta\n0,0.9\n0.2,0.5\n")
    assert as_json("--points", str(points), "--kappa", "0.1")["extraction_bound"] == pytest.approx(0.3)
    assert as_json("--mu", "1", "--releases", "4")["claim"] == {"kind": "gdp", "mu": 2.0}


def test_every_fault_at_once():
    assert faults(
        *("--epsilon", "-1", "--delta", "2", "--kappa", "1.5", "--budget", "0", "--risk", "1"),
        *("--copies", "1.5", "--successes", "3", "--truncation", "inf"),
    ) == [
        "--epsilon",
        "--delta",
        "--copies",
        "--budget",
        "--risk",
        "--kappa",
        "--truncation",
        "--trials",
    ]


@pytest.mark.parametrize(
    ("arguments", "fields"),
    [
        ([], ["the claim"]),
        (["--epsilon", "1", "--mu", "1"], ["the claim"]),
        (["--delta", "0.1"], ["the claim", "--delta"]),
        (["--epsilon", "nan"], ["--epsilon"]),
        (["--epsilon", "x"], ["--epsilon"]),
        (["--epsilon", "1", "--delta", "1"], ["--delta"]),
        (["--epsilon", "1", "--risk", "0"], ["--risk"]),
        (["--epsilon", "1", "--prior", "explicit:0.5,0.4"], ["--prior (probabilities)"]),
        (["--epsilon", "1", "--prior", "dice"], ["--prior"]),
        (["--epsilon", "1", "--prior", "zipf:x,n=0"], ["--prior (n)", "--prior (exponent)"]),
        (["--epsilon", "1", "--prior", "digits:4", "--kappa", "0.1"], ["--kappa"]),
        (["--dpsgd", "noise=0,rate=2,steps=0"], ["--dpsgd (steps)", "--dpsgd (noise)", "--dpsgd (rate)"]),
        (["--dpsgd", "noise=1,pace=2"], ["--dpsgd (pace=2)", "--dpsgd (rate)", "--dpsgd (steps)"]),
        (["--epsilon", "1", "--successes", "3", "--trials", "2", "--kappa", "0.1"], ["--successes"]),
        (["--epsilon", "1", "--successes", "3", "--trials", "4"], ["--kappa"]),
        (["--epsilon", "1", "--budget", "4", "--plan", "0.5", "--bits", "1"], ["--bits"]),
        (["--points", "no-such-file.csv"], ["--points"]),
    ],
)
def test_bad_input_names_the_option(arguments, fields):
    assert faults(*arguments) == fields


def test_exit_code_2_and_nothing_on_standard_output():
    command = [
        sys.executable,
        "-c",
        "from davylamp.cli.main import main; main()",
        "bounds",
        "--epsilon",
        "-1",
        "--json",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stdout == ""
    assert "--epsilon is -1.0; allowed: a finite number of at least 0" in done.stderr
    assert "Traceback" not in done.stderr


class Links(HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags, self.outside = [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.outside += [v for k, v in attrs if k in ("src", "href") and v]


def test_plot_is_one_self_contained_file_with_its_marks(tmp_path):
    target = tmp_path / "out.html"
    run("--epsilon", "4", "--risk", "0.1", "--kappa", "0.0001", "--plot", str(target))
    text = target.read_text(encoding="utf-8")
    reader = Links()
    reader.feed(text)
    assert "svg" in reader.tags
    assert "script" not in reader.tags
    assert reader.outside == []
    for words in (
        "guessing baseline κ (probability)",
        "extraction (probability)",
        "bits)",
        "tolerated risk 0.1",
        "α* =",
    ):
        assert words in text
    assert "prefers-color-scheme: dark" in text


DOCS = Path(__file__).parents[2] / "docs" / "bounds.md"


def worked_examples():
    """``$ command`` lines in the document with the output that follows each, up to a blank line or the fence."""
    blocks = re.findall(r"```console\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)
    for block in blocks:
        for part in re.split(r"(?m)^\$ davylamp bounds ", block)[1:]:
            command, _, output = part.partition("\n")
            yield pytest.param(command, output.rstrip("\n"), id=command)


@pytest.mark.parametrize(("command", "expected"), list(worked_examples()))
def test_worked_examples_in_the_document(command, expected, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run(*command.split()).rstrip("\n") == expected
