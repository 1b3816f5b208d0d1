from __future__ import annotations

import errno
import json
import os
import stat
import subprocess
import sys
import threading

import pytest

from davylamp.errors import InputError, StorageError
from davylamp.runs import files


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_bytes_text_and_json_come_back_and_make_their_folder(tmp_path):
    files.write_bytes(tmp_path / "a" / "b", b"\x00\r\n")
    files.write_text(tmp_path / "t", "é\r\n漢\n")
    files.write_json(tmp_path / "j", {"b": 1, "a": "ü"})
    assert (tmp_path / "a" / "b").read_bytes() == b"\x00\r\n"
    assert (tmp_path / "t").read_bytes() == "é\r\n漢\n".encode()
    assert list(json.loads((tmp_path / "j").read_text("utf-8"))) == ["b", "a"]
    assert files.sha256_file(tmp_path / "t") == files.sha256_bytes("é\r\n漢\n".encode())


@pytest.mark.parametrize("mask", [0o022, 0o077])
def test_a_private_file_is_its_owners_whatever_the_umask_and_others_follow_it(tmp_path, mask):
    old = os.umask(mask)
    try:
        files.write_bytes(tmp_path / "private", b"x", private=True)
        files.write_bytes(tmp_path / "open", b"x")
    finally:
        os.umask(old)
    assert mode(tmp_path / "private") == 0o600
    assert mode(tmp_path / "open") == 0o666 & ~mask


def test_a_private_file_is_never_open_while_it_is_written(tmp_path):
    seen = []
    files.write_with(tmp_path / "secret", lambda path: seen.append(mode(path)), private=True)
    assert seen == [0o600]


def test_a_private_file_takes_the_place_of_an_open_one(tmp_path):
    path = tmp_path / "m"
    files.write_bytes(path, b"open")
    files.write_bytes(path, b"closed", private=True)
    assert (mode(path), path.read_bytes()) == (0o600, b"closed")


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), ValueError("not mine"), KeyboardInterrupt()])
def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path, error):
    path = tmp_path / "f"
    files.write_bytes(path, b"old")

    def half(temporary):
        temporary.write_bytes(b"ha")
        raise error

    with pytest.raises(StorageError if isinstance(error, OSError) else type(error)) as caught:
        files.write_with(path, half)
    assert path.read_bytes() == b"old"
    assert [each.name for each in tmp_path.iterdir()] == ["f"]
    if isinstance(error, OSError):
        assert "No space left on device" in str(caught.value)
        assert str(path) in str(caught.value)
        assert "nothing was left half-written" in str(caught.value)


def test_a_full_disk_is_said_and_leaves_the_old_file(tmp_path):
    # A limit on the size of files makes the system refuse the write as a full disk would.
    code = (
        "import resource, sys; from pathlib import Path; from davylamp.runs import files;"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096));"
        "files.write_bytes(Path(sys.argv[1]), b'x' * 100_000)"
    )
    path = tmp_path / "f"
    path.write_bytes(b"old")
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=False)
    assert "StorageError: cannot write" in done.stderr
    assert path.read_bytes() == b"old"
    assert [each.name for each in tmp_path.iterdir()] == ["f"]


def test_a_file_in_the_place_of_a_folder_is_a_storage_error(tmp_path):
    (tmp_path / "f").write_bytes(b"")
    with pytest.raises(StorageError, match="cannot write"):
        files.write_bytes(tmp_path / "f" / "g", b"x")
    with pytest.raises(StorageError, match="cannot read"):
        files.sha256_file(tmp_path / "none")


def test_a_reader_never_sees_a_half_written_file(tmp_path):
    path, stop, seen = tmp_path / "f", threading.Event(), set()
    files.write_bytes(path, b"a" * 200_000)

    def read():
        while not stop.is_set():
            content = path.read_bytes()
            seen.add((len(content), len(set(content))))

    reader = threading.Thread(target=read)
    reader.start()
    for letter in (b"b", b"a") * 10:
        files.write_bytes(path, letter * 200_000)
    stop.set()
    reader.join()
    assert seen == {(200_000, 1)}


def test_json_refuses_what_json_cannot_hold():
    with pytest.raises(ValueError, match="JSON"):
        files.json_bytes({"x": float("nan")})


def test_a_file_name_that_is_not_utf8_is_written_out(tmp_path):
    files.write_json(tmp_path / "j", {"source": "bad\udcff.jsonl"})
    assert files.read_json(tmp_path / "j") == {"source": "bad\\udcff.jsonl"}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "Expecting value"),
        (b"[]", "no JSON object"),
        (b"5", "no JSON object"),
        (b"null", "no JSON object"),
        (b"\xff", "utf-8"),
        (b"[" * 200_000, "nested too deeply"),
    ],
)
def test_what_is_no_json_object_is_a_value_error(tmp_path, content, said):
    (tmp_path / "j").write_bytes(content)
    with pytest.raises(ValueError, match=said):
        files.read_json(tmp_path / "j")


@pytest.mark.parametrize("text", ['{"a": NaN}', '{"a": [Infinity]}', '{"a": {"b": -Infinity}}'])
def test_a_file_that_holds_no_number_where_one_stands_is_damaged(tmp_path, text):
    path = tmp_path / "result.json"
    path.write_text(text, "utf-8")
    with pytest.raises(ValueError, match="no number"):
        files.read_json(path)


def test_a_file_that_an_option_names_is_no_folder_and_lies_in_one(tmp_path):
    (tmp_path / "taken").write_text("x")
    assert files.file_named("--out", tmp_path / "new" / "mine.json", "usual.json") == tmp_path / "new" / "mine.json"
    assert files.file_named("--out", tmp_path / "taken", "usual.json") == tmp_path / "taken"
    with pytest.raises(InputError, match=r"usual\.json") as caught:
        files.file_named("--out", tmp_path, "usual.json")
    assert (caught.value.faults[0].field, caught.value.faults[0].value) == ("--out", str(tmp_path))
    with pytest.raises(InputError, match="taken is a file"):
        files.file_named("--out", tmp_path / "taken" / "a" / "mine.json", "usual.json")


def test_space_is_asked_for_only_where_there_is_none(tmp_path):
    (tmp_path / "folder").mkdir()
    with pytest.raises(StorageError, match=r"nothing was left half-written\. Choose another place"):
        files.write_bytes(tmp_path / "folder", b"x")

    def full(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(StorageError, match="Free some space"):
        files.write_with(tmp_path / "file", full)
