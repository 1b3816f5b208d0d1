"""``davylamp bounds``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from davylamp.cli.epsilon import audit_one_run, audit_two_run
from davylamp.cli.output import JsonFlag, emit, emit_json
from davylamp.errors import Fault, InputError

bounds = typer.Typer(invoke_without_command=True)
bounds.command("audit-one-run")(audit_one_run)
bounds.command("audit-two-run")(audit_two_run)


def _number(flag: str, words: str, metavar: str = "NUMBER") -> typer.models.OptionInfo:
    # Numbers arrive as text so that all faults of a command line can be named at once.
    return typer.Option(flag, help=words, metavar=metavar, show_default=False)  # type: ignore[no-any-return]


@bounds.callback()
def _bounds(  # noqa: PLR0913, PLR0917 - one parameter an option, as typer reads them
    context: typer.Context,
    epsilon: Annotated[str | None, _number("--epsilon", "Claim: privacy loss of (eps, delta)-DP, nats.")] = None,
    delta: Annotated[str | None, _number("--delta", "Claim: delta of (eps, delta)-DP (default: 0, pure DP).")] = None,
    mu: Annotated[str | None, _number("--mu", "Claim: mu of Gaussian DP.")] = None,
    dpsgd: Annotated[
        str | None, _number("--dpsgd", "Claim: DP-SGD, as noise=1.1,rate=0.004,steps=3000.", "KEY=VALUE,...")
    ] = None,
    points: Annotated[
        Path | None,
        typer.Option("--points", help="Claim: CSV of alpha,beta points of a trade-off curve; the hull is taken."),
    ] = None,
    releases: Annotated[
        str | None, _number("--releases", "How many releases about the same record each keep the claim (default: 1).")
    ] = None,
    copies: Annotated[str | None, _number("--copies", "How many records carry the secret (default: 1).")] = None,
    budget: Annotated[str | None, _number("--budget", "Guesses that count as one attack (default: 1).")] = None,
    risk: Annotated[str | None, _number("--risk", "Extraction probability that you tolerate.")] = None,
    kappa: Annotated[str | None, _number("--kappa", "Success of the best list made without the release.")] = None,
    prior: Annotated[
        str | None,
        _number(
            "--prior",
            "The secret's prior: digits:4, bits:20, uniform:n=10000, zipf:1.2,n=10000, explicit:0.5,0.5, counts:FILE.",
            "PRIOR",
        ),
    ] = None,
    truncation: Annotated[
        str | None,
        _number("--truncation", "Also cap the memorization of a loss truncated here, nats (inf is refused)."),
    ] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Neighbours replace the record: also give the brackets.")
    ] = False,
    successes: Annotated[str | None, _number("--successes", "Audit: attacks whose list held the secret.")] = None,
    trials: Annotated[str | None, _number("--trials", "Audit: attacks on independent secrets.")] = None,
    confidence: Annotated[
        str | None, _number("--confidence", "Audit: confidence of its bound (default: 0.95).")
    ] = None,
    plan: Annotated[
        str | None,
        _number("--plan", "Plan an audit whose attack succeeds this often; see --power and --bits.", "RATE"),
    ] = None,
    power: Annotated[str | None, _number("--power", "Plan: chance to refute the claim (default: 0.8).")] = None,
    bits: Annotated[str | None, _number("--bits", "Plan: canary sizes in bits (default: 4,8,...,32).", "LIST")] = None,
    plot: Annotated[
        Path | None, typer.Option("--plot", help="Write the boundary 1 - f(kappa) as one HTML file.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Say what a privacy claim promises: how well a secret may be guessed, and when the claim stops helping.

    One claim: --epsilon (with --delta), --mu, --dpsgd or --points. Every answer is for adding or removing one
    record, and holds for replacing it if the claim does. Example: davylamp bounds --epsilon 4 --risk 0.1
    """
    if context.invoked_subcommand is not None:
        early = [name for name, value in context.params.items() if value is not None and value is not False]
        if early:
            why = f"Options of {context.invoked_subcommand} come after its name."
            raise InputError([Fault(f"--{name}", str(context.params[name]), "absent here", why) for name in early])
        return
    from davylamp.bounds.answers import answer, boundary_html, sentences, table_lines
    from davylamp.bounds.question import Question
    from davylamp.runs.files import write_text

    given = {
        "epsilon": epsilon,
        "delta": delta,
        "mu": mu,
        "dpsgd": dpsgd,
        "points": points,
        "releases": releases,
        "copies": copies,
        "budget": budget,
        "risk": risk,
        "kappa": kappa,
        "prior": prior,
        "truncation": truncation,
        "successes": successes,
        "trials": trials,
        "confidence": confidence,
        "plan": plan,
        "power": power,
        "bits": bits,
    }
    question = Question.parse(given, replace=replace)
    result = answer(question)
    if plot is not None:
        write_text(plot, boundary_html(question, tuple(sentences(question, result))))
    if as_json:
        emit_json(result)
        return
    emit([*table_lines(result), "", *sentences(question, result)])
    if plot is not None:
        emit([f"plot: {plot}"])
