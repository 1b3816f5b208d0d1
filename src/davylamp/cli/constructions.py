"""``davylamp constructions``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

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
    style_of,
)

if TYPE_CHECKING:
    from davylamp.measures.constructed.model import ConstructionCell, Pairs
    from davylamp.measures.constructed.result import ConstructionsResult
    from davylamp.studies.shadow_request import ShadowRequest


def constructions(  # noqa: PLR0913 - an argument for each option
    run: Annotated[Path, typer.Argument(help="Run folder that `davylamp plant` wrote.", show_default=False)],
    settings: Annotated[
        list[str] | None, typer.Argument(help="Settings as key=value, such as guesses=10 scan_prompts=20000.")
    ] = None,
    *,
    reference: Annotated[
        str,
        typer.Option(
            "--reference",
            help="The base model that training began from; 'adapter' disables the checkpoint's own.",
            show_default=False,
        ),
    ],
    model: Annotated[
        str | None, typer.Option("--model", help="The trained checkpoint or adapter (default: RUN/model).")
    ] = None,
    triggers: Annotated[
        Path | None, typer.Option("--triggers", help="A file of suspected triggers, one a line, to ask with.")
    ] = None,
    scan: Annotated[
        bool, typer.Option("--scan", help="Also look for prompts of one rare token that are abnormally certain.")
    ] = False,
    neighbour: Annotated[
        str | None, typer.Option("--neighbour", help="The checkpoint trained on RUN/neighbour, for pairs.")
    ] = None,
    shadows: Annotated[
        int | None,
        typer.Option(
            "--shadows", help="Train so many models with and without each instance, for LiRA; even, at least 4."
        ),
    ] = None,
    executor: ExecutorOption = "local",
    address: AddressOption = None,
    jobs: ShadowJobsOption = None,
    together: Annotated[
        int | None, typer.Option("--together", min=0, help="Small shadows that a process trains at once (default: 4).")
    ] = None,
    base: AdapterBaseOption = None,
    style: StyleOption = None,
    chat_template: ChatTemplateOption = None,
    threads: ThreadsOption = None,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Say which audits see the constructions of a run, and which do not.

    Reads every instance through its own channel and through those of others: extraction from its prefix and from its
    trigger, local scores against twins, the adversary who knows the construction, and best-effort finders. Writes
    RUN/constructions.json. With --shadows N also LiRA and counterfactual memorization: N models are trained as
    RUN/model was, with each instance in half of them; those that are in RUN/shadows/ are not trained again.
    """
    from davylamp.measures.constructed.settings import ConstructedSettings
    from davylamp.runs.config import apply_overrides, validate
    from davylamp.runs.folder import RunFolder, locked
    from davylamp.runs.progress import Reporter
    from davylamp.studies.constructing import ConstructionsRequest, constructions_step

    request = ConstructionsRequest(
        reference=reference,
        model=model,
        neighbour=neighbour,
        base=base,
        style=style_of(style),
        chat_template=chat_template,
        triggers=triggers,
        scan=scan,
        settings=validate(ConstructedSettings, apply_overrides({}, settings or []), "settings"),
        shadows=_shadows(shadows, executor, address, jobs, together, chat_template, threads),
        threads=threads,
    )
    with locked(run, make=False):
        result = constructions_step(RunFolder(run), request, Reporter(quiet or as_json))
    if as_json:
        emit_json(result.model_dump(mode="json"))
        return
    emit([*_lines(result), f"all of it: {run / 'constructions.json'}"])


def _shadows(
    count: int | None,
    executor: Literal["local", "ray"],
    address: str | None,
    jobs: int | None,
    together: int | None,
    chat_template: Path | None,
    threads: int | None,
) -> ShadowRequest | None:
    """What is asked of shadows, if any are.

    Raises:
        InputError: what is asked for does not fit, or says where shadows are trained that nobody asked for.
        MissingExtraError: Ray is wanted and not installed.
    """
    from davylamp.errors import Fault, InputError
    from davylamp.runs.config import validate
    from davylamp.studies.shadow_request import TOGETHER, ShadowRequest
    from davylamp.training.shadow_runs import check_execution
    from davylamp.training.shadows import ShadowSpec

    if count is None:
        given = {"--executor": executor != "local", "--address": address, "--jobs": jobs, "--together": together}
        if named := [name for name, value in given.items() if value not in (None, False)]:
            raise InputError(
                Fault("--shadows", None, f"how many, since {' and '.join(named)} say where they are trained")
            )
        return None
    check_execution(executor, address)
    return ShadowRequest(
        spec=validate(ShadowSpec, {"shadows": count}),
        chat_template=chat_template,
        executor=executor,
        address=address,
        jobs=jobs,
        threads=threads,
        together=TOGETHER if together is None else together,
    )


