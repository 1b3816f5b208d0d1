"""``davylamp bounds audit-one-run`` and ``davylamp bounds audit-two-run``."""

from __future__ import annotations

from typing import Annotated

import typer

from davylamp.cli.output import JsonFlag, emit, emit_json


def _number(flag: str, words: str, metavar: str = "NUMBER") -> typer.models.OptionInfo:
    # Numbers arrive as text so that all faults of a command line can be named at once.
    return typer.Option(flag, help=words, metavar=metavar, show_default=False)  # type: ignore[no-any-return]


Delta = Annotated[str | None, _number("--delta", "At which the bound shall hold (default: 0, pure DP).")]
Confidence = Annotated[str | None, _number("--confidence", "Of the bound (default: 0.95).")]
Copies = Annotated[str | None, _number("--copies", "In how many records each canary was (default: 1).")]
Upper = Annotated[str | None, _number("--upper", "The accountant's epsilon at this delta, to hold the bound against.")]
UpperMu = Annotated[str | None, _number("--upper-mu", "The accountant's mu, to hold the bound against.")]


def audit_one_run(  # noqa: PLR0913, PLR0917 - one parameter an option, as typer reads them
    canaries: Annotated[
        str | None, _number("--canaries", "Canaries that a fair coin each put into the training data or left out.")
    ] = None,
    guesses: Annotated[str | None, _number("--guesses", "Of how many of them membership was guessed.")] = None,
    correct: Annotated[str | None, _number("--correct", "How many guesses were right.")] = None,
    delta: Delta = None,
    confidence: Confidence = None,
    method: Annotated[
        str | None,
        _number("--method", "binomial (default), f-dp, or gaussian, which speaks of Gaussian claims only.", "NAME"),
    ] = None,
    copies: Copies = None,
    upper: Upper = None,
    upper_mu: UpperMu = None,
    as_json: JsonFlag = False,
) -> None:
    """Say which epsilon the right membership guesses about one release rule out.

    The number of guesses must have been fixed before the coins were looked at. Example: davylamp bounds audit-one-run
    --canaries 1000 --guesses 100 --correct 90 --delta 1e-5 --upper 1
    """
    from davylamp.bounds.epsilon_question import answer_one_run, bound_lines

    given = {
        "canaries": canaries,
        "guesses": guesses,
        "correct": correct,
        "delta": delta,
        "confidence": confidence,
        "method": method,
        "copies": copies,
        "upper": upper,
        "upper_mu": upper_mu,
    }
    bound = answer_one_run(given)
    if as_json:
        emit_json(bound.as_dict())
        return
    emit(bound_lines(bound))


def audit_two_run(  # noqa: PLR0913, PLR0917 - one parameter an option, as typer reads them
    true_positives: Annotated[
        str | None, _number("--true-positives", "Trials with the record that the test called so.")
    ] = None,
    positives: Annotated[str | None, _number("--positives", "Trials with the record.")] = None,
    false_positives: Annotated[
        str | None, _number("--false-positives", "Trials without the record that the test called to be with it.")
    ] = None,
    negatives: Annotated[str | None, _number("--negatives", "Trials without the record.")] = None,
    delta: Delta = None,
    confidence: Confidence = None,
    gaussian: Annotated[
        bool, typer.Option("--gaussian", help="Rule out Gaussian claims, and speak of those only.")
    ] = False,
    copies: Copies = None,
    upper: Upper = None,
    upper_mu: UpperMu = None,
    as_json: JsonFlag = False,
) -> None:
    """Say which epsilon the outcomes of independent trials with and without a record rule out.

    The test's threshold must have been fixed beforehand. Example: davylamp bounds audit-two-run --true-positives 95
    --positives 100 --false-positives 3 --negatives 100 --delta 1e-5
    """
    from davylamp.bounds.epsilon_question import answer_two_run, bound_lines

    given = {
        "true_positives": true_positives,
        "positives": positives,
        "false_positives": false_positives,
        "negatives": negatives,
        "delta": delta,
        "confidence": confidence,
        "copies": copies,
        "upper": upper,
        "upper_mu": upper_mu,
    }
    bound = answer_two_run(given, gaussian=gaussian)
    if as_json:
        emit_json(bound.as_dict())
        return
    emit(bound_lines(bound))
