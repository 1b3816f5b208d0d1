"""``davylamp goldfish``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from davylamp.cli.output import ChatTemplateOption, JsonFlag, emit, emit_json
from davylamp.runs.wording import counted

if TYPE_CHECKING:
    from davylamp.studies.goldfishing import GoldfishView


def goldfish(
    run: Annotated[Path, typer.Argument(help="Run folder that `davylamp plant` wrote.", show_default=False)],
    settings: Annotated[
        list[str] | None, typer.Argument(help="Settings of training as key=value, such as goldfish.k=3 goldfish.h=13.")
    ] = None,
    record: Annotated[int | None, typer.Option("--record", min=0, help="Show this row, dropped tokens marked.")] = None,
    model: Annotated[
        str | None,
        typer.Option("--model", help="Whose tokenizer (default: the one trained on, else 'embedded')."),
    ] = None,
    reveal: Annotated[bool, typer.Option("--reveal", help="Show the secret of a canary, which is masked.")] = False,
    chat_template: ChatTemplateOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Show which tokens a Goldfish loss drops, before or after training.

    Without settings those of RUN/training.json are taken, or k 4 and h 13. Trains nothing and writes nothing.
    """
    from davylamp.runs.config import apply_overrides, validate
    from davylamp.runs.folder import RunFolder
    from davylamp.studies.goldfishing import view_goldfish
    from davylamp.studies.steps import read_training
    from davylamp.training.spec import TrainingSpec

    folder = RunFolder(run)
    trained = read_training(folder)
    how = validate(TrainingSpec, apply_overrides(dict(trained.get("spec", {})), settings or []), "training")
    base = model or (trained["model"]["name"] if trained else "embedded")
    found = view_goldfish(folder, base, how, position=record, reveal=reveal, chat_template=chat_template)
    if as_json:
        emit_json(asdict(found) | {"spec": found.spec.model_dump(mode="json")})
        return
    emit(list(_lines(found)))


def _lines(found: GoldfishView) -> Iterator[str]:
    spec = found.spec
    share = f"{found.dropped / max(1, found.loss_tokens):.1%}; 1/k is {1 / spec.k:.1%}"
    yield (
        f"goldfish k {spec.k}, h {spec.h} ({spec.scheme}): {found.dropped:,} of "
        f"{counted(found.loss_tokens, 'loss token')} in {counted(found.rows, 'row')} {_are(found.dropped)} dropped "
        f"({share})"
    )
    yield from secret_lines([asdict(each) for each in found.secrets])
    if found.gone:
        planted = len(found.secrets) + len(found.gone)
        yield (
            f"{len(found.gone)} of {counted(planted, 'planted canary', 'planted canaries')} have their secret in no "
            "row that is trained on, word for word: the rows were protected"
        )
    if found.row is not None:
        held = f", canary {found.row.canary}" if found.row.canary else ""
        yield (
            f"row {found.row.position}{held}: {len(found.row.dropped)} of "
            f"{counted(found.row.loss_tokens, 'loss token')} {_are(len(found.row.dropped))} dropped, marked [-so-]"
        )
        yield found.row.marked


def secret_lines(secrets: Sequence[dict[str, Any]]) -> Iterator[str]:
    """What is dropped of the secrets of canaries, in a sentence or two."""
    if not secrets:
        return
    tokens, lost = sum(each["tokens"] for each in secrets), sum(len(each["dropped"]) for each in secrets)
    whole = sum(not each["dropped"] for each in secrets)
    yield (
        f"of the {'secret' if len(secrets) == 1 else 'secrets'} of {counted(len(secrets), 'canary', 'canaries')} "
        f"{lost} of {counted(tokens, 'token')} {_are(lost)} dropped ({lost / tokens:.1%}); "
        f"{counted(whole, 'secret loses', 'secrets lose')} none"
    )
    silent = [each["id"] for each in secrets if len(each["dropped"]) == each["tokens"]]
    if silent:
        more = f" and {len(silent) - 5} more" if len(silent) > 5 else ""
        which = "secret" if len(silent) == 1 else "secrets"
        yield f"all tokens are dropped of the {which} of {', '.join(silent[:5])}{more}: never trained to say it"


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


def trained_with(made: dict[str, Any]) -> Iterator[str]:
    """What a training dropped, from what ``training.json`` holds; nothing where it dropped nothing."""
    spec = made["spec"].get("goldfish")
    if spec is None or made["preflight"] is None:
        return
    yield f"goldfish k {spec['k']}, h {spec['h']} ({spec['scheme']}): dropped tokens receive no loss"
    yield from secret_lines(made["preflight"]["dropped"] or ())
    if "protection" in made:
        yield "that is the positive control's alone, which was left as it was; of the others: `davylamp goldfish RUN`"
