"""``python -m davylamp`` is the command."""

from __future__ import annotations

import subprocess
import sys

from davylamp import __version__


def test_the_module_is_the_command(tmp_path):
    def call(*arguments):
        return subprocess.run(
            [sys.executable, "-m", "davylamp", *arguments], cwd=tmp_path, capture_output=True, text=True, check=False
        )

    assert call("--version").stdout == f"davylamp {__version__}\n"
    refused = call("train", "nowhere")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "no run folder nowhere" in refused.stderr
