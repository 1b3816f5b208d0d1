"""``davylamp judge``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from davylamp.cli.output import JsonFlag, QuietFlag, ThreadsOption, emit, emit_json, emit_table
from davylamp.cli.protect import asker, told_forecasts
from davylamp.runs.wording import counted

if TYPE_CHECKING:
    from davylamp.verdict.judged import Agreement, Judged


def judge(
    run: Annotated[Path, typer.Argument(help="Run folder with protected rows in it.", show_default=False)],
    settings: Annotated[
        list[str] | None,
        typer.Argument(help="Who judges, and how, as key=value: model=NAME server=URL copies=4 background=100."),
    ] = None,
    *,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say how many requests and tokens would go where; send and write nothing.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Send records to the server named without asking.")] = False,
    threads: ThreadsOption = None,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Have a language model score the protected rows for quality and privacy, and check what it says.

    Shows the judge records and their rewrites, reads two scores from 1 to 5, and counts what it cannot read. Then says
    how far judged scores go with what was measured: survival in the rows, and RUN/landscape.json of the model that was
    trained on them. Writes RUN/judged.json, which holds no text.
    """
    from davylamp.protect.corpus.judging import JudgeSpec, look
    from davylamp.runs.config import apply_overrides, validate
    from davylamp.runs.folder import RunFolder, locked
    from davylamp.runs.progress import Reporter
    from davylamp.studies.judging import JudgeRequest, judge_forecast, judge_step

    spec = validate(JudgeSpec, apply_overrides({}, settings or []), "judge", also=look)
    request = JudgeRequest(spec, asker(yes, as_json), threads)
    with locked(run, make=False):
        if dry_run:
            told_forecasts([judge_forecast(RunFolder(run), request)], as_json)
            return
        found = judge_step(RunFolder(run), request, Reporter(quiet or as_json))
    if as_json:
        emit_json(found.model_dump(mode="json"))
        return
    _emit(found, run)


def _emit(found: Judged, run: Path) -> None:
    from rich.table import Table

    read = sum(row.quality is not None for row in found.rows)
    have = "has" if read == 1 else "have"
    emit([f"{found.model} on {found.protection}: {read} of {counted(len(found.rows), 'row')} {have} scores"])
    if found.quality is not None and found.privacy is not None:
        emit([f"mean quality {found.quality:.2f}, mean privacy {found.privacy:.2f}, of 1 (worst) to 5"])
    emit([f"unparsed: {count} {reason}" for reason, count in found.unparsed.items()])
    table = Table(title="does the judge agree with what was measured, by canary", title_justify="left")
    for heading in ("judged", "with", "dose", "right is", "canaries", "Spearman's rho", "95%", "p"):
        table.add_column(heading)
    lines = []
    for each in found.agreements:
        cells = _cells(each)
        table.add_row(each.score, each.outcome, *cells)
        lines.append(f"{each.score} with {each.outcome}: {_said(each)}")
    if found.agreements:
        emit_table(table, lines)
    emit([*(f"note: {note}" for note in found.notes), f"judgement: {run / 'judged.json'}"])


def _cells(each: Agreement) -> tuple[str, ...]:
    dose = "all" if each.dose is None else str(each.dose)
    if each.rho is None:
        return dose, each.expected, str(each.n), "none", "", each.reason
    interval = "" if each.low is None or each.high is None else f"{each.low:.2f} to {each.high:.2f}"
    return dose, each.expected, str(each.n), f"{each.rho:+.2f}", interval, f"{each.p:.2g} ({each.method})"


def _said(each: Agreement) -> str:
    dose, expected, count, rho, interval, p = _cells(each)
    canaries = "canary" if each.n == 1 else "canaries"
    where = f"{count} {canaries} of {'all doses' if each.dose is None else f'dose {dose}'}"
    if each.rho is None:
        return f"no correlation ({where}): {p}"
    return f"rho {rho}{f' [{interval}]' if interval else ''}, p {p}, {where}; right is {expected}"
