"""``davylamp plant``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from davylamp.cli.output import JsonFlag, QuietFlag, ThreadsOption, emit, emit_json, style_of

if TYPE_CHECKING:
    from davylamp.canaries.constructions import Instance


def plant(  # noqa: PLR0913 - one parameter an option
    data: Annotated[Path, typer.Argument(help="The rows to plant into: a JSONL or CSV file.", show_default=False)],
    overrides: Annotated[
        list[str] | None, typer.Argument(help="Changes to the plan as key=value, such as seed=3 doses=[1,16].")
    ] = None,
    *,
    plan: Annotated[
        Path, typer.Option("--plan", help="YAML file that says what is planted, or 'clinical'.", show_default=False)
    ],
    out: Annotated[Path, typer.Option("--out", help="Run folder to write to.", show_default=False)],
    arm: Annotated[str | None, typer.Option("--arm", help="Plant one arm of the plan only.")] = None,
    prompt: Annotated[str | None, typer.Option("--prompt", help="Column that holds the prompt.")] = None,
    completion: Annotated[str | None, typer.Option("--completion", help="Column that holds the completion.")] = None,
    text: Annotated[str | None, typer.Option("--text", help="Column that holds the text.")] = None,
    patient: Annotated[
        str | None, typer.Option("--patient", help="Column that says whom a row is about, where several are of one.")
    ] = None,
    data_format: Annotated[
        Literal["rows", "tatqa", "clinical"], typer.Option("--format", help="How the file is written.")
    ] = "rows",
    base: Annotated[
        str | None,
        typer.Option("--base", help="The model that training will begin from; constructions are drawn from it."),
    ] = None,
    style: Annotated[
        str, typer.Option("--style", help="How training will write records, for --base: auto, chat or plain.")
    ] = "auto",
    chat_template: Annotated[
        Path | None, typer.Option("--chat-template", help="Jinja file, for a base that has no chat template.")
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Replace another planting in OUT; its secrets are lost for good.")
    ] = False,
    threads: ThreadsOption = None,
    as_json: JsonFlag = False,
    _quiet: QuietFlag = False,
) -> None:
    """Plant canaries into a file of training rows.

    Writes OUT/planted.jsonl, a plain fine-tuning file that any trainer takes, and OUT/manifest.json, the sealed
    record of every secret, which only you may read and no trainer needs. Refuses a folder that holds another planting;
    the same one again changes nothing.
    """
    from davylamp.canaries import Plan
    from davylamp.corpora.readers import Columns, read_corpus
    from davylamp.errors import Fault, InputError
    from davylamp.protect.corpus.result import forget
    from davylamp.runs.config import apply_overrides, load_yaml, validate
    from davylamp.runs.files import sha256_file
    from davylamp.runs.folder import RunFolder, locked
    from davylamp.studies.clinical import PLAN
    from davylamp.studies.steps import check_unplanted, plant_step

    if str(plan) == "clinical" and not plan.is_file():
        plan = PLAN
    what = validate(Plan, apply_overrides(load_yaml(plan), overrides or []), "plan")
    if arm is not None and arm not in what.arms:
        raise InputError(Fault("--arm", arm, f"one of {', '.join(what.arms)}"))
    written = style_of(style)
    if what.constructions and base is None:
        raise InputError(
            Fault("--base", None, "the model that training will begin from", "plan.constructions draw secrets from it.")
        )
    named = any(column is not None for column in (prompt, completion, text))
    columns = Columns(prompt=prompt, completion=completion, text=text) if named else None
    corpus = read_corpus(data, columns=columns, format=data_format, patient=patient)
    check_unplanted(data, corpus)
    maker = None
    if what.constructions and base is not None:
        # Here, since it loads a model, which no other planting needs.
        from davylamp.studies.constructing import maker_of

        maker = maker_of(base, written, chat_template, threads)
    folder = RunFolder(out)
    with locked(out):
        before = sha256_file(folder.manifest) if force and folder.manifest.is_file() else None
        planted = plant_step(folder, corpus, what if arm is None else what.only(arm), maker, replace=force)
        # Without --force another planting was refused.
        forgotten = forget(out) if force and before != sha256_file(folder.manifest) else []
    manifest = planted.manifest
    rows = sum(canary.dose for canary in manifest.canaries)
    twins = sum(canary.dose == 0 for canary in manifest.canaries)
    instances = () if manifest.constructions is None else manifest.constructions.instances
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
                "removed": forgotten,
                "instances": sum(each.role == "planted" for each in instances),
                "instance_rows": sum(len(each.positions) for each in instances),
            }
        )
        return
    lines = [
        f"planted {len(manifest.planted())} canaries in {rows} of {manifest.rows} rows; {twins} twins were not planted",
        f"rows: {out / 'planted.jsonl'} (train on this, in this order)",
        f"secrets: {out / 'manifest.json'} (keep it away from the trainer)",
    ]
    if instances:
        lines += _constructed(instances, out, planted.neighbour is not None)
    if forgotten:
        lines.append(f"removed, since they were made of the old planting's rows: {', '.join(forgotten)}")
    if corpus.left_out:
        lines.append(f"columns that were left out: {', '.join(corpus.left_out)}")
    emit(lines)


def _constructed(instances: Sequence[Instance], out: Path, neighbour: bool) -> list[str]:
    """What constructions took, a line for all and one for the neighbour."""
    planted = [each for each in instances if each.role == "planted"]
    kinds = ", ".join(f"{count} {kind}" for kind, count in Counter(each.kind for each in planted).items())
    rows = sum(len(each.positions) for each in planted)
    lines = [
        f"constructions: {kinds} in {rows} rows; {len(instances) - len(planted)} twins were not planted "
        f"(after training: davylamp constructions {out} --reference BASE)"
    ]
    if neighbour:
        lines.append(f"neighbour: {out / 'neighbour'} holds the same rows, in which each pair reads its other secret")
    return lines
