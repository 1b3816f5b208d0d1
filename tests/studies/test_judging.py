"""Judging the rewrites of a run: which rows are shown, what is kept, and whether the judge is right."""

from __future__ import annotations

import json
import math
import re
import stat

import pytest

from davylamp.canaries import Manifest, Plan
from davylamp.corpora.records import Corpus
from davylamp.errors import InputError, RunFolderError
from davylamp.protect.corpus import registry
from davylamp.protect.corpus.judging import JudgeSpec
from davylamp.protect.corpus.registry import spec_of
from davylamp.runs import files
from davylamp.runs.folder import RunFolder
from davylamp.studies.judging import JudgeRequest, judge_forecast, judge_step
from davylamp.studies.protecting import ProtectRequest, protect_step
from davylamp.studies.steps import plant_step
from davylamp.verdict.judged import FILE, Judged
from support.chat_server import Reply, chat_server
from support.clinical_rows import clinical_records
from support.landscapes import landscape
from support.recipes import tiny_plan

pytest.importorskip("openai", reason="the extra 'server' is not installed")

RECORDS = tuple(clinical_records(60))
CORPUS = Corpus(RECORDS, "patients", files.sha256_bytes("".join(r.line() for r in RECORDS).encode()))
TEMPLATE = {"prompt": "Patient {name}, 41yo F. Medications: lisinopril; ", "completion": "{secret}."}
SPACE = {"alphabet": "abcdefgh", "length": 8, "separator": "", "prefix": "Vex"}
CODE = re.compile("Vex[a-h]{8}")
PLAN = tiny_plan(
    templates=[TEMPLATE], arms={"redacted": {"context": "redacted"}}, space=SPACE, per_dose=3, doses=[1, 2], seed=4
)


def away(text, rng):
    """Takes half of the secrets away, the same ones in every copy."""
    return CODE.sub(lambda code: code[0] if code[0][3] in "abcd" else "aspirin", text).replace("Patient", "Person")


@pytest.fixture
def folder(tmp_path):
    made = RunFolder(tmp_path / "run")
    plant_step(made, CORPUS, Plan.model_validate(PLAN))
    registry.intervention("away")(away)
    protect_step(made, ProtectRequest((spec_of({"name": "away"}),)))
    yield made
    registry.forget("away")


def grade(_number, body):
    """A judge that is right of canaries, and speaks in riddles of other rows."""
    shown = body["messages"][-1]["content"]
    before, after = shown.split("Original record:")[1].split("Rewritten record:")
    code = CODE.search(before)
    if code is None:
        return Reply("Quite good.")
    return Reply(f"quality: 3\nprivacy: {1 if code[0] in after else 5}")


def ask(folder, served, agreed=lambda _: True, **settings):
    spec = JudgeSpec(model="tiny", server=served.url, background=7, copies=1, **settings)
    return judge_step(folder, JudgeRequest(spec, agreed, cache=folder.path / "cache"))


def focus(folder):
    return [each for each in Manifest.load(folder.manifest).planted() if each.role == "focus"]


def test_a_judge_that_is_right_agrees_with_what_survives(folder):
    with chat_server(grade, ["tiny"]) as served:
        found = ask(folder, served)
        assert len(served.requests) == 6 + 7
        assert all(body["temperature"] == 0 for body in served.requests)
        again = ask(folder, served, agreed=None)
        assert len(served.requests) == 6 + 7
    assert (again.rows, again.agreements, again.usage) == (found.rows, found.agreements, {"answers from the cache": 13})
    assert found.unparsed == {"not two lines with a whole number from 1 to 5 each": 7}
    assert any("7 of 13 answers could not be read" in note for note in found.notes)
    left = sum(each.secret[3] in "abcd" for each in focus(folder))
    assert 0 < left < 6
    assert found.quality == 3
    assert found.privacy == pytest.approx((left + 5 * (6 - left)) / 6)
    own = {(each.score, each.outcome, each.dose): each for each in found.agreements}
    right = own["privacy", "secret survives", None]
    assert (right.n, right.rho, right.expected, right.method) == (6, pytest.approx(-1), "-", "exact")
    # Of C(6, k) ways to lay out the secrets that are left one is this one; of 3 and 3 its opposite is as far from 0.
    assert right.p == pytest.approx((2 if left == 3 else 1) / math.comb(6, left))
    assert own["privacy", "secret survives", 1].reason == "a rank correlation takes at least 4, not 3"
    assert own["quality", "secret survives", None].reason == "one of the two is the same for all"


