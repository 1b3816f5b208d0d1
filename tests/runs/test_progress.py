"""Progress where there is no terminal."""

from __future__ import annotations

import pytest

from davylamp.runs import progress


@pytest.fixture
def clock(monkeypatch):
    """A clock that is turned by hand."""
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def test_a_long_task_says_now_and_then_how_far_it_is(capsys, clock):
    with progress.Reporter().task("shadows", 4) as advance:
        clock[0] = 1.0
        advance(1)
        assert capsys.readouterr().err == ""
        clock[0] = 90.0
        advance(1)
        assert capsys.readouterr().err == "shadows: 2 of 4 in 90 s, about 90 s left\n"
        clock[0] = 100.0
        advance(1)
        assert capsys.readouterr().err == ""


def test_who_asked_for_quiet_has_it(capsys, clock):
    with progress.Reporter(quiet=True).task("shadows", 2) as advance:
        clock[0] = 500.0
        advance(1)
    assert capsys.readouterr().err == ""
