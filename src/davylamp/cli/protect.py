"""``davylamp protect``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from davylamp.cli.output import JsonFlag, QuietFlag, ThreadsOption, emit, emit_json, plain
from davylamp.cli.surviving import background_line, replaced_lines, survival_lines
from davylamp.runs.wording import counted

if TYPE_CHECKING:
    from davylamp.errors import Fault
    from davylamp.protect.corpus.base import InterventionSpec
    from davylamp.protect.corpus.result import Protection, StepResult

DROPPED = ("row was dropped, another stands in its place", "rows were dropped, others stand in their place")


class ProtectCommand(TyperCommand):
    """``davylamp protect``, whose help names what installed packages add."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Look for what is installed only where help is asked for."""
        from davylamp.protect.corpus.registry import added

        names = ", ".join(added()) or "none"
        self.epilog = f"Interventions of installed packages here: {names}."
        super().format_help(ctx, formatter)


def protect(  # noqa: PLR0913 - one parameter an option
    run: Annotated[Path, typer.Argument(help="Run folder that `davylamp plant` wrote.", show_default=False)],
    settings: Annotated[
        list[str] | None,
        typer.Argument(help="Settings as key=value; with several interventions NAME.key=value or 1.key=value."),
    ] = None,
    *,
    interventions: Annotated[
        list[str] | None, typer.Option("--with", help="An intervention (repeatable; applied in this order).")
    ] = None,
    spec: Annotated[
        Path | None, typer.Option("--spec", help="YAML file with a list `protect:`, as in a recipe.")
    ] = None,
    imports: Annotated[
        list[Path] | None,
        typer.Option("--import", help="A Python file of yours to run first, for the @intervention in it (repeatable)."),
    ] = None,
    position: Annotated[
        int | None, typer.Option("--show", min=0, help="Only show this row before and after, from 0.")
    ] = None,
    reveal: Annotated[bool, typer.Option("--reveal", help="With --show: also show the secret of a canary.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say how many requests and tokens would go where; send and write nothing.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Send rows to the server named without asking.")] = False,
    threads: ThreadsOption = None,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Protect the planted rows before training: scrub them, replace what is rare, or have them written anew.

    Writes RUN/protected.jsonl (what `davylamp train` then trains on), RUN/protection.json, and for you alone
    RUN/protection_rows.jsonl. Then looks for every planted secret, and its carrier's name and numbers, in the rows that
    stand for it. A killed command goes on where it was.

    Interventions: scrub, surrogate, rewrite, privacy_rewrite, summary, privacy_summary, and those of installed
    packages or of --import FILE. Settings of all: seed, once (one text for all copies), on_failure (stop, surrogate,
    drop). See docs/protect.md for those of each.
    """
    from davylamp.protect.corpus.importing import import_file
    from davylamp.runs.folder import RunFolder, locked
    from davylamp.runs.progress import Reporter
    from davylamp.studies import protecting

    # What an imported file does may change the working directory, from which a relative name is read.
    place, spec = run.resolve(), None if spec is None else spec.resolve()
    folder = RunFolder(place)
    if position is not None:
        _show(protecting.show(folder, position, reveal=reveal), as_json)
        return
    for path in dict.fromkeys(each.resolve() for each in imports or ()):
        import_file(path)
    request = protecting.ProtectRequest(
        _specs(interventions or [], settings or [], spec), agreed=asker(yes, as_json), threads=threads
    )
    with locked(place, make=False):
        if dry_run:
            told_forecasts(protecting.forecast_step(folder, request), as_json)
            return
        made = protecting.protect_step(folder, request, Reporter(quiet or as_json))
    if as_json:
        emit_json({"protected": str(run / "protected.jsonl"), **made.model_dump(mode="json")})
        return
    _emit(made, run)


def _specs(names: Sequence[str], settings: Sequence[str], path: Path | None) -> tuple[InterventionSpec, ...]:
    """Checked interventions, from a file or from names, with the settings given beside; all faults at once."""
    from davylamp.errors import Fault, InputError, RecipeError
    from davylamp.protect.corpus.registry import known, spec_of
    from davylamp.runs.config import load_yaml
    from davylamp.runs.credentials import discreet

    if (path is None) == (not names):
        raise InputError(Fault("--with", list(names), f"one of {', '.join(known())}, or --spec FILE, and not both"))
    listed: Any = [{"name": name} for name in names] if path is None else load_yaml(path).get("protect")
    if not isinstance(listed, list) or not listed:
        allowed = f"a list of interventions ({', '.join(known())}), such as `protect: [{known()[0]}]`"
        raise InputError(Fault(f"protect in {path}", listed, allowed))
    data = [{"name": each} if isinstance(each, str) else each for each in listed]
    faults = _set(data, settings, named=path is None)
    specs = []
    for at, each in enumerate(data):
        own = each["name"] if path is None else None
        # As it is called where a setting is given beside it, and in a file as in a recipe.
        called = f"protect.{at}" if own is None else own if names.count(own) == 1 else str(at + 1)
        try:
            specs.append(spec_of(each, called, look=True))
        except RecipeError as error:
            unknown = own is not None and own not in known()
            faults += [replace(fault, field="--with") for fault in error.faults] if unknown else error.faults
    if faults:
        raise RecipeError(discreet(fault) for fault in faults)
    return tuple(specs)


def _set(data: list[Any], settings: Sequence[str], *, named: bool) -> list[Fault]:
    """Give interventions the settings that stand beside them; what cannot be given is at fault.

    Args:
        data: the interventions, changed in place.
        settings: as they were given.
        named: whether ``--with`` says which interventions these are.
    """
    from davylamp.errors import Fault, InputError
    from davylamp.runs.config import apply_overrides

    called = [each.get("name") if isinstance(each, dict) else None for each in data]
    faults: list[Fault] = []
    for setting in settings:
        first, dot, rest = setting.partition(".")
        numbers = [at for at, name in enumerate(called) if dot and first in (str(at + 1), name)]
        if not numbers and len(data) > 1:
            places = ", ".join(f"{name}. or {at + 1}." if name else f"{at + 1}." for at, name in enumerate(called))
            faults.append(Fault("setting", setting, f"one that begins with {places}"))
            continue
        key, _, value = (rest if numbers else setting).partition("=")
        if named and key == "name":
            faults.append(Fault(setting.partition("=")[0], value, "no setting beside --with", "Give --with that name."))
            continue
        for at in numbers or [0]:
            try:
                data[at] = apply_overrides(data[at], [rest if numbers else setting]) if called[at] else data[at]
            except InputError as error:
                faults += error.faults
    return faults


def asker(yes: bool, as_json: bool) -> Callable[[str], bool]:
    """Asks at the terminal whether records may be sent; says what would be sent first."""

    def agreed(statement: str) -> bool:
        asks = not as_json and sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()
        if yes or asks:
            typer.echo(plain(statement), err=True)
        return yes or (asks and typer.confirm("send them?", err=True))

    return agreed


def told_forecasts(told: Sequence[Any], as_json: bool) -> None:
    """Say what would be sent where."""
    if as_json:
        emit_json({"dry_run": [each.model_dump(mode="json") for each in told]})
        return
    emit([each.statement for each in told] or ["nothing would be sent: these interventions run on this machine"])


def _emit(made: Protection, run: Path) -> None:
    emit([line for step in made.steps for line in _step(step)])
    chance = made.leaks.chance
    emit(
        [
            *survival_lines(made.leaks),
            f"by accident: a secret that was planted nowhere was found {counted(chance.near, 'time')} in "
            f"{counted(made.leaks.tried, 'look')} ({chance.exact} exactly)",
            *([background_line(made.background)] if made.background is not None else []),
            f"{made.changed} of {counted(made.rows, 'row')} changed; {_control(made.control_rows)}"
            + (f"; {counted(made.dropped, *DROPPED)}" if made.dropped else ""),
            f"rows: {run / 'protected.jsonl'}; now `davylamp train {run}`, which trains on them",
        ]
    )


def _step(step: StepResult) -> list[str]:
    counts = dict(step.counts)
    unchanged = counts.pop("unchanged rows", 0)
    told = ", ".join(f"{count} {name}" for name, count in sorted(counts.items())) or "nothing to do"
    lines = [
        f"{step.name}: {counted(step.rows, 'different row')} in {step.seconds:.1f} s ({told})"
        + (f"; {counted(step.resumed, 'was', 'were')} done before" if step.resumed else "")
        + (f"; {counted(unchanged, 'row came back as it was', 'rows came back as they were')}" if unchanged else "")
    ]
    failed = sum(count for name, count in counts.items() if name != "ok")
    if failed:
        reasons = "; ".join(f"{count} {reason}" for reason, count in step.reasons.items())
        lines.append(f"{step.name}: {failed} failed ({reasons}); taken in their place: {step.on_failure}")
    if step.usage:
        lines.append(f"{step.name}: " + ", ".join(f"{count:,} {name}" for name, count in step.usage.items()))
    if step.replaced is not None:
        lines += replaced_lines(step.name, step.replaced)
    return lines


def _show(shown: dict[str, Any], as_json: bool) -> None:
    if as_json:
        emit_json(shown)
        return
    whose = f" (canary {shown['canary']})" if shown["canary"] else ""
    note = f"; {shown['note']}" if shown["note"] else ""
    marks = "[-taken out-] {+put in+}"
    if shown["before"] == shown["after"]:
        marks = "left as it was: positive control" if shown["control"] else "came back as it was"
    emit([f"row {shown['position']}{whose}{note}: {marks}", *shown["marked"]])


def protected_note(training: Mapping[str, Any]) -> list[str]:
    """What was trained on in place of the planted rows, and what of the canaries is left in it."""
    note = training.get("protection")
    if note is None:
        return []
    return [
        f"trained on protected rows ({note['title']}): {note['surviving']} of {note['copies']} copies of canaries "
        f"still hold their secret word for word; {_control(note['control_rows'])}"
    ]


def _control(rows: int) -> str:
    return counted(
        rows,
        "row of the positive control was left as it was",
        "rows of the positive control were left as they were",
    )
