"""Layouts as one HTML page that needs nothing else, with a strip plot of each."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from davylamp import __version__
from davylamp.report import svg
from davylamp.report.layout import Group, Layout, budget, heading, said
from davylamp.report.text import clean, shorten, ticks

TEMPLATES = Path(__file__).parent / "templates"
PITCHES = ((80, 13.0), (400, 7.0), (1_000_000, 3.0))
"""Canaries of a plot at most, and the height of each in pixels; only the tallest have room for an id."""


def page(layouts: Sequence[Layout], title: str, notes: Sequence[str] = ()) -> str:
    """A self-contained page; the same for the same layouts.

    Args:
        layouts: what is drawn.
        title: what they are of.
        notes: what else there is to know, a sentence each.
    """
    style = "".join((TEMPLATES / name).read_text(encoding="utf-8") for name in ("report.css", "layout.css"))
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=_finalize,
    )
    environment.filters["shorten"] = shorten
    return environment.get_template("layout.html.j2").render(
        title=title,
        notes=notes,
        views=[_view(layout, f"layout-{number}") for number, layout in enumerate(layouts, start=1)],
        style=Markup(style),  # noqa: S704 - the package's own files
        style_hash=base64.b64encode(hashlib.sha256(style.encode("utf-8")).digest()).decode("ascii"),
        version=__version__,
    )


def _finalize(value: Any) -> Any:
    return clean(value) if isinstance(value, str) and not isinstance(value, Markup) else value


@dataclass(frozen=True, slots=True)
class _Row:
    """A group as a row of the table."""

    label: str
    number: int
    schedule: str
    window: str
    first: str
    last: str
    gaps: str


@dataclass(frozen=True, slots=True)
class _View:
    """What the template shows of a layout."""

    key: str
    heading: str
    facts: tuple[str, ...]
    drawings: tuple[Markup, ...]
    caption: str
    units: str
    rows: tuple[_Row, ...]
    canaries: tuple[tuple[str, str, str], ...]


def _view(layout: Layout, key: str) -> _View:
    rows = tuple(_row(layout, group) for group in layout.groups)
    caption = "A line is a canary, a stroke an occurrence; the shaded part is the window in which the canary may fall."
    finding = " ".join([caption, *map(_seen, rows)])
    return _View(
        key=key,
        heading=heading(layout),
        facts=tuple(budget(layout)),
        drawings=tuple(strip_plot(layout, key, finding, kind) for kind in (svg.WIDE, svg.NARROW)),
        caption=caption,
        units="rows of the planted file" if layout.updates is None else "optimiser updates",
        rows=rows,
        canaries=tuple(
            (strip.id, group.label, ", ".join(f"{layout.place(row):,}" for row in strip.rows))
            for group in layout.groups
            for strip in group.strips
        ),
    )


def _row(layout: Layout, group: Group) -> _Row:
    start, end = group.window
    return _Row(
        label=group.label,
        number=len(group.strips),
        schedule=group.schedule,
        window=f"{layout.place(start):,}–{layout.place(max(start, end - 1)):,}",
        first=f"{min(layout.place(strip.rows[0]) for strip in group.strips):,}",
        last=f"{max(layout.place(strip.rows[-1]) for strip in group.strips):,}",
        gaps=said(layout.gaps(*group.strips)) or "–",
    )


def _seen(row: _Row) -> str:
    return f"{row.label[0].upper()}{row.label[1:]}: {row.number} between {row.first} and {row.last}."


def strip_plot(layout: Layout, key: str, finding: str, kind: str) -> Markup:
    """A strip for each canary over training, in groups.

    Args:
        layout: what is drawn.
        key: prefix of ids.
        finding: what is to be seen, for those who cannot see it.
        kind: its size.
    """
    width = svg.SIZES[kind][0]
    count = sum(len(group.strips) for group in layout.groups)
    pitch = next(height for most, height in PITCHES if count <= most)
    named = kind == svg.WIDE and pitch == PITCHES[0][1]
    left, right, top = (62.0 if named else 14.0), width - 22, 44.0
    head = 27.0 if kind == svg.WIDE else 44.0
    bottom = top + sum(head + pitch * len(group.strips) for group in layout.groups) + 8
    scale = (right - left) / layout.rows
    body = [*_axes(layout, left, right, top, bottom)]
    y = top
    for group in layout.groups:
        body += _group(layout, group, left, scale, y, pitch, head, named)
        y += head + pitch * len(group.strips)
    title = f"Where each canary falls: {shorten(heading(layout), 200)}"
    return svg.drawing(f"{key}-{kind}", title, finding, (width, bottom + 50), body, kind)


def _axes(layout: Layout, left: float, right: float, top: float, bottom: float) -> Iterator[Markup]:
    for share in (0, 0.25, 0.5, 0.75, 1):
        x = left + (right - left) * share
        yield svg.line(x, top - 6, x, bottom, "grid")
        yield svg.text(x, top - 11, f"{share:.0%}", class_="tick middle")
    whole = "training" if (layout.epochs or 1) == 1 else "each epoch"
    yield svg.text((left + right) / 2, 14, f"fraction of {whole}", class_="axis middle")
    size = layout.rows_per_update or 1
    for mark in ticks(layout.rows / size, 6):
        x = left + (right - left) * mark * size / layout.rows
        yield svg.line(x, bottom, x, bottom + 5, "base")
        yield svg.text(x, bottom + 19, f"{mark:,.10g}", class_="tick middle")
    yield svg.line(left, bottom, right, bottom, "base")
    yield svg.text((left + right) / 2, bottom + 40, layout.unit, class_="axis middle")


def _group(
    layout: Layout, group: Group, left: float, scale: float, y: float, pitch: float, head: float, named: bool
) -> Iterator[Markup]:
    label = f"{shorten(group.label, 60)}: {group.count}"
    if head > 40:
        yield svg.text(left, y + head - 24, label, class_="group")
        yield svg.text(left, y + head - 8, group.schedule, class_="how")
    else:
        yield svg.text(left, y + head - 8, f"{label}, {group.schedule}", class_="group")
    low, high = (left + scale * row for row in group.window)
    y += head
    height = pitch * len(group.strips)
    yield svg.el("rect", x=low, y=y, width=high - low, height=height, class_="window")
    for edge in (low, high):
        yield svg.line(edge, y, edge, y + height, "edge")
    arms = [name for name, _ in layout.arms]
    hue = f"s{svg.hue(arms.index(group.arm) if group.arm in arms else 0)}" if group.role != "positive" else "plain"
    for strip in group.strips:
        middle = y + pitch / 2
        reach = pitch * 0.38
        if named:
            yield svg.text(left - 8, middle + 3.5, strip.id, class_="id end")
        yield svg.line(left, middle, left + scale * layout.rows, middle, "track")
        marks = "".join(f"M{left + scale * (row + 0.5):.2f} {middle - reach:.2f}v{2 * reach:.2f}" for row in strip.rows)
        places = ", ".join(f"{layout.place(row):,}" for row in strip.rows)
        words = svg.el("title", f"{strip.id}, {group.label}: {layout.unit} {places}")
        yield svg.el("g", words, svg.el("path", d=marks, class_=f"ticks {hue}"))
        y += pitch
