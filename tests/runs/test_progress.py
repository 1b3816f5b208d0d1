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
        assert capsys.readouterr().err == "shadows: 2 of 4 in 90 s (0.022 a second), about 90 s left\n"
        clock[0] = 149.0
        advance(1)
        assert capsys.readouterr().err == ""


def test_the_first_line_comes_soon(capsys, clock):
    with progress.Reporter().task("rewrite", 160) as advance:
        clock[0] = 9.0
        advance(8)
        assert capsys.readouterr().err == ""
        clock[0] = 16.0
        advance(8)
        assert capsys.readouterr().err == "rewrite: 16 of 160 in 16 s (1 a second), about 144 s left\n"


def test_a_warning_is_said_without_a_terminal_too(capsys):
    progress.Reporter().warn("nothing came back")
    assert capsys.readouterr().err == "warning: nothing came back\n"
    progress.Reporter(quiet=True).warn("nothing came back")
    assert capsys.readouterr().err == ""


def test_who_asked_for_quiet_has_it(capsys, clock):
    with progress.Reporter(quiet=True).task("shadows", 2) as advance:
        clock[0] = 500.0
        advance(1)
    assert capsys.readouterr().err == ""
