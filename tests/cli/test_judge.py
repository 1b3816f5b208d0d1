"""``davylamp judge``: leave to send, what it prints, and bad input."""

from __future__ import annotations

import json

import pytest

from support.chat_server import Reply, chat_server
from support.clinical_rows import clinical_records
from support.recipes import tiny_plan, write_yaml

pytest.importorskip("openai", reason="the extra 'server' is not installed")


@pytest.fixture
def run(davylamp, tmp_path, monkeypatch):
    monkeypatch.setenv("DAVYLAMP_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    data = tmp_path / "patients.jsonl"
    data.write_text("".join(record.line() + "\n" for record in clinical_records(60)), encoding="utf-8")
    template = {"prompt": "Patient {name}, 41yo F. Medications: lisinopril; ", "completion": "{secret}."}
    space = {"alphabet": "abcdefgh", "length": 8, "separator": "", "prefix": "Vex"}
    arms = {"redacted": {"context": "redacted"}}
    plan = write_yaml(tmp_path / "plan.yaml", tiny_plan(templates=[template], arms=arms, space=space))
    assert davylamp("plant", data, "--plan", plan, "--out", tmp_path / "run")[0] == 0
    assert davylamp("protect", tmp_path / "run", "--with", "surrogate")[0] == 0
    return tmp_path / "run"


def test_a_judge_is_asked_with_leave_only_and_checked(davylamp, run):
    with chat_server(lambda number, _: Reply(f"quality: 4\nprivacy: {1 + number % 5}"), ["tiny"]) as served:
        asked = ("judge", run, "model=tiny", f"server={served.url}", "background=3", "copies=1")
        code, _, err = davylamp(*asked)
        assert (code, served.requests) == (2, [])
        assert "7 records, each with its rewrite, go to" in err
        assert "--yes" in err
        code, out, _ = davylamp(*asked, "--dry-run")
        assert (code, served.requests) == (0, [])
        assert "in 7 requests" in out
        assert "the environment variable OPENAI_API_KEY, for the key, is NOT set" in out
        code, out, _ = davylamp(*asked, "--dry-run", "--json")
        assert [(each["key_env"], each["key"]) for each in json.loads(out)["dry_run"]] == [
            ("OPENAI_API_KEY", "not set")
        ]
        code, out, err = davylamp(*asked, "--yes")
        assert code == 0, err
        assert "7 of 7 rows have scores" in out
        assert "mean quality 4.00, mean privacy" in out
        assert "privacy with secret survives: no correlation (4 canaries of all doses)" in out
        assert "no model is held against the judge" in out
        code, out, _ = davylamp(*asked, "--json")
        assert (code, len(served.requests)) == (0, 7)
        assert json.loads(out)["usage"] == {"answers from the cache": 7}
    code, _, err = davylamp("judge", run, "copies=0", "temprature=1", "prompts=no.md", "server=ftp://x")
    assert code == 2
    for said in (
        "judge.model is '(missing)'",
        "judge.copies is 0",
        "judge.temprature is 1; allowed: no such key. Did you mean 'temperature'?",
        "judge.prompts is 'no.md'",
        "judge.server is 'ftp://x'; allowed: a base URL",
    ):
        assert said in err
