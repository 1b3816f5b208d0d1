"""How numbers are said."""

from __future__ import annotations

import pytest

from davylamp.runs.wording import counted


@pytest.mark.parametrize(
    ("count", "nouns", "said"),
    [
        (0, ("row",), "0 rows"),
        (1, ("row",), "1 row"),
        (2, ("row",), "2 rows"),
        (1, ("try", "tries"), "1 try"),
        (3, ("try", "tries"), "3 tries"),
        (12_000, ("answer is", "answers are"), "12,000 answers are"),
    ],
)
def test_one_thing_is_said_as_one(count, nouns, said):
    assert counted(count, *nouns) == said
