"""Makes ``tests/support`` importable as ``support`` from every test; the command line as a fixture."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

# No test may depend on what the hub answers; both libraries read these when they are imported.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_OFFLINE", "1")

# At the end, so that a folder of tests never hides a module of the standard library (tests/secrets).
sys.path.append(str(Path(__file__).parent))


@pytest.fixture
def davylamp(monkeypatch, capsys):
    """Runs the command as its entry point does; returns exit code, standard output and standard error."""
    from davylamp.cli.main import main

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["davylamp", *map(str, arguments)])
        capsys.readouterr()
        try:
            main()
            code = 0
        except SystemExit as end:
            code = end.code or 0
        out, err = capsys.readouterr()
        return code, out, err

    return call
