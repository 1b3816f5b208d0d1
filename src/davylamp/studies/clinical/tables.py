"""The result for people: the shapes, and the tables behind them, as Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from davylamp.studies.clinical.result import ClinicalResult, Found
from davylamp.studies.clinical.shapes import PAPER
from davylamp.studies.wording import shape_lines, table_head, table_row
from davylamp.verdict.frontier_model import Estimate


def lines_of(result: ClinicalResult) -> list[str]:
    """Every line of ``clinical.md``."""
    recipe = result.recipe
    minutes = sum(result.cpu_seconds.values()) / 60
    lines = [
        f"{recipe['model']}, seeds {', '.join(map(str, recipe['seeds']))}, each secret ranked among "
        f"{result.candidates:,}; {minutes:.1f} minutes of processor time.",
        "",
    ]
    lines += shape_lines(result.shapes)
    return [*lines, *_exposure(result.found), "", *_perplexities(result.found), "", *_effort(result.found)]


def _exposure(found: Sequence[Found]) -> Iterator[str]:
    ours = ("intervention", "mean exposure, bits", "ranked first", "said greedily", "twins, mean")
    yield from table_head((*ours, "paper: Qwen3.5-4B-Base", "gpt-oss-20b"))
    for each in found:
        yield table_row(
            each.name,
            _told(each.mean_exposure),
            _share(each.rank1),
            _share(each.said),
            "" if each.twins is None else f"{_told(each.twins)} (n {each.twins.n})",
            *PAPER.get(each.name, ("", "")),
        )


def _perplexities(found: Sequence[Found]) -> Iterator[str]:
    yield from table_head(("perplexity", "verbatim", "semantic", "held-out record", "last medication"))
    for each in found:
        values = (each.verbatim, each.semantic, each.held_out, each.medication)
        yield table_row(each.name, *(_told(value) for value in values))


def _effort(found: Sequence[Found]) -> Iterator[str]:
    yield from table_head(("intervention", "medications left in the rows", "CPU s a seed", "wall s a seed"))
    for each in found:
        left = each.survival
        copies = "" if left is None else f"{left.exact:,} of {left.copies:,} copies, {left.near:,} nearly"
        yield table_row(each.name, copies, _seconds(each.cpu_seconds, each), _seconds(each.seconds, each))


def _seconds(taken: float | None, each: Found) -> str:
    return "" if taken is None else f"{taken / len(each.seeds):.0f}"


def _told(value: Estimate) -> str:
    if value.low is None or value.high is None:
        return _short(value.value)
    return f"{_short(value.value)} [{_short(value.low)}, {_short(value.high)}]"


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


def _share(value: Estimate) -> str:
    if value.low is None or value.high is None:
        return f"{value.value:.0%}"
    return f"{value.value:.0%} [{value.low:.0%}, {value.high:.0%}]"
