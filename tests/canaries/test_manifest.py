from __future__ import annotations

import json
import stat
import traceback

import pytest

from davylamp.canaries import Manifest, plant
from davylamp.errors import ManifestError
from davylamp.runs.files import sha256_file
from support.corpora import small_corpus, small_plan


@pytest.fixture
def saved(tmp_path):
    planted = plant(small_corpus(), small_plan())
    planted.save(tmp_path)
    return tmp_path, planted.manifest


def test_only_its_owner_may_read_it(saved):
    folder, _ = saved
    assert stat.S_IMODE((folder / "manifest.json").stat().st_mode) == 0o600


def test_it_comes_back_as_it_was_written(saved):
    folder, manifest = saved
    assert Manifest.load(folder / "manifest.json") == manifest
    again = folder / "again.json"
    manifest.save(again)
    assert again.read_bytes() == (folder / "manifest.json").read_bytes()


def test_it_says_what_is_needed_to_find_every_canary_without_davylamp(saved):
    folder, _ = saved
    data = json.loads((folder / "manifest.json").read_text("utf-8"))
    rows = [json.loads(line) for line in (folder / "planted.jsonl").read_text("utf-8").splitlines()]
    assert data["schema_version"] == 1
    assert data["planted_sha256"] == sha256_file(folder / "planted.jsonl")
    assert data["corpus"]["sha256"] == small_corpus().sha256
    for canary in data["canaries"]:
        reply = canary["secret"].join(canary["carrier"]["completion"])
        assert canary["positions"] == [at for at, row in enumerate(rows) if row["completion"] == reply]


def test_a_missing_manifest_says_what_makes_one(tmp_path):
    with pytest.raises(ManifestError, match="davylamp plant"):
        Manifest.load(tmp_path / "manifest.json")


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"[1]", b"null", b'"x"', b"[" * 200_000])
def test_damage_is_a_typed_error(tmp_path, content):
    (tmp_path / "m.json").write_bytes(content)
    with pytest.raises(ManifestError):
        Manifest.load(tmp_path / "m.json")


@pytest.mark.parametrize("version", [0, 2, "1", None])
def test_another_schema_is_refused_by_its_number(saved, version):
    folder, _ = saved
    path = folder / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text("utf-8")), "schema_version": version}), "utf-8")
    with pytest.raises(ManifestError, match="schema"):
        Manifest.load(path)


def test_a_damaged_canary_is_named_without_its_secret_even_in_a_traceback(saved):
    folder, manifest = saved
    path = folder / "manifest.json"
    data = json.loads(path.read_text("utf-8"))
    data["canaries"][3]["dose"] = 99
    data["canaries"][4]["secret"] = [manifest.canaries[4].secret]
    path.write_text(json.dumps(data), "utf-8")
    with pytest.raises(ManifestError, match=r"canaries\.3.*canaries\.4\.secret") as caught:
        Manifest.load(path)
    shown = "".join(traceback.format_exception(caught.value))
    assert not any(canary.secret in shown for canary in manifest.canaries)


def test_a_changed_planted_file_is_noticed(saved):
    folder, manifest = saved
    path = folder / "planted.jsonl"
    manifest.check_planted(path)
    path.write_text(path.read_text("utf-8").replace("indeed", "Indeed", 1), "utf-8")
    with pytest.raises(ManifestError, match="changed after planting"):
        manifest.check_planted(path)
    path.unlink()
    with pytest.raises(ManifestError, match="no planted file"):
        manifest.check_planted(path)


def test_what_training_showed(saved):
    _, manifest = saved
    for canary in manifest.canaries:
        expected = canary.secret if canary.context == "visible" else manifest.mask
        assert manifest.shown_in_training(canary) == expected
        assert expected in manifest.trained_record(canary).prompt[0].content


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data["space"].update(alphabet="abcdefghij"),
        lambda data: data.update(mask="another"),
        lambda data: data.update(canaries=[]),
        lambda data: data.update(canaries=[*data["canaries"], data["canaries"][0]]),
        lambda data: data.update(canaries=[each for each in data["canaries"] if each["role"] != "twin"]),
        lambda data: data.update(canaries=[each for each in data["canaries"] if each["arm"] != "visible"]),
        lambda data: data.update(rows=1),
    ],
)
def test_canaries_that_do_not_fit_the_rest_are_damage(saved, change):
    folder, manifest = saved
    path = folder / "manifest.json"
    data = json.loads(path.read_text("utf-8"))
    change(data)
    path.write_text(json.dumps(data), "utf-8")
    with pytest.raises(ManifestError, match="is damaged at: canaries") as caught:
        Manifest.load(path)
    shown = "".join(traceback.format_exception(caught.value))
    assert not any(canary.secret in shown for canary in manifest.canaries)


