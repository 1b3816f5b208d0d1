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
