"""A whole audit that takes a second or two: few canaries, a small space, a model of random weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from davylamp.corpora.records import Shape
from support.corpora import small_corpus

SPACE = {"alphabet": "01234", "length": 3, "separator": ","}


def write_corpus(path: Path, rows: int = 24, shape: Shape = "prompt_completion") -> Path:
    """The small corpus as a JSONL file."""
    lines = [record.line() + "\n" for record in small_corpus(rows, shape)]
    path.write_text("".join(lines), encoding="utf-8")
    return path


def tiny_plan(**changes: Any) -> dict[str, Any]:
    """A plan of two arms and 17 occurrences."""
    data: dict[str, Any] = {
        "space": dict(SPACE),
        "templates": [{"prompt": "write to {name}, ref {secret} ok", "completion": "Dear {name}, ref {secret}."}],
        "slots": {"name": "names"},
        "arms": {"visible": {"context": "visible"}, "redacted": {"context": "redacted"}},
        "doses": [1, 2],
        "per_dose": 2,
        "twins": 2,
        "positive": {"dose": 5},
    }
    return {**data, **changes}


def tiny_recipe(corpus: Path, model: Path, **changes: Any) -> dict[str, Any]:
    """A recipe of two runs and the base's utility."""
    data: dict[str, Any] = {
        "name": "tiny",
        "model": str(model),
        "corpus": {"path": str(corpus)},
        "plan": tiny_plan(),
        "training": {"batch_size": 4, "learning_rate": 0.001, "precision": "float32"},
        "utility": {"name": "answers", "corpus": {"path": str(corpus), "rows": 3}, "rows": 3},
    }
    return {**data, **changes}


def write_yaml(path: Path, data: Any) -> Path:
    """Data as a YAML file."""
    path.write_text(yaml.safe_dump(data, sort_keys=False), encoding="utf-8")
    return path
