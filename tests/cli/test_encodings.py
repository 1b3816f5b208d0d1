"""`davylamp plan encodings` and the encodings of users, which describe themselves in one place or another."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from typer.testing import CliRunner

from davylamp.cli.main import app
from davylamp.secrets import AlphabetSpace
from davylamp.secrets.encodings import register, unregister


class Backwards:
    name = "own"
    in_space = True

    def faults(self, space: AlphabetSpace) -> list[str]:  # noqa: ARG002
        return []

    def encode(self, secret: str, space: AlphabetSpace) -> str:  # noqa: ARG002
        return secret[::-1]

    decode = encode


class Told(Backwards):
    """Read from the ``end``.

    More is said here.
    """


@dataclass
class Bare(Backwards):
    by: int


def undescribed() -> Backwards:
    return Backwards()


def of_a_class() -> Told:
    return Told()


def described() -> Told:
    """The factory says it."""
    return Told()


def with_numbers(by: int) -> Told:
    raise AssertionError("not to be made without its numbers")


def with_numbers_told(by: int, times: int):  # type: ignore[no-untyped-def]
    """Turned and turned."""
    raise AssertionError("not to be made without its numbers")


@pytest.fixture
def own(request: pytest.FixtureRequest) -> Iterator[None]:
    register("own")(request.param)
    yield
    unregister("own")


def listed() -> tuple[str, dict[str, Any]]:
    runner = CliRunner()
    out = runner.invoke(app, ["plan", "encodings"]).stdout
    found = json.loads(runner.invoke(app, ["plan", "encodings", "--json"]).stdout)["encodings"]
    return out, next(each for each in found if each["name"].startswith("own"))


@pytest.mark.parametrize(
    ("own", "form", "what", "shows"),
    [
        (Told, "own", "Read from the end.", "9,1,7,4"),
        (of_a_class, "own", "Read from the end.", "9,1,7,4"),
        (described, "own", "The factory says it.", "9,1,7,4"),
        (undescribed, "own", "(no description)", "9,1,7,4"),
        (Bare, "own(by)", "(no description)", None),
        (with_numbers, "own(by)", "Read from the end.", None),
        (with_numbers_told, "own(by, times)", "Turned and turned.", None),
    ],
    indirect=["own"],
)
@pytest.mark.usefixtures("own")
def test_an_encoding_is_described_by_its_factory_or_its_class(form: str, what: str, shows: str | None) -> None:
    out, found = listed()
    assert (found["name"], found["what"], found["shows"]) == (form, what, shows)
    assert f"\n{form}\n  {what}\n" in out
    assert "error" not in out
