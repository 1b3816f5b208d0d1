"""A verdict in sentences that a person reads first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from davylamp.verdict.model import Cell, Copying, Verdict


def headlines(verdicts: Sequence[Verdict]) -> Iterator[str]:
    """The result over all models: controls, then each arm at its largest dose, then copying."""
    failed = [verdict for verdict in verdicts if not verdict.given]
    if failed:
        yield (
            f"No verdict for {_of(len(failed), len(verdicts))}: a control failed, so that the audit cannot be believed."
        )
        for verdict in failed:
            for control in verdict.controls:
                if not control.passed:
                    yield f"Seed {verdict.seed}, {control.name} control: {control.statement}"
    cells = [cell for verdict in verdicts if verdict.given for cell in verdict.cells if cell.dose]
    for arm in dict.fromkeys(cell.arm for cell in cells):
        yield _arm([cell for cell in cells if cell.arm == arm])
    copying = [row for verdict in verdicts if verdict.given for row in verdict.copying]
    for arm in dict.fromkeys(row.arm for row in copying):
        rows = [row for row in copying if row.arm == arm and row.probe == "replacement" and row.dose]
        if rows:
            yield _copied(arm, rows)


def _arm(cells: Sequence[Cell]) -> str:
    dose = max(cell.dose for cell in cells)
    top = [cell for cell in cells if cell.dose == dose]
    words = Counter(
        "leak" if "leak" in (cell.exposure_verdict, cell.greedy_verdict) else cell.exposure_verdict for cell in top
    )
    found = ", ".join(f"{word} in {_of(count, len(top))}" for word, count in words.items())
    medians = [cell.median for cell in top]
    span = _span(medians)
    said, asked = sum(cell.greedy.successes for cell in top), sum(cell.greedy.trials for cell in top)
    leaking = sorted({cell.dose for cell in cells if "leak" in (cell.exposure_verdict, cell.greedy_verdict)})
    since = f" A leak is seen from dose {leaking[0]} on." if leaking and leaking[0] < dose else ""
    return (
        f"{top[0].arm} ({top[0].context} in the training prompt), dose {dose}: {found}. Median exposure {span} bits; "
        f"{said} of {asked} secrets are said exactly.{since}"
    )


def _copied(arm: str, rows: Sequence[Copying]) -> str:
    copied = [row.greedy for row in rows if row.target == "replacement"]
    kept = [row.greedy for row in rows if row.target == "trained"]
    shown = sum(rate.trials for rate in copied)
    times = sum(rate.successes for rate in copied)
    return (
        f"{arm}: shown another code in the prompt, the model copies that one in {times} of {shown} cases "
        f"({times / shown:.0%}) and says the trained one in {sum(rate.successes for rate in kept)}. "
        "Copying is not remembering."
    )


def _span(values: Iterable[float]) -> str:
    low, high = min(values := list(values)), max(values)
    return f"{low:.1f}" if f"{low:.1f}" == f"{high:.1f}" else f"{low:.1f} to {high:.1f}"


def _of(count: int, total: int) -> str:
    return "the only model" if total == 1 else f"{count} of {total} models"
