"""Small line charts as self-contained SVG in one HTML page: no script, no outside file, light and dark."""

from __future__ import annotations

import html
import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

WIDTH, HEIGHT = 760, 440
LEFT, RIGHT, BOTTOM = 70, 20, 56


@dataclass(frozen=True, slots=True)
class Series:
    """One line or cloud of points.

    Attributes:
        label: name in the legend.
        x: positions, shape (n,).
        y: values, shape (n,).
        kind: ``line`` or ``points``.
        colour: index into the page's colours, 0 to 4.
        dashed: whether a line is dashed.
    """

    label: str
    x: ArrayLike
    y: ArrayLike
    kind: str = "line"
    colour: int = 0
    dashed: bool = False


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis: its title with the unit, its range, and whether it is logarithmic."""

    title: str
    low: float
    high: float
    log: bool = False

    def place(self, value: float) -> float:
        """Position in [0, 1]."""
        if self.log:
            return (math.log(value) - math.log(self.low)) / (math.log(self.high) - math.log(self.low))
        return (value - self.low) / (self.high - self.low)

    def ticks(self) -> list[tuple[float, str]]:
        """Values with their labels: round numbers, or powers of ten."""
        if self.log:
            first, last = math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.high) + 1e-9)
            stride = max(1, math.ceil((last - first) / 8))
            return [(10.0**p, _power(p)) for p in range(first, last + 1, stride)]
        span = self.high - self.low
        step = 10 ** math.floor(math.log10(span / 5))
        step *= next(m for m in (1, 2, 2.5, 5, 10) if span / (m * step) <= 7)
        start = math.ceil(self.low / step - 1e-9)
        values = [step * i for i in range(start, math.floor(self.high / step + 1e-9) + 1)]
        return [(v, f"{v:.6g}") for v in values]


@dataclass(frozen=True, slots=True)
class Mark:
    """A reference line across the chart with a label: ``x`` or ``y`` is given."""

    label: str
    x: float | None = None
    y: float | None = None
    colour: int = 3


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart.

    Attributes:
        title: what it shows.
        x: horizontal axis.
        y: vertical axis.
        series: lines and points.
        marks: reference lines.
        top: title of an axis on top and its ticks as (x position on the lower axis, label); empty for none.
        caption: sentences below.
    """

    title: str
    x: Axis
    y: Axis
    series: Sequence[Series]
    marks: Sequence[Mark] = ()
    top: tuple[str, Sequence[tuple[float, str]]] | None = None
    caption: str = ""


@dataclass(slots=True)
class _Canvas:
    chart: Chart
    head: int
    parts: list[str] = field(default_factory=list)

    def at(self, x: float, y: float) -> tuple[float, float]:
        across, up = self.chart.x.place(x), self.chart.y.place(y)
        return (
            LEFT + min(max(across, -0.02), 1.02) * (WIDTH - LEFT - RIGHT),
            HEIGHT - BOTTOM - min(max(up, -0.05), 1.05) * (HEIGHT - BOTTOM - self.head),
        )

    def text(self, x: float, y: float, words: str, how: str = "") -> None:
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}" {how}>{html.escape(words)}</text>')

    def line(self, a: tuple[float, float], b: tuple[float, float], how: str) -> None:
        self.parts.append(f'<line x1="{a[0]:.1f}" y1="{a[1]:.1f}" x2="{b[0]:.1f}" y2="{b[1]:.1f}" {how}/>')


