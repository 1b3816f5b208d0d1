"""The report as one HTML page that needs nothing else: no network, no script, no font."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from davylamp.bounds.intervals import least_for_median
from davylamp.report import (
    constructed_view,
    cue_tables,
    figures,
    frontier_view,
    matrix_view,
    medians,
    membership,
    membership_figures,
    membership_words,
    schedules,
    shadow_view,
    slopes,
    svg,
    text,
    view,
)
from davylamp.report.model import ReportData, Run
from davylamp.report.utility import utilities
from davylamp.report.words import findings
from davylamp.verdict.frontier_model import Frontier
from davylamp.verdict.model import Rate
from davylamp.verdict.statistics import trials_to_rule_out

TEMPLATES = Path(__file__).parent / "templates"
STYLES = ("report.css", "matrix.css", "frontier.css")
"""Style sheets, in the order in which they count."""
SIGNS: Mapping[str, str] = {"leak": "▲", "not seen": "○", "underpowered": "◇", "no verdict": "✕"}
"""A sign for each verdict, so that none is told by its colour alone."""
SHAPE_SIGNS: Mapping[str, str] = {"held": "✓", "held in part": "◐", "not held": "✕", "too few pairs": "?"}
"""The same for the shapes of a study."""


def render(data: ReportData) -> str:
    """The report as one self-contained page.

    Every text that a model, a data set, a recipe or a path brought in is escaped, and its control characters
    and marks of writing direction are written out. The page's security policy allows its own style sheet, by
    hash, and nothing else.

    Args:
        data: what the report says.

    Returns:
        HTML; the same for the same data.
    """
    groups = view.groups(data)
    page = _environment().get_template("report.html.j2")
    return page.render(
        data=data,
        **_style(),
        groups=groups,
        findings=findings(data.runs),
        failed=[run for run in data.runs if not run.verdict.given],
        member_runs=[run for run in data.runs if any((run.membership, run.shadows, run.epsilon))],
        built=constructed_view.parts(data),
        said_of_constructions=list(constructed_view.headlines(data.runs, data.unaudited)),
        matrices=matrix_view.parts([*data.runs, *data.unaudited]),
        frontier=None if data.frontier is None else frontier_view.view(data.frontier),
        frontier_faults=data.frontier_faults,
        rules=view.rules(data),
        ruled_out=view.ruled_out(data),
        distinct_examples=view.examples(data),
        utilities=utilities(data),
        study=data.study,
        slopes=None if data.study is None else slopes.slopes(data.study, groups),
        schedules=[schedules.schedules(run) for run in data.runs],
        losses=figures.losses(data.runs),
        shared=view.same([_settings(run) for run in data.runs]),
        versions=view.same([run.audit.get("versions") for run in data.runs]),
    )


def render_comparison(found: Frontier, title: str, data_name: str) -> str:
    """A comparison of interventions as one self-contained page; see :func:`render`.

    Args:
        found: what was compared.
        title: what it is of.
        data_name: name of the file that holds the same as data.
    """
    page = _environment().get_template("compare.html.j2")
    return page.render(
        title=title, data_name=data_name, frontier=frontier_view.view(found), frontier_faults=(), **_style()
    )


def _style() -> dict[str, str]:
    """The style sheet, and its hash for the security policy."""
    style = "".join((TEMPLATES / name).read_text(encoding="utf-8") for name in STYLES)
    digest = base64.b64encode(hashlib.sha256(style.encode("utf-8")).digest()).decode("ascii")
    return {"style": Markup(style), "style_hash": digest}  # noqa: S704 - the package's own files


@cache
def _environment() -> Environment:
    # Kept, so that templates are compiled once.
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=_finalize,
    )
    environment.filters.update(
        number=text.number,
        percent=text.percent,
        p=text.p_value,
        rank=text.rank,
        seconds=text.seconds,
        memory=text.memory,
        shorten=text.shorten,
        settings=_settings,
        digits=text.digits,
        signed=text.signed,
        flat=view.flat,
        bound=text.bound,
        small_percent=text.small_percent,
        small=shadow_view.small,
        rate=rate,
        rate_interval=rate_interval,
    )
    environment.globals.update(
        about=view.about,
        constructed=constructed_view,
        canaries_of_interval=least_for_median,
        cue_tables=cue_tables.cue_tables,
        first_tables=cue_tables.first_tables,
        shape_signs=SHAPE_SIGNS,
        sides=slopes.sides,
        audit_seconds=view.audit_seconds,
        dig=view.dig,
        figure=view.figure,
        figures=figures,
        matrix_view=matrix_view,
        interval=text.interval,
        membership=membership,
        member_figures=membership_figures,
        member_words=membership_words,
        shadow_view=shadow_view,
        without_interval=medians.without_interval,
        signs=SIGNS,
        swatch=svg.swatch,
        trials_to_rule_out=trials_to_rule_out,
    )
    return environment


def _finalize(value: Any) -> Any:
    """Called on whatever the template prints, before it is escaped."""
    return text.clean(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def rate(value: Rate) -> str:
    """Successes of trials."""
    return f"{value.successes} of {value.trials}"


def rate_interval(value: Rate) -> str:
    """Both ends of a rate's interval."""
    return f"[{text.percent(value.low)}, {text.percent(value.high)}]"


def _settings(run: Run) -> dict[str, Any] | None:
    """Training settings; those of an adapter only where one was trained."""
    found = view.dig(run.training, "spec")
    if not isinstance(found, Mapping):
        return None
    return {name: value for name, value in found.items() if name != "lora" or found.get("method") == "lora"}
