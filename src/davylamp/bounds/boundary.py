"""The boundary ``1 - f(kappa)`` drawn against the guessing baseline, with the entropy of a secret on top."""

from __future__ import annotations

import math

import numpy as np

from davylamp.bounds import checks, figures
from davylamp.bounds.claims import Claim, claim_faults
from davylamp.bounds.extraction import extraction_bound, min_entropy_threshold, safe_baseline


def boundary_page(
    claim: Claim,
    *,
    risk: float | None = None,
    kappa: float | None = None,
    budget: int = 1,
    copies: int = 1,
    notes: tuple[str, ...] = (),
) -> str:
    """A self-contained HTML page with the boundary, the risk line and alpha*.

    Args:
        claim: the claim for one record.
        risk: tolerated extraction, drawn as a line with its safe baseline, in (0, 1).
        kappa: a baseline to mark, in [0, 1].
        budget: m, for the entropy axis ``log2(m / kappa)``.
        copies: how many records carry the secret.
        notes: sentences to print below.

    Raises:
        InputError: an argument is outside its range.
    """
    checks.raise_faults(
        claim_faults("claim", claim),
        [] if risk is None else checks.open_unit("risk", risk),
        [] if kappa is None else checks.unit("kappa", kappa),
        checks.whole("budget", budget),
        checks.whole("copies", copies),
    )
    safe = None if risk is None else safe_baseline(claim, risk, copies)
    chart = _chart(claim, risk, safe, kappa, budget, copies)
    blocks = [figures.figure(chart), *(figures.paragraph(note) for note in notes)]
    return figures.page(f"How well may a secret be guessed? {claim.describe()}", blocks)


def _chart(
    claim: Claim, risk: float | None, safe: float | None, kappa: float | None, budget: int, copies: int
) -> figures.Chart:
    marked = [v for v in (safe, kappa) if v]
    low = max(min([2.0**-20, *(v / 30 for v in marked)]), 1e-290)
    grid = np.geomspace(low, 1, 600)
    bound = np.asarray(extraction_bound(claim, grid, copies))
    floor = max(min(low, *(v for v in bound if v > 0)), low)
    if risk is not None:
        floor = min(floor, risk / 10)
    marks = []
    caption = "The curve is the most that a list attack on the release can achieve; the diagonal is what it achieves "
    caption += "without the release."
    if risk is not None:
        marks.append(figures.Mark(f"tolerated risk {risk:g}", y=risk, colour=1))
        if safe:
            bits = min_entropy_threshold(claim, risk, budget, copies)
            words = f"α* = {safe:.3g}" + (f", {bits:.2f} bits" if bits is not None else "")
            marks.append(figures.Mark(words, x=safe, colour=2))
        else:
            caption += f" No baseline keeps extraction below {risk:g}: the claim itself may fail more often."
    if kappa:
        marks.append(figures.Mark(f"your κ = {kappa:.3g}", x=kappa, colour=3))
    series = [
        figures.Series("bound 1 − f(κ)" + (f", {copies} copies" if copies > 1 else ""), grid, bound),
        figures.Series("guessing without the release", grid, grid, colour=4, dashed=True),
    ]
    span = math.log2(budget / low)
    stride = max(1, 2 ** max(0, math.ceil(math.log2(span / 12)))) if span > 0 else 1
    first = math.ceil(math.log2(budget))
    shown = range(first + (-first) % stride, math.floor(span) + 1, stride)
    ticks = [(min(1.0, budget * 2.0**-b), str(b)) for b in shown]
    return figures.Chart(
        "Largest extraction probability that the claim allows",
        figures.Axis("guessing baseline κ (probability)", low, 1.0, log=True),
        figures.Axis("extraction (probability)", floor, 1.0, log=True),
        series,
        marks,
        (f"min-entropy of a uniform secret, {budget} guess{'es' if budget > 1 else ''} (bits)", ticks),
        caption,
    )