def svg(chart: Chart) -> str:
    """The chart as one ``<svg>`` element; its colours come from the page's style."""
    rows = math.ceil(len(chart.series) / 2)
    canvas = _Canvas(chart, head=(66 if chart.top else 24) + 18 * rows)
    _axes(canvas)
    box = f'x="{LEFT}" y="{canvas.head}" width="{WIDTH - LEFT - RIGHT}" height="{HEIGHT - BOTTOM - canvas.head}"'
    name = f"clip{zlib.crc32(chart.title.encode())}"  # one page may hold many charts
    canvas.parts.append(f'<clipPath id="{name}"><rect {box}/></clipPath><g clip-path="url(#{name})">')
    for series in chart.series:
        _draw(canvas, series)
    canvas.parts.append("</g>")
    for i, mark in enumerate(chart.marks):
        _mark(canvas, mark, 10 + 18 * i)
    _legend(canvas)
    body = "".join(canvas.parts)
    label = html.escape(chart.title, quote=True)
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}">{body}</svg>'


def page(title: str, blocks: Sequence[str]) -> str:
    """A whole HTML page around blocks that are already HTML."""
    return _PAGE.replace("{title}", html.escape(title)).replace("{body}", "\n".join(blocks))


def figure(chart: Chart) -> str:
    """The chart with its title and caption, as HTML."""
    caption = f"<figcaption>{html.escape(chart.caption)}</figcaption>" if chart.caption else ""
    return f"<figure><h2>{html.escape(chart.title)}</h2>{svg(chart)}{caption}</figure>"


