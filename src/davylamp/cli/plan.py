"""``davylamp plan``."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated

import typer

from davylamp.cli.output import JsonFlag, emit, emit_json

DRAWN = 4
"""Canaries of a group that are drawn in a terminal, unless all are asked for."""
EXAMPLES = {"block_reversal": "block_reversal(2)", "cyclic_shift": "cyclic_shift(1)"}
"""Encodings with parameters, as they are shown."""
COMPOSED = "block_reversal(2) + cyclic_shift(1)"
PIPED = (100, 24)
"""Columns and lines where there is no terminal."""
EXAMPLE = "4,7,1,9"
"""The code that encodings are shown on: that of the documents, planted nowhere."""

AXES = (
    "Draw a plan before anything is planted, and explain what a plan can vary.",
    "A plan is a YAML file: `davylamp plant --plan` takes one, and a recipe holds one under the key plan. Its axes:",
    "[bold]context[/bold]: what the training prompt shows in the secret's place: the secret (visible), a mask "
    "(redacted), or an encoded form. Example: arms: {seen: {context: visible}, hidden: {context: redacted}}",
    "[bold]encoding[/bold]: how an encoded arm writes the secret; `davylamp plan encodings` lists them. "
    "Example: arms: {bits: {context: encoded, encoding: binary}}",
    "[bold]dose[/bold]: how often one canary occurs; dose 0 is what twins are. Example: doses: [1, 4, 16]",
    "[bold]position and spacing[/bold]: where in training the occurrences fall, for all arms or for one. A window is "
    "whole, early, late, k/n, or two fractions; in it they are spread uniformly, concentrated, or a number of updates "
    "apart; the last may be given a place. Example: schedule: {window: 5/5, spacing: 3}",
    "[bold]population[/bold]: canaries beside those under measure, and how often each background row stands in the "
    "file. Example: auxiliary: {doses: [4], per_dose: 32, schedule: {window: before focus}} and repeat: 4",
    "All of it is explained in docs/plan.md.",
)

plan = typer.Typer(no_args_is_help=True, help="\n\n".join(AXES))


@plan.command("show")
def show(
    source: Annotated[
        str,
        typer.Argument(metavar="PLAN", help="A plan file, a recipe file, or a built-in recipe.", show_default=False),
    ],
    overrides: Annotated[
        list[str] | None, typer.Argument(help="Changes as key=value, such as doses=[1,16] schedule.window=late.")
    ] = None,
    *,
    rows: Annotated[int | None, typer.Option("--rows", min=1, help="Rows of the corpus.")] = None,
    data: Annotated[Path | None, typer.Option("--data", help="The corpus: its rows are counted.")] = None,
    arm: Annotated[str | None, typer.Option("--arm", help="One arm only, as `davylamp plant --arm` plants it.")] = None,
    variant: Annotated[
        str | None, typer.Option("--variant", help="One variant of a recipe only (default: all of them).")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help=f"Draw every canary (default: {DRAWN} of each kind).")] = False,
    out: Annotated[
        Path | None, typer.Option("--out", help="Also write a strip plot of every canary, as one HTML page.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Show which canary falls at which step, before anything is trained.

    A recipe's rows, rows per update and arms are those that `davylamp run` would take; of its seeds the first is drawn.
    A plan needs --rows or --data. No secret is drawn or shown. A plan that cannot be satisfied is refused with the
    arithmetic.
    """
    from davylamp.report.layout import merged
    from davylamp.report.layout_page import page
    from davylamp.report.layout_text import LEGEND, lines
    from davylamp.runs.files import file_named, write_text
    from davylamp.studies.preview import preview

    if out is not None:
        file_named("--out", out, "plan.html")
    found = preview(source, overrides or [], rows=rows, data=data, arm=arm, variant=variant)
    once = list(merged(found.layouts))
    if out is not None:
        write_text(out, page(once, found.title, found.notes))
    if as_json:
        layouts = [layout.as_dict() for layout in found.layouts]
        emit_json({"layouts": layouts, "notes": found.notes, "page": None if out is None else str(out)})
        return
    width = shutil.get_terminal_size(PIPED).columns
    for layout in once:
        emit([*lines(layout, width, None if every else DRAWN), ""])
    emit([LEGEND, *found.notes])
    if out is not None:
        emit([f"page: {out}"])


@plan.command("encodings")
def encodings(as_json: JsonFlag = False) -> None:
    """List the encodings that an arm may name, each with what it makes of one example code."""
    from davylamp.secrets import AlphabetSpace
    from davylamp.secrets.encodings import encoding, names

    composed = encoding(COMPOSED)
    found = [_listed(name) for name in names()]
    found.append(
        {
            "name": "A + B",
            "what": "Several, applied from left to right.",
            "example": composed.name,
            "shows": composed.encode(EXAMPLE, AlphabetSpace()),
        }
    )
    if as_json:
        emit_json({"code": EXAMPLE, "encodings": found})
        return
    emit([f"What a prompt shows in place of {EXAMPLE} (an example that is planted nowhere):"])
    for each in found:
        example = "" if each["example"] in (None, each["name"]) else f"  ({each['example']})"
        emit(["", f"{each['name']}{example}", f"  {each['what']}"])
        emit([f"  {each['shows']}"] if each["shows"] is not None else [])
    emit(["", "In a plan: arms: {bits: {context: encoded, encoding: binary}}. More: docs/encodings.md"])


def _listed(name: str) -> dict[str, str | None]:
    """An encoding as it is listed; one that needs numbers of its own, or cannot be had, has no example."""
    import inspect

    from davylamp.errors import InputError
    from davylamp.secrets import AlphabetSpace
    from davylamp.secrets.encodings import encoding
    from davylamp.secrets.encodings.guarded import Guarded
    from davylamp.secrets.encodings.registry import factory_of

    try:
        factory = factory_of(name)
    except InputError as error:
        return {"name": name, "what": str(error), "example": None, "shows": None}
    parameters = {} if factory is None else inspect.signature(factory).parameters
    form = f"{name}({', '.join(parameters)})" if parameters else name
    try:
        made = encoding(EXAMPLES.get(name, name))
        shown = made.encode(EXAMPLE, AlphabetSpace())
        own = made.inner if isinstance(made, Guarded) else made
    except InputError as error:
        what = _described(factory)
        needed = any(one.default is one.empty for one in parameters.values())
        return {"name": form, "what": what if needed else f"{what} {error}", "example": None, "shows": None}
    return {"name": form, "what": _described(factory, type(own)), "example": made.name, "shows": shown}


def _described(factory: object, made: object = None) -> str:
    """The first line of a docstring of its own: the factory's, or that of the class it makes or says it makes."""
    import inspect

    says = getattr(factory, "__annotations__", {}).get("return")
    if isinstance(says, str):
        says = getattr(factory, "__globals__", {}).get(says)
    for one in (factory, made, says):
        text = inspect.cleandoc(getattr(one, "__doc__", None) or "") if callable(one) else ""
        # A data class without a docstring is given its signature as one.
        if text and not text.startswith(f"{getattr(one, '__name__', '')}("):
            return text.partition("\n")[0].replace("``", "")
    return "(no description)"
