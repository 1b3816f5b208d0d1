from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import time

import pytest

from davylamp.errors import RunFolderError, StorageError
from davylamp.runs.folder import RunFolder, digest, locked, replaced_folder

HOLD = (
    "import sys, time; from pathlib import Path; from davylamp.runs.folder import locked\n"
    "with locked(Path(sys.argv[1])):\n    print('held', flush=True); time.sleep(60)"
)


@pytest.fixture
def holder(tmp_path):
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def test_a_second_process_is_refused_and_told_what_to_do(tmp_path, holder):
    begun = time.monotonic()
    with pytest.raises(RunFolderError, match=r"in use by another davylamp.*--out"), locked(tmp_path):
        pass
    assert time.monotonic() - begun < 5


def test_the_lock_falls_with_a_killed_process(tmp_path, holder):
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait()
    with locked(tmp_path):
        pass


def test_the_lock_falls_with_its_block_also_after_an_error(tmp_path):
    with pytest.raises(ZeroDivisionError), locked(tmp_path):
        _ = 1 / 0
    with locked(tmp_path):
        pass


def test_a_folder_that_must_exist_is_not_made(tmp_path):
    with pytest.raises(RunFolderError, match="davylamp plant"), locked(tmp_path / "typo", make=False):
        pass
    assert not list(tmp_path.iterdir())
    with locked(tmp_path / "new"):
        assert (tmp_path / "new").is_dir()


def test_a_file_is_no_folder(tmp_path):
    (tmp_path / "f").write_bytes(b"")
    for make in (True, False):
        with pytest.raises((StorageError, RunFolderError), match="f"), locked(tmp_path / "f", make=make):
            pass


def test_a_step_is_done_with_its_key_and_its_files_only(tmp_path):
    folder, output = RunFolder(tmp_path), tmp_path / "out"
    assert not folder.is_done("plant", {"a": 1}, [output])
    folder.finish("plant", {"a": 1})
    assert not folder.is_done("plant", {"a": 1}, [output])
    output.write_bytes(b"")
    assert folder.is_done("plant", {"a": 1}, [output])
    assert not folder.is_done("plant", {"a": 2}, [output])
    assert not folder.is_done("train", {"a": 1}, [output])


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b"null", b"\xff", b'{"key": 3}'])
def test_a_damaged_stamp_is_no_stamp(tmp_path, damage):
    folder = RunFolder(tmp_path)
    folder.finish("plant", {"a": 1})
    for stamp in (tmp_path / ".steps").iterdir():
        stamp.write_bytes(damage)
    assert not folder.is_done("plant", {"a": 1}, [])


def test_a_key_is_told_by_its_content_and_not_its_order():
    assert digest({"a": 1, "b": [1, 2]}) == digest({"b": [1, 2], "a": 1})
    assert len({digest(key) for key in ({}, {"a": 1}, {"a": "1"}, {"a": None}, {"b": 1}, {"a": [1]})}) == 6


def test_a_folder_is_replaced_whole(tmp_path):
    target = tmp_path / "model"
    for content in ("one", "two"):
        with replaced_folder(target) as place:
            (place / content).write_text(content, "utf-8")
    assert [path.name for path in target.iterdir()] == ["two"]
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), ValueError("x")])
def test_a_folder_that_cannot_be_filled_leaves_the_old_one(tmp_path, error):
    target = tmp_path / "model"
    with replaced_folder(target) as place:
        (place / "weights").write_bytes(b"old")
    expected = StorageError if isinstance(error, OSError) else ValueError
    with pytest.raises(expected), replaced_folder(target) as place:  # noqa: PT012
        (place / "weights").write_bytes(b"ne")
        raise error
    assert (target / "weights").read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_a_process_killed_while_filling_leaves_the_old_folder(tmp_path):
    code = (
        "import os, sys; from pathlib import Path; from davylamp.runs.folder import replaced_folder\n"
        "with replaced_folder(Path(sys.argv[1])) as place:\n"
        "    (place / 'weights').write_bytes(b'ne'); os.kill(os.getpid(), 9)"
    )
    target = tmp_path / "model"
    target.mkdir()
    (target / "weights").write_bytes(b"old")
    done = subprocess.run([sys.executable, "-c", code, str(target)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert (target / "weights").read_bytes() == b"old"


@pytest.mark.parametrize("mask", [0o022, 0o077])
def test_a_folder_has_the_permissions_that_the_user_gives(tmp_path, mask):
    old = os.umask(mask)
    try:
        with replaced_folder(tmp_path / "model"):
            pass
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "model").stat().st_mode) == 0o777 & ~mask


def test_a_folder_whose_name_is_not_utf8_is_refused_before_any_work(tmp_path):
    with pytest.raises(RunFolderError, match="not UTF-8"), locked(tmp_path / "bad\udcff"):
        pass
    assert list(tmp_path.iterdir()) == []