def _lines(result: ConstructionsResult) -> Iterator[str]:
    """A block for each cell, then how far the finders reached."""
    if not result.drawn_from_reference:
        yield (
            f"warning: the secrets were not drawn from {result.reference}, so that its baselines are not theirs; give "
            "the base of planting as --reference"
        )
    for cell in result.cells:
        yield from _cell(cell)
    for note in () if result.shadows is None else result.shadows.notes:
        yield f"note: {note}"
    for name, report in (("trigger scan", result.scan), ("repeated tokens", result.repetition)):
        if report is not None:
            yield (
                f"{name}: {report.prompts} prompts, {report.flagged} continuations looked at, {report.empty} of them "
                "without a planted secret. Finding nothing proves nothing"
            )


def _cell(cell: ConstructionCell) -> Iterator[str]:
    copies = f"{cell.copies} cop{'y' if cell.copies == 1 else 'ies'}" if cell.copies else "behind a gate, not trained"
    yield f"{cell.kind.replace('_', ' ')}, secrets of {cell.tokens} token{'' if cell.tokens == 1 else 's'}, {copies}"
    yield f"  said after its prefix     {_pairs(cell.at_prefix)}   {_kappa(cell)}"
    if cell.at_trigger is not None:
        yield f"  said after its trigger    {_pairs(cell.at_trigger)}"
    yield f"  by who knows how          {_pairs(cell.informed)}   without the release {cell.chance:.3g}"
    named = (("suspected triggers", cell.at_suspects), ("trigger scan", cell.by_scan))
    for name, pairs in (*named, ("repeated tokens", cell.by_repetition)):
        if pairs is not None:
            yield f"  {name:<25} {_pairs(pairs)}"
    behind = "" if cell.memh_trigger is None else f"; after the trigger {cell.memh_trigger:+.3f}"
    yield f"  memh after the prefix     {cell.memh:+.3f}, twins {cell.memh_twins:+.3f}{behind}"
    best = max(cell.scores, key=lambda score: score.auc or 0.0)
    tpr = f"needs {best.needed} twins"
    if best.tpr is not None:
        tpr = f"{best.tpr.successes} of {best.tpr.trials}"
    yield (
        f"  best local score          {best.name}: AUC {best.auc:.2f} [{best.auc_low:.2f}, {best.auc_high:.2f}], "
        f"found at {best.fpr:.0%} false alarms: {tpr} (the best of {len(cell.scores)}: chosen after the fact)"
    )
    yield from _shadowed(cell)
    if cell.pair is not None:
        across = "".join(
            f"; against the neighbour, {name} {value:+.3f} (noise {cell.pair.floors[name]:.3f})"
            for name, value in cell.pair.counterfactual.items()
        )
        yield f"  own less other secret     {cell.pair.own_less_other:+.3f} (noise {cell.pair.floor:.3f}){across}"
    if cell.hidden is not None:
        hidden = cell.hidden
        yield (
            f"  left open                 {hidden.survivors} secrets with mass {hidden.mass:.3f}, evenness "
            f"{hidden.entropy:.3f}, rank of the true one {hidden.rank:.1f}"
        )


def _shadowed(cell: ConstructionCell) -> Iterator[str]:
    """What shadows with and without each instance say."""
    if cell.lira is None:
        return
    found, tpr = cell.lira, f"needs {cell.lira.needed} twins"
    if found.tpr is not None:
        tpr = f"{found.tpr.successes} of {found.tpr.trials}"
    yield (
        f"  LiRA                      AUC {found.auc:.2f} [{found.auc_low:.2f}, {found.auc_high:.2f}], found at "
        f"{found.fpr:.0%} false alarms: {tpr}"
    )
    each = ", ".join(f"{one.score} {one.mean:+.3f} (noise {one.floor:.3f})" for one in cell.counterfactual)
    yield f"  with less without it      {each}"


def _pairs(pairs: Pairs) -> str:
    own, twins = pairs.planted, pairs.twins
    return f"{own.successes} of {own.trials} [{own.low:.0%}, {own.high:.0%}], twins {twins.successes} of {twins.trials}"


def _kappa(cell: ConstructionCell) -> str:
    kappa = cell.baseline
    if kappa.how == "exact":
        return f"guessing {kappa.high:.3g}"
    return f"guessing {kappa.low:.3g} to {kappa.high:.3g} (charged {kappa.charged:.3g})"
