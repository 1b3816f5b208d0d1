"""``davylamp audit``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from davylamp.cli.membership import emit_membership
from davylamp.cli.output import (
    AdapterBaseOption,
    AddressOption,
    ChatTemplateOption,
    ExecutorOption,
    JsonFlag,
    QuietFlag,
    ShadowJobsOption,
    StyleOption,
    ThreadsOption,
    emit,
    emit_json,
    emit_verdict,
    style_of,
)
from davylamp.cli.protect import protected_note


def audit(  # noqa: PLR0913 - an argument for each option
    run: Annotated[Path, typer.Argument(help="Run folder that `davylamp plant` wrote.", show_default=False)],
    settings: Annotated[
        list[str] | None, typer.Argument(help="Settings as key=value, such as rules.rate=0.1 memory_mb=2048.")
    ] = None,
    *,
    model: Annotated[
        str | None, typer.Option("--model", help="The trained checkpoint or adapter (default: RUN/model).")
    ] = None,
    reference: Annotated[
        str | None,
        typer.Option("--reference", help="A base model to compare with; 'adapter' disables the checkpoint's own."),
    ] = None,
    base: AdapterBaseOption = None,
    measures: Annotated[
        str | None,
        typer.Option("--measures", help="What to measure beside exposure and recovery, such as membership,lira."),
    ] = None,
    style: StyleOption = None,
    chat_template: ChatTemplateOption = None,
    shadows: Annotated[
        int | None,
        typer.Option("--shadows", help="Shadow models for lira, an even number of at least 4 (default: 16)."),
    ] = None,
    executor: ExecutorOption = "local",
    address: AddressOption = None,
    jobs: ShadowJobsOption = None,
    corpus: Annotated[
        Path | None,
        typer.Option("--corpus", help="The file that was planted into, for the rows that canaries had taken in lira."),
    ] = None,
    threads: ThreadsOption = None,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Reach a trained model as an adversary would, and judge it.

    Ranks every canary's secret among all candidates, asks for it greedily, shows another one, and compares with
    twins that were never planted. Writes RUN/readings.parquet, RUN/audit.json and RUN/verdict.json; with membership
    or lira RUN/membership.json and RUN/epsilon.json too. lira trains shadow models first, as `davylamp shadows` does,
    and takes those that are there.
    """
    from davylamp.corpora.readers import read_corpus
    from davylamp.errors import Fault, InputError
    from davylamp.runs.config import apply_overrides, set_keys, validate
    from davylamp.runs.folder import RunFolder, locked
    from davylamp.runs.progress import Reporter
    from davylamp.studies.audit_spec import AuditSpec
    from davylamp.studies.auditing import AuditRequest, audit_step
    from davylamp.studies.shadow_request import ShadowRequest
    from davylamp.studies.steps import read_training
    from davylamp.training.shadow_runs import check_execution

    data = apply_overrides({}, settings or [])
    if measures is not None:
        if "measures" in data:
            raise InputError(Fault("--measures", measures, "either this or the setting measures=[...]"))
        wanted = ("exposure", "recovery", *filter(None, map(str.strip, measures.split(","))))
        data["measures"] = list(dict.fromkeys(wanted))
    if shadows is not None:
        data = set_keys(data, {"shadows.shadows": shadows})
    how = validate(AuditSpec, data, "audit")
    given = {"--shadows": shadows, "--address": address, "--jobs": jobs, "--corpus": corpus}
    given["--executor"] = None if executor == "local" else executor
    if "lira" not in how.measures and (without := [name for name, value in given.items() if value is not None]):
        raise InputError(Fault("--measures", measures, f"lira among them, since {', '.join(without)} is about shadows"))
    check_execution(executor, address)
    request = AuditRequest(
        model,
        reference,
        base,
        style_of(style),
        chat_template,
        how,
        threads=threads,
        shadows=ShadowRequest(
            corpus=None if corpus is None else read_corpus(corpus), executor=executor, address=address, jobs=jobs
        ),
    )
    with locked(run, make=False):
        verdict = audit_step(RunFolder(run), request, Reporter(quiet or as_json))
    if as_json:
        emit_json(verdict.model_dump(mode="json"))
        return
    emit_verdict(verdict, str(run))
    if {"membership", "lira"} & {*how.measures}:
        emit_membership(RunFolder(run))
    emit(protected_note(read_training(RunFolder(run))) if model is None else [])
    emit([f"verdict: {run / 'verdict.json'}; now `davylamp report {run}`"])