def test_encodings_schedules_and_auxiliary_canaries_come_back_as_they_were_written(tmp_path):
    plan = small_plan(
        arms={
            "bits": {"context": "encoded", "encoding": "binary", "schedule": {"window": "late", "spacing": 1}},
            "turned": {"context": "encoded", "encoding": "block_reversal(2)+cyclic_shift(1)"},
        },
        schedule={"window": "1/3", "spread": "concentrated"},
        auxiliary={"doses": [2], "per_dose": 2, "schedule": {"window": [0.4, 0.9]}},
        repeat=2,
        rows_per_update=4,
    )
    planted = plant(small_corpus(), plan)
    planted.save(tmp_path)
    back = Manifest.load(tmp_path / "manifest.json")
    assert back == planted.manifest
    assert back.plan == plan
    names = {canary.arm: canary.encoding for canary in back.canaries}
    assert names == {"bits": "binary", "turned": "block_reversal(2) + cyclic_shift(1)", "control": None}
    again = plant(small_corpus(), back.plan)
    assert again.records == planted.records


OLD = {
    "schema_version": 1,
    "davylamp_version": "0.1.0",
    "plan": {
        "version": 1,
        "seed": 0,
        "rows": None,
        "shuffle": True,
        "space": {"alphabet": "0123456789", "length": 4, "separator": ",", "prefix": ""},
        "templates": [
            {
                "prompt": "pls tell {name} their ref {secret} now",
                "completion": "Dear {name}, ref {secret}.",
                "system": None,
            }
        ],
        "slots": {"name": "names"},
        "mask": "[redacted]",
        "arms": {"visible": {"context": "visible"}},
        "doses": [1],
        "per_dose": 1,
        "twins": 1,
        "positive": {"dose": 2},
    },
    "corpus": {
        "source": "small",
        "sha256": "5bfd8cb8ef209078a911ce086b6788bc792e6337f927c30fb4d9f3308563909b",
        "rows": 30,
        "shape": "prompt_completion",
        "left_out": [],
    },
    "rows": 30,
    "planted_sha256": "8f86062357b41507971f8a6da462ce24428b7574b6f6f1ddfaa4ff347d90f933",
    "space": {"alphabet": "0123456789", "length": 4, "separator": ",", "prefix": ""},
    "mask": "[redacted]",
    "canaries": [
        {
            "id": f"c000{number}",
            "role": role,
            "arm": arm,
            "context": context,
            "dose": len(positions),
            "secret": secret,
            "replacement": replacement,
            "carrier": {
                "prompt": [f"pls tell {name} their ref ", " now"],
                "completion": [f"Dear {name}, ref ", "."],
                "system": None,
            },
            "positions": positions,
        }
        for number, (role, arm, context, secret, replacement, name, positions) in enumerate(
            [
                ("focus", "visible", "visible", "1,1,3,6", "9,1,2,1", "Jonas Kelley", [13]),
                ("twin", "visible", "visible", "5,8,0,3", "2,7,4,6", "Alma Redgate", []),
                ("positive", "control", "redacted", "0,2,2,9", "8,2,3,4", "Samir Kelhill", [5, 29]),
            ]
        )
    ],
}
"""A manifest as commit 4b4d0da wrote it, before there were encodings, schedules and auxiliary canaries."""


def test_a_manifest_of_before_the_axes_is_still_read_and_describes_the_same_file(tmp_path):
    path = tmp_path / "manifest.json"
    path.write_text(json.dumps(OLD), "utf-8")
    manifest = Manifest.load(path)
    assert [canary.encoding for canary in manifest.canaries] == [None] * 3
    assert manifest.plan.schedule.anywhere
    assert manifest.plan.auxiliary is None
    assert manifest.measured() == list(manifest.canaries)
    again = plant(small_corpus(30), manifest.plan).manifest
    assert again.model_copy(update={"davylamp_version": manifest.davylamp_version}) == manifest


@pytest.mark.parametrize(
    "change",
    [
        lambda canary: canary.update(context="encoded"),
        lambda canary: canary.update(encoding="binary"),
        lambda canary: canary.update(role="unseen"),
    ],
)
def test_a_canary_whose_context_does_not_fit_is_damage(saved, change):
    folder, _ = saved
    path = folder / "manifest.json"
    data = json.loads(path.read_text("utf-8"))
    change(data["canaries"][0])
    path.write_text(json.dumps(data), "utf-8")
    with pytest.raises(ManifestError, match="is damaged at: canaries"):
        Manifest.load(path)
