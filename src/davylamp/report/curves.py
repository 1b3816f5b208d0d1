"""Plots that have no dose: the loss of each step, and rates below one another."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from davylamp.report import svg
from davylamp.report.text import percent, shorten, ticks

POINTS = 50
"""Points of a loss curve at most: single steps are too noisy to be told apart."""


def losses(
    key: str, title: str, finding: str, curves: Sequence[tuple[int | None, str, Sequence[float]]], kind: str
) -> Markup:
    """The loss of each optimiser step, in nats a token; long curves as means of bins of equal length.

    Args:
        key: prefix of ids.
        title: the plot's name.
        finding: what is to be seen.
        curves: arm (or nothing), label and losses of each model.
        kind: its size.
    """
    width, height = svg.SIZES[kind]
    binned = [(arm, label, _bins(curve)) for arm, label, curve in curves]
    most = max(loss for _, _, bins in binned for _, loss in bins) * 1.04 or 1.0
    steps = max(len(curve) for _, _, curve in curves)
    frame = svg.Frame(width, height - 60, 46, width - 16, 34, height - 110, most)
    scale = (frame.right - frame.left) / max(1, steps)
    body = [svg.text(8, 18, "training loss, nats per token", class_="axis")]
    body += svg.grid(frame, ticks(most), lambda value: f"{value:g}")
    for mark in ticks(steps, 6):
        body.append(svg.text(frame.left + mark * scale, frame.bottom + 18, f"{mark:,.0f}", class_="tick middle"))
    body.append(svg.text((frame.left + frame.right) / 2, frame.bottom + 38, "optimiser step", class_="axis middle"))
    for arm, label, bins in binned:
        points = [(frame.left + step * scale, frame.y(loss)) for step, loss in bins]
        hue = "plain" if arm is None else f"s{svg.hue(arm)} dash{svg.dash(arm)}"
        if len(points) == 1:
            body.append(svg.marker("circle", *points[0], 3, f"mark filled {hue}", label))
        else:
            body.append(svg.el("g", svg.el("title", label), svg.path(points, f"join {hue}")))
    return svg.drawing(f"{key}-{kind}", title, finding, (width, height - 60), body, kind)


def _bins(curve: Sequence[float]) -> list[tuple[float, float]]:
    """Middle step (from 1) and mean loss of each bin."""
    size = max(1, -(-len(curve) // POINTS))
    parts = [curve[start : start + size] for start in range(0, len(curve), size)]
    return [(index * size + (len(part) + 1) / 2, sum(part) / len(part)) for index, part in enumerate(parts)]


def rates(
    key: str, title: str, finding: str, rows: Sequence[tuple[str, int | None, float, float, float]], kind: str
) -> Markup:
    """Rates with their intervals, one below the other.

    Args:
        key: prefix of ids.
        title: the plot's name.
        finding: what is to be seen.
        rows: label, arm (or nothing), rate, and both ends of its interval.
        kind: its size.
    """
    width, pitch = (560.0 if kind == svg.WIDE else 400.0), 24.0
    height = 44 + pitch * len(rows) + 30
    left, right = (170.0 if kind == svg.WIDE else 138.0), width - 24
    bottom = height - 46

    def x(value: float) -> float:
        return left + (right - left) * value

    body = []
    for mark in (0, 0.25, 0.5, 0.75, 1):
        body.append(svg.line(x(mark), 12, x(mark), bottom, "grid"))
        body.append(svg.text(x(mark), bottom + 16, percent(mark), class_="tick middle"))
    body.append(svg.text((left + right) / 2, bottom + 36, "rows answered right", class_="axis middle"))
    for index, (label, arm, value, low, high) in enumerate(rows):
        y = 24 + pitch * index
        hue = "plain" if arm is None else f"s{svg.hue(arm)}"
        shape = "circle" if arm is None else svg.shape(arm)
        says = f"{label}: {percent(value)}, interval {percent(low)} to {percent(high)}"
        body.append(svg.text(left - 12, y + 4, shorten(label, 24 if kind == svg.WIDE else 19), class_="tick end"))
        body.append(svg.line(x(low), y, x(high), y, f"whisker {hue}"))
        body.append(svg.marker(shape, x(value), y, 4.5, f"mark filled {hue}", says))
    return svg.drawing(f"{key}-{kind}", title, finding, (width, height), body, f"rows {kind}")
