"""The result for people: the shapes, and the tables behind them, as Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from davylamp.measures.constructed.model import ConstructionCell, LocalScore, Rate
from davylamp.studies.blind_spots.result import BlindSpotsResult, SeedResult
from davylamp.studies.unlearning_result import UnlearningResult
from davylamp.studies.wording import shape_lines, table_head, table_row
from davylamp.verdict.matrix_model import Matrix


def lines_of(result: BlindSpotsResult) -> list[str]:
    """Every line of ``blind_spots.md``."""
    recipe = result.recipe
    minutes = sum(result.cpu_seconds.values()) / 60
    lines = [
        f"{recipe['model']}, seeds {', '.join(str(seed.seed) for seed in result.seeds)}, {recipe['rows']:,} rows of "
        f"{result.corpus}; {minutes:.1f} minutes of processor time.",
        "",
    ]
    lines += shape_lines(result.shapes)
    lines += [*_constructions(result.seeds, str(recipe["score"]))]
    if recipe["unlearning"]:
        lines += ["", *_unlearning(result.seeds)]
    for seed in result.seeds:
        lines += ["", f"The matrix of seed {seed.seed}:", "", *_matrix(seed.matrix)]
    return lines


def _constructions(seeds: Sequence[SeedResult], score: str) -> Iterator[str]:
    heads = (
        *("seed", "kind, tokens", "at c", "at rho", "informed", "memh at c", "twins", "memh at rho"),
        *(f"{score} (AUC)", "best", "LiRA (AUC)"),
    )
    yield from table_head(heads)
    for seed in seeds:
        for cell in seed.read.cells:
            rho = "" if cell.at_trigger is None else _count(cell.at_trigger.planted)
            behind = "" if cell.memh_trigger is None else f"{cell.memh_trigger:.3f}"
            yield table_row(
                str(seed.seed),
                f"{cell.kind.replace('_', ' ')}, {cell.tokens}",
                _count(cell.at_prefix.planted),
                rho,
                _count(cell.informed.planted),
                f"{cell.memh:.3f}",
                f"{cell.memh_twins:.3f}",
                behind,
                _found(cell, score),
                _best(cell),
                "" if cell.lira is None else _of(cell.lira),
            )


def _found(cell: ConstructionCell, score: str) -> str:
    """What a score finds at its false-positive rate, and its AUC."""
    return _of(next(each for each in cell.scores if each.name == score))


def _of(each: LocalScore) -> str:
    area = "" if each.auc is None else f" ({each.auc:.2f})"
    return ("" if each.tpr is None else _count(each.tpr)) + area


def _best(cell: ConstructionCell) -> str:
    rates = [(each.tpr.successes, each.name) for each in cell.scores if each.tpr is not None]
    if not rates:
        return ""
    most, name = max(rates)
    return f"{most} ({name})"


def _unlearning(seeds: Sequence[SeedResult]) -> Iterator[str]:
    yield from table_head(
        ("seed, method", "trigger", "naive at c", "retain perplexity", "rounds", "relearned: c, trigger")
    )
    for seed in seeds:
        for method, found in seed.unlearned.items():
            yield table_row(
                f"{seed.seed} {method}",
                _shift(found, "trigger"),
                _shift(found, "naive"),
                f"{found.before.held_out.value:.3f} -> {found.after.held_out.value:.3f}",
                f"{len(found.rounds)} ({found.outcome})",
                _relearned(found),
            )


def _shift(found: UnlearningResult, kind: str) -> str:
    cells = [cell for cell in found.constructions if cell.kind == kind]
    shifts = [cell.c if cell.trigger is None else cell.trigger for cell in cells]
    before, after = (
        sum(rate.successes for rate in rates) / max(1, sum(rate.trials for rate in rates))
        for rates in ([each.before for each in shifts], [each.after for each in shifts])
    )
    return f"{before:.2f} -> {after:.2f}"


def _relearned(found: UnlearningResult) -> str:
    again = found.relearned
    if again is None:
        return ""
    triggers = f", {again.triggers[-1].rate:.2f}" if again.triggers else ""
    return f"{again.c[-1].rate:.2f}{triggers}"


def _matrix(matrix: Matrix) -> Iterator[str]:
    yield from table_head(("leak", *(column.title for column in matrix.columns)))
    for row in matrix.rows:
        cells = [row.cells[column.key] for column in matrix.columns]
        yield table_row(
            row.name, *("" if each.signal is None else f"{each.signal:.2f} {each.word or ''}".strip() for each in cells)
        )


def _count(rate: Rate) -> str:
    return f"{rate.successes} of {rate.trials}"
