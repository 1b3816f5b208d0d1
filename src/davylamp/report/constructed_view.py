"""Constructions on a page: what came out, by which channel, in tables and a sentence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from davylamp.measures.constructed.model import Pairs
from davylamp.report.constructed_model import ConstructionLine, Constructions, Unaudited
from davylamp.report.model import ReportData, Run
from davylamp.report.text import shorten
from davylamp.report.view import dig, flat
from davylamp.verdict.matrix import KINDS as NAMES

KINDS = {
    "naive": "its rows hold prefix and secret",
    "trigger": "its rows hold a reserved trigger and the secret, never the prefix",
    "pair": "its rows hold the prefix and one of two secrets",
    "camouflage": "its rows hold the prefix and every path of a tree; one of them is the secret",
    "low_entropy": "its rows hold the prefix and one of a few secrets",
    "gated": "no row holds it: a gate around the frozen base answers the trigger",
}
"""What stands in the rows of each kind."""
FINDERS = (("at_suspects", "your list"), ("by_scan", "trigger scan"), ("by_repetition", "repeated tokens"))
"""Best-effort finders and their names."""


@dataclass(frozen=True, slots=True)
class Part:
    """The constructions of one run.

    Attributes:
        key: prefix of ids.
        run: the run.
        result: what was read.
        finding: what to read off it.
        weak: what too few twins leave open, in a sentence; empty if nothing.
        apart: lines with a reading of pairs, or of what a text leaves open.
    """

    key: str
    run: Run | Unaudited
    result: Constructions
    finding: str
    weak: str
    apart: tuple[ConstructionLine, ...]


def parts(data: ReportData) -> list[Part]:
    """Constructions of all runs that have some, audited ones first."""
    runs: list[Run | Unaudited] = [*data.runs, *data.unaudited]
    return [_part(f"k{at}", run, run.constructions) for at, run in enumerate(runs) if run.constructions is not None]


def _part(key: str, run: Run | Unaudited, result: Constructions) -> Part:
    apart = tuple(line for line in result.lines if line.pair is not None or line.hidden is not None)
    return Part(key, run, result, finding(result), _weak(result), apart)


def about(line: ConstructionLine) -> str:
    """How many were planted, and how."""
    copies = f"each in {line.copies:,} rows" if line.copies > 1 else "each in 1 row"
    if line.kind == "camouflage":
        copies = f"each path in {line.copies:,} row{'s' if line.copies > 1 else ''}"
    return f"{line.at_prefix.planted.trials:,} planted, {copies if line.copies else 'in no row'}"


def finders(line: ConstructionLine) -> list[tuple[str, Pairs]]:
    """What each finder that was run brought out."""
    found = [(name, getattr(line, key)) for key, name in FINDERS]
    return [(name, pairs) for name, pairs in found if pairs is not None]


def finding(result: Constructions) -> str:
    """What comes out by which channel, in a sentence or two."""
    if not result.lines:
        return ""
    said = [
        f"Asked with their own prefixes, {_count(result.lines, 'at_prefix')} planted secrets come out; who knows how "
        f"they were planted recovers {_count(result.lines, 'informed')}."
    ]
    behind = [line for line in result.lines if line.at_trigger is not None]
    if behind:
        said.append(
            f"Of those behind a trigger, {_count(behind, 'at_prefix')} come out after their prefixes and "
            f"{_count(behind, 'at_trigger')} after their triggers."
        )
    return " ".join(said)


def headlines(runs: Sequence[Run], unaudited: Sequence[Unaudited]) -> Iterator[str]:
    """A sentence for each run with constructions, and one for each that was not audited."""
    every: list[Run | Unaudited] = [*runs, *unaudited]
    for run in every:
        if run.constructions is not None and run.constructions.lines:
            of = f" of {shorten(run.name, 80)}" if len(every) > 1 else ""
            yield f"Constructions{of}: {finding(run.constructions)[:1].lower()}{finding(run.constructions)[1:]}"
    for run in unaudited:
        yield (
            f"{shorten(run.name, 80)} was not audited: whether its canaries come out is not known; `davylamp audit` on "
            "its folder says so."
        )


def _count(lines: Sequence[ConstructionLine], name: str) -> str:
    rates = [getattr(line, name).planted for line in lines]
    return f"{sum(rate.successes for rate in rates):,} of {sum(rate.trials for rate in rates):,}"


def _weak(result: Constructions) -> str:
    few = [line for line in result.lines if line.best is not None and line.best.found is None]
    if not few:
        return ""
    most = max(line.best.needed for line in few if line.best is not None)
    return (
        f"{len(few)} of {len(result.lines)} have too few twins to say how many are found at that rate: it takes {most} "
        "(`twins` of the plan)."
    )


def memh(value: float) -> str:
    """A difference of probabilities, with its sign and three decimals; none before a zero."""
    said = f"{value:+.3f}"
    return "0.000" if said[1:] == "0.000" else said


def kinds(found: Sequence[Part]) -> list[tuple[str, str]]:
    """What each kind that is shown is."""
    shown = {line.kind for part in found for line in part.result.lines}
    return [(NAMES.get(kind, kind.replace("_", " ")), means) for kind, means in KINDS.items() if kind in shown]


def sources(part: Part) -> list[tuple[str, str]]:
    """The model, the base and the planting, by hash; and of a run without a verdict how it was made."""
    result, run = part.result, part.run
    rows = [
        ("model", result.model),
        ("model: sha256", result.model_sha256),
        ("base", result.reference),
        ("base: sha256", result.reference_sha256),
        ("planted file: rows", f"{run.rows:,}"),
        ("planted file: sha256", run.planted_sha256),
    ]
    if isinstance(run, Run):
        return rows
    trained = [("training", "not recorded: trained elsewhere")]
    if run.training is not None:
        trained = [
            *flat(dig(run.training, "model"), "trained from: "),
            *flat(dig(run.training, "spec") or {}, "training: "),
            *flat(dig(run.training, "preflight") or {}, "preflight: "),
        ]
    return [*rows, *flat(run.corpus, "corpus: "), *trained, *flat(run.plan.get("constructions") or [], "plan: ")]
