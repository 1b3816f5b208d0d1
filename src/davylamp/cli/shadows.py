"""``davylamp shadows``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from davylamp.cli.output import (
    AddressOption,
    ChatTemplateOption,
    ExecutorOption,
    JsonFlag,
    QuietFlag,
    ShadowJobsOption,
    ThreadsOption,
    emit,
    emit_json,
)

if TYPE_CHECKING:
    from davylamp.measures.shadow_results import ShadowScores


def shadows(  # noqa: PLR0913 - an argument for each option
    run: Annotated[Path, typer.Argument(help="Run folder that `davylamp plant` wrote.", show_default=False)],
    settings: Annotated[
        list[str] | None,
        typer.Argument(help="Training settings as key=value, over those of RUN/training.json."),
    ] = None,
    *,
    count: Annotated[int, typer.Option("--shadows", help="How many; an even number of at least 4.")] = 16,
    executor: ExecutorOption = "local",
    address: AddressOption = None,
    jobs: ShadowJobsOption = None,
    together: Annotated[
        int | None,
        typer.Option(
            "--together",
            min=0,
            help="Small models that a process trains at once (default: 4); 0 trains each as `davylamp train` does.",
        ),
    ] = None,
    model: Annotated[
        str | None, typer.Option("--model", help="Model to begin from (default: that of RUN/training.json).")
    ] = None,
    audited: Annotated[
        str | None, typer.Option("--audited", help="Checkpoint to attack (default: RUN/model, if it is there).")
    ] = None,
    corpus: Annotated[
        Path | None,
        typer.Option("--corpus", help="The file that was planted into, for the rows that canaries had taken."),
    ] = None,
    prompt: Annotated[str | None, typer.Option("--prompt", help="Column of --corpus that holds the prompt.")] = None,
    completion: Annotated[
        str | None, typer.Option("--completion", help="Column of --corpus that holds the completion.")
    ] = None,
    text: Annotated[str | None, typer.Option("--text", help="Column of --corpus that holds the text.")] = None,
    twin_dose: Annotated[
        int | None,
        typer.Option("--twin-dose", help="Occurrences of a twin in a shadow (default: the plan's doses in turn)."),
    ] = None,
    truncation: Annotated[
        float | None, typer.Option("--truncation", help="Nats at which the log-loss is cut off (default: 20).")
    ] = None,
    chat_template: ChatTemplateOption = None,
    keep_models: Annotated[
        bool, typer.Option("--keep-models", help="Keep the shadow models too, in RUN/shadows/models/.")
    ] = False,
    threads: ThreadsOption = None,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Train shadow models, and score membership by them: LiRA, RMIA, counterfactual memorization.

    Each shadow is trained as RUN/model was, on the same rows, with each canary and each twin in or out by a fair coin.
    Writes RUN/shadow_scores.json, and what each shadow says of each record to RUN/shadows/. A shadow that is there is
    not trained again: a killed command resumes, and more shadows add to those that there are.
    """
    from davylamp.corpora.readers import Columns, read_corpus
    from davylamp.errors import Fault, InputError
    from davylamp.measures.counterfactual import TRUNCATION
    from davylamp.runs.config import validate
    from davylamp.runs.folder import RunFolder, locked
    from davylamp.runs.progress import Reporter
    from davylamp.studies.shadow_request import TOGETHER, ShadowRequest
    from davylamp.studies.shadowing import shadows_step
    from davylamp.training.shadow_runs import check_execution
    from davylamp.training.shadows import ShadowSpec

    named = any(column is not None for column in (prompt, completion, text))
    if named and corpus is None:
        raise InputError(Fault("--corpus", None, "the file whose columns --prompt, --completion and --text name"))
    check_execution(executor, address)
    request = ShadowRequest(
        spec=validate(ShadowSpec, {"shadows": count, "twin_dose": twin_dose}),
        model=model,
        settings=tuple(settings or ()),
        chat_template=chat_template,
        audited=audited,
        corpus=None
        if corpus is None
        else read_corpus(corpus, columns=Columns(prompt=prompt, completion=completion, text=text) if named else None),
        executor=executor,
        address=address,
        jobs=jobs,
        threads=threads,
        together=TOGETHER if together is None else together,
        keep_models=keep_models,
        truncation=TRUNCATION if truncation is None else truncation,
    )
    with locked(run, make=False):
        outcome = shadows_step(RunFolder(run), request, Reporter(quiet or as_json))
    scores = outcome.scores
    where = run / "shadow_scores.json"
    if as_json:
        emit_json(
            {
                "scores": str(where),
                "trained": outcome.trained,
                "shadows": len(scores.inside),
                "records": len(scores.records),
                "audited": scores.audited,
                "auc": _aucs(scores),
                "cells": [cell.model_dump(mode="json") for cell in scores.cells],
                "notes": list(scores.notes),
            }
        )
        return
    done = len(scores.inside) - outcome.trained
    emit(
        [
            f"trained {outcome.trained} shadows{f', {done} were there' if done else ''}; each of "
            f"{len(scores.records)} records is in half of them",
            *_sentences(scores),
            *(f"note: {note}" for note in scores.notes),
            f"scores: {where}",
        ]
    )


def _aucs(scores: ShadowScores) -> list[dict[str, object]]:
    """AUC of each score by arm and dose, each shadow attacked in turn."""
    groups = sorted({(record.arm, record.shadow_dose) for record in scores.records if record.shadow_dose})
    found: list[dict[str, object]] = []
    for trials in scores.trials:
        for arm, dose in groups:
            value = scores.trial_auc(trials, arm, dose)
            if value is not None:
                where = {"probe": trials.probe, "span": trials.span, "measure": trials.measure}
                found.append({**where, "arm": arm, "dose": dose, "auc": value})
    return found


def _sentences(scores: ShadowScores) -> list[str]:
    """One line for each arm and dose: the secret with the prompt hiding it."""
    lines = []
    aucs = {
        (each["arm"], each["dose"], each["measure"]): each["auc"]
        for each in _aucs(scores)
        if (each["probe"], each["span"]) == ("hidden", "secret")
    }
    for cell in scores.cells:
        if (cell.probe, cell.span, cell.measure) != ("hidden", "secret", "counterfactual_probability"):
            continue
        named = (("LiRA", "lira_online"), ("RMIA", "rmia_ratio"))
        shown = [
            f"{name} {aucs[cell.arm, cell.shadow_dose, measure]:.2f}"
            for name, measure in named
            if (cell.arm, cell.shadow_dose, measure) in aucs
        ]
        lines.append(
            f"{cell.arm}, dose {cell.shadow_dose}, {cell.records} records, secret hidden in the prompt: "
            + (f"AUC over all shadows {', '.join(shown)}; " if shown else "")
            + f"counterfactual memorization {cell.mean:.3f} (noise floor {cell.floor_mean_q95:.3f})"
        )
    return lines