def table(headings: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A table as HTML; every cell is escaped."""
    head = "".join(f"<th>{html.escape(str(h))}</th>" for h in headings)
    body = "".join("<tr>" + "".join(f"<td>{html.escape(str(c))}</td>" for c in row) + "</tr>" for row in rows)
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def paragraph(text: str) -> str:
    """A paragraph as HTML, escaped."""
    return f"<p>{html.escape(text)}</p>"


def _power(p: int) -> str:
    return f"{10.0**p:g}" if -3 <= p <= 3 else "10" + str(p).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))


def _axes(canvas: _Canvas) -> None:
    chart = canvas.chart
    bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    for value, label in chart.x.ticks():
        px = canvas.at(value, chart.y.low)[0]
        canvas.line((px, canvas.head), (px, bottom), 'class="grid"')
        canvas.text(px, bottom + 18, label, 'text-anchor="middle"')
    for value, label in chart.y.ticks():
        py = canvas.at(chart.x.low, value)[1]
        canvas.line((LEFT, py), (right, py), 'class="grid"')
        canvas.text(LEFT - 8, py + 4, label, 'text-anchor="end"')
    canvas.line((LEFT, bottom), (right, bottom), 'class="axis"')
    canvas.line((LEFT, canvas.head), (LEFT, bottom), 'class="axis"')
    middle = (LEFT + right) / 2
    canvas.text(middle, HEIGHT - 12, chart.x.title, 'text-anchor="middle" class="name"')
    side = (canvas.head + bottom) / 2
    how = f'text-anchor="middle" class="name" transform="rotate(-90 18 {side:.1f})"'
    canvas.text(18, side, chart.y.title, how)
    if chart.top:
        name, ticks = chart.top
        canvas.line((LEFT, canvas.head), (right, canvas.head), 'class="axis"')
        for value, label in ticks:
            px = canvas.at(value, chart.y.low)[0]
            canvas.line((px, canvas.head - 5), (px, canvas.head), 'class="axis"')
            canvas.text(px, canvas.head - 9, label, 'text-anchor="middle"')
        canvas.text(middle, canvas.head - 28, name, 'text-anchor="middle" class="name"')


def _draw(canvas: _Canvas, series: Series) -> None:
    x, y = np.asarray(series.x, dtype=np.float64), np.asarray(series.y, dtype=np.float64)
    # On a logarithmic axis what lies below the chart is left out, or the line would run along its floor.
    floor = canvas.chart.y.low * 0.9 if canvas.chart.y.log else -math.inf
    spots = [canvas.at(float(a), float(b)) for a, b in zip(x, y, strict=True) if math.isfinite(b) and b >= floor]
    if series.kind == "points":
        canvas.parts += [f'<circle cx="{a:.1f}" cy="{b:.1f}" r="3" class="fill{series.colour}"/>' for a, b in spots]
        return
    dash = ' stroke-dasharray="7 5"' if series.dashed else ""
    points = " ".join(f"{a:.1f},{b:.1f}" for a, b in spots)
    canvas.parts.append(f'<polyline points="{points}" class="line{series.colour}"{dash}/>')


def _mark(canvas: _Canvas, mark: Mark, lift: float) -> None:
    chart, bottom, right = canvas.chart, HEIGHT - BOTTOM, WIDTH - RIGHT
    how = f'class="line{mark.colour}" stroke-dasharray="2 4"'
    if mark.y is not None:
        py = canvas.at(chart.x.low, mark.y)[1]
        canvas.line((LEFT, py), (right, py), how)
        canvas.text(LEFT + 8, py - 6, mark.label, f'class="text{mark.colour}"')
    if mark.x is not None:
        px = canvas.at(mark.x, chart.y.low)[0]
        canvas.line((px, canvas.head), (px, bottom), how)
        near_right = px + 7.5 * len(mark.label) > right
        anchor = "end" if near_right else "start"
        how = f'text-anchor="{anchor}" class="text{mark.colour}"'
        canvas.text(px + (-6 if near_right else 6), bottom - lift, mark.label, how)


def _legend(canvas: _Canvas) -> None:
    for i, series in enumerate(canvas.chart.series):
        x, y = LEFT + (i % 2) * (WIDTH - LEFT - RIGHT) / 2, 14 + 18 * (i // 2)
        if series.kind == "points":
            canvas.parts.append(f'<circle cx="{x + 12:.1f}" cy="{y - 4}" r="3.5" class="fill{series.colour}"/>')
        else:
            dash = ' stroke-dasharray="7 5"' if series.dashed else ""
            canvas.line((x, y - 4), (x + 24, y - 4), f'class="line{series.colour}"{dash}')
        canvas.text(x + 30, y, series.label)


_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
:root { color-scheme: light dark; --ink: #1b1f24; --soft: #5b6470; --paper: #ffffff; --rule: #e3e6ea;
  --c0: #1f6feb; --c1: #c2410c; --c2: #0f7b4f; --c3: #b4236a; --c4: #6b4fbb; }
@media (prefers-color-scheme: dark) { :root { --ink: #e8eaed; --soft: #a4adb8; --paper: #14171b; --rule: #2c323a;
  --c0: #6cb0ff; --c1: #ff9d5c; --c2: #4fd1a0; --c3: #ff85bd; --c4: #b9a5ff; } }
body { margin: 2rem auto; max-width: 52rem; padding: 0 1rem; background: var(--paper); color: var(--ink);
  font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.1rem; margin: 0 0 .4rem; }
figure { margin: 2rem 0; } figcaption { color: var(--soft); font-size: .9rem; }
svg { width: 100%; height: auto; } svg text { font: 12px system-ui, sans-serif; fill: var(--ink); }
svg text.name { fill: var(--soft); font-size: 13px; }
.grid { stroke: var(--rule); } .axis { stroke: var(--soft); }
.line0 { stroke: var(--c0); } .line1 { stroke: var(--c1); } .line2 { stroke: var(--c2); } .line3 { stroke: var(--c3); }
.line4 { stroke: var(--c4); } [class^=line] { fill: none; stroke-width: 2; }
.fill0 { fill: var(--c0); } .fill1 { fill: var(--c1); } .fill2 { fill: var(--c2); } .fill3 { fill: var(--c3); }
.fill4 { fill: var(--c4); }
svg text.text0 { fill: var(--c0); } svg text.text1 { fill: var(--c1); } svg text.text2 { fill: var(--c2); }
svg text.text3 { fill: var(--c3); } svg text.text4 { fill: var(--c4); }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .9rem; }
th, td { text-align: left; padding: .25rem .8rem .25rem 0; border-bottom: 1px solid var(--rule); }
</style></head><body>
<h1>{title}</h1>
{body}
</body></html>
"""
