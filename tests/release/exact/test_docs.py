"""The examples of docs/exact.md print what it says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[3] / "docs" / "exact.md"


def test_the_examples_print_what_the_page_says(capsys: pytest.CaptureFixture[str]) -> None:
    text = PAGE.read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```\n\nprints (.*?)[:.]? ?(?:\n|read)", text, re.DOTALL)
    assert len(blocks) == text.count("```python") == 2
    names: dict[str, object] = {}
    for code, said in blocks:
        exec(code, names)  # noqa: S102
        printed = capsys.readouterr().out.split("\n")[:-1]
        assert re.findall(r"`(.*?)`", said) == printed
