"""The schema of a landscape: what fits together, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from davylamp.errors import RunFolderError
from davylamp.measures.landscape.model import Landscape
from support.landscapes import landscape


def test_it_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    one = landscape("direct", 2)
    one.save(tmp_path / "landscape.json")
    assert Landscape.load(tmp_path / "landscape.json") == one


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"dose": 0}, "of dose 0"),
        ({"role": "twin"}, "is a twin of dose"),
        ({"rank": 9e9, "exposure": 0.0}, "has rank"),
        ({"exposure": 30.0}, "has exposure"),
        ({"verbatim": -1.0}, "greater than or equal to 0"),
        ({"verbatim": float("nan")}, "finite"),
        ({"tokens": 0}, "greater than or equal to 1"),
    ],
)
def test_a_canary_that_cannot_be_is_refused(change: dict[str, object], said: str) -> None:
    data = landscape().model_dump(mode="json")
    data["canaries"][-1] |= change
    with pytest.raises(ValidationError, match=said):
        Landscape.model_validate(data)


def test_two_canaries_of_one_name_are_refused() -> None:
    data = landscape().model_dump(mode="json")
    data["canaries"] = [data["canaries"][-1]] * 2
    with pytest.raises(ValidationError, match="one id"):
        Landscape.model_validate(data)


def test_a_damaged_file_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "landscape.json").write_text("{}")
    with pytest.raises(RunFolderError, match="run `davylamp landscape` again"):
        Landscape.load(tmp_path / "landscape.json")
