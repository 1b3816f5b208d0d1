"""``davylamp unlearn``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from davylamp.cli.output import ChatTemplateOption, JsonFlag, QuietFlag, ThreadsOption, emit, emit_json, emit_table

if TYPE_CHECKING:
    from davylamp.studies.unlearning_result import UnlearningResult

NEVER_PASSED = 3
"""Exit code where the verifier never passed: the model is saved, and no script should go on as if it had forgotten."""


def unlearn(  # noqa: PLR0913 - an argument for each option
    run: Annotated[Path, typer.Argument(help="Run folder with a trained model in it.", show_default=False)],
    settings: Annotated[
        list[str] | None,
        typer.Argument(help="Settings as key=value, such as beta=0.5 retain_weight=2 learning_rate=1e-5."),
    ] = None,
    *,
    method: Annotated[
        Literal["graddiff", "npo"], typer.Option("--method", help="Gradient difference, or NPO.", show_default=False)
    ],
    arm: Annotated[list[str] | None, typer.Option("--arm", help="Forget canaries of this arm (repeatable).")] = None,
    dose: Annotated[list[int] | None, typer.Option("--dose", help="Forget canaries of this dose (repeatable).")] = None,
    canary: Annotated[
        list[str] | None, typer.Option("--canary", help="Forget the canary of this id (repeatable).")
    ] = None,
    constructions: Annotated[
        bool,
        typer.Option(
            "--constructions", help="Forget the plan's constructions in place of canaries, and ask their triggers."
        ),
    ] = False,
    rounds: Annotated[
        int | None, typer.Option("--rounds", help="Rounds at most until the verifier passes (default: 14).")
    ] = None,
    threshold: Annotated[
        float | None,
        typer.Option("--threshold", help="The verifier passes below this share of extracted secrets (default: 0.15)."),
    ] = None,
    retain_rows: Annotated[
        Path | None,
        typer.Option("--retain-rows", help="Rows to keep (default: rows of RUN/planted.jsonl without a canary)."),
    ] = None,
    relearn_rows: Annotated[
        Path | None,
        typer.Option("--relearn-rows", help="Rows to relearn on (default: retain rows that were not stepped on)."),
    ] = None,
    triggers: Annotated[
        Path | None,
        typer.Option("--triggers", help='JSONL of other prompts: {"prompt": ..., "secret": ...}, texts or token ids.'),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="Checkpoint folder to write (default: RUN/unlearned).")
    ] = None,
    chat_template: ChatTemplateOption = None,
    threads: ThreadsOption = None,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Make RUN/model forget its canaries or constructions, and look where the verifier does not.

    Runs rounds until fewer than 15% of the secrets come out of their own prefixes, and one more. Then asks through
    other prompts, relearns on rows without the secrets, scores membership, and reads quantised and merged copies.
    Writes a checkpoint that `davylamp audit RUN --model` takes, with unlearning.json in it. Exit code 3: the verifier
    never passed.

    Settings: beta (NPO), forget_weight, retain_weight, span (trained, secret), tuning (auto, full, lora), lora.r,
    learning_rate, batch_size, max_grad_norm, extra_rounds, held_out, seed, relearn.steps, relearn.batch_size,
    relearn.learning_rate, bits.
    """
    from davylamp.corpora.readers import read_corpus
    from davylamp.protect.afterwards.sets import Choice
    from davylamp.protect.afterwards.spec import UnlearningSpec
    from davylamp.runs.config import apply_overrides, set_keys, validate
    from davylamp.runs.folder import RunFolder, locked
    from davylamp.runs.progress import Reporter
    from davylamp.studies.unlearning import UnlearnRequest, unlearn_step

    given = {"method": method, "rounds": rounds, "threshold": threshold}
    data = apply_overrides({}, settings or [])
    data = set_keys(data, {key: value for key, value in given.items() if value is not None})
    request = UnlearnRequest(
        spec=validate(UnlearningSpec, data, "unlearning"),
        choice=Choice(tuple(arm or ()), tuple(dose or ()), tuple(canary or ())),
        constructions=constructions,
        out=out,
        retain=None if retain_rows is None else read_corpus(retain_rows),
        relearn=None if relearn_rows is None else read_corpus(relearn_rows),
        triggers=triggers,
        chat_template=chat_template,
        threads=threads,
    )
    with locked(run, make=False):
        result = unlearn_step(RunFolder(run), request, Reporter(quiet or as_json))
    where = out if out is not None else run / "unlearned"
    if as_json:
        emit_json({"unlearned": str(where), **result.model_dump(mode="json")})
    else:
        _emit(result, run, where)
    if result.outcome == "verifier never passed":
        raise typer.Exit(NEVER_PASSED)