def test_the_judgement_holds_no_text_and_is_for_its_owner(folder):
    with chat_server(grade, ["tiny"]) as served:
        found = ask(folder, served)
    path = folder.path / FILE
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert Judged.load(path) == found
    text = path.read_text(encoding="utf-8")
    assert not any(each.secret in text for each in focus(folder))
    assert "Medications" not in text
    control = {at for c in Manifest.load(folder.manifest).planted() if c.role == "positive" for at in c.positions}
    assert not control & {row.position for row in found.rows}


def test_nothing_is_sent_without_leave_or_by_a_dry_run(folder):
    with chat_server(grade, ["tiny"]) as served:
        with pytest.raises(InputError, match=r"13 records, each with its rewrite, go to .* \(NOT encrypted"):
            ask(folder, served, agreed=lambda _: False)
        spec = JudgeSpec(model="tiny", server=served.url, background=7, copies=1)
        told = judge_forecast(folder, JudgeRequest(spec, cache=folder.path / "cache"))
        assert (told.records, told.requests, told.cached) == (13, 13, 0)
        assert served.requests == []
    assert not (folder.path / FILE).exists()


def test_rows_that_are_not_protected_or_were_dropped_are_not_judged(folder):
    lines = folder.path / "protection_rows.jsonl"
    rows = [json.loads(line) for line in lines.read_text(encoding="utf-8").splitlines()]
    gone = focus(folder)[0].positions[0]
    rows = [each for each in rows if each["position"] != gone]
    rows.append({"position": gone, "note": "away: failed, drop", "spans": []})
    lines.write_text("".join(json.dumps(each) + "\n" for each in rows), encoding="utf-8")
    with chat_server(grade, ["tiny"]) as served:
        found = ask(folder, served)
    assert gone not in {row.position for row in found.rows}
    assert any("1 row in whose place another stands was not judged" in note for note in found.notes)
    (folder.path / "protection.json").unlink()
    (folder.path / "protected.jsonl").unlink()
    with chat_server(grade, ["tiny"]) as served, pytest.raises(RunFolderError, match="are protected"):
        ask(folder, served)


def test_the_model_of_these_rows_is_held_against_the_judge_and_no_other(folder):
    made, (leak, *_) = landscape(), [each for each in landscape().canaries if each.role == "focus"]
    manifest, protection = Manifest.load(folder.manifest), json.loads((folder.path / "protection.json").read_text())
    leaks = [
        # What is left in the rows is learnt: few nats, a high rank.
        leak.model_copy(
            update={
                "id": each.id,
                "dose": each.dose,
                "verbatim": 3.0 if each.secret[3] in "abcd" else 30.0 + at,
                "exposure": math.log2(leak.candidates),
                "rank": 1.0,
            }
        )
        for at, each in enumerate(focus(folder))
    ]
    made = made.model_copy(update={"planted_sha256": manifest.planted_sha256, "canaries": tuple(leaks)})
    made.save(folder.path / "landscape.json")
    training = {
        "model": {"name": "tiny", "sha256": "b" * 64},
        "spec": {},
        "trained_sha256": made.weights_sha256,
        "protection": {"protected_sha256": protection["protected_sha256"]},
    }
    folder.training.write_text(json.dumps(training))
    with chat_server(grade, ["tiny"]) as served:
        found = ask(folder, served)
        folder.training.write_text(json.dumps({**training, "trained_sha256": "0" * 64}))
        other = ask(folder, served)
    own = {(each.score, each.outcome, each.dose): each for each in found.agreements}
    assert own["privacy", "verbatim nats a token", None].rho > 0.8
    assert own["privacy", "exposure", None].reason == "one of the two is the same for all"
    assert found.landscape_sha256 == made.weights_sha256
    assert other.landscape_sha256 is None
    assert {each.outcome for each in other.agreements} <= {"secret survives", "name survives"}
    assert any("not of the model that was trained on these rows" in note for note in other.notes)
