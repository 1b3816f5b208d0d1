"""Writing a report: ``report.json`` and one self-contained ``report.html``."""

from __future__ import annotations

from pathlib import Path

from davylamp.report.data import ReportData
from davylamp.runs import files


def write_report(data: ReportData, folder: Path) -> Path:
    """Write both files.

    Args:
        data: what the report says.
        folder: where to.

    Returns:
        Where the HTML is.

    Raises:
        StorageError: a file cannot be written.
    """
    from davylamp.report.html import render

    files.write_json(folder / "report.json", data.model_dump(mode="json"), private=data.shows_secrets)
    path = folder / "report.html"
    files.write_text(path, render(data), private=data.shows_secrets)
    return path