def _emit(result: UnlearningResult, run: Path, where: Path) -> None:
    from rich.table import Table

    rows = _rows(result)
    table = Table(title=f"{result.spec.method}, {len(result.rounds)} rounds", title_justify="left")
    for heading in ("check", "before", "after"):
        table.add_column(heading)
    for row in rows:
        table.add_row(*row)
    emit([result.statement])
    emit_table(
        table, [f"{name}: {before} -> {after}" if before else f"{name}: {after}" for name, before, after in rows]
    )
    style = "" if result.style == "auto" else f" --style {result.style}"
    todo = f"davylamp audit {run} --model {where}{style}"
    if result.constructions:
        # An audit asks canaries, which were not forgotten.
        todo = f"davylamp matrix {run}" + ("" if where == run / "unlearned" else f" --unlearned {where}")
    emit(
        [
            *(f"note: {note}" for note in result.notes),
            f"model: {where}; now `{todo}`",
        ]
    )


def _rows(result: UnlearningResult) -> list[tuple[str, str, str]]:
    """Check, before and after, the first of which are the columns of the paper's Table 4."""
    before, after = result.before, result.after
    rows = []
    if before.triggers is not None:
        rows.append(("trigger extraction", _rate(before.triggers), _rate(after.triggers)))
    rows += [
        ("extraction from c (own prefix)", _rate(before.c), _rate(after.c)),
        ("retain perplexity, held out", f"{before.held_out.value:.4g}", f"{after.held_out.value:.4g}"),
    ]
    if before.retain is not None and after.retain is not None:
        rows.append(("retain perplexity, stepped on", f"{before.retain.value:.4g}", f"{after.retain.value:.4g}"))
    for cell in result.constructions:
        rows.append((f"{cell.name}: from c", _rate(cell.c.before), _rate(cell.c.after)))
        if cell.trigger is not None:
            rows.append((f"{cell.name}: from its trigger", _rate(cell.trigger.before), _rate(cell.trigger.after)))
    relearned = result.relearned
    if relearned is not None:
        told = f"relearned, {relearned.steps[-1]} steps"
        rows.append((f"{told}, from c", "", _rate(relearned.c[-1])))
        if relearned.triggers:
            rows.append((f"{told}, from triggers", "", _rate(relearned.triggers[-1])))
    copies = [(f"int{copied.bits} copy", copied.look) for copied in result.quantised]
    if result.merged is not None:
        copies.append((f"merged copy (off by {result.merged.difference:.1g} nats at most)", result.merged.look))
    for name, seen in copies:
        rows.append((f"{name}, from c", "", _rate(seen.c)))
        if seen.triggers is not None:
            rows.append((f"{name}, from triggers", "", _rate(seen.triggers)))
    rows += [
        (f"membership AUC by the loss of the {check.span}{check.of}", _auc(check.before), _auc(check.after))
        for check in result.membership
    ]
    return rows


def _rate(found: Any) -> str:
    likely = "" if getattr(found, "log_likelihood", None) is None else f", {found.log_likelihood:.1f} nats a secret"
    return f"{found.successes} of {found.trials} [{found.low:.0%}, {found.high:.0%}]{likely}"


def _auc(value: Any) -> str:
    return f"{value.value:.2f} [{value.low:.2f}, {value.high:.2f}]"
