"""``davylamp plant``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from davylamp.cli.output import JsonFlag, emit, emit_json


def plant(  # noqa: PLR0913 - one parameter an option
    data: Annotated[Path, typer.Argument(help="The rows to plant into: a JSONL or CSV file.", show_default=False)],
    overrides: Annotated[
        list[str] | None, typer.Argument(help="Changes to the plan as key=value, such as seed=3 doses=[1,16].")
    ] = None,
    *,
    plan: Annotated[Path, typer.Option("--plan", help="YAML file that says what is planted.", show_default=False)],
    out: Annotated[Path, typer.Option("--out", help="Run folder to write to.", show_default=False)],
    arm: Annotated[str | None, typer.Option("--arm", help="Plant one arm of the plan only.")] = None,
    prompt: Annotated[str | None, typer.Option("--prompt", help="Column that holds the prompt.")] = None,
    completion: Annotated[str | None, typer.Option("--completion", help="Column that holds the completion.")] = None,
    text: Annotated[str | None, typer.Option("--text", help="Column that holds the text.")] = None,
    data_format: Annotated[
        Literal["rows", "tatqa"], typer.Option("--format", help="How the file is written.")
    ] = "rows",
    as_json: JsonFlag = False,
) -> None:
    """Plant canaries into a file of training rows.

    Writes OUT/planted.jsonl, a plain fine-tuning file that any trainer takes, and OUT/manifest.json, the sealed
    record of every secret, which only you may read and no trainer needs.
    """
    from davylamp.canaries import Plan
    from davylamp.corpora.readers import Columns, read_corpus
    from davylamp.errors import Fault, InputError
    from davylamp.runs.config import apply_overrides, load_yaml, validate
    from davylamp.runs.folder import RunFolder, locked
    from davylamp.studies.steps import check_unplanted, plant_step

    what = validate(Plan, apply_overrides(load_yaml(plan), overrides or []), "plan")
    if arm is not None and arm not in what.arms:
        raise InputError(Fault("--arm", arm, f"one of {', '.join(what.arms)}"))
    named = any(column is not None for column in (prompt, completion, text))
    columns = Columns(prompt=prompt, completion=completion, text=text) if named else None
    corpus = read_corpus(data, columns=columns, format=data_format)
    check_unplanted(data, corpus)
    with locked(out):
        planted = plant_step(RunFolder(out), corpus, what if arm is None else what.only(arm))
    manifest = planted.manifest
    rows = sum(canary.dose for canary in manifest.canaries)
    twins = sum(canary.dose == 0 for canary in manifest.canaries)
    if as_json:
        emit_json(
            {
                "planted": str(out / "planted.jsonl"),
                "manifest": str(out / "manifest.json"),
                "rows": manifest.rows,
                "canaries": len(manifest.planted()),
                "occurrences": rows,
                "twins": twins,
                "left_out": list(corpus.left_out),
            }
        )
        return
    lines = [
        f"planted {len(manifest.planted())} canaries in {rows} of {manifest.rows} rows; {twins} twins were not planted",
        f"rows: {out / 'planted.jsonl'} (train on this, in this order)",
        f"secrets: {out / 'manifest.json'} (keep it away from the trainer)",
    ]
    if corpus.left_out:
        lines.append(f"columns that were left out: {', '.join(corpus.left_out)}")
    emit(lines)
