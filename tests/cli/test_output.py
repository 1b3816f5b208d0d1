"""How results and messages reach a person or a program, whatever standard output is."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys

import pytest

from davylamp.cli.main import main
from davylamp.cli.output import emit, emit_json, emit_verdict
from davylamp.errors import StorageError
from support.reports import Case, write_run

FULL = "/dev/full"


def caught(monkeypatch, encoding, write):
    """What ``write`` puts on a standard output of that encoding, as bytes."""
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding=encoding, newline=""))
    write()
    return raw.getvalue()


@pytest.mark.parametrize("encoding", ["utf-8", "ascii", "latin-1"])
def test_json_is_whole_in_every_encoding(monkeypatch, encoding):
    value = {"a": "é 中 😀", "b": "\x1b[31m\u202e", "c": "bad\udcff"}
    said = caught(monkeypatch, encoding, lambda: emit_json(value))
    assert json.loads(said.decode("utf-8" if encoding == "utf-8" else "ascii")) == value
    assert b"\x1b" not in said


def test_lines_are_whole_in_every_encoding_and_hold_no_half_characters(monkeypatch):
    assert caught(monkeypatch, "utf-8", lambda: emit(["中", "bad\udcff"])).decode() == "中\nbad\ufffd\n"
    assert caught(monkeypatch, "ascii", lambda: emit(["中"])) == b"\\u4e2d\n"


def test_a_closed_standard_output_is_no_fault(monkeypatch, tmp_path):
    from davylamp.verdict import Verdict

    verdict = Verdict.load(write_run(tmp_path, Case()).verdict)
    monkeypatch.setattr(sys, "stdout", None)
    emit_json({})
    emit(["x"])
    emit_verdict(verdict, "x")


@pytest.mark.skipif(not os.path.exists(FULL), reason="no device that is always full")  # noqa: PTH110
def test_a_full_standard_output_is_said_and_does_not_fail_again_at_exit():
    code = "from davylamp.cli.output import emit\nfrom davylamp.errors import StorageError\ntry: emit(['x'])\n"
    code += "except StorageError as error: print(error, file=__import__('sys').stderr)"
    with open(FULL, "w") as full:  # noqa: PTH123
        done = subprocess.run([sys.executable, "-c", code], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 0
    assert done.stderr == "cannot write to standard output: No space left on device\n"
    assert issubclass(StorageError, OSError)


def test_ctrl_c_is_one_line_and_the_code_of_shells(monkeypatch, capsys, tmp_path):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("davylamp.report.data.collect", interrupt)
    monkeypatch.setattr(sys, "argv", ["davylamp", "report", str(tmp_path)])
    with pytest.raises(SystemExit) as ended:
        main()
    out, err = capsys.readouterr()
    assert ended.value.code == 130
    assert out == ""
    assert err == "interrupted: nothing was left half-written, and the same command can be run again\n"


def test_the_command_line_is_up_before_numpy_is():
    # Ctrl-C while it is imported, before the command can catch it, would show a traceback.
    code = "import sys, davylamp.cli.main; print(sorted({'numpy', 'scipy', 'polars', 'torch'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ("audit", "{long}"),
        ("report", "{long}"),
        ("run", "{long}"),
        ("run", "demo", "--data", "{long}"),
        ("plant", "{long}.csv", "--plan", "{long}", "--out", "{long}"),
        ("kappa", "--model", "{long}", "--prefix", "a", "--length", "1"),
        ("bounds", "--epsilon", "1", "--risk", "0.1", "--plot", "{long}"),
    ],
)
def test_a_path_that_the_system_refuses_to_look_at_is_bad_input(monkeypatch, capsys, tmp_path, arguments):
    long = str(tmp_path / ("x" * 300))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["davylamp", *(each.format(long=long) for each in arguments)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    err = capsys.readouterr().err
    assert "File name too long" in err
    assert len(err.splitlines()) == 1


def test_debug_shows_where_a_path_was_refused(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "argv", ["davylamp", "--debug", "report", str(tmp_path / ("x" * 300))])
    with pytest.raises(OSError, match="File name too long"):
        main()
