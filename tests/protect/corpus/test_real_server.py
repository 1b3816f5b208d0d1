"""A real server of the OpenAI protocol on this machine: ``transformers serve`` with SmolLM2-135M."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from davylamp.errors import ModelError, ServerError
from davylamp.protect.corpus.base import Setting
from davylamp.protect.corpus.journal import rows_of
from davylamp.protect.corpus.registry import kind_of, spec_of
from davylamp.release.sources import resolve
from davylamp.runs.progress import QUIET
from support.clinical_rows import clinical_records

pytestmark = pytest.mark.slow

ROWS = rows_of(clinical_records(2), once=False)
PATIENCE = 240
"""Seconds for the server to load torch and the model."""


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A running server: its URL and the model's name there."""
    for package in ("openai", "fastapi", "uvicorn"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"the package {package} is not installed")
    try:
        model = str(resolve("smollm2").path)
    except ModelError as error:
        pytest.skip(str(error))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = tmp_path_factory.mktemp("serve") / "log"
    command = [str(Path(sys.executable).with_name("transformers")), "serve", model, "--host", "127.0.0.1"]
    with log.open("wb") as stream:
        process = subprocess.Popen(
            [*command, "--port", str(port), "--device", "cpu"],
            stdout=stream,
            stderr=stream,
            env={**os.environ, "HF_HUB_OFFLINE": "1"},
        )
    try:
        begun = time.monotonic()
        while time.monotonic() - begun < PATIENCE and process.poll() is None:
            with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2):
                break
            time.sleep(1)
        else:
            pytest.skip(f"transformers serve did not start: {log.read_text(errors='replace')[-500:]}")
        yield f"http://127.0.0.1:{port}/v1", model
    finally:
        process.terminate()
        process.wait(30)


def rewriter(served, tmp_path, **settings):
    url, model = served
    given = {"name": "privacy_rewrite", "server": url, "model": model, "max_tokens": 24, "timeout": 900, **settings}
    return kind_of("privacy_rewrite").build(spec_of(given), Setting(ROWS, 0, tmp_path, None, lambda _: True))


def test_a_real_server_answers_and_its_answers_are_kept(served, tmp_path):
    first = rewriter(served, tmp_path)
    made = sorted(first.apply(ROWS, QUIET), key=lambda each: each.position)
    # So few tokens hold no record: that is told, whatever such a small model writes.
    assert {each.note for each in made} <= {"truncated", "failed", "refused"}
    assert first.usage["requests"] == len(ROWS)
    assert first.usage["prompt tokens"] > 100 * len(ROWS)
    assert 0 < first.usage["completion tokens"] <= 24 * len(ROWS)
    again = rewriter(("http://127.0.0.1:9/v1", served[1]), tmp_path)
    assert again.forecast(ROWS).requests == len(ROWS)
    kept = rewriter(served, tmp_path)
    assert sorted(kept.apply(ROWS, QUIET), key=lambda each: each.position) == made
    assert kept.usage == {"answers from the cache": len(ROWS)}


def test_a_real_server_does_not_know_another_model(served, tmp_path):
    with pytest.raises(ServerError, match="no model 'another'"):
        list(rewriter(served, tmp_path, model="another").apply(ROWS, QUIET))
