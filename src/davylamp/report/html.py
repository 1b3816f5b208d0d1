"""HTML."""

from __future__ import annotations

import html as _html

from davylamp.report.data import ReportData


def render(data: ReportData) -> str:
    """Render the report as one self-contained page."""
    return "<!doctype html><pre>" + _html.escape("\n".join(data.headlines)) + "</pre>"
