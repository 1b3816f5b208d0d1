"""``davylamp protect``: settings for one and for several, what it says, and leave to send."""

from __future__ import annotations

import json
import sys

import pytest

from davylamp.canaries import Manifest
from davylamp.cli.main import main
from davylamp.protect.corpus import registry
from support.chat_server import Reply, chat_server
from support.clinical_rows import clinical_records
from support.recipes import tiny_plan, write_yaml

PATIENTS = clinical_records(60)
TEMPLATE = {
    "prompt": "Patient {name}, 41yo F. Address: 7 Elm Way, Boston, MA. SSN: 999-11-2345, DOB 1982-02-06. "
    "Active problems: Anemia. Medications: lisinopril 10 MG Oral Tablet; ",
    "completion": "{secret}.",
}
SPACE = {"alphabet": "abcdefgh", "length": 8, "separator": "", "prefix": "Vex"}


@pytest.fixture
def call(monkeypatch, capsys):
    """Calls the command; gives the exit code and what was said on both streams."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["davylamp", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        return int(ended.value.code or 0), said.out, said.err

    return run


@pytest.fixture
def run(tmp_path, call):
    data = tmp_path / "patients.jsonl"
    data.write_text("".join(record.line() + "\n" for record in PATIENTS), encoding="utf-8")
    arms = {"redacted": {"context": "redacted"}}
    plan = write_yaml(tmp_path / "plan.yaml", tiny_plan(templates=[TEMPLATE], arms=arms, space=SPACE))
    assert call("plant", data, "--plan", plan, "--out", tmp_path / "run")[0] == 0
    return tmp_path / "run"


def test_what_survives_is_a_table_by_dose(run, call):
    code, out, _ = call("protect", run, "--with", "surrogate", "common=4")
    assert code == 0
    assert "surrogate: 55 different rows" in out
    assert (
        "dose 1: the secret survives in 0 of 2 copies exactly, in 0 of 2 exactly or nearly; the name in 0 of 2" in out
    )
    assert "5 rows of the positive control were left as they were" in out
    code, out, _ = call("protect", run, "--with", "surrogate", "--json")
    assert code == 0
    assert json.loads(out)["steps"][0]["settings"]["common"] == 5


def test_settings_of_several_are_told_apart_by_name_or_number(run, call):
    code, _, err = call("protect", run, "--with", "surrogate", "--with", "surrogate", "common=4")
    assert code == 2
    assert "one that begins with surrogate. or 1., surrogate. or 2." in err
    code, out, _ = call(
        "protect", run, "--with", "surrogate", "--with", "surrogate", "2.seed=9", "surrogate.common=4", "--json"
    )
    steps = json.loads(out)["steps"]
    assert [(step["settings"]["common"], step["settings"]["seed"]) for step in steps] == [(4, None), (4, 9)]


def test_a_file_holds_interventions_as_a_recipe_does(run, call, tmp_path):
    spec = write_yaml(tmp_path / "how.yaml", {"protect": ["surrogate", {"name": "surrogate", "once": True}]})
    code, out, _ = call("protect", run, "--spec", spec, "1.common=4", "--json")
    assert code == 0
    assert [step["settings"]["once"] for step in json.loads(out)["steps"]] == [False, True]
    for arguments in (("--spec", spec, "--with", "surrogate"), ()):
        code, _, err = call("protect", run, *arguments)
        assert code == 2
        assert "--with" in err
    write_yaml(spec, {"protect": []})
    assert call("protect", run, "--spec", spec)[0] == 2


def test_a_row_is_shown_with_marks_and_without_secret_or_control_characters(run, call):
    @registry.intervention("bell")
    def bell(text, _rng):
        return text.replace("Boston", "Bos\x1b[31mton")

    try:
        call("protect", run, "--with", "bell")
    finally:
        registry.forget("bell")
    canary = next(each for each in Manifest.load(run / "manifest.json").planted() if each.role == "focus")
    code, out, _ = call("protect", run, "--show", canary.positions[0])
    assert code == 0
    assert f"(canary {canary.id})" in out
    assert "\x1b" not in out
    assert canary.secret not in out
    assert "[-Boston-]" in out
    assert canary.secret in call("protect", run, "--show", canary.positions[0], "--reveal")[1]


def test_nothing_leaves_without_yes(run, call, monkeypatch, tmp_path):
    pytest.importorskip("openai")
    monkeypatch.setenv("DAVYLAMP_CACHE", str(tmp_path / "cache"))
    with chat_server(lambda *_: Reply(PATIENTS[0].reply), ["tiny"]) as served:
        asked = ("protect", run, "--with", "rewrite", f"server={served.url}", "model=tiny")
        code, out, _ = call(*asked, "--dry-run")
        assert code == 0
        assert "55 records go to 127.0.0.1:" in out
        code, _, err = call(*asked)
        assert code == 2
        assert err.count("55 records go to") == 1
        assert served.requests == []
        assert not (run / "protection.json").exists()
        code, out, err = call(*asked, "--yes")
        assert code == 0
        assert err.count("55 records go to") == 1
        assert "55 requests" in out
        assert len(served.requests) == 55
        code, out, err = call(*asked)
        # Everything is there already: nothing is sent, and no leave is needed.
        assert code == 0
        assert len(served.requests) == 55
    code, out, _ = call("protect", run, "--with", "surrogate", "--dry-run")
    assert "nothing would be sent" in out


def test_rows_that_fail_are_counted_and_what_took_their_place_is_said(run, call, monkeypatch, tmp_path):
    pytest.importorskip("openai")
    monkeypatch.setenv("DAVYLAMP_CACHE", str(tmp_path / "cache"))
    with chat_server(lambda number, _: Reply("" if number % 2 else PATIENTS[0].reply)) as served:
        asked = ("protect", run, "--with", "rewrite", f"server={served.url}", "model=tiny", "--yes")
        code, _, err = call(*asked)
        assert code == 2
        assert "rewrite failed for 27 of 55 rows (27 failed: an empty answer)" in err
        code, out, _ = call(*asked, "on_failure=surrogate")
        assert code == 0
        assert "27 failed (27 an empty answer); taken in their place: surrogate" in out
        assert "28 were done before" in out
        assert "27 answers from the cache" in out
        assert len(served.requests) == 55


def test_what_does_not_fit_says_so(run, call):
    assert "'wash'" in call("protect", run, "--with", "wash")[2]
    assert "no run folder" in call("protect", run / "no", "--with", "surrogate")[2]
    assert (
        "surrogate.common is 0; allowed: greater than or equal to 2"
        in call("protect", run, "--with", "surrogate", "common=0")[2]
    )


def test_a_file_with_what_is_no_intervention_says_which(run, call, tmp_path):
    spec = write_yaml(tmp_path / "how.yaml", {"protect": [3, "surrogate", None]})
    for arguments in ((), ("surrogate.common=4",)):
        code, _, err = call("protect", run, "--spec", spec, *arguments)
        assert code == 2
        assert "protect.0 is 3" in err
        assert "protect.2 is None" in err


def test_faults_of_several_interventions_are_named_at_once(run, call, tmp_path):
    pytest.importorskip("faker")
    code, _, err = call(
        *("protect", run, "--with", "surrogate", "--with", "rewrite", "--with", "wash", "--with", "scrub"),
        *("surrogate.common=1", "rewrite.temprature=1", "2.prompts=no.md", "scrub.locale=xx_YY", "scrub.threshold=2"),
        *("common=4", "1.seed.x=2"),
    )
    assert code == 2
    for part in (
        "surrogate.common is 1",
        "rewrite.temprature is 1; allowed: no such key. Did you mean 'temperature'? Known here: attempts, ",
        "rewrite.model is '(missing)'",
        "rewrite.prompts is 'no.md'",
        "--with is 'wash'; allowed: one of",
        "scrub.locale is 'xx_YY'",
        "scrub.threshold is 2",
        "setting is 'common=4'; allowed: one that begins with surrogate. or 1., rewrite. or 2., wash. or 3., scrub.",
    ):
        assert part in err, part
    assert not (run / ".protect").exists()
    # Of two that are called the same, each is named by its number.
    code, _, err = call("protect", run, "--with", "surrogate", "--with", "surrogate", "2.common=1", "1.once=perhaps")
    assert code == 2
    assert "1.once is 'perhaps'" in err
    assert "2.common is 1" in err


@pytest.mark.parametrize("held", [{}, {"protect": None}, {"protect": []}, {"protect": "scrub"}, {"protct": ["scrub"]}])
def test_a_file_without_a_list_says_what_a_list_is(run, call, tmp_path, held):
    spec = write_yaml(tmp_path / "how.yaml", held)
    code, _, err = call("protect", run, "--spec", spec)
    assert code == 2
    assert "allowed: a list of interventions (privacy_rewrite, " in err


def test_a_damaged_note_of_rows_is_said_and_no_traceback(run, call):
    assert call("protect", run, "--with", "surrogate")[0] == 0
    for damaged in (b'{"position": 3, "no', b"\xff\n", b"[]\n", b"{}\n"):
        (run / "protection_rows.jsonl").write_bytes(damaged)
        code, _, err = call("protect", run, "--show", 3)
        assert code == 2
        assert "protection_rows.jsonl is damaged" in err
